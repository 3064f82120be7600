"""So many bytes a second, over all threads; nobody waits for the wait of another one."""

from __future__ import annotations

import sys
import threading

import pytest

from kafkalog.manager.cleaning.throttle import Throttle
from tests.support.manual_time import ManualClock


class Sleeper:
    """Waits by moving the clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.slept_ms: list[float] = []

    def __call__(self, duration_ms: float) -> None:
        self.slept_ms.append(duration_ms)
        self.clock.advance(int(duration_ms))


def test_without_a_limit_nothing_is_reckoned() -> None:
    """The default of Kafka."""
    clock = ManualClock()
    throttle, sleeper = Throttle(sys.float_info.max, clock), Sleeper(clock)
    throttle.pay(10**15, sleeper)
    assert (False, [], 0) == (throttle.is_limited, sleeper.slept_ms, throttle.waited_ms)


def test_bytes_take_the_time_that_the_limit_says() -> None:
    """A megabyte a second: ten chunks of 100 kB take a second, each its share."""
    clock = ManualClock()
    throttle, sleeper = Throttle(1e6, clock), Sleeper(clock)
    for _ in range(10):
        throttle.pay(100_000, sleeper)
    assert ([100.0] * 10, 1000, 1000) == (
        sleeper.slept_ms,
        clock.monotonic_ms(),
        throttle.waited_ms,
    )


def test_idle_time_is_not_saved_up() -> None:
    """After an hour of nothing the first chunk is paid for like any other."""
    clock = ManualClock()
    throttle, sleeper = Throttle(1e6, clock), Sleeper(clock)
    clock.advance(3_600_000)
    throttle.pay(50_000, sleeper)
    assert [50.0] == sleeper.slept_ms


def test_short_waits_are_added_up() -> None:
    """Nothing is lost where a chunk is worth less than a millisecond."""
    clock = ManualClock()
    throttle, sleeper = Throttle(1e6, clock), Sleeper(clock)
    for _ in range(10):
        throttle.pay(400, sleeper)
    assert 3 <= clock.monotonic_ms() <= 4
    assert 3 >= len(sleeper.slept_ms)


def test_wait_goes_on_until_the_time_has_come() -> None:
    """A wait may end before its time for no reason."""
    clock = ManualClock()
    throttle, waits = Throttle(1000, clock), []

    def wait(duration_ms: float) -> None:
        waits.append(duration_ms)
        clock.advance(40)

    throttle.pay(100, wait)
    assert [100.0, 60.0, 20.0] == waits


def test_wait_ends_where_the_cleaning_does() -> None:
    """It is asked before each wait."""
    clock = ManualClock()
    throttle, sleeper = Throttle(1000, clock), Sleeper(clock)
    throttle.pay(1000, sleeper, lambda: bool(sleeper.slept_ms) or True)
    assert [] == sleeper.slept_ms


def test_threads_share_the_limit_and_wait_side_by_side() -> None:
    """The second one is told its time while the first one still waits: the lock is free."""
    clock = ManualClock()
    throttle = Throttle(1000, clock)
    waits: list[float] = []

    def wait_long(duration_ms: float) -> None:
        waits.append(duration_ms)
        second = threading.Thread(
            target=throttle.pay, args=(500, waits.append, lambda: bool(waits[1:]))
        )
        second.start()
        second.join(30)
        assert not second.is_alive()
        clock.advance(int(duration_ms))

    throttle.pay(1000, wait_long)
    assert [1000.0, 1500.0] == waits


@pytest.mark.parametrize("limit", [0.0, -5.0])
def test_limit_of_nothing_counts_as_one_byte(limit: float) -> None:
    """Or a log would never be cleaned, and nobody told why."""
    clock = ManualClock()
    sleeper = Sleeper(clock)
    Throttle(limit, clock).pay(2, sleeper)
    assert [2000.0] == sleeper.slept_ms


def test_another_limit_counts_at_once() -> None:
    """What was paid for under the old one is forgotten."""
    clock = ManualClock()
    throttle, sleeper = Throttle(1.0, clock), Sleeper(clock)
    throttle.pay(1000, sleeper, lambda: True)
    throttle.set_limit(1e6)
    throttle.pay(1000, sleeper)
    assert [1.0] == sleeper.slept_ms
