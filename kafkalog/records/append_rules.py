"""The settings that every append asks for, read once for a log and not once for an append.

A small append costs a few microseconds, and asking a config the same twenty questions is a good
part of them.

Thread-safety: immutable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkalog._core.append_limits import AppendLimits
from kafkalog.config import LogConfig
from kafkalog.layout import MAGIC_V2
from kafkalog.records.codecs import Codec

__all__ = ["AppendRules"]


@dataclass(frozen=True, slots=True)
class AppendRules:
    """
    Rules for an append, from the settings of a log.

    Attributes:
        magic: format of what an append writes, 0 to 2.
        wanted_codec: of all batches, None where each keeps its own.
        level: of that codec, None for its default.
        is_log_append_time: whether records get the time of the append.
        is_key_required: whether a record must have a key.
        policy: `cleanup.policy` as it is written, for messages.
        before_ms, after_ms: how far a timestamp may lie from the time of the append.
        max_message_bytes, segment_bytes, batch_bytes, decompressed_max_bytes: limits of one batch.
        limits: what of this a kernel asks for.
        is_plain: whether records become batches of format v2 that are not compressed.
    """

    magic: int
    wanted_codec: Codec | None
    level: int | None
    is_log_append_time: bool
    is_key_required: bool
    policy: str
    before_ms: int
    after_ms: int
    max_message_bytes: int
    segment_bytes: int
    batch_bytes: int
    decompressed_max_bytes: int
    limits: AppendLimits = field(init=False, repr=False, compare=False)
    is_plain: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        limits = AppendLimits(
            batch_bytes=self.batch_bytes,
            max_message_bytes=self.max_message_bytes,
            before_ms=self.before_ms,
            after_ms=self.after_ms,
            is_key_required=self.is_key_required,
            is_log_append_time=self.is_log_append_time,
        )
        object.__setattr__(self, "limits", limits)
        is_plain = self.magic == MAGIC_V2 and not self.wanted_codec
        object.__setattr__(self, "is_plain", is_plain)

    @classmethod
    def of(cls, config: LogConfig) -> AppendRules:
        """Read them from the settings."""
        codec = Codec.of_config(config.compression_type)
        return cls(
            config.message_magic,
            codec,
            None if codec is None else config.compression_level(codec.kafka_name),
            config.is_log_append_time,
            config.is_compacted,
            ",".join(config.cleanup_policy),
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
            config.max_message_bytes,
            config.segment_bytes,
            config.append_batch_bytes,
            config.decompressed_max_bytes,
        )

    def has_invalid_record(
        self, now_ms: int, null_key_count: int, min_timestamp: int, max_timestamp: int
    ) -> bool:
        """
        Return whether a batch has a record that is not allowed.

        Args:
            now_ms: time of the append.
            null_key_count: records without a key.
            min_timestamp, max_timestamp: of the records that have one; -1 where none has.
        """
        return self.limits.has_invalid_record(now_ms, null_key_count, min_timestamp, max_timestamp)
