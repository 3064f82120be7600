"""Tests of directories of a killed compaction that a broker uses, then the library again.

Every latest value is served, by a read-only log and by a log open for writing, and a second
opening gives the same records (INT-1).
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from kafkalog import CleanerConfig, Log, LogConfig, Record, compact_log, open_log
from tests.support.broker_loader import EmulatedBroker
from tests.support.manual_time import START_MS, ManualClock, ManualScheduler
from tests.support.simulated_disk import CrashChoice, PowerCut, SimulatedDisk

DIRECTORY = Path("/data/orders-0")
CONFIG = LogConfig(segment_bytes=700, cleanup_policy=("compact",), segment_index_bytes=1024)
# Config of a later process: several old segments become one.
LARGE = LogConfig(segment_bytes=1400, cleanup_policy=("compact",), segment_index_bytes=1024)
MEMORY_BYTES = 1 << 20
STATES = int(os.environ.get("KAFKALOG_CRASH_STATES", "1"))
# Calls between two that are killed; all of them take minutes: KAFKALOG_COMPACTION_STRIDE=1.
STRIDE = int(os.environ.get("KAFKALOG_COMPACTION_STRIDE", "13"))

Latest = dict[bytes, bytes]


def nothing(_broker: EmulatedBroker, _latest: Latest) -> None:
    """Load only."""


def append(broker: EmulatedBroker, latest: Latest) -> None:
    """Append new values of old keys, and a new key."""
    for number, key in enumerate((b"k1", b"k4", b"new")):
        latest[key] = b"by the broker %d" % number
        broker.append(key, latest[key], START_MS + 10_000 + number)


def append_and_clean(broker: EmulatedBroker, latest: Latest) -> None:
    """Append, roll, append and clean: everything is merged into one segment."""
    append(broker, latest)
    broker.roll()
    latest[b"k2"] = b"the last"
    broker.append(b"k2", latest[b"k2"], START_MS + 20_000)
    broker.clean()


def clean(broker: EmulatedBroker, _latest: Latest) -> None:
    """Clean what was loaded."""
    broker.clean()


BROKERS: tuple[Callable[[EmulatedBroker, Latest], None], ...] = (
    nothing,
    append,
    append_and_clean,
    clean,
)


@functools.cache
def pristine(merges: bool) -> tuple[SimulatedDisk, Latest]:
    """Return a log to be compacted, closed in order, and its latest values."""
    disk, latest = SimulatedDisk(), dict[bytes, bytes]()
    with opened(disk, CONFIG) as log:
        for number in range(48):
            # Some segments become empty; others keep each second record.
            key = b"k%d" % (number % 9 if merges else number % 21)
            latest[key] = b"%02d" % number * 30
            log.append([Record(key=key, value=latest[key], timestamp_ms=START_MS + number)])
        assert 6 < len(log.segments())
    return disk, latest


def opened(disk: SimulatedDisk, config: LogConfig, *, read_only: bool = False) -> Log:
    """Open the log."""
    clock = ManualClock()
    return open_log(
        DIRECTORY,
        config=config,
        read_only=read_only,
        clock=clock,
        scheduler=ManualScheduler(clock),
        filesystem=disk,
    )


def served(log: Log) -> Latest:
    """Return the value that a reader of the whole log ends with, for each key."""
    seen: Latest = {}
    offset = -1
    for record in log.records():
        assert record.offset > offset
        offset = record.offset
        seen[bytes(record.key or b"")] = bytes(record.value or b"")
    return seen


def clone(disk: SimulatedDisk) -> SimulatedDisk:
    """Return a copy of the disk."""
    return disk.crash(CrashChoice("all"))


def compact(disk: SimulatedDisk) -> bool:
    """Compact until the power cut; return whether the compaction finished."""
    with contextlib.suppress(PowerCut):
        log = opened(disk, LARGE)
        compact_log(log, config=CleanerConfig(), memory_bytes=MEMORY_BYTES)
        log.close()
        return True
    return False


def verify(disk: SimulatedDisk, latest: Latest) -> None:
    """Open read-only, for writing, and once more: every latest value, and the same each time."""
    before = disk.fingerprint()
    with opened(disk, LARGE, read_only=True) as log:
        assert latest == served(log)
        assert not log.corrupt_ranges()
    assert before == disk.fingerprint()
    with opened(disk, LARGE) as log:
        assert latest == served(log)
        assert not log.recovery_report.found_damage, log.recovery_report.summary()
    with opened(disk, LARGE) as log:
        assert latest == served(log)
        assert log.recovery_report.clean


@pytest.mark.parametrize("merges", [True, False], ids=["whole segments go", "each keeps some"])
@pytest.mark.parametrize("broker", BROKERS, ids=lambda broker: broker.__name__)
def test_compaction_killed_then_broker_keeps_latest_values(
    broker: Callable[[EmulatedBroker, Latest], None], merges: bool
) -> None:
    """INT-1: a broker loads, appends or cleans the directory, also after a power cut."""
    made, values = pristine(merges)
    unfinished = 0
    for number in range(1 + len(broker.__name__) % STRIDE, 2000, STRIDE):
        disk = clone(made)
        disk.crash_at(number)
        finished = compact(disk)
        states = [("killed", disk.killed())]
        states += [(str(choice), state) for choice, state in disk.crash_states(STATES, seed=number)]
        for choice, state in states:
            latest = dict(values)
            unfinished += any(
                name.endswith((".cleaned", ".swap")) for name in state.list(DIRECTORY)
            )
            try:
                emulated = EmulatedBroker(state, DIRECTORY)
                emulated.load()
                broker(emulated, latest)
                verify(state, latest)
            except BaseException as error:
                error.add_note(f"call {number}, {choice}")
                raise
        if finished:
            assert 5 < unfinished
            return
    raise AssertionError("the compaction does not end")


@pytest.mark.parametrize("merges", [True, False], ids=["whole segments go", "each keeps some"])
def test_compaction_killed_then_broker_killed_keeps_latest_values(
    merges: bool,
) -> None:
    """INT-1: a broker removes old segments in any order, and may be killed between any two."""
    made, values = pristine(merges)
    random = Random(20)
    for number in range(1, 2000, STRIDE):
        disk = clone(made)
        disk.crash_at(number)
        finished = compact(disk)
        left = disk.killed()
        calls = random.randint(1, 12)
        left.crash_at(calls)
        with contextlib.suppress(PowerCut):
            EmulatedBroker(left, DIRECTORY).load()
        try:
            verify(left.killed(), dict(values))
        except BaseException as error:
            error.add_note(f"call {number}, broker killed at {calls}")
            raise
        if finished:
            return
    raise AssertionError("the compaction does not end")


@pytest.mark.parametrize("merges", [True, False], ids=["whole segments go", "each keeps some"])
def test_compaction_killed_reader_sees_records_of_the_next_writer(
    merges: bool,
) -> None:
    """HOST-2: a read-only log serves the records that an opening for writing recovers."""
    made, values = pristine(merges)
    for number in range(3, 2000, STRIDE):
        disk = clone(made)
        disk.crash_at(number)
        finished = compact(disk)
        for choice, state in disk.crash_states(STATES, seed=number):
            try:
                with opened(state, LARGE, read_only=True) as log:
                    read_only = [record.offset for record in log.records()]
                with opened(state, LARGE) as log:
                    assert read_only == [record.offset for record in log.records()]
                    assert not log.recovery_report.found_damage
                verify(state, dict(values))
            except BaseException as error:
                error.add_note(f"call {number}, {choice}")
                raise
        if finished:
            return
    raise AssertionError("the compaction does not end")
