"""Notes of moves of partitions between data directories, and their resolution by a start.

A move writes one note `.kafkalog_move.<id>` into each of the two directories before it begins, and
removes both at its end. A note names the partition, the other directory by id and path, and whether
the partition comes or goes. The copy is written to `<partition>.<id>-future`, as by a broker.

A start, or a directory that returns, resolves these states:

  * the `-future` directory exists: the move was not committed. It is renamed to `-delete` and
    removed;
  * it does not exist, and both directories have the partition: the move was committed. The new
    copy counts, the old copy is deleted;
  * only the old directory has the partition, and the new one is read: nothing was committed;
  * only the old directory has the partition, and the new one is offline: the valid copy is not
    known. The partition is not opened until that directory returns or an operator removes the note;
  * only the new directory has the partition: the move had ended, except for its notes.

Format, ASCII lines: `kafkalog move 1`, `partition NAME`, `coming` or `going`, `other KEY` for each
key of the other directory, `sum CRC`. A torn note counts as absent: nothing was begun.

Crash points: those of replacing a file; before a note is gone the next start reads it again.

Thread-safety: the manager's lock is held.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog._core import crc32c
from kafkalog.errors import LogOfflineError
from kafkalog.files.atomic_files import read_file, replace_file
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import (
    MOVE_NOTE,
    DirectoryState,
    partition_directory_name,
    try_parse_partition_directory,
)
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.registry import ManagedPartition, PartitionRegistry
from kafkalog.model import TopicPartition

__all__ = ["MoveNote", "MoveNotes", "note_path", "read_note", "remove_note", "write_note"]

logger = logging.getLogger(__name__)

_HEAD: Final = "kafkalog move 1"
_MOVE_ID: Final = re.compile("[0-9a-f]{32}")
_NOTE_BYTES_MAX: Final = 1 << 20


class MoveNote(NamedTuple):
    """
    Content of a note.

    Attributes:
        move_id: 32 hexadecimal digits, the same in both notes and in the `-future` directory.
        partition: the moved partition.
        is_coming: whether it moves to the directory of the note; otherwise it leaves it.
        other: keys of the other directory (`DataDirectory.keys`).
    """

    move_id: str
    partition: TopicPartition
    is_coming: bool
    other: frozenset[str]


def note_path(directory: DataDirectory, move_id: str) -> Path:
    """Return the path of a note."""
    return directory.path / f"{MOVE_NOTE}{move_id}"


def write_note(directory: DataDirectory, note: MoveNote) -> None:
    """Write a note; on the disk when this returns. Raises OSError."""
    name = partition_directory_name(note.partition)
    lines = [_HEAD, f"partition {name}", "coming" if note.is_coming else "going"]
    lines += [f"other {key}" for key in sorted(note.other)]
    body = ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")
    content = body + b"sum %08x\n" % crc32c.value(body)
    replace_file(directory.filesystem, note_path(directory, note.move_id), content)


def remove_note(directory: DataDirectory, move_id: str) -> None:
    """Remove a note if it exists; not on the disk yet. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        directory.filesystem.unlink(note_path(directory, move_id))


def read_note(filesystem: FileSystem, path: Path) -> MoveNote | None:
    """Return a note; None if it is torn or incomplete. Raises OSError."""
    move_id = path.name[len(MOVE_NOTE) :]
    if _MOVE_ID.fullmatch(move_id) is None:
        return None
    try:
        content = read_file(filesystem, path, max_bytes=_NOTE_BYTES_MAX)
    except ValueError:
        return None
    body, _, checksum = (content or b"")[:-1].rpartition(b"\n")
    body += b"\n"
    if checksum != b"sum %08x" % crc32c.value(body):
        return None
    head, partition, word, *others = body.decode("utf-8", "surrogateescape").splitlines()
    parsed = try_parse_partition_directory(partition.partition(" ")[2])
    if head != _HEAD or parsed is None:
        return None
    keys = frozenset(each.partition(" ")[2] for each in others)
    return MoveNote(move_id, parsed.topic_partition, word == "coming", keys)


class MoveNotes:
    """
    Notes of unfinished moves in a manager's directories.

    Args:
        directories: all data directories.
    """

    def __init__(self, directories: Sequence[DataDirectory]) -> None:
        self._directories = directories
        self._notes: dict[DataDirectory, list[MoveNote]] = {}

    def add(self, directory: DataDirectory, note: MoveNote) -> None:
        """Add a note of a move that was committed, and has not ended."""
        self._notes.setdefault(directory, []).append(note)

    def load(self, directory: DataDirectory) -> list[Path]:
        """
        Read the notes of an opened directory; return the directories to remove.

        Raises:
            LogStorageError: the disk refused.
        """
        found: list[MoveNote] = []
        deleted_paths: list[Path] = []
        filesystem, inventory = directory.filesystem, directory.inventory
        with storage_errors(directory.path, doing="reading the notes of moves"):
            for name in inventory.move_notes:
                note = read_note(filesystem, directory.path / name)
                if note is None:
                    filesystem.unlink(directory.path / name)
                    continue
                future = partition_directory_name(
                    note.partition, DirectoryState.FUTURE, note.move_id
                )
                if note.is_coming and filesystem.stat(directory.path / future) is not None:
                    deleted = partition_directory_name(note.partition, DirectoryState.DELETE)
                    filesystem.rename(directory.path / future, directory.path / deleted)
                    filesystem.sync_directory(directory.path)
                    deleted_paths.append(directory.path / deleted)
                    inventory.remove_kept_aside(future)
                    logger.info("%s: the move of %s is undone", directory.path, note.partition)
                    filesystem.unlink(directory.path / name)
                    continue
                found.append(note)
        inventory.clear_move_notes()
        self._notes[directory] = found
        return deleted_paths

    def loser(
        self, partition: ManagedPartition, other: ManagedPartition
    ) -> ManagedPartition | None:
        """Return the old copy, if two copies of a partition are the result of a move; else None."""
        for winner, loser in ((partition, other), (other, partition)):
            for note in self._notes.get(winner.directory, ()):
                if (
                    note.is_coming
                    and note.partition == winner.topic_partition
                    and note.other & loser.directory.keys
                ):
                    return loser
        return None

    def block_doubtful(self, registry: PartitionRegistry) -> None:
        """Block every partition that may have moved to a directory that is offline."""
        for directory, note in self._all():
            if note.is_coming or note.partition not in registry:
                continue
            partition = registry.get(note.partition)
            target = self._find(note.other)
            if partition.directory is not directory or (target is not None and target.was_read):
                continue
            where = "an unknown directory" if target is None else str(target.path)
            partition.block(
                LogOfflineError(
                    f"{note.partition} was being moved from {directory.path} to {where}, which is"
                    " offline: bring it online, or remove"
                    f" {note_path(directory, note.move_id)} to cancel the move",
                    path=directory.path / partition_directory_name(note.partition),
                ),
                target,
            )

    def resolve(self, registry: PartitionRegistry) -> None:
        """Remove the notes of moves that have ended or were not committed."""
        for directory, note in self._all():
            other = self._find(note.other)
            if not directory.is_online or other is None or not other.was_read:
                continue
            name = partition_directory_name(note.partition)
            if all(name in each.inventory.partitions for each in (directory, other)):
                # The old copy could not be deleted.
                continue
            if note.partition in registry and registry.get(note.partition).is_duplicate:
                continue
            try:
                remove_note(directory, note.move_id)
            except OSError as error:
                logger.warning("%s was not removed: %s", note_path(directory, note.move_id), error)
                continue
            self._notes[directory].remove(note)

    def _all(self) -> list[tuple[DataDirectory, MoveNote]]:
        return [(directory, note) for directory, notes in self._notes.items() for note in notes]

    def _find(self, keys: frozenset[str]) -> DataDirectory | None:
        return next((each for each in self._directories if each.keys & keys), None)
