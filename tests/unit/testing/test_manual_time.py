"""Time of tests: retention, background tasks and waits of clients."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from kafkalog import LogManager, Record
from kafkalog.testing import START_MS, ManagerFactory, ManualTime, assert_offsets, assert_records


def test_advance_moves_both_times_and_runs_due_tasks() -> None:
    """Milliseconds or a timedelta; each task runs at its due time."""
    moved = ManualTime()
    runs: list[int] = []
    moved.scheduler.schedule("task", lambda: runs.append(moved.now_ms()), delay_ms=10, period_ms=10)
    before_ms = moved.monotonic_ms()
    assert 2 == moved.advance(25)
    assert 1 == moved.advance(timedelta(milliseconds=5))
    assert [START_MS + 10, START_MS + 20, START_MS + 30] == runs
    assert START_MS + 30 == moved.now_ms()
    assert moved.monotonic_ms() >= before_ms + 30
    with pytest.raises(ValueError, match="must be >= 0 ms, got -1"):
        moved.advance(-1)


def test_jump_runs_each_due_task_once() -> None:
    """A periodic task is due again a period after the jump."""
    moved = ManualTime()
    runs: list[int] = []
    moved.scheduler.schedule("task", lambda: runs.append(moved.now_ms()), delay_ms=10, period_ms=10)
    assert 1 == moved.jump(timedelta(seconds=1))
    assert 1 == moved.advance(10)
    assert [START_MS + 1_000, START_MS + 1_010] == runs
    with pytest.raises(ValueError, match="must be >= 0 ms, got -1"):
        moved.jump(-1)


def test_set_now_moves_only_the_wall_clock() -> None:
    """No task runs by it."""
    moved = ManualTime(start_ms=1_000)
    moved.scheduler.schedule("task", lambda: None, delay_ms=10)
    moved.set_now(500)
    assert 500 == moved.now_ms()
    assert [("task", 10)] == moved.scheduler.pending


def test_advance_deletes_segments_by_retention(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """Records get their timestamps from the clock, and `retention.ms` counts from them."""
    manager.reconfigure("orders", {"retention.ms": "3600000", "segment.ms": "600000"})
    log = manager.log("orders")
    log.append([Record(value=b"old")])
    managers.time.advance(timedelta(minutes=50))
    log.append([Record(value=b"new")])
    assert_offsets(log, start=0, end=2)
    managers.time.advance(timedelta(minutes=20))
    assert_offsets(log, start=1, end=2)
    assert [] == managers.time.scheduler.errors


def test_jump_over_the_default_retention_deletes_records(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """Kafka keeps records for seven days."""
    log = manager.log("orders")
    log.append([Record(value=b"old")])
    managers.time.jump(timedelta(days=6))
    assert_offsets(log, start=0, end=1)
    managers.time.jump(timedelta(days=2))
    assert_offsets(log, start=1, end=1)


def test_advance_compacts_in_the_background(managers: ManagerFactory, manager: LogManager) -> None:
    """The cleaner is a background task like the others."""
    manager.create_topic(
        "rates", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
    )
    log = manager.log("rates")
    for value in (b"1", b"2", b"3"):
        log.append([Record(key=b"EUR", value=value)])
    log.roll()
    managers.time.advance(timedelta(minutes=1))
    assert_records(log, [(b"EUR", b"3")])


def test_poll_with_a_timeout_ends_without_an_advance(manager: LogManager) -> None:
    """A program that waits for records does not hang in a test."""
    with manager.consumer() as consumer:
        consumer.assign([("orders", 0)])
        begin = time.monotonic()
        assert {} == consumer.poll(30)
        assert time.monotonic() - begin < 30
