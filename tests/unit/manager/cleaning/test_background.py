"""Background cleaning: the selection of a log, the checkpoint, errors and health."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from kafkalog import (
    CleanerConfig,
    CorruptRecordError,
    DiskFullError,
    LogManager,
    ManagerConfig,
    Record,
    TopicPartition,
)
from kafkalog.cleaner.selection import CleanableRange
from kafkalog.files.names import CLEANER_OFFSET_CHECKPOINT
from kafkalog.log.cleaner_access import CleanerAccess
from kafkalog.log.log import partition_of
from kafkalog.manager.cleaning.cleaner_buffers import memory_for, memory_share
from tests.support.fake_cleaner import FakeCleaners, Stage
from tests.support.managers import SMALL_LOG, checkpointed, manual_manager, scheduler_of
from tests.support.manual_time import START_MS
from tests.support.simulated_disk import SimulatedDisk

DATA = Path("/data")
BACKOFF_MS = 15_000
RETENTION_CHECK_MS = 300_000
CONFIG = ManagerConfig(log=SMALL_LOG, log_initial_task_delay_ms=10_000)
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}


def one_manager(
    cleaner: CleanerConfig | None = None, **arguments: Any
) -> tuple[SimulatedDisk, LogManager]:
    """Return a manager on a simulated disk whose cleaner runs in manual time."""
    disk = SimulatedDisk()
    config = CONFIG.replace(cleaner=cleaner or CleanerConfig())
    return disk, manual_manager(DATA, config=config, filesystem=disk, **arguments)


def fill(manager: LogManager, topic: str, count: int, partition: int = 0) -> None:
    """Append `count` records that take a segment each; the last segment is active."""
    for number in range(count):
        record = Record(key=b"%d" % number, value=bytes(400), timestamp_ms=START_MS)
        manager.log(topic, partition).append([record])


def noted(disk: SimulatedDisk) -> dict[str, int]:
    """Return the content of the cleaner checkpoint."""
    return checkpointed(DATA, CLEANER_OFFSET_CHECKPOINT, disk)


def first_round(manager: LogManager) -> None:
    """Advance the time to the first round of the cleaner."""
    scheduler_of(manager).advance(BACKOFF_MS)


def test_dirty_log_is_cleaned_up_to_the_active_segment(cleaners: FakeCleaners) -> None:
    """The checkpoint has the end of the cleaning; the next round finds nothing."""
    disk, manager = one_manager()
    manager.create_topic("table", 1, COMPACTED)
    manager.create_topic("stream")
    fill(manager, "table", 5)
    fill(manager, "stream", 5)
    first_round(manager)
    assert [("table-0", 0, 4)] == cleaners.spans
    assert {"table-0": 4} == noted(disk)
    scheduler_of(manager).advance(10 * BACKOFF_MS)
    assert 1 == len(cleaners.spans)
    fill(manager, "table", 2)
    scheduler_of(manager).advance(BACKOFF_MS)
    assert ("table-0", 4, 6) == cleaners.spans[-1]
    manager.close()
    assert {"table-0": 6} == noted(disk)


def test_dirty_logs_are_cleaned_in_one_round_the_dirtiest_first(cleaners: FakeCleaners) -> None:
    """The worker does not pause between the logs."""
    _disk, manager = one_manager()
    manager.create_topic("table", 3, COMPACTED)
    for partition, count in ((0, 3), (1, 9), (2, 6)):
        fill(manager, "table", count, partition)
    first_round(manager)
    assert ["table-0", "table-1", "table-2"] == sorted(name for name, _, _ in cleaners.spans)
    # All were wholly dirty; now one of them has a larger dirty share than the others.
    for partition, count in ((0, 1), (1, 2), (2, 6)):
        fill(manager, "table", count, partition)
    scheduler_of(manager).advance(BACKOFF_MS)
    assert ["table-2", "table-0", "table-1"] == [name for name, _, _ in cleaners.spans[3:]]


def test_selection_reads_only_the_facts_of_changed_logs(
    cleaners: FakeCleaners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append to a segment changes no facts; a new segment and new settings do."""
    _disk, manager = one_manager()
    manager.create_topic("table", 2, {**COMPACTED, "min.cleanable.dirty.ratio": "0.9"})
    fill(manager, "table", 5, 0)
    fill(manager, "table", 5, 1)
    first_round(manager)
    fill(manager, "table", 5, 0)
    names = {f"table-{number}": TopicPartition("table", number) for number in range(2)}
    partitions: list[TopicPartition] = []
    ask = CleanerAccess.cleaning_facts

    def cleaning_facts(access: CleanerAccess, *, with_times: bool = True) -> Any:
        partitions.append(names[access.context.directory.name])
        return ask(access, with_times=with_times)

    monkeypatch.setattr(CleanerAccess, "cleaning_facts", cleaning_facts)
    name = TopicPartition("table", 0)
    for expected in ([name], [name], [name]):
        scheduler_of(manager).advance(BACKOFF_MS)
        assert expected == partitions
    dirty = manager.health().cleaner.max_dirty_percent
    manager.log("table").append([Record(key=b"small", value=b"")])
    scheduler_of(manager).advance(BACKOFF_MS)
    assert ([name], dirty) == (partitions, manager.health().cleaner.max_dirty_percent)
    fill(manager, "table", 1, 0)
    scheduler_of(manager).advance(BACKOFF_MS)
    assert [name, name] == partitions
    manager.reconfigure("table", {"min.cleanable.dirty.ratio": "0.1"})
    scheduler_of(manager).advance(BACKOFF_MS)
    assert ("table-0", 4) == cleaners.spans[-1][:2]
    monkeypatch.undo()
    # The next selection uses a corrected checkpoint.
    manager.log("table").delete_records(manager.log("table").log_end_offset)
    scheduler_of(manager).advance(2 * BACKOFF_MS)
    assert manager.health().is_healthy


def test_log_below_the_dirty_ratio_waits_for_the_compaction_lag(
    cleaners: FakeCleaners,
) -> None:
    """`min.cleanable.dirty.ratio` must be exceeded; `max.compaction.lag.ms` overrules it."""
    _disk, manager = one_manager()
    manager.create_topic("table", 1, {**COMPACTED, "min.cleanable.dirty.ratio": "0.9"})
    fill(manager, "table", 5)
    first_round(manager)
    fill(manager, "table", 5)
    scheduler_of(manager).advance(BACKOFF_MS)
    assert [("table-0", 0, 4)] == cleaners.spans
    health = manager.health().cleaner
    assert 50 < health.max_dirty_percent < 70
    manager.reconfigure("table", {"max.compaction.lag.ms": "60000"})
    scheduler_of(manager).advance(60_000)
    assert [("table-0", 4, 9)] == cleaners.spans[1:]
    assert 0 < manager.health().cleaner.compacted_count


def test_young_segments_and_records_above_the_stable_offset_wait(cleaners: FakeCleaners) -> None:
    """`min.compaction.lag.ms` is compared with the newest record of a segment."""
    _disk, manager = one_manager()
    manager.create_topic("table", 1, {**COMPACTED, "min.compaction.lag.ms": "60000"})
    fill(manager, "table", 3)
    first_round(manager)
    assert [] == cleaners.spans
    manager.log("table").set_high_watermark(1)
    scheduler_of(manager).advance(60_000)
    assert [("table-0", 0, 1)] == cleaners.spans


@pytest.mark.parametrize(("checkpoint", "why"), [(99, "beyond the end"), (1, "below the start")])
def test_cleaner_checkpoint_outside_the_log_is_corrected(
    cleaners: FakeCleaners, caplog: pytest.LogCaptureFixture, checkpoint: int, why: str
) -> None:
    """The correction is written although the log is not cleaned."""
    disk, manager = one_manager()
    manager.create_topic("table", 1, {**COMPACTED, "min.cleanable.dirty.ratio": "1"})
    fill(manager, "table", 5)
    manager.log("table").delete_records(2)
    # After the task that writes recovery points, which lowers larger offsets.
    scheduler_of(manager).advance(10_000)
    partition_of(manager.log("table")).store.write_cleaner_offset(checkpoint)
    with caplog.at_level(logging.WARNING, "kafkalog.manager.cleaning"):
        first_round(manager)
    assert why in caplog.text
    assert {"table-0": 2} == noted(disk)
    assert [] == cleaners.spans


def test_failing_partition_is_retried_with_longer_pauses(cleaners: FakeCleaners) -> None:
    """Other partitions are cleaned; a success removes the partition from `uncleanable`."""
    _disk, manager = one_manager(CleanerConfig(backoff_ms=1_000))
    manager.create_topic("table", 2, COMPACTED)
    fill(manager, "table", 5, 0)
    fill(manager, "table", 4, 1)
    damage = CorruptRecordError("as asked")

    def play(stage: Stage) -> None:
        if stage.log.topic_partition.partition == 0:
            raise damage

    cleaners.play = play
    scheduler_of(manager).advance(10_000)
    failing = [index for index, (name, _, _) in enumerate(cleaners.spans) if name == "table-0"]
    assert ("table-1", 0, 3) in cleaners.spans
    # The first time, and after 1, 2 and 4 seconds.
    assert 3 <= len(failing) <= 4
    (uncleanable,) = manager.health().cleaner.uncleanable
    assert (TopicPartition("table", 0), damage) == (uncleanable.topic_partition, uncleanable.error)
    assert len(failing) == uncleanable.failure_count
    assert uncleanable.size_bytes == manager.health().cleaner.uncleanable_bytes[DATA] > 1000
    assert not manager.health().is_healthy
    cleaners.play = lambda _stage: None
    scheduler_of(manager).advance(20_000)
    assert ("table-0", 0, 4) == cleaners.spans[-1]
    assert () == manager.health().cleaner.uncleanable
    assert manager.health().is_healthy


def test_fault_is_removed_with_the_policy_or_the_topic(cleaners: FakeCleaners) -> None:
    """A partition that is no longer compacted, or was deleted, has no fault of the cleaner."""
    _disk, manager = one_manager()
    manager.create_topic("table", 1, COMPACTED)
    manager.create_topic("other", 1, COMPACTED)

    def play(_stage: Stage) -> None:
        raise CorruptRecordError("as asked")

    cleaners.play = play
    for topic in ("table", "other"):
        fill(manager, topic, 4)
    first_round(manager)
    # Both in one round: a failure does not delay the other log.
    assert 2 == len(manager.health().cleaner.uncleanable)
    manager.delete_topic("other")
    manager.reconfigure("table", {"cleanup.policy": "delete"})
    scheduler_of(manager).advance(BACKOFF_MS)
    assert () == manager.health().faults


def test_cleaning_on_a_full_disk_is_a_fault_of_the_partition(cleaners: FakeCleaners) -> None:
    """The directory stays online, and appends succeed."""
    disk, manager = one_manager()
    manager.create_topic("table", 1, COMPACTED)
    fill(manager, "table", 4)

    def play(_stage: Stage) -> None:
        raise DiskFullError("as asked")

    cleaners.play = play
    first_round(manager)
    (fault,) = manager.health().faults
    assert ("kafka-log-cleaner", 1) == (fault.task, fault.failure_count)
    assert START_MS + 2 * BACKOFF_MS == fault.next_retry_ms
    assert manager.health().directories[0].is_online
    fill(manager, "table", 1)
    cleaners.play = lambda _stage: None
    scheduler_of(manager).advance(BACKOFF_MS)
    assert ({"table-0": 4}, ()) == (noted(disk), manager.health().faults)


def test_cleaning_with_a_disk_error_takes_the_directory_offline(cleaners: FakeCleaners) -> None:
    """Its logs are not selected again; logs of the other directory are cleaned."""
    disk = SimulatedDisk()
    other = Path("/other")
    manager = manual_manager(DATA, other, config=CONFIG, filesystem=disk)
    manager.create_topic("table", 2, COMPACTED)
    fill(manager, "table", 6, 0)
    fill(manager, "table", 4, 1)

    def play(stage: Stage) -> None:
        if stage.log.topic_partition.partition == 0:
            raise OSError(errno.EIO, "as asked")

    cleaners.play = play
    first_round(manager)
    scheduler_of(manager).advance(BACKOFF_MS)
    assert [False, True] == [each.is_online for each in manager.health().directories]
    assert [("table-0", 0, 5), ("table-1", 0, 3)] == cleaners.spans
    cleaners.play = lambda _stage: None
    manager.bring_online(DATA)
    scheduler_of(manager).advance(BACKOFF_MS)
    assert ("table-0", 0, 5) == cleaners.spans[-1]


def test_log_marked_offline_during_cleaning_ends_the_cleaning(cleaners: FakeCleaners) -> None:
    """The cleaner reports no fault, because the failed operation has reported the error."""
    disk, manager = one_manager()
    manager.create_topic("table", 1, COMPACTED)
    fill(manager, "table", 4)
    cleaners.play = lambda stage: partition_of(stage.log).gate.mark_offline(
        OSError("as asked"), notify=False
    )
    first_round(manager)
    assert (1, {}, ()) == (len(cleaners.spans), noted(disk), manager.health().cleaner.uncleanable)
    cleaners.play = lambda _stage: None
    scheduler_of(manager).advance(BACKOFF_MS)
    assert {"table-0": 3} == noted(disk)


def test_cleaner_checkpoint_on_a_full_disk_is_written_at_close(cleaners: FakeCleaners) -> None:
    """The cleaning is not repeated; only after a crash it would be."""
    disk, manager = one_manager()
    manager.create_topic("table", 2, COMPACTED)
    fill(manager, "table", 4, 0)
    cleaners.play = lambda _stage: disk.fail_at(
        1, errno.ENOSPC, only=frozenset({"pwrite"}), suffix=f"{CLEANER_OFFSET_CHECKPOINT}.tmp"
    )
    first_round(manager)
    assert {} == noted(disk)
    assert 1 == manager.health().cleaner.cleaning_count
    cleaners.play = lambda _stage: None
    scheduler_of(manager).advance(5 * BACKOFF_MS)
    assert 1 == len(cleaners.spans)
    manager.close()
    assert {"table-0": 3} == noted(disk)


@pytest.mark.usefixtures("cleaners")
def test_retention_of_compacted_topics_runs_with_and_without_a_cleaner() -> None:
    """Each round of a cleaner applies it; without one, the periodic task does."""
    both = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.bytes": "500"}
    for cleaner, after_ms in (
        (CleanerConfig(), BACKOFF_MS),
        (CleanerConfig(enable=False), RETENTION_CHECK_MS),
    ):
        _disk, manager = one_manager(cleaner)
        manager.create_topic("table", 1, both)
        # The first check of retention is over.
        scheduler_of(manager).advance(20_000)
        fill(manager, "table", 6)
        scheduler_of(manager).advance(after_ms)
        assert manager.log("table").log_start_offset > 0
        manager.close()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_retention_spares_a_log_that_is_being_cleaned(
    cleaners: FakeCleaners, *, is_enabled: bool
) -> None:
    """Neither the rounds of a cleaner nor the periodic task apply it before its end."""
    _disk, manager = one_manager(CleanerConfig(enable=is_enabled))
    both = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.bytes": "500"}
    manager.create_topic("table", 1, both)
    fill(manager, "table", 6)
    seen: list[int] = []

    def play(stage: Stage) -> None:
        scheduler_of(manager).advance(RETENTION_CHECK_MS)
        seen.append(stage.log.log_start_offset)

    cleaners.play = play
    manager.compact("table")
    assert [0] == seen
    scheduler_of(manager).advance(BACKOFF_MS if is_enabled else RETENTION_CHECK_MS)
    assert manager.log("table").log_start_offset > 0


def test_health_of_the_cleaner_has_the_metrics_of_a_broker(cleaners: FakeCleaners) -> None:
    """Before the first round, during a cleaning and after it."""
    _disk, manager = one_manager()
    before = manager.health().cleaner
    assert (True, 0, 0, None, None) == (
        before.is_enabled,
        before.thread_count,
        before.compacted_count,
        before.last_look_ms,
        before.time_since_last_look_ms,
    )
    manager.create_topic("table", 1, COMPACTED)
    fill(manager, "table", 4)
    seen: list[Any] = []

    def play(stage: Stage) -> None:
        stage.tell("half of it")  # any value the cleaner reports
        seen.extend(manager.health().cleaner.under_way)

    cleaners.play = play
    scheduler_of(manager).advance(BACKOFF_MS)
    scheduler_of(manager).clock.advance(3_000)
    (under_way,) = seen
    assert (TopicPartition("table", 0), "half of it", False) == (
        under_way.topic_partition,
        under_way.progress,
        under_way.is_aborted,
    )
    health = manager.health().cleaner
    assert ["kafka-log-cleaner-thread-0"] == list(health.last_cleanings)
    assert (1, 1, 0, 0, 1, ()) == (
        health.thread_count,
        health.alive_count,
        health.dead_count,
        health.replaced_count,
        health.cleaning_count,
        health.under_way,
    )
    assert (25.0, 100 / 128, 7, 3_000) == (
        health.recopy_percent,
        health.max_memory_percent,
        health.max_duration_ms,
        health.time_since_last_look_ms,
    )
    assert health.max_dirty_percent == 0.0


def test_cleaner_memory_is_allocated_on_demand_and_freed_when_idle(cleaners: FakeCleaners) -> None:
    """Allocated with the first dirty log, shared by the threads, freed after an idle minute."""
    shared = CleanerConfig(threads=2, dedupe_buffer_size=64 << 20)
    _disk, manager = one_manager(shared)
    manager.create_topic("table", 3, COMPACTED)
    scheduler_of(manager).advance(5 * BACKOFF_MS)
    assert [] == cleaners.made
    fill(manager, "table", 4, 0)
    fill(manager, "table", 4, 1)
    scheduler_of(manager).advance(BACKOFF_MS)
    assert {64 << 10} == {made["memory_bytes"] for made in cleaners.made}
    count = len(cleaners.made)
    assert 1 <= count <= 2
    assert cleaners.allocated_count > 0
    scheduler_of(manager).advance(70_000)
    assert 0 == cleaners.allocated_count
    fill(manager, "table", 4, 2)
    scheduler_of(manager).advance(BACKOFF_MS)
    assert count + 1 == len(cleaners.made)


@pytest.mark.parametrize(
    ("offset_count", "threads", "expected"),
    [
        (0, 1, 64 << 10),
        (2_000, 1, 64 << 10),
        (2_500, 1, 128 << 10),
        (1_000_000, 1, 32 << 20),
        (10**12, 1, 128 << 20),
        (10**12, 4, 32 << 20),
    ],
)
def test_memory_for_dirty_offsets_is_at_most_the_share_of_a_thread(
    offset_count: int, threads: int, expected: int
) -> None:
    """A range has at most as many keys as offsets."""
    span = CleanableRange(5, 5 + offset_count)
    config = CleanerConfig(threads=threads)
    memory = memory_for(span, config)
    assert expected == memory
    usable = int(memory // 24 * config.io_buffer_load_factor)
    assert usable >= offset_count or memory == memory_share(config)


def test_changed_cleaner_settings_apply_at_once(cleaners: FakeCleaners) -> None:
    """Threads are started and ended; the next cleaning has the new memory."""
    _disk, manager = one_manager()
    manager.create_topic("table", 3, COMPACTED)
    assert 1 == manager.health().cleaner.thread_count
    manager.reconfigure_defaults({"log.cleaner.threads": "3", "log.cleaner.backoff.ms": "1000"})
    assert 3 == manager.health().cleaner.thread_count
    fill(manager, "table", 4)
    scheduler_of(manager).advance(BACKOFF_MS)
    assert [3] == [made["config"].threads for made in cleaners.made]
    manager.reconfigure_defaults({"log.cleaner.threads": "0"})
    assert 0 == manager.health().cleaner.thread_count
    fill(manager, "table", 4)
    scheduler_of(manager).advance(BACKOFF_MS)
    assert 1 == len(cleaners.spans)
    manager.reconfigure_defaults({"log.cleaner.threads": None})
    scheduler_of(manager).advance(BACKOFF_MS)
    assert 2 == len(cleaners.spans)


def test_changed_cleanup_policy_starts_and_stops_cleaning(cleaners: FakeCleaners) -> None:
    """The first compacted topic starts the thread."""
    _disk, manager = one_manager()
    manager.create_topic("table")
    fill(manager, "table", 4)
    assert 0 == manager.health().cleaner.thread_count
    manager.reconfigure("table", COMPACTED)
    scheduler_of(manager).advance(BACKOFF_MS)
    assert [("table-0", 0, 3)] == cleaners.spans
    manager.reconfigure("table", {"cleanup.policy": None})
    fill(manager, "table", 4)
    scheduler_of(manager).advance(5 * BACKOFF_MS)
    assert 1 == len(cleaners.spans)
    manager.reconfigure_defaults({"log.cleanup.policy": "compact"})
    scheduler_of(manager).advance(BACKOFF_MS)
    assert [("table-0", 3, 7)] == cleaners.spans[1:]


def test_disabled_cleaner_cleans_only_on_demand(cleaners: FakeCleaners) -> None:
    """`compact` still works and writes the checkpoint."""
    disk, manager = one_manager(CleanerConfig(enable=False))
    manager.create_topic("table", 1, COMPACTED)
    fill(manager, "table", 4)
    scheduler_of(manager).advance(20 * BACKOFF_MS)
    assert ([], False) == (cleaners.spans, manager.health().cleaner.is_enabled)
    manager.compact("table")
    assert ([("table-0", 0, 3)], {"table-0": 3}) == (cleaners.spans, noted(disk))


def test_first_round_after_a_start_waits_for_the_initial_delay(cleaners: FakeCleaners) -> None:
    """The delay is `log.initial.task.delay.ms`, also if a log is already dirty."""
    disk, manager = one_manager()
    manager.create_topic("table", 1, COMPACTED)
    fill(manager, "table", 4)
    manager.close()
    again = manual_manager(DATA, config=CONFIG, filesystem=disk)
    scheduler_of(again).advance(9_999)
    assert [] == cleaners.spans
    scheduler_of(again).advance(1)
    assert [("table-0", 0, 3)] == cleaners.spans


def test_round_ended_by_a_base_exception_is_repeated(cleaners: FakeCleaners) -> None:
    """The partition is free again; partition and thread each have a fault."""

    class EndError(BaseException):
        """Not an `Exception`, so no handler catches it."""

    _disk, manager = one_manager()
    manager.create_topic("table", 1, COMPACTED)
    fill(manager, "table", 4)

    def play(_stage: Stage) -> None:
        raise EndError

    cleaners.play = play
    with pytest.raises(EndError):
        scheduler_of(manager).advance(BACKOFF_MS)
    tasks = [(fault.task, fault.subject) for fault in manager.health().faults]
    name = TopicPartition("table", 0)
    assert [("kafka-log-cleaner", name), ("kafka-log-cleaner-thread-0", None)] == tasks
    cleaners.play = lambda _stage: None
    scheduler_of(manager).advance(2 * BACKOFF_MS)
    assert 2 == len(cleaners.spans)
    assert () == manager.health().faults
