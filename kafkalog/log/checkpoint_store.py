"""Checkpoints of a partition: the protocol, and its implementation over files.

`FileCheckpointStore` is used without a manager. A manager has `DirectoryCheckpointStore`
(`kafkalog.manager.checkpoint_store`), which caches the checkpoints of a data directory. Both keep
the same promises: a value is on the disk before a reader relies on it, and the shutdown marker is
removed before anything changes.

The shutdown marker covers all partitions of a directory. It is removed when the first of them is
opened for writing, and written again when the last one was closed in order, if it existed before,
or if every partition of the directory was opened by this process since.

Thread-safety: stores are immutable; sessions are shared by the process and guarded by one lock.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kafkalog._engine.durable_slots import DurableSlot
from kafkalog.errors import CorruptStateError
from kafkalog.files.filesystem import FileFacts, FileSystem
from kafkalog.files.names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    SYNC_JOURNAL,
    try_parse_partition_directory,
)
from kafkalog.log.partition_paths import PartitionPaths
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import OffsetCheckpoint
from kafkalog.state.durable_offsets import DurableOffsets, remove_durable_offsets
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

__all__ = [
    "CheckpointStore",
    "FileCheckpointStore",
    "fingerprint_of",
    "keeps_end",
    "make_sync_journal",
]

logger = logging.getLogger(__name__)


class CheckpointStore(Protocol):
    """Checkpoints, sessions and shutdown marker of one partition."""

    @property
    def paths(self) -> PartitionPaths:
        """The paths of the partition."""

    def read_recovery_point(self) -> int:
        """Return the checkpointed recovery point, 0 without one."""

    def write_recovery_point(self, offset: int) -> None:
        """Checkpoint the recovery point; a lower one is on the disk when this returns."""

    def read_start_offset(self) -> int | None:
        """
        Return the checkpointed log start offset, None without one.

        Raises:
            CorruptStateError: the checkpoint is damaged.
        """

    def write_start_offset(self, offset: int | None) -> None:
        """Checkpoint the log start offset, or remove it if a segment base equals it."""

    def read_cleaner_offset(self) -> int | None:
        """Return the start of the next cleaning, None if the log was never cleaned."""

    def write_cleaner_offset(self, offset: int) -> None:
        """Checkpoint the start of the next cleaning; on the disk when this returns."""

    def publish_durable_offset(self, offset: int, is_lowered: bool = False) -> DurableSlot | None:
        """
        Publish the durable offset for other processes; see `kafkalog.state.durable_offsets`.

        Never raises. A lower one is published before the first record above it is removed. The slot
        that is returned takes offsets of commits of many logs.
        """

    def broker_fingerprint(self) -> bytes:
        """Return a digest of files that a broker writes, and kafkalog rarely or never."""

    def was_closed_in_order(self) -> bool:
        """Return whether the partition was closed in order, without a session."""

    def begin_session(self, tenure: object) -> bool:
        """
        Remove the marker, and return whether this partition was closed in order.

        `tenure` is the tenure of the directory lock: a session ends with the lock under which it
        began.
        """

    def end_session(self, *, in_order: bool) -> None:
        """End the session of the partition; the last one writes the marker if all is in order."""


@dataclass(frozen=True, slots=True)
class FileCheckpointStore:
    """
    Checkpoints in the files of the state directory, read and replaced by each call.

    Attributes:
        paths: the paths of the partition.
        read: reads a checkpoint; a reader of many partitions may keep what it has read.
    """

    paths: PartitionPaths
    read: Callable[[OffsetCheckpoint], Mapping[TopicPartition, int]] = OffsetCheckpoint.read

    def read_recovery_point(self) -> int:
        """See `CheckpointStore`."""
        return self._read(RECOVERY_POINT_CHECKPOINT) or 0

    def write_recovery_point(self, offset: int) -> None:
        """
        See `CheckpointStore`.

        Records above the recovery point may be replaced by others, which were not compacted, so the
        cleaner offset is lowered first.
        """
        paths = self.paths
        if paths.filesystem.stat(paths.state_directory / CLEANER_OFFSET_CHECKPOINT) is not None:
            cleaned = self.read_cleaner_offset()
            if cleaned is not None and offset < cleaned:
                self.write_cleaner_offset(offset)
        self._checkpoint(RECOVERY_POINT_CHECKPOINT).update({paths.topic_partition: offset})

    def read_start_offset(self) -> int | None:
        """See `CheckpointStore`. A damaged file raises, or deleted records would be visible."""
        checkpoint = self._checkpoint(LOG_START_OFFSET_CHECKPOINT)
        try:
            return self.read(checkpoint).get(self.paths.topic_partition)
        except CorruptStateError as error:
            raise CorruptStateError(
                f"{error}; put it right, or remove it: the log then begins at its first segment,"
                " and records that were deleted are back",
                path=checkpoint.path,
            ) from error

    def write_start_offset(self, offset: int | None) -> None:
        """See `CheckpointStore`."""
        paths = self.paths
        checkpoint = self._checkpoint(LOG_START_OFFSET_CHECKPOINT)
        if offset is None and paths.filesystem.stat(checkpoint.path) is None:
            return
        checkpoint.update({paths.topic_partition: offset}, replaces_damaged=False)

    def read_cleaner_offset(self) -> int | None:
        """See `CheckpointStore`."""
        return self._read(CLEANER_OFFSET_CHECKPOINT)

    def write_cleaner_offset(self, offset: int) -> None:
        """See `CheckpointStore`."""
        self._checkpoint(CLEANER_OFFSET_CHECKPOINT).update({self.paths.topic_partition: offset})

    def publish_durable_offset(self, offset: int, is_lowered: bool = False) -> DurableSlot | None:
        """See `CheckpointStore`."""
        offsets = _SESSIONS.durable_offsets(self.paths)
        if offsets is None:
            return None
        return offsets.publish(self.paths.directory, offset, is_lowered=is_lowered)

    def broker_fingerprint(self) -> bytes:
        """
        See `CheckpointStore`.

        A broker that leads or follows a partition replaces its leader epochs before it appends, and
        the high watermarks of the data directory every few seconds. If kafkalog replaces the
        epochs, it updates the sync journal (`SyncJournal.update_fingerprint`).
        """
        paths = self.paths
        digest = hashlib.blake2b(digest_size=8)
        for path in (
            paths.state_directory / HIGH_WATERMARK_CHECKPOINT,
            paths.directory / LEADER_EPOCH_CHECKPOINT,
        ):
            digest.update(repr(fingerprint_of(paths.filesystem.stat(path))).encode())
        return digest.digest()

    def was_closed_in_order(self) -> bool:
        """See `CheckpointStore`."""
        return read_shutdown_marker(self.paths.filesystem, self.paths.state_directory) is not None

    def begin_session(self, tenure: object) -> bool:
        """See `CheckpointStore`."""
        return _SESSIONS.begin(self.paths, tenure)

    def end_session(self, *, in_order: bool) -> None:
        """See `CheckpointStore`."""
        _SESSIONS.end(self.paths, in_order=in_order)

    def _checkpoint(self, name: str) -> OffsetCheckpoint:
        return OffsetCheckpoint(self.paths.filesystem, self.paths.state_directory / name)

    def _read(self, name: str) -> int | None:
        try:
            return self.read(self._checkpoint(name)).get(self.paths.topic_partition)
        except CorruptStateError as error:
            # A file that cannot be read still raises: it may be readable later.
            logger.warning("%s is ignored: %s", self.paths.state_directory / name, error)
            return None


def make_sync_journal(store: CheckpointStore) -> SyncJournal:
    """Return the sync journal of a partition, for its writer."""
    paths = store.paths
    filesystem, directory = paths.filesystem, paths.directory
    journal = SyncJournal(
        filesystem,
        directory / SYNC_JOURNAL,
        store.broker_fingerprint(),
        filesystem.cache_id(directory),
    )
    if not paths.is_standalone:
        journal.on_given_up = lambda: withdraw_session_note(filesystem, paths.state_directory)
    return journal


def keeps_end(paths: PartitionPaths, journal: SyncJournal) -> bool:
    """
    Return whether the log ends where its last writer left it, though it was not closed.

    Called before the recovery begins. If False, whole batches that readers have seen may be missing
    at the end, without a trace.
    """
    found = journal.check_end()
    if found is None and not paths.is_standalone:
        found = is_same_session(paths.filesystem, paths.state_directory)
        journal.set_keeps_end(found)
    return bool(found)


@dataclass(slots=True)
class _Session:
    """Partitions of one state directory that this process writes to; the guard is held."""

    had_marker: bool
    tenure: object
    durable_offsets: DurableOffsets
    in_order: bool = True
    open_count: int = 0
    opened: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)

    def open(self, name: str) -> bool:
        """Count an open partition; return whether it was closed in order before."""
        # The marker describes the partition before this session, whatever this session did since.
        clean = name in self.closed if name in self.opened else self.had_marker
        self.opened.add(name)
        self.closed.discard(name)
        self.open_count += 1
        return clean

    def close(self, name: str, *, in_order: bool) -> bool:
        """Count a partition that was closed; return whether no partition is open."""
        self.open_count -= 1
        if in_order:
            self.closed.add(name)
        else:
            self.in_order = False
        return not self.open_count


class _Sessions:
    """All sessions of the process; empty in a forked child, which may write nothing."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._sessions: dict[tuple[FileSystem, Path], _Session] = {}
        os.register_at_fork(after_in_child=self._forget)

    def begin(self, paths: PartitionPaths, tenure: object) -> bool:
        key = (paths.filesystem, paths.state_directory)
        with self._guard:
            session = self._sessions.get(key)
            if session is None or session.tenure is not tenure:
                # A log that was dropped without `close` left its session, and released the lock.
                had_marker = remove_shutdown_marker(paths.filesystem, paths.state_directory)
                if had_marker and not paths.is_standalone:
                    write_session_note(paths.filesystem, paths.state_directory)
                if session is not None:
                    session.durable_offsets.close()
                remove_durable_offsets(paths.filesystem, paths.state_directory)
                offsets = DurableOffsets(paths.filesystem, paths.state_directory)
                session = self._sessions[key] = _Session(had_marker, tenure, offsets)
            return session.open(paths.directory.name)

    def end(self, paths: PartitionPaths, *, in_order: bool) -> None:
        key = (paths.filesystem, paths.state_directory)
        with self._guard:
            session = self._sessions.get(key)
            if session is None or not session.close(paths.directory.name, in_order=in_order):
                return
            del self._sessions[key]
            session.durable_offsets.close()
            if session.in_order and (session.had_marker or self._saw_all(paths, session)):
                write_shutdown_marker(paths.filesystem, paths.state_directory)

    def durable_offsets(self, paths: PartitionPaths) -> DurableOffsets | None:
        """Return the durable offsets that the session of a partition publishes."""
        with self._guard:
            session = self._sessions.get((paths.filesystem, paths.state_directory))
            return None if session is None else session.durable_offsets

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
    """Return size and time of a file; without the inode, which some file systems change."""
    return None if facts is None else (facts.size_bytes, facts.modified_ms)
