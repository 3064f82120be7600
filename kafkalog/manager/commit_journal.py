"""Commit journal of a data directory: one append and one sync make the ends of many logs durable.

A commit collects what the dirty logs have in their last segment files and on no disk yet, writes it
to one file whose blocks are allocated (`kafkalog.state.commit_journal`), and syncs that file. Then
the durable offsets of the logs rise. Their own files are synced later, by `checkpoint`, and after
that the commits are not needed any more. Two files are used in turn: one takes commits while the
logs of the other are synced.

A log syncs its own files in the same commit instead if it has more than `log_bytes_max` to commit,
or a new segment, or if no file has space. So nothing waits for a checkpoint.

Truncation, compaction and whatever else changes published bytes enters `withdrawn`: the log is
synced, and an entry in the journal cancels its earlier entries; only then bytes
change. Removal of old segments needs none of that: a recovery creates no segment.

If a sync of the journal fails, what the disk has of it is unknown: the data directory goes offline
with all its logs, and the journal stays for the recovery. If a commit cannot be written, as on a
full disk that copies on write, its logs sync their own files.

Crash points:
  1. within the write of a commit, and between the write and the end of its sync: the commit is
     torn, or whole and not promised; the recovery applies a whole one.
  2. between the sync and the rise of the durable offsets: the next start finds more than was
     promised.
  3. in a checkpoint, before and after the sync of each log: the recovery finds the entries equal.
  4. between a checkpoint and the commit that records it: as 3.
  5. in `withdrawn`, before the void entry is on the disk: nothing has changed; after it: the log's
     own files have everything.
  6. in `create` and `remove`: files without commits, or with commits that were checkpointed.

Thread-safety: every method from any thread, under the journal's lock, which a commit holds from
the collection of bytes to the rise of the offsets. A thread that has a log's lock may wait for it;
a thread that has it waits for no log's lock. A checkpoint syncs without it.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Final, NamedTuple

from kafkalog._engine.commit_source import CommitSource, PendingCommit
from kafkalog._engine.delayed_records import DelayedRecords
from kafkalog._engine.delayed_send import DelayedSend
from kafkalog.errors import CorruptStateError, DiskFullError, KafkaLogError, LogOfflineError
from kafkalog.files.errors import translate
from kafkalog.files.filesystem import FileSystem
from kafkalog.log.log import Log, partition_of
from kafkalog.log.meters import SyncTimes
from kafkalog.pace import Pace, paced
from kafkalog.state.commit_journal import (
    ANCHOR_BYTES,
    CommitBuilder,
    JournalEntry,
    JournalFile,
    PartitionName,
    create_journal_file,
    journal_path,
    read_entry,
    read_journal,
    records_entries,
    remove_journal_files,
)
from kafkalog.state.kafka_uuid import ZERO_ID
from kafkalog.state.partition_metadata import read_partition_metadata

__all__ = ["CommitJournal", "JournalOptions", "SyncLogs"]

logger = logging.getLogger(__name__)

# Puts the own files of logs on the disk, with their delayed records; it raises nothing.
SyncLogs = Callable[[Sequence[Log]], object]

# Share of a file after which a checkpoint is requested, once.
_CHECKPOINT_SHARE: Final = 0.5
# Space at the end of a file for entries of withdrawn logs, which data must not use.
_RESERVED_BYTES: Final = 16 * 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOptions:
    """
    Settings of a journal, and calls of its manager.

    Attributes:
        takes_records: whether records are committed before their logs have them; needs
            `takes_commits`.
        takes_commits: whether logs are committed; if False, it only keeps the entries of
            partitions that could not be recovered.
        size_bytes: size of both files together.
        log_bytes_max: a log with more to commit syncs its own files.
        syncs: times of the syncs of commits.
        published_together: returns a context in which the durable offsets of a commit rise.
        record_group: called with the numbers of logs and calls of each commit of delayed records,
            and its time in ns.
        on_failure: called with the error after which the data directory must go offline.
        request_checkpoint: lets another thread call `checkpoint` soon.
    """

    takes_records: bool
    takes_commits: bool
    size_bytes: int
    log_bytes_max: int
    syncs: SyncTimes
    published_together: Callable[[], AbstractContextManager[None]]
    record_group: Callable[[int, int, int], object]
    on_failure: Callable[[BaseException], object]
    request_checkpoint: Callable[[], object]


class _Unsynced(NamedTuple):
    """
    A log whose own files may lack what commits have.

    Attributes:
        log: the log; None if it could not be recovered yet.
        first_sequence: its first commit.
        end_offset: end of the last one.
    """

    log: Log | None
    first_sequence: int
    end_offset: int


class _Member:
    """
    A log that was committed.

    Args:
        name: its partition.
        source: its bytes and durable offset.

    Attributes:
        directory_name: name of the partition directory.
        cycle, number: its number in the file with the numbers `cycle`.
    """

    __slots__ = ("cycle", "directory_name", "name", "number", "source")

    def __init__(self, name: PartitionName, source: CommitSource) -> None:
        self.name = name
        self.source = source
        self.directory_name = name.directory
        # Its number, in the cycle of a file with these numbers: the hash of a name is slow.
        self.cycle: dict[PartitionName, int] | None = None
        self.number = -1

    def number_in(self, file: JournalFile, builder: CommitBuilder) -> int:
        """Return the number of the partition; add its name to the commit if it has none."""
        number = builder.number(self.name)
        if number < len(file.numbers):
            # A new one counts once the commit is on the disk.
            self.cycle, self.number = file.numbers, number
        return number


class CommitJournal:
    """
    The commit journal of one data directory, as its writer.

    Args:
        filesystem: the disk.
        directory: the data directory; its lock is held.
        next_sequence: above that of every commit on the disk.
        number: number of the first file, above those of all others.
        options: see there.

    Thread-safety: see the module.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        next_sequence: int,
        number: int,
        options: JournalOptions,
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._options = options
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._is_closed = False
        self._next_sequence = next_sequence
        self._first_live = next_sequence
        # As the disk has it: entries of earlier commits are ignored by a recovery.
        self._recorded_first_live = next_sequence
        # Last commit with entries: later ones only record a checkpoint.
        self._last_with_entries = -1
        self._unsynced: dict[str, _Unsynced] = {}
        # By name of the partition directory: records that it may have.
        self._delayed: dict[str, DelayedRecords] = {}
        # Name, and sequence of the last commit with an entry, by the partition directory's name.
        self._last_entries: dict[str, tuple[PartitionName, int]] = {}
        # Logs that were committed; closed ones are dropped by a checkpoint.
        self._members: dict[Log, _Member] = {}
        self._next_number = number
        self._files: list[JournalFile] = []
        self._is_checkpoint_requested = False
        # A checkpoint was requested for the second half of the current file.
        self._is_share_reported = False
        self.commit_count = 0

    def __repr__(self) -> str:
        state = "failed" if self._error else "closed" if self._is_closed else "open"
        return f"<CommitJournal {state}, next commit {self._next_sequence}: {self._directory}>"

    @property
    def takes_records(self) -> bool:
        """True if records are committed before their logs have them."""
        return self._options.takes_records

    def published_together(self) -> AbstractContextManager[None]:
        """Return a context in which durable offsets rise; they are published at its end."""
        return self._options.published_together()

    @property
    def live_bytes(self) -> int:
        """Size of the files that take commits, or have commits that count."""
        return sum(each.size_bytes for each in self._files)

    def create(self, kept: Mapping[PartitionName, Sequence[JournalEntry]]) -> None:
        """
        Create the first file; it is on the disk when this returns.

        Args:
            kept: entries in files of an earlier journal, of partitions that are not recovered yet.
                The journal gets a copy of them.

        Raises:
            OSError: the disk refused.
        """
        with self._lock:
            builder = CommitBuilder({})
            for name, entries in kept.items():
                for entry in entries:
                    builder.add_copy(name, entry, _data_of(self._filesystem, entry))
                end_offset = max(entry.end_offset for entry in entries)
                sequence = self._next_sequence
                self._unsynced[name.directory] = _Unsynced(None, sequence, end_offset)
                self._last_entries[name.directory] = name, sequence
            has_records = any(map(records_entries, kept.values()))
            self._add_file(builder.size_bytes if kept else 0, has_records=has_records)
            if kept:
                self._current.append(builder, self._next_sequence, self._first_live)
                self._current.sync()
                self._accept(self._current, builder)

    # -------------------------------------------------------------------------------- committing

    def commit(self, logs: Collection[Log]) -> dict[Log, BaseException | None]:
        """
        Put the ends of logs on the disk; return the results of those that it was done for.

        The others have nothing to commit, or must sync their own files.
        """
        with self._lock:
            if not self._is_usable or not self._options.takes_commits:
                return {}
            pace = Pace()
            file, builder, pending = self._collect(logs, pace)
            if file is None:
                return {}
            try:
                file.append(builder, self._next_sequence, self._first_live)
            except OSError as error:
                return self._results_of_refusal(error, pending)
            number = self._options.syncs.begin()
            try:
                file.sync()
            except BaseException as error:  # noqa: BLE001 - every log of the commit gets it
                self._options.syncs.end(number, has_succeeded=False)
                return dict.fromkeys(pending, self._fail(error))
            self._options.syncs.end(number)
            self._accept(file, builder)
            return self._finish_all(pending)

    def commit_records(self, sends: Sequence[DelayedSend]) -> list[tuple[DelayedSend, int]] | None:
        """
        Put delayed records of logs of this directory on the disk.

        Records of a log that cannot be written any more get its error.

        Returns:
            the call and the place of records that their logs have already: they are to be
            committed with the logs. None, and nothing has changed, if there is no space.

        Raises:
            KafkaLogError: the sync failed, and the data directory goes offline.
        """
        started_ns = perf_counter_ns()
        with self._lock:
            if not self._is_usable:
                return None
            file = self._file_with_space(sum(each.size_bytes for each in sends))
            if file is None:
                return None
            builder = CommitBuilder(file.numbers)
            number_of = partial(self._number_of, builder)
            found, left = [], []
            for each in sends:
                places, appended, refused = each.places_in(self)
                for place in refused:
                    each.fail(place, _refusal_of(each.logs[place]))
                left += [(each, place) for place in appended]
                each.write_to(builder.table, places, file.numbers, number_of)
                found.append(places)
            if not builder.has_entries:
                return left
            try:
                self._put(file, builder)
            except DiskFullError as error:
                logger.warning("%s", error)
                return None
            with self._options.published_together():
                for each, places in zip(sends, found, strict=True):
                    each.record(places, self._next_sequence - 1)
        # Of several calls, a log that is in two of them counts twice.
        log_count = sum(map(len, found))
        self._options.record_group(log_count, len(sends), perf_counter_ns() - started_ns)
        return left

    def _number_of(self, builder: CommitBuilder, records: DelayedRecords) -> int:
        """Return the number of a partition in a commit that may have records of it."""
        self._delayed[records.name.directory] = records
        return builder.number(records.name)

    def _put(self, file: JournalFile, builder: CommitBuilder) -> None:
        """
        Write a commit, and sync it.

        Raises:
            DiskFullError: it was not written.
            KafkaLogError: the sync failed, or the write; the data directory goes offline.
        """
        try:
            file.append(builder, self._next_sequence, self._first_live)
        except OSError as error:
            full = translate(error, self._directory, doing="writing the commit journal of")
            if isinstance(full, DiskFullError):
                raise full from error
            raise self._fail(error) from error
        number = self._options.syncs.begin()
        try:
            file.sync()
        except BaseException as error:
            self._options.syncs.end(number, has_succeeded=False)
            failure = self._fail(error)
            if failure is error:
                raise
            raise failure from error
        self._options.syncs.end(number)
        self._accept(file, builder)

    def _collect(
        self, logs: Collection[Log], pace: Pace
    ) -> tuple[JournalFile | None, CommitBuilder, dict[Log, PendingCommit]]:
        """Return the commit of logs, and the file that has space for it; None for no commit."""
        found: dict[Log, PendingCommit] = {}
        size, bytes_max, members = 0, self._options.log_bytes_max, self._members
        # Inline code in these loops: a call for each of a thousand logs takes a millisecond.
        for each in paced(logs, pace):
            member = members.get(each)
            if member is None:
                try:
                    member = self._add_member(each)
                except (OSError, ValueError, KafkaLogError):
                    # Its own sync makes it durable.
                    continue
            pending = member.source.begin(bytes_max)
            if pending is not None and pending.end > pending.position:
                found[each] = pending
                size += pending.end - pending.position
        # Names and entries are small; a commit that is larger than expected is not written.
        file = self._file_with_space(size) if found else None
        builder = CommitBuilder({} if file is None else file.numbers)
        if file is None:
            return None, builder, found
        entries, sequence, failed = self._last_entries, self._next_sequence, []
        for each, pending in paced(found.items(), pace):
            log = members[each]
            # Before the write: a commit whose write fails may be on the disk.
            entries[log.directory_name] = log.name, sequence
            try:
                number = log.number
                if log.cycle is not file.numbers:
                    number = log.number_in(file, builder)
                if not builder.table.read_data(number, pending):
                    _add_read(builder, log.name, pending)
            except (OSError, ValueError, KafkaLogError):
                # Its own sync reports what is wrong with the file.
                failed.append(each)
        for each in failed:
            del found[each]
        if not found or builder.size_bytes > file.free_bytes - _RESERVED_BYTES:
            self._request_checkpoint()
            return None, builder, found
        return file, builder, found

    def _finish_all(self, pending: Mapping[Log, PendingCommit]) -> dict[Log, BaseException | None]:
        """Raise the durable offsets of logs after a commit; return their errors."""
        results: dict[Log, BaseException | None] = {}
        sequence, members, unsynced = self._next_sequence - 1, self._members, self._unsynced
        with self._options.published_together():
            for log, each in paced(pending.items(), Pace()):
                name = members[log].directory_name
                before = unsynced.get(name)
                first = sequence if before is None else before.first_sequence
                unsynced[name] = _Unsynced(log, first, each.end_offset)
                try:
                    each.source.finish(each)
                except LogOfflineError as error:
                    results[log] = error
                else:
                    results[log] = None
        return results

    def _add_member(self, log: Log) -> _Member:
        topic_id = read_partition_metadata(self._filesystem, log.directory)
        name = PartitionName(log.directory.name, topic_id or ZERO_ID)
        made = self._members[log] = _Member(name, partition_of(log).flusher.source)
        return made

    def _accept(self, file: JournalFile, builder: CommitBuilder) -> None:
        """Take note of a commit that is on the disk."""
        file.accept(builder, self._next_sequence)
        if builder.has_entries:
            self._last_with_entries = self._next_sequence
        self._next_sequence += 1
        self._recorded_first_live = self._first_live
        self.commit_count += 1
        share = 1 - file.free_bytes / file.size_bytes
        if share > _CHECKPOINT_SHARE and not self._is_share_reported:
            self._is_share_reported = True
            self._request_checkpoint()

    def _results_of_refusal(
        self, error: OSError, pending: Mapping[Log, PendingCommit]
    ) -> dict[Log, BaseException | None]:
        """Return the results after a commit could not be written: none, if the logs may sync."""
        failure = translate(error, self._directory, doing="writing the commit journal of")
        if isinstance(failure, DiskFullError):
            logger.warning("%s", failure)
            return {}
        return dict.fromkeys(pending, self._fail(error))

    def _fail(self, error: BaseException) -> BaseException:
        """Let every log of the journal refuse writes; return the error for callers."""
        failure = error
        if isinstance(error, OSError):
            failure = translate(error, self._directory, doing="syncing the commit journal of")
        self._error = failure
        for each in self._unsynced.values():
            if each.log is not None:
                partition_of(each.log).flusher.refuse(failure)
        for records in self._delayed.values():
            partition_of(records.log).flusher.refuse(failure)
        self._options.on_failure(failure)
        return failure

    # ------------------------------------------------------------------------------- withdrawing

    @contextmanager
    def withdrawn(self, directory_name: str, sync: Callable[[], object]) -> Iterator[None]:
        """
        Let the journal have no bytes of a partition, and get none, for a change of them.

        Args:
            directory_name: name of the partition directory.
            sync: puts its own files on the disk.

        Raises:
            LogStorageError, LogOfflineError: on entering; the disk refused.
        """
        with self._lock:
            name, sequence = self._last_entry(directory_name)
            if name is not None and sequence >= self._recorded_first_live:
                sync()
                self._void(name)
            yield

    def _last_entry(self, directory_name: str) -> tuple[PartitionName | None, int]:
        """Return the name of a partition, and the last commit that has something of it."""
        name, sequence = self._last_entries.get(directory_name, (None, -1))
        records = self._delayed.get(directory_name)
        if records is not None and records.last_sequence > sequence:
            return records.name, records.last_sequence
        return name, sequence

    def _void(self, name: PartitionName) -> None:
        if self._error is not None or self._is_closed:
            raise LogOfflineError(
                f"{self._directory}: no entries in its commit journal: {self._error or 'closed'}",
                path=self._directory,
            )
        file = self._current
        builder = CommitBuilder(file.numbers)
        builder.add_void(name)
        if builder.size_bytes > file.free_bytes:
            spare = self._take_spare()
            if spare is None:
                raise LogOfflineError(
                    f"{self._directory}: its commit journal is full until a checkpoint ends",
                    path=self._directory,
                )
            file, builder = spare, CommitBuilder(spare.numbers)
            builder.add_void(name)
        try:
            file.append(builder, self._next_sequence, self._first_live)
            file.sync()
        except BaseException as error:
            failure = self._fail(error)
            if failure is error:
                raise
            raise failure from error
        self._accept(file, builder)
        self._last_entries.pop(name.directory, None)
        self._unsynced.pop(name.directory, None)
        if name.directory in self._delayed:
            self._delayed[name.directory].forget()

    # -------------------------------------------------------------------------------- checkpoints

    def checkpoint(self, sync_logs: SyncLogs) -> None:
        """
        Sync the own files of the logs of all commits, so that the commits are not needed.

        A log whose sync fails is offline; its commits stay until it was recovered.

        Args:
            sync_logs: syncs logs; those that fail go offline.
        """
        with self._lock:
            self._is_checkpoint_requested = False
            if not self._is_usable:
                return
            last = self._next_sequence - 1
            logs, delayed = dict(self._unsynced), self._recorded()
        found = [each.log for each in logs.values() if each.log is not None]
        sync_logs(list(dict.fromkeys([*found, *(records.log for records in delayed)])))
        with self._lock:
            self._drop_synced(last, logs, delayed)
            if not self._is_usable:
                return
            if self._has_entries_to_cancel:
                self._record_first_live()
            if len(self._files) == 1 and self._current.free_bytes < self._current.size_bytes // 2:
                self._try_add_file()

    def settle(self, directory_name: str) -> None:
        """Take note that a partition was recovered: its own files have all of it."""
        with self._lock:
            self._unsynced.pop(directory_name, None)
            # Its entries are in the file: a truncation must cancel them, also of another opening.
            name, sequence = self._last_entry(directory_name)
            if name is not None:
                self._last_entries[directory_name] = name, sequence
            self._delayed.pop(directory_name, None)

    def _recorded(self) -> dict[DelayedRecords, int]:
        """Return the ends of the records that the journal has and the logs' own files may lack."""
        return {
            each: each.recorded_offset
            for each in self._delayed.values()
            if each.first_sequence >= 0
        }

    def entries_of(self, directory_name: str) -> list[tuple[PartitionName, list[JournalEntry]]]:
        """
        Return the entries of a partition that a recovery in this process needs.

        Raises:
            OSError: the journal cannot be read.
            CorruptStateError: the disk returns other bytes than were written: without the commits
                in them the log would lack what was acknowledged.
        """
        with self._lock:
            if directory_name not in self._unsynced and directory_name not in self._delayed:
                return []
            content = read_journal(self._filesystem, [each.path for each in self._files])
            last_sequence = max(each.last_sequence for each in self._files)
        if content.damage or content.last_sequence < last_sequence:
            damage = "; ".join(content.damage) or f"its last commit, {last_sequence}, is damaged"
            raise CorruptStateError(
                f"{self._directory}: the commit journal cannot be applied to {directory_name}:"
                f" {damage}",
                path=self._files[0].path,
            )
        return content.entries_of(directory_name)

    def _drop_synced(
        self, last: int, logs: Mapping[str, _Unsynced], delayed: Mapping[DelayedRecords, int]
    ) -> None:
        """Forget the logs whose own files have what commits up to `last` have."""
        for records, end_offset in delayed.items():
            if partition_of(records.log).flusher.synced_offset >= end_offset:
                is_all = records.recorded_offset == end_offset
                records.forget() if is_all else records.forget(last + 1)
        for name, each in logs.items():
            now = self._unsynced.get(name)
            if now is None or not _is_synced(each):
                continue
            if now is each:
                del self._unsynced[name]
            else:
                self._unsynced[name] = now._replace(first_sequence=last + 1)
        self._members = {log: each for log, each in self._members.items() if not log.is_closed}
        firsts = [each.first_sequence for each in self._unsynced.values()]
        firsts += [
            each.first_sequence for each in self._delayed.values() if each.first_sequence >= 0
        ]
        self._first_live = min(firsts, default=last + 1)
        self._last_entries = {
            name: entry
            for name, entry in self._last_entries.items()
            if entry[1] >= self._recorded_first_live
        }

    @property
    def _has_entries_to_cancel(self) -> bool:
        """True if a recovery would read entries that the logs' own files have."""
        return self._recorded_first_live <= min(self._first_live - 1, self._last_with_entries)

    def _record_first_live(self) -> None:
        """Write an empty commit, after which a file without live commits may be used again."""
        file = self._current
        builder = CommitBuilder(file.numbers)
        if builder.size_bytes > file.free_bytes:
            return
        try:
            file.append(builder, self._next_sequence, self._first_live)
            file.sync()
        except OSError as error:
            self._fail(error)
            return
        self._accept(file, builder)

    # -------------------------------------------------------------------------------------- files

    @property
    def _is_usable(self) -> bool:
        return self._error is None and not self._is_closed and bool(self._files)

    @property
    def _current(self) -> JournalFile:
        return self._files[0]

    def _file_with_space(self, size: int) -> JournalFile | None:
        """Return the file for a commit with so many bytes of data; None if none has space."""
        if size <= self._current.free_bytes - _RESERVED_BYTES:
            return self._current
        spare = self._take_spare()
        if spare is not None and size <= spare.free_bytes - _RESERVED_BYTES:
            return spare
        self._request_checkpoint()
        return None

    def _take_spare(self) -> JournalFile | None:
        """Let the other file take the next commits, if none of its commits count."""
        if len(self._files) < 2 or self._files[1].last_sequence >= self._recorded_first_live:
            return None
        self._files.reverse()
        self._current.rewind()
        self._is_share_reported = False
        return self._current

    def _add_file(self, more_bytes: int = 0, *, has_records: bool = False) -> None:
        path = journal_path(self._directory, self._next_number)
        size = (self._options.size_bytes // 2 + more_bytes) // 4096 * 4096
        takes_records = self._options.takes_records or has_records
        made = create_journal_file(self._filesystem, path, size, takes_records=takes_records)
        self._files.append(made)
        self._next_number += 1

    def _try_add_file(self) -> None:
        try:
            self._add_file()
        except OSError as error:
            logger.warning("%s: no second file of its commit journal: %s", self._directory, error)

    def _request_checkpoint(self) -> None:
        if not self._is_checkpoint_requested:
            self._is_checkpoint_requested = True
            self._options.request_checkpoint()

    # ---------------------------------------------------------------------------------------- end

    def close(self) -> None:
        """Take no more commits; the files stay. Idempotent; does nothing in a forked child."""
        if self._process != os.getpid():
            # A thread of the parent may have had the lock at the fork.
            return
        with self._lock:
            self._is_closed = True
            for each in self._files:
                each.close()

    def remove(self) -> None:
        """
        Remove the files of a closed journal: the logs were closed in order. On the disk then.

        Raises:
            OSError: the disk refused.
        """
        if self._files:
            remove_journal_files(self._filesystem, [each.path for each in self._files])
            self._filesystem.sync_directory(self._directory)

    @property
    def needs_recovery(self) -> bool:
        """True if the own files of a log may lack what a commit has."""
        with self._lock:
            self._drop_synced(self._next_sequence - 1, dict(self._unsynced), self._recorded())
            return bool(self._unsynced or self._recorded()) or self._error is not None


def _add_read(builder: CommitBuilder, name: PartitionName, pending: PendingCommit) -> None:
    """Add bytes of a file that has no descriptor."""
    anchor = min(ANCHOR_BYTES, pending.position)
    start = pending.position - anchor
    data = pending.file.read(start, pending.end - start)
    if len(data) != pending.end - start:
        raise ValueError(f"{pending.file.path} ends before {pending.end}")
    builder.add_data(
        name,
        pending.base_offset,
        pending.position,
        (min(pending.start_offset, pending.end_offset), pending.end_offset),
        data[:anchor],
        data[anchor:],
    )


def _data_of(filesystem: FileSystem, entry: JournalEntry) -> bytes:
    """Return the bytes of an entry of an earlier journal; OSError if the disk has others now."""
    handle = filesystem.open(entry.path)
    try:
        data = read_entry(handle, entry)
    finally:
        handle.close()
    if data is None:
        raise OSError(errno.EIO, "the disk returns other bytes than before", str(entry.path))
    return data


def _is_synced(unsynced: _Unsynced) -> bool:
    """Return whether the own files of a log have what its commits have."""
    log = unsynced.log
    return log is not None and partition_of(log).flusher.synced_offset >= unsynced.end_offset


def _refusal_of(records: DelayedRecords) -> KafkaLogError:
    """Return why the log of records cannot be written."""
    log: Log = records.log
    try:
        partition_of(log).gate.ensure_owner()
    except KafkaLogError as error:
        return error
    return LogOfflineError(f"{log.directory} cannot be written", path=log.directory)
