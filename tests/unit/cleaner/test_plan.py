"""Tests of plans of a cleaning, compared with the reference, and of each of their reasons."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog import CleanerConfig, Codec, Log, Record
from kafkalog.cleaner.log_to_clean import log_to_clean
from kafkalog.cleaner.plan import plan_compaction
from kafkalog.cleaner.plan_model import BoundKind, CompactionPlan
from kafkalog.files.names import CLEANER_OFFSET_CHECKPOINT
from kafkalog.log.log import partition_of
from kafkalog.state.checkpoints import OffsetCheckpoint
from tests.support.cleaning_cases import DirtyLog, add_records, dirty_logs
from tests.support.cleaning_logs import NOW_MS, laid_out, reference_of
from tests.support.logs import manual_log
from tests.support.manual_time import ManualClock
from tests.support.reference_conversion import decode_run


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(log=dirty_logs(), data=st.data())
def test_plan_of_any_log_counts_as_the_reference(log: DirtyLog, data: st.DataObject) -> None:
    """Records before and after, for any batches, segments and checkpoint."""
    cuts = data.draw(st.sets(st.integers(1, len(log.batches))))
    checkpoint = data.draw(st.one_of(st.none(), st.integers(0, log.end)))
    include_active = data.draw(st.booleans())
    retention = data.draw(st.sampled_from([0, 300]))
    with laid_out(log, cuts, delete_retention_ms=retention) as opened:
        target = log_to_clean(opened, include_active=include_active, checkpoint=checkpoint)
        plan = planned(
            opened,
            include_active=include_active,
            checkpoint=checkpoint,
        )
    if target.span().first_dirty >= target.boundary(target.span()):
        assert () == plan.groups
        return
    reference = reference_of(log, target, plan.end_offset)
    kept = reference.kept()
    assert len(reference.latest()) == plan.keys
    assert sum(len(batch.records) for batch in decode_run(reference.data)) == (
        plan.statistics.records_read
    )
    assert sum(len(batch.records) for batch in kept) == plan.statistics.records_kept
    assert len(reference.data) == plan.statistics.bytes_read
    assert sum(segment.bytes_after for segment in plan.groups) == plan.statistics.bytes_written


def planned(log: Log, **options: Any) -> CompactionPlan:
    """Plan with a small map, which is allocated faster."""
    return plan_compaction(log, **({"memory_bytes": 1 << 15} | options))


def keyed(first: int, count: int, keys: int = 3, *, timestamp_ms: int = NOW_MS) -> list[Record]:
    """Return records of a few keys in turn."""
    return [
        Record(key=b"k%d" % (number % keys), value=b"v%d" % number, timestamp_ms=timestamp_ms)
        for number in range(first, first + count)
    ]


def test_plan_names_segments_and_groups_before_and_after() -> None:
    """Clean, dirty and active; two segments become one."""
    with laid_out(DirtyLog(), min_cleanable_dirty_ratio=0.6) as log:
        for first in (0, 10, 20):
            log.append(keyed(first, 10))
            log.roll()
        log.append(keyed(30, 1))
        plan = planned(log, checkpoint=10, timer=iter([0, 7_000_000]).__next__)
    assert ["clean", "dirty", "dirty", "active"] == [each.state for each in plan.segments]
    assert [0, 0, 0, None] == [each.group for each in plan.segments]
    # The last of each key are at 27, 28 and 29.
    assert [(10, 0), (10, 0), (10, 3), (None, None)] == [
        (each.records_before, each.records_after) for each in plan.segments
    ]
    (group,) = plan.groups
    assert (0, 30, 3) == (group.base_offset, group.records_before, group.records_after)
    assert sum(each.bytes_before for each in plan.segments[:3]) == group.bytes_before
    assert plan.segments[2].bytes_after == group.bytes_after < group.bytes_before
    assert plan.segments[3].bytes_before == plan.segments[3].bytes_after
    assert (3, False, 1) == (plan.keys, plan.keys_are_estimate, plan.passes)
    assert 27 == plan.statistics.superseded
    assert 7 == plan.duration_ms
    assert (10, 30, 31) == (plan.begins.offset, plan.end_offset, plan.log_end_offset)
    assert plan.dirty_ratio == plan.cleanable_bytes / (plan.cleanable_bytes + plan.clean_bytes)
    assert plan.is_due is (plan.dirty_ratio > 0.6) is True


def test_plan_gives_the_reason_of_its_first_offset() -> None:
    """The log start, the checkpoint, or an invalid checkpoint."""
    with laid_out(DirtyLog()) as log:
        log.append(keyed(0, 10))
        log.roll()
        begins = [planned(log, checkpoint=checkpoint).begins for checkpoint in (None, 4, 11)]
    assert [
        (BoundKind.LOG_START, 0, "it was never cleaned"),
        (BoundKind.CHECKPOINT, 4, "the last cleaning came to here"),
        (
            BoundKind.CHECKPOINT_RESET,
            0,
            "the checkpoint is 11, which is beyond the log end: everything is cleaned again",
        ),
    ] == [(each.kind, each.offset, each.text) for each in begins]


def test_plan_reads_the_checkpoint_of_the_data_directory() -> None:
    """As written by a broker."""
    with laid_out(DirtyLog()) as log:
        log.append(keyed(0, 10))
        log.roll()
        filesystem = partition_of(log).local.context.filesystem
        path = log.directory / CLEANER_OFFSET_CHECKPOINT
        OffsetCheckpoint(filesystem, path).write({log.topic_partition: 6})
        assert 6 == planned(log).begins.offset
        damaged = filesystem.open(path, write=True)
        damaged.pwrite(b"x", 0)
        assert BoundKind.LOG_START is planned(log).begins.kind


def test_plan_names_the_producer_that_holds_the_last_stable_offset() -> None:
    """The producer with the earliest open transaction."""
    dirty = DirtyLog()
    add_records(dirty, (b"a", b"1"))
    add_records(dirty, (b"a", b"2"), producer_id=7, transactional=True)
    with laid_out(dirty, cuts=[1]) as log:
        log.roll()
        plan = planned(log)
    stable, active = plan.ends
    assert (BoundKind.LAST_STABLE_OFFSET, 1, 7) == (stable.kind, stable.offset, stable.producer_id)
    assert "producer 7 has had a transaction open since offset 1" == stable.text
    assert (BoundKind.ACTIVE_SEGMENT, 2) == (active.kind, active.offset)
    assert 1 == plan.end_offset
    assert ["dirty", "held", "active"] == [each.state for each in plan.segments]


def test_plan_gives_the_end_of_the_minimal_lag() -> None:
    """By the youngest record of the first segment that must wait."""
    with laid_out(DirtyLog(), min_compaction_lag_ms=500) as log:
        for timestamp in (400, 800):
            log.append(keyed(0, 2, timestamp_ms=timestamp))
            log.roll()
        plan = planned(log)
    assert (BoundKind.MIN_LAG, 2, 1300) == (
        plan.ends[0].kind,
        plan.ends[0].offset,
        plan.ends[0].until_ms,
    )
    assert "segment 2 has records younger than min.compaction.lag.ms = 500" == plan.ends[0].text


def test_plan_gives_the_end_of_the_maximal_lag() -> None:
    """By the first dirty record; None without a limit."""
    with laid_out(DirtyLog(), max_compaction_lag_ms=700, min_cleanable_dirty_ratio=1.0) as log:
        log.append(keyed(0, 2, timestamp_ms=400))
        log.roll()
        waits, due = planned(log), planned(log, now_ms=1101)
        log.reconfigure(log.config.replace(max_compaction_lag_ms=2**63 - 1))
        never = planned(log)
    assert (1101, False, False) == (waits.due_ms, waits.must_be_cleaned, waits.is_due)
    assert (1101, True, True) == (due.due_ms, due.must_be_cleaned, due.is_due)
    assert never.due_ms is None


def test_plan_with_little_memory_gives_the_end_of_the_range() -> None:
    """The oldest keys that fit; an estimate of all keys, and of the memory for them."""
    config = CleanerConfig(io_buffer_load_factor=1.0)
    with laid_out(DirtyLog()) as log:
        for first in (0, 50):
            numbers = range(first, 50 if first == 0 else 300)
            log.append([Record(key=b"%d" % n, value=b"v", timestamp_ms=NOW_MS) for n in numbers])
            log.roll()
        plan = planned(log, memory_bytes=24 * 100, config=config)
        whole = planned(log, memory_bytes=24 * 300, config=config)
    assert (BoundKind.MEMORY, 100) == (plan.ends[0].kind, plan.ends[0].offset)
    assert (100, 1) == (plan.end_offset, plan.passes)
    assert plan.keys_are_estimate
    assert 101 <= plan.keys <= 900
    assert 24 * plan.keys == plan.bytes_for_one_pass
    assert (300, False, 1, 300) == (
        whole.keys,
        whole.keys_are_estimate,
        whole.passes,
        whole.end_offset,
    )


def test_plan_with_too_little_memory_for_a_segment_takes_several_passes() -> None:
    """Its counts of records are those of one pass; the bytes are an estimate."""
    config = CleanerConfig(io_buffer_load_factor=1.0)
    dirty = DirtyLog()
    for value in (b"1", b"2", None):
        add_records(dirty, *[(b"%d" % n, value if n % 3 else b"3") for n in range(150)])
    add_records(dirty, (b"0", b"4"), (None, b"5"), producer_id=1, transactional=True)
    dirty.end_transaction(1, None, abort=True)
    add_records(dirty, (b"last", b""))
    with laid_out(dirty, cuts=[5]) as log:
        parts = planned(log, memory_bytes=24 * 60, config=config)
        whole = planned(log, memory_bytes=24 * 300, config=config)
    assert 1 == whole.passes < 3 <= parts.passes
    assert 453 == whole.end_offset == parts.end_offset
    assert whole.statistics.records_kept == parts.statistics.records_kept
    for reason in ("superseded", "aborted_dropped", "control_dropped", "tombstones_kept"):
        assert getattr(whole.statistics, reason) == getattr(parts.statistics, reason)
    assert whole.waiting == parts.waiting
    assert [each.records_after for each in whole.segments] == (
        [each.records_after for each in parts.segments]
    )
    after = whole.statistics.bytes_written
    assert after == pytest.approx(parts.statistics.bytes_written, rel=0.1)


def test_plan_counts_removed_and_waiting_records_by_reason() -> None:
    """Tombstones and markers by their horizon."""
    dirty = DirtyLog()
    add_records(dirty, (b"a", None), (b"b", None), horizon=NOW_MS + 50)
    add_records(dirty, (b"c", None), horizon=NOW_MS)
    add_records(dirty, (b"d", b"1"), (None, b"x"), (b"e", None))
    add_records(dirty, (b"d", b"2"), producer_id=1, transactional=True)
    dirty.end_transaction(1, None, abort=True)
    dirty.end_transaction(2, None, abort=False)
    add_records(dirty, (b"d", b"3"))
    with laid_out(dirty, delete_retention_ms=200) as log:
        plan = planned(log, include_active=True)
    found = plan.statistics
    assert (1, 1, 1, 1, 0) == (
        found.superseded,
        found.tombstones_expired,
        found.keyless_dropped,
        found.aborted_dropped,
        found.control_dropped,
    )
    assert [
        ("tombstones", 2, NOW_MS + 50),
        ("tombstones", 1, NOW_MS + 200),
        ("markers", 1, NOW_MS + 200),
    ] == [(each.kind, each.count, each.until_ms) for each in plan.waiting]


def test_plan_counts_old_tombstones_by_the_age_of_their_segment() -> None:
    """Their horizon is the time of the last clean segment."""
    dirty = DirtyLog()
    dirty.add_old([(b"a", None, 5)], 1, Codec.NONE, append_time=False)
    with laid_out(dirty, delete_retention_ms=200) as log:
        log.roll()
        (waiting,) = planned(log).waiting
    assert ("old tombstones", 1, NOW_MS + 200) == (waiting.kind, waiting.count, waiting.until_ms)


def test_plan_with_a_throttle_estimates_its_time() -> None:
    """Bytes that are read twice and written, at the allowed rate."""
    with laid_out(DirtyLog()) as log:
        log.append(keyed(0, 10))
        log.roll()
        config = CleanerConfig(io_max_bytes_per_second=1000.0)
        plan = planned(log, config=config)
    statistics = plan.statistics
    assert 2 * statistics.bytes_read + statistics.bytes_written == plan.duration_ms


def test_plan_reports_its_progress() -> None:
    """Both passes, up to all of their bytes."""
    progress: list[tuple[int, int]] = []
    with laid_out(DirtyLog()) as log:
        log.append(keyed(0, 10))
        log.roll()
        plan = planned(log, on_progress=lambda done, total: progress.append((done, total)))
    size = plan.statistics.bytes_read
    assert [(size, 2 * size), (2 * size, 2 * size)] == progress


def test_plan_of_an_empty_log_has_no_work() -> None:
    """The same with an active segment only."""
    with laid_out(DirtyLog()) as log:
        empty = planned(log, include_active=True)
        log.append(keyed(0, 10))
        active = planned(log)
    for plan in (empty, active):
        assert () == plan.groups
        assert (0, 0, 0.0, False) == (plan.keys, plan.end_offset, plan.dirty_ratio, plan.is_due)


def test_plan_of_a_log_of_another_process_is_the_same() -> None:
    """Its producers are derived from its batches."""
    dirty = DirtyLog()
    add_records(dirty, (b"a", b"1"), producer_id=7)
    add_records(dirty, (b"a", b"2"), producer_id=7)
    add_records(dirty, (b"a", b"3"))
    with laid_out(dirty) as log:
        log.roll()
        expected = planned(log, timer=int)
        filesystem = partition_of(log).local.context.filesystem
        clock = ManualClock(NOW_MS)
        with manual_log(
            log.directory, filesystem=filesystem, read_only=True, clock=clock
        ) as follower:
            assert expected == planned(follower, timer=int)
    assert 1 == expected.statistics.batches_emptied


def test_plan_as_dictionary_round_trips_through_json() -> None:
    """All values are plain."""
    with laid_out(DirtyLog()) as log:
        log.append(keyed(0, 10))
        log.roll()
        plan = planned(log)
    shown = json.loads(json.dumps(plan.as_dict()))
    assert ("orders-0", "log start") == (shown["topic_partition"], shown["begins"]["kind"])
    assert plan.statistics.superseded == shown["statistics"]["superseded"]
    assert "dirty" == shown["segments"][0]["state"]
