"""Start and end of a batch in each partition, and data losses."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog import Record
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import QuerySnapshot, find_loss, resolve_bounds, resolve_loss
from tests.support.manual_time import ManualClock
from tests.support.planned import snapshot_of

# Three partitions: complete, shortened by retention, with an open transaction at its end.
LOGS = [("a", 0, 0, 100), ("a", 1, 40, 100), ("b", 0, 0, 100)]


def bounds(
    options: dict[str, str], visible: list[int] | None = None
) -> tuple[list[int], list[int]]:
    """Return the resolved bounds of the three partitions."""
    snapshot = snapshot_of(LOGS, visible_ends=visible)
    found = resolve_bounds(snapshot, ReadOptions.parse({"path": "/data", **options}))
    return found.starts.tolist(), found.ends.tolist()


def refused(options: dict[str, str]) -> tuple[ErrorCode, str]:
    """Return code and message of the refused options."""
    with pytest.raises(KafkaLogSparkError) as caught:
        bounds(options)
    return caught.value.code, str(caught.value)


def test_bounds_absent_are_log_start_and_end() -> None:
    """Or the last stable offset as the end."""
    assert ([0, 40, 0], [100, 100, 100]) == bounds({})
    assert ([0, 40, 0], [100, 100, 7]) == bounds({}, visible=[100, 100, 7])


def test_bounds_before_latest_are_at_least_the_log_start() -> None:
    """`latest-70` is the last seventy offsets, or all."""
    assert ([30, 40, 30], [100, 100, 100]) == bounds({"startingOffsets": "latest-70"})
    assert ([0, 40, 0], [90, 90, 90]) == bounds({"endingOffsets": "latest-10"})


def test_bounds_json_must_name_every_partition() -> None:
    """Numbers, -2 and -1; a missing or unknown partition is refused."""
    text = '{"a": {"0": 5, "1": -2}, "b": {"0": 9}}'
    ends = '{"a": {"0": 50, "1": -1}, "b": {"0": 9}}'
    options = {"startingOffsets": text, "endingOffsets": ends}
    assert ([5, 40, 9], [50, 100, 9]) == bounds(options)
    code, message = refused({"startingOffsets": '{"a": {"0": 5, "7": 1}}'})
    assert ErrorCode.OFFSET_INVALID == code
    assert "omits a-1, b-0 and names a-7, which is not read" in message


def test_bounds_partition_left_out_by_a_filter_may_be_listed() -> None:
    """A filter must not make options invalid."""
    snapshot = snapshot_of(LOGS[:1], left_out=[("a", 1)])
    options = ReadOptions.parse({"path": "/d", "startingOffsets": '{"a": {"0": 5, "1": 6}}'})
    assert [5] == resolve_bounds(snapshot, options).starts.tolist()


def test_bounds_start_above_end_is_refused() -> None:
    """An end below the log start is an empty read."""
    every = '{"a": {"0": %d, "1": %d}, "b": {"0": %d}}'
    options = {"startingOffsets": every % (60, 60, 60), "endingOffsets": every % (50, 70, 70)}
    code, message = refused(options)
    assert ErrorCode.OFFSET_INVALID == code
    assert "a-0: startingOffsets comes to 60, which is above 50" in message
    assert ([0, 40, 0], [10, 40, 10]) == bounds({"endingOffsets": every % (10, 10, 10)})


def test_bounds_above_the_log_end_are_out_of_range() -> None:
    """With `failOnDataLoss=false` they are reduced to the log end."""
    every = '{"a": {"0": %d, "1": 100}, "b": {"0": 100}}'
    code, message = refused({"endingOffsets": every % 101})
    assert ErrorCode.OFFSET_OUT_OF_RANGE == code
    assert "a-0: offsets 0 to 101 were requested; the log ends at 100" in message
    lenient = {"failOnDataLoss": "false"}
    assert ([0, 40, 0], [100] * 3) == bounds({"endingOffsets": every % 101, **lenient})
    options = {"startingOffsets": every % 150, "endingOffsets": every % 200, **lenient}
    assert ([100] * 3, [100] * 3) == bounds(options)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("earliest", ([0, 40, 0], [100] * 3)), ("latest", ([0, 100, 0], [100] * 3))],
)
def test_bounds_below_the_log_start_are_a_data_loss(
    rule: str, expected: tuple[list[int], list[int]]
) -> None:
    """Retention has deleted named records."""
    options = {"startingOffsets": '{"a": {"0": 0, "1": 39}, "b": {"0": 0}}'}
    code, message = refused(options)
    assert ErrorCode.DATA_LOSS == code
    assert "a-1: offsets from 39 on, up to 40, are gone: the log begins at 40 now" in message
    assert expected == bounds({**options, "onDataLoss": rule})


def test_bounds_by_time_are_looked_up_in_the_log(tmp_path: Path) -> None:
    """First record at or after the time; for none, an error or the end by the strategy."""
    directory = tmp_path / "a-0"
    with kafkalog.open_log(directory) as log:
        for time in range(1000, 2000, 100):
            log.append([Record(value=b"x", timestamp_ms=time)])
    clock = ManualClock(now_ms=2_000)

    def bounds_at(**settings: str) -> tuple[list[int], list[int]]:
        options = ReadOptions.parse({"path": str(directory), **settings})
        found = resolve_bounds(QuerySnapshot.take(options), options, clock=clock)
        return found.starts.tolist(), found.ends.tolist()

    assert ([3], [7]) == bounds_at(startingTimestamp="1201", endingTimestamp="1700")
    assert ([8], [10]) == bounds_at(startingTimestamp="-200ms", endingTimestamp="5000")
    times = '{"a": {"0": 1500}}'
    assert ([5], [10]) == bounds_at(startingOffsetsByTimestamp=times)
    assert ([0], [5]) == bounds_at(endingOffsetsByTimestamp=times)
    with pytest.raises(KafkaLogSparkError, match=r"OFFSET_OUT_OF_RANGE.*no record is as late"):
        bounds_at(startingTimestamp="9999")
    late = {"startingTimestamp": "9999", "startingOffsetsByTimestampStrategy": "latest"}
    assert ([10], [10]) == bounds_at(**late)
    with pytest.raises(KafkaLogSparkError, match=r"OFFSET_INVALID.*comes to 9, which is above 2"):
        bounds_at(startingTimestamp="1900", endingTimestamp="1200")


OFFSETS = st.integers(0, 60)


@given(OFFSETS, st.none() | OFFSETS, OFFSETS, OFFSETS)
def test_loss_is_the_planned_offsets_outside_the_log(
    start: int, end: int | None, log_start: int, length: int
) -> None:
    """Planned offsets within the log are no loss."""
    log_end = log_start + length
    loss = find_loss(start, end, log_start_offset=log_start, log_end_offset=log_end)
    if end is None:
        # Open end: the loss is before the log start, or the start is above the log end.
        is_lost = start < log_start or start > log_end
    else:
        offsets = set(range(start, end)) | ({start - 1} if start > 0 and start >= end else set())
        is_lost = bool(offsets & set(range(log_start))) and start < end
        is_lost = is_lost or max(start, end) > log_end
    assert is_lost == (loss is not None)


def test_loss_of_another_topic_is_the_whole_range() -> None:
    """Offsets of a new topic with the same name have another meaning."""
    loss = find_loss(5, 9, log_start_offset=0, log_end_offset=50, same_topic=False)
    assert loss is not None
    assert ("another topic", 5, 9) == (loss.cause, loss.first, loss.end)
    assert (0, 50) == (resolve_loss(loss, "earliest", "a", 0), resolve_loss(loss, "latest", "a", 0))
    with pytest.raises(KafkaLogSparkError, match="the topic was deleted and created again"):
        resolve_loss(loss, "fail", "a", 0)


@pytest.mark.parametrize(
    ("start", "log_range", "earliest"), [(3, (10, 50), 10), (60, (10, 50), 50)]
)
def test_loss_resolved_to_earliest_reads_nothing_twice(
    start: int, log_range: tuple[int, int], earliest: int
) -> None:
    """After the deleted records, or at the end of a truncated log."""
    log_start, log_end = log_range
    loss = find_loss(start, None, log_start_offset=log_start, log_end_offset=log_end)
    assert loss is not None
    assert earliest == resolve_loss(loss, "earliest", "a", 0)
    assert log_end == resolve_loss(loss, "latest", "a", 0)
