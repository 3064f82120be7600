"""Rules of `health()`: each finding at its threshold, and what switches it off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kafkalog import CleanerHealth, HealthConfig, LogManager, ManagerConfig, Record, TaskHealth
from kafkalog.files.machine import DiskSpace
from kafkalog.log.meters import DiskMeters
from kafkalog.log.retention_plan import RetentionDebt
from kafkalog.manager.health_rules import (
    cleaner_stuck,
    full_disks,
    retention_overdue,
    slow_disks,
)
from kafkalog.model import TopicPartition
from tests.support.managers import SMALL_LOG, manual_manager, scheduler_of

DATA = Path("/data")
ORDERS = TopicPartition("orders", 0)
GIB = 1 << 30
OFF = HealthConfig(sync_ms=0, free_bytes=0, cleaner_delay_ms=0, retention_delay_ms=0)
CLEANER = CleanerHealth(
    is_enabled=True,
    thread_count=1,
    alive_count=1,
    replaced_count=0,
    compacted_count=1,
    under_way=(),
    uncleanable=(),
    last_look_ms=0,
    time_since_last_look_ms=60_000,
    max_dirty_percent=10.0,
    max_delay_ms=60_000,
    cleaning_count=0,
)
TASK = TaskHealth("kafka-log-retention", 300_000, 1, 0, 300_000, None, 0)


def test_slow_disk_is_one_with_a_sync_that_does_not_end() -> None:
    """A hanging disk ends no sync; when it does, one slow sync of few proves nothing."""
    disk = DiskMeters()
    number = disk.syncs.begin()
    while disk.syncs.longest_running_ns() <= 1_000_000:
        pass
    (found,) = slow_disks({DATA: disk}, HealthConfig(sync_ms=1))
    assert ("slow disk", DATA, "kafkalog.health.sync.ms", 1) == (
        found.rule,
        found.subject,
        found.setting,
        found.threshold,
    )
    assert "has not ended" in found.text
    assert [] == list(slow_disks({DATA: disk}, OFF))
    disk.syncs.end(number)
    assert [] == list(slow_disks({DATA: disk}, HealthConfig(sync_ms=1)))


def test_slow_disk_is_one_whose_latest_syncs_are_slow() -> None:
    """One in ten suffices."""
    disk = DiskMeters()
    for _ in range(10):
        number = disk.syncs.begin()
        while disk.syncs.longest_running_ns() <= 1_100_000:
            pass
        disk.syncs.end(number)
    (found,) = slow_disks({DATA: disk}, HealthConfig(sync_ms=1))
    assert found.value > 1
    assert "one in ten" in found.text


def test_full_disk_is_below_the_threshold_or_a_tenth_of_a_small_one() -> None:
    """The threshold of a small file system is smaller."""
    config = HealthConfig()

    def findings(total: int, free: int, limits: HealthConfig = config) -> list[float]:
        space = DiskSpace(total, free, 0, 0)
        return [each.threshold for each in full_disks({DATA: space}, limits)]

    assert [GIB] == findings(100 * GIB, GIB - 1)
    assert [] == findings(100 * GIB, GIB)
    assert [GIB // 10] == findings(GIB, GIB // 10 - 1)
    assert [] == findings(GIB, GIB // 10)
    assert [] == findings(100 * GIB, 0, OFF)


def test_cleaner_stuck_has_three_reasons() -> None:
    """A dead thread, no selection, an overdue log; none of them if compaction is off."""
    config = HealthConfig(cleaner_delay_ms=60_000)
    assert [] == list(cleaner_stuck(CLEANER, config))
    late = replace(CLEANER, time_since_last_look_ms=60_001)
    assert ["no log was selected for 60001 ms"] == [e.text for e in cleaner_stuck(late, config)]
    overdue = replace(CLEANER, max_delay_ms=60_001)
    assert [60_001] == [each.value for each in cleaner_stuck(overdue, config)]
    dead = replace(CLEANER, alive_count=0)
    assert [1] == [each.value for each in cleaner_stuck(dead, config)]
    worst = replace(late, alive_count=0, max_delay_ms=60_001)
    assert 3 == len(list(cleaner_stuck(worst, config)))
    assert [] == list(cleaner_stuck(replace(worst, is_enabled=False), config))
    assert [] == list(cleaner_stuck(replace(worst, thread_count=0), config))
    assert [] == list(cleaner_stuck(worst, OFF))


def test_retention_overdue_is_a_late_task_or_an_old_segment() -> None:
    """Both are later than the threshold; debts without an age do not count."""
    config = HealthConfig(retention_delay_ms=60_000)
    debts = [(ORDERS, RetentionDebt(2, 1200, 60_001)), (ORDERS, RetentionDebt(2, 1200, 60_000))]
    found = list(retention_overdue(debts, [TASK], 360_001, config))
    assert [(None, 60_001), (ORDERS, 60_001)] == [(each.subject, each.value) for each in found]
    assert [] == list(retention_overdue([], [TASK], 360_000, config))
    assert [] == list(retention_overdue(debts, [TASK], 360_001, OFF))


def test_health_is_unhealthy_while_retention_is_overdue(tmp_path: Path) -> None:
    """The run of retention ends the finding, and another threshold does."""
    limits = HealthConfig(retention_delay_ms=60_000)
    config = ManagerConfig(
        log=SMALL_LOG.replace(retention_ms=1_000, retention_bytes=-1),
        health=limits,
        log_initial_task_delay_ms=10**9,
    )
    with manual_manager(tmp_path, config=config) as manager:
        manager.create_topic("orders")
        manager.log("orders").append([Record(value=b"one")])
        assert manager.health().is_healthy
        scheduler_of(manager).clock.advance(61_000)
        assert manager.health().is_healthy
        scheduler_of(manager).clock.advance(1)
        health = manager.health()
        assert [("retention overdue", ORDERS)] == [(e.rule, e.subject) for e in health.findings]
        assert not health.is_healthy
        key = "kafkalog.health.retention.delay.ms"
        assert (key,) == manager.reconfigure_defaults({key: "600000"}).at_once
        assert manager.health().is_healthy
        manager.reconfigure_defaults({key: None})
        assert not manager.health().is_healthy
        manager.log("orders").apply_retention()
        assert manager.health().is_healthy


def test_health_of_a_manager_without_trouble_has_no_findings(tmp_path: Path) -> None:
    """With the default thresholds, on the disk of the test."""
    with LogManager([tmp_path], ManagerConfig(health=HealthConfig(free_bytes=1))) as manager:
        manager.create_topic("orders")
        manager.log("orders").append([Record(value=b"one")], wait="durable")
        assert () == manager.health().findings
