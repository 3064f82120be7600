"""Move of a partition to another data directory (Kafka's AlterReplicaLogDirs).

    1. Notes of the move are written in both directories (`move_notes`).
    2. `<partition>.<id>-future` is created in the new directory, and the segments are copied to it,
       repeatedly while many bytes are appended. The log stays in use.
    3. Cleaning is paused, the log is closed in order, and the rest is copied: new appends, indexes,
       snapshots, epochs. Segments that were replaced or cut are copied whole. Every file is synced,
       and the checkpoints are copied to the new directory.
    4. `-future` is renamed to the partition: the commit. From here on the new copy counts.
    5. The old copy is renamed to `-delete`, and removed after `file.delete.delay.ms`.
    6. The notes are removed.

Files are copied byte for byte, with their times: offsets, segments, compaction, producers and
epochs are unchanged.

Crash points: after any file of 2 and 3, before and after the renames of 4 and 5, and before a note
is removed; `move_notes` has the action of the next start for each. Before 4 the old copy counts,
afterwards the new one, never both.

Readers of other processes with the old copy open continue with their open files, as after a
deletion. A `Log` of this process is closed in 3; `LogManager.log`, which producers and consumers
call, returns the new log.

Thread-safety: one move at a time; 3 to 5 under the manager's lock.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.errors import KafkaLogError, LogClosedError, LogStorageError
from kafkalog.files.directories import remove_tree
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileHandle
from kafkalog.files.names import (
    SYNC_JOURNAL,
    DirectoryState,
    FileKind,
    FileState,
    SegmentFiles,
    live_base_offset,
    partition_directory_name,
)
from kafkalog.log.log import partition_of
from kafkalog.log.segment import LogSegment
from kafkalog.manager.deleted_directories import DeletedDirectories
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.directory_group import DirectoryGroup
from kafkalog.manager.manager_gate import ManagerGate
from kafkalog.manager.move_notes import MoveNote, remove_note, write_note
from kafkalog.manager.opening import LogOpener
from kafkalog.manager.registry import ManagedPartition, PartitionRegistry
from kafkalog.manager.settings import TopicSettings
from kafkalog.model import TopicPartition

__all__ = ["PartitionMover"]

logger = logging.getLogger(__name__)

_PIECE_BYTES: Final = 4 << 20
# Largest copy with the log closed, unless every earlier round had more new bytes.
_REST_BYTES: Final = 16 << 20
_ROUNDS_MAX: Final = 8
_UNFINISHED: Final = tuple(
    state.value for state in FileState if state not in (FileState.LIVE, FileState.BROKEN)
)


class PartitionMover:
    """
    Moves the partitions of a manager.

    Args:
        group: the data directories.
        registry: the partitions.
        settings: settings of topics.
        opener: opens and closes logs.
        deleted_directories: removes directories after a delay.
        gate: has the manager's lock, and pauses cleanings.
    """

    def __init__(
        self,
        group: DirectoryGroup,
        registry: PartitionRegistry,
        settings: TopicSettings,
        opener: LogOpener,
        deleted_directories: DeletedDirectories,
        gate: ManagerGate,
    ) -> None:
        self._group = group
        self._registry = registry
        self._settings = settings
        self._opener = opener
        self._deleted_directories = deleted_directories
        self._gate = gate
        self._move_lock = threading.Lock()

    def move(self, name: TopicPartition, target: DataDirectory) -> None:
        """See `LogManager.move_partition`."""
        with self._move_lock:
            partition = self._registry.get(name)
            if partition.directory is target:
                return
            for directory in (partition.directory, target):
                if not directory.is_online:
                    raise directory.refusal()
            log = self._opener.open(partition)
            move = _Move(partition, target)
            try:
                with storage_errors(target.path, doing="moving a partition"):
                    move.begin()
                    for _round in range(_ROUNDS_MAX):
                        if move.copy_segments(partition_of(log).view.snapshot()) <= _REST_BYTES:
                            break
                with self._gate.without_cleaning(lambda: [self._registry.get(name)]):
                    self._finish(move)
            except BaseException as error:
                self._abandon(move, error)
                raise

    def _finish(self, move: _Move) -> None:
        """Do steps 3 to 6, under the manager's lock."""
        partition, target = move.partition, move.target
        if self._registry.get(partition.topic_partition) is not partition or partition.is_gone:
            raise LogClosedError(f"{partition.topic_partition} was opened again during the move")
        with partition.lock:
            log = self._opener.open(partition)
            self._opener.close(partition)
            with storage_errors(target.path, doing="moving a partition"):
                move.complete(partition_of(log).view.last_snapshot.segments.segments)
                move.copy_checkpoints()
                move.commit()
            partition.mark_gone()
        moved = ManagedPartition(partition.topic_partition, target, partition.topic_id)
        self._registry.replace(partition, moved)
        logger.info("%s is in %s now", partition.topic_partition, target.path)
        self._remove_old(move)

    def _remove_old(self, move: _Move) -> None:
        """Do steps 5 and 6; if the disk refuses, the next start does them."""
        partition, source = move.partition, move.partition.directory
        config = self._settings.config_of(partition.topic_partition.topic)
        try:
            deleted_path = source.rename_deleted(partition.topic_partition)
        except LogStorageError as error:
            logger.warning("%s was not removed from %s: %s", partition, source.path, error)
            source.unregister_partition(partition.topic_partition)
            self._group.moves.add(move.target, move.notes[1])
            self._group.on_error(source, error)
            return
        self._deleted_directories.add(deleted_path, delay_ms=config.file_delete_delay_ms)
        try:
            source.checkpoints.remove(partition.topic_partition)
            for directory in (source, move.target):
                remove_note(directory, move.move_id)
        except (OSError, LogStorageError) as error:
            logger.warning("a note of a move was not removed: %s", error)
            self._group.on_error(source, error)

    def _abandon(self, move: _Move, error: BaseException) -> None:
        """Undo the steps before the commit; if the disk refuses, the next start undoes them."""
        if move.is_committed:
            return
        if isinstance(error, (OSError, KafkaLogError)) and not isinstance(error, LogClosedError):
            self._group.on_error(move.target, error)
        try:
            move.undo()
        except (OSError, KafkaLogError) as failure:
            logger.warning("the move of %s was not undone: %s", move.partition, failure)
            if move.is_in_doubt:
                # A copy that may count after a restart must not miss appends to this one.
                move.partition.block(failure, move.target)


class _Move:
    """
    One move in progress.

    Attributes:
        partition: the partition in its old directory.
        target: the new directory.
        move_id: id of the move.
        notes: the notes for the old and the new directory.
        is_committed: whether the new copy counts.
        is_in_doubt: whether the new copy may count after a restart.
    """

    def __init__(self, partition: ManagedPartition, target: DataDirectory) -> None:
        self.partition = partition
        self.target = target
        self.move_id = uuid.uuid4().hex
        self.is_committed = False
        self.is_in_doubt = False
        name, source = partition.topic_partition, partition.directory
        self.notes = (
            MoveNote(self.move_id, name, False, target.keys),
            MoveNote(self.move_id, name, True, source.keys),
        )
        self._name = partition_directory_name(name)
        self._old = source.path / self._name
        self._future = target.path / partition_directory_name(
            name, DirectoryState.FUTURE, self.move_id
        )
        # By base offset: segments whose first bytes were copied, and the number of bytes.
        self._copied: dict[int, tuple[LogSegment, int]] = {}

    def begin(self) -> None:
        """Do step 1, and create the directory of the copy."""
        self.target.ensure_there()
        self.target.checkpoints.remove(self.partition.topic_partition)
        for directory, note in zip(self._directories, self.notes, strict=True):
            write_note(directory, note)
        self.target.filesystem.make_directory(self._future)
        self.target.filesystem.sync_directory(self.target.path)

    def copy_segments(self, snapshot: LogSnapshot) -> int:
        """Copy published bytes of the segments that were not copied yet; return their number."""
        total = 0
        for slot, segment in enumerate(snapshot.segments.segments):
            end, base = snapshot.read_bound(slot).end, segment.base_offset
            start = self._start_of(segment)
            path = SegmentFiles(self._future, base).log
            with contextlib.closing(self._open(path, start)) as handle:
                for position in range(start, end, _PIECE_BYTES):
                    size = min(_PIECE_BYTES, end - position)
                    handle.pwrite(segment.file.read(position, size), position)
            self._copied[base] = (segment, end)
            total += end - start
        return total

    def complete(self, segments: Sequence[LogSegment]) -> None:
        """Do step 3, with the log closed: copy the rest, and sync everything."""
        source, filesystem = self.partition.directory.filesystem, self.target.filesystem
        live = {each.base_offset: each for each in segments}
        names = [
            name
            for name in source.list(self._old)
            if name != SYNC_JOURNAL and not name.endswith(_UNFINISHED)
        ]
        for name in set(filesystem.list(self._future)) - set(names):
            filesystem.unlink(self._future / name)
        for name in names:
            facts = source.stat(self._old / name)
            if facts is None or facts.is_directory:
                continue
            base = live_base_offset(name, FileKind.LOG)
            start = 0 if base is None or base not in live else self._start_of(live[base])
            self._copy_file(name, min(start, facts.size_bytes))
            filesystem.set_modified_ms(self._future / name, facts.modified_ms)
        filesystem.sync_directory(self._future)

    def copy_checkpoints(self) -> None:
        """Copy the partition's checkpoints to the new directory."""
        name = self.partition.topic_partition
        pairs = zip(*(each.checkpoints.all for each in self._directories), strict=True)
        for before, after in pairs:
            offset = before.get(name)
            if offset is None:
                continue
            if after is self.target.checkpoints.high_watermarks:
                after.set(name, offset)
            else:
                after.write_through(name, offset)
        self.target.write_high_watermarks()

    def commit(self) -> None:
        """Do step 4."""
        filesystem, target = self.target.filesystem, self.target
        self.is_in_doubt = True
        filesystem.rename(self._future, target.path / self._name)
        filesystem.sync_directory(target.path)
        self.is_committed = True
        target.register_partition(self.partition.topic_partition)

    def undo(self) -> None:
        """Remove the copy and the notes; the old directory's note first, unless in doubt."""
        filesystem, target = self.target.filesystem, self.target
        if not self.is_in_doubt and self.partition.directory.is_online:
            remove_note(self.partition.directory, self.move_id)
        if not target.is_online:
            raise target.refusal()
        if self.is_in_doubt and filesystem.stat(self._future) is None:
            filesystem.rename(target.path / self._name, self._future)
        if self.is_in_doubt:
            filesystem.sync_directory(target.path)
            self.is_in_doubt = False
        remove_tree(filesystem, self._future)
        filesystem.sync_directory(target.path)
        target.checkpoints.remove(self.partition.topic_partition)
        for directory in self._directories:
            remove_note(directory, self.move_id)

    @property
    def _directories(self) -> tuple[DataDirectory, DataDirectory]:
        return self.partition.directory, self.target

    def _start_of(self, segment: LogSegment) -> int:
        """Return the number of copied bytes of a segment; 0 for a segment that replaced another."""
        source, size = self._copied.get(segment.base_offset, (None, 0))
        return size if source is segment else 0

    def _open(self, path: Path, start: int) -> FileHandle:
        filesystem = self.target.filesystem
        return filesystem.open(path, write=True) if start else filesystem.create_new(path)

    def _copy_file(self, name: str, start: int) -> None:
        """Copy a file from a position on, and sync it."""
        with (
            contextlib.closing(
                self.partition.directory.filesystem.open(self._old / name)
            ) as source,
            contextlib.closing(self._open(self._future / name, start)) as target,
        ):
            size = source.size()
            if start > size:
                raise AssertionError(f"{name} has {size} bytes, and {start} were copied")
            position = start
            while position < size:
                piece = source.pread(min(_PIECE_BYTES, size - position), position)
                if not piece:
                    raise OSError(f"{self._old / name} ends at {position}, expected {size}")
                target.pwrite(piece, position)
                position += len(piece)
            if target.size() > size:
                target.truncate(size)
            target.sync()
