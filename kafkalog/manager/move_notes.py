"""Notes of partitions that move between data directories, and what a start makes of them.

A move writes one note `.kafkalog_move.<id>` into either directory before it begins, and removes
both when it has ended. Each names the partition, the other directory by id and path, and whether
the partition comes or goes. The copy grows in `<partition>.<id>-future`, as a broker's does.

What a start, or a directory that comes back, finds:

  * the `-future` directory: the move had not come to its commit. It is renamed `-delete`, and goes;
  * no such directory, and the partition in both: the commit was made. The copy that came counts,
    the one that goes is deleted;
  * the partition only where it goes, and the other directory is read: nothing was committed;
  * the partition only where it goes, and the other directory is offline: which one counts is not
    known. It is not opened until that directory is back, or the note is removed by hand;
  * the partition only where it came: the move had ended but for its notes.

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
    A note.

    Attributes:
        move_id: 32 hexadecimal digits, the same in both notes and in the `-future` directory.
        partition: what moves.
        is_coming: whether it comes to the directory of the note, or leaves it.
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
    """Remove a note, if it is there; not on the disk yet. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        directory.filesystem.unlink(note_path(directory, move_id))


def read_note(filesystem: FileSystem, path: Path) -> MoveNote | None:
    """Return a note; None where it is torn, or was not finished. Raises OSError."""
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
    The notes of a manager's directories that were not seen to end.

    Args:
        directories: all of them.
    """

    def __init__(self, directories: Sequence[DataDirectory]) -> None:
        self._directories = directories
        self._notes: dict[DataDirectory, list[MoveNote]] = {}

    def add(self, directory: DataDirectory, note: MoveNote) -> None:
        """Take note of a note whose move was committed, and has not ended."""
        self._notes.setdefault(directory, []).append(note)

    def load(self, directory: DataDirectory) -> list[Path]:
        """
        Read the notes of a directory that was opened; return what is to be removed.

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
                    if future in inventory.kept_aside:
                        inventory.kept_aside.remove(future)
                    logger.info("%s: the move of %s is undone", directory.path, note.partition)
                    filesystem.unlink(directory.path / name)
                    continue
                found.append(note)
        inventory.move_notes.clear()
        self._notes[directory] = found
        return deleted_paths

    def loser(
        self, partition: ManagedPartition, other: ManagedPartition
    ) -> ManagedPartition | None:
        """Return which of two copies of a partition a move has left behind, None for neither."""
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
        """Let no partition be opened that may have moved to a directory that is offline."""
        for directory, note in self._all():
            if note.is_coming or note.partition not in registry:
                continue
            partition = registry.get(note.partition)
            target = self._find(note.other)
            if partition.directory is not directory or (target is not None and target.was_read):
                continue
            where = "a directory that is not here" if target is None else str(target.path)
            partition.block(
                LogOfflineError(
                    f"{note.partition} was being moved from {directory.path} to {where}, which is"
                    " offline: bring it online, or remove"
                    f" {note_path(directory, note.move_id)} if the move is to be forgotten",
                    path=directory.path / partition_directory_name(note.partition),
                ),
                target,
            )

    def resolve(self, registry: PartitionRegistry) -> None:
        """Remove the notes whose moves have ended, or were never committed."""
        for directory, note in self._all():
            other = self._find(note.other)
            if not directory.is_online or other is None or not other.was_read:
                continue
            name = partition_directory_name(note.partition)
            if all(name in each.inventory.partitions for each in (directory, other)):
                # The copy that was left behind refused to go.
                continue
            if note.partition in registry and registry.get(note.partition).is_duplicate:
                continue
            try:
                remove_note(directory, note.move_id)
            except OSError as error:
                logger.warning("%s stays: %s", note_path(directory, note.move_id), error)
                continue
            self._notes[directory].remove(note)

    def _all(self) -> list[tuple[DataDirectory, MoveNote]]:
        return [(directory, note) for directory, notes in self._notes.items() for note in notes]

    def _find(self, keys: frozenset[str]) -> DataDirectory | None:
        return next((each for each in self._directories if each.keys & keys), None)
