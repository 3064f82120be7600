"""Retention policies as pure functions: Kafka's three, compositions, and their selection."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.config import LogConfig
from kafkalog.log.retention import (
    AllOf,
    LogFacts,
    RetentionDecision,
    RetentionPolicy,
    SegmentFacts,
    SizeRetention,
    StartOffsetRetention,
    TimeRetention,
    explain,
    name_of,
    policies_for,
)
from tests.support.retention_cases import NOW_MS, facts_of, logs, segment


def deleted_by(policy: RetentionPolicy, log: LogFacts) -> list[int]:
    """Return the base offsets of the segments that a policy deletes."""
    bound = policy(log).delete_before
    return [
        each.base_offset
        for each in log.segments
        # An empty active segment ends at its base offset, so the bound does not decide about it.
        if each.end_offset <= bound and each.base_offset < each.end_offset
    ]


# -- by time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("age_ms", "goes"), [(99, False), (100, False), (101, True)])
def test_time_age_must_exceed_the_limit(age_ms: int, goes: bool) -> None:
    """A segment exactly as old as the limit stays."""
    log = facts_of([segment(time_ms=NOW_MS - age_ms), segment()])
    assert [0] * goes == deleted_by(TimeRetention(100), log)


def test_time_younger_segment_keeps_later_older_ones() -> None:
    """Only the oldest are deleted, in order: segments after a kept one stay."""
    old, young = segment(time_ms=NOW_MS - 500), segment(time_ms=NOW_MS - 5)
    assert [0] == deleted_by(TimeRetention(100), facts_of([old, young, old, young]))


def test_time_old_active_segment_is_deleted() -> None:
    """As in Kafka; a new one begins after it."""
    log = facts_of([segment(time_ms=NOW_MS - 500), segment(time_ms=NOW_MS - 500)])
    assert [0, 10] == deleted_by(TimeRetention(100), log)


def test_time_zero_deletes_all_but_this_millisecond() -> None:
    """0 is a valid `retention.ms`."""
    log = facts_of([segment(time_ms=NOW_MS - 1), segment(time_ms=NOW_MS)])
    assert [0] == deleted_by(TimeRetention(0), log)


@pytest.mark.parametrize("retention_ms", [-1, -5])
def test_time_negative_limit_keeps_all(retention_ms: int) -> None:
    """For any age."""
    log = facts_of([segment(time_ms=0), segment()])
    assert [] == deleted_by(TimeRetention(retention_ms), log)
    assert "keeps for ever" in explain(TimeRetention(retention_ms), log, log.segments[0]).text


def test_time_without_timestamps_uses_file_time() -> None:
    """Messages of magic 0 have no timestamp."""
    log = facts_of(
        [segment(time_ms=-1, file_time_ms=NOW_MS - 101), segment(time_ms=-1, file_time_ms=NOW_MS)]
    )
    assert [0] == deleted_by(TimeRetention(100), log)
    assert "no record has a timestamp" in explain(TimeRetention(100), log, log.segments[0]).text


def test_time_retention_timestamp_zero_is_a_time() -> None:
    """1970 is a date; only negative timestamps are none."""
    log = facts_of([segment(time_ms=0, file_time_ms=NOW_MS), segment()])
    assert [0] == deleted_by(TimeRetention(100), log)


@pytest.mark.parametrize(
    ("guard", "file_age_ms", "goes"),
    [(True, 101, True), (True, 100, False), (False, 101, False), (True, -50, False)],
)
def test_time_future_timestamp_uses_file_time(guard: bool, file_age_ms: int, goes: bool) -> None:
    """A record of the year 2100 keeps no segment, unless the guard is off, as in Kafka."""
    far = segment(time_ms=NOW_MS + 3_600_001, file_time_ms=NOW_MS - file_age_ms)
    log = facts_of([far, segment()])
    assert [0] * goes == deleted_by(TimeRetention(100, guard), log)


@pytest.mark.parametrize("ahead_ms", [0, 1, 3_600_000])
def test_time_guard_accepts_timestamps_up_to_an_hour_ahead(ahead_ms: int) -> None:
    """The file's time does not count then, as clocks differ: a copy may have another time."""
    log = facts_of([segment(time_ms=NOW_MS + ahead_ms, file_time_ms=0), segment()])
    assert [] == deleted_by(TimeRetention(100), log)


def test_time_explanation_has_the_due_time() -> None:
    """At that time the policy deletes the segment, and not a millisecond before."""
    policy = TimeRetention(100)
    log = facts_of([segment(time_ms=NOW_MS - 40), segment()])
    reason = explain(policy, log, log.segments[0])
    assert ("time", NOW_MS + 61) == (reason.policy, reason.due_ms)
    assert "its newest record is 40 ms old" in reason.text
    assert [] == deleted_by(policy, facts_of(log.segments, now_ms=NOW_MS + 60))
    assert [0] == deleted_by(policy, facts_of(log.segments, now_ms=NOW_MS + 61))


# -- by size ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1000, []),
        (301, []),
        (300, []),
        (201, []),
        (200, [0]),
        (199, [0]),
        (100, [0, 10]),
        (1, [0, 10]),
        (0, [0, 10, 20]),
        (-1, []),
    ],
)
def test_size_keeps_the_log_above_the_limit(limit: int, expected: list[int]) -> None:
    """Whole segments are deleted while the limit is left; 0 deletes the active one too."""
    log = facts_of([segment(size=100)] * 3)
    assert expected == deleted_by(SizeRetention(limit), log)


def test_size_large_segment_keeps_later_small_ones() -> None:
    """Segments are deleted in order of age, not by their fit."""
    log = facts_of([segment(size=90), segment(size=5), segment(size=20)])
    assert [] == deleted_by(SizeRetention(30), log)


def test_size_explanation_has_the_remaining_bytes() -> None:
    """Next to the limit."""
    log = facts_of([segment(size=100)] * 3)
    texts = [explain(SizeRetention(150), log, each).text for each in log.segments]
    assert "200 bytes would be left, at least retention.bytes = 150" in texts[0]
    assert "100 bytes would be left, fewer than retention.bytes = 150" in texts[1]
    assert "0 bytes would be left" in texts[2]
    assert "sets no limit" in explain(SizeRetention(-1), log, log.segments[0]).text


# -- by log start ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "expected"), [(0, []), (9, []), (10, [0]), (19, [0]), (20, [0, 10]), (30, [0, 10])]
)
def test_start_offset_deletes_whole_segments_below(start: int, expected: list[int]) -> None:
    """The segment with the log start stays, and so does the active one."""
    log = facts_of([segment()] * 3, log_start_offset=start)
    policy = StartOffsetRetention()
    assert expected == deleted_by(policy, log)
    texts = [explain(policy, log, each).text for each in log.segments]
    assert [each.base_offset in expected for each in log.segments] == [
        text.startswith("below the log start") for text in texts
    ]


# -- compositions, and a user's own ----------------------------------------------------------------


def keep_last_records(log: LogFacts) -> RetentionDecision:
    """Keep the last fifteen records, in whole segments: an example of a user's policy."""
    return RetentionDecision(log.log_end_offset - 15, "more than 15 records lie behind")


def test_custom_policy_can_be_a_function() -> None:
    """No class is needed; its reason is reported for every segment."""
    log = facts_of([segment()] * 4)
    assert [0, 10] == deleted_by(keep_last_records, log)
    reason = explain(keep_last_records, log, log.segments[0])
    assert ("keep_last_records", "more than 15 records lie behind") == (reason.policy, reason.text)
    assert "keep_last_records" == name_of(keep_last_records)


def test_custom_policy_without_name_has_that_of_its_class() -> None:
    """The cause in an event is never empty."""

    class Never:
        def __call__(self, log: LogFacts, /) -> RetentionDecision:
            return RetentionDecision.keep("never")

    assert "Never" == name_of(Never())
    assert [] == deleted_by(Never(), facts_of([segment(time_ms=0)] * 2))


def test_all_of_deletes_what_every_policy_deletes() -> None:
    """Old segments of a log that is too large, for example."""
    log = facts_of([segment(size=100, time_ms=NOW_MS - 500)] * 2 + [segment(size=100)] * 2)
    assert [0] == deleted_by(AllOf((TimeRetention(100), SizeRetention(300))), log)
    assert [0, 10] == deleted_by(AllOf((TimeRetention(100), SizeRetention(0))), log)
    assert [] == deleted_by(AllOf((TimeRetention(-1), SizeRetention(0))), log)


def test_all_of_explains_with_all_reasons() -> None:
    """Due when the last policy deletes, if each has a due time."""
    log = facts_of([segment(time_ms=NOW_MS), segment()])
    both = AllOf((TimeRetention(100), TimeRetention(200)))
    reason = explain(both, log, log.segments[0])
    assert ("time and time", NOW_MS + 201) == (reason.policy, reason.due_ms)
    assert 2 == reason.text.count("its newest record is 0 ms old")
    assert explain(AllOf((TimeRetention(1), SizeRetention(1))), log, log.segments[0]).due_ms is None


def test_all_of_without_policies_is_refused() -> None:
    """No condition at all always holds: it would delete everything."""
    with pytest.raises(ValueError, match="policies must not be empty"):
        AllOf(())


# -- the policies of a log -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (("delete",), ["start offset", "size", "time"]),
        (("compact", "delete"), ["start offset", "size", "time"]),
        (("compact",), ["start offset"]),
        ((), ["start offset"]),
    ],
)
def test_policies_for_cleanup_policy(policy: tuple[str, ...], expected: list[str]) -> None:
    """Segments below the log start are always deleted, others if `delete` is in the policy."""
    config = LogConfig(cleanup_policy=policy)
    assert expected == [name_of(each) for each in policies_for(config)]


def test_policies_for_uses_the_limits_of_the_settings() -> None:
    """And the future guard."""
    config = LogConfig(retention_ms=5, retention_bytes=6, retention_future_guard=False)
    assert (StartOffsetRetention(), SizeRetention(6), TimeRetention(5, False)) == policies_for(
        config
    )


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(("delete",), ["start offset", "keep_last_records"]), (("compact",), ["start offset"])],
)
def test_policies_for_custom_ones_replace_size_and_time(
    policy: tuple[str, ...], expected: list[str]
) -> None:
    """A log that is only compacted keeps the newest record of each key, also with custom ones."""
    found = policies_for(LogConfig(cleanup_policy=policy), [keep_last_records])
    assert expected == [name_of(each) for each in found]


# -- laws ------------------------------------------------------------------------------------------


def slow_size(log: LogFacts, limit: int) -> list[int]:
    """Return by trial the longest prefix of segments whose deletion leaves the limit."""
    best: Sequence[SegmentFacts] = ()
    for count in range(len(log.segments) + 1):
        left = sum(each.size_bytes for each in log.segments[count:])
        if left >= limit or not count:
            best = log.segments[:count]
    return [each.base_offset for each in best if each.base_offset < each.end_offset]


@given(logs(), st.integers(0, 400))
def test_size_deletes_the_longest_prefix_that_leaves_the_limit(log: LogFacts, limit: int) -> None:
    """Compared with a trial of every prefix."""
    assert slow_size(log, limit) == deleted_by(SizeRetention(limit), log)


@given(logs(), st.integers(0, 300), st.integers(0, 300), st.booleans())
def test_time_longer_retention_deletes_no_more(
    log: LogFacts, shorter: int, more: int, guard: bool
) -> None:
    """Monotone in the limit, and in the clock if the guard is off."""
    short = deleted_by(TimeRetention(shorter, guard), log)
    long = deleted_by(TimeRetention(shorter + more, guard), log)
    assert long == short[: len(long)]
    later = facts_of(log.segments, now_ms=log.now_ms + more)
    unguarded = TimeRetention(shorter, future_guard=False)
    before = deleted_by(unguarded, log)
    assert before == deleted_by(unguarded, later)[: len(before)]


@given(logs(), st.integers(0, 300), st.booleans())
def test_time_explanation_agrees_with_the_decision(
    log: LogFacts, retention_ms: int, guard: bool
) -> None:
    """The first kept segment is due later; deleted ones have no due time."""
    policy = TimeRetention(retention_ms, guard)
    gone = deleted_by(policy, log)
    for number, each in enumerate(log.segments[: len(gone) + 1]):
        due_ms = policy.explain(log, each).due_ms
        if number < len(gone):
            assert due_ms is None
        else:
            assert due_ms is not None
            assert due_ms > log.now_ms
