"""Files of unfinished work: which ones an opening removes, and which it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

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
