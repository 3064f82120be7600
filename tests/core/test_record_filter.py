"""Tests of the kernels that write retained records: bounds, refusals, odd encodings.

Their output is compared with the reference and real brokers in `tests/unit/cleaner` and
`tests/golden_directories/test_cleaned.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kafkalog._core import record_filter
from kafkalog._core.batch import parse_header
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.record import Record, decode_records
from kafkalog._core.record_filter import (
    COPY,
    DROP,
    EMPTY,
    REWRITE,
    count_flags,
    max_output_bytes,
    retained_records,
    wrap_retained,
    write_retained,
)
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from tests.support import reference
from tests.support.buffers import exact
from tests.support.reference_messages import Message, encode_message


def batch(*timestamps: int, base_offset: int = 0, **header: Any) -> bytes:
    """Return a batch with a record for each time."""
    builder = BatchBuilder()
    for number, timestamp in enumerate(timestamps):
        headers = [("h", b"%d" % number)] * (number % 3)
        builder.append(
            b"key%d" % number, None if number % 4 == 3 else b"v" * number, timestamp, headers
        )
    return bytes(builder.finish(base_offset=base_offset, **header))


def decoded(data: bytes) -> tuple[RecordColumns, NDArray[np.int64]]:
    """Return the records of uncompressed batches, and the first row of each and the end."""
    columns = RecordColumns(1000)
    rows, position = [0], 0
    while position < len(data):
        _, _, position, status = decode_run(
            data, position, columns, end=position + parse_header(data, position).size_bytes
        )
        assert 0 == status
        rows.append(len(columns))
    return columns, np.array(rows, np.int64)


def written(
    data: bytes, actions: list[int], keep: list[bool], horizons: list[int | None] | None = None
) -> bytes:
    """Return the written batches."""
    columns, first_rows = decoded(data)
    horizons = horizons or [None] * len(actions)
    room = bytearray(max_output_bytes(columns, len(data)))
    size = write_retained(
        exact(data),
        0,
        np.array(actions, np.uint8),
        first_rows,
        np.array([horizon is not None for horizon in horizons], np.uint8),
        np.array([horizon or 0 for horizon in horizons], np.int64),
        columns,
        np.array(keep, np.uint8),
        room,
    )
    return bytes(room[:size])


def records_of(data: bytes) -> list[Record]:
    """Return the records of one batch."""
    return decode_records(data, parse_header(data), 61, len(data))


TIMES = st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=8)


@given(times=TIMES, flags=st.data(), horizon=st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)))
def test_rewritten_records_are_the_retained_ones(
    times: list[int], flags: st.DataObject, horizon: int | None
) -> None:
    """Any times and horizon, also near the ends of 64 bits: the records are unchanged."""
    source = reference.encode_batch(
        reference.Header(
            record_count=len(times), last_offset_delta=len(times) - 1, base_timestamp=7
        ),
        b"".join(_record(number, time - 7) for number, time in enumerate(times)),
    )
    keep = flags.draw(st.lists(st.booleans(), min_size=len(times), max_size=len(times)).filter(any))
    result = written(source, [REWRITE], keep, [horizon])
    kept = [record for record, stays in zip(records_of(source), keep, strict=True) if stays]
    assert kept == records_of(result)
    header = parse_header(result)
    assert len(kept) == header.record_count
    assert (kept[0].timestamp_ms if horizon is None else horizon) == header.base_timestamp
    assert max(-1, *(record.timestamp_ms for record in kept)) == header.max_timestamp
    assert "OK" == reference.check_batch(result)


def _record(number: int, delta: int) -> bytes:
    """Return the bytes of a record, whose key is its number."""
    body = b"\0" + _varlong(delta) + _varlong(number) + b"\x02%d" % number + b"\x01\0"
    return _varlong(len(body)) + body


def _varlong(value: int) -> bytes:
    code = value << 1 if value >= 0 else (-value << 1) - 1
    groups = b""
    while code >= 0x80:
        groups += bytes([code & 0x7F | 0x80])
        code >>= 7
    return groups + bytes([code])


def test_actions_of_a_run_are_done_in_order() -> None:
    """Dropped, copied, emptied and rewritten batches next to each other, and a message."""
    message = encode_message(Message(8, 1, 0, 5, b"k", b"v"))
    parts = [
        batch(1, 2, 3, base_offset=0),
        batch(4, 5, base_offset=3, producer_id=9, producer_epoch=2, base_sequence=4),
        batch(6, 7, base_offset=5),
        batch(9, base_offset=7),
        message,
    ]
    keep = [True, False, True, False, False, True, True, True, True]
    result = written(b"".join(parts), [REWRITE, EMPTY, COPY, DROP, COPY], keep)
    first = parse_header(result)
    second = parse_header(result, first.size_bytes)
    assert [(0, 1), (2, 3)] == [
        (record.offset, record.timestamp_ms) for record in records_of(result[: first.size_bytes])
    ]
    assert (61, 3, 4, 9, 2, 4, 0, -1, 5) == (
        second.size_bytes,
        second.base_offset,
        second.last_offset,
        second.producer_id,
        second.producer_epoch,
        second.base_sequence,
        second.record_count,
        second.base_timestamp,
        second.max_timestamp,
    )
    assert parts[2] + message == result[first.size_bytes + 61 :]


def test_batch_rewritten_with_all_records_and_their_base_is_unchanged() -> None:
    """The bytes equal those of a writer with the shortest encoding."""
    data = batch(100, 90, 110, base_offset=77)
    assert data == written(data, [REWRITE], [True] * 3)


def test_payload_of_a_compressed_batch_is_rewritten_and_wrapped() -> None:
    """In two steps, with the compression between them."""
    data = batch(5, 6, 7, base_offset=10)
    columns, _ = decoded(data)
    keep = np.array([0, 1, 1], np.uint8)
    payload, base_timestamp, max_timestamp, count = retained_records(
        exact(data), 61, len(data), columns, keep, 0, 3, None
    )
    assert (6, 7, 2) == (base_timestamp, max_timestamp, count)
    result = wrap_retained(data, payload, 0, base_timestamp, max_timestamp, count, False)
    assert written(data, [REWRITE], [False, True, True]) == bytes(result)
    emptied = wrap_retained(data, b"", 0, -1, -1, 0, False)
    assert written(data, [EMPTY], [False] * 3) == bytes(emptied)


@pytest.mark.parametrize("action", [REWRITE, EMPTY])
def test_message_of_an_old_format_is_not_rewritten(action: int) -> None:
    """Old formats have no batch header to keep."""
    data = encode_message(Message(8, 1, 0, 5, b"k", b"v"))
    with pytest.raises(InvalidRecordError, match="old message format"):
        written(data, [action], [True])
    with pytest.raises(InvalidRecordError, match="old message format"):
        wrap_retained(data, b"", 0, 0, 0, 0, False)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("headers_position", 10**9),
        ("headers_position", 0),
        ("headers_position", -5),
        ("headers_size", 10**6),
        ("headers_size", -(10**6)),
    ],
)
def test_columns_of_other_bytes_are_refused(column: str, value: int) -> None:
    """For any columns, nothing outside the bytes is read."""
    data = batch(5, 6, 7)
    for row in range(3):
        columns, first_rows = decoded(data)
        getattr(columns, column)[row] = value
        keep = np.ones(3, np.uint8)
        one = np.array([REWRITE], np.uint8)
        nothing = np.zeros(1, np.uint8), np.zeros(1, np.int64)
        with pytest.raises(CorruptRecordError):
            write_retained(
                exact(data), 0, one, first_rows, *nothing, columns, keep, bytearray(1000)
            )
        with pytest.raises(CorruptRecordError):
            retained_records(exact(data), 61, len(data), columns, keep, 0, 3, None)


def test_mismatched_arguments_are_refused() -> None:
    """Counts of batches, rows and flags differ."""
    data = batch(5, 6, 7)
    columns, first_rows = decoded(data)
    keep, short = np.ones(3, np.uint8), np.ones(2, np.uint8)
    one, nothing = np.array([REWRITE], np.uint8), (np.zeros(1, np.uint8), np.zeros(1, np.int64))
    many, room = np.ones(9, np.uint8), bytearray(1000)
    with pytest.raises(ValueError, match="for 1 actions, first_rows must be 2"):
        write_retained(data, 0, one, first_rows[:1], *nothing, columns, keep, room)
    with pytest.raises(IndexError, match="rows 0 to 3 are not among 3 with 2 flags"):
        write_retained(data, 0, one, first_rows, *nothing, columns, short, room)
    with pytest.raises(IndexError, match="rows 0 to 4 are not among 3"):
        write_retained(data, 0, one, np.array([0, 4]), *nothing, columns, many, room)
    with pytest.raises(IndexError, match="rows 0 to 3"):
        retained_records(data, 61, len(data), columns, short, 0, 3, None)
    for start, end in ((999, 999), (61, 999), (61, 60), (-1, 5)):
        with pytest.raises(IndexError, match=f"records from {start} to {end}"):
            retained_records(data, start, end, columns, keep, 0, 3, None)
    with pytest.raises(CorruptRecordError):
        write_retained(data[:-1], 0, one, first_rows, *nothing, columns, keep, room)
    none = np.zeros(0, np.uint8), np.zeros(1, np.int64), np.zeros(0, np.uint8)
    assert 0 == write_retained(b"", 0, *none, np.zeros(0, np.int64), columns, keep, room)


@pytest.mark.parametrize("action", [COPY, EMPTY, REWRITE])
def test_output_too_small_is_refused(action: int) -> None:
    """Every smaller size is refused, and nothing is written after the end of the output."""
    data = batch(5, 6, 7)
    columns, first_rows = decoded(data)
    keep = np.array([1, 0, 1], np.uint8)
    rest = np.zeros(1, np.uint8), np.zeros(1, np.int64), columns, keep
    actions = np.array([action], np.uint8)
    enough = max_output_bytes(columns, len(data))
    size = write_retained(data, 0, actions, first_rows, *rest, bytearray(enough))
    for room in range(0, size, 3):
        with pytest.raises(InvalidRecordError, match="buffer is full"):
            write_retained(data, 0, actions, first_rows, *rest, exact(bytes(room)))


@given(sizes=st.lists(st.integers(0, 9), max_size=6), data=st.data())
def test_flags_are_counted_per_batch(sizes: list[int], data: st.DataObject) -> None:
    """Also for batches without rows; rows outside the batches do not count."""
    ends = np.cumsum([data.draw(st.integers(0, 3)), *sizes], dtype=np.int64)
    flags = data.draw(st.lists(st.integers(0, 1), min_size=int(ends[-1]), max_size=60))
    counts = np.full(len(sizes), -1, np.int64)
    count_flags(exact_flags(flags), ends, counts)
    expected = [sum(flags[int(ends[i]) : int(ends[i + 1])]) for i in range(len(sizes))]
    assert expected == counts.tolist()


@pytest.mark.parametrize(
    ("ends", "room", "error"),
    [
        ([0, 5], 1, IndexError),
        ([2, 1, 4], 2, IndexError),
        ([-1, 2], 1, IndexError),
        ([0, 4], 2, ValueError),
        ([], 0, ValueError),
    ],
)
def test_flags_of_rows_out_of_range_are_refused(
    ends: list[int], room: int, error: type[Exception]
) -> None:
    """Nothing is read after the flags."""
    with pytest.raises(error):
        count_flags(exact_flags([1] * 4), np.array(ends, np.int64), np.empty(room, np.int64))


def exact_flags(flags: list[int]) -> NDArray[np.uint8]:
    """Return flags in a block of exact size."""
    return np.frombuffer(memoryview(exact(bytes(flags))), np.uint8)


def test_judge_batches_all_cases_follow_the_rule() -> None:
    """A horizon is set once, only if records remain; a copied batch is unchanged."""
    cases = [
        (kept, starts, ends, has)
        for kept in (0, 1, 2)
        for starts in (0, 1)
        for ends in (0, 1)
        for has in (0, 1)
    ]
    kept, starts, ends, has = (np.array(column) for column in zip(*cases, strict=True))
    has_horizon, horizons = has.astype(np.uint8), np.full(len(cases), 7, np.int64)
    actions = np.empty(len(cases), np.uint8)
    count = record_filter.judge_batches(
        kept.astype(np.int64),
        np.full(len(cases), 2, np.int64),
        starts.astype(np.uint8),
        ends.astype(np.uint8),
        has_horizon,
        horizons,
        actions,
        99,
    )
    is_set = (kept > 0) & (starts == 1) & (has == 0)
    empty = np.where(ends == 1, record_filter.EMPTY, record_filter.DROP)
    kept_all = np.where((kept == 2) & ~is_set, record_filter.COPY, record_filter.REWRITE)
    assert np.count_nonzero(is_set) == count
    assert np.where(kept == 0, empty, kept_all).tolist() == actions.tolist()
    assert np.where(is_set, 99, 7).tolist() == horizons.tolist()
    assert (is_set | (has == 1)).astype(np.uint8).tolist() == has_horizon.tolist()


def test_judge_batches_columns_of_other_lengths_are_refused() -> None:
    """Each column must have one row per batch."""
    numbers, flags = np.zeros(2, np.int64), np.zeros(2, np.uint8)
    with pytest.raises(ValueError, match="columns must have 1 batches, got 2"):
        record_filter.judge_batches(
            numbers, numbers, flags, flags, flags, numbers, np.zeros(1, np.uint8), 0
        )
