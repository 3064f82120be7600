"""Timestamps of callers: accepted types, and refusals that name the argument."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkalog import InvalidRecordError, LogManager, Record
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.bytes_column import BytesColumn
from kafkalog._core.message_builder import MessageSetBuilder
from kafkalog._core.timestamps import to_timestamp_ms, to_timestamps_ms
from kafkalog.log.log import Log
from tests.support.logs import manual_log

WHEN = datetime(2026, 3, 4, 5, 6, 7, 890_999, tzinfo=timezone(timedelta(hours=2)))
WHEN_MS = 1_772_593_567_890
CELLS = BytesColumn(b"a", np.array([0, 1], np.int32))

# Each API that takes one timestamp for a record.
WAYS_IN: dict[str, Callable[[Log, Any], object]] = {
    "Record": lambda log, when: log.append([Record(value=b"v", timestamp_ms=when)]),
    "append": lambda log, when: log.append([Record(value=b"v")], timestamp_ms=when),
    "append_lists, one": lambda log, when: log.append_lists(None, [b"v"], timestamps=when),
    "append_lists, each": lambda log, when: log.append_lists(None, [b"v"], timestamps=[when]),
    "append_columns, one": lambda log, when: log.append_columns(None, [b"v"], timestamps=when),
    "append_columns, each": lambda log, when: log.append_columns(None, CELLS, timestamps=[when]),
    "table": lambda log, when: log.append_columns(pa.table({"value": [b"v"]}), timestamps=when),
    "appender": lambda log, when: append_one(log, when),
    "BatchBuilder": lambda log, when: log.append_batches(built(BatchBuilder(), when)),
}


def append_one(log: Log, when: Any) -> None:
    """Append one record by an appender."""
    with log.appender() as appender:
        appender.append(None, b"v", when)


def built(builder: BatchBuilder, when: Any) -> bytes:
    """Return a batch of one record."""
    builder.append(None, b"v", when)
    return bytes(builder.finish())


REFUSED: list[tuple[Any, type[Exception]]] = [
    (1_700_000_000.5, TypeError),
    (1.7e12, TypeError),
    (np.float64(5), TypeError),
    (True, TypeError),
    (np.True_, TypeError),
    ("5", TypeError),
    (datetime(2026, 3, 4), ValueError),
    (datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), ValueError),
    (np.datetime64("2026-03-04"), TypeError),
    (np.timedelta64(5, "ms"), TypeError),
]


@pytest.mark.parametrize("name", WAYS_IN)
@pytest.mark.parametrize(("when", "error"), REFUSED, ids=[repr(each) for each, _ in REFUSED])
def test_timestamp_of_wrong_type_is_refused_by_every_append_api(
    tmp_path: Path, name: str, when: Any, error: type[Exception]
) -> None:
    """USE-2: seconds as a float were stored as January 1970, and retention deleted the record."""
    with manual_log(tmp_path / "t-0") as log:
        with pytest.raises(error, match="timestamp"):
            WAYS_IN[name](log, when)
        assert 0 == log.log_end_offset


@pytest.mark.parametrize("name", WAYS_IN)
@pytest.mark.parametrize(
    "when", [WHEN, WHEN_MS, np.int64(WHEN_MS), np.uint64(WHEN_MS)], ids=lambda each: repr(each)
)
def test_timestamp_datetime_or_integer_is_exact_in_every_append_api(
    tmp_path: Path, name: str, when: Any
) -> None:
    """USE-2: a datetime loses only what is below a millisecond; no float is used between."""
    with manual_log(tmp_path / "t-0", message_timestamp_after_max_ms=2**62) as log:
        WAYS_IN[name](log, when)
        assert [WHEN_MS] == [each.timestamp_ms for each in log.records()]
        assert int is type(next(iter(log.records())).timestamp_ms)


def test_producer_float_timestamp_is_refused(tmp_path: Path) -> None:
    """USE-2: a producer refuses the float, and sends the next record."""
    with LogManager([tmp_path]) as manager:
        manager.create_topic("t")
        with manager.producer() as producer:
            with pytest.raises(TypeError, match="timestamp_ms must be"):
                producer.send("t", value=b"v", timestamp_ms=1.5)  # type: ignore[arg-type]
            producer.send("t", value=b"w", timestamp_ms=WHEN_MS)
        assert [b"w"] == [each.value for each in manager.log("t").records()]


@pytest.mark.parametrize(
    "times",
    [
        [1.7e12],
        [5, 6.0],
        [True],
        np.array([1.5]),
        np.array([True]),
        np.array(["2026-03-04"], "datetime64[ns]"),
        [datetime(2026, 3, 4)],
    ],
    ids=repr,
)
def test_append_lists_one_wrong_timestamp_refuses_all(tmp_path: Path, times: Any) -> None:
    """USE-2: neither arrays nor lists are truncated; datetime64 has no time zone."""
    with manual_log(tmp_path / "t-0") as log:
        for append in (log.append_lists, log.append_columns):
            with pytest.raises((TypeError, ValueError), match="timestamps"):
                append([b"k"] * len(times), [b"v"] * len(times), timestamps=times)
        assert 0 == log.log_end_offset


def test_append_lists_mixed_integer_types_are_exact(tmp_path: Path) -> None:
    """Beyond 2^53 a float would lose digits. Narrow and unsigned arrays are accepted."""
    large = 2**53 + 1
    narrow: Any = np.int32(7)
    with manual_log(tmp_path / "t-0", message_timestamp_after_max_ms=2**62) as log:
        log.append_lists(None, [b"v"] * 3, timestamps=[narrow, WHEN, large])
        log.append_lists(None, [b"v"], timestamps=np.array([7], np.uint16))
        log.append_lists(None, [b"v"], timestamps=np.array([WHEN, 9], object)[:1])
        log.append_lists([], [], timestamps=[])
        times = [each.timestamp_ms for each in log.records()]
    assert [7, WHEN_MS, large, 7, WHEN_MS] == times


@pytest.mark.parametrize("when", [1.5, True, "5", datetime(2026, 3, 4)])
def test_lookup_wrong_timestamp_error_names_the_argument(tmp_path: Path, when: Any) -> None:
    """USE-2: every look-up by time does so."""
    with manual_log(tmp_path / "t-0") as log:
        log.append([Record(value=b"v", timestamp_ms=5)])
        with pytest.raises((TypeError, ValueError), match="timestamp_ms must"):
            log.offset_for_timestamp(when)
        with pytest.raises((TypeError, ValueError), match="timestamps must"):
            log.offsets_for_timestamps([when])
        with pytest.raises((TypeError, ValueError)):
            log.scan(filters=[("timestamp", ">=", when)])


def test_lookup_aware_datetime_finds_first_record_not_before_it(tmp_path: Path) -> None:
    """Rounded up: a record in the same millisecond may be before the datetime."""
    with manual_log(tmp_path / "t-0", message_timestamp_after_max_ms=2**62) as log:
        log.append_lists(None, [b"v"] * 3, timestamps=[WHEN_MS - 1, WHEN_MS, WHEN_MS + 1])
        found = log.offset_for_timestamp(WHEN)
        assert found is not None
        assert 2 == found.offset
        exact = WHEN.replace(microsecond=890_000)
        assert [2, 1, 0] == log.offsets_for_timestamps([WHEN, exact, 5]).tolist()


def test_to_timestamps_ms_two_dimensions_or_over_64_bits_is_refused() -> None:
    """Arrays have one dimension, and values have 64 bits."""
    with pytest.raises(ValueError, match="one dimension"):
        to_timestamps_ms(np.zeros((2, 2), np.int64))
    with pytest.raises(OverflowError):
        to_timestamps_ms(np.array([2**63], np.uint64))
    with pytest.raises(OverflowError):
        to_timestamp_ms(2**63)
    assert [] == to_timestamps_ms(np.array([])).tolist()


def test_message_builder_float_timestamp_is_refused() -> None:
    """USE-2: the old formats have the same check."""
    with pytest.raises(TypeError, match="timestamp_ms"):
        MessageSetBuilder(1).append(None, b"v", 1.5)  # type: ignore[arg-type]


def test_append_columns_table_without_values_is_refused(tmp_path: Path) -> None:
    """USE-6: a forgotten column deleted a table of a compacted topic."""
    keys = pa.array([b"a", b"b"])
    with manual_log(tmp_path / "t-0") as log:
        with pytest.raises(InvalidRecordError, match="values=None to write tombstones"):
            log.append_columns(pa.table({"key": keys}))
        for cells in (keys, [b"a", b"b"], CELLS):
            with pytest.raises(TypeError, match="values=None to write tombstones"):
                log.append_columns(cells)
        assert 0 == log.log_end_offset
        log.append_columns(pa.table({"key": keys}), None)
        log.append_columns(pa.table({"key": keys, "value": pa.nulls(2)}))
        log.append_columns(keys, None)
        assert [(b"a", None), (b"b", None)] * 3 == [(r.key, r.value) for r in log.records()]


def test_append_columns_naive_timestamps_are_refused(tmp_path: Path) -> None:
    """USE-6: filters of a scan refuse them too, since they may not be UTC."""
    naive = pa.array([datetime(2026, 3, 4)])
    with manual_log(tmp_path / "t-0", message_timestamp_after_max_ms=2**62) as log:
        with pytest.raises(InvalidRecordError, match="must have a time zone"):
            log.append_columns(pa.table({"value": [b"v"], "timestamp": naive}))
        assert 0 == log.log_end_offset
        aware = naive.cast(pa.timestamp("us", "UTC"))
        log.append_columns(pa.table({"value": [b"v"], "timestamp": aware}))
        assert [1_772_582_400_000] == [each.timestamp_ms for each in log.records()]


def test_append_columns_wrong_type_error_names_the_type(tmp_path: Path) -> None:
    """USE-8: the name of the type, not its letter in Arrow's C interface."""
    with manual_log(tmp_path / "t-0") as log:
        with pytest.raises(InvalidRecordError, match=r"value must be .* got int64"):
            log.append_columns(pa.table({"value": [5]}))
        with pytest.raises(InvalidRecordError, match=r"timestamp must be int64 .* got float64"):
            log.append_columns(pa.table({"value": [b"v"], "timestamp": [1.5]}))
