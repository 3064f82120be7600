"""Tests of runs of batches in one memory, compared with batches built one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.append_limits import AppendLimits
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.bytes_column import BytesColumn
from kafkalog._core.headers_column import HeadersColumn
from kafkalog._core.record import Record
from kafkalog._core.run_builder import RunBuilder, SpareBuilder, pack_batch, pack_uncompressed
from kafkalog.errors import InvalidRecordError
from kafkalog.records.codecs import Codec, compress
from tests.support.arrow_c import bitmap
from tests.support.buffers import exact
from tests.support.examples import examples

Cells = Sequence[bytes | None]
CELL = st.none() | st.binary(max_size=60)
ROWS = st.lists(st.tuples(CELL, CELL, st.integers(-1, 2**41)), min_size=1, max_size=30)


def column(cells: Cells) -> BytesColumn:
    """Return cells in blocks of exact size."""
    offsets = np.cumsum([0, *(len(cell or b"") for cell in cells)]).astype(np.int32)
    data = exact(b"".join(cell or b"" for cell in cells))
    return BytesColumn(data, offsets, bitmap([cell is not None for cell in cells]))


def batch_by_batch(
    rows: Sequence[tuple[bytes | None, bytes | None, int]], limit: int, append_time: int
) -> tuple[bytes, list[tuple[int, int, int, int, int]]]:
    """Return the batches built one by one and the metadata of each."""
    builder, data, facts, start = BatchBuilder(), b"", [], 0
    keys, values = [row[0] for row in rows], [row[1] for row in rows]
    times = np.array([row[2] for row in rows], np.int64)
    while start < len(rows):
        builder.reset()
        taken = builder.extend_lists(keys, values, times, start, limit)
        largest = builder.max_timestamp if append_time < 0 else append_time
        batch = bytes(
            builder.finish(
                base_offset=start,
                timestamp_type=int(append_time >= 0),
                max_timestamp=None if append_time < 0 else append_time,
            )
        )
        last = start + taken - 1
        facts.append((len(batch), start, last, largest, last if largest >= 0 else -1))
        data += batch
        start += taken
    return data, facts


@given(ROWS, st.sampled_from([61, 150, 400, 10**6]), st.sampled_from([-1, 77]))
@settings(max_examples=examples(40))
def test_run_equals_batch_by_batch(
    rows: list[tuple[bytes | None, bytes | None, int]], limit: int, append_time: int
) -> None:
    """Columns and records in one call, lists in several; the builder is reused."""
    expected = batch_by_batch(rows, limit, append_time)
    keys, values = [row[0] for row in rows], [row[1] for row in rows]
    times = np.array([row[2] for row in rows], np.int64)
    timed = [row[2] for row in rows if row[2] >= 0]
    builder = RunBuilder()
    for _ in range(2):
        builder.pack_columns(
            column(keys), column(values), times, len(rows), limit, None, append_time
        )
        assert len(rows) == builder.record_count
        assert keys.count(None) == builder.nulls
        assert (min(timed, default=-1), max(timed, default=-1)) == (
            builder.earliest,
            builder.latest,
        )
        run = builder.finish()
        assert expected == (bytes(run.data), list(run.batches))
        builder.reset()
        start = 0
        while start < len(rows):
            start += builder.extend_lists(keys, values, times, start, limit)
            builder.close_batch(append_time)
        run = builder.finish()
        assert expected == (bytes(run.data), list(run.batches))
        assert len(rows) == run.batches.end_offset == run.record_count
        builder.reset()
        records = [Record(key=key, value=value, timestamp_ms=time) for key, value, time in rows]
        builder.pack_records(tuple(records), -1, limit, append_time)
        run = builder.finish()
        assert expected == (bytes(run.data), list(run.batches))
        made = pack_uncompressed(
            SpareBuilder(),
            records,
            limits(batch_bytes=limit, is_log_append_time=append_time >= 0),
            77,
            -1,
        )
        assert made is not None
        assert expected == (bytes(made.data), list(made.batches))
        assert (len(rows), None if append_time < 0 else 77) == (
            made.record_count,
            made.log_append_time_ms,
        )
        builder.reset()


@given(ROWS, st.sampled_from([61, 400, 10**6]), st.sampled_from([-1, 77]), st.data())
@settings(max_examples=examples(30))
def test_compressed_run_equals_batch_by_batch(
    rows: list[tuple[bytes | None, bytes | None, int]],
    limit: int,
    append_time: int,
    data: st.DataObject,
) -> None:
    """Some batches get a codec, some stay plain; a dropped batch leaves no bytes."""
    keys, values = [row[0] for row in rows], [row[1] for row in rows]
    times = np.array([row[2] for row in rows], np.int64)
    builder, single, expected, start = RunBuilder(), BatchBuilder(), b"", 0
    for _ in range(2):
        builder.reset(compressed=True)
        builder.append(b"dropped", b"record")
        builder.drop_batch()
        expected, start = b"", 0
        while start < len(rows):
            single.reset()
            builder.extend_lists(keys, values, times, start, limit)
            taken = single.extend_lists(keys, values, times, start, limit)
            codec, payload = Codec.NONE, None
            if data.draw(st.booleans()):
                codec, payload = Codec.LZ4, compress(Codec.LZ4, builder.payload())
            expected += single.finish(
                base_offset=start,
                codec=codec,
                payload=payload,
                timestamp_type=int(append_time >= 0),
                max_timestamp=None if append_time < 0 else append_time,
            )
            builder.close_batch(append_time, codec, payload)
            start += taken
        run = builder.finish(rewriting="changed")
        assert (expected, "changed") == (bytes(run.data), run.rewriting)
        assert len(rows) == run.record_count == builder.record_count
        with pytest.raises(ValueError, match="was finished"):
            builder.append(b"k", b"v")


def test_codec_of_an_uncompressed_run_is_refused() -> None:
    """The records are already in the run."""
    builder = RunBuilder()
    builder.append(b"k", b"v")
    with pytest.raises(ValueError, match="compressed=True"):
        builder.payload()
    with pytest.raises(ValueError, match="compressed=True"):
        builder.close_batch(-1, 3, b"payload")
    with pytest.raises(InvalidRecordError, match="payload"):
        builder.close_batch(-1, 3)
    assert 70 == builder.close_batch()


def limits(**changes: Any) -> AppendLimits:
    """Return limits that allow everything, except for the changes."""
    usual: dict[str, Any] = {
        "batch_bytes": 10**6,
        "max_message_bytes": 10**6,
        "before_ms": 2**62,
        "after_ms": 2**62,
        "is_key_required": False,
        "is_log_append_time": False,
    }
    return AppendLimits(**(usual | changes))


def test_run_with_possibly_invalid_records_is_left_to_the_slow_path() -> None:
    """A batch over the limit, no key, a time out of range; the next run is valid."""
    records = [Record(value=bytes(size), timestamp_ms=1000) for size in (10, 90, 20)]
    size = 61 + 6 + 90 + 3
    for forbidden in (
        limits(batch_bytes=100, max_message_bytes=size - 1),
        limits(is_key_required=True),
        limits(before_ms=10),
    ):
        assert pack_uncompressed(SpareBuilder(), records, forbidden, 2000, -1) is None
        assert pack_uncompressed(SpareBuilder(), [], forbidden, 2000, -1) is not None
    run = pack_uncompressed(
        SpareBuilder(), records, limits(batch_bytes=100, max_message_bytes=size), 2000, -1
    )
    assert run is not None
    assert 3 == run.record_count == len(run.batches)
    with pytest.raises(InvalidRecordError):
        pack_uncompressed(SpareBuilder(), [records[0], Record(timestamp_ms=-7)], limits(), 2000, -1)
    run = pack_uncompressed(SpareBuilder(), records, limits(), 2000, -1)
    assert run is not None
    assert (3, 1) == (run.record_count, len(run.batches))


def test_finished_run_refuses_more_records() -> None:
    """The caller owns its memory; `reset` starts another run."""
    builder, one = RunBuilder(), column([b"a"])
    builder.pack_columns(one, one, 5, 1, 100)
    data = bytes(builder.finish().data)
    for call in (
        lambda: builder.finish(),
        lambda: builder.append(b"k", b"v"),
        lambda: builder.pack_columns(one, one, 5, 1, 100),
    ):
        with pytest.raises(ValueError, match="was finished"):
            call()
    builder.reset()
    builder.pack_columns(one, one, 5, 1, 100)
    assert data == bytes(builder.finish().data)


def test_run_of_large_batches_grows_and_stays_unchanged() -> None:
    """Memory moves while a batch is built; a finished run does not change."""
    values: Cells = [bytes([number]) * 70_000 for number in range(40)]
    builder = RunBuilder()
    builder.pack_columns(None, column(values), 5, 40, 200_000)
    run = builder.finish()
    first, facts = run.data, run.batches
    copy = bytes(first)
    builder.reset()
    builder.pack_columns(None, column(values[:3]), 5, 3, 100)
    assert copy == bytes(first)
    assert (20, 40) == (len(facts), sum(last - start + 1 for _, start, last, _, _ in facts))
    assert 3 == len(builder.finish().batches)


def test_run_with_headers_equals_a_single_batch() -> None:
    """The headers are encoded as in single batches."""
    headers = HeadersColumn(np.array([0, 1, 1], np.int32), column([b"h"]), column([b"x"]))
    builder, single = RunBuilder(), BatchBuilder()
    builder.pack_columns(column([b"a", b"b"]), None, 5, 2, 10**6, headers)
    single.append(b"a", None, 5, [("h", b"x")])
    single.append(b"b", None, 5)
    assert bytes(single.finish()) == bytes(builder.finish().data)


def test_run_builder_can_be_reset_after_a_refusal() -> None:
    """An incomplete run cannot be finished."""
    builder, one = RunBuilder(), column([b"a", b"b"])
    with pytest.raises(ValueError, match="without records"):
        builder.close_batch()
    with pytest.raises(InvalidRecordError):
        builder.pack_columns(one, one, np.array([1, -7]), 2, 10**6)
    for call in (lambda: builder.finish(), lambda: builder.pack_columns(one, one, 5, 2, 100)):
        with pytest.raises(ValueError, match="not closed"):
            call()
    builder.reset()
    with pytest.raises(ValueError, match="each column must have 3 rows, got 2"):
        builder.pack_columns(one, None, 5, 3, 100)
    with pytest.raises(ValueError, match="keys or values"):
        builder.pack_columns(None, None, 5, 0, 100)
    with pytest.raises(ValueError, match="timestamps must be one per record, 2, got 1"):
        builder.pack_columns(one, None, np.array([1]), 2, 100)
    run = builder.finish()
    assert not run.data
    assert not run.batches


@given(ROWS, st.sampled_from([61, 150, 400, 10**6]), st.data())
@settings(max_examples=examples(40))
def test_one_packed_batch_equals_that_of_lists(
    rows: list[tuple[bytes | None, bytes | None, int]], limit: int, data: st.DataObject
) -> None:
    """From any slot on; the builder that is shared is used again."""
    keys, values = [row[0] for row in rows], [row[1] for row in rows]
    times = [row[2] for row in rows]
    spare, start = SpareBuilder(), data.draw(st.integers(0, len(rows) - 1))
    builder = RunBuilder()
    while start < len(rows):
        builder.reset()
        taken = builder.extend_lists(keys, values, np.array(times, np.int64), start, limit)
        builder.close_batch()
        expected = builder.finish()
        run = pack_batch(spare, keys, values, times, start, limit)
        assert bytes(run.data) == bytes(expected.data)
        assert list(run.batches) == list(expected.batches)
        assert run.record_count == expected.record_count == taken
        assert run.log_append_time_ms is None
        start += taken


def test_packed_batch_of_lists_that_differ_or_lack_the_slot_is_refused() -> None:
    """The builder that is shared can be used afterwards."""
    spare = SpareBuilder()
    one: list[bytes | None] = [b"v"]
    for keys, values, times in (([], one, [1]), (one, [], [1]), (one, one, [1, 2])):
        with pytest.raises(ValueError, match="keys, values and timestamps must be as many"):
            pack_batch(spare, keys, values, times, 0, 1000)
    for start in (-1, 1, 2**40):
        with pytest.raises(ValueError, match=f"start must be below 1, got {start}"):
            pack_batch(spare, [b"k"], [b"v"], [1], start, 1000)
    with pytest.raises(TypeError):
        pack_batch(spare, [b"k"], [b"v"], ["x"], 0, 1000)  # type: ignore[list-item]
    assert pack_batch(spare, [b"k"], [b"v"], [1], 0, 1000).record_count == 1
