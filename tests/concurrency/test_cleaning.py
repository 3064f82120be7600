"""A writer, a cleaner and readers in threads: old segments leave while they are read.

The writer takes a fixed number of steps, the others run until it has done. The value of a record
is its number, so a reader can check that it was written there, and which records were lost.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kafkalog import CleanerConfig, Log, LogConfig, Record, SystemClock, open_log
from kafkalog.cleaner.cleaning import Cleaner
from kafkalog.cleaner.selection import CleanableRange

STEPS = 120
KEYS = 13
WAIT_SECONDS = 60
CONFIG = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=2000,
    index_interval_bytes=200,
    batch_bytes=300,
    file_delete_delay_ms=0,
    mappings_max=4,
    open_files_max=4,
)


def append_all(log: Log) -> None:
    """Append ten records a step; the offset of each is its number."""
    for step in range(STEPS):
        numbers = range(10 * step, 10 * step + 10)
        log.append(
            [Record(key=b"%d" % (each * each % KEYS), value=b"%d" % each) for each in numbers]
        )


def clean_all(log: Log, is_over: threading.Event) -> None:
    """Clean again and again."""
    cleaner = Cleaner(CleanerConfig(), memory_bytes=24 * 100, clock=SystemClock())
    first_dirty = 0
    while True:
        was_over = is_over.is_set()
        span = CleanableRange(first_dirty, log.segments()[-1].base_offset)
        first_dirty = cleaner.clean(log, span).end_offset
        if was_over:
            return


def read_all(log: Log, is_over: threading.Event) -> dict[bytes, bytes]:
    """Read from the start again and again; return the state that the last reading ends with."""
    while True:
        was_over, state, before = is_over.is_set(), dict[bytes, bytes](), -1
        for record in log.records():
            assert record.key is not None
            assert record.value is not None
            assert record.offset > before
            assert record.value == b"%d" % record.offset
            before, state[record.key] = record.offset, record.value
        if was_over:
            return state


def test_cleaning_readers_and_appends_continue(tmp_path: Path) -> None:
    """Each read is in order, whatever is removed; the last read has the last values."""
    is_over = threading.Event()
    with (
        open_log(tmp_path / "orders-0", config=CONFIG) as log,
        open_log(tmp_path / "orders-0", read_only=True) as other,
        ThreadPoolExecutor(3) as pool,
    ):
        cleaning = pool.submit(clean_all, log, is_over)
        readings = [pool.submit(read_all, each, is_over) for each in (log, other)]
        try:
            append_all(log)
        finally:
            is_over.set()
        cleaning.result(WAIT_SECONDS)
        states = [each.result(WAIT_SECONDS) for each in readings]
        expected = {b"%d" % (each * each % KEYS): b"%d" % each for each in range(10 * STEPS)}
        assert [expected, expected] == states
        assert len(list(log.records())) < 5 * STEPS
