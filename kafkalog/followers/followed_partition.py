"""Partition that a follower reads: its position, its leader epoch, and the next records.

The position is compared with the log at each read, as a consumer of Kafka does (KIP-320): the epoch
of the last record must still reach to the position. A truncation, after which offsets have other
records, has a higher epoch, in a file that its writer replaces before the first such record. So a
read is valid if that file is the same before and after it; else the records are dropped, the
position is compared again, and they are read once more.

New batches at the end of the last segment are read without the log (`appended_bytes.py`), until
names in the directory change. The log is opened for the first read, and may be released at any
time.

Thread-safety: one thread at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from kafkalog._core.record import Record
from kafkalog.clients.consumer import LostRecords
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.config import LogConfig
from kafkalog.errors import (
    CorruptRecordError,
    KafkaLogError,
    LogStorageError,
    OffsetOutOfRangeError,
)
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileFacts
from kafkalog.followers.appended_bytes import AppendedBytes
from kafkalog.followers.checkpoint_cache import CheckpointCache
from kafkalog.followers.durable_limits import NO_LIMIT, DurableLimit
from kafkalog.log.checkpoint_store import FileCheckpointStore
from kafkalog.log.isolation import Isolation
from kafkalog.log.log import Log
from kafkalog.log.opening import open_partition
from kafkalog.log.partition import LogEnvironment
from kafkalog.log.partition_paths import PartitionPaths
from kafkalog.log.reading import OnCorrupt
from kafkalog.model import TopicPartition
from kafkalog.state.durable_offsets import partition_digest
from kafkalog.state.leader_epochs import LeaderEpochs

__all__ = ["FollowedPartition", "ReadRules"]

logger = logging.getLogger(__name__)

_CONFIG: Final = LogConfig()
_MAX_OFFSET: Final = 2**63 - 1
# Epoch file that was not read yet; never equal to the facts of a file.
_UNREAD: Final = FileFacts(-1, -1, is_directory=False)


@dataclass(frozen=True, slots=True)
class ReadRules:
    """
    Rules of all reads of a follower.

    Attributes:
        environment: clock and file pool of the logs.
        checkpoints: checkpoints of the data directories.
        isolation, on_corrupt: as for `Log.records`.
        on_lost: called with offsets that a log does not have any more.
    """

    environment: LogEnvironment
    checkpoints: CheckpointCache
    isolation: Isolation
    on_corrupt: OnCorrupt
    on_lost: Callable[[LostRecords], object]


class FollowedPartition:
    """
    One partition of a follower.

    Args:
        where: the partition.
        paths: its directory, and the directory of its checkpoints.
        facts: facts of its directory.
        topic_id: the id of its topic, None if unknown.
        rules: rules of its reads.

    Attributes:
        where, paths, topic_id: as given.
        digest: key of the directory in the published durable offsets.
        file_id: number of the directory.
        position: offset of the next record; None before it is known.
    """

    def __init__(
        self,
        where: TopicPartition,
        paths: PartitionPaths,
        facts: FileFacts,
        topic_id: UUID | None,
        rules: ReadRules,
    ) -> None:
        self.where = where
        self.paths = paths
        self.topic_id = topic_id
        self.digest = partition_digest(paths.directory, facts)
        self.file_id = facts.file_id
        self.position: int | None = None
        self._rules = rules
        self._log: Log | None = None
        self._epoch: int | None = None
        self._epochs = LeaderEpochs()
        self._epoch_facts: FileFacts | None = _UNREAD
        self._tail: AppendedBytes | None = None
        self._tail_has_more = False
        # True if the last read ended at an error, which the next read raises.
        self._has_failed = False
        # The read in progress: its records, its end, and the limit when it began.
        self._records: Iterator[Record] | None = None
        self._end = 0
        self._limit = NO_LIMIT
        # End of the log, and of its committed records, when a durable read of these last looked.
        self._candidate = (0, 0)
        self._committed_end = 0

    def __repr__(self) -> str:
        return f"<FollowedPartition {self.where} at {self.position}>"

    @property
    def directory(self) -> Path:
        """The partition directory."""
        return self.paths.directory

    @property
    def is_open(self) -> bool:
        """True if files are open."""
        return self._log is not None or self._tail is not None

    @property
    def has_more(self) -> bool:
        """True if the read in progress has not reached its end."""
        return self._records is not None or self._tail_has_more or self._has_failed

    @property
    def tail_name(self) -> str | None:
        """Name of the segment whose new bytes are read without the log; None if the log is read."""
        return None if self._tail is None else self._tail.name

    def end_fast_path(self) -> None:
        """Read the log next: there may be other segments."""
        tail, self._tail, self._tail_has_more = self._tail, None, False
        if tail is not None:
            tail.close()

    @property
    def committed_offset(self) -> CommittedOffset:
        """The position with the leader epoch of the record before it."""
        return CommittedOffset(self.position or 0, leader_epoch=self._epoch)

    def seek(self, position: CommittedOffset) -> None:
        """Continue at a position."""
        self._move(position.offset)
        self._epoch = position.leader_epoch

    def seek_to_start(self) -> None:
        """Continue at the log start."""
        self._move(self._open().log_start_offset)
        self._epoch = None

    def seek_to_end(self, limit: DurableLimit) -> None:
        """Continue at the end of the records that may be shown."""
        log = self._open()
        self._load_epochs()
        is_committed = self._rules.isolation == "read_committed"
        end = log.last_stable_offset if is_committed else log.high_watermark
        end = max(min(end, limit.offset), log.log_start_offset)
        self._move(end)
        self._epoch = self._epochs.epoch_for(end - 1)

    def may_have_more(self, limit: DurableLimit) -> bool:
        """Return whether a read could find something: False while all durable records are read."""
        return limit is NO_LIMIT or self.position is None or limit.offset != self.position

    def read(
        self,
        count: int,
        size_bytes: int,
        known_limit: DurableLimit,
        read_limit: Callable[[], DurableLimit],
        is_unchanged: Callable[[DurableLimit], bool],
    ) -> list[Record]:
        """
        Return the next records, and set the position after them.

        Args:
            count: their largest number.
            size_bytes: stop after the record that reaches this sum of value sizes.
            known_limit: the limit as it was found last.
            read_limit: returns the present limit.
            is_unchanged: returns whether everything below a limit was on the disk until now.

        Raises:
            CorruptRecordError: the position is in a corrupt range.
            KafkaLogError: the log cannot be read.
        """
        assert self.position is not None
        self._has_failed = False
        if self._tail is not None:
            fresh = self._tail.read(count, size_bytes, known_limit.offset)
            if fresh is not None:
                self.position, self._tail_has_more = fresh.next_offset, fresh.has_more
                return fresh.records
            self.end_fast_path()
        while True:
            self._check_epoch()
            position = self.position
            if self._records is None:
                self._limit = read_limit()
            try:
                found = self._next_records(count, size_bytes)
            except OffsetOutOfRangeError as error:
                start, end = error.log_start_offset, error.log_end_offset
                if start is None or end is None:
                    raise
                self._resume_at(start if position < start else end)
                continue
            if self._stat_epochs() == self._epoch_facts and is_unchanged(self._limit):
                if self.position > position:
                    self._epoch = self._epochs.epoch_for(self.position - 1)
                self._begin_fast_path()
                return found
            # Offsets may have been assigned again during the read.
            self._move(position)

    def release(self) -> None:
        """Close the log; the next read opens it again."""
        self._records = None
        self.end_fast_path()
        log, self._log = self._log, None
        if log is not None:
            log.close()

    def _open(self) -> Log:
        if self._log is None:
            store = FileCheckpointStore(self.paths, self._rules.checkpoints.read)
            environment = self._rules.environment
            self._log = Log(open_partition(store, _CONFIG, environment, read_only=True))
        return self._log

    def _move(self, position: int) -> None:
        self.position = position
        self._records = None
        self.end_fast_path()

    def _begin_fast_path(self) -> None:
        """Read the next batches without the log, if the position is in the last segment."""
        if self.has_more or self._epoch is None or self._rules.isolation == "read_committed":
            return
        assert self.position is not None
        log = self._open()
        last = log.segments()[-1]
        if last.base_offset > self.position or self.position > log.log_end_offset:
            return
        try:
            at = log.read(self.position, max_bytes=0, min_one_batch=False)
            if at.segment.base_offset != last.base_offset:
                return
            with storage_errors(at.path, doing="opening"):
                self._tail = AppendedBytes(
                    self.paths.filesystem, at.path, at.position, self.position, self._epoch
                )
        except (OffsetOutOfRangeError, CorruptRecordError, LogStorageError) as error:
            logger.debug("%s: the log is read: %s", self.where, error)

    def _check_epoch(self) -> None:
        """Move the position back if its records were removed by a truncation."""
        assert self.position is not None
        if self._stat_epochs() == self._epoch_facts:
            return
        self._load_epochs()
        if self._epoch is None:
            self._epoch = self._epochs.epoch_for(self.position - 1)
            return
        end = self._epochs.end_offset_for(self._epoch, _MAX_OFFSET).end_offset
        if 0 <= end < self.position:
            self._resume_at(end)

    def _next_records(self, count: int, size_bytes: int) -> list[Record]:
        assert self.position is not None
        records = self._records
        if records is None:
            log = self._open()
            end = self._visible_end(log, self._limit)
            if end == self.position or (end < self.position <= log.log_end_offset):
                return []
            # Also to find out that the position is not in the log.
            rules = self._rules
            records = log.records(
                self.position, end, on_corrupt=rules.on_corrupt, isolation=rules.isolation
            )
            self._records, self._end = records, end
        found: list[Record] = []
        try:
            for record in records:
                found.append(record)
                size_bytes -= len(record.value or b"")
                if len(found) >= count or size_bytes <= 0:
                    self.position = record.offset + 1
                    return found
        except BaseException as error:
            self._records = None
            if not found or not isinstance(error, KafkaLogError):
                raise
            # These are returned first; the next read raises again.
            self.position, self._has_failed = found[-1].offset + 1, True
            return found
        # After offsets without records too: markers, aborted and removed records.
        self.position = max(self.position, self._end)
        self._records = None
        return found

    def _visible_end(self, log: Log, limit: DurableLimit) -> int:
        if self._rules.isolation == "read_uncommitted":
            return min(log.high_watermark, limit.offset)
        if limit is NO_LIMIT:
            return log.last_stable_offset
        # The markers that decide about records below the limit must be durable, too: an end of
        # committed records counts once the disk has everything that was in the log then.
        if limit.offset >= self._candidate[0]:
            self._committed_end = self._candidate[1]
            stable = log.last_stable_offset
            self._candidate = log.log_end_offset, stable
            if limit.offset >= self._candidate[0]:
                self._committed_end = stable
        return min(self._committed_end, limit.offset)

    def _resume_at(self, offset: int) -> None:
        """Report a lost range, and continue at an offset."""
        assert self.position is not None
        lost = LostRecords(self.where, self.position, offset)
        self._move(offset)
        self._epoch = self._epochs.epoch_for(offset - 1)
        self._rules.on_lost(lost)

    def _stat_epochs(self) -> FileFacts | None:
        path = self.paths.leader_epochs().path
        with storage_errors(path, doing="reading"):
            return self.paths.filesystem.stat(path)

    def _load_epochs(self) -> None:
        """Read the leader epochs; without any, truncations are not found below the log end."""
        self._epoch_facts = self._stat_epochs()
        self._candidate, self._committed_end = (0, 0), 0
        self._epochs = LeaderEpochs()
        if self._epoch_facts is not None:
            self._epochs.load(self.paths.leader_epochs())
