"""Sequential reads of a log: batches, records, aborted transactions, and slices for a scan.

Every read begins with one snapshot of the view. It continues with another if a file is missing that
the writer, another process, removed.

Thread-safety: every method from any thread, while another writes; an iterator belongs to one
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from operator import length_hint
from typing import Protocol, TypeVar

from kafkalog._core.record import Record
from kafkalog._engine.iteration import ClosableRecords, CloseSignal
from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.errors import KafkaLogError
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.log.aborted import aborted_between, aborted_in_log
from kafkalog.log.isolation import Isolation
from kafkalog.log.reading import OnCorrupt, read_batches, read_parts, try_records
from kafkalog.log.scan.batch_slices import BatchSlice, read_batch_slices
from kafkalog.log.scan.options import ScanOptions
from kafkalog.log.scan.scan import LogBatchSlices
from kafkalog.log.view import LogView, whole_offset
from kafkalog.log.walk import check_wrapper, fits_after
from kafkalog.records.batch_view import BatchView
from kafkalog.records.message_run import MessageRun, Part

__all__ = ["LogReader"]


class _HasNextOffset(Protocol):
    @property
    def next_offset(self) -> int: ...


_Read = TypeVar("_Read", bound=_HasNextOffset)


class LogReader:
    """
    Reader of one log from an offset on.

    Args:
        view: visible part of the log.

    Thread-safety: see the module.
    """

    def __init__(self, view: LogView) -> None:
        self._view = view
        self._counters = view.context.meters.counters
        self._close_signal = CloseSignal()

    def close(self) -> None:
        """End every iterator at the next batch: the log was closed."""
        self._close_signal.close()

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the transactions whose abort may hide records from `start` up to `end`."""
        view = self._view
        snapshot = view.snapshot()
        while True:
            try:
                with view.errors():
                    return aborted_between(view.context, snapshot, start, end)
            except (KafkaLogError, ValueError) as error:
                snapshot = view.refresh_after(error, snapshot)

    def batches(
        self,
        start: int | None,
        end: int | None,
        *,
        on_corrupt: OnCorrupt = "raise",
        isolation: Isolation = "read_uncommitted",
    ) -> Iterator[BatchView]:
        """Yield whole batches; see `Log.batches`."""
        snapshot, start, end = self._range(start, end, isolation)
        read = self._visible_parts(read_batches, on_corrupt, isolation)
        return self._read(read, snapshot, start, end, self._count_batch)

    def records(
        self,
        start: int | None,
        end: int | None,
        *,
        on_corrupt: OnCorrupt = "raise",
        isolation: Isolation = "read_uncommitted",
    ) -> Iterator[Record]:
        """Yield records; see `Log.records`."""
        snapshot, start, end = self._range(start, end, isolation)
        read = self._visible_parts(read_parts, on_corrupt, isolation)
        parts = self._read(read, snapshot, start, end, self._count_part)
        limit_bytes = self._view.context.config.decompressed_max_bytes
        # Chained lists: a generator of records would be resumed for each of them.
        lists = _record_lists(parts, start, end, limit_bytes, on_corrupt, self._close_signal)
        return chain.from_iterable(self._counted(lists))

    def batch_slices(
        self, start: int | None, end: int | None, options: ScanOptions
    ) -> LogBatchSlices:
        """Return the slices of this log for a scan."""
        snapshot, start, end = self._range(start, end, options.isolation)
        offsets = options.conditions.offsets
        start, end = max(start, offsets.first), min(end, offsets.last + 1)
        read = partial(self._read_batch_slices, options)
        found = self._read(read, snapshot, start, end, self._count_slice)
        limit_bytes = self._view.context.config.decompressed_max_bytes
        return LogBatchSlices(found, start, end, limit_bytes)

    def _range(
        self, start: int | None, end: int | None, isolation: Isolation
    ) -> tuple[LogSnapshot, int, int]:
        """Return a snapshot, and the range of offsets to read from it."""
        snapshot, limit = self._view.visible(isolation)
        start = snapshot.start_offset if start is None else start
        snapshot = self._view.check_range(snapshot, start)
        return snapshot, start, limit if end is None else min(whole_offset("end", end), limit)

    def _read_batch_slices(
        self, options: ScanOptions, snapshot: LogSnapshot, start: int, end: int
    ) -> Iterator[BatchSlice]:
        aborted = None
        if options.isolation == "read_committed":
            aborted = aborted_in_log(self._view.context, snapshot, end)
        return read_batch_slices(
            snapshot,
            start,
            end,
            on_corrupt=options.on_corrupt,
            timestamps=options.conditions.timestamps,
            aborted=aborted,
        )

    def _read(
        self,
        read: Callable[[LogSnapshot, int, int], Iterator[_Read]],
        snapshot: LogSnapshot,
        start: int,
        end: int,
        count: Callable[[_Read], object],
    ) -> Iterator[_Read]:
        """Yield from `read`, and count; a typed error if the log is closed, or the disk fails."""
        view = self._view
        parts = read(snapshot, start, end)
        while True:
            try:
                with view.errors():
                    view.ensure_open()
                    for part in parts:
                        count(part)
                        yield part
                        start = max(start, part.next_offset)
                        view.ensure_open()
            except (KafkaLogError, ValueError) as error:
                snapshot = view.refresh_after(error, snapshot, start)
                end = min(end, snapshot.end_offset)
                parts = read(snapshot, start, end)
            else:
                return

    def _count_batch(self, batch: BatchView) -> None:
        header = batch.header
        records = 0 if header.is_control else max(header.record_count, 0)
        self._counters.add_read(records, header.size_bytes)

    def _count_part(self, part: BatchView | MessageRun) -> None:
        self._counters.add_read(0, len(part.data))

    def _count_slice(self, batch_slice: BatchSlice) -> None:
        if batch_slice.is_wanted:
            self._counters.add_read(batch_slice.record_count, batch_slice.size_bytes)

    def _counted(self, lists: Iterable[Iterable[Record]]) -> Iterator[Iterable[Record]]:
        """Yield lists of records, and count the records of each."""
        for found in lists:
            self._counters.add_read(length_hint(found), 0)
            yield found

    def _visible_parts(
        self, read: Callable[..., Iterator[Part]], on_corrupt: OnCorrupt, isolation: Isolation
    ) -> Callable[[LogSnapshot, int, int], Iterator[Part]]:
        """Return a function that reads the visible parts."""
        context = self._view.context

        def read_visible(snapshot: LogSnapshot, start: int, end: int) -> Iterator[Part]:
            parts = read(snapshot, start, end, on_corrupt=on_corrupt)
            if isolation != "read_committed":
                return parts
            return aborted_in_log(context, snapshot, end).visible(parts)

        return read_visible


def _record_lists(
    parts: Iterator[BatchView | MessageRun],
    start: int,
    end: int,
    limit_bytes: int,
    on_corrupt: OnCorrupt,
    gate: CloseSignal,
) -> Iterator[Iterable[Record]]:
    """Yield the records of each part that are in the range."""
    before: BatchView | None = None
    run: MessageRun | None = None
    for part in parts:
        if isinstance(part, MessageRun):
            for found in _lists_of_run(part, start, end, limit_bytes, on_corrupt):
                # Each message is a batch: a reader gets none after the log was closed.
                yield ClosableRecords(found, gate)
            start, run = max(start, part.next_offset), part
            continue
        batch, header, next_offset = part, part.header, part.header.next_offset
        if header.is_control:
            continue
        if run is not None:
            before, run = run.last_batch(), None
        records: list[Record] | None
        if on_corrupt == "raise":
            records = batch.records(limit_bytes=limit_bytes)
            check_wrapper(batch, records, before)
        else:
            # The CRC is right, so these bytes were written like this: no batch is searched in them.
            records = try_records(batch, limit_bytes)
        if records is None or not fits_after(batch, records, before):
            continue
        inside = header.base_offset >= start and header.last_offset < end
        if inside and not header.is_wrapper:
            yield records
        else:
            yield _within(records, start, end)
        # If the writer replaced the rest, the next batch may begin below the end of this one.
        start, before = max(start, next_offset), batch


def _lists_of_run(
    run: MessageRun, start: int, end: int, limit_bytes: int, on_corrupt: OnCorrupt
) -> Iterator[list[Record]]:
    """Yield the records of plain messages that are in the range."""
    is_inside = run.first_offset >= start and run.last_offset < end
    for piece in run.pieces():
        records: list[Record] | None
        if not isinstance(piece, BatchView):
            records = piece
        elif on_corrupt == "raise":
            records = piece.records(limit_bytes=limit_bytes)
        else:
            records = try_records(piece, limit_bytes)
        if records is not None:
            yield records if is_inside else _within(records, start, end)


def _within(records: list[Record], start: int, end: int) -> list[Record]:
    return [record for record in records if start <= record.offset < end]
