"""Times of syncs, and the number of callers that each of them served."""

from __future__ import annotations

import threading

import pytest

from kafkalog.errors import LogOfflineError
from kafkalog.log.committer import Committer
from kafkalog.log.meters import SYNCS_MIN, SyncTimes

MINUTE_NS = 60 * 10**9


def test_sync_times_running_syncs_are_known_until_they_end() -> None:
    """A sync that hangs is visible, a failed one is not counted."""
    times = SyncTimes()
    assert 0 == times.longest_running_ns()
    first, second = times.begin(), times.begin()
    assert 0 < times.longest_running_ns()
    times.end(first)
    times.end(second, has_succeeded=False)
    assert 0 == times.longest_running_ns()
    assert 1 == sum(times.histogram.counts()[0])


def test_sync_times_slow_time_needs_ten_recent_syncs() -> None:
    """Few syncs prove nothing, and old ones do not count."""
    times = SyncTimes()
    for _ in range(SYNCS_MIN - 1):
        times.end(times.begin())
    assert 0 == times.slow_ns(MINUTE_NS)
    times.end(times.begin())
    assert 0 < times.slow_ns(MINUTE_NS)
    assert 0 == times.slow_ns(0)


def test_committer_reports_callers_of_each_sync() -> None:
    """Callers that come during a sync share the next one; an awaited offset counts once."""
    started, proceed = threading.Semaphore(0), threading.Semaphore(0)
    end = 10
    served: list[int] = []

    def sync() -> int:
        reached = end
        started.release()
        assert proceed.acquire(timeout=60)
        return reached

    committer = Committer(sync, 0, on_sync=served.append)
    threads = [threading.Thread(target=committer.wait_until_durable, args=(10,))]
    threads[0].start()
    assert started.acquire(timeout=60)
    end = 20
    for offset in (15, 15, 20):
        threads.append(threading.Thread(target=committer.wait_until_durable, args=(offset,)))
        threads[-1].start()
    while 4 > committer.waiting_count:
        threads[-1].join(0.001)
    proceed.release(2)
    for thread in threads:
        thread.join()
    assert ([1, 3], 0) == (served, committer.waiting_count)
    committer.wait_until_durable(20)
    assert [1, 3] == served


def test_committer_flush_serves_one_caller() -> None:
    """A flush waits for no offset."""
    served: list[int] = []
    committer = Committer(lambda: 5, 0, on_sync=served.append)
    assert 5 == committer.flush()
    assert [1] == served


def test_committer_forgets_awaited_offsets_after_failure_and_truncation() -> None:
    """They must not be counted as served by a later sync."""
    error: list[OSError] = []
    served: list[int] = []

    def sync() -> int:
        if error:
            raise error[0]
        committer.lower(3)
        return 3

    committer = Committer(sync, 0, on_sync=served.append)
    assert 0 == committer.wait_until_durable(9)
    assert ([1], 0) == (served, committer.waiting_count)
    error.append(OSError(5, "no"))
    with pytest.raises(OSError, match="no"):
        committer.wait_until_durable(9)
    with pytest.raises(LogOfflineError):
        committer.wait_until_durable(9)
    assert ([1], 0) == (served, committer.waiting_count)
