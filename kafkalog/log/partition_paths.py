"""Where a partition lives: its directory, and the directory whose checkpoints speak of it.

A partition inside a data directory (one with `meta.properties`, a checkpoint or a shutdown marker)
uses that directory's recovery-point and log-start checkpoints, marker and lock, as a broker does.
A partition directory that stands alone keeps the same files within itself; a broker that is later
given the directory ignores them.

The clean-shutdown marker speaks for all partitions of a directory at once. It is removed when the
first of them is opened for writing and comes back when the last one was closed in order, provided
it was there before, or every partition of the directory has been through our hands.

Thread-safety: sessions are shared by the process and guarded by one lock.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from kafkalog.errors import CorruptStateError, NotALogError
from kafkalog.files.filesystem import FileFacts, FileSystem
from kafkalog.files.names import (
    CLEAN_SHUTDOWN_MARKER,
    CLEANER_OFFSET_CHECKPOINT,
    DATA_DIRECTORY_FILES,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    SYNC_JOURNAL,
    DirectoryState,
    PartitionDirectory,
    is_topic_name,
    try_parse_partition_directory,
    try_parse_segment_file,
)
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import LeaderEpochCheckpoint, OffsetCheckpoint
from kafkalog.state.session_note import (
    is_same_session,
    withdraw_session_note,
    write_session_note,
)
from kafkalog.state.shutdown_marker import (
    read_shutdown_marker,
    remove_shutdown_marker,
    write_shutdown_marker,
)
from kafkalog.state.sync_journal import SyncJournal

__all__ = ["PartitionPaths", "find_partition_paths", "fingerprint_of"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartitionPaths:
    """
    A partition's place on disk.

    Attributes:
        filesystem: the disk.
        directory: the partition directory.
        state_directory: where checkpoints, marker and lock are.
        topic_partition: its name in the checkpoints.
    """

    filesystem: FileSystem
    directory: Path
    state_directory: Path
    topic_partition: TopicPartition

    @property
    def is_standalone(self) -> bool:
        """Whether the partition directory stands outside a data directory."""
        return self.directory == self.state_directory

    def read_recovery_point(self) -> int:
        """Return the checkpointed recovery point, 0 where there is none."""
        return self._read(RECOVERY_POINT_CHECKPOINT) or 0

    def read_start_offset(self) -> int | None:
        """
        Return the checkpointed log start offset, None where there is none.

        Raises:
            CorruptStateError: the checkpoint is damaged; without it deleted records come back.
        """
        checkpoint = self._checkpoint(LOG_START_OFFSET_CHECKPOINT)
        try:
            return checkpoint.read().get(self.topic_partition)
        except CorruptStateError as error:
            raise CorruptStateError(
                f"{error}; put it right, or remove it: the log then begins at its first segment,"
                " and records that were deleted are back",
                path=checkpoint.path,
            ) from error

    def read_cleaner_offset(self) -> int | None:
        """Return where the next cleaning begins, None where there was none."""
        return self._read(CLEANER_OFFSET_CHECKPOINT)

    def write_cleaner_offset(self, offset: int) -> None:
        """Checkpoint where the next cleaning begins; on the disk when this returns."""
        self._checkpoint(CLEANER_OFFSET_CHECKPOINT).update({self.topic_partition: offset})

    def write_recovery_point(self, offset: int) -> None:
        """
        Checkpoint the recovery point; on the disk when this returns.

        What lies above it may be replaced by other records, which nobody has compacted.
        """
        if self.filesystem.stat(self.state_directory / CLEANER_OFFSET_CHECKPOINT) is not None:
            cleaned = self.read_cleaner_offset()
            if cleaned is not None and offset < cleaned:
                self.write_cleaner_offset(offset)
        self._checkpoint(RECOVERY_POINT_CHECKPOINT).update({self.topic_partition: offset})

    def write_start_offset(self, offset: int | None) -> None:
        """Checkpoint the log start offset, or remove the entry where a segment base says it."""
        checkpoint = self._checkpoint(LOG_START_OFFSET_CHECKPOINT)
        if offset is None and self.filesystem.stat(checkpoint.path) is None:
            return
        checkpoint.update({self.topic_partition: offset}, replaces_damaged=False)

    def sync_journal(self) -> SyncJournal:
        """Return the partition's sync journal, for its writer."""
        cache_id = self.filesystem.cache_id(self.directory)
        traces = self.broker_fingerprint()
        journal = SyncJournal(self.filesystem, self.directory / SYNC_JOURNAL, traces, cache_id)
        journal.on_given_up = self._withdraw_session
        return journal

    def keeps_end(self, journal: SyncJournal) -> bool:
        """
        Return whether the log ends where its last writer left it, though it was not closed.

        Asked before the recovery begins. Otherwise whole batches may be missing at the end that
        readers have seen, and nothing that is left tells so.
        """
        found = journal.check_end()
        if found is None and not self.is_standalone:
            found = is_same_session(self.filesystem, self.state_directory)
            journal.keeps_end = found
        return bool(found)

    def _withdraw_session(self) -> None:
        if not self.is_standalone:
            withdraw_session_note(self.filesystem, self.state_directory)

    def leader_epochs(self) -> LeaderEpochCheckpoint:
        """Return the file of the partition's leader epochs."""
        return LeaderEpochCheckpoint(self.filesystem, self.directory / LEADER_EPOCH_CHECKPOINT)

    def broker_fingerprint(self) -> bytes:
        """
        Return a digest of files that a broker writes, and we seldom or never.

        A broker that leads or follows a partition replaces its leader epochs before it appends,
        and the high watermarks of the data directory every few seconds. Where we replace the
        epochs, the note is told (`SyncJournal.update_fingerprint`).
        """
        traces = hashlib.blake2b(digest_size=8)
        for path in (
            self.state_directory / HIGH_WATERMARK_CHECKPOINT,
            self.directory / LEADER_EPOCH_CHECKPOINT,
        ):
            traces.update(repr(fingerprint_of(self.filesystem.stat(path))).encode())
        return traces.digest()

    def was_closed_in_order(self) -> bool:
        """Return whether the marker of a clean shutdown is there (without a session)."""
        return read_shutdown_marker(self.filesystem, self.state_directory) is not None

    def begin_session(self, tenure: object) -> bool:
        """
        Take the marker away, and return whether this partition was closed in order.

        `tenure` is the directory lock's: a session does not outlive the lock it was begun under.
        """
        return _SESSIONS.begin(self, tenure)

    def end_session(self, *, in_order: bool) -> None:
        """Leave; the last one out puts the marker back if all was closed in order."""
        _SESSIONS.end(self, in_order=in_order)

    def _checkpoint(self, name: str) -> OffsetCheckpoint:
        return OffsetCheckpoint(self.filesystem, self.state_directory / name)

    def _read(self, name: str) -> int | None:
        try:
            return self._checkpoint(name).read().get(self.topic_partition)
        except CorruptStateError as error:
            # Not so a file that cannot be read now: without the start, deleted records come back.
            logger.warning("%s is passed over: %s", self.state_directory / name, error)
            return None


def find_partition_paths(filesystem: FileSystem, directory: Path) -> PartitionPaths:
    """
    Return the paths of the partition in `directory`, which need not exist yet.

    Raises:
        NotALogError: the path is a file, a data directory, a doomed, stray or moving directory
            beside another one of the same partition, or one that holds other things than a log.
    """
    facts = filesystem.stat(directory)
    if facts is not None and not facts.is_directory:
        raise NotALogError(f"{directory} is a file, not a partition directory", path=directory)
    names = [] if facts is None else filesystem.list(directory)
    parsed = try_parse_partition_directory(directory.name)
    inside = any(
        filesystem.stat(directory.parent / name) is not None for name in DATA_DIRECTORY_FILES
    )
    if inside:
        if parsed is None:
            raise NotALogError(
                f"{directory} lies in a data directory, but is not named topic-partition",
                path=directory,
            )
        _ensure_checkpointed(filesystem, directory, parsed)
        return PartitionPaths(filesystem, directory, directory.parent, parsed.topic_partition)
    if META_PROPERTIES in names:
        raise NotALogError(
            f"{directory} is a data directory: open one of its partitions", path=directory
        )
    holds_log = any(try_parse_segment_file(name) is not None for name in names)
    if names and not holds_log and not set(names) <= _OWN_FILES:
        raise NotALogError(
            f"{directory} is not a log: no segment file, but {names[0]!r} and"
            f" {len(names) - 1} others",
            path=directory,
        )
    if parsed is not None and parsed.state is DirectoryState.LIVE:
        return PartitionPaths(filesystem, directory, directory, parsed.topic_partition)
    topic = directory.name if is_topic_name(directory.name) else "log"
    return PartitionPaths(filesystem, directory, directory, TopicPartition(topic, 0))


def _ensure_checkpointed(
    filesystem: FileSystem, directory: Path, parsed: PartitionDirectory
) -> None:
    """Refuse a directory whose lines in the checkpoints may be those of another one."""
    if parsed.state is DirectoryState.LIVE:
        return
    for name in filesystem.list(directory.parent):
        other = try_parse_partition_directory(name)
        if other is None or name == directory.name:
            continue
        if other.topic_partition == parsed.topic_partition:
            raise NotALogError(
                f"{directory} stands beside {name}: what the data directory notes of"
                f" {parsed.topic_partition} may be of that one; move this one out of the data"
                " directory to open it",
                path=directory,
            )


# What a partition directory without segments may hold and still be ours.
_OWN_FILES = frozenset(
    {
        ".lock",
        SYNC_JOURNAL,
        CLEAN_SHUTDOWN_MARKER,
        RECOVERY_POINT_CHECKPOINT,
        RECOVERY_POINT_CHECKPOINT + ".tmp",
        LOG_START_OFFSET_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT + ".tmp",
        CLEANER_OFFSET_CHECKPOINT,
        CLEANER_OFFSET_CHECKPOINT + ".tmp",
        "partition.metadata",
        LEADER_EPOCH_CHECKPOINT,
        LEADER_EPOCH_CHECKPOINT + ".tmp",
    }
)


@dataclass(slots=True)
class _Session:
    """The partitions of one state directory that this process writes to."""

    had_marker: bool
    tenure: object
    in_order: bool = True
    open_count: int = 0
    opened: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)


class _Sessions:
    """All sessions of the process; empty again in a forked child, which may write nothing."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._sessions: dict[tuple[FileSystem, Path], _Session] = {}
        os.register_at_fork(after_in_child=self._forget)

    def begin(self, paths: PartitionPaths, tenure: object) -> bool:
        key = (paths.filesystem, paths.state_directory)
        with self._guard:
            session = self._sessions.get(key)
            if session is None or session.tenure is not tenure:
                # A log that was dropped without `close` left its session, and gave up the lock.
                had_marker = remove_shutdown_marker(paths.filesystem, paths.state_directory)
                if had_marker and not paths.is_standalone:
                    write_session_note(paths.filesystem, paths.state_directory)
                session = self._sessions[key] = _Session(had_marker, tenure)
            # The marker speaks of how this session found a partition, not of what it did to it.
            name = paths.directory.name
            clean = name in session.closed if name in session.opened else session.had_marker
            session.opened.add(name)
            session.closed.discard(name)
            session.open_count += 1
            return clean

    def end(self, paths: PartitionPaths, *, in_order: bool) -> None:
        key = (paths.filesystem, paths.state_directory)
        with self._guard:
            session = self._sessions.get(key)
            if session is None:
                return
            session.open_count -= 1
            if in_order:
                session.closed.add(paths.directory.name)
            else:
                session.in_order = False
            if session.open_count:
                return
            del self._sessions[key]
            if session.in_order and (session.had_marker or self._saw_all(paths, session)):
                write_shutdown_marker(paths.filesystem, paths.state_directory)

    @staticmethod
    def _saw_all(paths: PartitionPaths, session: _Session) -> bool:
        if paths.is_standalone:
            return True
        present = {
            name
            for name in paths.filesystem.list(paths.state_directory)
            if try_parse_partition_directory(name) is not None
        }
        return present <= session.opened

    def _forget(self) -> None:
        self._guard = threading.Lock()
        self._sessions.clear()


_SESSIONS = _Sessions()


def fingerprint_of(facts: FileFacts | None) -> tuple[int, int] | None:
    """Return what tells that a file was written; not its inode: some file systems change that."""
    return None if facts is None else (facts.size_bytes, facts.modified_ms)
