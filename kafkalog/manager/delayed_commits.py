"""Commits of records whose append is delayed (`kafkalog.journal.linger.ms`).

A durable producer of many small records to many partitions pays for each log of a commit: its lock,
an append, a write, its bytes in the journal. With a linger it pays for the records alone: they get
the next offsets of their logs, the commit journal gets them, and when that is on the disk they are
acknowledged. The logs get them within the linger, in larger batches
(`kafkalog.log.delayed_appends`); until then no reader sees them.

Commits of a log are in the order of its offsets: one thread at a time commits all that was
accepted, of any producer. Where the journal has no space, the records are appended at once, and
their logs are committed as those of other producers.

Crash points: those of `CommitJournal.commit`. The recovery appends what a log lacks
(`kafkalog.manager.journal_recovery`).

Thread-safety: every method from any thread. Lock order: commit lock, lock of the accepted records,
lock of a log.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from kafkalog._engine.delayed_records import DelayedRecords
from kafkalog._engine.delayed_send import DelayedSend, DelayedTopic
from kafkalog.errors import KafkaLogError
from kafkalog.files.filesystem import FileSystem
from kafkalog.log.log import Log, partition_of
from kafkalog.manager.commit_journal import CommitJournal
from kafkalog.manager.supervision import FaultRegistry
from kafkalog.model import TopicPartition
from kafkalog.pace import Pace
from kafkalog.state.commit_journal import PartitionName
from kafkalog.state.kafka_uuid import ZERO_ID
from kafkalog.state.partition_metadata import read_partition_metadata

__all__ = ["DELAYED_APPEND", "DelayedCommits"]

# Name of the task that appends delayed records, and of its faults.
DELAYED_APPEND: Final = "delayed-append"
# Time after which an append that failed is tried again.
RETRY_MS: Final = 1000
# Logs whose durable offsets are published together: meanwhile no other thread publishes many.
TOGETHER_LOGS: Final = 64


class DelayedCommits:
    """
    Delayed records of the logs of a manager.

    Args:
        filesystem: the disk.
        linger_ms: time after which the logs get them.
        journal_of: returns the journal of a log's data directory; None without one.
        commit_logs: puts appended records on the disk; returns the logs that failed.
        schedule: runs a function after so many milliseconds.
        faults: has the logs whose appends fail.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        linger_ms: int,
        *,
        journal_of: Callable[[Log], CommitJournal | None],
        commit_logs: Callable[[Collection[Log]], Mapping[Log, KafkaLogError]],
        schedule: Callable[[Callable[[], object], int], object],
        faults: FaultRegistry,
    ) -> None:
        self._filesystem = filesystem
        self._linger_ms = linger_ms
        self._journal_of = journal_of
        self._commit_logs = commit_logs
        self._schedule = schedule
        self._faults = faults
        self._commit_lock = threading.Lock()
        self._lock = threading.Lock()
        # Records with offsets that no commit has; in the order of their offsets.
        self._accepted: list[DelayedSend] = []
        self._records: set[DelayedRecords] = set()
        self._is_scheduled = False

    def records_of(self, log: Log) -> DelayedRecords | None:
        """
        Return the delayed records of a log that may have some; None if it may not.

        Raises:
            KafkaLogError: the log may not be written.
            OSError: its topic id cannot be read.
        """
        journal = self._journal_of(log)
        if journal is None or not journal.takes_records:
            return None

        def make_name() -> PartitionName:
            topic_id = read_partition_metadata(self._filesystem, log.directory)
            return PartitionName(log.directory.name, topic_id or ZERO_ID)

        appends = partition_of(log).delayed
        made = appends.begin(log, make_name, journal)
        appends.make_ready()
        with self._lock:
            self._records.add(made)
        return made

    def accept(
        self,
        topic: DelayedTopic,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamp_ms: int,
        now_ms: int,
    ) -> DelayedSend | int | None:
        """Give records the next offsets of their logs; see `DelayedTopic.accept`."""
        with self._lock:
            found = topic.accept(keys, values, timestamp_ms, now_ms, self._accepted)
        if isinstance(found, DelayedSend):
            self._schedule_appends(self._linger_ms)
        return found

    def commit(self, sends: Sequence[DelayedSend]) -> None:
        """Decide which records are durable, of these calls and of all accepted before."""
        with self._commit_lock:
            if all(each.is_committed for each in sends):
                return
            with self._lock:
                # They stay in the list: after an interruption they are committed once more, which
                # changes nothing.
                taken = [each for each in self._accepted if not each.is_committed]
            for journal in dict.fromkeys(found for each in taken for found in each.journals):
                self._commit_to(journal, taken)
            for each in taken:
                each.set_committed()
            with self._lock:
                self._accepted = [each for each in self._accepted if not each.is_committed]

    # ------------------------------------------------------------------------------------ private

    def _commit_to(self, journal: CommitJournal, sends: Sequence[DelayedSend]) -> None:
        try:
            left = journal.commit_records(sends)
        except KafkaLogError as error:
            for each, place in _places(journal, sends):
                each.fail(place, error)
            return
        if left is None:
            left = _places(journal, sends)
            self._append_now(left, sends)
        self._commit_appended([(each, place) for each, place in left if place not in each.errors])

    def _append_now(
        self, places: Sequence[tuple[DelayedSend, int]], sends: Sequence[DelayedSend]
    ) -> None:
        """Append records that the journal has no space for; they get the errors."""
        first_offsets: dict[DelayedRecords, int] = {}
        for each, place in places:
            first_offsets.setdefault(each.logs[place], each.first_offset(place))
        for records, first_offset in first_offsets.items():
            try:
                partition_of(records.log).delayed.append_all()
            except KafkaLogError as error:
                self._drop(records, first_offset, error, sends)

    def _commit_appended(self, places: Sequence[tuple[DelayedSend, int]]) -> None:
        """Commit the logs of records that they have."""
        failures = self._commit_logs(dict.fromkeys(each.logs[place].log for each, place in places))
        for each, place in places if failures else ():
            log = each.logs[place].log
            failure = failures.get(log)
            if failure is not None and each.end_offset(place) > log.durable_offset:
                each.fail(place, failure)

    def _drop(
        self,
        records: DelayedRecords,
        first_offset: int,
        error: KafkaLogError,
        sends: Sequence[DelayedSend],
    ) -> None:
        """Drop records that no journal has, and whose append failed."""
        log = records.log
        with self._lock, partition_of(log).gate.lock:
            records.drop_after(first_offset)
            for each in (*sends, *self._accepted):
                for place, own in enumerate(each.logs):
                    if own is records and each.end_offset(place) > log.log_end_offset:
                        each.fail(place, error)

    def _append_due(self) -> None:
        """Append all delayed records to their logs, and again later if there may be more."""
        with self._lock:
            self._is_scheduled = False
        delay_ms: int | None = RETRY_MS
        try:
            delay_ms = self._append_to_all()
        finally:
            if delay_ms is not None:
                self._schedule_appends(delay_ms)

    def _append_to_all(self) -> int | None:
        """Append all delayed records; return the time to the next call, None if it needs none."""
        by_journal: defaultdict[CommitJournal, list[DelayedRecords]] = defaultdict(list)
        with self._lock:
            closed = {each for each in self._records if each.log.is_closed}
            self._records -= closed
            for records in self._records:
                by_journal[records.journal].append(records)
        for records in closed:
            self._faults.clear_error(DELAYED_APPEND, _name_of(records.log))
        has_more = has_failed = False
        pace = Pace()
        for journal, found in by_journal.items():
            for start in range(0, len(found), TOGETHER_LOGS):
                # A write of the published offset for each log takes as long as its append.
                with journal.published_together():
                    for records in found[start : start + TOGETHER_LOGS]:
                        try:
                            has_more = self._append(records.log) or has_more
                        except KafkaLogError:
                            has_failed = True
                        pace.step()
        if has_failed:
            return max(self._linger_ms, RETRY_MS)
        return self._linger_ms if has_more else None

    def _append(self, log: Log) -> bool:
        """Append the records of a log, and record its faults; see `DelayedAppends.append_due`."""
        name = _name_of(log)
        try:
            has_more = partition_of(log).delayed.append_due()
        except KafkaLogError as error:
            self._faults.record_failure(DELAYED_APPEND, name, error)
            raise
        self._faults.clear_error(DELAYED_APPEND, name)
        return has_more

    def _schedule_appends(self, delay_ms: int) -> None:
        try:
            with self._lock:
                is_scheduled, self._is_scheduled = self._is_scheduled, True
            if not is_scheduled:
                self._schedule(self._append_due, delay_ms)
        except BaseException:
            # Perhaps nothing is scheduled; a second task does no harm.
            self._is_scheduled = False
            raise


def _name_of(log: Log) -> TopicPartition:
    return partition_of(log).paths.topic_partition


def _places(journal: CommitJournal, sends: Sequence[DelayedSend]) -> list[tuple[DelayedSend, int]]:
    """Return the partitions of a journal without an error, as a call and a place in it each."""
    return [
        (each, place)
        for each in sends
        for place, records in enumerate(each.logs)
        if records.journal is journal and place not in each.errors
    ]
