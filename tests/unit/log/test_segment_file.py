"""The bytes of one segment file: what its syncs cover."""

from __future__ import annotations

from pathlib import Path

from kafkalog.files.pool import FilePool
from kafkalog.log.segment_file import SegmentFile
from tests.support.simulated_disk import SimulatedDisk

PATH = Path("/data/00000000000000000000.log")


def empty_file(disk: SimulatedDisk) -> SegmentFile:
    """Return a file that takes appends, its name on the disk."""
    disk.make_durable(PATH.parent)
    handle = disk.open(PATH, create=True)
    disk.make_durable()
    pool = FilePool(disk, max_open_files=4, max_mappings=4)
    return SegmentFile(pool, disk, PATH, 0, handle)


def test_bytes_in_place_of_cut_ones_are_synced_again() -> None:
    """A sync that ran beside an append, which failed later, covered others than are there now."""
    disk = SimulatedDisk()
    file = empty_file(disk)
    file.append(b"kept", 4)
    file.append(b"failed", 6)
    file.sync()
    file.cut_unpublished(4)
    file.append(b"others", 6)
    file.sync()
    assert b"keptothers" == disk.crash().snapshot()[str(PATH)]
    file.close()


def test_sync_of_what_is_on_the_disk_does_nothing() -> None:
    """Only new bytes cost a sync."""
    disk = SimulatedDisk()
    file = empty_file(disk)
    file.append(b"kept", 4)
    for _ in range(3):
        file.sync()
    assert 1 == disk.calls["sync"]
    file.close()
