"""Files of a commit journal: against a reference reader and writer, torn, damaged, hostile."""

from __future__ import annotations

import uuid
from pathlib import Path
from random import Random

import pytest

from kafkalog.errors import CorruptStateError
from kafkalog.files.posix import PosixFileSystem
from kafkalog.state.commit_journal import (
    CommitBuilder,
    JournalContent,
    JournalFile,
    PartitionName,
    create_journal_file,
    data_entries,
    journal_number,
    journal_path,
    read_entry,
    read_journal,
)
from tests.support.reference import crc32c
from tests.support.reference_journal import BLOCK, PlainCommit, commits_of, file_bytes

DISK = PosixFileSystem()
ID = b"ABCDEFGH"
ORDERS = PartitionName("orders-0", uuid.UUID(int=7))
OTHER = PartitionName("other-12", uuid.UUID(int=0))
ANCHOR = b"bytes before"


def add(builder: CommitBuilder, name: PartitionName, position: int, data: bytes) -> None:
    """Add an entry with an anchor."""
    builder.add_data(
        name, 40, position, (position, position + 1), memoryview(ANCHOR), memoryview(data)
    )


def write(file: JournalFile, builder: CommitBuilder, sequence: int, first_live: int = 0) -> None:
    """Write a commit."""
    file.append(builder, sequence, first_live)
    file.sync()
    file.accept(builder, sequence)


def plain(name: PartitionName, position: int, data: bytes, number: int = 0) -> tuple[object, ...]:
    """Return the plain entry that `add` makes."""
    numbers = 40, position, position, position + 1
    return ("data", number, *numbers, len(ANCHOR), crc32c(ANCHOR), data)


def data_of(content: JournalContent) -> dict[PartitionName, list[tuple[int, bytes | None]]]:
    """Return sequence and bytes of each entry that counts, as the files have them."""
    found: dict[PartitionName, list[tuple[int, bytes | None]]] = {}
    for name, entries in content.entries.items():
        for entry in entries:
            handle = DISK.open(entry.path)
            found.setdefault(name, []).append((entry.sequence, read_entry(handle, entry)))
            handle.close()
    return found


def test_written_commits_have_the_layout(tmp_path: Path) -> None:
    """By a reader that was written from the text."""
    path = journal_path(tmp_path, 3)
    file = create_journal_file(DISK, path, 16 * BLOCK)
    first = CommitBuilder(file.numbers)
    add(first, ORDERS, 100, b"one")
    add(first, OTHER, 200, b"x" * BLOCK)
    write(file, first, 5)
    second = CommitBuilder(file.numbers)
    second.add_void(OTHER)
    add(second, ORDERS, 103, b"two")
    write(file, second, 6, first_live=5)
    file.close()
    content = path.read_bytes()
    names = {0: ("orders-0", ORDERS.topic_id.bytes), 1: ("other-12", bytes(16))}
    commits = [
        PlainCommit(5, 0, names, [plain(ORDERS, 100, b"one"), plain(OTHER, 200, b"x" * BLOCK, 1)]),
        PlainCommit(6, 5, {}, [("void", 1), plain(ORDERS, 103, b"two")]),
    ]
    assert commits == commits_of(content)
    assert commits == commits_of(file_bytes(content[12:20], commits))
    assert {ORDERS: [(5, b"one"), (6, b"two")]} == data_of(read_journal(DISK, [path]))


def test_commit_in_pieces_is_read_as_one(tmp_path: Path) -> None:
    """Its entries are larger than the pieces in which it is written."""
    path = journal_path(tmp_path, 3)
    file = create_journal_file(DISK, path, 1024 * BLOCK)
    builder = CommitBuilder(file.numbers)
    sizes = [300_000, 1, 700_000, 262_144, 5_000]
    for number, size in enumerate(sizes):
        add(builder, ORDERS, 100 + number, bytes([number]) * size)
    write(file, builder, 5)
    last = CommitBuilder(file.numbers)
    add(last, ORDERS, 200, b"last")
    write(file, last, 6)
    file.close()
    expected = [(5, bytes([number]) * size) for number, size in enumerate(sizes)]
    assert {ORDERS: [*expected, (6, b"last")]} == data_of(read_journal(DISK, [path]))


def test_files_of_the_layout_are_read(tmp_path: Path) -> None:
    """Two files in turn: the second continues, and has the first commit that counts."""
    paths = [journal_path(tmp_path, number) for number in (1, 2)]
    names = {4: ("orders-0", ORDERS.topic_id.bytes)}
    first = [
        PlainCommit(sequence, 1, names, [plain(ORDERS, 100, b"%d" % sequence, 4)])
        for sequence in (1, 2, 3)
    ]
    second = [PlainCommit(4, 3, names, [plain(ORDERS, 100, b"4", 4)])]
    paths[0].write_bytes(file_bytes(ID, first))
    paths[1].write_bytes(file_bytes(b"87654321", second))
    content = read_journal(DISK, paths)
    assert ({ORDERS: [(3, b"3"), (4, b"4")]}, 4, []) == (
        data_of(content),
        content.last_sequence,
        content.damage,
    )


def test_a_reused_file_has_old_commits_after_the_newest(tmp_path: Path) -> None:
    """They do not count, whether or not the newest is whole."""
    paths = [journal_path(tmp_path, number) for number in (1, 2)]
    names = {0: ("orders-0", ORDERS.topic_id.bytes)}

    def commits(*sequences: int, live: int) -> list[PlainCommit]:
        return [
            PlainCommit(each, live, names, [plain(ORDERS, 100, b"%d" % each)]) for each in sequences
        ]

    paths[0].write_bytes(file_bytes(ID, commits(7, live=4) + commits(2, 3, live=1)))
    paths[1].write_bytes(file_bytes(ID, commits(4, 5, 6, live=4)))
    content = read_journal(DISK, paths)
    assert [4, 5, 6, 7] == [entry.sequence for entry in content.entries[ORDERS]]
    assert not content.damage
    # The same with a torn first commit: those after it do not count either.
    torn = bytearray(paths[0].read_bytes())
    torn[2 * BLOCK + 60] ^= 1
    paths[0].write_bytes(torn)
    content = read_journal(DISK, paths)
    assert [4, 5, 6] == [entry.sequence for entry in content.entries[ORDERS]]
    assert not content.damage


@pytest.mark.parametrize("seed", range(40))
def test_flipped_bits_lose_their_commit_alone_and_are_reported(tmp_path: Path, seed: int) -> None:
    """The last commit may be torn, which is no damage."""
    random = Random(seed)
    path = journal_path(tmp_path, 1)
    names = {0: ("orders-0", ORDERS.topic_id.bytes)}
    commits = [
        PlainCommit(each, 1, names, [plain(ORDERS, 100, random.randbytes(50))])
        for each in range(1, 9)
    ]
    content = bytearray(file_bytes(ID, commits))
    victim = random.randrange(8)
    at = (2 + victim) * BLOCK + random.randrange(48 + 24 + 8 + 52 + 50)
    content[at] ^= 1 << random.randrange(8)
    path.write_bytes(content)
    found = read_journal(DISK, [path])
    sequences = [entry.sequence for entry in found.entries[ORDERS]]
    assert [each for each in range(1, 9) if each != victim + 1] == sequences
    assert (victim != 7) == bool(found.damage)


@pytest.mark.parametrize("size", [0, 10, BLOCK, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 30])
def test_cut_files_have_nothing(tmp_path: Path, size: int) -> None:
    """Headers alone, or less, have no entries."""
    path = journal_path(tmp_path, 1)
    names = {0: ("orders-0", ORDERS.topic_id.bytes)}
    whole = file_bytes(ID, [PlainCommit(1, 1, names, [plain(ORDERS, 100, b"a")])])
    path.write_bytes(whole[:size])
    found = read_journal(DISK, [path])
    assert not found.entries
    # Without a header the content is unknown.
    assert (size < BLOCK) == bool(found.damage)


@pytest.mark.parametrize("seed", range(60))
def test_hostile_tables_raise_nothing(tmp_path: Path, seed: int) -> None:
    """Right checksums over random numbers: refused, and nothing large is read."""
    random = Random(seed)
    path = journal_path(tmp_path, 1)
    names = {0: ("orders-0", ORDERS.topic_id.bytes)}
    entries = [plain(ORDERS, 100, b"abc"), ("void", 0)]
    if random.random() < 0.5:
        numbers = [random.choice((0, 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1)) for _ in range(4)]
        entries[0] = ("data", random.choice((0, 1, 2**32 - 1)), *numbers, 255, 2**32 - 1, b"abc")
    content = bytearray(file_bytes(ID, [PlainCommit(1, 1, names, entries)]))
    start = 2 * BLOCK
    for _ in range(random.randrange(4)):
        content[start + random.randrange(32, 160)] = random.choice((0, 1, 127, 255))
    size = int.from_bytes(content[start + 32 : start + 36], "big")
    table = bytes(content[start + 48 : start + 48 + size])
    content[start + 44 : start + 48] = crc32c(bytes(content[start : start + 44]) + table).to_bytes(
        4, "big"
    )
    path.write_bytes(content)
    for entries_of_one in read_journal(DISK, [path]).entries.values():
        for entry in data_entries(entries_of_one):
            assert 0 <= entry.base_offset
            assert entry.anchor_size <= min(64, entry.position)
            assert entry.first_offset <= entry.end_offset


@pytest.mark.parametrize("name", ["../orders-0", "/etc/passwd-0", "orders", "..", "orders-0/x-0"])
def test_names_that_are_no_partition_directories_are_refused(tmp_path: Path, name: str) -> None:
    """A journal names no other directories."""
    path = journal_path(tmp_path, 1)
    entry = plain(ORDERS, 100, b"abc")
    path.write_bytes(file_bytes(ID, [PlainCommit(1, 1, {0: (name, bytes(16))}, [entry])]))
    assert not read_journal(DISK, [path]).entries


def test_a_file_larger_than_any_is_refused(tmp_path: Path) -> None:
    """By its size, before a byte is read."""
    path = journal_path(tmp_path, 1)
    path.touch()
    with path.open("r+b") as file:
        file.truncate(2**32 + 1)
    with pytest.raises(CorruptStateError, match=r"must be <= 4294967296 bytes"):
        read_journal(DISK, [path])


def test_names_of_files() -> None:
    """A number is written in one form only."""
    assert journal_number(journal_path(Path("/data"), 17).name) == 17
    for name in ("", "01", "x", "1.unapplied", "1.tmp", "-1", "1" * 19, "\u0661"):
        assert journal_number(f".kafkalog_journal.{name}") is None
    assert journal_number(".kafkalog_topics") is None


def test_commits_of_one_number_both_count(tmp_path: Path) -> None:
    """A write that failed may be whole, and the next commit is in the other file."""
    paths = [journal_path(tmp_path, number) for number in (1, 2)]
    names = {0: (ORDERS.directory, ORDERS.topic_id.bytes)}
    files = {0: b"stale", 1: b"1", 2: b"2"}, {0: b"stale", 2: b"2 again"}
    for path, texts in zip(paths, files, strict=True):
        commits = [
            PlainCommit(sequence, 1, names, [plain(ORDERS, 100, text)])
            for sequence, text in texts.items()
        ]
        path.write_bytes(file_bytes(ID, commits))
    content = read_journal(DISK, paths)
    assert not content.damage
    assert data_of(content) == {ORDERS: [(1, b"1"), (2, b"2"), (2, b"2 again")]}
