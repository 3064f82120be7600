"""Group commit over many logs: one round of syncs covers all callers that wait for it.

A log commits for its own callers (`kafkalog.log.committer`). Here logs of one data directory are
committed together: a thread of the directory takes all requests that are there, and syncs their
logs side by side; requests that come during a round are the next one's. A file system merges syncs
that are in flight together into one commit of its journal, so a round of 100 logs takes a fraction
of 100 syncs one after another. A round of many logs may be one sync of the file system instead
(`kafkalog.manager.filesystem_commit`), or one append to the commit journal of the directory and its
sync (`kafkalog.manager.commit_journal`).

A log is synced up to its end at that moment. Each failure concerns one log, which goes offline; the
failure of a sync of the file system concerns all logs of the round.

Crash points: those of `LocalLog.sync`, of several logs in any order, and those of a sync of the
file system. A round is no transaction: after a crash in it some of its logs are durable, and no
caller was notified.

Thread-safety: every method from any thread. A caller shares nothing but a queue with the threads,
so that an exception in it, as of Ctrl-C, leaves nothing half done. No lock of a log is taken under
the lock of a committer.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter_ns
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from kafkalog.commit_threads import can_lead
from kafkalog.errors import CorruptStateError, KafkaLogError, LogStorageError
from kafkalog.files.filesystem import FileSystem, FilesystemSync
from kafkalog.log.log import Log, partition_of
from kafkalog.log.meters import DiskMeters
from kafkalog.manager.background import started_thread, taken_from
from kafkalog.manager.commit_journal import CommitJournal, JournalOptions
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.directory_journal import DirectoryJournal
from kafkalog.manager.filesystem_commit import FilesystemCommit, end_of, error_of
from kafkalog.manager.supervision import Supervisor
from kafkalog.manager_config import ManagerConfig
from kafkalog.pace import Pace

__all__ = ["CommitRequest", "DirectoryCommitters", "GroupCommitter", "SideBySide"]

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

# Time after which a thread without work ends; the next commit starts another.
IDLE_SECONDS: Final = 5.0
CHECKPOINT_THREADS: Final = 4
# Name of the fault of a commit journal that could not be applied.
JOURNAL: Final = "commit-journal"
# Name of the task that syncs the logs of a commit journal.
JOURNAL_CHECKPOINT: Final = "journal-checkpoint"


class SideBySide:
    """
    Runs one function for several items at the same time, in the calling thread and in others.

    Args:
        thread_count: largest number of threads, with the calling one.

    Thread-safety: one thread at a time calls `run`.
    """

    def __init__(self, thread_count: int) -> None:
        self._thread_count = thread_count
        self._lock = threading.Lock()
        self._helpers: set[threading.Thread] = set()
        # An item of None ends the thread that gets it.
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    def run(self, function: Callable[[Item], object], items: Sequence[Item]) -> None:
        """Call a function, which must not raise, for each item; return when all have ended."""
        left = deque(items)
        ended: SimpleQueue[None] = SimpleQueue()

        def drain() -> None:
            # If syncs take no time, as in memory, several threads would keep a loop waiting.
            pace = Pace()
            for item in taken_from(left):
                function(item)
                ended.put(None)
                pace.step()

        self._offer(drain, min(self._thread_count, len(items)) - 1)
        drain()
        for _ in items:
            ended.get()

    def close(self) -> None:
        """End the threads, after the last `run`. Idempotent."""
        with self._lock:
            helpers, self._helpers = self._helpers, set()
            for _ in helpers:
                self._tasks.put(None)
        for helper in helpers:
            helper.join()

    def _offer(self, task: Callable[[], object], count: int) -> None:
        """Let so many other threads run a task, fewer where the system starts no more threads."""
        with self._lock:
            while len(self._helpers) < count:
                helper = started_thread("kafkalog-sync", self._work)
                if helper is None:
                    break
                self._helpers.add(helper)
            for _ in range(min(count, len(self._helpers))):
                self._tasks.put(task)

    def _work(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._tasks.empty():
                        self._helpers.discard(threading.current_thread())
                        return
            else:
                if task is None:
                    return
                task()


class CommitRequest:
    """
    Logs of one caller, and the results.

    Args:
        logs: what is to be committed.
    """

    def __init__(self, logs: Collection[Log]) -> None:
        self.logs = logs
        self._results: Mapping[Log, BaseException | None] = {}
        # Released when the results are there. A lock: an exception in `wait` leaves nothing held.
        self._pending = threading.Lock()
        self._pending.acquire()

    def finish(self, results: Mapping[Log, BaseException | None]) -> None:
        """Set the results, and let the caller continue."""
        self._results = results
        self._pending.release()

    def wait(self) -> dict[Log, KafkaLogError]:
        """Wait for the results; return the logs that failed, or raise an unexpected error."""
        with self._pending:
            failures = {}
            for log in self.logs:
                error = self._results[log]
                if isinstance(error, KafkaLogError):
                    failures[log] = error
                elif error is not None:
                    raise error
            return failures


def sync_own_files(log: Log) -> None:
    """Sync the own files of a log; an error takes it offline and is reported there."""
    flusher = partition_of(log).flusher
    if flusher.synced_offset < end_of(log):
        try:
            log.flush()
        except Exception as error:  # noqa: BLE001 - its commits stay
            logger.info("%s is not synced: %s", log.directory, error)


def append_delayed(log: Log) -> None:
    """Append the delayed records of a log; of an error they stay in the commit journal."""
    try:
        partition_of(log).delayed.append_due()
    except KafkaLogError as error:
        logger.info("%s does not get its delayed records: %s", log.directory, error)


def sync_log(log: Log) -> BaseException | None:
    """Put a log on the disk, unless it is; return the error of that."""
    # Of a closed log, too: its close has synced it, unless the disk refused.
    end_offset = end_of(log)
    return None if log.durable_offset >= end_offset else error_of(log, end_offset, log.flush)


class GroupCommitter:
    """
    Commits logs of one data directory together.

    Args:
        thread_count: largest number of syncs at the same time. 1: one after another, in the thread
            of each caller.
        journal: the commit journal of the directory; None without one.
        meters: get the sizes of the groups; new ones if None.

    Thread-safety: see the module.
    """

    def __init__(
        self,
        thread_count: int,
        journal: DirectoryJournal | None = None,
        meters: DiskMeters | None = None,
    ) -> None:
        self._journal = journal
        self.meters = DiskMeters() if meters is None else meters
        self._threads = SideBySide(thread_count)
        # A checkpoint of the journal is no hurry: it leaves the disk to commits.
        self._checkpoint_threads = SideBySide(min(thread_count, CHECKPOINT_THREADS))
        self._checkpoint_lock = threading.Lock()
        self._filesystem_commit = FilesystemCommit(self._threads.run)
        # Of the files themselves: for commits the bytes in the journal count, too.
        self._filesystem_checkpoint = FilesystemCommit(
            self._checkpoint_threads.run, lambda log: partition_of(log).flusher.synced_offset
        )
        self._has_threads = thread_count > 1
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        # An item of None wakes the thread.
        self._requests: SimpleQueue[CommitRequest | None] = SimpleQueue()
        # Held by the thread that has a round; outermost, no other lock is held when it is taken.
        self._round_lock = threading.Lock()

    @property
    def journal(self) -> CommitJournal | None:
        """The commit journal that takes commits; None without one."""
        return None if self._journal is None else self._journal.writer

    def use_filesystem_sync(
        self,
        filesystem_sync: FilesystemSync,
        logs_min: int,
        *,
        of_checkpoints: FilesystemSync | None = None,
    ) -> None:
        """
        Commit that many logs by one sync of their file system; closed with this object.

        To be called before the first append to a log of the directory.

        Args:
            filesystem_sync: the sync.
            logs_min: number of logs.
            of_checkpoints: another one, for the checkpoints of the commit journal; None for none.
        """
        self._filesystem_commit.use(filesystem_sync, logs_min)
        if of_checkpoints is not None:
            self._filesystem_checkpoint.use(of_checkpoints, logs_min)

    def commit(self, logs: Collection[Log]) -> dict[Log, KafkaLogError]:
        """
        Put everything that was appended to logs before the call on the disk.

        Returns:
            the logs that failed, with their errors.
        """
        return self.request(logs).wait()

    def lead(self, logs: Collection[Log]) -> CommitRequest | None:
        """
        Commit logs, and what others have requested, in the calling thread (`can_lead`).

        None if a round runs, or the committer is closed: see `request`.
        """
        if not self._has_threads or not self._round_lock.acquire(blocking=False):
            return None
        try:
            if self._is_closed:
                return None
            made = CommitRequest(logs)
            self._run_round([made, *self._waiting_requests()])
            return made
        finally:
            self._round_lock.release()

    def request(self, logs: Collection[Log]) -> CommitRequest:
        """Begin a commit; its `wait` returns the result."""
        made = CommitRequest(logs)
        with self._lock:
            has_thread = self._ensure_thread()
            if has_thread:
                self._requests.put(made)
        if not has_thread:
            self._record_group(len(logs), 1)
            results = self._commit_to_journal(logs)
            made.finish(results | {log: sync_log(log) for log in logs if log not in results})
        return made

    def checkpoint(self) -> None:
        """Sync the own files of the logs that the commit journal has bytes of."""
        with self._checkpoint_lock:
            if self._journal is not None:
                self._journal.checkpoint(self._sync_own_files)

    def _sync_own_files(self, logs: Sequence[Log]) -> None:
        """Put the own files of logs on the disk; one thread at a time."""
        self._checkpoint_threads.run(append_delayed, logs)
        together = self._filesystem_checkpoint.select(logs)
        self._filesystem_checkpoint.commit(together)
        done = set(together)
        self._checkpoint_threads.run(sync_own_files, [log for log in logs if log not in done])

    def close(self) -> None:
        """
        Serve what was requested, and end the threads. Idempotent.

        Later commits sync one log after another, in the threads of their callers.
        """
        with self._lock:
            self._is_closed = True
            thread = self._thread
            if thread is not None:
                self._requests.put(None)
        if thread is not None:
            thread.join()
        # Not before: one thread at a time uses them. Idle ones end by themselves.
        with self._round_lock:
            self._threads.close()
            self._filesystem_commit.close()
        with self._checkpoint_lock:
            self._checkpoint_threads.close()
            self._filesystem_checkpoint.close()

    def _ensure_thread(self) -> bool:
        """Return whether the thread runs; it is started if it may be. The lock is held."""
        if self._is_closed or not self._has_threads:
            return False
        if self._thread is None:
            self._thread = started_thread("kafkalog-commit", self._run_rounds)
        return self._thread is not None

    def _run_rounds(self) -> None:
        while requests := self._wait_for_requests():
            with self._round_lock:
                # Others came while another thread had a round.
                self._run_round([*requests, *self._waiting_requests()])

    def _waiting_requests(self) -> list[CommitRequest]:
        """Return the requests that are there, but for the end of the thread."""
        found = []
        with suppress(Empty):
            while (made := self._requests.get_nowait()) is not None:
                found.append(made)
            # It wakes the thread, which ends after the requests before it.
            self._requests.put(None)
        return found

    def _wait_for_requests(self) -> list[CommitRequest]:
        """Return all requests that are there; none if the thread must end."""
        while True:
            try:
                found = [self._requests.get(timeout=0 if self._is_closed else IDLE_SECONDS)]
            except Empty:
                with self._lock:
                    if self._requests.empty():
                        self._thread = None
                        return []
                continue
            with suppress(Empty):
                # Without a wait: a thread that leads a round may take those that are there.
                while True:
                    found.append(self._requests.get_nowait())
            if requests := [each for each in found if each is not None]:
                return requests

    def _commit_to_journal(self, logs: Collection[Log]) -> dict[Log, BaseException | None]:
        """Commit what the journal takes; return the results of these logs."""
        return {} if self._journal is None else self._journal.commit(logs)

    def _run_round(self, requests: Sequence[CommitRequest]) -> None:
        logs = dict.fromkeys(log for request in requests for log in request.logs)
        self._record_group(len(logs), len(requests))
        results = self._commit_to_journal(logs)
        left = [log for log in logs if log not in results]
        results |= self._filesystem_commit.commit(self._filesystem_commit.select(left))

        def sync(log: Log) -> None:
            results[log] = sync_log(log)

        self._threads.run(sync, [log for log in logs if log not in results])
        for request in requests:
            request.finish(results)

    def record_delayed(self, log_count: int, request_count: int, elapsed_ns: int) -> None:
        """Record a commit of delayed records, and its time in ns."""
        self._record_group(log_count, request_count)
        self.meters.commit.observe(elapsed_ns)

    def _record_group(self, log_count: int, request_count: int) -> None:
        self.meters.commit_logs.observe(log_count)
        self.meters.commit_requests.observe(request_count)


def _journal_options(
    directory: DataDirectory,
    config: ManagerConfig,
    supervisor: Supervisor,
    on_failure: Callable[[BaseException], object],
    committer: GroupCommitter,
) -> JournalOptions:
    return JournalOptions(
        takes_commits=config.journal_enable,
        takes_records=config.journal_enable and config.journal_linger_ms > 0,
        size_bytes=config.journal_bytes,
        log_bytes_max=config.journal_log_max_bytes,
        syncs=committer.meters.syncs,
        record_group=committer.record_delayed,
        published_together=directory.durable_offsets.published_together,
        on_failure=on_failure,
        request_checkpoint=lambda: supervisor.once(JOURNAL_CHECKPOINT, committer.checkpoint, 0),
    )


class DirectoryCommitters:
    """
    The group committers of all data directories of a manager.

    Args:
        directories: the data directories.
        meters: those of their disks, by path.
        thread_count: largest number of syncs of one directory at the same time.

    Thread-safety: every method from any thread.
    """

    def __init__(
        self,
        directories: Iterable[DataDirectory],
        meters: Mapping[Path, DiskMeters],
        thread_count: int,
    ) -> None:
        self._has_threads = thread_count > 1
        self._committers = {
            each.path: GroupCommitter(thread_count, each.journal, meters[each.path])
            for each in directories
        }
        # As long as a log exists: to find it by its path takes longer than its entry in a commit.
        self._by_log: WeakKeyDictionary[Log, GroupCommitter] = WeakKeyDictionary()
        self._by_name = {str(path): committer for path, committer in self._committers.items()}

    def use_filesystem_syncs(self, filesystem: FileSystem, logs_min: int) -> None:
        """
        Commit that many logs of a directory by one sync of its file system, where that can be.

        To be called before the first append.

        Args:
            filesystem: the disk of the directories.
            logs_min: number of logs that are not durable; 0 for never.
        """
        if not logs_min or not self._has_threads:
            return
        for path, committer in self._committers.items():
            try:
                of_checkpoints = filesystem.open_filesystem_sync(path)
                filesystem_sync = filesystem.open_filesystem_sync(path)
            except OSError as error:
                logger.info("%s: its logs are synced one by one: %s", path, error)
                continue
            if filesystem_sync is not None:
                committer.use_filesystem_sync(
                    filesystem_sync, logs_min, of_checkpoints=of_checkpoints
                )

    def begin_journals(
        self,
        directories: Iterable[DataDirectory],
        config: ManagerConfig,
        supervisor: Supervisor,
        on_failure: Callable[[DataDirectory, BaseException], object],
    ) -> None:
        """
        Begin the commit journals of directories whose logs were recovered.

        Args:
            directories: those that are offline are left out.
            config: has the settings of a journal.
            supervisor: runs the checkpoints, and has the faults.
            on_failure: takes a directory offline.
        """
        for directory in directories:
            if directory.is_online:
                fail = partial(on_failure, directory)
                committer = self._committers[directory.path]
                options = _journal_options(directory, config, supervisor, fail, committer)
                try:
                    directory.journal.begin(directory.inventory.partitions, options)
                except LogStorageError as error:
                    on_failure(directory, error)
            for name, reason in directory.journal.refusals.items():
                refusal = CorruptStateError(reason, path=directory.path)
                supervisor.faults.record_failure(JOURNAL, directory.path / name, refusal)

    def start_checkpoints(self, supervisor: Supervisor, config: ManagerConfig) -> None:
        """Sync the logs of all commit journals from time to time, if there are any."""
        if not config.journal_enable:
            return
        period_ms = config.journal_checkpoint_interval_ms
        supervisor.every(
            JOURNAL_CHECKPOINT,
            period_ms,
            lambda: list(self._committers),
            lambda path: self._committers[path].checkpoint(),
            delay_ms=period_ms,
        )

    def journal_of(self, log: Log) -> CommitJournal | None:
        """
        Return the commit journal of the data directory of a log; None without one.

        Raises:
            ValueError: as `commit`.
        """
        return (self._by_log.get(log) or self._committer_of(log)).journal

    def commit(self, logs: Iterable[Log]) -> dict[Log, KafkaLogError]:
        """
        Put logs on the disk, those of a directory together; return those that failed.

        Raises:
            ValueError: a log is in no data directory of the manager.
        """
        found: defaultdict[GroupCommitter, list[Log]] = defaultdict(list)
        pace = Pace()
        for log in logs:
            committer = self._by_log.get(log) or self._committer_of(log)
            found[committer].append(log)
            pace.step()
        started_ns = perf_counter_ns()
        # Several directories are committed at the same time.
        leads = len(found) == 1 and can_lead()
        requests = [
            (committer, (leads and committer.lead(own)) or committer.request(own))
            for committer, own in found.items()
        ]
        failures: dict[Log, KafkaLogError] = {}
        for committer, request in requests:
            failures |= request.wait()
            committer.meters.commit.observe(perf_counter_ns() - started_ns)
        return failures

    def _committer_of(self, log: Log) -> GroupCommitter:
        committer = self._by_name.get(os.path.dirname(log.directory))  # noqa: PTH120 - three times
        if committer is None:
            where = log.directory
            raise ValueError(f"log must be in a directory of the manager, got {where}")
        self._by_log[log] = committer
        return committer

    def close(self) -> None:
        """Serve what was requested, and end all threads. Idempotent."""
        for each in self._committers.values():
            each.close()
