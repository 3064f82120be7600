"""Indexes that cannot be written: none of them is wrong after a clean shutdown.

A broker trusts an index file that it finds after a clean shutdown, and rebuilds both indexes of a
segment if the first is missing.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalog.errors import LogStorageError
from kafkalog.files.names import CLEAN_SHUTDOWN_MARKER, SegmentFiles
from tests.support.crash_rig import ALONE, Rig
from tests.support.model import observe
from tests.support.simulated_disk import CrashChoice, SimulatedDisk

FIRST = SegmentFiles(ALONE.directory, 0)
MARKER = ALONE.directory / CLEAN_SHUTDOWN_MARKER
INDEXES = (".index", ".timeindex")


@pytest.fixture
def rig() -> Rig:
    """Return a log of several segments that was closed in order."""
    rig = Rig(ALONE)
    rig.open()
    for _number in range(12):
        rig.append(1, 60)
    rig.close()
    return rig


def put_wrong_entries(disk: SimulatedDisk, suffix: str) -> None:
    """Make an index of the first segment wrong such that no check of order or range shows it."""
    path = FIRST.log.with_suffix(suffix)
    handle = disk.open(path, write=True)
    data = bytearray(handle.pread(handle.size(), 0))
    assert len(data) >= 8
    data[7 if suffix == ".index" else 11] += 1
    handle.pwrite(data, 0)
    handle.sync()


def rebuild_without_space(rig: Rig, suffix: str) -> None:
    """Let look-ups find the wrong index, and let the write of the right index fail."""
    rig.disk.fail_at(1, errno.ENOSPC, only=frozenset({"create"}), suffix=suffix + ".tmp")
    for fact in rig.model.records.values():
        record = rig.log.get(fact.offset)
        assert record is not None
        assert fact.value == record.value
        rig.log.offset_for_timestamp(fact.timestamp_ms)
    # An index that no look-up finds wrong is distrusted here.
    if rig.disk.faults_waiting:
        segment = rig.log.segments()[0]
        index = segment.offset_index if suffix == ".index" else segment.time_index
        index.distrust()
    assert not rig.disk.faults_waiting


def names(disk: SimulatedDisk) -> set[str]:
    """Return the names in the partition directory."""
    return set(disk.list(ALONE.directory))


@pytest.mark.parametrize("suffix", INDEXES)
def test_wrong_index_not_replaced_is_removed_by_an_orderly_close(rig: Rig, suffix: str) -> None:
    """On the disk too, with the other index of its segment; the next opening rebuilds both."""
    right = {name: rig.disk.snapshot()[str(FIRST.log.with_suffix(name))] for name in INDEXES}
    put_wrong_entries(rig.disk, suffix)
    assert rig.open().recovery_report.clean
    rebuild_without_space(rig, suffix)
    assert FIRST.log.with_suffix(suffix).name not in names(rig.disk)
    rig.close()
    for disk in (rig.disk, rig.disk.crash(CrashChoice("nothing"))):
        assert disk.stat(MARKER) is not None
        assert names(disk).isdisjoint(FIRST.log.with_suffix(name).name for name in INDEXES)
        again = Rig(ALONE, disk)
        assert rig.model.served() == list(observe(again.open()).records)
        for segment in again.log.segments():
            assert len(segment.offset_index.view) + len(segment.time_index.view) > 0
        again.log.close()
        assert right == {
            name: disk.snapshot()[str(FIRST.log.with_suffix(name))] for name in INDEXES
        }


@pytest.mark.parametrize("suffix", INDEXES)
def test_wrong_index_neither_replaced_nor_removed_leaves_no_marker(rig: Rig, suffix: str) -> None:
    """The close raises; the next opening recovers as after a crash."""
    put_wrong_entries(rig.disk, suffix)
    rig.open()
    path = FIRST.log.with_suffix(suffix)
    for number in (1, 2):
        rig.disk.fail_at(number, errno.EROFS, only=frozenset({"unlink"}), suffix=path.name)
    rig.disk.fail_at(1, errno.ENOSPC, only=frozenset({"create"}), suffix=suffix + ".tmp")
    segment = rig.log.segments()[0]
    (segment.offset_index if suffix == ".index" else segment.time_index).distrust()
    with pytest.raises(LogStorageError):
        rig.log.close()
    assert rig.disk.stat(MARKER) is None
    again = Rig(ALONE, rig.disk)
    assert not again.open().recovery_report.clean
    again.release()


@pytest.mark.parametrize("call", ["pwrite", "truncate"])
@pytest.mark.parametrize("suffix", INDEXES)
def test_index_not_finished_at_a_roll_is_removed_by_the_close(call: str, suffix: str) -> None:
    """Short, or with preallocated zeros that a broker would read as entries."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(4, 60)
    rig.disk.fail_at(1, errno.ENOSPC, only=frozenset({call}), suffix="0" * 20 + suffix)
    rig.roll()
    assert not rig.disk.faults_waiting
    rig.append(2)
    rig.close()
    assert rig.disk.stat(MARKER) is not None
    kept = names(rig.disk)
    assert kept.isdisjoint(FIRST.log.with_suffix(name).name for name in INDEXES)
    assert FIRST.log.name in kept
    assert rig.model.served() == list(observe(rig.open()).records)
    rig.release()


def test_wrong_index_replaced_later_is_kept(rig: Rig) -> None:
    """With space again no index is missing, and none is removed."""
    put_wrong_entries(rig.disk, ".index")
    rig.open()
    rebuild_without_space(rig, ".index")
    rig.log.segments()[0].offset_index.distrust()
    rig.close()
    assert {path.name for path in (FIRST.offset_index, FIRST.time_index)} <= names(rig.disk)


def test_index_removed_while_the_log_is_open_removes_the_other(rig: Rig) -> None:
    """Both or neither: a broker that finds the first does not check the other."""
    rig.open()
    active = SegmentFiles(ALONE.directory, rig.log.segments()[-1].base_offset)
    rig.disk.unlink(Path(active.time_index))
    rig.close()
    assert names(rig.disk).isdisjoint({active.offset_index.name, active.time_index.name})
