"""Second pass of a cleaning: the retained records of each batch (Cleaner.cleanInto in Kafka).

Below the end of the map the latest record of each key stays; a tombstone stays until its retention
is over; aborted records and records without a key are removed. A control record stays while
something of its transaction does, and then until the delete horizon of its batch. Offsets,
timestamps and order never change.

A batch that loses no record stays byte for byte. A batch that loses some is rewritten in its format
and with its codec. A batch that loses all of them is removed, unless it is the last of a live
producer or the last of the cleaned range: then its header stays, so that the sequence number of the
producer and the end of the log remain known. The old formats have no batches without records: there
the last message of the range always stays.

The filter gets bytes and returns bytes. It does not read segments, write new ones with indexes,
replace old ones, throttle or abort. In a pass over a part of the keys, records of other parts stay,
tombstones too: the records that they supersede may still exist.

Two forms make the same bytes: `RunFilter` filters a whole run in one compiled call, and this module
filters chunk by chunk what the fast path refuses. `judge_batch` (`_core.record_filter`) decides
about a batch in both.

Thread-safety: none; it belongs to one cleaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kafkalog._core.message import summarize_messages
from kafkalog._core.message_builder import MessageSetBuilder
from kafkalog._core.offset_map import ELSEWHERE, KEYLESS, OffsetMap
from kafkalog._core.record_filter import (
    COPY,
    EMPTY,
    REWRITE,
    judge_batches,
    max_output_bytes,
    retained_records,
    wrap_retained,
    write_retained,
)
from kafkalog._core.run_filter import RunFilter, output_bytes_for
from kafkalog._core.status import STATUS_CODES
from kafkalog.cleaner.cleaning_result import CleaningStatistics
from kafkalog.cleaner.decoded_chunks import ChunkReader, DecodedChunk
from kafkalog.cleaner.keys import HaveKeys, row_comparison
from kafkalog.cleaner.live_records import LiveRecords
from kafkalog.cleaner.transactions import TransactionTracker
from kafkalog.errors import KafkaLogError
from kafkalog.layout import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LOG_APPEND_TIME,
    MAGIC_V2,
    NO_TIMESTAMP,
)
from kafkalog.log.cleaner_access import LastProducerBatch
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import DEFAULT_LIMIT_BYTES, compress, decompress
from kafkalog.records.conversion.conversion_units import FileRecords

# Called with each chunk and the decisions about it.
OnChunk = Callable[[DecodedChunk, "RetentionMask"], object]

__all__ = ["CleaningRules", "LastProducerBatch", "RecordFilter", "RetentionMask"]

_OK: Final = STATUS_CODES["OK"]


@dataclass(frozen=True, slots=True)
class CleaningRules:
    """
    Rules of one cleaning.

    Attributes:
        now_ms: the time, read once.
        delete_retention_ms: time that a marker stays after a cleaning has found it without data,
            and a tombstone after it was first in a map.
        end_offset: end of the cleaned range: the first offset that must not be cleaned.
        last_batches: last batches of the live producers, by id.
        max_message_bytes: largest batch allowed; a rewritten batch may become larger, and is
            counted then.
    """

    now_ms: int
    delete_retention_ms: int
    end_offset: int
    last_batches: Mapping[int, LastProducerBatch]
    max_message_bytes: int


@dataclass(slots=True)
class RetentionMask:
    """
    Decisions about the batches and records of a chunk.

    Attributes:
        actions: COPY, REWRITE, EMPTY or DROP for each batch.
        has_horizon, horizons: delete horizon of each batch that stays, if it has one.
        keep: whether each record stays.
        counts: batches and records that were read, kept and dropped.
    """

    actions: NDArray[np.uint8]
    has_horizon: NDArray[np.uint8]
    horizons: NDArray[np.int64]
    keep: NDArray[np.bool_]
    counts: CleaningStatistics


class RecordFilter:
    """
    Filter of one run after the other of the cleaned segments.

    Args:
        offset_map: the latest offsets of the dirty part, complete; or a bitmap of the same.
        rules: rules of this cleaning.
        transactions: a separate tracker, not that of the first pass. The caller takes the
            entries of the new transaction index from it.
        have_keys: compares keys; for an exact map.
        limit_bytes: largest size of one batch uncompressed.
        sets_delete_horizon: whether this is the last pass: only then all records that a tombstone
            supersedes are gone after it, and the retention of the tombstone begins.
        on_chunk: called with each chunk and its mask. Every run is then read in chunks: the
            compiled fast path makes no mask.

    Attributes:
        statistics: of all runs so far.
        has_old_formats: whether a batch in them was of v0 or v1.
    """

    def __init__(
        self,
        offset_map: LiveRecords,
        rules: CleaningRules,
        transactions: TransactionTracker,
        *,
        have_keys: HaveKeys | None = None,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        sets_delete_horizon: bool = True,
        on_chunk: OnChunk | None = None,
    ) -> None:
        self.statistics = CleaningStatistics()
        self.has_old_formats = False
        self._sets_delete_horizon = sets_delete_horizon
        self._map = offset_map
        self._rules = rules
        self._transactions = transactions
        self._have_keys = have_keys
        self._on_chunk = on_chunk
        self._reader = ChunkReader(limit_bytes)
        # Output, reused: fresh memory costs several times as much as the copy.
        self._output = memoryview(b"")
        # The fast path supports neither a bitmap nor a map that compares keys.
        self._runs: RunFilter | None = None
        if on_chunk is None and isinstance(offset_map, OffsetMap) and not offset_map.exact:
            self._runs = self._run_filter(offset_map, limit_bytes)

    def filter(self, run: FileRecords, *, old_tombstones_stay: bool) -> list[Buffer]:
        """
        Return the retained batches of a run, as buffers in order.

        They are valid until the next run is filtered.

        Args:
            run: whole batches.
            old_tombstones_stay: whether tombstones of the formats v0 and v1 stay: whether their
                segment was written less than the retention before the last clean segment.

        Raises:
            CorruptRecordError: a batch is damaged. No output of the run may be used.
        """
        parts = self._filter_fast(run)
        if parts is None:
            parts = self._filter_chunks(run, old_tombstones_stay=old_tombstones_stay)
        written = sum(memoryview(part).nbytes for part in parts)
        self.statistics.add_bytes(len(run.data), written)
        return parts

    def _run_filter(self, offset_map: OffsetMap, limit_bytes: int) -> RunFilter:
        rules = self._rules
        return RunFilter(
            offset_map,
            now_ms=rules.now_ms,
            delete_retention_ms=rules.delete_retention_ms,
            end_offset=rules.end_offset,
            max_message_bytes=rules.max_message_bytes,
            sets_delete_horizon=self._sets_delete_horizon,
            last_offsets={
                producer_id: last.last_offset
                for producer_id, last in rules.last_batches.items()
                if last.last_offset is not None
            },
            decompress=partial(decompress, limit_bytes=limit_bytes),
            compress=compress,
        )

    def _filter_fast(self, run: FileRecords) -> list[Buffer] | None:
        """Filter a run in one compiled call; return None if it needs the slow path."""
        if self._runs is None:
            return None
        fast = self._reader.fast_path(run)
        if fast is None:
            return None
        self._ensure_output(output_bytes_for(len(run.data), fast.plain_rows))
        try:
            size, status, counts = self._runs.filter(run.data, fast.columns, self._output)
        except KafkaLogError:
            # The slow path fails again, with a complete message.
            return None
        if status != _OK:
            return None
        self._reader.advance(fast)
        self.statistics.add(CleaningStatistics(**counts))
        if counts["batches_copied"] == counts["batches_read"]:
            return [run.data]
        return [self._output[:size]]

    def _ensure_output(self, size: int) -> None:
        if len(self._output) < size:
            # New memory: buffers that were returned may still be in use.
            self._output = memoryview(cast(Buffer, np.empty(size, np.uint8)))

    def _filter_chunks(self, run: FileRecords, *, old_tombstones_stay: bool) -> list[Buffer]:
        """Filter a run chunk by chunk."""
        parts: list[Buffer] = []
        for chunk in self._reader.chunks(run):
            mask = self._judge(chunk, old_tombstones_stay=old_tombstones_stay)
            if (mask.actions == COPY).all():
                parts.append(run.data[chunk.start : chunk.end])
            elif chunk.views:
                parts += self._write_compressed(chunk, mask)
            else:
                parts.append(self._write_plain(chunk, mask))
            self.statistics.add(mask.counts)
            if self._on_chunk is not None:
                self._on_chunk(chunk, mask)
        return parts

    # ---- decisions ----

    def _judge(self, chunk: DecodedChunk, *, old_tombstones_stay: bool) -> RetentionMask:
        is_old = chunk.magic < MAGIC_V2
        self.has_old_formats = self.has_old_formats or bool(is_old.any())
        has_horizon = chunk.has_bits(DELETE_HORIZON_MASK)
        horizons = chunk.header("base_timestamp").copy()
        waits = np.where(
            is_old, old_tombstones_stay, ~has_horizon | (self._rules.now_ms < horizons)
        )
        keep, expired = self._latest(chunk, waits)
        self._keep_last_message(chunk, is_old, keep)
        dropped, to_be_dated = self._judge_transactions(
            chunk, keep, has_horizon & (horizons <= self._rules.now_ms)
        )
        is_tombstone = keep & (chunk.columns.value_size < 0)
        if self._sets_delete_horizon and is_tombstone.any():
            # Beyond the map, values that a tombstone supersedes still exist, so its retention must
            # not begin. Or both would be removed before slow readers have read the tombstone.
            is_known = chunk.header("last_offset") <= self._map.latest_offset
            to_be_dated |= (chunk.counts(is_tombstone) > 0) & is_known
        kept_counts = chunk.counts(keep)
        actions = np.empty(len(is_old), np.uint8)
        flags = has_horizon.astype(np.uint8)
        horizons_set = judge_batches(
            kept_counts,
            np.diff(chunk.first_rows),
            (to_be_dated & ~is_old).view(np.uint8),
            self._shows_end(chunk, ~is_old & (kept_counts == 0)).view(np.uint8),
            flags,
            horizons,
            actions,
            self._rules.now_ms + self._rules.delete_retention_ms,
        )
        if chunk.views and chunk.views[0].header.is_wrapper:
            self._judge_wrapper(chunk, chunk.views[0], actions)
        counts = _counts_of(chunk, actions, keep, expired, dropped)
        counts.add(CleaningStatistics(horizons_set=horizons_set))
        return RetentionMask(actions, flags, horizons, keep, counts)

    def _latest(
        self, chunk: DecodedChunk, waits: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """
        Return the records that the map keeps, and those that are removed only as tombstones.

        Args:
            waits: whether the tombstones of each batch stay.
        """
        columns = chunk.columns
        stays = columns.value_size >= 0
        if not stays.all():
            stays |= np.repeat(waits, np.diff(chunk.first_rows))
        latest = np.empty(len(columns), np.bool_)
        if self._map.latest_run(columns.offset, latest.view(np.uint8)):
            return latest & stays, latest & ~stays
        found = np.empty(len(columns), np.int64)
        comparison = row_comparison(chunk, self._have_keys)
        self._map.get_run(
            chunk.data,
            columns.key_position,
            columns.key_size,
            found,
            offsets=None if comparison is None else columns.offset,
            same_keys=comparison,
        )
        latest = (columns.offset >= found) & (found != KEYLESS)
        beyond = (columns.offset > self._map.latest_offset) | (found == ELSEWHERE)
        return beyond | (latest & stays), latest & ~stays & ~beyond

    def _judge_transactions(
        self, chunk: DecodedChunk, keep: NDArray[np.bool_], over: NDArray[np.bool_]
    ) -> tuple[list[int], NDArray[np.bool_]]:
        """
        Decide about the batches of transactions, and change `keep`.

        Args:
            over: whether the delete horizon of each batch has passed.

        Returns:
            The batches that are dropped, and for each batch whether it is the marker of a
            transaction without data.
        """
        empty_markers = np.zeros(len(over), np.bool_)
        dropped: list[int] = []
        for batch, is_control, is_gone in self._transactions.judge(chunk):
            rows = slice(int(chunk.first_rows[batch]), int(chunk.first_rows[batch + 1]))
            if is_control:
                empty_markers[batch] = is_gone
                is_gone = is_gone and bool(over[batch])
                keep[rows] = True
            if is_gone:
                keep[rows] = False
                dropped.append(batch)
        return dropped, empty_markers

    def _keep_last_message(
        self, chunk: DecodedChunk, is_old: NDArray[np.bool_], keep: NDArray[np.bool_]
    ) -> None:
        """Keep the last message of the range if old formats cannot keep an empty batch for it."""
        if is_old[-1] and int(chunk.header("last_offset")[-1]) + 1 == self._rules.end_offset:
            keep[-1] = True

    def _shows_end(self, chunk: DecodedChunk, is_empty: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which batches without records end the range or the batches of a producer."""
        last_offset = chunk.header("last_offset")
        shows_end: NDArray[np.bool_] = is_empty & (last_offset + 1 == self._rules.end_offset)
        for batch in np.flatnonzero(is_empty & (chunk.header("producer_id") >= 0)).tolist():
            shows_end[batch] |= self._ends_producer(chunk, batch, int(last_offset[batch]))
        return shows_end

    def _ends_producer(self, chunk: DecodedChunk, batch: int, last_offset: int) -> bool:
        last = self._rules.last_batches.get(int(chunk.header("producer_id")[batch]))
        if last is None:
            return False
        if last.last_offset is not None:
            return last.last_offset == last_offset
        is_control = bool(chunk.has_bits(CONTROL_MASK)[batch])
        return is_control and last.producer_epoch == int(chunk.header("producer_epoch")[batch])

    def _judge_wrapper(
        self, chunk: DecodedChunk, view: BatchView, actions: NDArray[np.uint8]
    ) -> None:
        """Rewrite a wrapper with messages of another format; old brokers wrote such wrappers."""
        if actions[0] == COPY:
            end = memoryview(chunk.data).nbytes
            summary = summarize_messages(chunk.data, view.header, 0, end, strict=False)
            if summary.other_magic_count:
                actions[0] = REWRITE

    # ---- bytes ----

    def _write_plain(self, chunk: DecodedChunk, mask: RetentionMask) -> Buffer:
        self._ensure_output(max_output_bytes(chunk.columns, chunk.end - chunk.start))
        size = write_retained(
            chunk.run.data[: chunk.end],
            chunk.start,
            mask.actions,
            chunk.first_rows,
            mask.has_horizon,
            mask.horizons,
            chunk.columns,
            mask.keep.view(np.uint8),
            self._output,
        )
        return bytes(self._output[:size])

    def _write_compressed(self, chunk: DecodedChunk, mask: RetentionMask) -> Iterator[Buffer]:
        actions = mask.actions.tolist()
        for batch, (view, action) in enumerate(zip(chunk.views, actions, strict=True)):
            if action == COPY:
                yield view.data
            elif action == EMPTY:
                yield wrap_retained(view.data, b"", 0, NO_TIMESTAMP, NO_TIMESTAMP, 0, False)
            elif action == REWRITE:
                yield self._recompressed(view, chunk, batch, mask)

    def _recompressed(
        self, view: BatchView, chunk: DecodedChunk, batch: int, mask: RetentionMask
    ) -> Buffer:
        if view.header.is_wrapper:
            written: Buffer = self._rewrapped(view, chunk, mask.keep)
        else:
            has_horizon = bool(mask.has_horizon[batch])
            records, base_timestamp, max_timestamp, count = retained_records(
                chunk.data,
                chunk.payload_ends[batch],
                chunk.payload_ends[batch + 1],
                chunk.columns,
                mask.keep.view(np.uint8),
                int(chunk.first_rows[batch]),
                int(chunk.first_rows[batch + 1]),
                int(mask.horizons[batch]) if has_horizon else None,
            )
            codec = view.codec
            written = wrap_retained(
                view.data,
                compress(codec, records),
                int(codec),
                base_timestamp,
                max_timestamp,
                count,
                has_horizon,
            )
        size = memoryview(written).nbytes
        if size > max(view.header.size_bytes, self._rules.max_message_bytes):
            self.statistics.add(CleaningStatistics(batches_grown=1))
        return written

    def _rewrapped(self, view: BatchView, chunk: DecodedChunk, keep: NDArray[np.bool_]) -> bytes:
        """Return a wrapper of the retained messages."""
        header, columns = view.header, chunk.columns
        append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
        builder = MessageSetBuilder(header.magic)
        builder.reset(append_time=append_time)
        rows = np.flatnonzero(keep)
        base_offset = int(columns.offset[rows[0]])
        # Slices of consecutive rows.
        cuts = np.flatnonzero(np.diff(rows) > 1) + 1
        for row_slice in np.split(rows, cuts):
            builder.extend_decoded(
                chunk.data,
                columns,
                int(row_slice[0]),
                int(row_slice[-1]) + 1,
                base_offset=base_offset,
            )
        codec = view.codec
        compressed = compress(codec, builder.payload(base_offset), magic=header.magic)
        return bytes(builder.wrap(int(codec), compressed, base_offset=base_offset))


def _counts_of(
    chunk: DecodedChunk,
    actions: NDArray[np.uint8],
    keep: NDArray[np.bool_],
    expired: NDArray[np.bool_],
    dropped: list[int],
) -> CleaningStatistics:
    """
    Return the counts of a chunk; a record that is removed counts for the first reason.

    Args:
        chunk, actions, keep: the chunk, and what becomes of its batches and records.
        expired: records that are removed only as tombstones.
        dropped: batches that are removed for their transaction.
    """
    gone, is_control = ~keep, chunk.has_bits(CONTROL_MASK)
    control_dropped = aborted_dropped = 0
    for batch in dropped:
        rows = slice(int(chunk.first_rows[batch]), int(chunk.first_rows[batch + 1]))
        count = int(np.count_nonzero(gone[rows]))
        if is_control[batch]:
            control_dropped += count
        else:
            aborted_dropped += count
        gone[rows] = False
    keyless = int(np.count_nonzero(gone & (chunk.columns.key_size < 0)))
    tombstones = int(np.count_nonzero(gone & expired))
    return CleaningStatistics(
        batches_read=len(actions),
        batches_copied=int(np.count_nonzero(actions == COPY)),
        batches_rewritten=int(np.count_nonzero(actions == REWRITE)),
        batches_emptied=int(np.count_nonzero(actions == EMPTY)),
        records_read=len(keep),
        records_kept=int(np.count_nonzero(keep)),
        superseded=int(np.count_nonzero(gone)) - keyless - tombstones,
        tombstones_expired=tombstones,
        keyless_dropped=keyless,
        aborted_dropped=aborted_dropped,
        control_dropped=control_dropped,
        tombstones_kept=int(np.count_nonzero(keep & (chunk.columns.value_size < 0))),
    )
