"""Files of the commit journal of a data directory: layout, writing, reading.

One append to one file makes the ends of many logs durable (`kafkalog.manager.commit_journal`). The
file is a redo log: an entry has bytes of one segment file and their position, or records of one
partition and their offsets, which no segment file has yet. Integers are big-endian.

`.kafkalog_journal.<number>` in the data directory, allocated at its full size, with zeros:

    blocks 0 and 1   the header, twice       4096 bytes each, zeros after the fields
    from block 2 on  commits, back to back   each begins at a multiple of 4096

Header:

    magic    8  "kafkalog"                   journal id  8  random, of this file
    version  2  1; 2 with records            crc         4  CRC-32C of the fields before
    zero     2

Commit: its header, then `count` entries, then the bytes of all data entries, in order, then zeros.

    magic    8  "kkcommit"                   table bytes 4  size of the entries
    journal id  8                            data bytes  4  size of the bytes after them
    sequence    8  one above the last        count       4  number of entries
    first live  8  see below                 crc         4  CRC-32C of header and entries

Entries, by their first byte:

    1  name  kind 1, zero 1, size 2, number 4, topic id 16 (zeros: none), name: the partition
             directory that `number` is in the later commits of this file
    2  data  kind 1, anchor size 1, zero 2, number 4, size 4, data crc 4, base offset of the
             segment 8, position 8, first offset 8, end offset 8, anchor crc 4
    3  void  kind 1, zero 3, number 4: all entries before it of the partition do not count
    4  records  kind 1, zero 3, number 4, size 4, data crc 4, first offset 8, end offset 8; their
             data is described, and read, by `kafkalog.state.journal_records`

The anchor is up to 64 bytes before the position in the same segment file: bytes of another
program's log are not continued. `data crc` is the CRC-32C of the data.

Commits below the `first live` of a later commit do not count: the logs' own files have their
bytes. A file is used again after a commit on the disk has cancelled all its commits; after its
newest commit are old ones, with lower sequences. A commit is whole if all checksums hold. A power
cut may tear the last commit, of which no caller was notified. All from `first live` to the last
must be whole, in whatever file: a missing one was damaged, and is reported; those after it count.

A commit begins with a new block, so that no write of a commit changes a block of another.

Thread-safety: none; the owner of the journal calls one method at a time.
"""

from __future__ import annotations

import contextlib
import secrets
import struct
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from typing_extensions import Buffer

from kafkalog._core.crc32c import value as crc32c
from kafkalog._engine.commit_table import CommitTable
from kafkalog.errors import CorruptStateError, LogOfflineError
from kafkalog.files.atomic_files import sync_directory_names
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.names import (
    COMMIT_JOURNAL,
    MAX_NAME_SIZE,
    temporary_path,
    try_parse_partition_directory,
)

__all__ = [
    "ANCHOR_BYTES",
    "UNAPPLIED",
    "CommitBuilder",
    "DataEntry",
    "JournalContent",
    "JournalEntry",
    "JournalFile",
    "PartitionName",
    "RecordsEntry",
    "create_journal_file",
    "data_entries",
    "ensure_applied",
    "journal_number",
    "journal_path",
    "read_entry",
    "read_journal",
    "records_entries",
    "remove_journal_files",
]

BLOCK_BYTES: Final = 4096
# Size from which a commit is written in pieces.
_PIECE_BYTES: Final = 1 << 18
ANCHOR_BYTES: Final = 64
# Larger files are not read: none was made by this module.
FILE_BYTES_MAX: Final = 2**32

# Suffix of files that are kept because they could not be applied.
UNAPPLIED: Final = ".unapplied"

_MAGIC: Final = b"kafkalog"
_COMMIT_MAGIC: Final = b"kkcommit"
# Without and with entries of records, which earlier versions of this library do not know.
_VERSIONS: Final = (1, 2)
_FILE_HEADER: Final = struct.Struct(">8sHH8s")
_SUM: Final = struct.Struct(">I")
_COMMIT: Final = struct.Struct(">8s8sqqIII")
_NAME: Final = struct.Struct(">BBHI16s")
_DATA: Final = struct.Struct(">BBHIIIqqqqI")
_VOID: Final = struct.Struct(">BBHI")
_RECORDS: Final = struct.Struct(">BBHIIIqq")
_NAME_KIND: Final = 1
_DATA_KIND: Final = 2
_VOID_KIND: Final = 3
_RECORDS_KIND: Final = 4
_COMMIT_BYTES: Final = _COMMIT.size + _SUM.size
_ZERO_BYTES: Final = 1024 * 1024


class PartitionName(NamedTuple):
    """A partition: the name of its directory, and its topic id (zeros: none)."""

    directory: str
    topic_id: uuid.UUID


def journal_path(directory: Path, number: int) -> Path:
    """Return the path of a journal file."""
    return directory / f"{COMMIT_JOURNAL}{number}"


def journal_number(name: str) -> int | None:
    """Return the number of a journal file, None for another name."""
    number = name.removeprefix(COMMIT_JOURNAL)
    is_number = number != name and number.isascii() and number.isdigit() and len(number) < 19
    return int(number) if is_number and number == str(int(number)) else None


def ensure_applied(filesystem: FileSystem, directory: Path) -> None:
    """
    Ensure that a data directory has no commit journal, for a caller that opens one of its logs.

    Raises:
        LogOfflineError: it has one.
        OSError: the directory cannot be listed.
    """
    names = [name for name in filesystem.list(directory) if journal_number(name) is not None]
    if names:
        raise LogOfflineError(
            f"{directory} has a commit journal that was not applied ({names[0]}): open the data"
            " directory with a manager once, as `kafkalog recover` does",
            path=directory / names[0],
        )


# ------------------------------------------------------------------------------------------ writing


class CommitBuilder:
    """
    The bytes of one commit.

    Args:
        numbers: the numbers of partitions in the file; names that are missing are added when the
            commit was written (`JournalFile.accept`).

    Attributes:
        table: the entries.
        new_numbers: the numbers of names that are added by this commit.
    """

    def __init__(self, numbers: dict[PartitionName, int]) -> None:
        self._numbers = numbers
        self.new_numbers: dict[PartitionName, int] = {}
        self.table = CommitTable()

    @property
    def size_bytes(self) -> int:
        """Size of the commit in the file."""
        return _aligned(_COMMIT_BYTES + self.table.table_bytes + self.table.data_bytes)

    @property
    def has_entries(self) -> bool:
        """False for a commit that only records which commits are needed no more."""
        return self.table.entry_count > 0

    def add_data(
        self,
        name: PartitionName,
        base_offset: int,
        position: int,
        offsets: tuple[int, int],
        bytes_before: Buffer,
        data: Buffer,
    ) -> None:
        """
        Add bytes of a segment.

        Args:
            name: the partition.
            base_offset: names the segment.
            position: position of the bytes in its file.
            offsets: first offset, and one above the last.
            bytes_before: up to ANCHOR_BYTES before the position.
            data: whole batches.
        """
        number = self.number(name)
        self.table.add_data(number, base_offset, position, *offsets, bytes_before, data)

    def add_copy(self, name: PartitionName, entry: JournalEntry, data: bytes) -> None:
        """Add an entry of another file, with its bytes."""
        if isinstance(entry, RecordsEntry):
            self.add_records(name, entry.first_offset, entry.end_offset, data)
            return
        place = entry.base_offset, entry.position, entry.first_offset, entry.end_offset
        number = self.number(name)
        fields = _DATA_KIND, entry.anchor_size, 0, number, len(data), entry.checksum, *place
        self.table.add_entry(_DATA.pack(*fields, entry.anchor_checksum), data)

    def add_records(
        self, name: PartitionName, first_offset: int, end_offset: int, data: bytes
    ) -> None:
        """
        Add records.

        Args:
            name: the partition.
            first_offset, end_offset: first offset, and one above the last.
            data: the records (`encode_records`).
        """
        fields = _RECORDS_KIND, 0, 0, self.number(name), len(data), crc32c(data)
        self.table.add_entry(_RECORDS.pack(*fields, first_offset, end_offset), data)

    def add_void(self, name: PartitionName) -> None:
        """Add that the entries of a partition before this one do not count."""
        number = self.number(name)
        self.table.add_entry(_VOID.pack(_VOID_KIND, 0, 0, number))

    def number(self, name: PartitionName) -> int:
        """Return the number of a partition in the file; add its name if it has none."""
        number = self._numbers.get(name)
        if number is None:
            number = self.new_numbers.get(name)
        if number is None:
            number = self.new_numbers[name] = len(self._numbers) + len(self.new_numbers)
            text = name.directory.encode()
            entry = _NAME.pack(_NAME_KIND, 0, len(text), number, name.topic_id.bytes) + text
            self.table.add_entry(entry)
        return number

    def build(self, journal_id: bytes, sequence: int, first_live: int) -> Iterator[Buffer]:
        """Yield the commit, padded to whole blocks, in pieces for one write each."""
        table, data = self.table.entries(), self.table.data()
        head = _COMMIT.pack(
            _COMMIT_MAGIC,
            journal_id,
            sequence,
            first_live,
            len(table),
            len(data),
            self.table.entry_count,
        )
        checksum = _SUM.pack(crc32c(table, crc32c(head)))
        padding = bytes(self.size_bytes - _COMMIT_BYTES - len(table) - len(data))
        if len(data) < _PIECE_BYTES:
            yield b"".join([head, checksum, table, data, padding])
            return
        # To join all would keep the interpreter from other threads for a millisecond in 4 MiB.
        yield b"".join([head, checksum, table])
        yield data
        yield padding


class JournalFile:
    """
    One journal file that takes commits.

    Attributes:
        path, size_bytes: the file.
        last_sequence: sequence of its last commit, -1 without one.
        numbers: the numbers of partitions that later commits may use.
    """

    def __init__(self, path: Path, handle: FileHandle, size_bytes: int, journal_id: bytes) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self.last_sequence = -1
        self.numbers: dict[PartitionName, int] = {}
        self._handle = handle
        self._journal_id = journal_id
        self._position = 2 * BLOCK_BYTES

    @property
    def free_bytes(self) -> int:
        """Space for commits."""
        return self.size_bytes - self._position

    def rewind(self) -> None:
        """Begin again at the start: no commit of the file is needed any more."""
        self._position = 2 * BLOCK_BYTES
        self.numbers = {}

    def append(self, builder: CommitBuilder, sequence: int, first_live: int) -> None:
        """
        Write a commit that fits, not yet on the disk.

        Raises:
            OSError: it was not written; the next commit takes its place.
        """
        position = self._position
        for piece in builder.build(self._journal_id, sequence, first_live):
            self._handle.pwrite(piece, position)
            position += memoryview(piece).nbytes

    def accept(self, builder: CommitBuilder, sequence: int) -> None:
        """Take note that a written commit is on the disk."""
        self._position += builder.size_bytes
        self.numbers |= builder.new_numbers
        self.last_sequence = sequence

    def sync(self) -> None:
        """Put what was written on the disk; OSError if the disk refuses."""
        self._handle.sync()

    def close(self) -> None:
        """Close the file."""
        self._handle.close()


def create_journal_file(
    filesystem: FileSystem, path: Path, size_bytes: int, *, takes_records: bool = False
) -> JournalFile:
    """
    Create a journal file, with all its blocks; on the disk when this returns.

    Args:
        filesystem: the disk.
        path: of the file.
        size_bytes: its size.
        takes_records: whether it may get entries of records.

    Crash points: before the rename is on the disk there is a `.tmp`, which the next start removes.

    Raises:
        OSError: the disk refused; nothing is left.
    """
    journal_id = secrets.token_bytes(8)
    fields = _FILE_HEADER.pack(_MAGIC, _VERSIONS[takes_records], 0, journal_id)
    header = (fields + _SUM.pack(crc32c(fields))).ljust(BLOCK_BYTES, b"\0")
    temporary = temporary_path(path)
    handle = filesystem.create_new(temporary)
    try:
        handle.pwrite(header * 2, 0)
        zeros = memoryview(bytes(_ZERO_BYTES))
        for position in range(2 * BLOCK_BYTES, size_bytes, _ZERO_BYTES):
            handle.pwrite(zeros[: size_bytes - position], position)
        handle.sync()
        filesystem.rename(temporary, path)
        sync_directory_names(filesystem, path.parent)
        opened = filesystem.open(path, write=True)
    except OSError:
        # Free the space: the cause may be a full disk. The first error is raised.
        with contextlib.suppress(OSError):
            remove_journal_files(filesystem, [temporary, path])
        raise
    finally:
        handle.close()
    return JournalFile(path, opened, size_bytes, journal_id)


def remove_journal_files(filesystem: FileSystem, paths: list[Path]) -> None:
    """Remove files; errors of the disk are raised, a missing file is none."""
    for path in paths:
        try:
            filesystem.unlink(path)
        except FileNotFoundError:
            continue


def _aligned(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


# ------------------------------------------------------------------------------------------ reading


class DataEntry(NamedTuple):
    """
    Bytes of a segment in a journal file.

    Attributes:
        sequence: sequence of the commit.
        path, file_position: where the journal has the bytes.
        size, checksum: their number, and their CRC-32C.
        base_offset, position: the segment, and the position of the bytes in its file.
        first_offset, end_offset: offsets of the bytes.
        anchor_size, anchor_checksum: the bytes before them in the segment file.
    """

    sequence: int
    path: Path
    file_position: int
    size: int
    checksum: int
    base_offset: int
    position: int
    first_offset: int
    end_offset: int
    anchor_size: int
    anchor_checksum: int


class RecordsEntry(NamedTuple):
    """
    Records in a journal file.

    Attributes:
        sequence, path, file_position, size, checksum: as of a `DataEntry`.
        first_offset, end_offset: their offsets.
    """

    sequence: int
    path: Path
    file_position: int
    size: int
    checksum: int
    first_offset: int
    end_offset: int


JournalEntry: TypeAlias = DataEntry | RecordsEntry


def data_entries(entries: Iterable[JournalEntry]) -> list[DataEntry]:
    """Return the entries with bytes of segments."""
    return [each for each in entries if isinstance(each, DataEntry)]


def records_entries(entries: Iterable[JournalEntry]) -> list[RecordsEntry]:
    """Return the entries with records."""
    return [each for each in entries if isinstance(each, RecordsEntry)]


@dataclass(slots=True)
class JournalContent:
    """
    Entries of journal files for a recovery.

    Attributes:
        entries: by partition, in order.
        last_sequence: sequence of the last commit, -1 without one.
        damage: what is damaged; a commit that a power cut tore is no damage.
    """

    entries: dict[PartitionName, list[JournalEntry]] = field(default_factory=dict)
    last_sequence: int = -1
    damage: list[str] = field(default_factory=list)

    def entries_of(self, directory_name: str) -> list[tuple[PartitionName, list[JournalEntry]]]:
        """Return the entries of all topics whose partition had a directory of this name."""
        return [each for each in self.entries.items() if each[0].directory == directory_name]

    def drop(self, name: PartitionName) -> None:
        """Forget the entries of a partition."""
        self.entries.pop(name, None)


class _Commit(NamedTuple):
    """One whole commit; `end` is the position after it."""

    sequence: int
    first_live: int
    end: int
    steps: list[tuple[PartitionName, JournalEntry | None]]


def read_journal(filesystem: FileSystem, paths: list[Path]) -> JournalContent:
    """
    Read journal files; return the entries that count, in order.

    Raises:
        OSError: a file cannot be read.
        CorruptStateError: a name of a journal file is not that of a file of its size.
    """
    content = JournalContent()
    commits: list[_Commit] = []
    for path in paths:
        handle = filesystem.open(path)
        try:
            commits += _FileReader(path, handle, content.damage).commits()
        finally:
            handle.close()
    commits.sort(key=lambda each: each.sequence)
    first_live = max((each.first_live for each in commits), default=0)
    expected = first_live
    for commit in commits:
        # A commit whose write failed may be whole; the next one, in the other file, has its number.
        is_repeated = commit.sequence == content.last_sequence
        content.last_sequence = commit.sequence
        if commit.sequence < first_live or (commit.sequence < expected and not is_repeated):
            continue
        if commit.sequence > expected:
            content.damage.append(
                f"commits {expected} to {commit.sequence - 1} are missing before {commit.sequence}"
            )
        expected = commit.sequence + 1
        for name, entry in commit.steps:
            if entry is None:
                content.entries.pop(name, None)
            else:
                content.entries.setdefault(name, []).append(entry)
    return content


class _FileReader:
    """Reads the commits of one file; `damage` gets what is wrong with it."""

    def __init__(self, path: Path, handle: FileHandle, damage: list[str]) -> None:
        self._path = path
        self._handle = handle
        self._size = handle.size()
        self._damage = damage
        self._names: dict[int, PartitionName] = {}
        self._has_records = False
        if self._size > FILE_BYTES_MAX:
            raise CorruptStateError(
                f"{path}: the size must be <= {FILE_BYTES_MAX} bytes, got {self._size}", path=path
            )

    def commits(self) -> Iterator[_Commit]:
        """Yield the whole commits of the newest cycle, or of older ones if it has none."""
        journal_id = self._journal_id()
        if journal_id is None:
            self._damage.append(f"{self._path}: both headers are damaged")
            return
        position, last = 2 * BLOCK_BYTES, -1
        while position < self._size:
            commit = self._read(position, journal_id, last)
            if commit is None:
                position += BLOCK_BYTES
                continue
            yield commit
            position, last = commit.end, commit.sequence

    def _journal_id(self) -> bytes | None:
        for position in (0, BLOCK_BYTES):
            data = self._handle.pread(_FILE_HEADER.size + _SUM.size, position)
            if len(data) < _FILE_HEADER.size + _SUM.size:
                return None
            magic, version, _zero, journal_id = _FILE_HEADER.unpack_from(data)
            (checksum,) = _SUM.unpack_from(data, _FILE_HEADER.size)
            is_whole = checksum == crc32c(data[: _FILE_HEADER.size])
            if is_whole and magic == _MAGIC and version in _VERSIONS:
                self._has_records = version > _VERSIONS[0]
                return bytes(journal_id)
        return None

    def _read(self, position: int, journal_id: bytes, last: int) -> _Commit | None:
        """Return the commit at a position; None if none is whole with a higher sequence."""
        head = self._handle.pread(_COMMIT_BYTES, position)
        if len(head) < _COMMIT_BYTES or head[:16] != _COMMIT_MAGIC + journal_id:
            return None
        _magic, _id, sequence, first_live, table_size, data_size, count = _COMMIT.unpack_from(head)
        end = position + _aligned(_COMMIT_BYTES + table_size + data_size)
        if sequence <= last or end > self._size:
            return None
        table = self._handle.pread(table_size, position + _COMMIT_BYTES)
        (checksum,) = _SUM.unpack_from(head, _COMMIT.size)
        if crc32c(table, crc32c(head[: _COMMIT.size])) != checksum:
            return None
        data_position = position + _COMMIT_BYTES + table_size
        steps = self._steps(table, count, sequence, data_position, data_position + data_size)
        return None if steps is None else _Commit(sequence, first_live, end, steps)

    def _steps(
        self, table: bytes, count: int, sequence: int, position: int, end: int
    ) -> list[tuple[PartitionName, JournalEntry | None]] | None:
        """Return the entries of a commit; None if it is not whole."""
        steps: list[tuple[PartitionName, JournalEntry | None]] = []
        names = dict(self._names)
        at = 0
        try:
            for _ in range(count):
                kind = table[at]
                if kind == _NAME_KIND:
                    _kind, _zero, size, number, topic_id = _NAME.unpack_from(table, at)
                    at += _NAME.size
                    names[number] = _partition_name(table[at : at + size], size, topic_id)
                    at += size
                elif kind == _DATA_KIND:
                    entry, number = self._data_entry(table, at, sequence, position)
                    steps.append((names[number], entry))
                    at += _DATA.size
                    position += entry.size
                elif kind == _RECORDS_KIND and self._has_records:
                    records, number = self._records_entry(table, at, sequence, position)
                    steps.append((names[number], records))
                    at += _RECORDS.size
                    position += records.size
                elif kind == _VOID_KIND:
                    *_fields, number = _VOID.unpack_from(table, at)
                    steps.append((names[number], None))
                    at += _VOID.size
                else:
                    return None
        except (struct.error, LookupError, ValueError):
            return None
        if position != end or at != len(table):
            return None
        for _name, entry_or_none in steps:
            if entry_or_none is not None and read_entry(self._handle, entry_or_none) is None:
                return None
        self._names = names
        return steps

    def _data_entry(
        self, table: bytes, at: int, sequence: int, position: int
    ) -> tuple[DataEntry, int]:
        fields = _DATA.unpack_from(table, at)
        _kind, anchor_size, _zero, number, size, checksum, base, segment_position = fields[:8]
        first_offset, end_offset, anchor_checksum = fields[8:]
        if (
            min(base, segment_position, first_offset) < 0
            or end_offset < first_offset
            or anchor_size > min(ANCHOR_BYTES, segment_position)
        ):
            raise ValueError("an entry has impossible numbers")
        entry = DataEntry(
            sequence,
            self._path,
            position,
            size,
            checksum,
            base,
            segment_position,
            first_offset,
            end_offset,
            anchor_size,
            anchor_checksum,
        )
        return entry, number

    def _records_entry(
        self, table: bytes, at: int, sequence: int, position: int
    ) -> tuple[RecordsEntry, int]:
        fields = _RECORDS.unpack_from(table, at)
        _kind, _zero, _zeros, number, size, checksum, first_offset, end_offset = fields
        if first_offset < 0 or end_offset <= first_offset:
            raise ValueError("an entry has impossible numbers")
        place = self._path, position, size, checksum
        return RecordsEntry(sequence, *place, first_offset, end_offset), number


def read_entry(handle: FileHandle, entry: JournalEntry) -> bytes | None:
    """Return the bytes of an entry, None if they are not those that were written."""
    data = handle.pread(entry.size, entry.file_position)
    is_whole = len(data) == entry.size and crc32c(data) == entry.checksum
    return data if is_whole else None


def _partition_name(text: bytes, size: int, topic_id: bytes) -> PartitionName:
    if len(text) != size or not 0 < size <= MAX_NAME_SIZE:
        raise ValueError("a name has an impossible size")
    name = text.decode("ascii")
    # Not a path to somewhere else.
    if try_parse_partition_directory(name) is None:
        raise ValueError(f"a name must be that of a partition directory, got {name!r}")
    return PartitionName(name, uuid.UUID(bytes=topic_id))
