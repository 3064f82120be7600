"""Files of a commit journal with records: against the reference, versions, copies, hostile."""

from __future__ import annotations

import uuid
from pathlib import Path
from random import Random

import pytest

from kafkalog.files.posix import PosixFileSystem
from kafkalog.state.commit_journal import (
    CommitBuilder,
    DataEntry,
    JournalContent,
    JournalFile,
    PartitionName,
    RecordsEntry,
    create_journal_file,
    data_entries,
    journal_path,
    read_entry,
    read_journal,
    records_entries,
)
from kafkalog.state.journal_records import JournalRecord, decode_records, encode_records
from tests.support.reference import crc32c
from tests.support.reference_journal import (
    BLOCK,
    PlainCommit,
    commits_of,
    file_bytes,
    record_bytes,
    records_of,
)

DISK = PosixFileSystem()
ID = b"ABCDEFGH"
ORDERS = PartitionName("orders-0", uuid.UUID(int=7))
OTHER = PartitionName("other-12", uuid.UUID(int=0))
NAMES = {0: (ORDERS.directory, ORDERS.topic_id.bytes)}
RECORDS = [JournalRecord(5, b"k", b"one"), JournalRecord(6, None, None)]
DATA = encode_records(RECORDS)
BATCH = b"a batch"


def write(file: JournalFile, builder: CommitBuilder, sequence: int) -> None:
    """Write a commit."""
    file.append(builder, sequence, 1)
    file.sync()
    file.accept(builder, sequence)


def new_file(directory: Path, number: int) -> JournalFile:
    """Create a file that may have records."""
    return create_journal_file(
        DISK, journal_path(directory, number), 16 * BLOCK, takes_records=True
    )


def add_batch(builder: CommitBuilder, name: PartitionName) -> None:
    """Add bytes of a segment."""
    builder.add_data(name, 40, 100, (60, 61), memoryview(b"tail"), memoryview(BATCH))


def kinds_of(content: JournalContent, name: PartitionName) -> list[tuple[type, int, bytes | None]]:
    """Return type, sequence and bytes of the entries of a partition."""
    found = []
    for entry in content.entries.get(name, []):
        handle = DISK.open(entry.path)
        found.append((type(entry), entry.sequence, read_entry(handle, entry)))
        handle.close()
    return found


def test_written_records_have_the_layout(tmp_path: Path) -> None:
    """By a reader that was written from the text, and by its writer."""
    file = new_file(tmp_path, 3)
    first = CommitBuilder(file.numbers)
    first.add_records(ORDERS, 70, 72, DATA)
    add_batch(first, OTHER)
    write(file, first, 1)
    second = CommitBuilder(file.numbers)
    second.add_records(OTHER, 61, 62, encode_records(RECORDS[:1]))
    second.add_records(ORDERS, 72, 73, encode_records(RECORDS[1:]))
    write(file, second, 2)
    file.close()
    content = file.path.read_bytes()
    batch = ("data", 1, 40, 100, 60, 61, 4, crc32c(b"tail"), BATCH)
    plain = [(*each,) for each in RECORDS]
    commits = [
        PlainCommit(
            1,
            1,
            NAMES | {1: (OTHER.directory, bytes(16))},
            [("records", 0, 70, 72, record_bytes(plain)), batch],
        ),
        PlainCommit(
            2,
            1,
            {},
            [
                ("records", 1, 61, 62, record_bytes(plain[:1])),
                ("records", 0, 72, 73, record_bytes(plain[1:])),
            ],
        ),
    ]
    assert commits_of(content) == commits
    assert commits_of(file_bytes(content[12:20], commits, version=2)) == commits
    found = read_journal(DISK, [file.path])
    assert (found.last_sequence, found.damage) == (2, [])
    entries = records_entries(found.entries[ORDERS])
    assert [(each.first_offset, each.end_offset) for each in entries] == [(70, 72), (72, 73)]
    assert [each[0] for each in kinds_of(found, OTHER)] == [DataEntry, RecordsEntry]
    assert [each[2] for each in kinds_of(found, OTHER)] == [BATCH, record_bytes(plain[:1])]
    assert records_of(DATA) == plain


def test_records_of_the_reference_are_read(tmp_path: Path) -> None:
    """Random ones, at random offsets."""
    random = Random(11)
    path = journal_path(tmp_path, 1)
    expected: list[tuple[int, list[JournalRecord]]] = []
    commits = []
    for sequence in range(1, 9):
        records = [
            JournalRecord(
                random.randrange(2**48), random.choice((None, b"", b"k")), random.randbytes(number)
            )
            for number in range(random.randrange(1, 9))
        ]
        first = random.randrange(2**40)
        expected.append((first, records))
        body = record_bytes([(*each,) for each in records])
        plain = ("records", 0, first, first + len(records), body)
        commits.append(PlainCommit(sequence, 1, NAMES, [plain]))
    path.write_bytes(file_bytes(ID, commits, version=2))
    found = []
    for entry in records_entries(read_journal(DISK, [path]).entries[ORDERS]):
        handle = DISK.open(entry.path)
        data = read_entry(handle, entry)
        handle.close()
        assert data is not None
        records = decode_records(data, entry.end_offset - entry.first_offset)
        found.append((entry.first_offset, records))
    assert found == expected


def test_records_in_a_file_of_version_1_are_no_whole_commit(tmp_path: Path) -> None:
    """The commits before and after it count, and it is reported."""
    path = journal_path(tmp_path, 1)
    batch = ("data", 0, 40, 100, 60, 61, 4, crc32c(b"tail"), BATCH)
    commits = [
        PlainCommit(1, 1, NAMES, [batch]),
        PlainCommit(2, 1, {}, [("records", 0, 61, 63, DATA)]),
        PlainCommit(3, 1, {}, [batch]),
    ]
    path.write_bytes(file_bytes(ID, commits, version=1))
    found = read_journal(DISK, [path])
    assert kinds_of(found, ORDERS) == [(DataEntry, 1, BATCH), (DataEntry, 3, BATCH)]
    assert found.damage == ["commits 2 to 2 are missing before 3"]
    path.write_bytes(file_bytes(ID, commits, version=2))
    found = read_journal(DISK, [path])
    assert [each[1] for each in kinds_of(found, ORDERS)] == [1, 2, 3]
    assert not found.damage


@pytest.mark.parametrize("version", [0, 3, 255])
def test_file_of_another_version_is_damaged(tmp_path: Path, version: int) -> None:
    """Nothing of it is read."""
    path = journal_path(tmp_path, 1)
    commit = PlainCommit(1, 1, NAMES, [("records", 0, 61, 63, DATA)])
    path.write_bytes(file_bytes(ID, [commit], version=version))
    found = read_journal(DISK, [path])
    assert not found.entries
    assert "both headers are damaged" in found.damage[0]


def test_version_is_2_only_for_files_that_take_records(tmp_path: Path) -> None:
    """Earlier versions of this library read the other files."""
    for number, takes_records in enumerate((False, True), 1):
        path = journal_path(tmp_path, number)
        create_journal_file(DISK, path, 4 * BLOCK, takes_records=takes_records).close()
        assert path.read_bytes()[8:10] == bytes([0, number])


def test_copies_are_equal_entries(tmp_path: Path) -> None:
    """Of both kinds, with a number of the other file."""
    file = new_file(tmp_path, 1)
    builder = CommitBuilder(file.numbers)
    builder.number(OTHER)
    add_batch(builder, ORDERS)
    builder.add_records(ORDERS, 61, 63, DATA)
    write(file, builder, 1)
    file.close()
    entries = read_journal(DISK, [file.path]).entries[ORDERS]
    copy = new_file(tmp_path, 2)
    builder = CommitBuilder(copy.numbers)
    for entry in entries:
        handle = DISK.open(entry.path)
        data = read_entry(handle, entry)
        handle.close()
        assert data is not None
        builder.add_copy(ORDERS, entry, data)
    write(copy, builder, 2)
    copy.close()
    copied = read_journal(DISK, [copy.path]).entries[ORDERS]
    # The first three fields are sequence, path and position in the file.
    assert [each[3:] for each in copied] == [each[3:] for each in entries]
    assert [each.sequence for each in copied] == [2, 2]
    (original,) = commits_of(file.path.read_bytes())
    (copied_commit,) = commits_of(copy.path.read_bytes())
    assert copied_commit.names == NAMES
    assert [(each[0], *each[2:]) for each in copied_commit.entries] == [
        (each[0], *each[2:]) for each in original.entries
    ]


def test_void_entry_cancels_both_kinds_before_it(tmp_path: Path) -> None:
    """Of its partition alone, in its own commit as well."""
    file = new_file(tmp_path, 1)
    for sequence in (1, 2):
        builder = CommitBuilder(file.numbers)
        for name in (ORDERS, OTHER):
            add_batch(builder, name)
            builder.add_records(name, 61, 63, DATA)
        if sequence == 2:
            builder.add_void(ORDERS)
            builder.add_records(ORDERS, 50, 52, DATA)
        write(file, builder, sequence)
    file.close()
    content = read_journal(DISK, [file.path])
    (left,) = content.entries[ORDERS]
    assert isinstance(left, RecordsEntry)
    assert (left.sequence, left.first_offset, left.end_offset) == (2, 50, 52)
    assert len(data_entries(content.entries[OTHER])) == 2
    assert len(records_entries(content.entries[OTHER])) == 2


@pytest.mark.parametrize("seed", range(40))
def test_flipped_bits_lose_their_commit_alone(tmp_path: Path, seed: int) -> None:
    """The last one may be torn; any other is reported."""
    random = Random(seed)
    path = journal_path(tmp_path, 1)
    entry = ("records", 0, 61, 63, DATA)
    commits = [PlainCommit(each, 1, NAMES, [entry]) for each in range(1, 9)]
    content = bytearray(file_bytes(ID, commits, version=2))
    victim = random.randrange(8)
    at = (2 + victim) * BLOCK + random.randrange(48 + 24 + 8 + 32 + len(DATA))
    content[at] ^= 1 << random.randrange(8)
    path.write_bytes(content)
    found = read_journal(DISK, [path])
    sequences = [each.sequence for each in found.entries[ORDERS]]
    assert sequences == [each for each in range(1, 9) if each != victim + 1]
    assert bool(found.damage) == (victim != 7)


@pytest.mark.parametrize("seed", range(60))
def test_hostile_tables_raise_nothing(tmp_path: Path, seed: int) -> None:
    """Right checksums over random numbers: refused, or the records are."""
    random = Random(seed)
    path = journal_path(tmp_path, 1)
    numbers = [random.choice((0, 1, 2, 2**31, 2**63 - 1, 2**63, 2**64 - 1)) for _ in range(2)]
    entry = ("records", random.choice((0, 0, 1, 2**32 - 1)), *numbers, DATA)
    content = bytearray(file_bytes(ID, [PlainCommit(1, 1, NAMES, [entry])], version=2))
    start = 2 * BLOCK
    for _ in range(random.randrange(4)):
        content[start + random.randrange(32, 112)] = random.choice((0, 1, 4, 127, 255))
    size = int.from_bytes(content[start + 32 : start + 36], "big")
    table = bytes(content[start + 48 : start + 48 + size])
    checksum = crc32c(bytes(content[start : start + 44]) + table)
    content[start + 44 : start + 48] = checksum.to_bytes(4, "big")
    path.write_bytes(content)
    for entries in read_journal(DISK, [path]).entries.values():
        for found in records_entries(entries):
            assert 0 <= found.first_offset < found.end_offset
            handle = DISK.open(found.path)
            data = read_entry(handle, found)
            handle.close()
            assert data == DATA
            if found.end_offset - found.first_offset != len(RECORDS):
                with pytest.raises(ValueError, match="data must"):
                    decode_records(data, found.end_offset - found.first_offset)


@pytest.mark.parametrize(
    ("first", "end", "is_read"), [(0, 2, True), (5, 5, False), (6, 5, False), (2**63, 5, False)]
)
def test_impossible_offsets_are_no_entry(
    tmp_path: Path, first: int, end: int, *, is_read: bool
) -> None:
    """No record, an end below the begin, a negative offset."""
    path = journal_path(tmp_path, 1)
    commit = PlainCommit(1, 1, NAMES, [("records", 0, first, end, DATA)])
    path.write_bytes(file_bytes(ID, [commit], version=2))
    assert bool(read_journal(DISK, [path]).entries) == is_read
