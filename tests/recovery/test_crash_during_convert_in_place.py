"""Power cuts and failing disks while a log is converted in place: no record is ever lost."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from pathlib import Path

import pytest

import kafkalog
from kafkalog import Codec, LogConfig
from kafkalog.errors import KafkaLogError, LogStorageError
from kafkalog.log.conversion.single_log import convert_log
from tests.support.disk_faults import MUTATING, SYNCING
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import ManualClock
from tests.support.shares import calls
from tests.support.simulated_disk import PowerCut, SimulatedDisk

LOG = Path("/logs/a-0")
SMALL = LogConfig(segment_bytes=600, index_interval_bytes=512, segment_index_bytes=1024)
STATES = 6
COUNT = 200


def disk_with_log(config: LogConfig) -> SimulatedDisk:
    """Return a disk with a log of 200 records in several segments, all of it durable."""
    disk = SimulatedDisk()
    disk.make_directory(Path("/logs"))
    with manual_log(LOG, config=config, filesystem=disk) as log:
        for number in range(COUNT // 20):
            log.append(numbered(number * 20, 20))
            if number % 4 == 3:
                log.roll()
    disk.make_durable("/logs", LOG)
    return disk


# Each segment becomes one smaller segment; or, uncompressed, several.
LARGE = replace(SMALL, segment_bytes=1 << 20)
SHRINKING = (LARGE, Codec.GZIP)
SPLITTING = (replace(LARGE, compression_type="gzip"), Codec.NONE)


def convert(disk: SimulatedDisk, codec: Codec) -> kafkalog.LogConversion:
    return convert_log(
        LOG, in_place=True, codec=codec, config=SMALL, filesystem=disk, clock=ManualClock()
    )


def ensure_whole(disk: SimulatedDisk) -> None:
    """Check that the log has every record and its end, and left no temporary files."""
    with manual_log(LOG, config=SMALL, filesystem=disk) as log:
        assert not log.corrupt_ranges()
        assert not log.recovery_report.cut
        assert list(range(COUNT)) == [record.offset for record in log.records()]
        assert COUNT == log.log_end_offset
        log.truncate_to(COUNT)
    names = disk.list(LOG)
    assert [] == [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]


@pytest.mark.parametrize("kind", [SHRINKING, SPLITTING], ids=["shrinking", "splitting"])
def test_convert_in_place_power_cut_at_any_call_keeps_all_records(
    kind: tuple[LogConfig, Codec],
) -> None:
    """Every crash state is whole, and another conversion continues the work."""
    config, codec = kind
    # Three segments, and an empty one for what is appended next.
    expected = 7 if codec is Codec.NONE else 4
    assert expected == convert(disk_with_log(config), codec).segment_count
    half_done = 0
    for number in calls(10_000, 3):
        disk = disk_with_log(config)
        disk.crash_at(number)
        # The close after the power cut may fail with another error.
        with contextlib.suppress(PowerCut, LogStorageError):
            convert(disk, codec)
        for chosen, (_choice, state) in enumerate(disk.crash_states(limit=STATES)):
            ensure_whole(state)
            if chosen == number // 3 % STATES:
                made = convert(state, codec)
                half_done += any(not segment.was_converted for segment in made.segments)
                ensure_whole(state)
        if not disk.is_off:
            break
    assert 40 < number
    assert 0 < half_done


@pytest.mark.parametrize("kind", [SHRINKING, SPLITTING], ids=["shrinking", "splitting"])
@pytest.mark.parametrize("only", [MUTATING, SYNCING], ids=["writes", "syncs"])
def test_convert_in_place_failing_call_keeps_all_records(
    kind: tuple[LogConfig, Codec], only: frozenset[str]
) -> None:
    """A typed error; a reopened log is whole, and another conversion succeeds."""
    config, codec = kind
    refused = 0
    for number in calls(10_000, 3):
        disk = disk_with_log(config)
        disk.fail_at(number, errno.EIO, only=only)
        with contextlib.suppress(LogStorageError):
            convert(disk, codec)
            refused -= 1
        refused += 1
        was_last = disk.faults_waiting > 0
        disk.clear_faults()
        ensure_whole(disk)
        convert(disk, codec)
        ensure_whole(disk)
        if was_last:
            break
    assert 1 < refused


def test_convert_in_place_failing_swap_marks_the_log_offline() -> None:
    """The state of the files is unknown until the next opening, so appends are refused."""
    disk = disk_with_log(LARGE)
    disk.history = []
    convert(disk, Codec.GZIP)
    renames = [name for name, _ in disk.history if name == "rename"]
    disk = disk_with_log(LARGE)
    disk.fail_at(len(renames) - 1, errno.EIO, only=frozenset({"rename"}))
    with pytest.raises(KafkaLogError):
        convert(disk, Codec.GZIP)
    assert [] != [name for name in disk.list(LOG) if name.endswith(".swap")]
    assert ".kafka_cleanshutdown" not in disk.list(LOG)
    ensure_whole(disk)
