"""`OpenLogLimit`: the number of logs with files open for writing, and those it releases."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from kafkalog import ManagerConfig, Record
from kafkalog.log.idle_files import IdleFiles
from kafkalog.log.log import partition_of
from kafkalog.manager.open_log_limit import OpenLogLimit, default_open_log_limit
from tests.support.descriptors import descriptor_count, descriptors_up_to
from tests.support.managers import SMALL_LOG, append_texts, manual_manager, values
from tests.support.simulated_disk import SimulatedDisk


class Sleeper:
    """The part of a log that `OpenLogLimit` uses."""

    def __init__(self, limiter: OpenLogLimit) -> None:
        self.limiter = limiter
        self.is_closed = False
        self.is_released = True
        self.is_busy = False
        self.end_offset = 0

    def wake(self) -> None:
        """Reopen the files, as an append does."""
        self.limiter.add(cast(IdleFiles, self))
        self.is_released = False

    def try_release(self) -> bool:
        """Release the files, unless busy."""
        if not self.is_busy:
            self.is_released = True
        return self.is_released


def sleepers(count: int, limit: int) -> tuple[OpenLogLimit, list[Sleeper]]:
    """Return logs that were all opened, one after the other."""
    limiter = OpenLogLimit(limit)
    logs = [Sleeper(limiter) for _ in range(count)]
    for log in logs:
        log.wake()
    return limiter, logs


def test_open_logs_never_exceed_the_limit() -> None:
    """The log opened last is open."""
    limiter, logs = sleepers(10, 3)
    assert 3 == len(limiter) == sum(not log.is_released for log in logs)
    assert not logs[-1].is_released


def test_log_written_since_the_last_check_stays_open() -> None:
    """Another log is released."""
    _open_log_limit, logs = sleepers(3, 3)
    for turn in range(1, 4):
        # The first is written all the time, the others are not.
        logs[0].end_offset = turn
        Sleeper(_open_log_limit).wake()
        assert not logs[0].is_released


def test_busy_log_is_not_released() -> None:
    """The limit is exceeded while all are busy; later logs are released."""
    limiter, logs = sleepers(3, 3)
    for log in logs:
        log.is_busy = True
    fourth = Sleeper(limiter)
    fourth.wake()
    assert 4 == len(limiter)
    assert not any(log.is_released for log in [*logs, fourth])
    for log in logs:
        log.is_busy = False
    Sleeper(limiter).wake()
    assert 3 == len(limiter)


def test_closed_or_released_log_is_not_counted() -> None:
    """A closed log is removed by its caller; a released one is found."""
    limiter, logs = sleepers(3, 3)
    limiter.remove(cast(IdleFiles, logs[0]))
    assert 2 == len(limiter)
    logs[1].is_closed = True
    logs[2].is_released = True
    for _ in range(3):
        Sleeper(limiter).wake()
    assert 3 == len(limiter)
    with pytest.raises(ValueError, match="limit must be >= 1, got 0"):
        OpenLogLimit(0)


def test_default_open_log_limit_leaves_descriptors_for_others() -> None:
    """It follows the limit of the process, within bounds."""
    assert 16 <= default_open_log_limit(0) <= 4096
    assert 16 == default_open_log_limit(10**9)


def test_recovered_logs_hold_no_files_until_an_append() -> None:
    """After an unclean stop no log holds a file; all can be written."""
    disk, data = SimulatedDisk(), Path("/data")
    manager = manual_manager(data, filesystem=disk)
    manager.create_topic("orders", 5)
    for number in range(5):
        manager.log("orders", number).append([Record(value=b"one")], wait="durable")
    ((_choice, after),) = disk.crash_states(limit=1, seed=1)
    with manual_manager(data, filesystem=after) as manager:
        assert 5 == manager.health().directories[0].open_count
        for number in range(5):
            log = manager.log("orders", number)
            assert partition_of(log).idle_files.is_released
            assert (1, False) == (log.durable_offset, log.recovery_report.clean)
            append_texts(manager, "orders", number, "two")
            assert not partition_of(log).idle_files.is_released
            assert ["one", "two"] == values(manager, "orders", number)


def test_many_logs_share_a_few_descriptors(tmp_path: Path) -> None:
    """All are open, written and read, and complete after a restart."""
    config = ManagerConfig(log=SMALL_LOG.replace(open_files_max=8, mappings_max=8))
    count = 120
    before = descriptor_count()
    # All at once would need four for each log.
    with descriptors_up_to(before + 200), manual_manager(tmp_path, config=config) as manager:
        limit = default_open_log_limit(8 + 2 * 8)
        assert limit < count
        manager.create_topic("orders", count)
        for turn in range(2):
            for number in range(count):
                manager.log("orders", number).append([Record(value=b"%d" % turn)])
        for number in range(count):
            assert ["0", "1"] == values(manager, "orders", number)
        assert count == manager.health().directories[0].open_count
        assert limit == count - sum(
            partition_of(manager.log("orders", number)).idle_files.is_released
            for number in range(count)
        )
        # Before 3.13 Python keeps a descriptor for each mapping. The directory has its lock.
        assert descriptor_count() - before <= 4 * limit + 8 + 8 + 1
    with manual_manager(tmp_path, config=config) as manager:
        for number in range(count):
            log = manager.log("orders", number)
            assert log.recovery_report.clean
            assert partition_of(log).idle_files.is_released
            assert ["0", "1"] == values(manager, "orders", number)
