"""Cost of a single append, read or poll does not grow: calls counted, memory measured."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kafkalog import Log, Record
from tests.support.log_sources import Logs
from tests.support.logs import manual_log, numbered

RECORD = Record(key=b"k", value=b"v" * 50, timestamp_ms=5)


def calls_of(work: Callable[[], object]) -> Counter[str]:
    """Return the number of calls of each function, also of compiled ones."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, function: Any) -> None:
        if event == "call":
            found[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            found[getattr(function, "__qualname__", "?")] += 1

    # Objects of earlier tests must not be collected during the call.
    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


def log_of(directory: Path, segments: int, **settings: Any) -> Log:
    """Return a log with this number of segments and one record in the last."""
    log = manual_log(directory, segment_bytes=2**20, **settings)
    for number in range(segments - 1):
        log.append(numbered(number, 1))
        log.roll()
    log.append([RECORD])
    return log


@pytest.mark.parametrize(
    ("compression_type", "calls_min", "calls_max"),
    [
        # One compiled call does nearly all; the limit keeps Python code from coming back.
        pytest.param("uncompressed", 2, 10, id="in one call"),
        pytest.param("zstd", 20, 100, id="step by step"),
    ],
)
def test_append_cost_is_independent_of_log_size(
    compression_type: str, calls_min: int, calls_max: int, tmp_path: Path
) -> None:
    """With one segment or fifty; the tenth append to a segment costs as the two hundredth."""
    seen = []
    for segments in (1, 50):
        directory = tmp_path / f"log{segments}" / "orders-0"
        with log_of(directory, segments, compression_type=compression_type) as log:
            for count in (10, 190):
                for _ in range(count):
                    log.append([RECORD])
                # Some appends write index entries: the cheapest of three has none.
                found = [calls_of(lambda: log.append([RECORD])) for _ in range(3)]
                seen.append(min(found, key=lambda calls: sum(calls.values())))
    assert calls_min < sum(seen[0].values()) < calls_max
    assert [seen[0]] * 3 == seen[1:]


def test_roll_cost_is_independent_of_log_size(tmp_path: Path) -> None:
    """An append that rolls costs most: it seals the files of a segment and creates others."""
    seen = []
    for segments in (2, 50):
        with log_of(tmp_path / f"log{segments}" / "orders-0", segments) as log:
            log.reconfigure(log.config.replace(segment_bytes=100))
            seen.append(calls_of(lambda: log.append([RECORD])))
            assert segments + 1 == len(log.segments())
    assert seen[0] == seen[1]


def held_and_peak(work: Callable[[], object], times: int) -> tuple[int, int]:
    """Return the bytes that the calls do not free, and the peak of memory above the start."""
    for _ in range(20):
        work()
    tracemalloc.start()
    try:
        work()
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for _ in range(times):
            work()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before, peak - before


@pytest.fixture
def kept(tmp_path: Path) -> Any:
    """A log of a mebibyte in batches of 64 KiB."""
    with manual_log(tmp_path / "orders-0") as log:
        log.append([Record(value=bytes(1000), timestamp_ms=5) for _ in range(1000)])
        log.read(0)
        yield log


def test_read_of_a_mapped_segment_copies_nothing(kept: Log) -> None:
    """A read of the whole log allocates less than one of its batches, and frees it."""
    kept.roll()
    left, most = held_and_peak(lambda: kept.read(0, max_bytes=2**20), 100)
    assert left < 2048
    assert most < 16 * 1024


def test_read_at_the_end_allocates_almost_nothing(kept: Log) -> None:
    """Without a new record no byte is read."""
    left, most = held_and_peak(lambda: kept.read(kept.log_end_offset, max_bytes=2**20), 200)
    assert left < 2048
    assert most < 16 * 1024


def test_poll_without_records_allocates_almost_nothing(tmp_path: Path) -> None:
    """Repeated polls keep almost no memory."""
    logs = Logs(tmp_path)
    try:
        logs.create_topic("orders", 1)
        logs.log("orders", 0).append(numbered(0, 5))
        with logs.clients().consumer("", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("orders")
            consumer.poll()
            left, most = held_and_peak(consumer.poll, 200)
        assert left < 4096
        assert most < 16 * 1024
    finally:
        logs.close()
