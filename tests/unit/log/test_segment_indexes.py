"""Indexes of one segment: created on demand, rebuilt from the `.log` file, synced or removed."""

from __future__ import annotations

import logging

import pytest

from kafkalog import LogConfig
from kafkalog.files.names import SegmentFiles
from kafkalog.log.segment_file import SegmentFile
from kafkalog.log.segment_indexes import SegmentIndexes
from kafkalog.log.segment_types import IndexRebuildInput, make_context
from tests.support import reference
from tests.support.log_parts import DIRECTORY, make_disk
from tests.support.manual_time import ManualClock
from tests.support.producer_batches import Produced, encoded
from tests.support.simulated_disk import SimulatedDisk

BASE, INTERVAL = 100, 200
FILES = SegmentFiles(DIRECTORY, BASE)
DATA = encoded([Produced(-1, count=2, timestamp_ms=1000 + n) for n in range(12)], BASE)


def indexes_on(disk: SimulatedDisk, *, read_only: bool = False) -> SegmentIndexes:
    """Return the indexes of a sealed segment of twelve batches, without index files."""
    if disk.stat(FILES.log) is None:
        handle = disk.create_new(FILES.log)
        handle.pwrite(DATA, 0)
        handle.close()
    context = make_context(disk, DIRECTORY, LogConfig(), ManualClock(), read_only=read_only)
    file = SegmentFile(context.pool, disk, FILES.log, len(DATA))
    return SegmentIndexes(context, IndexRebuildInput(file, BASE, INTERVAL))


def content(disk: SimulatedDisk) -> tuple[bytes | None, bytes | None]:
    """Return the bytes of both index files, None for a missing file."""
    files = disk.snapshot()
    return files.get(str(FILES.offset_index)), files.get(str(FILES.time_index))


def test_indexes_are_created_at_the_first_access() -> None:
    """A segment that is not read costs no index; later accesses return the same object."""
    disk = make_disk()
    indexes = indexes_on(disk)
    disk.calls.clear()
    assert [] == indexes.made()
    assert 0 == disk.call_count
    times = indexes.time_index
    assert [times] == indexes.made()
    assert times is indexes.time_index
    assert indexes.lookup is indexes.lookup
    assert [indexes.offset_index, times] == indexes.made()


def test_missing_indexes_are_rebuilt_from_the_log_file() -> None:
    """Each file has the entries that the reference selects; a look-up begins at one of them."""
    disk = make_disk()
    indexes = indexes_on(disk)
    expected = reference.select_entries(reference.scan_batches(DATA).batches, BASE, INTERVAL)
    position = indexes.lookup.start_for(BASE + 15)
    assert 0 < position < len(DATA)
    assert (expected[0], None) == content(disk)
    assert position <= indexes.lookup.start_for_time(1009, len(DATA), BASE + 24)
    assert expected == content(disk)


def test_rebuilt_indexes_of_a_read_only_log_stay_in_memory() -> None:
    """They are the same as those that a writer puts into files."""
    disk = make_disk()
    indexes = indexes_on(disk, read_only=True)
    entries = indexes.offset_index.entries(), indexes.time_index.entries()
    assert reference.select_entries(reference.scan_batches(DATA).batches, BASE, INTERVAL) == entries
    assert (None, None) == content(disk)
    indexes.sync()
    assert 0 == disk.calls["sync"]


def test_sync_of_rebuilt_indexes_syncs_both_files_once() -> None:
    """Indexes that were not created, or not written, are not synced."""
    disk = make_disk()
    indexes = indexes_on(disk)
    indexes.sync()
    assert [] == indexes.made()
    indexes.lookup.start_for_time(1009, len(DATA), BASE + 24)
    disk.calls.clear()
    indexes.sync()
    assert (2, 0) == (disk.calls["sync"], disk.calls["sync_directory"])
    indexes.sync()
    assert 2 == disk.calls["sync"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_sync_of_an_index_that_could_not_be_written_removes_both(
    suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker checks for the offset index only. Look-ups use the entries in memory."""
    caplog.set_level(logging.WARNING)
    disk = make_disk()
    indexes = indexes_on(disk)
    disk.fail_at(1, only=frozenset({"create"}), suffix=f"{suffix}.tmp")
    assert 0 < indexes.lookup.start_for_time(1009, len(DATA), BASE + 24)
    assert 0 == disk.faults_waiting
    assert 1 == content(disk).count(None)
    indexes.sync()
    assert (None, None) == content(disk)
    assert f"{FILES.log} is left without indexes" in caplog.text
    assert 0 < indexes.lookup.start_for(BASE + 15)
