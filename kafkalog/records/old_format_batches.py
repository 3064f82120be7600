"""Closing of builders into batches of the log's format, with the metadata of each batch.

Records that would grow by compression stay plain. A wrapper of magic 0 has true offsets inside,
under its compression. A run with such a wrapper is built again when the offset of its first record
is known.

Thread-safety: none; an append belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.message_builder import MessageSetBuilder
from kafkalog.errors import RecordTooLargeError
from kafkalog.layout import LOG_APPEND_TIME
from kafkalog.model import NOTHING_REWRITTEN, Rewriting
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.codecs import Codec, compress, compress_if_smaller
from kafkalog.records.entry_columns import scan_entries

__all__ = [
    "EncodedBatches",
    "OldFormatBatches",
    "close_batch",
    "close_messages",
    "facts_of_messages",
    "too_large",
]


class EncodedBatches(NamedTuple):
    """
    Batches and their metadata.

    Attributes:
        data: back to back.
        batches: in order.
        is_wrapper: whether it is one batch, a wrapper of an old format.
    """

    data: Buffer
    batches: BatchMetadata
    is_wrapper: bool = False


# Given the offset of the run's first record, makes a part of the run.
_BatchesAt: TypeAlias = Callable[[int], EncodedBatches]


def close_batch(
    builder: BatchBuilder,
    rules: AppendRules,
    codec: Codec,
    base_offset: int,
    append_time: int | None,
) -> memoryview:
    """
    Return the content of a builder as a batch of format v2.

    Raises:
        RecordTooLargeError: it takes more than `max.message.bytes`.
    """
    payload = None
    if codec is not Codec.NONE:
        codec, payload = compress_if_smaller(codec, builder.payload(), rules.level)
    batch = builder.finish(
        base_offset=base_offset,
        codec=int(codec),
        payload=payload,
        timestamp_type=LOG_APPEND_TIME if append_time is not None else 0,
        max_timestamp=append_time,
    )
    if len(batch) > rules.max_message_bytes:
        raise too_large(builder.count, len(batch), rules, base_offset)
    return batch


def close_messages(
    builder: MessageSetBuilder, rules: AppendRules, codec: Codec, base_offset: int
) -> EncodedBatches:
    """
    Return the content of a builder as plain messages, or as one wrapper.

    Raises:
        RecordTooLargeError: the wrapper, or a message, takes more than `max.message.bytes`.
    """
    if codec is not Codec.NONE:
        messages = builder.payload(base_offset)
        payload = compress(codec, messages, rules.level, magic=builder.magic)
        wrapper = builder.wrap(int(codec), payload, base_offset=base_offset)
        # Else no message is larger than the wrapper, so plain they fit wherever it does.
        if len(wrapper) < builder.size_bytes:
            if len(wrapper) > rules.max_message_bytes:
                raise too_large(builder.count, len(wrapper), rules, base_offset)
            last, largest = base_offset + builder.last_offset_delta, _largest_timestamp(wrapper)
            shallow = last if largest >= 0 else -1
            facts = BatchMetadata([(len(wrapper), base_offset, last, largest, shallow)])
            return EncodedBatches(wrapper, facts, is_wrapper=True)
    data = builder.finish_plain(base_offset)
    entries = scan_entries(data, check_crc=False)
    batches = facts_of_messages(entries.position, len(data), entries.max_timestamp, base_offset)
    if len(data) > rules.max_message_bytes:
        large = batches.batches_above(rules.max_message_bytes)
        if large:
            raise too_large(1, max(facts.size_bytes for facts in large), rules, base_offset)
    return EncodedBatches(data, batches)


def facts_of_messages(
    positions: npt.NDArray[np.int64],
    size_bytes: int,
    timestamps: npt.NDArray[np.int64],
    base_offset: int,
) -> BatchMetadata:
    """
    Return the metadata of plain messages that get consecutive offsets.

    Args:
        positions: where each begins, the first at 0.
        size_bytes: of all of them.
        timestamps: of each, -1 where it has none.
        base_offset: of the first.
    """
    offsets = np.arange(base_offset, base_offset + len(positions), dtype=np.int64)
    return BatchMetadata.of_messages(np.append(positions, size_bytes), offsets, timestamps)


class OldFormatBatches:
    """
    Parts of one append with at least one part in an old format.

    Args:
        rules: format, codec and limits of the log.
        append_time: what all records carry, None where they keep their own times.
    """

    def __init__(self, rules: AppendRules, append_time: int | None) -> None:
        self._rules = rules
        self._append_time = append_time
        self._parts: list[tuple[EncodedBatches, _BatchesAt | None]] = []
        self.record_count = 0

    def keep(self, encoded: EncodedBatches, record_count: int) -> None:
        """Add batches without a change; their offsets count from 0."""
        batches = encoded.batches.shifted(self.record_count)
        self._parts.append((encoded._replace(batches=batches), None))
        self.record_count += record_count

    def close(self, builder: MessageSetBuilder, codec: Codec) -> EncodedBatches:
        """Add the content of a builder, which is not used again; return the batches."""
        first = self.record_count
        encoded = close_messages(builder, self._rules, codec, first)
        is_late = encoded.is_wrapper and self._rules.magic == 0
        maker = partial(_close_at, builder, self._rules, codec, first) if is_late else None
        self._parts.append((encoded, maker))
        self.record_count += builder.count
        return encoded

    def run(self, rewriting: Rewriting = NOTHING_REWRITTEN) -> MemoryRecords:
        """Return the run of all parts."""
        parts = [encoded for encoded, _ in self._parts]
        is_late = any(maker is not None for _, maker in self._parts)
        return MemoryRecords(
            bytearray().join(encoded.data for encoded in parts),
            _join_batches(parts),
            self.record_count,
            self._append_time,
            rewriting=rewriting,
            rebuild_at=self._rebuild_at if is_late else None,
        )

    def _rebuild_at(self, base_offset: int) -> EncodedBatches:
        """Return all parts, built for this offset of the first record."""
        data = bytearray()
        batches = BatchMetadata()
        for encoded, maker in self._parts:
            if maker is None:
                made = encoded._replace(batches=encoded.batches.shifted(base_offset))
            else:
                made = maker(base_offset)
            data += made.data
            batches.extend(made.batches)
        return EncodedBatches(data, batches)


def _close_at(
    builder: MessageSetBuilder, rules: AppendRules, codec: Codec, first: int, base_offset: int
) -> EncodedBatches:
    return close_messages(builder, rules, codec, first + base_offset)


def _join_batches(parts: Sequence[EncodedBatches]) -> BatchMetadata:
    batches = BatchMetadata()
    for encoded in parts:
        batches.extend(encoded.batches)
    return batches


def _largest_timestamp(entry: memoryview) -> int:
    return int(scan_entries(entry, check_crc=False).max_timestamp[0])


def too_large(
    count: int, size_bytes: int, rules: AppendRules, base_offset: int
) -> RecordTooLargeError:
    """Return the error of a batch over `max.message.bytes`."""
    return RecordTooLargeError(
        f"a batch of {count} records must have at most {rules.max_message_bytes} bytes"
        f" (max.message.bytes), got {size_bytes}",
        base_offset=base_offset,
    )
