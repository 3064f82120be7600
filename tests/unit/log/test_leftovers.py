"""Files of unfinished work: which ones an opening removes, and which it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.log.covering import write_marker
from kafkalog.log.leftovers import clear_leftovers, live_bases
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
def test_leftover_of_unfinished_work_is_removed_and_told(disk: SimulatedDisk, name: str) -> None:
    """What was leaving, what never became whole, and an index whose segment is gone."""
    disk.open(DIRECTORY / name, create=True).close()
    done = clear_leftovers(disk, DIRECTORY)
    assert sorted(LIVE) == disk.list(DIRECTORY)
    assert [DIRECTORY / name] == done.removed
    assert [] == done.completed_swaps


@pytest.mark.parametrize(
    "name",
    [f"{OTHER}.log", f"{OTHER}.snapshot", f"{FIRST}.log.817.broken", "partition.metadata", "x.log"],
)
def test_file_that_is_no_leftover_stays(disk: SimulatedDisk, name: str) -> None:
    """Segments, state, bytes kept for people, and what is not ours."""
    disk.open(DIRECTORY / name, create=True).close()
    done = clear_leftovers(disk, DIRECTORY)
    assert sorted([*LIVE, name]) == disk.list(DIRECTORY)
    assert [] == done.removed


def test_swap_file_replaces_the_segment_of_its_name(disk: SimulatedDisk) -> None:
    """Its indexes, too; nothing is said of them, since they are no segments."""
    for name in LIVE:
        disk.open(DIRECTORY / f"{name}.swap", create=True).close()
    done = clear_leftovers(disk, DIRECTORY)
    assert sorted(LIVE) == disk.list(DIRECTORY)
    assert [DIRECTORY / f"{FIRST}.log"] == done.completed_swaps
    assert [0] == live_bases(disk, DIRECTORY)


@pytest.mark.parametrize("beside", ["nothing", "cleaned", "another"])
def test_marked_segment_goes_with_its_mark_unless_it_is_not_the_one(
    disk: SimulatedDisk, beside: str
) -> None:
    """Not while a `.cleaned` below says that nothing counts, nor one that came there later."""
    handle = disk.open(DIRECTORY / f"{OTHER}.log", create=True)
    handle.pwrite(b"a segment", 0)
    write_marker(disk, DIRECTORY, 7)
    if beside == "cleaned":
        disk.open(DIRECTORY / f"{FIRST}.log.cleaned", create=True).close()
    if beside == "another":
        handle.pwrite(b"another one", 0)
    stays = beside != "nothing"
    assert ([0, 7] if stays else [0]) == live_bases(disk, DIRECTORY)
    clear_leftovers(disk, DIRECTORY)
    assert ([0, 7] if stays else [0]) == live_bases(disk, DIRECTORY)
    assert sorted([*LIVE, *[f"{OTHER}.log"] * stays]) == disk.list(DIRECTORY)
