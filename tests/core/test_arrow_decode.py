"""Tests of the direct Arrow decoder for plain batches, compared with two slower decoders."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.arrow_decode import ArrowBatchRun
from kafkalog._core.arrow_export import ArrowBatch
from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.crc32c import value as crc32c
from kafkalog._core.row_builder import COLUMN_NAMES, RowBuilder
from kafkalog._core.row_filter import BatchRuns
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import CorruptRecordError
from tests.core.test_row_builder import BINARY_TYPES, UNLIMITED
from tests.support import reference_records as reference
from tests.support.arrow_consumer import cells_of
from tests.support.buffers import exact
from tests.support.damage import flipped
from tests.support.examples import examples
from tests.support.record_cases import MIXED, MIXED_PAYLOAD, entries, header_for, headers
from tests.support.reference import Header, encode_batch
from tests.support.reference_records import Entry
from tests.support.row_cases import built, expected_rows, rows_of

OK = STATUS_CODES["OK"]
CRC = STATUS_CODES["CRC"]
FULL = STATUS_CODES["FULL"]
ELSEWHERE = -2

# The path by positions is given more facts about each row; this decoder has only these columns.
PLAIN_COLUMNS = ("offset", "timestamp", "key", "value", "headers", "topic", "partition")
SCANNED = ("offset", "timestamp", "key", "value")
ANY_OFFSET: dict[str, Any] = {"offset_min": 0, "offset_end": 2**63 - 1}


@st.composite
def runs(draw: st.DrawFn) -> list[tuple[Header, bytes]]:
    """Draw batches at rising offsets, by header and records."""
    made, next_offset = [], draw(st.integers(0, 2**40))
    for case in draw(st.lists(entries(size_max=6), max_size=4)):
        header = draw(headers(case))
        fields: dict[str, Any] = {
            "base_offset": next_offset + draw(st.integers(0, 3)),
            "producer_id": draw(st.sampled_from([-1, 0, 2**63 - 1])),
            "producer_epoch": draw(st.sampled_from([-1, 0, 32767])),
            "base_sequence": draw(st.sampled_from([-1, 0, 2**31 - 2])),
            "partition_leader_epoch": draw(st.sampled_from([-1, 5])),
        }
        header = Header(**{**vars(header), **fields})
        made.append((header, reference.encode(case)))
        next_offset = header.base_offset + header.last_offset_delta + 1
    return made


def bytes_of(batches: Sequence[tuple[Header, bytes]]) -> bytes:
    """Return the batches back to back."""
    return b"".join(encode_batch(*batch) for batch in batches)


def run_of(data: Any, *, check_crc: bool = True, **how: Any) -> ArrowBatchRun:
    """Return a run over all of the data."""
    size = memoryview(data).nbytes
    return ArrowBatchRun(data, 0, size, check_crc=check_crc, **{**ANY_OFFSET, **how})


def added(run: ArrowBatchRun, builder: RowBuilder) -> tuple[int, list[dict[str, list[Any]]]]:
    """Return the last status, and the batches that a run makes."""
    batches = []
    while (status := builder.add_run(run)) == FULL:
        batches.append(cells_of(builder.finish()))
    if len(builder):
        batches.append(cells_of(builder.finish()))
    return status, batches


def mixed_run(count: int, **fields: Any) -> bytes:
    """Return some batches with every kind of record."""
    header = header_for(MIXED, **fields)
    step = header.last_offset_delta + 1
    return b"".join(
        encode_batch(Header(**{**vars(header), "base_offset": slot * step}), MIXED_PAYLOAD)
        for slot in range(count)
    )


def with_crc(batch: bytes) -> bytes:
    """Return a batch with a correct CRC."""
    return batch[:17] + crc32c(batch[21:]).to_bytes(4, "big") + batch[21:]


def builders(data: st.DataObject, names: list[str]) -> RowBuilder:
    """Return a builder of batches of any size, with keys and values of any type."""
    builder = RowBuilder(
        names,
        binary_type=data.draw(st.sampled_from(BINARY_TYPES)),
        text_keys=False,
        rows_max=data.draw(st.sampled_from([1, 2, 3, 2**40])),
        bytes_max=data.draw(st.sampled_from([1, 100, 9000, 2**30])),
    )
    builder.set_partition("t-\xe9", 7)
    return builder


def large_batch() -> list[Entry]:
    """Return more records than a step has, of more than a tile, with cells of all sizes."""
    return [
        Entry(slot, slot, b"k" * (slot % 20) if slot % 7 else None, bytes(slot % 300))
        for slot in range(1500)
    ]


def small_batches(binary_type: Any) -> RowBuilder:
    """Return a builder whose limits are below the size of the large batch."""
    return RowBuilder(SCANNED, binary_type=binary_type, rows_max=1000, bytes_max=50_000)


@settings(max_examples=examples(80))
@given(data=st.data())
def test_columns_of_a_run_equal_the_reference(data: st.DataObject) -> None:
    """Batches, columns and their order, binary types and batch sizes are drawn at random."""
    batches = data.draw(runs())
    names = data.draw(st.lists(st.sampled_from(COLUMN_NAMES), min_size=1, unique=True))
    builder = builders(data, names)
    run = run_of(exact(bytes_of(batches)))
    if not builder.can_add_runs:
        assert "sequence" in names and "offset" not in names
        with pytest.raises(ValueError, match="offsets"):
            builder.add_run(run)
        return
    status, found = added(run, builder)
    expected = [row for header, payload in batches for row in expected_rows(payload, header, names)]
    assert (OK, expected) == (status, rows_of(found))
    assert len(batches) == run.batch_count


@settings(max_examples=examples(80))
@given(
    batches=runs(),
    flips=st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 7)), max_size=2),
    check_crc=st.booleans(),
    binary_type=st.sampled_from(BINARY_TYPES),
    limits=st.sampled_from([(2, 2**30), (2**40, 200), (2**40, 2**30)]),
)
def test_damaged_run_returns_the_rows_before_the_damage(
    batches: list[tuple[Header, bytes]],
    flips: list[tuple[int, int]],
    check_crc: bool,
    binary_type: str,
    limits: tuple[int, int],
) -> None:
    """The Arrow batches equal those by positions, up to the first batch left to the slow path."""
    damaged = flipped(bytes_of(batches), flips) if batches else b""
    data = exact(damaged)
    rows_max, bytes_max = limits
    how: dict[str, Any] = {
        "binary_type": binary_type,
        "text_keys": False,
        "rows_max": rows_max,
        "bytes_max": bytes_max,
    }
    run = run_of(data, check_crc=check_crc)
    status, found = added(run, RowBuilder(PLAIN_COLUMNS, **how))
    columns = RecordColumns(len(damaged) // 7 + 1)
    _, count, _, slow_status = decode_run(data, 0, columns, check_crc=check_crc)
    assert run.batch_count <= count
    assert status != CRC or slow_status == CRC
    if run.batch_count == count:
        slow = RowBuilder(PLAIN_COLUMNS, **how)
        assert built(data, columns, BatchRuns(), slow, lasting=True) == found
        assert (status == OK) == (slow_status == OK)
    else:
        # Falling offsets are left to the slow path.
        assert status == ELSEWHERE


@pytest.mark.parametrize("binary_type", BINARY_TYPES)
def test_large_batch_is_read_in_tiles(binary_type: str) -> None:
    """The batch is longer than a CRC tile and a step of records, with cells of all sizes."""
    made = large_batch()
    header, payload = header_for(made), reference.encode(made)
    status, found = added(run_of(encode_batch(header, payload)), small_batches(binary_type))
    assert expected_rows(payload, header, SCANNED) == rows_of(found)
    assert (OK, 6) == (status, len(found))


@pytest.mark.parametrize("record", [b"\x02\x00", b"\x10" + bytes(8), b"\x01" * 9])
def test_corrupt_batch_adds_no_row(record: bytes) -> None:
    """The first records are sound and the last one is corrupt; the columns are as before."""
    payload = reference.encode([Entry(slot, -1, None, b"v") for slot in range(4)])
    header = header_for([Entry(4, 0, None, None)], record_count=5)
    good = mixed_run(1)
    batch = with_crc(encode_batch(Header(**{**vars(header), "base_offset": 10**6}), payload))
    bad = with_crc(encode_batch(Header(**{**vars(header), "base_offset": 10**6}), payload + record))
    for broken in (batch, bad):
        builder = RowBuilder(PLAIN_COLUMNS, rows_max=len(MIXED) + 2, bytes_max=2**30)
        run = run_of(good + broken)
        assert ELSEWHERE == builder.add_run(run)
        assert (1, len(MIXED)) == (run.batch_count, len(builder))
        cells = cells_of(builder.finish())
        assert [entry.value for entry in MIXED] == cells["value"]
        assert None not in cells["timestamp"]


def test_wrong_crc_is_reported_before_bad_records() -> None:
    """The whole batch is checked first, even if the builder is full after a part of it."""
    data = bytearray(mixed_run(2))
    data[-1] ^= 1
    for rows_max in (2**40, len(MIXED) + 1):
        builder = RowBuilder(["offset"], rows_max=rows_max, bytes_max=2**30)
        run = run_of(data)
        assert CRC == builder.add_run(run)
        assert (1, len(MIXED)) == (run.batch_count, len(builder))


def test_batches_partly_outside_the_offset_range_are_left_to_the_slow_path() -> None:
    """The caller reads them and passes the position after them to `resume_at`."""
    data = mixed_run(3)
    size, step = len(mixed_run(1)), 8202
    builder = RowBuilder(["offset"], **UNLIMITED)
    run = run_of(data, offset_min=1, offset_end=3 * step - 1)
    assert ELSEWHERE == builder.add_run(run)
    assert (0, 0) == (run.batch_count, len(builder))
    run.resume_at(size, 1, step)
    assert ELSEWHERE == builder.add_run(run)
    assert 2 == run.batch_count
    assert [step + entry.offset_delta for entry in MIXED] == cells_of(builder.finish())["offset"]
    run.resume_at(3 * size, 1, 3 * step)
    assert OK == builder.add_run(run)


@pytest.mark.parametrize("attributes", [1, 4, 7])
def test_compressed_batches_are_left_to_the_slow_path(attributes: int) -> None:
    """Unknown codecs are left to it as well."""
    builder = RowBuilder(["offset"], **UNLIMITED)
    assert ELSEWHERE == builder.add_run(run_of(mixed_run(1, attributes=attributes)))


def test_header_keys_not_utf8_are_left_to_the_slow_path() -> None:
    """The slow path raises the error; no row of the batch is added."""
    case = [Entry(0, 0, b"k", b"v", ((b"a", b"x"),)), Entry(1, 0, b"k", b"v", ((b"\xff", b"x"),))]
    data = encode_batch(header_for(case), reference.encode(case))
    builder = RowBuilder(["headers", "value"], **UNLIMITED)
    assert ELSEWHERE == builder.add_run(run_of(data))
    assert 0 == len(builder)
    binary = RowBuilder(["headers", "value"], text_keys=False, **UNLIMITED)
    assert OK == binary.add_run(run_of(data))
    assert [[(b"a", b"x")], [(b"\xff", b"x")]] == cells_of(binary.finish())["headers"]


def test_batch_changed_between_two_calls_raises() -> None:
    """Its first rows were already returned, so the slow path cannot read it from the start."""
    data = bytearray(mixed_run(1))
    builder = RowBuilder(["offset"], rows_max=3, bytes_max=2**30)
    run = run_of(data)
    assert FULL == builder.add_run(run)
    builder.finish()
    data[61:] = bytes(len(data) - 61)
    with pytest.raises(CorruptRecordError):
        builder.add_run(run)
    with pytest.raises(ValueError, match="position must be in 0 to"):
        run.resume_at(len(data), 1, 0)


@pytest.mark.parametrize("position, end", [(-1, 5), (6, 5), (0, 10**6)])
def test_run_outside_its_data_raises(position: int, end: int) -> None:
    """No byte outside the data is read."""
    with pytest.raises(IndexError):
        ArrowBatchRun(mixed_run(1), position, end, check_crc=True, **ANY_OFFSET)


def address_of(batch: ArrowBatch, slot: int) -> int:
    """Return the address of a buffer of the first column."""
    buffer = batch.buffer(0, slot)
    assert buffer is not None
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


def test_memory_of_a_released_batch_is_reused() -> None:
    """Memory of a batch in use is not reused; a batch may be released after its builder."""
    data = mixed_run(4)
    builder = RowBuilder(["value"], rows_max=len(MIXED), bytes_max=2**30)
    run = run_of(data)
    assert FULL == builder.add_run(run)
    kept = builder.finish()
    assert FULL == builder.add_run(run)
    released = builder.finish()
    addresses = {address_of(released, slot) for slot in (0, 1, 2)}
    del released
    assert FULL == builder.add_run(run)
    third = builder.finish()
    assert addresses == {address_of(third, slot) for slot in (0, 1, 2)}
    assert cells_of(kept) == cells_of(third)
    del builder
    assert [entry.value for entry in MIXED] == cells_of(kept)["value"]


def test_batches_released_by_any_thread_leave_others_unchanged() -> None:
    """A kept batch does not change while other batches are made and released."""
    data = mixed_run(60)
    builder = RowBuilder(PLAIN_COLUMNS, rows_max=20, bytes_max=2**30)

    def look(batch: ArrowBatch) -> list[Any]:
        return list(cells_of(batch)["value"])

    run = run_of(data)
    with ThreadPoolExecutor(4) as threads:
        looks = []
        while builder.add_run(run) == FULL:
            looks.append(threads.submit(look, builder.finish()))
        looks.append(threads.submit(look, builder.finish()))
        found = [value for each in looks for value in each.result()]
    assert 60 * [entry.value for entry in MIXED] == found


def test_run_in_a_cycle_is_collected_with_its_memory(recwarn: pytest.WarningsRecorder) -> None:
    """An abandoned scan is a reference cycle; the collector frees its memory."""
    released: list[bool] = []

    class Released(bytearray):
        def __del__(self) -> None:
            released.append(True)

    view = memoryview(Released(100))
    run = ArrowBatchRun(view, 0, 0, check_crc=False, offset_min=0, offset_end=5)
    cycle: list[object] = [run]
    cycle.append(cycle)
    del view, run, cycle
    gc.collect()

    assert [True] == released
    assert not recwarn.list
