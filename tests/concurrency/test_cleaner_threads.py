"""The cleaner's threads with writers, readers, truncation, retention and new settings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

from kafkalog import (
    CleanerConfig,
    LogCleaningAbortedError,
    LogConfig,
    LogManager,
    ManagerConfig,
    Record,
)
from tests.concurrency.test_many_logs import run_all

KEYS = 12
APPENDS = 150
CONFIG = ManagerConfig(
    log=LogConfig(
        cleanup_policy=("compact",),
        min_cleanable_dirty_ratio=0.0,
        segment_bytes=2_000,
        index_interval_bytes=200,
        segment_index_bytes=240,
        batch_bytes=200,
        message_timestamp_after_max_ms=2**62,
        file_delete_delay_ms=0,
    ),
    log_initial_task_delay_ms=0,
    cleaner=CleanerConfig(threads=2, dedupe_buffer_size=4 << 20, backoff_ms=1),
)


def write(manager: LogManager, partition: int, latest: dict[bytes, bytes]) -> None:
    """Append values of few keys, one after another, and remember the last of each."""
    chance = Random(partition)
    for number in range(APPENDS):
        key = b"key %d" % chance.randrange(KEYS)
        latest[key] = b"%d" % number * 10
        manager.log("table", partition).append([Record(key=key, value=latest[key])])


def read(manager: LogManager, partition: int, is_done: Callable[[], bool]) -> None:
    """Read from the start again and again: offsets rise, and each key's values do."""
    while not is_done():
        end = manager.log("table", partition).log_end_offset
        offset = -1
        seen: dict[bytes, int] = {}
        for record in manager.log("table", partition).records(0, end):
            assert record.key is not None
            assert offset < record.offset
            assert seen.get(record.key, -1) < record.offset
            offset = seen[record.key] = record.offset


def disturb(manager: LogManager, is_done: Callable[[], bool]) -> None:
    """Change, ask for, and cut what the threads are at."""
    chance = Random(7)
    while not is_done():
        what = chance.randrange(5)
        if what == 0:
            manager.reconfigure("table", {"min.cleanable.dirty.ratio": "0.0"})
        elif what == 1:
            manager.compact("table", chance.randrange(2), include_active=chance.random() < 0.5)
        elif what == 2:
            manager.log("cut").append([Record(key=b"k", value=bytes(300))] * 5)
            manager.log("cut").truncate_to(chance.randrange(manager.log("cut").log_end_offset))
        elif what == 3:
            # Deleted records may take segments away that it relied on.
            with suppress(LogCleaningAbortedError):
                manager.compact("cut", include_active=True)
            manager.log("cut").delete_records(manager.log("cut").log_end_offset // 2)
        else:
            manager.create_topic("short", 1)
            manager.log("short").append([Record(key=b"k", value=bytes(100))] * 50)
            manager.delete_topic("short")
        assert all(each.dead_count == 0 for each in [manager.health().cleaner])


def test_cleaner_threads_under_load_keep_the_latest_of_each_key(tmp_path: Path) -> None:
    """Readers always see offsets in order; at the end each key has one value, the last."""
    with LogManager([tmp_path / "data"], CONFIG) as manager:
        manager.create_topic("table", 2)
        manager.create_topic("cut")
        latest: list[dict[bytes, bytes]] = [{}, {}]
        done = threading.Event()
        failures: list[BaseException] = []
        others: list[Callable[[], None]] = [
            partial(read, manager, number, done.is_set) for number in (0, 1)
        ]
        others.append(partial(disturb, manager, done.is_set))
        beside = threading.Thread(target=lambda: failures.extend(run_all(others)))
        beside.start()
        writers: list[Callable[[], None]] = [
            partial(write, manager, number, latest[number]) for number in (0, 1)
        ]
        failures += run_all(writers)
        done.set()
        beside.join(timeout=120)
        assert not beside.is_alive()
        assert [] == failures
        assert () == manager.health().faults
        for number in (0, 1):
            manager.compact("table", number, include_active=True)
            found = [(r.key, r.value) for r in manager.log("table", number).records()]
            assert sorted(latest[number].items()) == sorted(found)
        health = manager.health().cleaner
        assert health.cleaning_count > 2
        assert (2, 0) == (health.alive_count, health.replaced_count)
