"""Execution of an intent: the unpublished part of each staged file is published in its log.

A file of a thirty-second of a segment or more becomes a segment (`LogAppender.ingest`: renamed, not
copied), and so does a file of any size if the log's last segment is empty: it becomes that segment.
The batches of another file are appended. Only headers are read of a file that is renamed: its task
has synced the batches it had encoded, and a reader checks every CRC anyway. After a crash, or an
error, the disk shows what is left to do:

  * a missing staged file was taken over: nothing is to be done;
  * a file whose log ends at the base offset of the entry was not begun;
  * for a file whose log ends above that, the batches of the log, from the base offset on, are
    compared with those of the file by their CRCs, which offsets do not change. Equal batches were
    appended. The rest is appended at the present log end: another writer that does not know intents
    may have appended. The intent is rewritten with the new offset first;
  * a batch that differs may be another writer's, or one of the file that compaction or conversion
    has rewritten: its records decide, which keep offset, key, value and timestamp. If too many of
    them are gone to be certain, recovery refuses rather than publish them twice.

The intent counts the partitions that are complete. From then on their logs are not read: another
process may compact, truncate or delete them before the ledger has the transaction.

Crash points: those of `LogAppender.ingest` and of an append, and before and after each rewriting of
the intent, for a move and after each partition; at all of them the rules above find the rest.

Thread-safety: none; the caller holds the sink's lock and the manager's.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from kafkalog._core.assign_offsets import assign_offsets
from kafkalog._core.header import BatchHeader
from kafkalog._core.record import Record
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.indexes.kinds import TIME_INDEX
from kafkalog.log.ingest import FileBatch, file_batches
from kafkalog.log.log import Log, partition_of
from kafkalog.manager.manager import LogManager
from kafkalog.records.batch_view import BatchView
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.txn.model import Intent, IntentEntry, smallest_segment
from kafkalog.spark.txn.state import SinkState

__all__ = ["IntentExecutor"]

# A file that becomes no segment is copied in parts of this size.
_COPY_BYTES: Final = 32 * 1024 * 1024

logger = logging.getLogger(__name__)


class IntentExecutor:
    """
    Executor of an intent.

    Args:
        filesystem: the disk.
        manager: has the data directory open.
        state: the sink's.
        intent: the intent, which is on the disk.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        manager: LogManager,
        state: SinkState,
        intent: Intent,
    ) -> None:
        self._filesystem = filesystem
        self._manager = manager
        self._state = state
        self.intent = intent

    def apply(self) -> None:
        """
        Publish the unpublished rest; everything is on the disk when this returns.

        Raises:
            KafkaLogError: the disk refused, or a log is gone; the next recovery tries again.
        """
        partitions = self._manager.partitions()
        for number, partition in enumerate(self.intent.partitions):
            if number < self.intent.applied:
                continue
            if partition not in partitions:
                # After a crash the topic was deleted, with its records.
                logger.warning("%s is gone, and the records of %s for it", partition, self.intent)
                continue
            log = self._manager.log(*partition)
            for entry in self.intent.entries_of(partition):
                self._state.ensure_owner()
                self._apply(log, entry)
            log.flush()
            self.intent = replace(self.intent, applied=number + 1)
            self._state.write_intent(self.intent)
        for topic, number, end in self.intent.emptied:
            if (topic, number) not in partitions:
                continue
            self._state.ensure_owner()
            log = self._manager.log(topic, number)
            if log.log_start_offset < end:
                log.delete_records(min(end, log.log_end_offset))

    def _apply(self, log: Log, entry: IntentEntry) -> None:
        path = Path(entry.path)
        with storage_errors(path, doing="looking at"):
            facts = self._filesystem.stat(path)
        end = log.log_end_offset
        if facts is None:
            if end < entry.end_offset:
                raise KafkaLogSparkError(
                    ErrorCode.DATA_LOSS,
                    f"{path} was taken over by {log.directory}, which should reach"
                    f" {entry.end_offset} and ends at {end}: it was truncated since. To continue"
                    " without these records, remove the sink's intent file",
                    path=str(path),
                    topic=entry.topic,
                    partition=entry.partition,
                )
            return
        if end != entry.base_offset:
            left = self._remaining_entry(log, entry, facts.size_bytes)
            if left is None:
                return
            if left is not entry:
                self.intent = self.intent.moved(entry, left)
                self._state.write_intent(self.intent)
                entry = left
        if self._is_segment(log, entry, facts.size_bytes):
            partition_of(log).appender.ingest(path, check_crc=False)
        else:
            self._append(log, entry, facts.size_bytes)

    def _remaining_entry(self, log: Log, entry: IntentEntry, size: int) -> IntentEntry | None:
        """Return the unpublished rest of a file, with its offset; None without a rest."""
        end = log.log_end_offset
        position, count = entry.position, 0
        if entry.base_offset < end:
            position, count = self._published(log, entry, size)
        if count == entry.record_count:
            return None
        logger.warning(
            "%s: %d records of %s that were to begin at %d go to %d",
            log.directory, entry.record_count - count, entry.path, entry.base_offset + count, end,
        )  # fmt: skip
        return replace(
            entry, base_offset=end, record_count=entry.record_count - count, position=position
        )

    def _published(self, log: Log, entry: IntentEntry, size: int) -> tuple[int, int]:
        """Return the end of the published batches in the file, and their records."""
        start = max(entry.base_offset, log.log_start_offset)
        if start >= entry.end_offset:
            # Deleted since then, and so published: nothing deletes above the log end.
            return size, entry.record_count
        stored = log.batches(start, log.log_end_offset)
        position, count = entry.position, 0
        data = self._map(entry, size)
        for batch in self._batches(entry, data):
            offset = entry.base_offset + count
            if offset + batch.record_count > start:
                there = next(stored, None)
                if there is None:
                    break
                if not _is_same(there.header, batch, offset):
                    return self._published_by_records(log, entry, data, position, count)
            position, count = batch.end_position, count + batch.record_count
        return position, count

    def _published_by_records(
        self, log: Log, entry: IntentEntry, data: memoryview, position: int, count: int
    ) -> tuple[int, int]:
        """
        As `_published`, if the log has another batch after the first `count` records.

        An append leaves whole batches, so the published part ends at a batch of the file. A record
        that the log has at its offset was published, and so were those before it; if the log has
        another record, no record from there on was published.
        """
        start = max(entry.base_offset + count, log.log_start_offset)
        end = min(entry.end_offset, log.log_end_offset)
        stored = {record.offset: record for record in log.records(start, end)}
        least, most = start - entry.base_offset, end - entry.base_offset
        ends, first = [(position, count)], count
        for batch in file_batches(data, Path(entry.path), position):
            view = BatchView(data[batch.position : batch.end_position])
            for number, record in enumerate(view.records(), first):
                there = stored.get(entry.base_offset + number)
                if there is not None and number < most:
                    if _is_same_record(there, record):
                        least = number + 1
                    else:
                        most = number
            first += batch.record_count
            ends.append((batch.end_position, first))
        possible = [each for each in ends if least <= each[1] <= most]
        if len(possible) == 1:
            return possible[0]
        raise KafkaLogSparkError(
            ErrorCode.DATA_LOSS,
            f"{log.directory} was rewritten since {entry.path} was to be published at"
            f" {entry.base_offset}, and its records from {start} on do not show how much of it was:"
            " it is not published again. To continue without the missing records, remove the sink's"
            " intent file",
            path=entry.path,
            topic=entry.topic,
            partition=entry.partition,
        )

    @staticmethod
    def _batches(entry: IntentEntry, data: memoryview) -> list[FileBatch]:
        return file_batches(data, Path(entry.path), entry.position)

    def _append(self, log: Log, entry: IntentEntry, size: int) -> None:
        """Copy batches into a log, in parts that are whole batches."""
        offset, epoch = entry.base_offset, log.leader_epoch
        data = self._map(entry, size)
        ends = [batch.end_position for batch in self._batches(entry, data)]
        start = entry.position
        for end, following in pairwise([*ends, size + _COPY_BYTES + 1]):
            if following - start <= _COPY_BYTES:
                continue
            part = bytearray(data[start:end])
            offset = assign_offsets(part, base_offset=offset, partition_leader_epoch=epoch)
            log.append_batches(part, assign_offsets=False)
            start = end

    def _is_segment(self, log: Log, entry: IntentEntry, size: int) -> bool:
        config = log.config
        if entry.position:
            return False
        if size < smallest_segment(config.segment_bytes) and log.segments()[-1].size_bytes:
            return False
        # Never more than one entry for each interval; the time index has the larger ones.
        entries = size // max(config.index_interval_bytes, 1) + 1
        index_size = entries * TIME_INDEX.entry_size
        return size <= config.segment_bytes and index_size <= config.segment_index_bytes

    def _map(self, entry: IntentEntry, size: int) -> memoryview:
        path = Path(entry.path)
        with storage_errors(path, doing="reading"):
            handle = self._filesystem.open(path)
            try:
                return handle.map(size)
            finally:
                handle.close()


def _is_same_record(stored: Record, record: Record) -> bool:
    """Return True if two records are equal, offsets aside."""
    return (stored.key, stored.value, stored.timestamp_ms, stored.headers) == (
        record.key,
        record.value,
        record.timestamp_ms,
        record.headers,
    )


def _is_same(header: BatchHeader, batch: FileBatch, offset: int) -> bool:
    """Return True if a batch of the log is one of the file, at that offset."""
    stored = header.base_offset, header.crc, header.size_bytes
    return stored == (offset, batch.crc, batch.size_bytes)
