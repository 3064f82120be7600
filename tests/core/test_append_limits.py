"""Tests of `AppendLimits` over the whole range of timestamps."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.append_limits import AppendLimits
from tests.support.examples import examples

INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)
LONG = st.integers(0, 2**63 - 1) | st.integers(0, 5)


@settings(max_examples=examples(200))
@given(LONG, LONG, LONG, INT64, INT64, st.booleans(), st.booleans(), st.integers(0, 1))
def test_append_limits_decide_as_unbounded_integers(
    now_ms: int,
    before_ms: int,
    after_ms: int,
    lower: int,
    upper: int,
    is_key_required: bool,
    is_log_append_time: bool,
    nulls: int,
) -> None:
    """Timestamps and limits over the whole range of 64 bits, with negative timestamps."""
    limits = AppendLimits(
        batch_bytes=1,
        max_message_bytes=2,
        before_ms=before_ms,
        after_ms=after_ms,
        is_key_required=is_key_required,
        is_log_append_time=is_log_append_time,
    )
    is_out = now_ms - lower > before_ms or upper - now_ms > after_ms
    expected = (is_key_required and nulls > 0) or (
        not is_log_append_time and lower != -1 and is_out
    )
    assert expected == limits.has_invalid_record(now_ms, nulls, lower, upper)
