"""Power cuts while a log is converted: the target is whole, or does not exist."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

import kafkalog
from kafkalog import Codec, LogConfig
from kafkalog.errors import DiskFullError, LogStorageError
from kafkalog.files.atomic_files import read_file
from kafkalog.log.conversion.single_log import convert_log
from tests.support.disk_faults import MUTATING
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import ManualClock
from tests.support.simulated_disk import PowerCut, SimulatedDisk

SOURCE, TARGET = Path("/logs/a-0"), Path("/new/b-0")
TEMPORARY = Path("/new/.b-0.converting")
CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=512, segment_index_bytes=1024)
STATES = 6


def disk_with_log() -> SimulatedDisk:
    """Return a disk with a log of 300 records in several segments, all of it durable."""
    disk = SimulatedDisk()
    for name in ("/logs", "/new"):
        disk.make_directory(Path(name))
    with open_on(disk, SOURCE, read_only=False) as log:
        for number in range(30):
            log.append(numbered(number * 10, 10))
    disk.make_durable("/logs", "/new", SOURCE)
    return disk


def open_on(disk: SimulatedDisk, path: Path, *, read_only: bool = True) -> kafkalog.Log:
    return manual_log(path, config=CONFIG, filesystem=disk, read_only=read_only)


def convert(disk: SimulatedDisk) -> None:
    convert_log(
        SOURCE, TARGET, codec=Codec.GZIP, config=CONFIG, filesystem=disk, clock=ManualClock()
    )


def offsets(disk: SimulatedDisk, path: Path) -> list[int]:
    with open_on(disk, path) as log:
        assert not log.corrupt_ranges()
        return [record.offset for record in log.records()]


def ensure_indexes(disk: SimulatedDisk, path: Path) -> None:
    """Compare every index file with the batches of its segment."""
    with open_on(disk, path) as log:
        for segment in log.segments():
            scan = segment.scan()
            for file, entries in (
                (segment.offset_index.path, scan.offset_entries),
                (segment.time_index.path, scan.time_entries),
            ):
                assert entries == read_file(disk, file, max_bytes=1 << 20)


def test_convert_log_power_cut_at_any_call_is_atomic() -> None:
    """No target, or a target with every record, and an unchanged source."""
    moments = complete = 0
    for number in range(1, 10_000):
        disk = disk_with_log()
        disk.crash_at(number)
        cut = False
        try:
            convert(disk)
        except PowerCut:
            cut = True
        moments += 1
        for _choice, state in disk.crash_states(limit=STATES):
            assert list(range(300)) == offsets(state, SOURCE)
            if state.stat(TARGET) is not None:
                complete += 1
                assert list(range(300)) == offsets(state, TARGET)
                with open_on(state, TARGET, read_only=False) as log:
                    assert 300 == log.append(numbered(300, 1)).first_offset
        if not cut:
            break
    assert 40 < moments
    assert 0 < complete


def test_convert_log_after_a_crash_names_the_file_to_remove() -> None:
    """The temporary directory of an earlier attempt is not used; its removal allows a retry."""
    disk = disk_with_log()
    disk.crash_at(20)
    with contextlib.suppress(PowerCut):
        convert(disk)
    for _choice, state in disk.crash_states(limit=STATES):
        if state.stat(TEMPORARY) is not None:
            with pytest.raises(LogStorageError, match="remove it"):
                convert(state)
        else:
            convert(state)
            assert list(range(300)) == offsets(state, TARGET)


def test_convert_log_failing_call_raises_and_leaves_no_target() -> None:
    """Any changing call may fail: space is freed, and a second attempt succeeds."""
    refused = 0
    for number in range(1, 10_000):
        disk = disk_with_log()
        disk.fail_at(number, errno.ENOSPC, only=MUTATING)
        try:
            convert(disk)
        except DiskFullError:
            refused += 1
            if disk.stat(TARGET) is None:
                assert disk.stat(TEMPORARY) is None
                convert(disk)
        was_last = disk.faults_waiting > 0
        disk.clear_faults()
        assert list(range(300)) == offsets(disk, SOURCE)
        assert list(range(300)) == offsets(disk, TARGET)
        ensure_indexes(disk, TARGET)
        if was_last:
            break
    assert 10 < refused
