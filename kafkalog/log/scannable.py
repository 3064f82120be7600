"""Scanning a log: its records as columns.

Thread-safety: everything may be called from any thread, while another writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Unpack

from kafkalog.log.isolation import AbortedBatches, Isolation
from kafkalog.log.local_log import LogSnapshot
from kafkalog.log.points import PointLog
from kafkalog.log.reader import whole_offset
from kafkalog.log.reading import OnCorrupt
from kafkalog.log.scan.batch_slices import BatchSlice, read_batch_slices
from kafkalog.log.scan.conditions import Filter
from kafkalog.log.scan.options import (
    BATCH_BYTES,
    BATCH_ROWS,
    BinaryType,
    HeaderKeyType,
    ScanArguments,
    ScanOptions,
    make_options,
)
from kafkalog.log.scan.scan import LogBatchSlices, Scan, ScanSource

__all__ = ["ScannableLog", "scan"]


class ScannableLog(PointLog):
    """A log whose records can be had as columns."""

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Iterable[str] | None = None,
        filters: Iterable[Filter] = (),
        isolation: Isolation = "read_uncommitted",
        on_corrupt: OnCorrupt = "raise",
        binary_type: BinaryType = "binary",
        header_key_type: HeaderKeyType = "utf8",
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
    ) -> Scan:
        """
        Return the records with `start` <= offset < `end` as columns; control records are left out.

        Nothing is read yet. Whatever reads Arrow reads the scan, as often as it likes:

        >>> table = pyarrow.table(log.scan(columns=["offset", "value"]))

        Args:
            start: first offset; the log start offset of the time of reading if None.
            end: one past the last offset; the high watermark of the time of reading if None.
            columns: which, in this order: offset, timestamp, timestamp_type, key, value, headers,
                topic, partition, which are the default; producer_id, producer_epoch, sequence,
                leader_epoch. What is not asked for is not decoded.
            filters: (column, operator, value) that all have to hold: offset, timestamp (ms, or an
                aware datetime) and partition with ==, <, <=, >, >= and in; key and topic with ==
                and in. They pass over segments and batches where these tell enough, and what lies
                before the first time wanted as far as the time index tells.
            isolation, on_corrupt: as of `records`.
            binary_type: of key and value: "binary", "large_binary", or "binary_view", whose values
                are not copied out of an uncompressed segment, which stays mapped as long as they
                are kept.
            header_key_type: of the keys of headers: "utf8", which they have to be then, or
                "binary".
            batch_rows, batch_bytes: largest size of a batch; one row may have more bytes.

        Raises:
            ValueError, TypeError: an argument says what there is not.
        """
        options = make_options(
            columns=columns,
            filters=filters,
            isolation=isolation,
            on_corrupt=on_corrupt,
            binary_type=binary_type,
            header_key_type=header_key_type,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
        )
        return Scan([_source_of(self, start, end)], options)

    def batch_slices(
        self, start: int | None, end: int | None, options: ScanOptions
    ) -> LogBatchSlices:
        """Return what a scan decodes of this log; `scan` is made of it."""
        snapshot, limit = self._visible(options.isolation)
        start = snapshot.start_offset if start is None else start
        snapshot = self._check_range(snapshot, start)
        end = limit if end is None else min(whole_offset("end", end), limit)
        offsets = options.conditions.offsets
        start, end = max(start, offsets.first), min(end, offsets.last + 1)
        found = self._read(partial(self._read_batch_slices, options), snapshot, start, end)
        return LogBatchSlices(found, start, end, self.config.decompressed_max_bytes)

    def _read_batch_slices(
        self, options: ScanOptions, snapshot: LogSnapshot, start: int, end: int
    ) -> Iterator[BatchSlice]:
        aborted = None
        if options.isolation == "read_committed":
            aborted = AbortedBatches(self._local.context, snapshot, end)
        return read_batch_slices(
            snapshot,
            start,
            end,
            on_corrupt=options.on_corrupt,
            timestamps=options.conditions.timestamps,
            is_hidden=None if aborted is None else aborted.is_hidden,
        )


def scan(logs: ScannableLog | Iterable[ScannableLog], **arguments: Unpack[ScanArguments]) -> Scan:
    """
    Return the records of many logs as columns, one log after the other.

    Args:
        logs: open logs, in the order wanted; or one open log.
        arguments: columns, filters, isolation and so on, as of `Log.scan`.
    """
    options = make_options(**arguments)
    logs = [logs] if isinstance(logs, ScannableLog) else list(logs)
    for log in logs:
        if not isinstance(log, ScannableLog):
            raise TypeError(f"logs must be open logs, got {type(log).__name__}")
    return Scan([_source_of(log) for log in logs], options)


def _source_of(log: ScannableLog, start: int | None = None, end: int | None = None) -> ScanSource:
    start = None if start is None else whole_offset("start", start)
    end = None if end is None else whole_offset("end", end)
    return ScanSource(log.topic_partition, lambda: log, start, end)
