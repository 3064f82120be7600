"""One data directory: its lock, identity, checkpoints and partitions.

    orders-0                            a partition
    orders-0.<32 hex>-delete            a deleted partition; its files are removed after a delay
    orders-0.<32 hex>-stray, -future    directories of a broker; left alone
    __cluster_metadata-0                the log of a controller; left alone
    meta.properties, four checkpoints, .lock, .kafka_cleanshutdown
    .kafkalog_topics                    settings of topics that differ from the defaults; a broker
                                        ignores it
    .kafkalog_live                      durable offsets for other processes, while it is open

A directory whose disk fails goes offline: its logs refuse writes, and nothing in it is changed
until it is opened again. A full disk does not count as a failure.

Crash points of `open`: between any two steps; the next `open` creates the missing files, and no
partition has changed yet. Crash points of `close`: before the checkpoints, and between the
checkpoints and the marker; without the marker, every partition is recovered from the recovery
points on the disk.

Thread-safety: opening, closing and changes of `inventory` under the manager's lock
(`ManagerGate.lock`), one at a time; the rest from any thread.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafkalog.errors import KafkaLogError, LogOfflineError, LogStorageError, NotALogError
from kafkalog.files.directories import make_directories, remove_tree
from kafkalog.files.errors import storage_errors, translate
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.locking import DirectoryLock, acquire_directory_lock
from kafkalog.files.names import (
    CLUSTER_METADATA_TOPIC,
    COMMIT_JOURNAL,
    HIGH_WATERMARK_CHECKPOINT,
    MOVE_NOTE,
    REMOTE_INDEX_CACHE,
    DirectoryState,
    partition_directory_name,
    try_parse_partition_directory,
)
from kafkalog.manager.checkpoints import DirectoryCheckpoints
from kafkalog.manager.directory_journal import DirectoryJournal
from kafkalog.manager.sessions import DirectorySessions
from kafkalog.model import TopicPartition
from kafkalog.state.durable_offsets import DurableOffsets, remove_durable_offsets
from kafkalog.state.kafka_uuid import format_id, new_id
from kafkalog.state.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from kafkalog.state.partition_metadata import write_partition_metadata

__all__ = ["DataDirectory", "Inventory", "is_failure_of_disk", "is_missing"]

logger = logging.getLogger(__name__)

# Errors of a disk that was removed or fails; any other error concerns one file.
_DISK_FAILURES = frozenset(
    {
        errno.EIO,
        errno.ENODEV,
        errno.ENXIO,
        errno.EROFS,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.EREMOTEIO,
        errno.EUCLEAN,
        errno.ESHUTDOWN,
    }
)

# Errors of a missing name: of one file, or of the data directory itself.
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})


def is_failure_of_disk(error: BaseException) -> bool:
    """Return whether an error means that the disk itself failed; a full disk did not."""
    return _has_number(error, _DISK_FAILURES)


def is_missing(error: BaseException) -> bool:
    """Return whether an error means that a file or a directory is missing."""
    return _has_number(error, _MISSING)


def _has_number(error: BaseException, numbers: frozenset[int]) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if getattr(seen, "errno", None) in numbers:
            return True
        seen = seen.__cause__
    return False


def _translated(error: BaseException) -> BaseException:
    """Return an error; an OSError as its storage error."""
    return translate(error) if isinstance(error, OSError) else error


@dataclass(slots=True)
class Inventory:
    """
    Content of a data directory.

    Attributes:
        partitions: live partitions, by the names of their directories.
        file_ids: file numbers of their directories, by the same names.
        deleted: directories of deleted partitions.
        kept_aside: stray and moving directories, which are left alone.
        unknown: directories without a partition's name.
        move_notes: names of the notes of unfinished moves.
        journals: names of the files of a commit journal.
    """

    partitions: dict[str, TopicPartition] = field(default_factory=dict)
    file_ids: dict[str, int] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    kept_aside: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    move_notes: list[str] = field(default_factory=list)
    journals: list[str] = field(default_factory=list)

    def add_partition(self, name: str, partition: TopicPartition, file_id: int = 0) -> None:
        """Add a live partition, by the name of its directory."""
        self.partitions[name] = partition
        self.file_ids[name] = file_id

    def remove_partition(self, name: str) -> None:
        """Remove a live partition, if it is there."""
        self.partitions.pop(name, None)
        self.file_ids.pop(name, None)

    def remove_kept_aside(self, name: str) -> None:
        """Remove a stray or moving directory, if it is there."""
        if name in self.kept_aside:
            self.kept_aside.remove(name)

    def clear_move_notes(self) -> None:
        """Forget the names of the notes of moves: they were read."""
        self.move_notes.clear()


class DataDirectory:
    """
    One data directory of a manager.

    Args:
        path: its path; a missing directory is created by `open`.
        filesystem: the disk.

    Attributes:
        path: its absolute path.
        meta: content of its `meta.properties`, None before the file exists.
        inventory: its content when it was opened, with later changes.
        journal: its commit journal.
        error: reason that it is offline, None while it is online.
        durable_offsets: durable offsets of its logs, for other processes.
        was_read: whether the manager knows its partitions; a directory that is offline since the
            start may have any.
    """

    def __init__(self, path: Path, filesystem: FileSystem) -> None:
        self.path = path
        self.filesystem = filesystem
        self.meta: MetaProperties | None = None
        self.inventory = Inventory()
        self.checkpoints = DirectoryCheckpoints(filesystem, path)
        self.journal = DirectoryJournal(filesystem, path)
        self.durable_offsets = DurableOffsets(filesystem, path)
        self.error: BaseException | None = LogOfflineError(f"{path} was not opened", path=path)
        self.was_read = False
        self._file_id = 0
        self._sessions: DirectorySessions | None = None
        self._lock: DirectoryLock | None = None

    def __repr__(self) -> str:
        return f"<DataDirectory {self.path} {'online' if self.is_online else 'offline'}>"

    @property
    def is_online(self) -> bool:
        """True if the directory may be used."""
        return self.error is None

    @property
    def directory_id(self) -> str | None:
        """The directory id as text, None if it is not known."""
        meta = self.meta
        if meta is None or meta.directory_id is None:
            return None
        return format_id(meta.directory_id)

    @property
    def keys(self) -> frozenset[str]:
        """Names of the directory in notes: its id, and its path, used before the id was known."""
        path, directory_id = str(self.path), self.directory_id
        return frozenset({path} if directory_id is None else {path, directory_id})

    @property
    def lock(self) -> DirectoryLock:
        """The exclusive lock; held while the directory is online."""
        if self._lock is None:
            raise self.refusal()
        return self._lock

    @property
    def sessions(self) -> DirectorySessions:
        """Sessions of its partitions."""
        if self._sessions is None:
            raise self.refusal()
        return self._sessions

    def refusal(self) -> LogOfflineError:
        """Return the error of a use of the directory while it is offline."""
        error = LogOfflineError(f"{self.path} is offline: {self.error}", path=self.path)
        error.__cause__ = self.error
        return error

    def open(self) -> None:
        """
        Lock the directory and read its files; it is online afterwards.

        Raises:
            LogLockedError: another owner has it.
            CorruptStateError: its `meta.properties` is damaged.
            NotALogError: the path is a file.
            LogStorageError: the disk refused.
        """
        filesystem, path = self.filesystem, self.path
        with storage_errors(path, doing="opening the data directory"):
            facts = filesystem.stat(path)
            if facts is not None and not facts.is_directory:
                raise NotALogError(f"{path} is a file, not a data directory", path=path)
            make_directories(filesystem, path)
        lock = acquire_directory_lock(filesystem, path, exclusive=True)
        try:
            remove_durable_offsets(filesystem, path)
            with storage_errors(path, doing="opening the data directory"):
                self._file_id = self._present_id() or 0
                self.meta = read_meta_properties(filesystem, path)
                self.inventory = _take_inventory(filesystem, path)
                checkpoints = DirectoryCheckpoints(filesystem, path)
                checkpoints.load(set(self.inventory.partitions.values()))
                sessions = DirectorySessions(filesystem, path)
                self.journal.load(self.inventory.journals, was_closed_in_order=sessions.had_marker)
                self._sessions = sessions
        except BaseException:
            lock.release()
            raise
        if self.inventory.unknown:
            logger.warning(
                "%s has directories without a partition name: %s", path, self.inventory.unknown
            )
        self.checkpoints = checkpoints
        self.durable_offsets = DurableOffsets(filesystem, path)
        self._lock = lock
        self.error = None

    def read(self) -> None:
        """
        Read the files of a directory that another process may be writing; it is online afterwards.

        No lock is acquired and nothing is created. Directories without a partition's name are not
        logged.

        Raises:
            CorruptStateError: its `meta.properties` is damaged.
            NotALogError: the path is a file.
            LogStorageError: the disk refused, or the directory is missing.
        """
        filesystem, path = self.filesystem, self.path
        with storage_errors(path, doing="reading the data directory"):
            facts = filesystem.stat(path)
            if facts is None:
                raise FileNotFoundError(errno.ENOENT, "no such data directory")
            if not facts.is_directory:
                raise NotALogError(f"{path} is a file, not a data directory", path=path)
            meta = read_meta_properties(filesystem, path)
            inventory = _take_inventory(filesystem, path)
        self._file_id, self.meta, self.inventory = facts.file_id, meta, inventory
        self.error = None

    def has_vanished(self) -> bool:
        """
        Return whether the directory is no longer where it was opened: moved, removed, unmounted.

        Another directory of its name counts as vanished, unless it has the same directory id: a
        file system may change the number of a directory.
        """
        try:
            present = self._present_id()
            if present is None:
                return True
            if present == self._file_id:
                return False
            meta = read_meta_properties(self.filesystem, self.path)
        except (OSError, KafkaLogError):
            return False
        if meta is None or self.meta is None or meta.directory_id != self.meta.directory_id:
            return True
        self._file_id = present
        return False

    def ensure_there(self) -> None:
        """Raise LogStorageError if the directory has vanished."""
        if self.has_vanished():
            raise self.vanished_error()

    def vanished_error(self) -> LogStorageError:
        """Return the error of a directory that has vanished."""
        return LogStorageError(
            f"{self.path} is gone: it was moved, removed or unmounted while it was in use",
            errno=errno.ENOENT,
            path=self.path,
        )

    def make_partition(self, partition: TopicPartition, topic_id: uuid.UUID) -> None:
        """
        Create the directory of a new partition; it is on the disk when this returns.

        Crash points: after the directory, with or without `partition.metadata`. The partition is
        then empty, and opening it completes the creation; the call had not returned.

        Raises:
            LogStorageError: the disk refused, or the name exists; nothing is left of it.
        """
        filesystem = self.filesystem
        name = partition_directory_name(partition)
        path = self.path / name
        self.ensure_there()
        # Checkpoints of a deleted partition of this name must not apply to the new one.
        self.checkpoints.remove(partition)
        with storage_errors(path, doing="creating"):
            filesystem.make_directory(path)
            try:
                write_partition_metadata(filesystem, path, topic_id)
                filesystem.sync_directory(self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    remove_tree(filesystem, path)
                raise
        self.register_partition(partition)
        self.checkpoints.recovery_points.set(partition, 0)

    def undo_partition(self, partition: TopicPartition) -> None:
        """Remove a partition that was just made; errors of the disk are ignored."""
        with contextlib.suppress(OSError):
            remove_tree(self.filesystem, self.path / partition_directory_name(partition))
            # Without the sync, a part of a topic could be back after a crash, without a note.
            self.filesystem.sync_directory(self.path)
        self.unregister_partition(partition)

    def register_partition(self, partition: TopicPartition) -> None:
        """Add a partition in memory, whose directory is on the disk under its name."""
        name = partition_directory_name(partition)
        self.inventory.add_partition(name, partition)
        self.sessions.add(name)

    def unregister_partition(self, partition: TopicPartition) -> None:
        """Remove a partition in memory; the checkpoint files follow with their next write."""
        name = partition_directory_name(partition)
        self.inventory.remove_partition(name)
        self.durable_offsets.remove(name)
        self.sessions.remove(name)
        for checkpoint in self.checkpoints.all:
            checkpoint.set(partition, None)

    def rename_deleted(self, partition: TopicPartition) -> Path:
        """
        Rename the directory of a partition to a deleted one; return its path. On the disk then.

        Crash points: before the renaming is on the disk, nothing happened; after it, the next
        start removes the directory and the partition's lines in the checkpoints. The checkpoints
        must be written before another partition gets the name; on a full disk that fails, and the
        partition cannot be created.

        Raises:
            LogStorageError: the disk refused; after a crash the partition may have either name.
        """
        filesystem = self.filesystem
        name = partition_directory_name(partition)
        path = self.path / name
        self.durable_offsets.remove(name)
        deleted_path = self.path / partition_directory_name(partition, DirectoryState.DELETE)
        with (
            # Its bytes in the journal must not be written into a partition of this name.
            self.journal.withdrawn(name, lambda: None, is_deletion=True),
            storage_errors(path, doing="deleting"),
        ):
            filesystem.rename(path, deleted_path)
            try:
                filesystem.sync_directory(self.path)
            except OSError:
                # Under the old name, or the next call of `log` would create an empty log.
                with contextlib.suppress(OSError):
                    filesystem.rename(deleted_path, path)
                raise
        self.unregister_partition(partition)
        return deleted_path

    def write_high_watermarks(self) -> bool:
        """
        Write the high watermarks if they have changed; return whether they had.

        The file keeps its modification time: see `DirectoryCheckpointStore.broker_fingerprint`.
        Crash point: between the write and the restored time. The sync journals of open logs are
        then ignored, which costs their recovery some writes.
        """
        path = self.path / HIGH_WATERMARK_CHECKPOINT
        with storage_errors(path, doing="writing"):
            before = self.filesystem.stat(path)
            if not self.checkpoints.high_watermarks.write():
                return False
            if before is not None:
                self.filesystem.set_modified_ms(path, before.modified_ms)
        return True

    def fail(self, error: BaseException) -> bool:
        """Go offline; return whether it was online. The lock is kept until its logs are closed."""
        if self.error is not None:
            return False
        self.error = error = _translated(error)
        logger.error("data directory %s goes offline: %s", self.path, error)
        return True

    def keep_offline(self, error: BaseException) -> None:
        """Record the error of an attempt to open the directory; it is offline."""
        self.error = error

    def mark_read(self) -> None:
        """Record that the manager has read which partitions are in the directory."""
        self.was_read = True

    def mark_unread(self) -> None:
        """Record that the manager has not read yet which partitions are in the directory."""
        self.was_read = False

    def complete_meta(self, cluster_id: str, node_id: int, *, now_ms: int) -> None:
        """
        Write what `meta.properties` lacks: cluster, node and directory id.

        Raises:
            LogStorageError: the disk refused.
        """
        meta = self.meta
        if meta is not None and meta.directory_id is not None:
            return
        if meta is None:
            meta = MetaProperties(cluster_id=cluster_id, node_id=node_id)
        meta = replace(meta, directory_id=new_id())
        write_meta_properties(self.filesystem, self.path, meta, now_ms=now_ms)
        self.meta = meta

    def close(self) -> None:
        """
        Write the checkpoints and, if all logs were closed in order, the marker; release the lock.

        Raises:
            LogStorageError: the disk refused; the marker was not written.
        """
        if self._lock is None:
            return
        try:
            if self.is_online:
                self.ensure_there()
                self.checkpoints.recovery_points.write()
                self.checkpoints.start_offsets.write()
                self.checkpoints.cleaner_offsets.write()
                self.write_high_watermarks()
                self.journal.close()
                self.sessions.close(self.inventory.partitions)
        finally:
            if self.error is None:
                self.error = LogOfflineError(f"{self.path} is closed", path=self.path)
            self.release()

    def release(self) -> None:
        """Release the lock without writing."""
        self.journal.release()
        lock, self._lock = self._lock, None
        if lock is not None:
            self.durable_offsets.close()
            lock.release()

    def _present_id(self) -> int | None:
        """Return the file number of the directory at this path, None if it is missing."""
        facts = self.filesystem.stat(self.path)
        return facts.file_id if facts is not None and facts.is_directory else None


def _take_inventory(filesystem: FileSystem, path: Path) -> Inventory:
    """Sort the names in a data directory. Raises OSError."""
    found = Inventory()
    for name in filesystem.list(path):
        parsed = try_parse_partition_directory(name)
        if parsed is None and name.startswith("."):
            if name.startswith(MOVE_NOTE):
                found.move_notes.append(name)
            elif name.startswith(COMMIT_JOURNAL):
                found.journals.append(name)
            continue
        facts = filesystem.stat(path / name)
        if facts is None or not facts.is_directory or name == REMOTE_INDEX_CACHE:
            continue
        if parsed is None:
            found.unknown.append(name)
        elif parsed.state is DirectoryState.DELETE:
            found.deleted.append(name)
        elif parsed.state is not DirectoryState.LIVE:
            found.kept_aside.append(name)
        elif parsed.topic_partition.topic != CLUSTER_METADATA_TOPIC:
            found.add_partition(name, parsed.topic_partition, facts.file_id)
    return found
