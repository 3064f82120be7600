"""Packers of a run of batches: each closes its builder's records, batch after batch.

There are two packers: one of v2, where a run of one batch is the usual case, and one of the old
formats. The builders of a thread are reused from run to run; a caller that keeps a run open for
longer passes a separate builder.

Thread-safety: none; a packer belongs to one caller at a time.
"""

from __future__ import annotations

import threading
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from kafkalog._core.bytes_column import CellColumn
from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.headers_column import HeadersColumn
from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.message_builder import MessageSetBuilder
from kafkalog._core.records_builder import RecordsBuilder
from kafkalog._core.run_builder import RunBuilder
from kafkalog.layout import MAGIC_V2, NO_TIMESTAMP, RECORD_BATCH_OVERHEAD
from kafkalog.model import NOTHING_REWRITTEN, Rewriting
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec, compress_if_smaller
from kafkalog.records.old_format_batches import OldFormatBatches, too_large
from kafkalog.records.record_faults import RecordFaults

__all__ = ["BatchPacker", "RunPacker", "packer_of"]


class _ThreadLocal(threading.local):
    """Builder that one thread reuses from append to append."""

    def __init__(self) -> None:
        self.builder = RunBuilder()


_THREAD_LOCAL = _ThreadLocal()
# Largest batch that its 32-bit length allows.
_BATCH_BYTES_MAX: Final = 2**31 - 1


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
        Make a batch of the records in the builder, and continue with an empty one.

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
    builder: RunBuilder | None = None,
    is_shared: bool = True,
) -> RunPacker:
    """
    Return a packer of the log's format.

    Args:
        rules: of the log.
        now_ms: time of the append.
        builder: of a run that stays open for longer; a batch that is too large leaves it usable.
            The builder of this thread, or a new one, if None.
        is_shared: whether the builder of this thread's appends may be used; False if code of the
            caller runs during the packing, which may append, too.
    """
    append_time = now_ms if rules.is_log_append_time else None
    if rules.magic < MAGIC_V2:
        return _MessagePacker(rules, append_time)
    is_open = builder is not None
    if builder is None:
        builder = _THREAD_LOCAL.builder if is_shared else RunBuilder()
    return BatchPacker(rules, append_time, now_ms, builder, is_open=is_open)


class BatchPacker:
    """
    Packer of format v2.

    Args:
        rules: of the log.
        append_time: time of all records, None if they keep their own times.
        now_ms: time of the append.
        builder: used until `run`.
        is_open: whether a batch that is too large stays in the builder: `close` then checks
            `max.message.bytes`, also without a codec.
    """

    def __init__(
        self,
        rules: AppendRules,
        append_time: int | None,
        now_ms: int,
        builder: RunBuilder,
        *,
        is_open: bool,
    ) -> None:
        self.size_bytes = 0
        self.record_count = 0
        self.builder = builder
        self._rules = rules
        self._codec = rules.wanted_codec or Codec.NONE
        self._append_time = append_time
        self._time = NO_TIMESTAMP if append_time is None else append_time
        self._now_ms = now_ms
        self._is_open = is_open
        builder.reset(compressed=self._codec is not Codec.NONE)

    def pack_columns(
        self,
        keys: CellColumn | None,
        values: CellColumn | None,
        timestamps: int | npt.NDArray[np.int64],
        count: int,
        headers: HeadersColumn | None,
    ) -> None:
        """Make uncompressed batches of columns, all of them in one call."""
        self.builder.pack_columns(
            keys, values, timestamps, count, self._rules.batch_bytes, headers, self._time
        )

    def close(self, now_ms: int) -> None:  # noqa: ARG002 - `run` checks all records
        if self._is_open or self._codec:
            self.size_bytes += self.builder.close_batch(self._time, *self._compress())
        else:
            self.size_bytes += self.builder.close_batch(self._time)
        self.record_count = self.builder.record_count

    def _compress(self) -> tuple[Codec, bytes | None]:
        """Return codec and payload of the batch in the builder; check its size."""
        builder, rules, codec, payload = self.builder, self._rules, self._codec, None
        if codec:
            # "producer" keeps the codec of a producer; records that come singly have none.
            codec, payload = compress_if_smaller(codec, builder.payload(), rules.level)
        size = builder.size_bytes if payload is None else RECORD_BATCH_OVERHEAD + len(payload)
        if size > rules.max_message_bytes:
            raise too_large(builder.count, size, rules, self.record_count)
        return codec, payload

    def drop(self) -> None:
        self.builder.drop_batch()

    def run(self) -> MemoryRecords:
        rules, builder = self._rules, self.builder
        run = builder.finish(self._append_time, _describe_rewriting(self._codec))
        if rules.has_invalid_record(self._now_ms, builder.nulls, builder.earliest, builder.latest):
            _raise_faults(run, RecordFaults(rules, self._now_ms))
        if len(run.data) > rules.max_message_bytes:
            for facts in run.batches.batches_above(rules.max_message_bytes):
                records = facts.last_offset - facts.base_offset + 1
                raise too_large(records, facts.size_bytes, rules, facts.base_offset)
        return run


def _raise_faults(run: MemoryRecords, faults: RecordFaults) -> None:
    """Raise the error that lists the records that are not allowed, if there are any."""
    position = 0
    for facts in run.batches:
        end = position + facts.size_bytes
        columns = RecordColumns(facts.last_offset - facts.base_offset + 1)
        batch = BatchView(memoryview(run.data)[position:end])
        batch.columns(columns, limit_bytes=_BATCH_BYTES_MAX)
        faults.add(columns, facts.base_offset)
        position = end
    faults.raise_if_any()


class _MessagePacker:
    """Packer of message sets of the formats v0 and v1, plain or wrapped."""

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
