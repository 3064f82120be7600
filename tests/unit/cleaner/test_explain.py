"""Tests of explanations of retained and removed records, compared with the reference."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog import CleanerConfig, Codec, Log, OffsetOutOfRangeError
from kafkalog._core.record_filter import wrap_retained
from kafkalog.cleaner.explain import CompactionExplanation, CompactionRule, explain_compaction
from kafkalog.cleaner.log_to_clean import log_to_clean
from kafkalog.layout import NO_TIMESTAMP
from tests.support import golden
from tests.support.cleaning_cases import DirtyLog, add_records, dirty_logs
from tests.support.cleaning_logs import NOW_MS, laid_out, reference_of
from tests.support.reference_conversion import decode_run


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(log=dirty_logs(), data=st.data())
def test_explanation_of_any_offset_agrees_with_the_reference(
    log: DirtyLog, data: st.DataObject
) -> None:
    """A record is retained, removed or absent, as in the reference."""
    cuts = data.draw(st.sets(st.integers(1, len(log.batches))))
    checkpoint = data.draw(st.one_of(st.none(), st.integers(0, log.end)))
    include_active = data.draw(st.booleans())
    with laid_out(log, cuts, delete_retention_ms=data.draw(st.sampled_from([0, 300]))) as opened:
        target = log_to_clean(opened, include_active=include_active, checkpoint=checkpoint)
        boundary = target.boundary(target.span())
        reference = reference_of(log, target, boundary)
        kept = {record.offset for batch in reference.kept() for record in batch.records}
        there = {record.offset for batch in decode_run(log.data) for record in batch.records}
        for offset in data.draw(st.lists(st.integers(0, log.end - 1), max_size=12)):
            found = explain_compaction(
                opened,
                offset,
                include_active=include_active,
                checkpoint=checkpoint,
                memory_bytes=1 << 15,
            )
            expected = "is not there"
            if offset in there:
                is_safe = offset >= boundary or target.span().first_dirty >= boundary
                expected = "stays" if offset in kept or is_safe else "goes"
            assert expected == found.fate, found
            if found.rule is CompactionRule.SUPERSEDED:
                assert found.key is not None
                assert reference.latest()[found.key] == found.later_offset


def explained(log: Log, offset: int, **options: Any) -> CompactionExplanation:
    """Explain with a small map, which is allocated faster."""
    return explain_compaction(log, offset, **({"memory_bytes": 1 << 15} | options))


def sample() -> DirtyLog:
    """Return a log with a record for each rule of data and markers."""
    dirty = DirtyLog()
    add_records(dirty, (b"a", b"1"), (b"b", b"1"), (b"c", None))  # 0 to 2
    add_records(dirty, (b"d", None), horizon=NOW_MS + 50)  # 3
    add_records(dirty, (b"e", None), (None, b"1"), horizon=NOW_MS - 50)  # 4 and 5
    add_records(dirty, (b"b", b"2"), producer_id=7, transactional=True)  # 6
    dirty.end_transaction(7, None, abort=True)  # 7
    dirty.end_transaction(8, None, abort=False)  # 8
    dirty.end_transaction(8, NOW_MS + 9, abort=False)  # 9
    dirty.end_transaction(8, NOW_MS, abort=False)  # 10
    add_records(dirty, (b"a", b"2"), hole=1)  # 12
    return dirty


RULES = [
    (0, "superseded", "The record at offset 0 with key b'a' goes: offset 12 has the same key."),
    (1, "latest of its key", "with key b'b' stays: nothing that is cleaned has its key later."),
    (2, "tombstone waits", "would see first: it stays until 1970-01-01 00:00:01 UTC."),
    (3, "tombstone waits", "a tombstone that stays until 1970-01-01 00:00:01 UTC."),
    (4, "tombstone expired", "goes: it is a tombstone whose time was over on 1970-01-01 00:00:00"),
    (5, "keyless", "The record at offset 5 goes: a compacted log cannot keep what has no key."),
    (6, "aborted", "goes: producer 7 aborted the transaction that it belongs to."),
    (7, "marker needed", "the marker of the transaction that producer 7 aborted, of which someth"),
    (8, "marker waits", "nothing is left of the transaction that producer 8 committed, and this "),
    (9, "marker waits", "that producer 8 committed: until 1970-01-01 00:00:01 UTC."),
    (10, "marker expired", "The control record at offset 10 goes: nothing is left of the transact"),
    (11, "hole", "No record exists at offset 11: an earlier compaction removed its batch, or"),
]


@pytest.mark.parametrize(("offset", "rule", "text"), RULES)
def test_explanation_names_the_rule(offset: int, rule: str, text: str) -> None:
    """In a sentence, and as a value."""
    with laid_out(sample(), delete_retention_ms=200) as log:
        found = explained(log, offset, include_active=True)
    assert rule == found.rule
    assert text in found.text


def test_explanation_has_the_values_of_the_sentence() -> None:
    """Key, later offset, horizon, producer."""
    with laid_out(sample(), delete_retention_ms=200) as log:
        found = [explained(log, offset, include_active=True) for offset in range(13)]
    assert [b"a", b"b", b"c", b"d", b"e", None, b"b"] == [each.key for each in found[:7]]
    assert [12, None] == [each.later_offset for each in found[:2]]
    assert [NOW_MS + 200, NOW_MS + 50, NOW_MS - 50] == [each.horizon_ms for each in found[2:5]]
    assert [7, 7, 8, 8, 8] == [each.producer_id for each in found[6:11]]
    assert [NOW_MS + 200, NOW_MS + 9, NOW_MS] == [each.horizon_ms for each in found[8:11]]
    shown = json.loads(json.dumps(found[0].as_dict()))
    assert ("goes", "61", 12) == (shown["fate"], shown["key"], shown["later_offset"])


def test_explanation_of_a_record_not_cleanable_yet_names_the_reason() -> None:
    """The active segment, the minimal lag, an open transaction."""
    dirty = DirtyLog()
    add_records(dirty, (b"a", b"1"))
    add_records(dirty, (b"a", b"2"), producer_id=7, transactional=True)
    add_records(dirty, (b"a", b"3"))
    with laid_out(dirty, cuts=[1, 2]) as log:
        assert "stays: the active segment is never cleaned." in explained(log, 2).text
        held = explained(log, 1)
        behind = explained(log, 2, include_active=True)
        log.reconfigure(log.config.replace(min_compaction_lag_ms=3_600_000))
        young = explained(log, 0)
    assert (CompactionRule.LAST_STABLE_OFFSET, 7) == (held.rule, held.producer_id)
    assert "stays: producer 7 has had a transaction open since offset 1." in held.text
    assert CompactionRule.LAST_STABLE_OFFSET is behind.rule
    assert "stays: it is after offset 1, where cleaning ends: producer 7" in behind.text
    assert (CompactionRule.MIN_LAG, 3_600_100) == (young.rule, young.until_ms)
    assert "min.compaction.lag.ms = 3600000, until 1970-01-01 01:00:00 UTC." in young.text


def test_explanation_of_a_record_beyond_the_map_names_it() -> None:
    """With little memory a cleaning ends within a segment."""
    config = CleanerConfig(io_buffer_load_factor=1.0)
    dirty = DirtyLog()
    add_records(dirty, (b"a", b"1"), (b"b", b"1"))
    add_records(dirty, (b"a", b"2"), (b"c", b"1"), (b"a", b"3"))
    add_records(dirty, (b"a", b"4"))
    with laid_out(dirty, cuts=[1, 2]) as log:
        log.roll()
        found = [explained(log, offset, memory_bytes=48, config=config) for offset in range(6)]
    rules = ["superseded", "latest of its key", "latest of its key"]
    assert [*rules, "memory", "memory", "memory"] == [each.rule for each in found]
    assert 2 == found[0].later_offset
    assert "is full with those below offset 3, and later records wait" in found[5].text


def test_explanation_in_several_passes_is_the_same() -> None:
    """With too little memory for a segment its keys are searched in parts."""
    config = CleanerConfig(io_buffer_load_factor=1.0)
    dirty = DirtyLog()
    for value in (b"1", b"2"):
        add_records(dirty, *[(b"%d" % n, value) for n in range(20)])
    with laid_out(dirty) as log:
        log.roll()
        for offset in (0, 7, 19, 20, 39):
            expected = explained(log, offset)
            assert expected == explained(log, offset, memory_bytes=24 * 3, config=config)


def test_explanation_without_anything_dirty_names_it() -> None:
    """The clean part is cleaned only together with a dirty part."""
    with laid_out(sample()) as log:
        log.roll()
        found = explained(log, 4, checkpoint=13)
    assert ("nothing dirty", "stays") == (found.rule, found.fate)
    assert "stays: nothing after it can be cleaned, and without that" in found.text


def test_explanation_of_an_emptied_batch_names_its_purpose() -> None:
    """The last batch of a producer, or the end of the cleaned range."""
    dirty = DirtyLog()
    for producer_id in (7, -1):
        add_records(dirty, (b"a", b"1"), producer_id=producer_id)
        dirty.batches[-1] = bytes(
            wrap_retained(dirty.batches[-1], b"", 0, NO_TIMESTAMP, NO_TIMESTAMP, 0, False)
        )
    with laid_out(dirty) as log:
        producers, end = explained(log, 0), explained(log, 1)
    assert ("empty batch", 7) == (producers.rule, producers.producer_id)
    assert "left the header of its batch, the last of producer 7." in producers.text
    assert ("empty batch", None, "is not there") == (end.rule, end.producer_id, end.fate)
    assert "which shows how far the log was cleaned" in end.text


def test_explanation_of_old_tombstones_uses_the_age_of_segments() -> None:
    """They have no horizon; and the last message marks the end of the cleaned range."""
    dirty = DirtyLog()
    dirty.add_old([(b"a", None, 5)], 1, Codec.NONE, append_time=False)
    dirty.add_old([(b"b", None, 5), (b"b", b"1", 5)], 1, Codec.GZIP, append_time=False)
    dirty.add_old([(b"d", None, 5), (b"c", None, 5)], 0, Codec.NONE, append_time=False)
    with laid_out(dirty, cuts=[1], delete_retention_ms=0) as log:
        log.roll()
        waits = explained(log, 0)
        found = [explained(log, offset, checkpoint=1) for offset in range(5)]
    assert ("tombstone waits", NOW_MS) == (waits.rule, waits.horizon_ms)
    assert "until a cleaning finds a clean segment that was written on" in waits.text
    rules = ["tombstone expired", "superseded", "latest of its key"]
    assert [*rules, "tombstone expired", "last message"] == [each.rule for each in found]


def test_explanation_of_an_offset_outside_the_log_raises() -> None:
    """Below its start, and from its end on."""
    with laid_out(sample()) as log:
        log.delete_records(2)
        for offset in (1, 13):
            with pytest.raises(OffsetOutOfRangeError, match=f"got {offset}"):
                explained(log, offset)


def test_explanation_shows_the_start_of_a_long_key() -> None:
    """And its length."""
    dirty = DirtyLog()
    add_records(dirty, (b"k" * 100, b"1"))
    with laid_out(dirty) as log:
        found = explained(log, 0)
    assert f"key b'{'k' * 40}'... (100 bytes) stays" in found.text


def test_explanation_of_colliding_keys_names_the_other_key() -> None:
    """Under MD5 one key replaces the other; under a keyed hash, the default, it does not."""
    vector = golden.vectors("md5_collision")
    dirty = DirtyLog()
    for name in ("first", "second"):
        add_records(dirty, (bytes.fromhex(vector[name]), b"1"))
    with laid_out(dirty) as log:
        log.roll()
        lost = explained(log, 0, config=CleanerConfig(hash_algorithm="md5"))
        kept = explained(log, 0)
    assert (CompactionRule.SUPERSEDED, 1) == (lost.rule, lost.later_offset)
    assert "offset 1 has another key with the same hash, which log.cleaner.hash." in lost.text
    assert CompactionRule.LATEST is kept.rule
