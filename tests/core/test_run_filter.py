"""Tests of both compaction passes over plain runs: compared with the slow path; hostile bytes.

Tests of cleanings compare the bytes that both paths leave
(`tests/support/cleaning.py`).
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import Buffer

from kafkalog._core.batch_rows import BatchRows, survey_run
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.key_collection import put_keys
from kafkalog._core.offset_map import OffsetMap
from kafkalog._core.run_filter import RunFilter
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import KafkaLogError
from kafkalog.records.codecs import Codec, compress, decompress
from tests.support.buffers import exact
from tests.support.examples import examples

OK, FULL = STATUS_CODES["OK"], STATUS_CODES["FULL"]
SECRET = bytes(range(16))

Keys = list[list[bytes | None]]


def run_of(batches: Keys, codec: Codec = Codec.NONE, **header: Any) -> bytes:
    """Return a run with one batch per list of keys; every third value is null."""
    parts, offset = [], 0
    builder = BatchBuilder()
    for keys in batches:
        builder.reset()
        for row, key in enumerate(keys):
            builder.append(key, None if row % 3 == 2 else b"value %d" % row, 1000 + row)
        payload = None if codec is Codec.NONE else compress(codec, builder.payload())
        batch = builder.finish(base_offset=offset, codec=int(codec), payload=payload, **header)
        parts.append(bytes(batch))
        offset += len(keys)
    return b"".join(parts)


def make_map(entries: int = 1000, **settings: Any) -> OffsetMap:
    """Return an empty map."""
    return OffsetMap(bytearray(24 * entries), load_factor=1.0, secret=SECRET, **settings)


def make_filter(offset_map: OffsetMap, **rules: Any) -> RunFilter:
    """Return a filter at the time 0 that keeps tombstones for a second."""
    defaults = {"now_ms": 0, "delete_retention_ms": 1000, "end_offset": -1, "last_offsets": {}}
    return RunFilter(
        offset_map,
        max_message_bytes=1 << 20,
        sets_delete_horizon=True,
        decompress=decompress,
        compress=compress,
        **{**defaults, **rules},
    )


BATCHES = st.lists(
    st.lists(st.one_of(st.none(), st.binary(max_size=2)), min_size=1, max_size=40), max_size=30
)


@settings(max_examples=examples(30))
@given(batches=BATCHES, start=st.integers(0, 60), entries=st.integers(1, 200))
def test_put_keys_fills_the_map_like_put_run(batches: Keys, start: int, entries: int) -> None:
    """From an offset up to the key that does not fit; compressed or not."""
    data = run_of(batches)
    columns = RecordColumns(2000)
    decode_run(data, 0, columns)
    expected = make_map(entries)
    row, status = expected.put_run(
        data, columns.key_position, columns.key_size, columns.offset, start=min(start, len(columns))
    )
    for codec in (Codec.NONE, Codec.GZIP):
        offset_map = make_map(entries)
        rows, is_whole, found = put_keys(
            offset_map,
            exact(run_of(batches, codec)),
            RecordColumns(600),
            decompress,
            start_offset=start,
        )
        assert (status == OK, OK) == (is_whole, found)
        assert len(expected) == len(offset_map)
        assert not is_whole or len(columns) == rows
        if row > start:
            assert expected.latest_offset == offset_map.latest_offset
        for key in {key for keys in batches for key in keys} - {None}:
            assert expected.get(key or b"") == offset_map.get(key or b"")


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_plain_run_with_any_byte_changed_is_refused(codec: Codec) -> None:
    """Both passes refuse it, for any changed byte under the CRC."""
    data = run_of([[b"a", b"b", None], [b"a", b"c"]], codec)
    assert ["put", "filtered"] == taken_by(data)
    # The CRC does not cover base offset and leader epoch.
    unsummed = {*range(8), *range(12, 16)}
    second = len(data) - len(run_of([[b"a", b"c"]], codec))
    for position in range(len(data)):
        if position in unsummed or position - second in unsummed:
            continue
        damaged = bytearray(data)
        damaged[position] ^= 0x41
        assert [] == taken_by(exact(bytes(damaged))), position


def taken_by(data: Buffer) -> list[str]:
    """Return the names of the passes that accept a run."""
    taken = []
    columns, offset_map = RecordColumns(100), make_map()
    with contextlib.suppress(KafkaLogError):
        if put_keys(offset_map, data, columns, decompress, start_offset=0)[2] == OK:
            taken.append("put")
    with contextlib.suppress(KafkaLogError):
        output = bytearray(1 << 17)
        if make_filter(offset_map).filter(data, columns, output)[1] == OK:
            taken.append("filtered")
    return taken


def test_survey_run_returns_the_facts_of_headers() -> None:
    """The next offset, the largest record count, and the number of plain records."""
    batches: Keys = [[b"a"], [b"b", b"c", None], [b"d"]]
    assert (5, 3, 5) == survey_run(run_of(batches), 0)
    assert (5, 3, 0) == survey_run(run_of(batches, Codec.GZIP), 0)
    assert (7, 0, 0) == survey_run(b"", 7)


@pytest.mark.parametrize("header", [{"transactional": True}, {"control": True}])
def test_survey_run_with_transactional_or_control_batches_returns_none(
    header: dict[str, Any],
) -> None:
    """The slow path reads these batches."""
    assert (
        survey_run(
            run_of([[b"\0\0\0\0"]], producer_id=1, producer_epoch=0, base_sequence=0, **header), 0
        )
        is None
    )


def test_survey_run_out_of_order_or_cut_returns_none() -> None:
    """The slow path raises the error."""
    data = run_of([[b"a"], [b"b"]])
    assert survey_run(data, 1) is None
    assert survey_run(data[:-1], 0) is None
    assert survey_run(data[len(data) // 2 :] + data[: len(data) // 2], 0) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_plain_run_larger_than_columns_or_output_is_full(codec: Codec) -> None:
    """A batch has more rows than the columns, or more bytes than the output."""
    data = run_of([[b"a", b"b"], [b"a", b"c", b"d"]], codec)
    small, large = RecordColumns(2), RecordColumns(3)
    offset_map = make_map()
    assert put_keys(offset_map, data, small, decompress, start_offset=0)[2] == FULL
    assert (5, True, OK) == put_keys(offset_map, data, large, decompress, start_offset=0)
    run_filter = make_filter(offset_map)
    assert run_filter.filter(data, small, bytearray(1000))[1] == FULL
    assert run_filter.filter(data, large, bytearray(100))[1] == FULL
    size, status, counts = run_filter.filter(data, large, bytearray(1000))
    assert (OK, 2, 5, 4) == (
        status,
        counts["batches_read"],
        counts["records_read"],
        counts["records_kept"],
    )
    assert 0 < size <= 1000


def test_plain_run_with_an_exact_map_raises() -> None:
    """An exact map needs a callback that compares keys."""
    offset_map = make_map(exact=True)
    with pytest.raises(TypeError, match="same_keys must be given"):
        put_keys(offset_map, b"", RecordColumns(1), decompress, start_offset=0)
    with pytest.raises(TypeError, match="same_keys must be given"):
        make_filter(offset_map)


def test_last_batch_of_a_producer_keeps_its_header() -> None:
    """The last batch of the range does too; other batches without records are dropped."""
    data = run_of(
        [[b"a"], [b"a"], [b"a"], [b"a"]], producer_id=7, producer_epoch=0, base_sequence=0
    )
    offset_map = make_map()
    put_keys(offset_map, data, RecordColumns(9), decompress, start_offset=0)
    offset_map.put(b"a", 9)
    output = bytearray(1000)
    for last_offsets, emptied in (({}, 1), ({7: 1}, 2), ({6: 1, 8: 1}, 1), ({7: 3}, 1)):
        run_filter = make_filter(offset_map, end_offset=4, last_offsets=last_offsets)
        size, status, counts = run_filter.filter(data, RecordColumns(9), output)
        assert (61 * emptied, OK, emptied) == (size, status, counts["batches_emptied"])


def test_batch_rows_can_be_constructed() -> None:
    """Python code can create them; only kernels read their rows."""
    assert isinstance(BatchRows(b"", RecordColumns(1), decompress), BatchRows)
