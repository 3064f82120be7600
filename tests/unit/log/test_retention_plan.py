"""Deleted segments and reasons to keep the rest: rules that hold for any policy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.log.retention import (
    AllOf,
    LogFacts,
    RetentionDecision,
    RetentionPolicy,
    SizeRetention,
    StartOffsetRetention,
    TimeRetention,
)
from kafkalog.log.retention_plan import RetentionPlan, explain_retention, plan_retention
from tests.support.retention_cases import NOW_MS, facts_of, logs, segment


def everything(log: LogFacts) -> RetentionDecision:
    """Return a decision to delete more than the log has."""
    return RetentionDecision(2**62, "everything")


def bases(plan: RetentionPlan) -> list[int]:
    """Return the base offsets of the deleted segments."""
    return [facts.base_offset for facts, _reason in plan.leaving]


def test_plan_applies_policies_in_order() -> None:
    """Size does not count what the start offset deletes; each deletion names its policy."""
    log = facts_of([segment(size=100)] * 4, log_start_offset=10)
    plan = plan_retention(log, [StartOffsetRetention(), SizeRetention(200), TimeRetention(5)])
    assert [0, 10] == bases(plan)
    assert ["start offset", "size"] == [reason.policy for _facts, reason in plan.leaving]
    assert "below the log start offset 10" == plan.leaving[0][1].text
    assert "200 bytes would be left" in plan.leaving[1][1].text
    assert (20, False) == (plan.log_start_offset, plan.rolls)


def test_plan_segment_above_the_limit_offset_stays() -> None:
    """A segment that reaches above the high watermark is kept, however old."""
    old = segment(time_ms=0)
    for limit, expected in ((0, []), (19, [0]), (20, [0, 10]), (29, [0, 10])):
        log = facts_of([old, old, old], limit_offset=limit)
        assert expected == bases(plan_retention(log, [TimeRetention(5)]))
        assert expected == bases(plan_retention(log, [everything]))


def test_plan_old_active_segment_is_deleted_and_rolled() -> None:
    """The log end stays, and the log starts there."""
    plan = plan_retention(facts_of([segment(time_ms=0)] * 2), [TimeRetention(5)])
    assert [0, 10] == bases(plan)
    assert (20, True) == (plan.log_start_offset, plan.rolls)


def test_plan_empty_active_segment_stays() -> None:
    """Its deletion would free nothing."""
    log = facts_of([segment(time_ms=0), segment(size=0, time_ms=-1, file_time_ms=0, records=0)])
    plan = plan_retention(log, [everything])
    assert [0] == bases(plan)
    assert not plan.rolls
    assert [] == bases(plan_retention(facts_of([log.segments[1]]), [everything, everything]))


def test_plan_log_start_within_the_first_segment_stays() -> None:
    """The log start never moves down, and does not move if nothing is deleted."""
    log = facts_of([segment()] * 2, log_start_offset=4)
    assert RetentionPlan((), 4, rolls=False) == plan_retention(log, [StartOffsetRetention()])
    assert RetentionPlan((), 4, rolls=False) == plan_retention(log, [])


def test_plan_keep_decision_deletes_nothing() -> None:
    """Not even an empty segment at offset 0: the bound -1 is below every offset."""
    log = facts_of([segment(size=0, records=0), segment()])
    assert [] == bases(plan_retention(log, [lambda log: RetentionDecision.keep("no")]))


@pytest.mark.parametrize("answer", [None, 5, (5, "reason")])
def test_plan_policy_with_wrong_return_type_raises(answer: Any) -> None:
    """The author of the policy gets the error before anything is deleted."""

    def mistaken(log: LogFacts) -> Any:
        return answer

    with pytest.raises(TypeError, match=r"policy mistaken must return a RetentionDecision, got"):
        plan_retention(facts_of([segment()]), [mistaken])
    with pytest.raises(TypeError, match="mistaken"):
        explain_retention(facts_of([segment()]), [mistaken])


def test_plan_policy_raises_error_is_passed_on() -> None:
    """The caller gets the policy's own error."""

    def failing(log: LogFacts) -> RetentionDecision:
        raise LookupError("no answer")

    with pytest.raises(LookupError, match="no answer"):
        plan_retention(facts_of([segment()]), [failing])


def test_explain_has_the_reasons_to_keep_each_segment() -> None:
    """Each policy, and the rules for all of them: the limit offset, and the order."""
    log = facts_of(
        [segment(time_ms=0), segment(time_ms=NOW_MS - 40), segment(time_ms=0)], limit_offset=20
    )
    explained = explain_retention(
        log, [StartOffsetRetention(), SizeRetention(-1), TimeRetention(100)]
    )
    assert log.segments == tuple(each.segment for each in explained)
    assert [True, False, False] == [each.is_due for each in explained]
    assert [["time"], ["start offset", "size", "time"]] == [
        [reason.policy for reason in each.reasons] for each in explained[:2]
    ]
    assert [None, NOW_MS + 61, None] == [each.due_ms for each in explained]
    assert ["limit", "order"] == [reason.policy for reason in explained[2].reasons[:2]]
    assert "reaches to offset 29, and only segments below 20" in explained[2].reasons[0].text
    assert "segment 10 before it stays" in explained[2].reasons[1].text


def test_explain_empty_active_segment_has_the_reason_active() -> None:
    """It has no records to delete."""
    (explained,) = explain_retention(facts_of([segment(size=0, records=0)]), [])
    assert ["active"] == [reason.policy for reason in explained.reasons]


POLICIES = st.recursive(
    st.one_of(
        st.just(StartOffsetRetention()),
        st.builds(SizeRetention, st.integers(-1, 300)),
        st.builds(TimeRetention, st.integers(-1, 300), st.booleans()),
        st.just(everything),
    ),
    lambda inner: st.builds(AllOf, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    max_leaves=4,
)


@given(logs(), st.lists(POLICIES, max_size=4))
def test_plan_keeps_the_rules_with_any_policies(
    log: LogFacts, policies: list[RetentionPolicy]
) -> None:
    """A prefix, within the limit, no empty active segment; a start that only rises."""
    plan = plan_retention(log, policies)
    gone = tuple(facts for facts, _reason in plan.leaving)
    assert log.segments[: len(gone)] == gone
    assert all(facts.end_offset <= log.limit_offset for facts in gone)
    assert not any(facts.is_active and not facts.size_bytes for facts in gone)
    assert plan.rolls == any(facts.is_active for facts in gone)
    assert log.log_start_offset <= plan.log_start_offset <= log.log_end_offset
    if not gone:
        assert log.log_start_offset == plan.log_start_offset
    elif len(gone) < len(log.segments):
        assert plan.log_start_offset >= log.segments[len(gone)].base_offset


@given(logs(), st.lists(POLICIES, max_size=3))
def test_explain_agrees_with_the_plan(log: LogFacts, policies: list[RetentionPolicy]) -> None:
    """Due segments are deleted, for the same reason; kept ones have a reason if a policy exists."""
    plan = plan_retention(log, policies)
    explained = explain_retention(log, policies)
    assert log.segments == tuple(each.segment for each in explained)
    due = [(each.segment, each.reasons[0]) for each in explained if each.is_due]
    assert list(plan.leaving) == due
    for each in explained:
        assert each.reasons or not policies


@given(logs(), st.lists(POLICIES, max_size=3))
def test_plan_second_pass_without_new_segment_deletes_nothing(
    log: LogFacts, policies: list[RetentionPolicy]
) -> None:
    """Each policy sees the segments that earlier ones left, so one pass is complete."""
    plan = plan_retention(log, policies)
    left = log.segments[len(plan.leaving) :]
    if not left or not all(isinstance(each, TimeRetention) for each in policies):
        return
    again = LogFacts(log.now_ms, plan.log_start_offset, log.log_end_offset, log.limit_offset, left)
    assert () == plan_retention(again, policies).leaving
