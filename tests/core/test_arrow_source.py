"""Tests of Arrow's C interface as input: equal to single records; corrupt structures raise."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.arrow_source import ArrowSource, arrow_column, arrow_headers
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.bytes_column import BytesColumn
from kafkalog._core.headers_column import HeadersColumn
from kafkalog.errors import InvalidRecordError, RecordTooLargeError
from tests.support.arrow_c import (
    Array,
    Exported,
    Stream,
    binary,
    bitmap,
    int64,
    listed,
    struct,
    views,
)
from tests.support.buffers import exact
from tests.support.examples import examples

Headers = list[tuple[bytes, bytes | None]]
Row = tuple[bytes | None, bytes | None, int | None, Headers | None]

CELL = st.none() | st.binary(max_size=40)
NAME = st.text("abcdef", max_size=5).map(str.encode)
ROW = st.tuples(
    CELL,
    CELL,
    st.none() | st.integers(0, 2**40),
    st.none() | st.lists(st.tuples(NAME, CELL), max_size=3),
)
KINDS = st.sampled_from([b"z", b"Z", b"u", b"U", b"vz"])
BEFORE: Row = (b"before", None, 7, [(b"x", b"y")])


def one_by_one(rows: Sequence[Row]) -> bytes:
    """Return the batch that the slow path builds."""
    builder = BatchBuilder()
    for key, value, timestamp, headers in rows:
        pairs = [(name.decode(), each) for name, each in headers or ()]
        builder.append(key, value, -1 if timestamp is None else timestamp, pairs)
    return bytes(builder.finish())


def from_arrow(source: object, default_ms: int = 5) -> bytes:
    """Return the batch built from all rows of a source."""
    builder = BatchBuilder()
    for rows in ArrowSource(source):
        times = default_ms if rows.timestamps is None else rows.timestamps
        if len(rows):
            builder.extend_columns(rows.keys, rows.values, times, headers=rows.headers)
    return bytes(builder.finish())


def column(kind: bytes, cells: Sequence[bytes | None], name: bytes, offset: int) -> Array:
    """Return a column of any layout."""
    if kind == b"vz":
        return views(cells, name=name, offset=offset)
    return binary(cells, name=name, kind=kind, offset=offset)


def batch_of(
    rows: Sequence[Row], kinds: Sequence[bytes] = (b"z", b"z"), own: int = 0, shared: int = 0
) -> Array:
    """Return a record batch that begins `shared` rows late, and its columns `own` rows late."""
    late = [BEFORE] * (own + shared) + list(rows)
    children = [
        column(kinds[0], [row[0] for row in late], b"key", own),
        column(kinds[1], [row[1] for row in late], b"value", own),
        int64([row[2] for row in late], offset=own),
        listed([row[3] for row in late], kind=b"+L" if own else b"+l", offset=own),
    ]
    return struct(children, length=len(rows), offset=shared)


@given(
    st.lists(st.lists(ROW, max_size=12), min_size=1, max_size=3),
    st.tuples(KINDS, KINDS),
    st.integers(0, 9),
    st.integers(0, 9),
)
@settings(max_examples=examples(60))
def test_arrow_batch_equals_the_batch_of_records(
    chunks: list[list[Row]], kinds: tuple[bytes, bytes], own: int, shared: int
) -> None:
    """Every layout, in chunks and slices of slices; all structures are released."""
    stream = Stream([batch_of(rows, kinds, own, shared) for rows in chunks])
    rows = [row for chunk in chunks for row in chunk]
    if rows:
        assert one_by_one(rows) == from_arrow(stream)
    else:
        list(ArrowSource(stream))
    # The consumer releases only arrays that a stream has returned.
    assert ["array"] * len(chunks) == sorted(stream.released)[: len(chunks)]
    assert ["schema", "stream"] == sorted(stream.released)[len(chunks) :]


def test_arrow_array_outlives_its_source() -> None:
    """Each column keeps the memory that it points to alive."""
    exported = Exported(batch_of([(b"k", b"v" * 20, 9, [(b"h", b"x")])]))
    (rows,) = ArrowSource(exported)
    keys, values, headers, times = rows.keys, rows.values, rows.headers, rows.timestamps
    del rows
    gc.collect()
    assert ["schema"] == exported.released
    builder = BatchBuilder()
    assert times is not None
    builder.extend_columns(keys, values, times, headers=headers)
    assert one_by_one([(b"k", b"v" * 20, 9, [(b"h", b"x")])]) == bytes(builder.finish())
    del keys, values, headers
    gc.collect()
    assert ["schema", "array"] == exported.released


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (b"l", [5, None], [5, -1]),
        (b"tsm:UTC", [5, 6], [5, 6]),
        (b"tss:+01:00", [5, None], [5000, -1]),
        (b"tsu:UTC", [5999, -1], [5, -1]),
        (b"tsn:Europe/Berlin", [5_999_999, -1_000_001], [5, -2]),
    ],
)
def test_arrow_timestamps_of_any_unit_become_milliseconds(
    kind: bytes, values: list[int | None], expected: list[int]
) -> None:
    """They are rounded down; null means no timestamp."""
    count = len(values)
    table = struct([binary([b"k"] * count, name=b"key"), int64(values, kind=kind)], length=count)
    (rows,) = ArrowSource(Exported(table))
    assert rows.timestamps is not None
    assert expected == rows.timestamps.tolist()


def test_arrow_fixed_size_null_and_absent_columns_are_read() -> None:
    """Fixed-size keys, a column of nulls, no column, and the other columns of a scan."""
    cells = b"".join([b"before..", b"01234567", b"89abcdef"])
    children = [
        Array(b"w:8", 2, [None, cells], name=b"key", offset=1),
        Array(b"n", 2, [], name=b"value", null_count=2),
        Array(b"n", 2, [], name=b"headers", null_count=2),
        int64([4, 5], name=b"offset"),
    ]
    expected = one_by_one([(b"01234567", None, 5, None), (b"89abcdef", None, 5, None)])
    assert expected == from_arrow(Exported(struct(children, length=2)))
    alone = Exported(struct([binary([b"x", None], name=b"value")], length=2))
    assert one_by_one([(None, b"x", 5, None), (None, None, 5, None)]) == from_arrow(alone)
    width_0 = Array(b"w:0", 2, [b"\x02", None], name=b"key", null_count=1)
    assert one_by_one([(None, None, 5, None), (b"", None, 5, None)]) == from_arrow(
        Exported(struct([width_0], length=2))
    )


def test_arrow_single_columns_are_read() -> None:
    """Keys, values and headers as separate sources; a structure is not a column."""
    rows: list[Row] = [(b"k", b"v", 5, [(b"a", None)]), (None, b"", 5, None)]
    builder = BatchBuilder()
    late: list[Row] = [BEFORE, *rows]
    builder.extend_columns(
        arrow_column(Exported(binary([row[0] for row in late], offset=1))),
        arrow_column(Exported(views([row[1] for row in late], offset=1))),
        5,
        headers=arrow_headers(Exported(listed([row[3] for row in late], offset=1))),
    )
    assert one_by_one(rows) == bytes(builder.finish())
    assert arrow_column(Exported(batch_of(rows))) is None


# ------------------------------------------------------------------------------------- hostile


def _with(change: Callable[[Array], Any]) -> Array:
    """Return a record batch of two rows after a change."""
    made = batch_of([(b"key", b"v" * 30, 1, [(b"h", b"x")]), (None, b"w", 2, [])])
    change(made)
    return made


def _child(slot: int, **changes: Any) -> Callable[[Array], None]:
    def change(made: Array) -> None:
        for name, value in changes.items():
            setattr(made.children[slot], name, value)

    return change


def _whole(**changes: Any) -> Callable[[Array], None]:
    def change(made: Array) -> None:
        for name, value in changes.items():
            setattr(made, name, value)

    return change


def _buffer(slot: int, number: int, data: Any) -> Callable[[Array], None]:
    def change(made: Array) -> None:
        child = made.children[slot]
        assert child is not None
        child.buffers = [
            data if place == number else buffer for place, buffer in enumerate(child.buffers)
        ]

    return change


def _entries(**changes: Any) -> Callable[[Array], None]:
    def change(made: Array) -> None:
        headers = made.children[3]
        assert headers is not None
        for name, value in changes.items():
            setattr(headers.children[0], name, value)

    return change


def _numbers(*values: int, kind: Any = np.int32) -> bytes:
    return np.array(values, kind).tobytes()


LIES: dict[str, Callable[[Array], None]] = {
    "no format": _whole(format=None),
    "no structure": _whole(format=b"i"),
    "a column too few": _whole(n_children=3),
    "a column too many": _whole(n_children=5),
    "a type too few": _whole(n_schema_children=3),
    "columns below none": _whole(n_children=-1, n_schema_children=-1),
    "no columns where some are counted": _whole(no_children=True),
    "a missing column": _whole(children=[None, binary([b"v", b"w"], name=b"value")]),
    "no key and no value": _whole(children=[int64([1, 2])]),
    "two keys": _whole(children=[binary([b"v", b"w"], name=b"key")] * 2),
    "an unknown column": _whole(children=[binary([b"v", b"w"], name=b"keys")]),
    "a length below none": _whole(length=-1),
    "an impossible length": _whole(length=2**62),
    "an impossible offset": _whole(offset=2**62),
    "an offset below none": _whole(offset=-1),
    "more rows than the columns have": _whole(length=3),
    "an offset that the columns do not have": _whole(offset=1),
    "null rows": _whole(null_count=1, buffers=[b"\x01"]),
    "null rows that are not counted": _whole(null_count=-1, buffers=[b"\x01"]),
    "more nulls than rows": _whole(null_count=3),
    "nulls below none": _whole(null_count=-2),
    "nulls without a bitmap": _whole(null_count=1),
    "no buffers": _whole(n_buffers=0),
    "keys: a number": _child(0, format=b"i"),
    "keys: no format": _child(0, format=None),
    "keys: not ASCII": _child(0, format=b"\xff"),
    "keys: no width": _child(0, format=b"w:"),
    "keys: a huge width": _child(0, format=b"w:9999999999"),
    "keys: width and three buffers": _child(0, format=b"w:4"),
    "keys: two buffers": _child(0, n_buffers=2),
    "keys: no array of buffers": _child(0, no_buffers=True),
    "keys: two buffers of views": _child(0, format=b"vz", n_buffers=2),
    "keys: a child": _child(0, n_children=1),
    "keys: a dictionary": _child(0, is_dictionary=True),
    "keys: nulls without a bitmap": _buffer(0, 0, None),
    "keys: no offsets": _buffer(0, 1, None),
    "keys: no bytes": _buffer(0, 2, None),
    "keys: the last offset below none": _buffer(0, 1, _numbers(0, 3, -3)),
    "keys: offsets fall": _buffer(0, 1, _numbers(3, 0, 3)),
    "keys: an offset beyond the last": _buffer(0, 1, _numbers(0, 9, 3)),
    "keys: an offset below none": _buffer(0, 1, _numbers(-4, 3, 3)),
    "keys: offsets not aligned": _child(0, misaligned=1),
    "values: null type with buffers": _child(1, format=b"n"),
    "timestamps: binary": _child(2, format=b"z"),
    "timestamps: no unit": _child(2, format=b"ts"),
    "timestamps: three buffers": _child(2, n_buffers=3),
    "timestamps: missing": _buffer(2, 1, None),
    "timestamps: seconds beyond milliseconds": _whole(
        children=[binary([b"k", b"k"], name=b"key"), int64([2**60, 1], kind=b"tss:")]
    ),
    "headers: no list": _child(3, format=b"z"),
    "headers: fixed-size list": _child(3, format=b"+w:1"),
    "headers: no offsets": _buffer(3, 1, None),
    "headers: offsets fall": _buffer(3, 1, _numbers(1, 0, 1)),
    "headers: offsets begin below none": _buffer(3, 1, _numbers(-1, 0, 1)),
    "headers: an offset beyond the last": _buffer(3, 1, _numbers(0, 9, 1)),
    "headers: more than there are": _buffer(3, 1, _numbers(0, 1, 2)),
    "headers: offsets not aligned": _child(3, misaligned=2),
    "headers: no entries": _child(3, no_children=True),
    "headers: two lists in one": _child(3, n_children=2),
    "headers: entries are no structures": _entries(format=b"z"),
    "headers: an entry is null": _entries(null_count=1, buffers=[b"\x00"]),
    "headers: one field": _entries(n_children=1),
    "headers: a missing field": _entries(children=[binary([b"h"]), None]),
    "headers: fewer keys than entries": _entries(children=[binary([]), binary([b"x"])]),
    "headers: fewer values than entries": _entries(children=[binary([b"h"]), binary([])]),
    "headers: a null key": _entries(children=[binary([None]), binary([b"x"])]),
    "headers: keys are numbers": _entries(children=[int64([1]), binary([b"x"])]),
}


@pytest.mark.parametrize("lie", LIES)
def test_arrow_corrupt_structure_raises_and_is_released(lie: str) -> None:
    """A typed error is raised before a byte outside the buffers is read."""
    exported = Exported(_with(LIES[lie]))
    with pytest.raises((InvalidRecordError, ValueError)):
        from_arrow(exported)
    gc.collect()
    assert ["array", "schema"] == sorted(exported.released)


def _views(*views_of: Sequence[int], sizes: bytes | None, buffers: Sequence[Any] = ()) -> Array:
    data = np.array(views_of, np.int32).tobytes()
    count = len(views_of)
    cells = Array(b"vz", count, [None, data, *buffers, sizes], name=b"value")
    return struct([cells], length=count)


@pytest.mark.parametrize(
    "made",
    [
        _views((-1, 0, 0, 0), sizes=b""),
        _views((13, 0, 0, 0), sizes=None),
        _views((13, 0, 0, 0), sizes=_numbers(12, kind=np.int64), buffers=[b"x" * 12]),
        _views((13, 0, 1, 0), sizes=_numbers(13, kind=np.int64), buffers=[b"x" * 13]),
        _views((13, 0, -1, 0), sizes=_numbers(13, kind=np.int64), buffers=[b"x" * 13]),
        _views((13, 0, 0, 1), sizes=_numbers(13, kind=np.int64), buffers=[b"x" * 13]),
        _views((13, 0, 0, -1), sizes=_numbers(14, kind=np.int64), buffers=[b"x" * 14]),
        _views((2**31 - 1, 0, 0, 2**31 - 1), sizes=_numbers(13, kind=np.int64), buffers=[b"x"]),
        _views((13, 0, 0, 0), sizes=_numbers(-13, kind=np.int64), buffers=[b"x" * 13]),
        _views((13, 0, 0, 0), sizes=_numbers(13, kind=np.int64), buffers=[None]),
        _views((13, 0, 0, 0), sizes=None, buffers=[b"x" * 13]),
        struct([Array(b"vz", 1, [None, None, b""], name=b"value")], length=1),
    ],
)
def test_arrow_views_outside_their_buffers_raise(made: Array) -> None:
    """The view names a byte outside its buffer, or a buffer that does not exist."""
    with pytest.raises((InvalidRecordError, ValueError)):
        from_arrow(Exported(made))


def test_arrow_released_structures_raise() -> None:
    """Their contents are undefined; objects of other kinds raise as well."""
    exported = Exported(batch_of([(b"k", b"v", 1, None)]), is_released=True)
    with pytest.raises(InvalidRecordError, match="consumed before"):
        ArrowSource(exported)
    stream = Stream([batch_of([(b"k", b"v", 1, None)])])
    capsule = stream.__arrow_c_stream__()

    class Twice:
        def __arrow_c_stream__(self) -> object:
            return capsule

    list(ArrowSource(Twice()))
    with pytest.raises(InvalidRecordError, match="consumed before"):
        ArrowSource(Twice())
    with pytest.raises(TypeError, match="a list exports no Arrow"):
        ArrowSource([])

    class Wrong:
        def __arrow_c_array__(self) -> tuple[object, object]:
            return capsule, capsule

    with pytest.raises(ValueError, match="PyCapsule"):
        ArrowSource(Wrong())


@pytest.mark.parametrize("message", [b"the disk is gone", None])
def test_arrow_stream_error_is_raised_with_its_message(message: bytes | None) -> None:
    """Arrays returned before the error are released, and so is the stream."""
    stream = Stream([batch_of([(b"k", b"v", 1, None)])], error=message, code=5)
    with pytest.raises(OSError, match="the disk is gone" if message else "no reason") as caught:
        from_arrow(stream)
    assert 5 == caught.value.errno
    del caught
    gc.collect()
    assert ["array", "schema", "stream"] == sorted(stream.released)
    with pytest.raises(OSError, match="failed"):
        ArrowSource(Stream([], error=message, code=7))
    with pytest.raises(InvalidRecordError, match="no schema"):
        ArrowSource(Stream([]))


# ---------------------------------------------------------------- headers, next to NumPy arrays


def headers_column(rows: Sequence[Headers | None], kind: Any = np.int32) -> HeadersColumn:
    """Return headers in arrays of exact size."""
    entries = [entry for row in rows for entry in row or ()]
    ends = np.cumsum([0, *(len(row or ()) for row in rows)]).astype(kind)
    columns = []
    for cells in ([key for key, _ in entries], [value for _, value in entries]):
        offsets = np.cumsum([0, *(len(cell or b"") for cell in cells)]).astype(np.int32)
        valid = bitmap([cell is not None for cell in cells])
        data = exact(b"".join(cell or b"" for cell in cells))
        columns.append(BytesColumn(data, offsets, valid))
    valid = bitmap([row is not None for row in rows])
    keys, values = columns
    return HeadersColumn(ends, keys, values, valid)


@given(st.lists(ROW, min_size=1, max_size=12), st.sampled_from([np.int32, np.int64]))
@settings(max_examples=examples(30))
def test_headers_column_batch_equals_the_batch_of_records(rows: list[Row], kind: Any) -> None:
    """The offsets have 32 or 64 bits."""
    builder = BatchBuilder(capacity=64)
    offsets = np.cumsum([0, *(len(row[0] or b"") for row in rows)]).astype(np.int64)
    valid = bitmap([row[0] is not None for row in rows])
    keys = BytesColumn(exact(b"".join(row[0] or b"" for row in rows)), offsets, valid)
    headers = headers_column([row[3] for row in rows], kind)
    assert len(rows) == builder.extend_columns(keys, None, 9, headers=headers)
    assert one_by_one([(row[0], None, 9, row[3]) for row in rows]) == bytes(builder.finish())


def test_headers_column_with_mismatched_parts_raises() -> None:
    """Columns of different lengths, offsets outside the data, null keys, short bitmaps."""
    one, none = BytesColumn(b"h", np.array([0, 1], np.int32)), BytesColumn(b"", np.zeros(1, "i4"))
    null = BytesColumn(b"", np.zeros(2, np.int32), b"\x00")
    with pytest.raises(ValueError, match="as many as header values, 0, got 1"):
        HeadersColumn(np.array([0, 1], np.int32), one, none)
    with pytest.raises(ValueError, match="validity"):
        HeadersColumn(np.zeros(20, np.int32), one, one, b"\x00")
    with pytest.raises(TypeError, match="made once"):
        HeadersColumn(np.zeros(2, np.int32), one, one).__init__(  # type: ignore[misc]
            np.zeros(2, np.int32), one, one
        )
    builder = BatchBuilder()
    for ends in ([0, 2], [1, 0], [-1, 1]):
        with pytest.raises(ValueError, match="offsets of the headers"):
            builder.extend_columns(
                one, one, headers=HeadersColumn(np.array(ends, np.int32), one, one)
            )
    with pytest.raises(InvalidRecordError, match="a header key must be text, got null in slot 0"):
        builder.extend_columns(
            one, one, headers=HeadersColumn(np.array([0, 1], np.int32), null, one)
        )
    with pytest.raises(ValueError, match="slots must be in 0 to 1, got"):
        builder.extend_columns(
            keys := BytesColumn(b"", np.zeros(3, np.int32)),
            keys,
            stop=2,
            headers=HeadersColumn(np.array([0, 1], np.int32), one, one),
        )
    assert 0 == builder.count


def test_headers_column_larger_than_a_batch_raises() -> None:
    """The same mebibyte repeated until the size is above 32 bits."""
    large = BytesColumn(bytes(1 << 20), np.array([0, 1 << 20] * 1, np.int32))
    offsets = np.array([0, 1 << 20], np.int32)
    # Each cell is the whole buffer: offsets may repeat it only by views.
    view = np.array([(1 << 20, 0, 0, 0)] * 3000, np.int32).tobytes()
    cells = Array(
        b"vz", 3000, [None, view, bytes(1 << 20), np.array([1 << 20], np.int64).tobytes()]
    )
    column = arrow_column(Exported(cells))
    assert column is not None
    headers = HeadersColumn(np.array([0, 3000], np.int32), column, column)
    with pytest.raises(RecordTooLargeError):
        BatchBuilder().extend_columns(BytesColumn(bytes(1), offsets * 0), large, headers=headers)
