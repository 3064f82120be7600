"""Packers of a run of batches: the content of a builder becomes one batch after the other.

There are two packers: one for v2, where a run of one batch is the usual case, and one for the old
formats. The builders of a thread are reused from run to run; a caller that keeps a run open for
longer passes a separate builder.

Thread-safety: none; a packer belongs to one caller at a time.
"""

from __future__ import annotations

import threading
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.bytes_column import CellColumn
from kafkalog._core.columns import RecordColumns, decode_columns, decode_run
from kafkalog._core.header import parse_header
from kafkalog._core.headers_column import HeadersColumn
from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.message_builder import MessageSetBuilder
from kafkalog._core.records_builder import RecordsBuilder
from kafkalog._core.run_builder import RunBuilder
from kafkalog.layout import MAGIC_V2, NO_TIMESTAMP, RECORD_BATCH_OVERHEAD
from kafkalog.model import NOTHING_REWRITTEN, Rewriting
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.codecs import Codec
from kafkalog.records.old_format_batches import OldFormatBatches, close_batch, too_large
from kafkalog.records.record_faults import RecordFaults

__all__ = ["PlainPacker", "RunPacker", "packer_of"]


class _ThreadBuilders(threading.local):
    """Builders that one thread reuses from append to append."""

    def __init__(self) -> None:
        self.builder = BatchBuilder()
        self.run_builder = RunBuilder()


_THREAD_BUILDERS = _ThreadBuilders()


class RunPacker(Protocol):
    """
    Packer of one run.

    Attributes:
        size_bytes: of the batches that were closed.
        record_count: records in them.
    """

    size_bytes: int
    record_count: int

    @property
    def builder(self) -> RecordsBuilder:
        """Builder for the next records."""
        ...

    def close(self, now_ms: int) -> None:
        """
        Make a batch of what is in the builder, and go on with an empty one.

        Raises:
            RecordTooLargeError: it takes more than `max.message.bytes`; it stays in the builder.
        """
        ...

    def drop(self) -> None:
        """Remove the records in the builder."""
        ...

    def run(self) -> MemoryRecords:
        """
        Return the batches; nothing is added any more.

        Raises:
            RecordValidationError: records that the settings do not allow, each one listed.
        """
        ...


def packer_of(
    rules: AppendRules,
    now_ms: int,
    *,
    builder: BatchBuilder | None = None,
    is_shared: bool = True,
) -> RunPacker:
    """
    Return what makes a run of the log's format.

    Args:
        rules: of the log.
        now_ms: time of the append.
        builder: of a run that stays open for longer, and which a batch that does not fit must not
            spoil; one of this thread's, or a new one, if None.
        is_shared: whether the builder of this thread's appends may be used; not where code of
            others runs meanwhile, which may append, too.
    """
    append_time = now_ms if rules.is_log_append_time else None
    if rules.magic < MAGIC_V2:
        return _MessagePacker(rules, append_time)
    if rules.wanted_codec or builder is not None:
        if builder is None:
            builder = _THREAD_BUILDERS.builder if is_shared else BatchBuilder()
        return _BatchPacker(rules, append_time, builder)
    return PlainPacker(
        rules, append_time, now_ms, _THREAD_BUILDERS.run_builder if is_shared else RunBuilder()
    )


class PlainPacker:
    """Makes batches of format v2 that are not compressed, where they are to stay."""

    def __init__(
        self, rules: AppendRules, append_time: int | None, now_ms: int, builder: RunBuilder
    ) -> None:
        self.size_bytes = 0
        self.record_count = 0
        self.builder = builder
        self._rules = rules
        self._append_time = append_time
        self._time = NO_TIMESTAMP if append_time is None else append_time
        self._now_ms = now_ms
        builder.reset()

    def pack_columns(
        self,
        keys: CellColumn | None,
        values: CellColumn | None,
        timestamps: int | npt.NDArray[np.int64],
        count: int,
        headers: HeadersColumn | None,
    ) -> None:
        """Make batches of columns, all of them in one call."""
        self.builder.pack_columns(
            keys, values, timestamps, count, self._rules.batch_bytes, headers, self._time
        )

    def close(self, now_ms: int) -> None:  # noqa: ARG002 - records are judged with the run
        self.size_bytes += self.builder.close_batch(self._time)
        self.record_count = self.builder.record_count

    def drop(self) -> None:
        self.builder.reset()

    def run(self) -> MemoryRecords:
        run = self.builder.finish(self._append_time)
        _check_plain(run, self.builder, self._rules, self._now_ms)
        return run


def _check_plain(run: MemoryRecords, builder: RunBuilder, rules: AppendRules, now_ms: int) -> None:
    """Hold a run that a builder made against the settings."""
    if rules.has_invalid_record(now_ms, builder.nulls, builder.earliest, builder.latest):
        _raise_faults(run, RecordFaults(rules, now_ms))
    if len(run.data) > rules.max_message_bytes:
        for facts in run.batches.batches_above(rules.max_message_bytes):
            records = facts.last_offset - facts.base_offset + 1
            raise too_large(records, facts.size_bytes, rules, facts.base_offset)


def _raise_faults(run: MemoryRecords, faults: RecordFaults) -> None:
    """Raise the error that lists the records that are not allowed, if there are any."""
    position = 0
    for facts in run.batches:
        end = position + facts.size_bytes
        with memoryview(run.data)[position:end] as batch:
            columns = RecordColumns(facts.last_offset - facts.base_offset + 1)
            header = parse_header(batch)
            decode_columns(batch, header, RECORD_BATCH_OVERHEAD, len(batch), columns)
        faults.add(columns, facts.base_offset)
        position = end
    faults.raise_if_any()


class _BatchPacker:
    """Makes batches of format v2."""

    def __init__(self, rules: AppendRules, append_time: int | None, builder: BatchBuilder) -> None:
        self.size_bytes = 0
        self.record_count = 0
        self.builder = builder
        self._rules = rules
        self._append_time = append_time
        self._codec = rules.wanted_codec or Codec.NONE
        self._faults: RecordFaults | None = None
        self._data = bytearray()
        self._batches = BatchMetadata()
        builder.reset()

    def close(self, now_ms: int) -> None:
        builder, rules, start = self.builder, self._rules, self.record_count
        count = builder.count
        if rules.has_invalid_record(
            now_ms, builder.null_key_count, builder.min_timestamp, builder.max_timestamp
        ):
            self._faults = self._faults or RecordFaults(rules, now_ms)
            columns = RecordColumns(count)
            with builder.finish() as plain:
                header = parse_header(plain)
                decode_columns(plain, header, RECORD_BATCH_OVERHEAD, len(plain), columns)
                self._faults.add(columns, start)
        # "producer" keeps what a producer chose; records that come singly have chosen nothing.
        with close_batch(builder, rules, self._codec, start, self._append_time) as part:
            size = len(part)
            # Stamping writes into the batches, and the builder's memory is not for writing. Once
            # it is copied, the builder may use that memory again.
            self._data += part
        time = self._append_time
        largest = builder.max_timestamp if time is None else time
        last = start + count - 1
        self._batches.add(size, start, last, largest, last if largest >= 0 else -1)
        self.size_bytes += size
        self.record_count += count
        builder.reset()

    def drop(self) -> None:
        self.builder.reset()

    def run(self) -> MemoryRecords:
        if self._faults is not None:
            self._faults.raise_if_any()
        return MemoryRecords(
            self._data,
            self._batches,
            self.record_count,
            self._append_time,
            rewriting=_describe_rewriting(self._codec),
        )


class _MessagePacker:
    """Makes message sets of the formats v0 and v1, plain or to be wrapped."""

    def __init__(self, rules: AppendRules, append_time: int | None) -> None:
        self.size_bytes = 0
        self.record_count = 0
        self._rules = rules
        self._append_time = append_time
        self._codec = rules.wanted_codec or Codec.NONE
        self._old_batches = OldFormatBatches(rules, append_time)
        self._faults: RecordFaults | None = None
        self.builder = self._next_builder()

    def close(self, now_ms: int) -> None:
        builder, rules = self.builder, self._rules
        count = builder.count
        if rules.has_invalid_record(
            now_ms, builder.null_key_count, builder.min_timestamp, builder.max_timestamp
        ):
            self._faults = self._faults or RecordFaults(rules, now_ms)
            columns = RecordColumns(count)
            decode_run(builder.finish_plain(), 0, columns, check_crc=False)
            self._faults.add(columns, self.record_count)
        encoded = self._old_batches.close(builder, self._codec)
        self.size_bytes += memoryview(encoded.data).nbytes
        self.record_count += count
        # The parts may need this one again.
        self.builder = self._next_builder()

    def drop(self) -> None:
        self.builder = self._next_builder()

    def run(self) -> MemoryRecords:
        if self._faults is not None:
            self._faults.raise_if_any()
        return self._old_batches.run(_describe_rewriting(self._codec))

    def _next_builder(self) -> MessageSetBuilder:
        builder = MessageSetBuilder(self._rules.magic)
        builder.reset(append_time=self._append_time)
        return builder


def _describe_rewriting(codec: Codec) -> Rewriting:
    """Return what packing does: records that come singly have no codec."""
    return Rewriting(Codec.NONE, codec) if codec else NOTHING_REWRITTEN
