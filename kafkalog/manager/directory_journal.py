"""The commit journal of one data directory, from its recovery to its removal.

Order of a start after a stop that was not in order: the files of the last journal are read; before
a log is opened for its recovery, its entries of bytes are applied; when it was recovered, those of
records; after all logs were recovered, a new journal is created, with a copy of the entries of
those that could not be, and the old files are removed.

If the directory was closed in order, there is no journal. If the marker of a clean shutdown is
there with one, another program has used the directory since, or it was not written to: the
journal is older than the files, and is not applied. If a log lacks a part of it, the journal is
kept as `.unapplied`, with a fault. So are files with entries that could not be applied.

Crash points: those of `journal_recovery` and `records_recovery` for each log; then between the new
file, with its copies, and the removal of the old ones: the next start reads both, and finds all
other entries applied.

Thread-safety: `recover` and `settle` from any thread, one at a time for a partition; `commit` and
`withdrawn` from any thread; the rest by the holder of the manager's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kafkalog.clock import SystemClock
from kafkalog.config import LogConfig
from kafkalog.errors import KafkaLogError, LogOfflineError
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import COMMIT_JOURNAL
from kafkalog.log.checkpoint_store import FileCheckpointStore
from kafkalog.log.log import Log
from kafkalog.log.opening import open_partition
from kafkalog.log.partition import LogEnvironment
from kafkalog.log.partition_paths import find_partition_paths
from kafkalog.manager.commit_journal import CommitJournal, JournalOptions, SyncLogs
from kafkalog.manager.journal_recovery import apply_entries
from kafkalog.manager.records_recovery import append_records, cut_damage
from kafkalog.state.commit_journal import (
    UNAPPLIED,
    JournalContent,
    JournalEntry,
    PartitionName,
    data_entries,
    journal_number,
    journal_path,
    read_journal,
    records_entries,
    remove_journal_files,
)
from kafkalog.state.kafka_uuid import ZERO_ID
from kafkalog.state.partition_metadata import read_partition_metadata

__all__ = ["DirectoryJournal"]

logger = logging.getLogger(__name__)


class DirectoryJournal:
    """
    The commit journal of one data directory.

    Args:
        filesystem: the disk.
        directory: the data directory.

    Attributes:
        writer: takes commits; None before `begin`, and where there is none.
        refusals: why entries were not applied, by the name of the partition directory, or "" for
            the journal itself.

    Thread-safety: see the module.
    """

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._paths: list[Path] = []
        self._content = JournalContent()
        self.writer: CommitJournal | None = None
        self.refusals: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<DirectoryJournal {self.writer or 'without a writer'}: {self._directory}>"

    # --------------------------------------------------------------------------------- a recovery

    def load(self, names: Sequence[str], *, was_closed_in_order: bool) -> None:
        """
        Read the journal that the last owner of the directory has left.

        Args:
            names: the files in the directory.
            was_closed_in_order: whether the marker of a clean shutdown is there.

        Raises:
            LogStorageError, CorruptStateError: a file cannot be read; nothing was changed.
        """
        self.writer, self.refusals = None, {}
        self._paths, self._content = [], JournalContent()
        with storage_errors(self._directory, doing="reading the commit journal of"):
            for name in names:
                if name.startswith(COMMIT_JOURNAL) and name.endswith(".tmp"):
                    remove_journal_files(self._filesystem, [self._directory / name])
            numbers = sorted(n for name in names if (n := journal_number(name)) is not None)
            self._paths = [journal_path(self._directory, number) for number in numbers]
            if not self._paths:
                return
            self._content = read_journal(self._filesystem, self._paths)
            if was_closed_in_order:
                self._compare()
                self._retire_files()
                return
        for damage in self._content.damage:
            self._refuse("", damage)

    def _compare(self) -> None:
        """Refuse the journal if the logs of a directory that was closed since lack some of it."""
        reason = "another program has closed the directory in order since they were written"
        for name, entries in self._content.entries.items():
            path = self._directory / name.directory
            if self._filesystem.stat(path) is None:
                continue
            if (read_partition_metadata(self._filesystem, path) or ZERO_ID) != name.topic_id:
                continue
            refusal = apply_entries(
                self._filesystem, path, data_entries(entries), refusal=reason
            ).refusal
            refusal = refusal or self._compare_records(path, entries, reason)
            if refusal:
                self._refuse(name.directory, refusal)

    def _compare_records(self, path: Path, entries: Sequence[JournalEntry], reason: str) -> str:
        """Return why the records of a journal are not in a log; empty if they are."""
        found = records_entries(entries)
        if not found:
            return ""
        store = FileCheckpointStore(find_partition_paths(self._filesystem, path))
        environment = LogEnvironment(clock=SystemClock())
        try:
            log = Log(open_partition(store, LogConfig(), environment, read_only=True))
        except KafkaLogError as error:
            return f"{path}: {error}"
        try:
            return append_records(self._filesystem, log, found, refusal=reason)
        finally:
            log.close()

    def recover(self, directory_name: str) -> None:
        """
        Write what the segments of a partition lack, before its log is opened.

        Raises:
            LogStorageError, CorruptStateError: the disk refused; the next call repeats it.
        """
        path = self._directory / directory_name
        with storage_errors(path, doing="applying the commit journal to"):
            found = self._entries_of(directory_name)
            if not found:
                return
            topic_id = read_partition_metadata(self._filesystem, path) or ZERO_ID
            for name, entries in found:
                if name.topic_id != topic_id:
                    self._refuse(directory_name, f"{path}: the topic has another id now")
                    continue
                data, records = data_entries(entries), records_entries(entries)
                refusal = apply_entries(self._filesystem, path, data).refusal
                if refusal:
                    self._refuse(directory_name, refusal)
                elif records:
                    end_offset = max((each.end_offset for each in data), default=0)
                    cut_damage(self._filesystem, path, records, data_end_offset=end_offset)

    def recover_records(self, directory_name: str, log: Log) -> None:
        """
        Append the records that a log lacks, after it was recovered; they are on the disk then.

        Raises:
            KafkaLogError: the disk refused; the next call repeats it.
        """
        path = self._directory / directory_name
        with storage_errors(path, doing="applying the commit journal to"):
            for name, entries in self._entries_of(directory_name):
                found = records_entries(entries)
                if not found or directory_name in self.refusals:
                    continue
                if name.topic_id != (read_partition_metadata(self._filesystem, path) or ZERO_ID):
                    # As the entries of bytes: reported already.
                    continue
                refusal = append_records(self._filesystem, log, found)
                if refusal:
                    self._refuse(directory_name, refusal)

    def settle(self, directory_name: str) -> None:
        """Take note that the log of a partition is open: its files have what was applied."""
        if self.writer is not None:
            self.writer.settle(directory_name)
        for name, _entries in self._content.entries_of(directory_name):
            self._content.drop(name)

    def begin(self, present: Collection[str], options: JournalOptions) -> None:
        """
        Begin a new journal after the recovery of the directory, and remove the old one.

        Args:
            present: names of the partition directories.
            options: see there.

        Raises:
            LogStorageError: the disk refused, and entries of a partition that is not recovered yet
                could not be kept otherwise.
        """
        kept = {}
        for name, entries in self._content.entries.items():
            if name.directory in present:
                kept[name] = entries
            else:
                self._refuse(name.directory, f"{self._directory / name.directory} is missing")
        with storage_errors(self._directory, doing="creating the commit journal of"):
            if options.takes_commits or kept:
                writer = CommitJournal(
                    self._filesystem,
                    self._directory,
                    self._content.last_sequence + 1,
                    1 + max((journal_number(path.name) or 0 for path in self._paths), default=0),
                    options,
                )
                try:
                    writer.create(kept)
                except OSError as error:
                    if kept:
                        raise
                    logger.warning("%s: it has no commit journal: %s", self._directory, error)
                else:
                    self.writer = writer
            self._retire_files()

    def _entries_of(self, directory_name: str) -> list[tuple[PartitionName, list[JournalEntry]]]:
        if self.writer is not None:
            return self.writer.entries_of(directory_name)
        return self._content.entries_of(directory_name)

    def _refuse(self, directory_name: str, reason: str) -> None:
        logger.error("%s: the commit journal was not applied: %s", self._directory, reason)
        self.refusals[directory_name] = reason

    def _retire_files(self) -> None:
        """Remove the files of the old journal; keep them under another name if data is in them."""
        paths, self._paths, self._content = self._paths, [], JournalContent()
        if not paths:
            return
        if self.refusals:
            for path in paths:
                self._filesystem.rename(path, path.with_name(path.name + UNAPPLIED))
        else:
            remove_journal_files(self._filesystem, paths)
        self._filesystem.sync_directory(self._directory)

    # --------------------------------------------------------------------------------- its writer

    def commit(self, logs: Collection[Log]) -> dict[Log, BaseException | None]:
        """Commit logs; see `CommitJournal.commit`."""
        return {} if self.writer is None else self.writer.commit(logs)

    @contextmanager
    def withdrawn(
        self, directory_name: str, sync: Callable[[], object], *, is_deletion: bool = False
    ) -> Iterator[None]:
        """
        Let the journal have no bytes of a partition; see `CommitJournal.withdrawn`.

        Args:
            directory_name, sync: see there.
            is_deletion: whether the partition is deleted, and nothing of it is to be applied.

        Raises:
            LogOfflineError: the last journal is still being applied to other partitions.
        """
        writer = self.writer
        if writer is None:
            if self._paths and not is_deletion:
                raise LogOfflineError(
                    f"{self._directory / directory_name}: the recovery of {self._directory} has not"
                    " ended",
                    path=self._directory,
                )
            self.settle(directory_name)
            yield
            return
        with storage_errors(self._directory, doing="writing the commit journal of"):
            context = writer.withdrawn(directory_name, sync)
            context.__enter__()
        try:
            yield
        finally:
            context.__exit__(None, None, None)

    def checkpoint(self, sync_logs: SyncLogs) -> None:
        """Sync the own files of the logs; see `CommitJournal.checkpoint`."""
        if self.writer is not None:
            self.writer.checkpoint(sync_logs)

    def close(self) -> None:
        """
        Remove the journal if no log needs it, else leave it; the logs were closed.

        Raises:
            LogStorageError: the disk refused.
        """
        writer, self.writer = self.writer, None
        if writer is None:
            return
        is_needed = writer.needs_recovery
        writer.close()
        if not is_needed:
            with storage_errors(self._directory, doing="removing the commit journal of"):
                writer.remove()

    def release(self) -> None:
        """Close the files, and leave them for the next owner. Idempotent."""
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.close()
