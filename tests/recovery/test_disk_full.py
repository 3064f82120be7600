"""Disks that run full during an append over many segments, and get space again."""

from __future__ import annotations

import pytest

from kafkalog.errors import DiskFullError
from tests.support.crash_rig import PLACES, LogSetup, Rig, verify_reopening
from tests.support.model import observe
from tests.support.simulated_disk import CrashChoice


def used_bytes(rig: Rig) -> int:
    """Return the space that all files use, in whole sectors."""
    sizes = (len(data) for data in rig.disk.snapshot().values() if data)
    return sum(-(-size // 512) * 512 for size in sizes)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
@pytest.mark.parametrize("free_sectors", range(12))
def test_append_disk_full_is_undone_and_succeeds_with_space(
    place: LogSetup, free_sectors: int
) -> None:
    """No record of it is kept, reads and deletions work, and with space the same append works."""
    rig = Rig(place)
    rig.open()
    rig.append(6, 100, durable=True)
    rig.append(1)
    before = observe(rig.log)
    rig.disk.capacity_bytes = used_bytes(rig) + 512 * free_sectors
    with pytest.raises(DiskFullError) as caught:
        rig.append(60, 100)
    assert caught.value.retriable
    assert before.records == observe(rig.log).records
    assert before.end_offset == rig.log.log_end_offset
    verify_after_power_cut(rig)
    rig.disk.capacity_bytes = None
    rig.delete_before(2)
    rig.append(60, 100, durable=True)
    assert rig.model.served() == list(observe(rig.log).records)
    verify_after_power_cut(rig)
    rig.release()


def verify_after_power_cut(rig: Rig) -> None:
    """Reopen crash states, on a disk with space."""
    for kind in ("nothing", "all"):
        disk = rig.disk.crash(CrashChoice(kind))
        disk.capacity_bytes = None
        verify_reopening(rig.place, disk, rig.model)


def test_append_small_batches_disk_full_are_refused_whole() -> None:
    """Appends fail one by one while the disk is full, and no append is stored in part."""
    rig = Rig(PLACES[0])
    rig.open()
    rig.disk.capacity_bytes = used_bytes(rig) + 8 * 512
    refused = 0
    for _ in range(40):
        try:
            rig.append(1, 150)
        except DiskFullError:
            refused += 1
    assert 5 <= refused < 40
    assert rig.model.served() == list(observe(rig.log).records)
    rig.disk.capacity_bytes = None
    rig.append(3, 150, durable=True)
    verify_after_power_cut(rig)
    rig.release()
