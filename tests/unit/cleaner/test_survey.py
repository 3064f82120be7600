"""Tests of the survey of a log, compared with slow counting."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog import CleanerConfig, Codec, Log, Record
from kafkalog.cleaner.log_to_clean import log_to_clean
from kafkalog.cleaner.survey import LogSurvey, survey_log
from tests.support.cleaning_cases import DirtyLog, add_records, dirty_logs
from tests.support.cleaning_logs import NOW_MS, laid_out, reference_of
from tests.support.reference_conversion import decode_run

LITTLE = 1 << 15


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(log=dirty_logs(), data=st.data())
def test_survey_of_any_log_counts_as_the_reference(log: DirtyLog, data: st.DataObject) -> None:
    """Dead records are those that compaction of the whole log removes, but for the last message."""
    cuts = data.draw(st.sets(st.integers(1, len(log.batches))))
    entries = data.draw(st.sampled_from([2, 1000]))
    with laid_out(log, cuts, delete_retention_ms=300) as opened:
        found = survey_log(
            opened,
            memory_bytes=24 * entries,
            config=CleanerConfig(io_buffer_load_factor=1.0),
            top=100,
        )
        target = log_to_clean(opened, checkpoint=0)
    batches = decode_run(log.data)
    reference = reference_of(log, target, log.end, log.end)
    # Beyond the end, so that no message is the last one of the cleaned range.
    reference = type(reference)(
        **{name: getattr(reference, name) for name in reference.__dataclass_fields__}
        | {"rules": target.rules(log.end + 1)}
    )
    control = {record.offset for batch in batches if batch.is_control for record in batch.records}
    there = {record.offset for batch in batches for record in batch.records}
    kept = {record.offset for batch in reference.kept() for record in batch.records}
    assert len(there) == found.records
    assert len(there - kept - control) == found.dead_records
    assert len(log.data) == found.size_bytes
    latest = reference.latest()
    assert len(latest) == found.keys
    expected = Counter(
        record.key
        for batch in batches
        if not batch.is_control and not reference.is_aborted(batch)
        for record in batch.records
        if record.key is not None
    )
    assert expected == {each.key: each.records for each in found.biggest_by_records}
    assert {key: latest[key] for key in latest} == {
        each.key: each.latest_offset for each in found.biggest_by_bytes
    }
    counts = [each.records for each in found.biggest_by_records]
    assert sorted(counts, reverse=True) == counts
    sizes = [each.bytes for each in found.biggest_by_bytes]
    assert sorted(sizes, reverse=True) == sizes


def surveyed(log: Log, **options: Any) -> LogSurvey:
    """Survey with a small map, which is allocated faster."""
    return survey_log(log, **({"memory_bytes": LITTLE} | options))


def test_survey_groups_segments_by_the_next_cleaning() -> None:
    """With live and dead bytes of each, and of the active one."""
    with laid_out(DirtyLog()) as log:
        for value in (b"1" * 10, b"2" * 10, b"3" * 10):
            log.append([Record(key=b"a", value=value, timestamp_ms=NOW_MS)])
            log.append([Record(key=b"b" + value, value=value, timestamp_ms=NOW_MS)])
            log.roll()
        log.append([Record(key=b"a", value=None, timestamp_ms=NOW_MS)])
        found = surveyed(log, checkpoint=2)
    assert ["clean", "dirty", "dirty", "active"] == [each.state for each in found.segments]
    assert [1, 1, 1, 0] == [each.dead_records for each in found.segments]
    assert [0, 0, 0, 1] == [each.tombstones for each in found.segments]
    # Each record is a batch, so its share is the whole batch.
    assert {(79, 89)} == {(each.dead_bytes, each.live_bytes) for each in found.segments[:3]}
    assert [(1, None)] == [(each.count, each.until_ms) for each in found.tombstones]
    assert (2, 6) == (found.begins.offset, found.ends[0].offset)
    assert (4, 3, 7) == (found.keys, found.dead_records, found.records)


def test_survey_shares_the_bytes_of_a_batch_among_its_records() -> None:
    """By the size of keys and values."""
    with laid_out(DirtyLog()) as log:
        log.append(
            [
                Record(key=b"a", value=b"v" * 91, timestamp_ms=NOW_MS),
                Record(key=b"a", value=b"v" * 191, timestamp_ms=NOW_MS),
            ]
        )
        found = surveyed(log)
    (segment,) = found.segments
    assert round(segment.size_bytes / 3) == segment.dead_bytes
    assert segment.size_bytes == found.biggest_by_bytes[0].bytes


def test_survey_gives_the_time_when_tombstones_expire() -> None:
    """By horizon, by the age of the segment, or not known yet; expired ones are dead."""
    dirty = DirtyLog()
    dirty.add_old([(b"z", None, 5)], 1, Codec.NONE, append_time=False)
    add_records(dirty, (b"a", None), (b"b", None), horizon=NOW_MS + 50)
    add_records(dirty, (b"c", None), horizon=NOW_MS)
    add_records(dirty, (b"d", None))
    with laid_out(dirty, delete_retention_ms=200) as log:
        found = surveyed(log)
    assert [(2, NOW_MS + 50), (1, NOW_MS + 200), (1, None)] == [
        (each.count, each.until_ms) for each in found.tombstones
    ]
    assert (1, 4) == (found.dead_records, found.segments[0].tombstones)


def test_survey_of_a_log_without_compaction_counts_keyless_records_live() -> None:
    """Only compaction removes them."""
    dirty = DirtyLog()
    add_records(dirty, (None, b"1"), (b"a", b"1"))
    with laid_out(dirty) as log:
        compacted = surveyed(log)
        log.reconfigure(log.config.replace(cleanup_policy=("delete",)))
        kept = surveyed(log)
        with_checkpoint = surveyed(log, checkpoint=0)
    assert [(True, 1), (False, 0), (True, 1)] == [
        (each.is_compacted, each.dead_records) for each in (compacted, kept, with_checkpoint)
    ]
    assert 1 == kept.records_without_key


def test_survey_counts_unstable_records_as_live() -> None:
    """An open transaction may still be aborted, and later records wait for it."""
    dirty = DirtyLog()
    add_records(dirty, (b"a", b"1"), (b"a", b"2"))
    add_records(dirty, (b"a", b"3"), producer_id=7, transactional=True)
    add_records(dirty, (b"a", b"4"))
    with laid_out(dirty) as log:
        found = surveyed(log)
    assert (1, 4, 1) == (found.dead_records, found.records, found.keys)
    assert (2, 1) == (
        found.biggest_by_records[0].records,
        found.biggest_by_records[0].latest_offset,
    )


@pytest.mark.parametrize("count", [0, 3])
def test_survey_with_too_little_memory_takes_several_passes(count: int) -> None:
    """The result is the same."""
    config = CleanerConfig(io_buffer_load_factor=1.0)
    with laid_out(DirtyLog()) as log:
        log.append(
            [Record(key=b"%d" % (n % 200), value=b"v", timestamp_ms=NOW_MS) for n in range(500)]
        )
        whole = survey_log(log, memory_bytes=24 * 200, config=config, top=count)
        parts = survey_log(log, memory_bytes=24 * 60, config=config, top=count)
    assert 1 == whole.passes < parts.passes
    assert count == len(whole.biggest_by_records) == len(whole.biggest_by_bytes)
    assert whole.as_dict() | {"passes": 0} == parts.as_dict() | {"passes": 0}


def test_survey_of_an_empty_log_is_empty() -> None:
    """One segment without records."""
    with laid_out(DirtyLog()) as log:
        found = json.loads(json.dumps(surveyed(log).as_dict()))
    assert (0, []) == (found["keys"], found["biggest_by_bytes"])
    assert ["active"] == [each["state"] for each in found["segments"]]
