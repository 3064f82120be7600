"""Tests of scans, look-ups and resynchronisation, compared with Kafka and the reference."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch import (
    BatchColumns,
    find_batch,
    find_offset,
    find_timestamp,
    scan_batches,
)
from kafkalog._core.status import STATUS_CODES, status_name
from tests.support import golden, reference
from tests.support.buffers import BUFFER_KINDS, exact
from tests.support.column_rows import assert_scan_equals_reference, rows_of_columns
from tests.support.damage import flipped
from tests.support.examples import examples
from tests.support.reference import Header

RUNS = golden.vectors("batches")["runs"]
INVALID = golden.vectors("invalid")["cases"]


@st.composite
def headers(draw: st.DrawFn, base_offset: int) -> Header:
    """Draw a consistent header and a small compressed payload."""
    return Header(
        base_offset=base_offset,
        partition_leader_epoch=draw(st.integers(-1, 2**31 - 1)),
        attributes=draw(st.integers(-(2**12), 2**12 - 1)) * 8 | draw(st.integers(1, 7)),
        last_offset_delta=draw(st.integers(0, 5) | st.just(2**31 - 1)),
        base_timestamp=draw(st.integers(-(2**63), 2**63 - 1)),
        max_timestamp=draw(st.integers(-2, 3) | st.integers(-(2**63), 2**63 - 1)),
        producer_id=draw(st.integers(-1, 2**63 - 1)),
        producer_epoch=draw(st.integers(-1, 2**15 - 1)),
        base_sequence=draw(st.integers(-1, 2**31 - 1)),
        record_count=draw(st.integers(0, 2**31 - 1)),
    )


@st.composite
def runs(draw: st.DrawFn) -> bytes:
    """Draw batches with rising offsets and gaps, sometimes with other bytes at the end."""
    data = b""
    next_offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 5))):
        header = draw(headers(next_offset + draw(st.integers(0, 3))))
        data += reference.encode_batch(header, draw(st.binary(max_size=20)))
        next_offset = header.last_offset + 1
    return data + draw(st.just(b"") | st.binary(max_size=20) | st.integers(0, 80).map(bytes))


def run_of_batches(count: int, *, payload: bytes = b"payload", base_offset: int = 0) -> bytes:
    """Return `count` batches of two offsets each, one second apart."""
    return b"".join(
        reference.encode_batch(
            Header(
                base_offset=base_offset + 2 * index,
                last_offset_delta=1,
                max_timestamp=1000 * index,
                attributes=1,
                record_count=2,
            ),
            payload,
        )
        for index in range(count)
    )


@pytest.mark.parametrize("case", RUNS, ids=lambda case: case["name"])
def test_scan_of_runs_by_kafka_finds_its_batches(case: dict[str, Any]) -> None:
    """Positions, sizes and offsets of each walk, and the position and kind of its error."""
    data = bytes.fromhex(case["hex"])
    columns = BatchColumns(10)
    result = scan_batches(exact(data), columns=columns, check_order=False)
    assert [
        (b["position"], b["size"], b["base_offset"], b["last_offset"]) for b in case["batches"]
    ] == rows_of_columns(columns, ("position", "size_bytes", "base_offset", "last_offset"))
    assert case["whole_bytes"] == result.position
    assert (case["error"] is None) == (status_name(result.status) in ("OK", "TRUNCATED"))
    assert_scan_equals_reference(data, check_order=False)


@pytest.mark.parametrize("case", INVALID, ids=lambda case: case["name"])
def test_scan_of_hostile_bytes_has_the_verdict_of_kafka(case: dict[str, Any]) -> None:
    """
    Bytes refused by Kafka's walk or check are refused; whole batches before are found.

    The scan is stricter on counts and offsets that contradict the header. Kafka
    refuses the same bytes from a client.
    """
    data = bytes.fromhex(case["hex"])
    assert_scan_equals_reference(data)
    walk = scan_batches(exact(data), check_crc=False, check_order=False)
    check = scan_batches(exact(data), check_order=False)
    refused = status_name(check.status) not in ("OK", "TRUNCATED")
    if case["walk"]["error"] or case["check"]["error"]:
        assert refused
    elif refused:
        assert case["leader_append"]["error"] is not None
    else:
        assert (case["walk"]["batches"], case["walk"]["whole_bytes"]) == walk[:2]


@pytest.mark.parametrize(("data_set", "partition"), golden.all_partitions())
def test_scan_of_brokers_segments_finds_the_manifests_batches(
    data_set: str, partition: str
) -> None:
    """Every batch of every segment of a broker, with its header, position and CRC."""
    manifest = golden.Manifest(data_set, partition)
    facts = list(manifest.batches())
    for segment in manifest.summary.segments:
        data = (manifest.directory / segment.segment).read_bytes()
        columns = BatchColumns(len(data) // 61 + 1)
        result = scan_batches(data, columns=columns, next_offset=segment.base_offset)
        expected = [fact for fact in facts if fact.segment == segment.segment]
        assert (segment.batches, segment.valid_bytes) == result[:2]
        names = ("position", "base_offset", "last_offset", "max_timestamp", "crc")
        assert [
            tuple(getattr(fact, name) for name in names) for fact in expected
        ] == rows_of_columns(columns, names)


@settings(max_examples=examples(150))
@given(data=runs(), check_crc=st.booleans(), capacity=st.integers(1, 6))
def test_scan_of_any_run_equals_the_reference(data: bytes, check_crc: bool, capacity: int) -> None:
    """Valid batches, gaps, tails of zeros and of noise, full columns."""
    assert_scan_equals_reference(data, check_crc=check_crc, capacity=capacity)


@settings(max_examples=examples(150))
@given(data=runs(), flips=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 7)), max_size=3))
def test_scan_of_damaged_run_equals_the_reference(
    data: bytes, flips: list[tuple[int, int]]
) -> None:
    """Flipped bits anywhere have the same verdict at the same position."""
    damaged = flipped(data, flips)
    assert_scan_equals_reference(damaged)
    assert_scan_equals_reference(damaged, check_crc=False, check_order=False)


def test_scan_of_every_prefix_equals_the_reference() -> None:
    """The run is cut after each byte: whole batches are found, the last is truncated."""
    data = run_of_batches(3)
    for size in range(len(data) + 1):
        assert_scan_equals_reference(data[:size])
        expected = "OK" if size % (len(data) // 3) == 0 else "TRUNCATED"
        assert expected == status_name(scan_batches(exact(data[:size])).status)


@pytest.mark.parametrize("buffer", BUFFER_KINDS)
def test_scan_of_any_buffer_stays_within_bounds(buffer: str) -> None:
    """Positions count from the start of the buffer, and no byte after `end` is read."""
    run = run_of_batches(3)
    size = len(run) // 3
    data = BUFFER_KINDS[buffer](b"\xff" * 7 + run)
    assert (3, 7 + len(run), 0) == scan_batches(data, 7)[:3]
    assert (2, 7 + 2 * size, 0) == scan_batches(data, 7, end=7 + 2 * size)[:3]
    cut = scan_batches(data, 7, end=6 + 2 * size)
    assert (1, 7 + size, STATUS_CODES["TRUNCATED"]) == cut[:3]
    assert (0, 7, 0) == scan_batches(data, 7, end=7)[:3]
    for position, end in ((-1, None), (8, 7), (0, len(run) + 8)):
        with pytest.raises(IndexError, match="not inside"):
            scan_batches(data, position, end=end)


def test_scan_without_the_gil_equals_short_scans() -> None:
    """Half a megabyte in one call, and in parts that stop at full columns."""
    data = run_of_batches(40, payload=random.Random(2).randbytes(13_000))
    whole = scan_batches(data)
    assert (40, len(data), 0, 80, 39_000, 79) == whole
    columns = BatchColumns(16)
    result = scan_batches(data, columns=columns)
    assert STATUS_CODES["FULL"] == result.status
    again = scan_batches(data, result.position, columns=columns, next_offset=result.next_offset)
    assert (0, result.position, STATUS_CODES["FULL"], result.next_offset, -1, -1) == again
    columns.clear()
    second = scan_batches(data, result.position, columns=columns, next_offset=result.next_offset)
    columns.clear()
    third = scan_batches(data, second.position, columns=columns, next_offset=second.next_offset)
    assert (8, len(data), 0, 80, 39_000, 79) == third
    assert 8 == len(columns)


def test_scan_refuses_batches_below_next_offset() -> None:
    """A batch below the end of the one before does not belong to the log."""
    size = len(run_of_batches(1))
    data = run_of_batches(2, base_offset=10) + run_of_batches(1, base_offset=13)
    stopped = scan_batches(data, next_offset=10)
    assert (2, 2 * size, STATUS_CODES["OFFSET_ORDER"], 14) == stopped[:4]
    assert STATUS_CODES["OFFSET_ORDER"] == scan_batches(data, next_offset=11).status
    assert (3, STATUS_CODES["OK"]) == scan_batches(data, check_order=False)[0::2][:2]


def test_scan_equal_largest_timestamps_report_the_earliest_batch() -> None:
    """The offset of the largest timestamp is the last offset of the first batch with it."""
    times = (5, 9, 7, 9)
    data = b"".join(
        reference.encode_batch(Header(base_offset=10 * i, last_offset_delta=4, max_timestamp=time))
        for i, time in enumerate(times)
    )
    assert (9, 14) == scan_batches(data)[4:]


def test_columns_of_no_rows_raise() -> None:
    """They could never hold a batch."""
    for capacity in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            BatchColumns(capacity)


def test_columns_have_native_types_of_the_fields_width() -> None:
    """Types of the arrays; the arrays cannot be replaced."""
    columns = BatchColumns(3)
    expected = {"position": "int64", "last_offset": "int64", "size_bytes": "int32"}
    expected |= {"crc": "uint32", "attributes": "int16", "producer_epoch": "int16"}
    for name, dtype in expected.items():
        assert dtype == getattr(columns, name).dtype
        assert (3,) == getattr(columns, name).shape
    assert 3 == columns.capacity
    with pytest.raises(AttributeError):
        columns.position = columns.last_offset


@settings(max_examples=examples(100))
@given(data=runs(), target=st.integers(-(2**63), 2**63 - 1), pick=st.integers(0, 9))
def test_find_in_any_run_equals_the_reference(data: bytes, target: int, pick: int) -> None:
    """The first batch that reaches an offset or a timestamp, or the end of the walk."""
    batches = reference.scan_batches(data).batches
    if batches:
        header = batches[pick % len(batches)][1]
        target = (header.last_offset, header.base_offset, header.max_timestamp, target)[pick % 4]
    position, verdict = reference.find(data, "last_offset", target)
    assert (position, STATUS_CODES[verdict]) == find_offset(exact(data), target)
    position, verdict = reference.find(data, "max_timestamp", target)
    assert (position, STATUS_CODES[verdict]) == find_timestamp(exact(data), target)


def test_find_in_a_gap_returns_the_next_batch() -> None:
    """Compaction leaves gaps: the batch after the gap is the result."""
    size = len(run_of_batches(1))
    data = run_of_batches(2, base_offset=100) + run_of_batches(
        40, base_offset=500, payload=bytes(9000)
    )
    assert (0, 0) == find_offset(data, 0)
    assert (size, 0) == find_offset(data, 103)
    assert (2 * size, 0) == find_offset(data, 104)
    assert (2 * size, 0) == find_offset(data, 501, size)
    assert (len(data), STATUS_CODES["TRUNCATED"]) == find_offset(data, 580)
    assert (size, STATUS_CODES["TRUNCATED"]) == find_offset(data, 200, end=2 * size - 1)
    assert (size, 0) == find_timestamp(data, 1)


@settings(max_examples=examples(60))
@given(
    before=st.binary(max_size=60) | st.lists(st.sampled_from(b"\0\x02"), max_size=99).map(bytes),
    data=runs(),
    offset_min=st.integers(0, 10),
    skip=st.integers(0, 40),
)
def test_find_batch_after_noise_equals_the_reference(
    before: bytes, data: bytes, offset_min: int, skip: int
) -> None:
    """The first whole batch with a valid CRC is found after any bytes."""
    noise = before + data
    position = min(skip, len(noise))
    for offset_max in (offset_min + 3, 2**63 - 1):
        expected = reference.find_batch(noise, position, offset_min, offset_max)
        actual = find_batch(exact(noise), position, offset_min=offset_min, offset_max=offset_max)
        assert expected == actual


def test_find_batch_skips_damage_and_foreign_offsets() -> None:
    """Batches with a bad CRC, truncated, or with offsets outside the range are skipped."""
    size = len(run_of_batches(1))
    data = bytearray(run_of_batches(4, base_offset=50))
    data[size - 1] ^= 1
    assert size == find_batch(data, 0)
    assert 2 * size == find_batch(data, 0, offset_min=53)
    assert -1 == find_batch(data, 0, offset_max=52)
    assert 3 * size == find_batch(data, 2 * size + 1)
    assert -1 == find_batch(data, 0, end=2 * size - 1)
    assert -1 == find_batch(b"", 0)


def test_find_batch_in_hostile_bytes_finds_the_good_batch_after() -> None:
    """
    Eight megabytes of overlapping headers, each with a length that reaches four megabytes ahead.

    A CRC of each would read half a terabyte and take minutes. The budget skips
    them, and is available again for the valid batch that follows after some more bytes.
    """
    fake = replace(Header(attributes=1), batch_length=4_000_000).encode()
    hostile = fake * (8_000_000 // len(fake))
    data = hostile + bytes(20_000) + run_of_batches(1, base_offset=7)
    assert len(hostile) + 20_000 == find_batch(data, 0, offset_max=100)


def test_find_batch_in_a_damaged_log_never_exhausts_its_budget() -> None:
    """Batches that do not overlap never exhaust it, for any number of bad batches."""
    size = len(run_of_batches(1, payload=bytes(5000)))
    data = bytearray(run_of_batches(30, payload=bytes(5000)))
    for index in range(29):
        data[index * size + 100] ^= 1
    assert 29 * size == find_batch(data, 0)
