"""Settings of a log: the topic settings of Kafka that a log uses, and those of kafkalog.

Each field is one key with dots replaced by underscores (`segment.bytes` is `segment_bytes`); the
keys that Kafka does not have begin with `kafkalog.`, which the field names omit. Names, types,
defaults and ranges are Kafka 4.1's; every difference is listed in `docs/configuration.md`, which
`ci/check_config_docs.py --write` makes from this file. A new setting is a new field of this file.

Thread-safety: a config is immutable and may be shared. This module never reads the environment.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kafkalog.codec_table import CODEC_NAMES, CODECS, CODECS_BY_NAME
from kafkalog.errors import ConfigError
from kafkalog.settings import (
    LONG_MAX,
    ConfigChange,
    change_between,
    check_config,
    names_unknown_fields,
    parse_properties,
    replace_fields,
    setting,
    settings_of,
    to_properties,
)

__all__ = ["BEHAVIOUR", "KEYS_WITHOUT_USE", "PERFORMANCE", "LogConfig"]

BEHAVIOUR: Final = "Behaviour"
PERFORMANCE: Final = "Performance"

_DAY_MS: Final = 24 * 60 * 60 * 1000
_COMPRESSION: Final = ("uncompressed", *CODEC_NAMES[:0:-1], "producer")
_GZIP, _LZ4, _ZSTD = (levels for row in CODECS if (levels := row.levels) is not None)
_NEVER: Final = f"{LONG_MAX} means never"

# Release of Kafka -> magic of the batches that it wrote by default.
_FORMATS: Final[Mapping[str, int]] = MappingProxyType(
    dict.fromkeys(("0.8.0", "0.8.1", "0.8.2", "0.9.0"), 0)
    | dict.fromkeys(("0.10.0", "0.10.1", "0.10.2"), 1)
    | dict.fromkeys(("0.11.0", "1.0", "1.1", *(f"2.{minor}" for minor in range(9))), 2)
    | dict.fromkeys((*(f"3.{minor}" for minor in range(10)), "4.0", "4.1"), 2)
)
# Release of an old broker, with a patch number and the number of an internal version.
_RELEASE: Final = re.compile(r"(0\.\d+\.\d+|[1-9]\.\d+)(\.\d+)?(-IV\d+)?", re.ASCII)

_ONE_PROCESS = "it belongs to the brokers of a cluster, and a log here is one process"
_LOCAL_ONLY = "all data of a log here is local"

# Topic settings of Kafka 4.1 that are refused by name, with the reason.
KEYS_WITHOUT_USE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "follower.replication.throttled.replicas": _ONE_PROCESS,
        "internal.segment.bytes": "segment.bytes itself may be as small here",
        "leader.replication.throttled.replicas": _ONE_PROCESS,
        "local.retention.bytes": _LOCAL_ONLY,
        "local.retention.ms": _LOCAL_ONLY,
        "min.insync.replicas": _ONE_PROCESS,
        "remote.log.copy.disable": _LOCAL_ONLY,
        "remote.log.delete.on.disable": _LOCAL_ONLY,
        "remote.storage.enable": _LOCAL_ONLY,
        "unclean.leader.election.enable": _ONE_PROCESS,
    }
)


@names_unknown_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """
    Settings of one log.

    >>> LogConfig.from_properties({"segment.bytes": "1048576"}).segment_bytes
    1048576

    Raises:
        ConfigError: a value is not of its key's type or out of its range, or two keys contradict
            each other; the message names the key, the value and the rule.
    """

    # Behaviour: what is kept, for how long, and what an append may hold.

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy", "list", ("delete",),
        "Treatment of old records: `delete` removes whole segments by age and size, `compact` "
        "keeps the newest record of each key. Both may be combined; an empty list keeps all "
        "records.",
        group=BEHAVIOUR, choices=("compact", "delete"),
    )  # fmt: skip
    retention_ms: int = setting(
        "retention.ms", "long", 7 * _DAY_MS,
        "Age at which a segment is deleted, with `delete` in the policy. -1 keeps for ever.",
        group=BEHAVIOUR, unit="ms", lower=-1,
    )  # fmt: skip
    retention_bytes: int = setting(
        "retention.bytes", "long", -1,
        "Size of the log above which its oldest segments are deleted; negative sets no limit. "
        "Leave it alone unless disk space matters more than history.",
        group=BEHAVIOUR, unit="bytes",
    )  # fmt: skip
    retention_future_guard: bool = setting(
        "kafkalog.retention.future.guard", "boolean", True,
        "If the largest timestamp of a segment is more than an hour in the future, its age is "
        "that of its file. Without the guard such a timestamp keeps the segment, and all later "
        "ones, until that day, as in Kafka. Switch it off for logs with planned times.",
        group=BEHAVIOUR,
    )  # fmt: skip
    delete_retention_ms: int = setting(
        "delete.retention.ms", "long", _DAY_MS,
        "How long compaction keeps tombstones and transaction markers, so that a slow reader "
        "still sees them. Leave it alone unless a full read takes longer.",
        group=BEHAVIOUR, unit="ms", lower=0,
    )  # fmt: skip
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms", "long", 0,
        "Age below which a record is not compacted. Must not exceed `max.compaction.lag.ms`.",
        group=BEHAVIOUR, unit="ms", lower=0,
    )  # fmt: skip
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms", "long", LONG_MAX,
        "Age at which compaction is due whatever the dirty ratio; with `compact` it also limits "
        f"`segment.ms`. {_NEVER}.",
        group=BEHAVIOUR, unit="ms", lower=1,
    )  # fmt: skip
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms", "long", 60_000,
        "Time between the renaming of a file to `.deleted` and its removal. Leave it alone.",
        group=BEHAVIOUR, unit="ms", lower=0,
    )  # fmt: skip
    max_message_bytes: int = setting(
        "max.message.bytes", "int", 1_048_588,
        "Largest batch that an append takes, header included, after compression.",
        group=BEHAVIOUR, unit="bytes", lower=0,
    )  # fmt: skip
    message_timestamp_type: str = setting(
        "message.timestamp.type", "string", "CreateTime",
        "Timestamp of a record: the one of its producer, or the time of the append.",
        group=BEHAVIOUR, choices=("CreateTime", "LogAppendTime"),
    )  # fmt: skip
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms", "long", LONG_MAX,
        "Largest age of a record's timestamp at its append. Only with CreateTime; a record "
        f"without a timestamp always passes. {LONG_MAX} sets no limit.",
        group=BEHAVIOUR, unit="ms", lower=0,
    )  # fmt: skip
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms", "long", 3_600_000,
        "Largest distance of a record's timestamp into the future. Only with CreateTime. Raise it "
        "for events with planned times; `kafkalog.retention.future.guard` concerns their age.",
        group=BEHAVIOUR, unit="ms", lower=0,
    )  # fmt: skip
    message_format_version: str = setting(
        "message.format.version", "string", "4.1",
        "Release of Kafka whose message format is written: below 0.10.0 that is v0 (magic 0), "
        "below 0.11.0 v1, then v2. Patch numbers and `-IV` suffixes are ignored. Leave it alone "
        "unless an old program reads the files: old formats have no headers and no producers.",
        group=BEHAVIOUR, choices=tuple(_FORMATS),
    )  # fmt: skip
    flush_messages: int = setting(
        "flush.messages", "long", LONG_MAX,
        "Records after which the log is synced. Leave it alone: an append that must survive a "
        f"power cut uses `wait`. {_NEVER}.",
        group=BEHAVIOUR, unit="records", lower=1,
    )  # fmt: skip
    flush_ms: int = setting(
        "flush.ms", "long", LONG_MAX,
        f"Age of unflushed records at which the log is forced to the disk. {_NEVER}.",
        group=BEHAVIOUR, unit="ms", lower=0,
    )  # fmt: skip
    decompressed_max_bytes: int = setting(
        "kafkalog.decompressed.max.bytes", "long", 256 << 20,
        "Largest size of one batch after decompression; a larger batch is refused before memory "
        "is allocated. Leave it alone unless whole batches are refused for it.",
        group=BEHAVIOUR, unit="bytes", lower=1,
    )  # fmt: skip
    verify_transactions: bool = setting(
        "kafkalog.verify.transactions", "boolean", False,
        "A batch of a CLIENT or a COORDINATOR may begin a transaction only with the guard of a "
        "verification (`Log.begin_verification`), so that a late batch begins no endless "
        "transaction. Batches of this process need no guard. Switch it on in a server that asks "
        "its coordinator first; `transaction.partition.verification.enable` of a broker.",
        group=BEHAVIOUR,
    )  # fmt: skip

    # Performance: the same records in other files, batches or memory.

    segment_bytes: int = setting(
        "segment.bytes", "int", 1 << 30,
        "Size at which a new segment begins; a larger batch has a separate segment. Smaller "
        "segments make retention finer and cost more files.",
        group=PERFORMANCE, unit="bytes", lower=14,
    )  # fmt: skip
    segment_ms: int = setting(
        "segment.ms", "long", 7 * _DAY_MS,
        "Span of record time after which a new segment begins.",
        group=PERFORMANCE, unit="ms", lower=1,
    )  # fmt: skip
    segment_jitter_ms: int = setting(
        "segment.jitter.ms", "long", 0,
        "Upper bound of a random part of `segment.ms` that is taken off for each segment, so "
        "that many logs do not roll at once. Leave it alone with few logs.",
        group=PERFORMANCE, unit="ms", lower=0, effect="next segment",
    )  # fmt: skip
    segment_index_bytes: int = setting(
        "segment.index.bytes", "int", 10 << 20,
        "Space for each index of the newest segment (a sparse file, trimmed when the segment is "
        "complete); a full index begins a new segment. Leave it alone.",
        group=PERFORMANCE, unit="bytes", lower=4, effect="next segment",
    )  # fmt: skip
    index_interval_bytes: int = setting(
        "index.interval.bytes", "int", 4096,
        "Bytes of records between two index entries: a smaller value makes look-ups scan less and "
        "the indexes larger. Leave it alone unless single records are read at random.",
        group=PERFORMANCE, unit="bytes", lower=0,
    )  # fmt: skip
    preallocate: bool = setting(
        "preallocate", "boolean", False,
        "Give a new segment file its full size at once: a hole, unless zeros are written ahead "
        "(`kafkalog.preallocate.zero.bytes`). Leave it alone unless appends wait for the disk.",
        group=PERFORMANCE, effect="next segment",
    )  # fmt: skip
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio", "double", 0.5,
        "Share of the log that must be uncompacted before compaction starts: smaller saves "
        "space and costs writing.",
        group=PERFORMANCE, lower=0, upper=1,
    )  # fmt: skip
    compression_type: str = setting(
        "compression.type", "string", "producer",
        "Codec of stored batches. `producer` keeps the codec that encoded batches come with, and "
        "writes single records uncompressed.",
        group=PERFORMANCE, choices=_COMPRESSION,
    )  # fmt: skip
    compression_gzip_level: int = setting(
        "compression.gzip.level", "int", _GZIP.default,
        "Level of gzip; -1 is the library's own choice.",
        group=PERFORMANCE, lower=_GZIP.lower, upper=_GZIP.upper, extra=_GZIP.extra,
    )  # fmt: skip
    compression_lz4_level: int = setting(
        "compression.lz4.level", "int", _LZ4.default,
        "Level of lz4. As in Kafka 9 is the fast compressor and any other the thorough one.",
        group=PERFORMANCE, lower=_LZ4.lower, upper=_LZ4.upper,
    )  # fmt: skip
    compression_zstd_level: int = setting(
        "compression.zstd.level", "int", _ZSTD.default,
        "Level of zstd; negative ones are faster than 1.",
        group=PERFORMANCE, lower=_ZSTD.lower, upper=_ZSTD.upper,
    )  # fmt: skip
    batch_bytes: int = setting(
        "kafkalog.batch.bytes", "int", 65_536,
        "Uncompressed size up to which appended records are packed into one batch, at most "
        "`max.message.bytes`. Larger batches compress better and make single reads slower.",
        group=PERFORMANCE, unit="bytes", lower=1,
    )  # fmt: skip
    preallocate_zero_bytes: int = setting(
        "kafkalog.preallocate.zero.bytes", "int", 0,
        "With `preallocate`: number of zeros that are written ahead of the log's end at a time. "
        "Syncs become cheaper, and every byte is written twice. 0 writes none.",
        group=PERFORMANCE, unit="bytes", lower=0, effect="next segment",
    )  # fmt: skip
    open_files_max: int = setting(
        "kafkalog.open.files.max", "int", 256,
        "Segment files kept open for reading. Leave it alone unless descriptors are scarce.",
        group=PERFORMANCE, unit="files", lower=1, effect="reopening",
    )  # fmt: skip
    mappings_max: int = setting(
        "kafkalog.mappings.max", "int", 256,
        "Segment files kept mapped into memory for reading. Leave it alone.",
        group=PERFORMANCE, unit="files", lower=1, effect="reopening",
    )  # fmt: skip

    def __post_init__(self) -> None:
        release = self.message_format_version
        if isinstance(release, str) and (match := _RELEASE.fullmatch(release)):
            object.__setattr__(self, "message_format_version", match.group(1))
        check_config(self)
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"min.compaction.lag.ms = {self.min_compaction_lag_ms}: must not exceed "
                f"max.compaction.lag.ms = {self.max_compaction_lag_ms}"
            )
        codec = CODECS_BY_NAME.get(self.compression_type)
        if codec is not None and self.message_magic < codec.first_magic:
            raise ConfigError(
                f"compression.type = {codec.name}: came with format v{codec.first_magic}, and"
                f" message.format.version is "
                f"{self.message_format_version}"
            )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LogConfig:
        """
        Return the config that dotted keys and their texts describe; what is not named has its
        default.

        Raises:
            ConfigError: a key is unknown (the message has the nearest known one), or a value is
                wrong.
        """
        return cls(**parse_properties(cls, properties, KEYS_WITHOUT_USE))

    @classmethod
    def of(cls, config: LogConfig | Mapping[str, Any] | None) -> LogConfig:
        """
        Return what a caller gives as the settings of a log.

        Args:
            config: a config; or Kafka's dotted keys with texts, as of `from_properties`, or with
                values of their fields' types; or None for the defaults.

        Raises:
            ConfigError: as `from_properties`.
            TypeError: it is neither.
        """
        if config is None:
            return cls()
        if isinstance(config, LogConfig):
            return config
        if not isinstance(config, Mapping):
            raise TypeError(
                f"config must be a LogConfig or a mapping of Kafka's keys, got"
                f" {type(config).__name__}"
            )
        return cls(**parse_properties(cls, config, KEYS_WITHOUT_USE, only_texts=False))

    def to_properties(self) -> dict[str, str]:
        """Return every setting as dotted key and text; `from_properties` takes it back."""
        return to_properties(self)

    def replace(self, **changes: Any) -> LogConfig:
        """
        Return a config with some fields changed.

        Raises:
            ConfigError: a field is unknown, or a value is wrong.
        """
        return replace_fields(self, changes)

    def with_overrides(self, properties: Mapping[str, str]) -> LogConfig:
        """
        Return the config of a topic with overrides, given by dotted keys and texts.

        Raises:
            ConfigError: as `from_properties`.
        """
        return replace_fields(self, parse_properties(LogConfig, properties, KEYS_WITHOUT_USE))

    def keep(self, other: LogConfig, keys: Collection[str]) -> LogConfig:
        """Return a config with the values that `other` has for some keys."""
        kept = {
            each.name: getattr(other, each.name)
            for each in settings_of(LogConfig).values()
            if each.key in keys
        }
        return replace_fields(self, kept)

    def change_to(self, other: LogConfig) -> ConfigChange:
        """Return the differences of `other`, and when they take effect for an open log."""
        return change_between(self, other)

    @property
    def is_compacted(self) -> bool:
        """True if `compact` is in the policy."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """True if `delete` is in the policy."""
        return "delete" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        """True if records get the time of their append."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def message_magic(self) -> int:
        """Magic of the batches that an append writes: 0, 1 or 2."""
        return _FORMATS[self.message_format_version]

    @property
    def max_segment_ms(self) -> int:
        """Span of time after which a segment rolls: a compaction lag that is due limits it."""
        if self.is_compacted:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms

    @property
    def init_file_size(self) -> int:
        """Bytes that a new segment file is given at once."""
        return self.segment_bytes if self.preallocate else 0

    @property
    def append_batch_bytes(self) -> int:
        """Uncompressed size up to which one batch is packed."""
        return min(self.batch_bytes, self.max_message_bytes)

    def compression_level(self, codec_name: str) -> int | None:
        """Return the level for a codec by its Kafka name, None where it has no levels."""
        row = CODECS_BY_NAME.get(codec_name)
        if row is None or row.levels is None:
            return None
        level: int = getattr(self, f"compression_{codec_name}_level")
        return level

    def random_segment_jitter(self, source: random.Random) -> int:
        """Return the milliseconds to take off `max_segment_ms`; drawn once for each segment."""
        bound = min(self.segment_jitter_ms, self.segment_ms)
        return source.randrange(bound) if bound > 0 else 0
