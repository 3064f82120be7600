"""Tests of guarantees of compaction that depend on one step of a cleaning."""

from __future__ import annotations

import contextlib

import pytest

from kafkalog import (
    CleanerConfig,
    KafkaLogError,
    Log,
    LogCleaningAbortedError,
    LogConfig,
    open_log,
)
from kafkalog.cleaner.cleaning import Cleaner
from kafkalog.cleaner.selection import CleanableRange
from tests.support.crash_rig import INSIDE, small_config
from tests.support.keyed_batches import keyed_batch
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.simulated_disk import CrashChoice, PowerCut, SimulatedDisk

RETENTION_MS = 1000
CONFIG: LogConfig = small_config(
    cleanup_policy=("compact",), delete_retention_ms=RETENTION_MS, segment_bytes=150
)


def opened(disk: SimulatedDisk, clock: ManualClock, config: LogConfig = CONFIG) -> Log:
    """Open the log."""
    return open_log(
        INSIDE.directory,
        config=config,
        clock=clock,
        scheduler=ManualScheduler(clock),
        filesystem=disk,
    )


def append(log: Log, key: bytes, value: bytes | None, now_ms: int) -> None:
    """Append one record in a separate batch."""
    log.append_batches(keyed_batch([(key, value)], now_ms))


def cleaner(clock: ManualClock, entries: int) -> Cleaner:
    """Return a cleaner with a map of the given number of keys."""
    config = CleanerConfig(io_buffer_load_factor=1.0)
    return Cleaner(config, memory_bytes=24 * entries, clock=clock)


def values(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return the values in a log."""
    return [(record.offset, record.key, record.value) for record in log.records()]


@pytest.mark.parametrize("kind", ["nothing", "names", "all"])
def test_record_is_removed_only_if_its_successor_is_synced(kind: str) -> None:
    """A crash must not lose the durable old value with the new, which was not synced."""
    for number in range(1, 200):
        clock = ManualClock()
        disk = INSIDE.new_disk(clock)
        log = opened(disk, clock)
        append(log, b"a", b"old", clock.now_ms())
        append(log, b"b", b"x" * 60, clock.now_ms())
        log.roll()
        log.flush()
        append(log, b"c", b"y" * 60, clock.now_ms())
        append(log, b"a", b"new", clock.now_ms())
        log.roll()
        disk.crash_at(number)
        finished = False
        with contextlib.suppress(PowerCut):
            span = CleanableRange(0, log.segments()[-1].base_offset)
            cleaner(clock, 100).clean(log, span)
            finished = True
        with opened(disk.crash(CrashChoice(kind)), clock) as again:
            found = {key: value for _offset, key, value in values(again)}
            assert found.get(b"a") in (b"old", b"new"), f"crash at call {number}"
            assert found[b"b"] == b"x" * 60
        disk.clear_faults()
        with contextlib.suppress(PowerCut, KafkaLogError):
            log.close()
        if finished:
            return
    raise AssertionError("the cleaning does not end")


def test_tombstone_beyond_a_full_map_has_no_horizon_yet() -> None:
    """The records that it hides can still be read; a broker sets the horizon too early."""
    clock = ManualClock()
    disk = INSIDE.new_disk(clock)
    with opened(disk, clock, CONFIG.replace(segment_bytes=2000)) as log:
        for key in (b"x", b"y", b"a"):
            append(log, key, b"1", clock.now_ms())
        log.roll()
        append(log, b"x", b"2", clock.now_ms())
        append(log, b"p", b"1", clock.now_ms())
        log.append_batches(keyed_batch([(b"q", b"1"), (b"a", None)], clock.now_ms()))
        log.roll()
        end_offset = log.segments()[-1].base_offset
        first = cleaner(clock, 4).clean(log, CleanableRange(0, end_offset))
        # The map holds x, y, a and p: the last batch is beyond it.
        assert first.end_offset == 5
        clock.advance(RETENTION_MS)
        assert (2, b"a", b"1") in values(log)
        cleaner(clock, 4).clean(log, CleanableRange(first.end_offset, end_offset))
        assert [each for each in values(log) if each[1] == b"a"] == [(6, b"a", None)]
        clock.advance(RETENTION_MS)
        cleaner(clock, 400).clean(log, CleanableRange(0, end_offset))
        assert [each for each in values(log) if each[1] == b"a"] == []


def test_tombstone_gets_its_horizon_in_the_last_pass() -> None:
    """If a cleaning ends between two passes, records of the next pass are still there."""
    clock = ManualClock()
    disk = INSIDE.new_disk(clock)
    keys = [b"%d" % number for number in range(8)]
    for calls in range(1, 60):
        with opened(disk, clock, CONFIG.replace(segment_bytes=4000)) as log:
            start = log.log_end_offset
            log.append_batches(keyed_batch([(key, b"1") for key in keys], clock.now_ms()))
            log.append_batches(keyed_batch([(key, None) for key in keys], clock.now_ms()))
            log.roll()
            span = CleanableRange(start, log.segments()[-1].base_offset)
            left = calls

            def check() -> None:
                nonlocal left
                left -= 1
                if not left:
                    raise LogCleaningAbortedError("enough")

            ended = False
            with contextlib.suppress(LogCleaningAbortedError):
                assert cleaner(clock, 3).clean(log, span, check=check).passes > 1
                ended = True
            hidden = {key for _, key, value in values(log) if value is not None}
            clock.advance(RETENTION_MS)
            cleaner(clock, 400).clean(log, span)
            # Only the tombstone of a key whose value was readable until now is left.
            assert hidden <= {key for _, key, value in values(log) if value is None}
            log.delete_records(span.first_uncleanable)
            if ended:
                assert not hidden
                return
    raise AssertionError("the cleaning does not end")
