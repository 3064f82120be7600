"""Background tasks of a manager: their periods, results and errors."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalog import (
    LogFacts,
    LogManager,
    ManagerConfig,
    OutOfOrderSequenceError,
    Record,
    RetentionDecision,
    SegmentDeletion,
    TopicPartition,
)
from kafkalog.files.names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkalog.state.checkpoints import OffsetCheckpoint
from tests.support.managers import (
    SMALL_LOG,
    append_texts,
    checkpointed,
    manual_manager,
    scheduler_of,
    values,
)
from tests.support.manual_time import START_MS
from tests.support.producer_batches import Produced, encoded
from tests.support.simulated_disk import CrashChoice, SimulatedDisk

DATA = Path("/data")
CONFIG = ManagerConfig(
    log=SMALL_LOG,
    log_initial_task_delay_ms=10_000,
    log_retention_check_interval_ms=300_000,
    log_flush_offset_checkpoint_interval_ms=60_000,
    log_flush_start_offset_checkpoint_interval_ms=60_000,
    replica_high_watermark_checkpoint_interval_ms=5_000,
)


def one_manager(**arguments: object) -> tuple[SimulatedDisk, LogManager]:
    """Return a manager on a simulated disk."""
    disk = SimulatedDisk()
    return disk, manual_manager(DATA, config=CONFIG, filesystem=disk, **arguments)


def fill(manager: LogManager, topic: str, count: int) -> None:
    """Append `count` records that take a segment each."""
    for _ in range(count):
        manager.log(topic).append([Record(value=bytes(400), timestamp_ms=START_MS)])


def test_tasks_have_the_periods_of_the_settings() -> None:
    """They begin after the initial delay, and end with the manager."""
    _disk, manager = one_manager()
    tasks = {task.name: (task.period_ms, task.next_run_ms) for task in manager.health().tasks}
    first = START_MS + 10_000
    assert {
        "kafka-log-retention": (300_000, first),
        "kafka-recovery-point-checkpoint": (60_000, first),
        "kafka-log-start-offset-checkpoint": (60_000, first),
        "replica-high-watermark-checkpoint": (5_000, first),
    } == tasks
    scheduler_of(manager).advance(10_000)
    assert [1, 1, 1, 1] == [task.run_count for task in manager.health().tasks]
    manager.close()
    scheduler_of(manager).advance(1_000_000)
    assert [1, 1, 1, 1] == [task.run_count for task in manager.health().tasks]


def test_retention_task_deletes_by_the_settings_of_each_topic() -> None:
    """The callback receives the deletions, and the files are removed."""
    deletions: list[SegmentDeletion] = []
    disk, manager = one_manager(on_deletion=deletions.append)
    manager.create_topic("bounded", 1, {"retention.bytes": "1000"})
    manager.create_topic("unbounded")
    fill(manager, "bounded", 5)
    fill(manager, "unbounded", 5)
    scheduler_of(manager).advance(10_000)
    assert [0, 1] == [event.base_offset for event in deletions]
    assert 2 == manager.log("bounded").log_start_offset
    assert 0 == manager.log("unbounded").log_start_offset
    scheduler_of(manager).advance(1_000)
    names = disk.list(DATA / "bounded-0")
    assert 3 == sum(name.endswith(".log") for name in names)
    assert not any(".deleted" in name for name in names)
    manager.close()


def test_retention_task_opens_logs_that_are_not_open() -> None:
    """Records of a log without readers expire too."""
    disk, manager = one_manager()
    manager.create_topic("orders", 1, {"retention.ms": "1000"})
    fill(manager, "orders", 3)
    manager.close()
    manager = manual_manager(DATA, config=CONFIG, filesystem=disk)
    scheduler_of(manager).advance(10_000)
    assert 3 == manager.log("orders").log_start_offset
    manager.close()


def test_custom_retention_policy_replaces_the_settings() -> None:
    """It receives the facts of each log; its error is a fault of that partition."""

    def at_most_one(facts: LogFacts) -> RetentionDecision:
        if len(facts.segments) == 4:
            raise ValueError("I do not like four")
        return RetentionDecision(len(facts.segments) - 1, "one is enough")

    _disk, manager = one_manager(retention=[at_most_one])
    manager.create_topic("three", 1, {"retention.bytes": "1"})
    manager.create_topic("four")
    fill(manager, "three", 3)
    fill(manager, "four", 4)
    scheduler_of(manager).advance(10_000)
    assert 2 == manager.log("three").log_start_offset
    assert 0 == manager.log("four").log_start_offset
    (fault,) = manager.health().faults
    assert ("kafka-log-retention", TopicPartition("four", 0)) == (fault.task, fault.subject)
    fill(manager, "four", 1)
    scheduler_of(manager).advance(1_000)
    assert manager.health().is_healthy
    assert 4 == manager.log("four").log_start_offset
    manager.close()


def test_recovery_point_task_writes_durable_offsets() -> None:
    """The checkpoint has the durable offset, and at close the log end."""
    disk, manager = one_manager()
    manager.create_topic("orders", 2)
    append_texts(manager, "orders", 0, "one", "two")
    manager.log("orders", 0).flush()
    append_texts(manager, "orders", 0, "three")
    append_texts(manager, "orders", 1, "four")
    assert {} == checkpointed(DATA, RECOVERY_POINT_CHECKPOINT, disk)
    scheduler_of(manager).advance(10_000)
    expected = {"orders-0": 2, "orders-1": 0}
    assert expected == checkpointed(DATA, RECOVERY_POINT_CHECKPOINT, disk)
    disk.calls.clear()
    scheduler_of(manager).advance(60_000)
    assert 0 == disk.calls["rename"]
    manager.close()
    expected = {"orders-0": 3, "orders-1": 1}
    assert expected == checkpointed(DATA, RECOVERY_POINT_CHECKPOINT, disk)


def test_recovery_point_lowered_by_truncation_is_written_at_once() -> None:
    """Records that replace the truncated ones are not synced yet."""
    disk, manager = one_manager()
    manager.create_topic("orders")
    append_texts(manager, "orders", 0, "one", "two", "three")
    manager.log("orders").flush()
    scheduler_of(manager).advance(10_000)
    manager.log("orders").truncate_to(1)
    assert {"orders-0": 1} == checkpointed(DATA, RECOVERY_POINT_CHECKPOINT, disk)
    manager.close()


def test_log_start_is_written_at_once_and_removed_if_a_segment_begins_there() -> None:
    """As in a broker's file, it has only starts above the first segment's base."""
    disk, manager = one_manager()
    manager.create_topic("orders", 1, {"retention.ms": "-1"})
    fill(manager, "orders", 3)
    log = manager.log("orders")
    log.append([Record(value=b"small"), Record(value=b"small")])
    assert 4 == log.delete_records(4)
    assert {"orders-0": 4} == checkpointed(DATA, LOG_START_OFFSET_CHECKPOINT, disk)
    manager.close()
    assert {"orders-0": 4} == checkpointed(DATA, LOG_START_OFFSET_CHECKPOINT, disk)
    manager = manual_manager(DATA, config=CONFIG, filesystem=disk)
    assert 4 == manager.log("orders").log_start_offset
    manager.log("orders").roll()
    assert 5 == manager.log("orders").delete_records(5)
    manager.close()
    assert {} == checkpointed(DATA, LOG_START_OFFSET_CHECKPOINT, disk)
    manager = manual_manager(DATA, config=CONFIG, filesystem=disk)
    assert 5 == manager.log("orders").log_start_offset
    manager.close()


def test_log_start_task_removes_starts_equal_to_a_segment_base() -> None:
    """Retention changes the start only in memory, so that the file stays small."""
    disk, manager = one_manager()
    manager.create_topic("orders", 1, {"retention.bytes": "1000"})
    manager.create_topic("bounded", 1, {"retention.bytes": "1000"})
    for topic in ("orders", "bounded"):
        fill(manager, topic, 4)
    assert 2 == manager.log("orders").delete_records(2)
    assert {"orders-0": 2} == checkpointed(DATA, LOG_START_OFFSET_CHECKPOINT, disk)
    scheduler_of(manager).advance(10_000)
    assert 1 == manager.log("bounded").log_start_offset
    assert {} == checkpointed(DATA, LOG_START_OFFSET_CHECKPOINT, disk)
    after = manual_manager(DATA, config=CONFIG, filesystem=disk.crash(CrashChoice("nothing")))
    assert 2 == after.log("orders").log_start_offset
    assert 1 == after.log("bounded").log_start_offset
    manager.close()


def test_high_watermark_task_keeps_the_modification_time() -> None:
    """Another time would look like the write of a broker, and invalidate sync journals."""
    disk, manager = one_manager()
    manager.create_topic("orders")
    before = disk.stat(DATA / HIGH_WATERMARK_CHECKPOINT)
    append_texts(manager, "orders", 0, "one", "two")
    manager.log("orders").set_high_watermark(1)
    scheduler_of(manager).advance(10_000)
    assert {"orders-0": 1} == checkpointed(DATA, HIGH_WATERMARK_CHECKPOINT, disk)
    after = disk.stat(DATA / HIGH_WATERMARK_CHECKPOINT)
    assert before is not None
    assert after is not None
    assert before.modified_ms == after.modified_ms
    manager.close()


def test_checkpoint_write_error_is_a_fault_of_the_directory_and_retried() -> None:
    """A full disk takes nothing offline; an I/O error does."""
    disk, manager = one_manager()
    manager.create_topic("orders")
    append_texts(manager, "orders", 0, "one")
    manager.log("orders").flush()
    disk.fail_at(
        1, errno.ENOSPC, only=frozenset({"pwrite"}), suffix="recovery-point-offset-checkpoint.tmp"
    )
    scheduler_of(manager).advance(10_000)
    (fault,) = manager.health().faults
    assert ("kafka-recovery-point-checkpoint", DATA) == (fault.task, fault.subject)
    assert manager.health().directories[0].is_online
    scheduler_of(manager).advance(1_000)
    assert manager.health().is_healthy
    assert {"orders-0": 1} == checkpointed(DATA, RECOVERY_POINT_CHECKPOINT, disk)
    disk.fail_at(
        1, errno.EIO, only=frozenset({"pwrite"}), suffix="recovery-point-offset-checkpoint.tmp"
    )
    append_texts(manager, "orders", 0, "two")
    manager.log("orders").flush()
    scheduler_of(manager).advance(60_000)
    assert not manager.health().directories[0].is_online
    manager.close()


def test_deleted_directory_that_cannot_be_removed_is_retried() -> None:
    """The pauses grow, and `health` has the fault until then."""
    disk, manager = one_manager()
    manager.create_topic("orders")
    append_texts(manager, "orders", 0, "one")
    manager.delete_topic("orders")
    (deleted,) = [name for name in disk.list(DATA) if name.endswith("-delete")]
    for _ in range(2):
        disk.fail_at(1, errno.EBUSY, only=frozenset({"remove_directory"}))
        scheduler_of(manager).advance(1_000)
        (fault,) = manager.health().faults
        assert DATA / deleted == fault.subject
    assert 2 == fault.failure_count
    scheduler_of(manager).advance(1_999)
    assert deleted in disk.list(DATA)
    scheduler_of(manager).advance(1)
    assert deleted not in disk.list(DATA)
    assert manager.health().is_healthy
    manager.close()


def test_flush_ms_of_a_topic_applies_without_a_flush_task() -> None:
    """Each log has its own timer."""
    _disk, manager = one_manager()
    manager.create_topic("orders", 1, {"flush.ms": "50"})
    append_texts(manager, "orders", 0, "one")
    assert 0 == manager.log("orders").durable_offset
    scheduler_of(manager).advance(50)
    assert 1 == manager.log("orders").durable_offset
    manager.close()
    assert ["one"] == values(manual_manager(DATA, filesystem=_disk), "orders")


def test_flush_task_flushes_topics_without_flush_ms() -> None:
    """A failed log goes offline and is in `health`; the others are flushed."""
    disk = SimulatedDisk()
    config = CONFIG.replace(log_flush_scheduler_interval_ms=2_000)
    manager = manual_manager(DATA, config=config, filesystem=disk)
    manager.create_topic("every", 2)
    manager.create_topic("own", 1, {"flush.ms": "100000"})
    for topic, number in (("every", 0), ("every", 1), ("own", 0)):
        append_texts(manager, topic, number, "one")
    scheduler_of(manager).advance(10_000)
    assert [1, 1, 0] == [
        manager.log(*each).durable_offset for each in (("every", 0), ("every", 1), ("own", 0))
    ]
    append_texts(manager, "every", 0, "two")
    append_texts(manager, "every", 1, "two")
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"sync"}), suffix="every-0/" + "0" * 20 + ".log")
    scheduler_of(manager).advance(2_000)
    assert 2 == manager.log("every", 1).durable_offset
    assert (TopicPartition("every", 0),) == manager.health().partitions
    manager.close()


def test_truncation_lowers_the_cleaner_checkpoint() -> None:
    """New records at the old offsets have not been compacted."""
    disk, manager = one_manager()
    manager.create_topic("orders", 2)
    append_texts(manager, "orders", 0, "one", "two", "three")
    manager.close()
    compacted = {TopicPartition("orders", 0): 3, TopicPartition("orders", 1): 0}
    OffsetCheckpoint(disk, DATA / CLEANER_OFFSET_CHECKPOINT).write(compacted)
    manager = manual_manager(DATA, config=CONFIG, filesystem=disk)
    append_texts(manager, "orders", 0, "four")
    assert 3 == checkpointed(DATA, CLEANER_OFFSET_CHECKPOINT, disk)["orders-0"]
    manager.log("orders", 0).truncate_to(1)
    expected = {"orders-0": 1, "orders-1": 0}
    assert expected == checkpointed(DATA, CLEANER_OFFSET_CHECKPOINT, disk)
    manager.delete_partition("orders", 1)
    assert {"orders-0": 1} == checkpointed(DATA, CLEANER_OFFSET_CHECKPOINT, disk)
    manager.close()


def test_idle_producers_expire_by_the_settings_of_the_manager() -> None:
    """The first check after the expiration removes them; any sequence is accepted then."""
    config = CONFIG.replace(
        producer_id_expiration_ms=50_000, producer_id_expiration_check_interval_ms=20_000
    )
    manager = manual_manager(DATA, config=config, filesystem=SimulatedDisk())
    manager.create_topic("orders")
    log = manager.log("orders")
    log.append_batches(encoded([Produced(7, sequence=0, timestamp_ms=START_MS)]))
    gap = encoded([Produced(7, sequence=5, timestamp_ms=START_MS + 60_000)])
    scheduler_of(manager).advance(59_999)
    with pytest.raises(OutOfOrderSequenceError):
        log.append_batches(gap)
    scheduler_of(manager).advance(1)
    log.append_batches(gap)
    manager.close()
