"""Logs that crashed under some settings, opened under others."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import LogConfig, Record, open_log
from kafkalog.log.log import partition_of
from tests.support.crash_rig import MANY_STATES, LogSetup, Rig, small_config, with_zeros_ahead
from tests.support.simulated_disk import CrashChoice, SimulatedDisk

PREALLOCATED = LogConfig(segment_bytes=20_000, segment_index_bytes=120, preallocate=True)
PLAIN = LogConfig(segment_bytes=60_000, segment_index_bytes=120)
BEFORE = LogSetup("before", Path("/alone/orders-0"), with_zeros_ahead(small_config()))
AFTER = LogSetup("after", BEFORE.directory, small_config(segment_bytes=900))


def left_by_a_crash(directory: Path) -> None:
    """Leave a sealed segment whose preallocated tail was not trimmed, and a segment after it."""
    with open_log(directory, config=PREALLOCATED) as log:
        for number in range(10):
            log.append([Record(value=b"%d" % number)])
        log.roll()
        log.append([Record(value=b"behind")])
    with (directory / f"{0:020d}.log").open("rb+") as file:
        file.truncate(PREALLOCATED.segment_bytes)
    # A crash: no marker of an orderly stop, and no recovery point.
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        for path in (directory / name, directory.parent / name):
            path.unlink(missing_ok=True)


@pytest.mark.parametrize("first", [PREALLOCATED, PLAIN], ids=["the same", "others"])
def test_preallocated_tail_after_a_crash_is_not_damage_under_other_settings(
    tmp_path: Path, first: LogConfig
) -> None:
    """
    A recovery truncates zeros after a sealed segment; a later opening reports no damage.

    Found by the proof of kills: the recovery passed over them in memory only, the clean start after
    it looked for none, since its settings preallocate nothing, and reading raised.
    """
    directory = tmp_path / "t-0"
    left_by_a_crash(directory)
    for config in (first, PLAIN, PLAIN):
        with open_log(directory, config=config) as log:
            assert [*(b"%d" % each for each in range(10)), b"behind"] == [
                record.value for record in log.records(0)
            ]
            assert () == log.corrupt_ranges()
    with open_log(directory, config=PLAIN, read_only=True) as log:
        assert 11 == len(list(log.records(0)))


def ensure_whole_under_other_settings(disk: SimulatedDisk, count: int, why: object) -> None:
    """Open a crash state twice with settings without preallocation: all records are served."""
    rig = Rig(AFTER, disk)
    for _ in range(2):
        log = rig.open()
        assert not log.corrupt_ranges(), why
        assert list(range(count)) == [record.offset for record in log.records(0)], why
        rig.close()


def test_preallocated_tail_trim_of_a_roll_is_durable_with_the_next_sync() -> None:
    """
    The trim of a preallocated tail is on the disk before the recovery point passes the segment.

    Found by the proof of power cuts: the bytes were on the disk before the roll, so that no sync
    covered the trim after them. The tail came back below the recovery point, settings without
    preallocation looked for none, and reading raised.
    """
    rig = Rig(BEFORE)
    rig.open()
    rig.append(3, durable=True)
    rig.roll()
    rig.append(1, durable=True)
    assert partition_of(rig.log).flusher.checkpoint_recovery_point()
    disk = rig.disk.crash(CrashChoice("nothing"))
    ensure_whole_under_other_settings(disk, 4, "nothing survived")
    rig.release()


def test_preallocated_tail_unsynced_trim_is_repeated_by_the_next_start() -> None:
    """A power cut right after a roll at the recovery point: the tail is back, and not damage."""
    rig = Rig(BEFORE)
    rig.open()
    rig.append(3, durable=True)
    assert partition_of(rig.log).flusher.checkpoint_recovery_point()
    rig.roll()
    for choice, disk in rig.disk.crash_states(limit=MANY_STATES * 4, seed=7):
        ensure_whole_under_other_settings(disk, 3, choice)
    rig.release()
