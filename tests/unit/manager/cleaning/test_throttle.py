"""`Throttle`: bytes per second over all threads, each of which waits alone."""

from __future__ import annotations

import sys
import threading

import pytest

from kafkalog.manager.cleaning.throttle import Throttle
from tests.support.manual_time import ManualClock


class Sleeper:
    """Wait function that advances the clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.slept_ms: list[float] = []

    def __call__(self, duration_ms: float) -> None:
        self.slept_ms.append(duration_ms)
        self.clock.advance(int(duration_ms))


def test_pay_without_a_limit_does_not_wait() -> None:
    """No limit is the default of Kafka."""
    clock = ManualClock()
    throttle, sleeper = Throttle(sys.float_info.max, clock), Sleeper(clock)
    throttle.pay(10**15, sleeper)
    assert (False, [], 0) == (throttle.is_limited, sleeper.slept_ms, throttle.waited_ms)


def test_pay_waits_bytes_divided_by_the_limit() -> None:
    """A megabyte per second: ten chunks of 100 kB wait 100 ms each."""
    clock = ManualClock()
    throttle, sleeper = Throttle(1e6, clock), Sleeper(clock)
    for _ in range(10):
        throttle.pay(100_000, sleeper)
    assert ([100.0] * 10, 1000, 1000) == (
        sleeper.slept_ms,
        clock.monotonic_ms(),
        throttle.waited_ms,
    )


def test_pay_after_idle_time_waits_in_full() -> None:
    """After an idle hour the first chunk costs as much as any other."""
    clock = ManualClock()
    throttle, sleeper = Throttle(1e6, clock), Sleeper(clock)
    clock.advance(3_600_000)
    throttle.pay(50_000, sleeper)
    assert [50.0] == sleeper.slept_ms


def test_pay_below_a_millisecond_is_added_up() -> None:
    """Ten chunks of 0.4 ms each wait 4 ms together."""
    clock = ManualClock()
    throttle, sleeper = Throttle(1e6, clock), Sleeper(clock)
    for _ in range(10):
        throttle.pay(400, sleeper)
    assert 3 <= clock.monotonic_ms() <= 4
    assert 3 >= len(sleeper.slept_ms)


def test_wait_that_ends_early_is_repeated() -> None:
    """A wait may end early without a reason."""
    clock = ManualClock()
    throttle, waits = Throttle(1000, clock), []

    def wait(duration_ms: float) -> None:
        waits.append(duration_ms)
        clock.advance(40)

    throttle.pay(100, wait)
    assert [100.0, 60.0, 20.0] == waits


def test_pay_of_an_aborted_cleaning_does_not_wait() -> None:
    """The abort is checked before each wait."""
    clock = ManualClock()
    throttle, sleeper = Throttle(1000, clock), Sleeper(clock)
    throttle.pay(1000, sleeper, lambda: bool(sleeper.slept_ms) or True)
    assert [] == sleeper.slept_ms


def test_threads_share_the_limit_and_wait_in_parallel() -> None:
    """A second thread computes its wait during that of the first: the lock is free."""
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
def test_limit_of_zero_or_less_is_one_byte_per_second(limit: float) -> None:
    """Otherwise a log would never be cleaned, without an error."""
    clock = ManualClock()
    sleeper = Sleeper(clock)
    Throttle(limit, clock).pay(2, sleeper)
    assert [2000.0] == sleeper.slept_ms


def test_set_limit_applies_to_the_next_pay() -> None:
    """The debt under the old limit is dropped."""
    clock = ManualClock()
    throttle, sleeper = Throttle(1.0, clock), Sleeper(clock)
    throttle.pay(1000, sleeper, lambda: True)
    throttle.set_limit(1e6)
    throttle.pay(1000, sleeper)
    assert [1.0] == sleeper.slept_ms
