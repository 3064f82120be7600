"""A log on a simulated disk whose mappings lose pages: errors with a place, and no lost records."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalog import Log, LogStorageError, Record
from tests.support.damage import log_file
from tests.support.logs import manual_log
from tests.support.simulated_disk import SimulatedDisk

DIRECTORY = Path("/orders-0")
COUNT = 120
PAGE = 4096


def make_disk() -> SimulatedDisk:
    """Return a disk with a log of three segments, each of several pages."""
    disk = SimulatedDisk()
    with manual_log(DIRECTORY, filesystem=disk, segment_bytes=5 * PAGE) as log:
        fill(log, 0, COUNT)
        assert len(log.segments()) > 2
    disk.maps_pages = True
    return disk


def fill(log: Log, first: int, count: int) -> None:
    """Append records of a tenth of a page."""
    for number in range(first, first + count):
        log.append([Record(key=b"%d" % number, value=bytes(400))])


def open_on(disk: SimulatedDisk, *, read_only: bool = False) -> Log:
    """Open the log of a disk."""
    return manual_log(DIRECTORY, filesystem=disk, read_only=read_only, segment_bytes=5 * PAGE)


def offsets_until_error(log: Log) -> tuple[list[int], LogStorageError | None]:
    """Return the offsets that are read before an error, and the error."""
    found: list[int] = []
    try:
        found.extend(record.offset for record in log.records(on_corrupt="skip"))
    except LogStorageError as error:
        return found, error
    return found, None


@pytest.mark.parametrize("read_only", [False, True])
def test_file_cut_under_a_mapping_raises_with_the_place(read_only: bool) -> None:
    """DUR-5: bytes that another process cut are an error with file and position, not damage."""
    disk = make_disk()
    with open_on(disk, read_only=read_only) as log:
        path = log_file(DIRECTORY, log.segments()[1].base_offset)
        held = log.batches(log.segments()[1].base_offset)
        next(held)
        handle = disk.open(path, write=True)
        handle.truncate(2 * PAGE)
        handle.close()
        with pytest.raises(LogStorageError) as caught:
            for batch in held:
                batch.records()
        assert (None, str(path)) == (caught.value.errno, str(caught.value.path))
        found, error = offsets_until_error(log)
        if read_only:
            # A follower checks the file again, and reads its present bytes.
            assert error is None
            assert set(found) < set(range(COUNT))
        else:
            assert error is not None
            assert () == log.corrupt_ranges()
        assert 5 == log.get(5).offset  # type: ignore[union-attr]
        last = log.segments()[2].base_offset
        assert last == log.get(last).offset  # type: ignore[union-attr]


@pytest.mark.parametrize("read_only", [False, True])
def test_unreadable_page_is_not_a_corrupt_range(read_only: bool) -> None:
    """An I/O error is not corruption: all records are read once the disk recovers."""
    disk = make_disk()
    with open_on(disk, read_only=read_only) as log:
        path = log_file(DIRECTORY, log.segments()[1].base_offset)
        # The page fails in an existing mapping, and in a later one.
        log.get(log.segments()[1].base_offset)
        disk.fail_reads(path, 2 * PAGE)
        for _again in range(2):
            found, error = offsets_until_error(log)
            assert error is not None
            assert (errno.EIO, str(path)) == (error.errno, str(error.path))
            assert list(range(len(found))) == found
        assert () == log.corrupt_ranges()
        disk.heal_reads(path)
        assert (list(range(COUNT)), None) == offsets_until_error(log)
        assert () == log.corrupt_ranges()


def test_recovery_over_an_unreadable_page_cuts_nothing() -> None:
    """The opening raises, with the place; the next one, on a working disk, finds all."""
    disk = make_disk()
    disk.unlink(DIRECTORY / ".kafka_cleanshutdown")
    disk.unlink(DIRECTORY / "recovery-point-offset-checkpoint")
    path = max(name for name in disk.list(DIRECTORY) if name.endswith(".log"))
    disk.fail_reads(DIRECTORY / path, PAGE)
    for read_only in (True, False):
        with pytest.raises(LogStorageError) as caught:
            open_on(disk, read_only=read_only)
        assert errno.EIO == caught.value.errno
    disk.heal_reads(DIRECTORY / path)
    with open_on(disk) as log:
        assert (list(range(COUNT)), None) == offsets_until_error(log)
        assert () == log.recovery_report.cut
        assert () == log.corrupt_ranges()
        fill(log, COUNT, 1)
        assert COUNT + 1 == log.log_end_offset
