"""Tests of the transaction index: brokers' bytes, search, truncation, damage, disk faults."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.errors import CorruptIndexError, DiskFullError, LogStorageError
from kafkalog.files.names import parse_segment_file
from kafkalog.files.posix import PosixFileSystem
from kafkalog.indexes.transaction_index import (
    ENTRY_SIZE,
    AbortedTransaction,
    TransactionIndex,
    collect_aborted,
    decode_entries,
    encode_entries,
)
from tests.support.golden import GOLDEN
from tests.support.simulated_disk import PowerCut, SimulatedDisk

DATA = Path("/data")
PATH = DATA / "00000000000000000100.txnindex"
BASE = 100
GOLDEN_FILES = sorted(path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*.txnindex"))
# The worked example of the specification.
EXAMPLE = AbortedTransaction(4242, 5010, 5061, 5020)
EXAMPLE_BYTES = bytes.fromhex(
    "00 00 00 00 00 00 00 00 10 92 00 00 00 00 00 00 13 92"
    "00 00 00 00 00 00 13 c5 00 00 00 00 00 00 13 9c"
)
ENTRIES = [
    AbortedTransaction(7, 40, 110, 111),
    AbortedTransaction(8, 112, 130, 120),
    AbortedTransaction(7, 120, 140, 141),
    AbortedTransaction(9, 150, 190, 160),
    AbortedTransaction(7, 160, 200, 201),
]


@pytest.fixture(name="disk")
def fixture_disk() -> SimulatedDisk:
    """Return a disk with a durable, empty partition directory."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    return disk


def index_of(disk: SimulatedDisk, entries: list[AbortedTransaction]) -> TransactionIndex:
    """Return an index whose entries were appended one by one."""
    index = TransactionIndex(disk, PATH, BASE)
    for entry in entries:
        index.append(entry)
    return index


def loaded(disk: SimulatedDisk, content: bytes | None = None) -> TransactionIndex:
    """Return the index of a file, written here if its content is given."""
    if content is not None:
        disk.open(PATH, create=True).pwrite(content, 0)
    index = TransactionIndex(disk, PATH, BASE)
    index.load()
    return index


def content_of(disk: SimulatedDisk) -> bytes | None:
    """Return the content of the file."""
    return disk.snapshot().get(str(PATH))


def test_example_of_the_specification_round_trips() -> None:
    """Byte for byte."""
    assert [EXAMPLE] == decode_entries(EXAMPLE_BYTES, 5000)
    assert EXAMPLE_BYTES == encode_entries([EXAMPLE])
    assert ENTRY_SIZE == len(EXAMPLE_BYTES)


def test_golden_files_are_many() -> None:
    """Else the next test would have no parameters."""
    assert len(GOLDEN_FILES) > 20


@pytest.mark.parametrize("name", GOLDEN_FILES)
def test_brokers_file_round_trips(name: str, tmp_path: Path) -> None:
    """Through the class, appended entry by entry, and through the two functions."""
    source = GOLDEN / name
    base_offset = parse_segment_file(source.name).base_offset
    filesystem = PosixFileSystem()
    index = TransactionIndex(filesystem, source, base_offset, read_only=True)
    index.load()
    assert len(index) > 0
    copy = TransactionIndex(filesystem, tmp_path / source.name, base_offset)
    for entry in index.entries():
        copy.append(entry)
    copy.sync()
    copy.close()
    assert source.read_bytes() == copy.path.read_bytes() == encode_entries(index.entries())
    assert index.entries() == decode_entries(source.read_bytes(), base_offset)


def test_missing_and_empty_file_have_no_entries(disk: SimulatedDisk) -> None:
    """Most segments have none, and no file is created for them."""
    index = loaded(disk)
    index.sync()
    index.truncate_to(0)
    index.replace([])
    assert content_of(disk) is None
    assert [] == index.entries() == loaded(disk, b"").entries()
    assert ([], False) == index.collect(0, 1000)


@pytest.mark.parametrize(
    ("start", "end", "slots", "is_complete"),
    [
        (100, 100, [0], True),
        (100, 111, [0], True),
        (100, 112, [0], True),
        (100, 113, [0, 1], True),
        (100, 120, [0, 1], True),
        (110, 121, [0, 1, 2], True),
        (111, 121, [1, 2], True),
        (131, 151, [2, 3], True),
        (141, 160, [3], True),
        (141, 161, [3, 4], True),
        (190, 201, [3, 4], True),
        (191, 202, [4], False),
        (201, 300, [], False),
    ],
)
def test_collect_returns_overlapping_entries_and_stops_when_complete(
    disk: SimulatedDisk, start: int, end: int, slots: list[int], is_complete: bool
) -> None:
    """By hand: entry 1 decides up to 120, also if it is not in the result."""
    index = index_of(disk, ENTRIES)
    assert ([ENTRIES[slot] for slot in slots], is_complete) == index.collect(start, end)


def test_collect_across_segments_reads_no_further_index(disk: SimulatedDisk) -> None:
    """The third is not read once the second has decided everything."""

    def indexes() -> list[TransactionIndex]:
        first = TransactionIndex(disk, DATA / "00000000000000000100.txnindex", 100)
        second = TransactionIndex(disk, DATA / "00000000000000000200.txnindex", 200)
        first.append(AbortedTransaction(1, 110, 120, 121))
        second.append(AbortedTransaction(2, 115, 210, 211))
        return [first, second]

    base_offsets = []

    def lazily() -> list[TransactionIndex]:
        raise AssertionError("asked for a third index")

    def walk() -> object:
        for index in indexes():
            base_offsets.append(index.base_offset)
            yield index
        yield from lazily()

    both = [AbortedTransaction(1, 110, 120, 121), AbortedTransaction(2, 115, 210, 211)]
    assert both == collect_aborted(walk(), 112, 205)  # type: ignore[arg-type]
    assert [100, 200] == base_offsets
    assert both[:1] == collect_aborted(walk(), 112, 114)  # type: ignore[arg-type]
    assert both[1:] == collect_aborted(indexes(), 121, 1000)


@pytest.mark.parametrize("offset", [0, 110, 111, 130, 131, 190, 200, 201])
def test_truncate_removes_markers_from_the_offset_on(disk: SimulatedDisk, offset: int) -> None:
    """In memory and in the file; earlier readers keep their entries."""
    index = index_of(disk, ENTRIES)
    index.truncate_to(offset)
    kept = [entry for entry in ENTRIES if entry.last_offset < offset]
    assert kept == index.entries() == loaded(disk).entries()
    index.append(AbortedTransaction(1, 205, 300, 301))
    assert [*kept, AbortedTransaction(1, 205, 300, 301)] == loaded(disk).entries()


def test_replace_writes_the_entries_of_a_replay(disk: SimulatedDisk) -> None:
    """Over a damaged file; an empty file stays, so that its name needs no sync."""
    disk.open(PATH, create=True).pwrite(b"garbage", 0)
    index = TransactionIndex(disk, PATH, BASE)
    with pytest.raises(CorruptIndexError):
        index.load()
    index.replace(ENTRIES)
    assert ENTRIES == index.entries() == loaded(disk.crash()).entries()
    index.append(AbortedTransaction(1, 205, 300, 301))
    index.replace([])
    assert b"" == content_of(disk) == content_of(disk.crash())
    with pytest.raises(ValueError, match="entry 0"):
        index.replace([AbortedTransaction(1, 5, 4, 5)])


def test_read_only_index_writes_nothing(disk: SimulatedDisk) -> None:
    """Rebuilt and truncated entries stay in memory."""
    index = TransactionIndex(disk, PATH, BASE, read_only=True)
    index.replace(ENTRIES)
    index.append(AbortedTransaction(1, 205, 300, 301))
    index.truncate_to(140)
    index.sync()
    assert ENTRIES[:2] == index.entries()
    assert content_of(disk) is None


def entry_bytes(**changes: int) -> bytes:
    """Return a valid entry of a segment from 100 with some fields changed."""
    fields = {"version": 0, "producer": 7, "first": 120, "last": 140, "stable": 141, **changes}
    size = {"version": 2}
    return b"".join(
        value.to_bytes(size.get(name, 8), "big", signed=True) for name, value in fields.items()
    )


@pytest.mark.parametrize(
    ("content", "slot", "match"),
    [
        (entry_bytes(version=1), 0, "version must be 0, got 1"),
        (entry_bytes(version=256), 0, "version must be 0, got 256"),
        (entry_bytes(version=-1), 0, "version must be 0, got -1"),
        (entry_bytes(producer=-1), 0, "negative producer id"),
        (entry_bytes(first=-1), 0, "negative first offset"),
        (entry_bytes(first=140), 0, "does not begin below its marker"),
        (entry_bytes(last=99, first=5, stable=6), 0, "below the segment"),
        (
            entry_bytes(last=2**63 - 1, stable=2**63 - 1) + entry_bytes(),
            1,
            "not above the previous one",
        ),
        (entry_bytes(stable=142), 0, "stable offset above its marker"),
        (entry_bytes(stable=-1), 0, "stable offset below the previous one"),
        (entry_bytes() + entry_bytes(), 1, "marker that is not above the previous one"),
        (
            entry_bytes() + entry_bytes(last=150, stable=140),
            1,
            "stable offset below the previous one",
        ),
        (bytes(ENTRY_SIZE), 0, "below the segment"),
        (entry_bytes() + bytes(ENTRY_SIZE), 1, "marker that is not above the previous one"),
        (entry_bytes()[:-1], 0, "must have 34 bytes, got 33"),
        (entry_bytes() + b"\0", 1, "must have 34 bytes, got 1"),
        (b"\xff" * ENTRY_SIZE, 0, "version must be 0, got -1"),
    ],
)
def test_damaged_file_raises_with_the_position(
    disk: SimulatedDisk, content: bytes, slot: int, match: str
) -> None:
    """The index is unchanged: its owner replays the segment."""
    disk.open(PATH, create=True).pwrite(content, 0)
    index = TransactionIndex(disk, PATH, BASE)
    with pytest.raises(CorruptIndexError, match=match) as caught:
        index.load()
    assert (str(PATH), slot * ENTRY_SIZE, BASE) == (
        caught.value.path,
        caught.value.position,
        caught.value.base_offset,
    )
    assert [] == index.entries()


def test_prefix_that_ends_within_an_entry_is_refused(disk: SimulatedDisk) -> None:
    """A broker ignores the rest of a truncated entry, and shows its aborted records."""
    whole = encode_entries(ENTRIES[:2])
    for size in range(len(whole) + 1):
        if size % ENTRY_SIZE:
            with pytest.raises(CorruptIndexError, match="must have 34 bytes"):
                decode_entries(whole[:size], BASE)
        else:
            assert ENTRIES[: size // ENTRY_SIZE] == decode_entries(whole[:size], BASE)


def test_file_too_large_for_an_index_is_not_read(tmp_path: Path) -> None:
    """A sparse terabyte must not be read into memory."""
    path = tmp_path / PATH.name
    with path.open("xb") as file:
        file.truncate(2**40)
    with pytest.raises(CorruptIndexError, match="size must be <="):
        TransactionIndex(PosixFileSystem(), path, BASE).load()


@pytest.mark.parametrize(
    "entry",
    [
        AbortedTransaction(7, 190, 200, 201),
        AbortedTransaction(7, 210, 210, 211),
        AbortedTransaction(7, 210, 220, 222),
        AbortedTransaction(7, 210, 220, 200),
        AbortedTransaction(-1, 210, 220, 221),
        AbortedTransaction(2**63, 210, 220, 221),
    ],
)
def test_append_of_an_unreadable_entry_is_refused(
    disk: SimulatedDisk, entry: AbortedTransaction
) -> None:
    """A mistake of the caller must not damage the index; also if it is written at once."""
    index = index_of(disk, ENTRIES)
    with pytest.raises(ValueError, match=r"AbortedTransaction\(|64 bits"):
        index.append(entry)
    assert ENTRIES == index.entries() == loaded(disk).entries()
    with pytest.raises(ValueError, match=r"marker|behind|bits|negative|below"):
        encode_entries([*ENTRIES, entry])


def test_full_disk_keeps_the_entry_in_memory_until_space_is_free(disk: SimulatedDisk) -> None:
    """An append does not fail for its index; `sync` does, and later works."""
    index = index_of(disk, ENTRIES[:1])
    disk.fail_at(1, errno.ENOSPC, short_write_bytes=20, only=frozenset({"pwrite"}))
    index.append(ENTRIES[1])
    assert ENTRIES[:2] == index.entries()
    assert ENTRY_SIZE + 20 == len(content_of(disk) or b"")
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite"}))
    with pytest.raises(DiskFullError, match="syncing failed"):
        index.sync()
    index.append(ENTRIES[2])
    index.sync()
    assert ENTRIES[:3] == loaded(disk.crash()).entries()


def test_sync_after_a_failed_sync_writes_again(disk: SimulatedDisk) -> None:
    """Data of the failed sync is not taken for durable."""
    index = index_of(disk, ENTRIES[:2])
    disk.fail_at(1, only=frozenset({"sync"}))
    with pytest.raises(LogStorageError, match="syncing failed"):
        index.sync()
    index.sync()
    for choice, state in disk.crash_states(40):
        assert ENTRIES[:2] == loaded(state).entries(), choice


def test_truncation_that_failed_is_repeated(disk: SimulatedDisk) -> None:
    """Entries of removed markers must not be before later ones."""
    index = index_of(disk, ENTRIES)
    disk.fail_at(1, only=frozenset({"truncate"}))
    with pytest.raises(LogStorageError, match="truncating failed"):
        index.truncate_to(140)
    assert ENTRIES[:2] == index.entries()
    index.sync()
    assert ENTRIES[:2] == loaded(disk.crash()).entries()


def test_leftover_of_an_earlier_segment_is_truncated_at_first_append(disk: SimulatedDisk) -> None:
    """A new segment does not have the entries of a deleted one."""
    index_of(disk, ENTRIES).sync()
    index = index_of(disk, [AbortedTransaction(1, 150, 160, 161)])
    index.sync()
    assert [AbortedTransaction(1, 150, 160, 161)] == loaded(disk.crash()).entries()


Step = Callable[[TransactionIndex], None]


def append_one(index: TransactionIndex) -> None:
    """Append the last entry and sync."""
    index.append(ENTRIES[-1])
    index.sync()


def truncate(index: TransactionIndex) -> None:
    """Truncate to two entries and sync."""
    index.truncate_to(135)
    index.sync()


def replace(index: TransactionIndex) -> None:
    """Replace all entries."""
    index.replace(ENTRIES[1:3])


@pytest.mark.parametrize(
    ("step", "after"),
    [(append_one, ENTRIES), (truncate, ENTRIES[:2]), (replace, ENTRIES[1:3])],
)
def test_crash_at_every_call_leaves_a_prefix_or_an_invalid_file(
    disk: SimulatedDisk, step: Step, after: list[AbortedTransaction]
) -> None:
    """Never an entry that was not written; and after the end of the step exactly its entries."""
    before = ENTRIES[:4]
    index_of(disk, before).sync()
    disk.make_durable()
    legal = (before, after)
    for number in range(1, 30):
        attempt = disk.crash()
        index = loaded(attempt)
        attempt.crash_at(number)
        try:
            step(index)
        except PowerCut:
            for choice, state in attempt.crash_states(40, seed=number):
                try:
                    found = loaded(state).entries()
                except CorruptIndexError:
                    assert step is not replace, choice
                    continue
                assert found in legal, choice
        else:
            for choice, state in attempt.crash_states(40, seed=number):
                assert after == loaded(state).entries(), choice
            break
    assert 3 <= number <= 8


def test_crash_after_the_first_synced_entry_keeps_name_and_bytes(disk: SimulatedDisk) -> None:
    """The directory is synced with the new file."""
    index_of(disk, ENTRIES[:1]).sync()
    for choice, state in disk.crash_states(40):
        assert ENTRIES[:1] == loaded(state).entries(), choice


@st.composite
def transactions(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Return entries that obey the rules."""
    entries = []
    last, stable = BASE - 1, 0
    for _ in range(draw(st.integers(0, 60))):
        last += draw(st.integers(1, 20))
        first = draw(st.integers(max(0, last - 60), last - 1))
        stable = draw(st.integers(max(stable, last - 50), last + 1))
        entries.append(AbortedTransaction(draw(st.integers(0, 5)), first, last, stable))
    return entries


@settings(max_examples=150)
@given(transactions(), st.integers(0, 1500), st.integers(0, 1500))
def test_collect_equals_the_walk_over_all_entries(
    entries: list[AbortedTransaction], start: int, end: int
) -> None:
    """The rule of the specification, one entry after the other."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    index = index_of(disk, entries)
    expected = []
    is_complete = False
    for entry in entries:
        # Entries below the range decide nothing: later entries have the same facts.
        if entry.last_offset < start:
            continue
        if entry.first_offset < end:
            expected.append(entry)
        if entry.last_stable_offset >= end:
            is_complete = True
            break
    assert (expected, is_complete) == index.collect(start, end)
    assert entries == decode_entries(encode_entries(entries), BASE)
    assert entries == loaded(disk).entries()


@settings(max_examples=200)
@given(st.binary(max_size=3 * ENTRY_SIZE))
def test_any_bytes_are_entries_or_refused(data: bytes) -> None:
    """Accepted entries are written as the same bytes."""
    try:
        entries = decode_entries(data, 0)
    except CorruptIndexError:
        return
    assert data == encode_entries(entries)
