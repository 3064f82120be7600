"""Files of unfinished work: an opening removes some and keeps others."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.log.replaced_markers import write_replaced_marker
from kafkalog.log.startup_cleanup import clean_partition_directory, live_bases
from tests.support.keyed_batches import keyed_batch
from tests.support.simulated_disk import SimulatedDisk

DIRECTORY = Path("/data/orders-0")
FIRST = "00000000000000000000"
OTHER = "00000000000000000007"
LIVE = (f"{FIRST}.log", f"{FIRST}.index", f"{FIRST}.timeindex")


@pytest.fixture(name="disk")
def fixture_disk() -> SimulatedDisk:
    """A disk with one segment."""
    disk = SimulatedDisk()
    disk.make_durable(DIRECTORY)
    for name in LIVE:
        disk.open(DIRECTORY / name, create=True).close()
    return disk


@pytest.mark.parametrize(
    "name",
    [
        f"{OTHER}.log.deleted",
        f"{OTHER}.index.deleted",
        f"{FIRST}.log.cleaned",
        f"{OTHER}.timeindex.cleaned",
        f"{FIRST}.index.tmp",
        f"{OTHER}.index",
        f"{OTHER}.timeindex",
        f"{OTHER}.txnindex",
    ],
)
def test_startup_removes_and_reports_leftover_files(disk: SimulatedDisk, name: str) -> None:
    """Deleted and unfinished files, and an index without a segment."""
    disk.open(DIRECTORY / name, create=True).close()
    done = clean_partition_directory(disk, DIRECTORY)
    assert sorted(LIVE) == disk.list(DIRECTORY)
    assert [DIRECTORY / name] == done.removed
    assert [] == done.completed_swaps


@pytest.mark.parametrize(
    "name",
    [f"{OTHER}.log", f"{OTHER}.snapshot", f"{FIRST}.log.817.broken", "partition.metadata", "x.log"],
)
def test_startup_keeps_files_that_are_not_leftovers(disk: SimulatedDisk, name: str) -> None:
    """Segments, state, bytes kept for repair, and files of other programs."""
    disk.open(DIRECTORY / name, create=True).close()
    done = clean_partition_directory(disk, DIRECTORY)
    assert sorted([*LIVE, name]) == disk.list(DIRECTORY)
    assert [] == done.removed


def test_startup_completes_a_swap_of_the_same_name(disk: SimulatedDisk) -> None:
    """Its indexes, too; the report lists segments only."""
    for name in LIVE:
        disk.open(DIRECTORY / f"{name}.swap", create=True).close()
    done = clean_partition_directory(disk, DIRECTORY)
    assert sorted(LIVE) == disk.list(DIRECTORY)
    assert [DIRECTORY / f"{FIRST}.log"] == done.completed_swaps
    assert [0] == live_bases(disk, DIRECTORY)


def put(disk: SimulatedDisk, name: str, data: bytes) -> None:
    """Create a file, or replace its content."""
    handle = disk.open(DIRECTORY / name, create=True)
    handle.truncate(0)
    handle.pwrite(data, 0)
    handle.close()


def batches(first: int, end: int, value: bytes = b"v") -> bytes:
    """Return batches of one record each, with these offsets."""
    made = b""
    for offset in range(first, end):
        data = bytearray(keyed_batch([(b"k%d" % offset, value)], 1_700_000_000_000))
        data[:8] = offset.to_bytes(8, "big")
        made += data
    return made


def contents(disk: SimulatedDisk) -> dict[str, bytes]:
    """Return the content of every `.log` file, in any state."""
    found = {}
    for name in disk.list(DIRECTORY):
        if ".log" in name:
            handle = disk.open(DIRECTORY / name)
            found[name] = handle.pread(handle.size(), 0)
    return found


SWAPS = {
    "empty": b"",
    "junk": b"x" * 50,
    "torn": batches(0, 7)[:-1],
    "a flipped bit": batches(0, 6) + bytes([*batches(6, 7)[:-1], 0x55]),
    "a part": batches(0, 3),
    "foreign, far behind": batches(10**9, 10**9 + 1),
    "foreign, one offset further": batches(0, 8),
    "an offset that was not there": batches(0, 3) + batches(4, 5) + batches(6, 7),
}


@pytest.mark.parametrize("what", SWAPS)
def test_swap_not_whole_or_with_other_offsets_is_refused(disk: SimulatedDisk, what: str) -> None:
    """HOST-2: nothing is replaced; its bytes are kept; the report names it."""
    put(disk, f"{FIRST}.log", batches(0, 4) + batches(5, 7))
    put(disk, f"{OTHER}.log", batches(7, 9))
    before = contents(disk)
    swap = SWAPS[what]
    put(disk, f"{FIRST}.log.swap", swap)
    put(disk, f"{FIRST}.index.swap", b"")
    assert [0, 7] == live_bases(disk, DIRECTORY)
    done = clean_partition_directory(disk, DIRECTORY)
    assert {**before, f"{FIRST}.log.broken": swap} == contents(disk)
    [refused] = done.refused_swaps
    assert DIRECTORY / f"{FIRST}.log.broken" == refused.kept_in
    assert refused.reason
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(".swap")]


def test_second_refused_swap_keeps_the_bytes_of_the_first(disk: SimulatedDisk) -> None:
    """HOST-2: bytes that were kept for repair are never overwritten."""
    put(disk, f"{FIRST}.log", batches(0, 4))
    for number, data in enumerate((b"first", b"second", b"third")):
        put(disk, f"{FIRST}.log.swap", data)
        clean_partition_directory(disk, DIRECTORY)
        assert number + 2 == len(contents(disk))
    kept = {data for name, data in contents(disk).items() if name.endswith(".broken")}
    assert {b"first", b"second", b"third"} == kept


def test_swap_within_another_segment_is_refused(disk: SimulatedDisk) -> None:
    """HOST-2: no record may exist twice."""
    put(disk, f"{FIRST}.log", batches(0, 9))
    put(disk, f"{OTHER}.log.swap", batches(7, 9))
    assert [0] == live_bases(disk, DIRECTORY)
    done = clean_partition_directory(disk, DIRECTORY)
    assert ["it is within the segment at offset 0"] == [e.reason for e in done.refused_swaps]
    assert [0] == live_bases(disk, DIRECTORY)


def test_swap_does_not_replace_overlapping_segments(disk: SimulatedDisk) -> None:
    """HOST-2: if files have each other's names, their offsets do not show what to replace."""
    last, middle = batches(9, 11), batches(7, 9)
    put(disk, f"{FIRST}.log", last)
    put(disk, f"{OTHER}.log", middle)
    put(disk, f"{9:020}.log", batches(0, 7))
    put(disk, f"{FIRST}.log.swap", last)
    done = clean_partition_directory(disk, DIRECTORY)
    reason = "the segment at 0 that it replaces reaches into the one at 7"
    assert [reason] == [each.reason for each in done.refused_swaps]
    assert middle == contents(disk)[f"{OTHER}.log"]
    assert [0, 7, 9] == live_bases(disk, DIRECTORY)


def test_swap_does_not_replace_a_segment_with_offsets_of_another(disk: SimulatedDisk) -> None:
    """HOST-2: its own batches are in the `.swap` file, and no file would have the other's."""
    first = batches(0, 7)
    put(disk, f"{FIRST}.log", first)
    put(disk, f"{OTHER}.log", batches(0, 3))
    put(disk, f"{FIRST}.log.swap", batches(7, 10))
    put(disk, f"{10:020}.log", batches(10, 12))
    done = clean_partition_directory(disk, DIRECTORY)
    reason = "the segment at 7 that it replaces has batches with offsets of another"
    assert [reason] == [each.reason for each in done.refused_swaps]
    assert first == contents(disk)[f"{FIRST}.log"]


def test_swap_does_not_replace_the_only_segment_with_other_offsets(disk: SimulatedDisk) -> None:
    """HOST-2: as above, with no segment of the `.swap` file's name, and only one left."""
    disk.unlink(DIRECTORY / f"{FIRST}.log")
    put(disk, f"{OTHER}.log", batches(0, 7))
    put(disk, f"{FIRST}.log.swap", batches(7, 10))
    done = clean_partition_directory(disk, DIRECTORY)
    assert [] == done.completed_swaps
    assert batches(0, 7) == contents(disk)[f"{OTHER}.log"]
    assert len(done.refused_swaps) == 1


@pytest.mark.parametrize("deleted", [(0,), (0, 7)], ids=str)
def test_swap_of_a_broker_with_deleted_old_segments_is_completed(
    disk: SimulatedDisk, deleted: tuple[int, ...]
) -> None:
    """The swap has the only records of the first segment; the other old files are removed."""
    disk.unlink(DIRECTORY / LIVE[0])
    for base, end in ((0, 7), (7, 9)):
        state = ".deleted" if base in deleted else ""
        put(disk, f"{base:020}.log{state}", batches(base, end))
    put(disk, f"{9:020}.log", batches(9, 11))
    kept = batches(1, 3) + batches(7, 8)
    put(disk, f"{FIRST}.log.swap", kept)
    assert [0, 9] == live_bases(disk, DIRECTORY)
    done = clean_partition_directory(disk, DIRECTORY)
    assert not done.refused_swaps
    assert {f"{FIRST}.log": kept, f"{9:020}.log": batches(9, 11)} == contents(disk)


def test_damaged_swap_restores_its_deleted_segment(disk: SimulatedDisk) -> None:
    """Whole records in a `.deleted` file are not removed for a new file that is damaged."""
    disk.unlink(DIRECTORY / LIVE[0])
    put(disk, f"{FIRST}.log.deleted", batches(0, 7))
    put(disk, f"{OTHER}.log", batches(7, 9))
    put(disk, f"{FIRST}.log.swap", batches(0, 3)[:-1])
    done = clean_partition_directory(disk, DIRECTORY)
    assert 1 == len(done.refused_swaps)
    assert batches(0, 7) == contents(disk)[f"{FIRST}.log"]
    assert [0, 7] == live_bases(disk, DIRECTORY)


def swapped(disk: SimulatedDisk, kept: bytes) -> None:
    """Write two old segments and a `.swap` for both, with its marker of replaced segments."""
    put(disk, f"{FIRST}.log", batches(0, 7))
    put(disk, f"{OTHER}.log", batches(7, 9))
    put(disk, f"{FIRST}.log.cleaned", kept)
    write_replaced_marker(disk, DIRECTORY, [0, 7], [0])
    disk.rename(DIRECTORY / f"{FIRST}.log.cleaned", DIRECTORY / f"{FIRST}.log.swap")


@pytest.mark.parametrize("kept", [b"", batches(1, 3)], ids=["nothing", "a part"])
def test_swap_with_marker_replaces_all_segments_in_it(disk: SimulatedDisk, kept: bytes) -> None:
    """Also without records of the last segment; readers see what the writer will keep."""
    swapped(disk, kept)
    assert [0] == live_bases(disk, DIRECTORY)
    clean_partition_directory(disk, DIRECTORY)
    assert {f"{FIRST}.log": kept} == contents(disk)
    assert [f"{FIRST}.log"] == disk.list(DIRECTORY)


@pytest.mark.parametrize("other", ["new", "old", "new in the middle", "no swap", "torn mark"])
def test_marker_applies_only_to_the_files_that_it_names(disk: SimulatedDisk, other: str) -> None:
    """INT-1: whatever another program changed, a segment is replaced by its own new one only."""
    swapped(disk, batches(1, 3, b"v" * 6000))
    if other == "new":
        put(disk, f"{FIRST}.log.swap", batches(1, 2))
    elif other == "old":
        put(disk, f"{OTHER}.log", batches(7, 10))
    elif other == "new in the middle":
        handle = disk.open(DIRECTORY / f"{FIRST}.log.swap", write=True)
        handle.pwrite(b"w", 5000)
    elif other == "no swap":
        disk.unlink(DIRECTORY / f"{FIRST}.log.swap")
    else:
        handle = disk.open(DIRECTORY / f"{FIRST}.log.covered", write=True)
        handle.truncate(handle.size() - 3)
    if other != "new in the middle":
        assert [0, 7] == live_bases(disk, DIRECTORY)
    clean_partition_directory(disk, DIRECTORY)
    assert [0, 7] == live_bases(disk, DIRECTORY)
    assert not [name for name in disk.list(DIRECTORY) if name.endswith((".covered", ".swap"))]
