"""Retention of a log: deleted segments, the steps of a deletion, events, and open readers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kafkalog import (
    Log,
    LogConfig,
    LogFacts,
    LogStorageError,
    OffsetOutOfRangeError,
    ReadOnlyLogError,
    Record,
    RetentionDecision,
    SegmentDeletion,
    TopicPartition,
    open_log,
)
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.log import partition_of
from tests.support.logs import append_sized, manual_log, numbered, sized_record
from tests.support.manual_time import START_MS, ManualClock, ManualScheduler
from tests.support.simulated_disk import SimulatedDisk

HOUR_MS = 3_600_000


def hourly(
    directory: Path,
    hours: int,
    *,
    scheduler: ManualScheduler | None = None,
    observer: list[SegmentDeletion] | None = None,
    retention: Any = None,
    filesystem: Any = None,
    **settings: Any,
) -> Log:
    """Return a log with a segment of ten records for each hour from START_MS on."""
    scheduler = ManualScheduler() if scheduler is None else scheduler
    config = LogConfig(
        segment_ms=HOUR_MS // 2,
        message_timestamp_after_max_ms=2**62,
        **{"retention_ms": HOUR_MS, **settings},
    )
    log = open_log(
        directory,
        config=config,
        clock=scheduler.clock,
        scheduler=scheduler,
        filesystem=filesystem,
        retention=retention,
        on_deletion=None if observer is None else observer.append,
    )
    for hour in range(hours):
        log.append(numbered(10 * hour, 10, timestamp_ms=START_MS + hour * HOUR_MS - 10 * hour))
    assert hours == len(log.segments())
    return log


def bases(log: Log) -> list[int]:
    """Return the base offsets of the segments."""
    return [segment.base_offset for segment in log.segments()]


def files(directory: Path, suffix: str) -> list[str]:
    """Return the sorted names in a directory that have this suffix."""
    return sorted(path.name for path in directory.iterdir() if path.name.endswith(suffix))


def test_apply_old_segments_are_renamed_then_unlinked(directory: Path) -> None:
    """Removed and renamed at once, unlinked after the delay. The log start follows at once."""
    scheduler = ManualScheduler()
    with hourly(directory, 4, scheduler=scheduler) as log:
        scheduler.advance(0)
        deletions = log.apply_retention(now_ms=START_MS + 2 * HOUR_MS + 10)
        assert [0, 10] == [each.base_offset for each in deletions]
        assert ([20, 30], 20, 40) == (bases(log), log.log_start_offset, log.log_end_offset)
        assert ["00000000000000000020.log", "00000000000000000030.log"] == files(directory, ".log")
        assert "00000000000000000000.log.deleted" in files(directory, ".deleted")
        assert list(range(20, 40)) == [record.offset for record in log.records()]
        with pytest.raises(OffsetOutOfRangeError):
            log.read(19)
        scheduler.advance(59_999)
        assert files(directory, ".deleted")
        scheduler.advance(1)
        assert [] == files(directory, ".deleted")
        assert () == log.apply_retention(now_ms=START_MS + 2 * HOUR_MS + 10)
    with manual_log(directory) as log:
        assert (20, 40) == (log.log_start_offset, log.log_end_offset)


def test_apply_uses_the_clock_of_the_log(directory: Path) -> None:
    """No segment is deleted before the clock has passed the limit."""
    scheduler = ManualScheduler()
    with hourly(directory, 2, scheduler=scheduler) as log:
        assert () == log.apply_retention()
        scheduler.advance(HOUR_MS + 9)
        assert () == log.apply_retention()
        scheduler.advance(1)
        assert [0] == [each.base_offset for each in log.apply_retention()]


def test_apply_old_active_segment_is_deleted_and_offsets_continue(directory: Path) -> None:
    """If all is too old, an empty segment stays at the log end, also after a reopening."""
    with hourly(directory, 3) as log:
        deletions = log.apply_retention(now_ms=START_MS + 100 * HOUR_MS)
        assert [0, 10, 20] == [each.base_offset for each in deletions]
        assert ([30], 30, 30) == (bases(log), log.log_start_offset, log.log_end_offset)
        assert () == log.apply_retention(now_ms=START_MS + 200 * HOUR_MS)
    with manual_log(directory) as log:
        assert (30, 30) == (log.log_start_offset, log.log_end_offset)
        assert 30 == log.append([Record(value=b"next")]).first_offset


def test_apply_size_keeps_the_log_above_the_limit(directory: Path) -> None:
    """The oldest go first. A segment stays if the log would fall below the limit without it."""
    with manual_log(directory, segment_bytes=300, retention_bytes=500) as log:
        for _number in range(9):
            append_sized(log, 100)
        assert [0, 3, 6] == bases(log)
        assert ["size"] == [each.cause for each in log.apply_retention()]
        assert [3, 6] == bases(log)
        assert () == log.apply_retention()


def test_apply_limit_offset_keeps_segments_above_it(directory: Path) -> None:
    """The caller passes its high watermark as the limit."""
    now_ms = START_MS + 100 * HOUR_MS
    with hourly(directory, 3) as log:
        assert () == log.apply_retention(now_ms=now_ms, limit_offset=9)
        assert 1 == len(log.apply_retention(now_ms=now_ms, limit_offset=19))
        assert 2 == len(log.apply_retention(now_ms=now_ms, limit_offset=2**62))
        assert [30] == bases(log)


@pytest.mark.parametrize("policy", [("compact",), ()])
def test_apply_policy_without_delete_uses_log_start_only(
    directory: Path, policy: tuple[str, ...]
) -> None:
    """A compacted log keeps the newest record of each key, however old."""
    with hourly(directory, 3, cleanup_policy=policy, retention_bytes=0) as log:
        assert () == log.apply_retention(now_ms=START_MS + 100 * HOUR_MS)
        assert [0, 10, 20] == bases(log)
        (first, *_others) = log.explain_retention(now_ms=START_MS + 100 * HOUR_MS)
        assert ["start offset"] == [reason.policy for reason in first.reasons]


def test_apply_compact_and_delete_deletes_by_age(directory: Path) -> None:
    """Age counts if `cleanup.policy` has `delete` next to `compact`."""
    with hourly(directory, 3, cleanup_policy=("compact", "delete")) as log:
        assert 3 == len(log.apply_retention(now_ms=START_MS + 100 * HOUR_MS))


def test_apply_records_without_timestamps_use_file_time(directory: Path) -> None:
    """The age of such a segment is that of the last append to its file."""
    with manual_log(directory, segment_bytes=300, retention_ms=HOUR_MS) as log:
        for _number in range(6):
            log.append([sized_record(100, timestamp_ms=-1)], timestamp_ms=-1)
        assert [0, 3] == bases(log)
        for segment, age in zip(log.segments(), (HOUR_MS + 1, HOUR_MS), strict=True):
            PosixFileSystem().set_modified_ms(segment.path, START_MS - age)
        assert [0] == [each.base_offset for each in log.apply_retention(now_ms=START_MS)]


@pytest.mark.parametrize(("guard", "expected"), [(True, [0]), (False, [])])
def test_apply_future_timestamp_uses_file_time(
    directory: Path, guard: bool, expected: list[int]
) -> None:
    """With the guard off the record's timestamp counts, as in Kafka."""
    with manual_log(
        directory, segment_bytes=200, retention_ms=HOUR_MS, retention_future_guard=guard
    ) as log:
        append_sized(log, 100, timestamp_ms=START_MS + 1000 * HOUR_MS)
        append_sized(log, 100, timestamp_ms=START_MS - 10)
        append_sized(log, 100, timestamp_ms=START_MS)
        first = log.segments()[0]
        PosixFileSystem().set_modified_ms(first.path, START_MS - 2 * HOUR_MS)
        assert expected == [each.base_offset for each in log.apply_retention(now_ms=START_MS)]


def test_apply_custom_policy_replaces_the_settings(directory: Path) -> None:
    """The policy of this test keeps the last fifteen records, in whole segments."""

    def last_records(log: LogFacts) -> RetentionDecision:
        return RetentionDecision(log.log_end_offset - 15, "more than 15 records lie behind")

    with hourly(directory, 5, retention=[last_records]) as log:
        deletions = log.apply_retention(now_ms=START_MS + 100 * HOUR_MS)
        assert ([30, 40], 30) == (bases(log), log.log_start_offset)
        assert {("last_records", "more than 15 records lie behind")} == {
            (each.cause, each.reason) for each in deletions
        }
        assert "last_records" in [reason.policy for reason in log.explain_retention()[0].reasons]


def test_apply_policy_raises_deletes_nothing(directory: Path) -> None:
    """The caller gets the error, and the log takes appends."""

    def failing(log: LogFacts) -> RetentionDecision:
        raise LookupError("no answer")

    with hourly(directory, 3, retention=[failing]) as log:
        with pytest.raises(LookupError, match="no answer"):
            log.apply_retention()
        assert [0, 10, 20] == bases(log)
        assert 30 == log.append([Record(value=b"next")]).first_offset


def test_apply_reader_of_a_deleted_segment_continues(directory: Path) -> None:
    """Fetched bytes stay valid, and unfetched ones can be read after the unlink."""
    scheduler = ManualScheduler()
    with hourly(directory, 3, scheduler=scheduler) as log:
        fetched, unfetched = log.read(0), log.read(5)
        records = log.records()
        assert 0 == next(records).offset
        held = log.segments()
        first_bytes = bytes(fetched.data)
        log.apply_retention(now_ms=START_MS + 2 * HOUR_MS)
        scheduler.advance(120_000)
        assert [] == files(directory, ".deleted")
        assert first_bytes == bytes(fetched.data) == bytes(unfetched.data)
        assert list(range(1, 30)) == [record.offset for record in records]
        assert [0, 10, 20] == [segment.base_offset for segment in held]
        assert START_MS + 9 == held[0].max_timestamp


def test_apply_notifies_observer_after_deletion_without_lock(directory: Path) -> None:
    """An observer sees the log without the segments, and may append."""
    seen: list[tuple[SegmentDeletion, int, int]] = []

    def observe(deletion: SegmentDeletion) -> None:
        assert not partition_of(log).gate.lock._is_owned()  # type: ignore[attr-defined]
        seen.append((deletion, log.log_start_offset, log.append([Record(value=b"x")]).first_offset))

    clock = ManualClock(START_MS + 100 * HOUR_MS)
    with hourly(directory, 2):
        pass
    scheduler = ManualScheduler(clock)
    config = LogConfig(retention_ms=HOUR_MS)
    with open_log(
        directory, config=config, clock=clock, scheduler=scheduler, on_deletion=observe
    ) as log:
        size = log.segments()[0].size_bytes
        deletions = log.apply_retention()
        assert list(deletions) == [each[0] for each in seen]
        assert [(20, 20), (20, 21)] == [each[1:] for each in seen]
        first = deletions[0]
    assert (
        SegmentDeletion(
            topic_partition=TopicPartition("orders", 0),
            path=directory / "00000000000000000000.log",
            base_offset=0,
            end_offset=10,
            size_bytes=size,
            cause="time",
            reason=f"its newest record is {100 * HOUR_MS - 9} ms old, retention.ms = {HOUR_MS}",
            log_start_offset=20,
            at_ms=clock.now_ms(),
        )
        == first
    )


def test_every_deletion_is_an_event_with_its_reason(directory: Path) -> None:
    """Also for deleted records and truncations; a nested truncation reports each segment once."""
    events: list[SegmentDeletion] = []
    with hourly(directory, 6, observer=events) as log:
        log.delete_records(15)
        assert [(0, 10, "delete_records", 15)] == [
            (each.base_offset, each.end_offset, each.cause, each.log_start_offset)
            for each in events
        ]
        log.truncate_to(35)
        assert [(40, 50), (50, 60)] == [(e.base_offset, e.end_offset) for e in events[1:]]
        assert {("truncation", "truncated to offset 35")} == {
            (each.cause, each.reason) for each in events[1:]
        }
        del events[:]
        log.truncate_to(3)
        # The last of them is the segment that keeps the log end at 35.
        assert [10, 20, 30, 35] == [each.base_offset for each in events]
        assert {3} == {each.log_start_offset for each in events}


def test_deletion_is_logged_with_fields(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The message is a sentence for people; the fields are attributes for programs."""
    with hourly(directory, 2) as log, caplog.at_level(logging.INFO, "kafkalog.log.deletion"):
        log.apply_retention(now_ms=START_MS + HOUR_MS + 10)
    (record,) = [each for each in caplog.records if each.name == "kafkalog.log.deletion"]
    assert "leaves the log (time): its newest record is" in record.getMessage()
    fields = vars(record)
    assert ("segment_deleted", "orders-0", 0, 10, "time", 10) == tuple(
        fields[name]
        for name in (
            "event", "topic_partition", "base_offset", "end_offset", "cause", "log_start_offset",
        )
    )  # fmt: skip


def test_observer_raises_log_continues(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The error is logged, and the observer gets the next events."""

    class Broken(list[SegmentDeletion]):
        def append(self, deletion: SegmentDeletion, /) -> None:
            super().append(deletion)
            raise RuntimeError("observer")

    observer = Broken()
    with hourly(directory, 3, observer=observer) as log:
        assert 2 == len(log.apply_retention(now_ms=START_MS + 2 * HOUR_MS + 10))
    assert 2 == len(observer)
    assert 2 == sum("the observer of orders-0 failed" in each.message for each in caplog.records)


def test_explain_changes_nothing_and_agrees_with_apply(directory: Path) -> None:
    """Due segments are deleted by the next pass, kept ones when their time comes."""
    now_ms = START_MS + 2 * HOUR_MS + 10
    with hourly(directory, 4) as log:
        explained = log.explain_retention(now_ms=now_ms)
        assert [0, 10, 20, 30] == bases(log)
        due = [each.segment.base_offset for each in explained if each.is_due]
        first_kept = next(each for each in explained if not each.is_due)
        assert due == [each.base_offset for each in log.apply_retention(now_ms=now_ms)]
        assert first_kept.due_ms is not None
        assert () == log.apply_retention(now_ms=first_kept.due_ms - 1)
        (gone,) = log.apply_retention(now_ms=first_kept.due_ms)
        assert first_kept.segment.base_offset == gone.base_offset


def test_read_only_log_explains_but_refuses_apply(directory: Path) -> None:
    """Another process may ask for the reasons."""
    hourly(directory, 2).close()
    with manual_log(directory, read_only=True, retention_ms=HOUR_MS) as log:
        (first, _second) = log.explain_retention(now_ms=START_MS + 100 * HOUR_MS)
        assert first.is_due
        with pytest.raises(ReadOnlyLogError):
            log.apply_retention()


# -- a disk that refuses ---------------------------------------------------------------------------

PARTITION = Path("/data/orders-0")


def simulated() -> SimulatedDisk:
    """Return a disk for a log."""
    disk = SimulatedDisk()
    disk.make_durable(PARTITION.parent)
    return disk


def test_unlink_fails_is_retried_with_longer_delays() -> None:
    """The scheduler keeps the errors; the files are unlinked when the disk permits it."""
    disk, scheduler = simulated(), ManualScheduler()
    log = hourly(PARTITION, 2, scheduler=scheduler, filesystem=disk)
    scheduler.advance(0)
    log.apply_retention(now_ms=START_MS + HOUR_MS + 10)
    for pause_ms in (60_000, 1_000, 2_000, 4_000):
        assert ("delete-file", pause_ms) in scheduler.pending
        disk.fail_at(1, only=frozenset({"unlink"}))
        scheduler.advance(pause_ms)
        disk.clear_faults()
    assert ["delete-file"] * 4 == [name for name, _error in scheduler.errors]
    assert [name for name in disk.list(PARTITION) if name.endswith(".deleted")]
    scheduler.advance(8_000)
    assert [] == [name for name in disk.list(PARTITION) if name.endswith(".deleted")]
    log.close()


def test_rename_fails_raises_and_log_start_stays_moved() -> None:
    """Readers see the new start, also after a clean close; the next pass renames the file."""
    disk, events = simulated(), list[SegmentDeletion]()
    log = hourly(PARTITION, 3, filesystem=disk, observer=events)
    # The first rename is the checkpoint's.
    disk.fail_at(2, only=frozenset({"rename"}))
    with pytest.raises(LogStorageError):
        log.apply_retention(now_ms=START_MS + HOUR_MS + 10)
    disk.clear_faults()
    assert ([10, 20], 10) == (bases(log), log.log_start_offset)
    assert [0] == [each.base_offset for each in events]
    assert "00000000000000000000.log" in disk.list(PARTITION)
    log.close()
    with manual_log(PARTITION, filesystem=disk) as again:
        assert ([0, 10, 20], 10) == (bases(again), again.log_start_offset)
        assert list(range(10, 30)) == [record.offset for record in again.records()]
        now_ms = START_MS + HOUR_MS
        assert ["start offset"] == [each.cause for each in again.apply_retention(now_ms=now_ms)]
        assert "00000000000000000000.log" not in disk.list(PARTITION)


def test_damage_below_log_start_is_reported_by_recovery_only(directory: Path) -> None:
    """A crash may leave holes between files of deleted records; the log itself is whole."""
    with hourly(directory, 3) as log:
        log.delete_records(15)
        first = log.segments()[0]
        data = bytearray(first.path.read_bytes())
    data[-1] ^= 1
    first.path.write_bytes(data)
    # As after a crash: no byte counts as synced.
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (directory / name).unlink()
    with manual_log(directory) as log:
        assert [(10, 20)] == [
            (each.first_offset, each.next_offset) for each in log.recovery_report.corrupt_ranges
        ]
        assert [(10, 20)] == [
            (each.first_offset, each.next_offset) for each in log.corrupt_ranges()
        ]
        log.delete_records(20)
        assert () == log.corrupt_ranges()
    (directory / ".kafka_cleanshutdown").unlink()
    (directory / "recovery-point-offset-checkpoint").unlink()
    with manual_log(directory) as log:
        assert not log.recovery_report.found_damage


def test_stat_fails_apply_deletes_nothing() -> None:
    """The disk refuses the time of last modification."""
    disk = simulated()
    log = hourly(PARTITION, 3, filesystem=disk)
    disk.fail_at(1, only=frozenset({"stat"}))
    with pytest.raises(LogStorageError, match="reading"):
        log.apply_retention(now_ms=START_MS + 100 * HOUR_MS)
    disk.clear_faults()
    assert [0, 10, 20] == bases(log)
    log.close()
