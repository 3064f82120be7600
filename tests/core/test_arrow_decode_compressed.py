"""Tests of the direct Arrow decoder for compressed batches, compared with the reference."""

from __future__ import annotations

from typing import Any, TypeAlias

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.arrow_decode import ArrowBatchRun
from kafkalog._core.columns import RecordColumns, decode_columns
from kafkalog._core.header import parse_header
from kafkalog._core.row_builder import COLUMN_NAMES, RowBuilder
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import CorruptRecordError
from kafkalog.records.codecs import Codec, compress, decompress
from tests.core.test_arrow_decode import (
    ELSEWHERE,
    PLAIN_COLUMNS,
    SCANNED,
    builders,
    large_batch,
    runs,
    small_batches,
    with_crc,
)
from tests.core.test_arrow_decode import run_of as any_run_of
from tests.core.test_row_builder import BINARY_TYPES, UNLIMITED
from tests.support import reference_records as reference
from tests.support.arrow_consumer import cells_of
from tests.support.buffers import exact
from tests.support.damage import flipped
from tests.support.examples import examples
from tests.support.payloads import COMPRESSING
from tests.support.record_cases import MIXED, MIXED_PAYLOAD, header_for
from tests.support.reference import Header, encode_batch
from tests.support.reference_records import Entry
from tests.support.row_cases import expected_rows, rows_of

OK = STATUS_CODES["OK"]
CRC = STATUS_CODES["CRC"]
FULL = STATUS_CODES["FULL"]
COMPRESSED = STATUS_CODES["COMPRESSED"]

OURS = (Codec.LZ4, Codec.SNAPPY)
LIMIT_BYTES = 1 << 20


def packed(header: Header, payload: bytes, codec: Codec) -> bytes:
    """Return a compressed batch."""
    fields = {**vars(header), "attributes": header.attributes | codec}
    return encode_batch(Header(**fields), compress(codec, payload))


def with_payload(payload: bytes, codec: int, **fields: Any) -> bytes:
    """Return a batch with the header of MIXED and `payload` as its compressed bytes."""
    return encode_batch(header_for(MIXED, attributes=codec, **fields), payload)


def run_of(data: Any, *, limit_bytes: int = LIMIT_BYTES, **how: Any) -> ArrowBatchRun:
    """Return a run over all of the data."""
    return any_run_of(data, compressed=True, limit_bytes=limit_bytes, **how)


def give(run: ArrowBatchRun, data: bytes, *, bytes_max: int = 1, limit_bytes: int) -> bool:
    """Pass a run its decompressed batches up to the first corrupt one; return False if none."""
    parts = run.list_compressed(bytes_max)
    memory, ends = b"", []
    for codec, start, end in parts:
        try:
            memory += decompress(codec, data[start:end], limit_bytes=limit_bytes)
        except CorruptRecordError:
            break
        ends.append(len(memory))
    run.add_decompressed(parts, exact(memory), ends)
    return bool(ends)


def added(
    run: ArrowBatchRun,
    builder: RowBuilder,
    data: bytes,
    *,
    limit_bytes: int = LIMIT_BYTES,
    **how: Any,
) -> tuple[int, list[dict[str, list[Any]]]]:
    """Return the last status, and the batches that a run makes."""
    batches = []
    while True:
        status = builder.add_run(run)
        if status == FULL:
            batches.append(cells_of(builder.finish()))
        elif status != COMPRESSED or not give(run, data, limit_bytes=limit_bytes, **how):
            break
    if len(builder):
        batches.append(cells_of(builder.finish()))
    return status, batches


@settings(max_examples=examples(50))
@given(data=st.data())
def test_compressed_run_columns_equal_the_reference(data: st.DataObject) -> None:
    """Batches, codecs, columns, binary types and batch sizes are drawn at random."""
    batches = data.draw(runs())
    codecs = [data.draw(st.sampled_from(COMPRESSING)) for _ in batches]
    names = data.draw(st.lists(st.sampled_from(COLUMN_NAMES), min_size=1, unique=True))
    builder = builders(data, names)
    if not builder.can_add_runs:
        return
    made = [packed(*batch, codec) for batch, codec in zip(batches, codecs, strict=True)]
    whole = b"".join(made)
    run = run_of(exact(whole))
    bytes_max = data.draw(st.sampled_from([1, 300, 1 << 20]))
    status, found = added(run, builder, whole, bytes_max=bytes_max)
    expected = [row for header, payload in batches for row in expected_rows(payload, header, names)]
    assert (OK, expected) == (status, rows_of(found))
    assert len(batches) == run.batch_count


def assert_as_by_itself(batch: bytes, limit_bytes: int, binary_type: Any) -> None:
    """Assert that a batch in a run has the rows of the batch alone, or is left to the slow path."""
    header = parse_header(batch)
    columns = RecordColumns(max(header.record_count, 1))
    try:
        payload = decompress(header.codec, batch[61:], limit_bytes=limit_bytes)
        decode_columns(payload, header, 0, len(payload), columns)
        expected = [
            None if size < 0 else payload[position : position + size]
            for position, size in zip(columns.value_position, columns.value_size, strict=True)
        ]
    except CorruptRecordError:
        expected = None
    builder = RowBuilder(
        PLAIN_COLUMNS, binary_type=binary_type, text_keys=False, rows_max=3, bytes_max=2**30
    )
    run = run_of(exact(batch), limit_bytes=limit_bytes)
    status, found = added(run, builder, batch, limit_bytes=limit_bytes)
    if status == OK:
        assert expected == [value for cells in found for value in cells["value"]]
        return
    assert status in (ELSEWHERE, COMPRESSED)
    assert [] == found
    # Only corrupt batches, foreign codecs and append time may be left to the slow path.
    assert expected is None or header.codec not in OURS or batch[65] & 0x10


# Bits of a stream that are flipped, how many bytes of it are missing, and the limit.
HOSTILE = st.tuples(
    st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 7)), max_size=2),
    st.integers(0, 60),
    st.sampled_from([40, len(MIXED_PAYLOAD) - 1, len(MIXED_PAYLOAD), LIMIT_BYTES]),
)
Hostile: TypeAlias = tuple[list[tuple[int, int]], int, int]


def damaged(codec: Codec, hostile: Hostile) -> bytes:
    """Return a batch of all kinds of records whose stream is damaged, under a right CRC."""
    stream = compress(codec, MIXED_PAYLOAD)
    return with_payload(flipped(stream, hostile[0])[: max(len(stream) - hostile[1], 0)], codec)


@pytest.mark.parametrize("codec", COMPRESSING)
@settings(max_examples=examples(40))
@given(hostile=HOSTILE, binary_type=st.sampled_from(BINARY_TYPES))
def test_hostile_payload_equals_the_result_of_its_codec(
    codec: Codec, hostile: Hostile, binary_type: str
) -> None:
    """Flipped bits, cut ends, and limits around the decompressed size."""
    assert_as_by_itself(damaged(codec, hostile), hostile[2], binary_type)


@pytest.mark.parametrize("codec", OURS)
def test_payload_with_any_flipped_bit_equals_the_result_of_its_codec(codec: Codec) -> None:
    """Each bit in turn, and each shorter length."""
    payload = reference.encode([Entry(slot, slot, b"key", b"value" * 9) for slot in range(4)])
    made = header_for([Entry(slot, slot, None, None) for slot in range(4)], attributes=codec)
    stream = compress(codec, payload)
    cases = [flipped(stream, [(bit // 8, bit % 8)]) for bit in range(8 * len(stream))]
    cases += [stream[:size] for size in range(len(stream))]
    for case in cases:
        assert_as_by_itself(encode_batch(made, case), LIMIT_BYTES, "binary")


@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("checksum", ["none", "content", "block"])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
def test_lz4_frames_of_other_writers_are_decoded(
    store_size: bool, checksum: str, block_size: int
) -> None:
    """The content size is true or false; checksums are verified or not."""
    frame = lz4.frame.compress(
        MIXED_PAYLOAD,
        block_size=block_size,
        block_linked=False,
        store_size=store_size,
        content_checksum=checksum == "content",
        block_checksum=checksum == "block",
    )
    cases = [frame, frame + b"behind", frame[:-1], frame[:-4]]
    for place in range(4, 16):
        cases.append(flipped(frame, [(place, 0)]))
        cases.append(flipped(frame, [(place, 7)]))
    for case in cases:
        for limit_bytes in (len(MIXED_PAYLOAD) - 1, LIMIT_BYTES):
            batch = with_payload(case, Codec.LZ4)
            assert_as_by_itself(batch, limit_bytes, "binary")
    if checksum != "block":
        builder = RowBuilder(["value"], **UNLIMITED)
        assert OK == builder.add_run(run_of(with_payload(frame, Codec.LZ4)))


@pytest.mark.parametrize("codec", COMPRESSING)
def test_decompression_bomb_adds_no_row(codec: Codec) -> None:
    """The decompressed size is far above the limit."""
    batch = with_payload(compress(codec, bytes(8 << 20)), codec)
    assert_as_by_itself(batch, 1 << 20, "binary")


@pytest.mark.parametrize("codec", COMPRESSING)
def test_wrong_crc_of_a_compressed_batch_is_reported(codec: Codec) -> None:
    """The CRC is checked before decompression; the rows of the batch before are returned."""
    first = packed(header_for(MIXED), MIXED_PAYLOAD, codec)
    header = header_for(MIXED)
    header = Header(**{**vars(header), "base_offset": 10**6})
    second = bytearray(packed(header, MIXED_PAYLOAD, codec))
    second[-1] ^= 1
    data = first + bytes(second)
    builder = RowBuilder(["offset"], **UNLIMITED)
    run = run_of(data)
    status, _ = added(run, builder, data, bytes_max=1 << 20)
    assert 1 == run.batch_count
    if codec in OURS:
        assert CRC == status
    else:
        assert (COMPRESSED, []) == (status, run.list_compressed(1 << 20))
    unchecked = run_of(with_crc(data[: len(first)]) + bytes(second), check_crc=False)
    if codec not in OURS:
        assert 2 == len(unchecked.list_compressed(1 << 20))


def test_plain_batches_and_unknown_codecs_are_left_to_the_slow_path() -> None:
    """Plain batches in a compressed run, and unknown codecs."""
    builder = RowBuilder(["offset"], **UNLIMITED)
    for codec in (0, 5, 7):
        run = run_of(with_payload(MIXED_PAYLOAD, codec))
        assert ELSEWHERE == builder.add_run(run)
        assert [] == run.list_compressed(1 << 20)


def test_batches_outside_the_offsets_are_not_decompressed() -> None:
    """The run stops before them."""
    data = packed(header_for(MIXED), MIXED_PAYLOAD, Codec.ZSTD)
    run = run_of(data, offset_end=header_for(MIXED).last_offset_delta)
    assert [] == run.list_compressed(1 << 20)
    assert ELSEWHERE == RowBuilder(["offset"], **UNLIMITED).add_run(run)


@pytest.mark.parametrize("binary_type", BINARY_TYPES)
@pytest.mark.parametrize("codec", OURS)
def test_large_compressed_batch_is_split_into_several(codec: Codec, binary_type: Any) -> None:
    """The batch is larger than a block and larger than one Arrow batch."""
    made = large_batch()
    header, payload = header_for(made), reference.encode(made)
    batch = packed(header, payload, codec)
    status, found = added(run_of(batch), small_batches(binary_type), batch)
    assert expected_rows(payload, header, SCANNED) == rows_of(found)
    assert (OK, 6) == (status, len(found))


def test_large_batch_between_small_ones_keeps_their_memory() -> None:
    """The large batch is above the limit of the memory that is kept."""
    sizes = (10, 9 << 20, 10)
    data = b""
    for offset, size in enumerate(sizes):
        made = [Entry(0, 0, None, bytes(size))]
        header = Header(**{**vars(header_for(made)), "base_offset": offset})
        data += packed(header, reference.encode(made), Codec.LZ4)
    builder = RowBuilder(["value"], **UNLIMITED)
    assert OK == builder.add_run(run_of(data, limit_bytes=16 << 20))
    assert [bytes(size) for size in sizes] == cells_of(builder.finish())["value"]


def test_wrong_record_count_of_a_compressed_batch_is_left_to_the_slow_path() -> None:
    """The count is more than its bytes can hold, or fewer than its records."""
    for count in (0, 1, len(MIXED) + 1, 2**31 - 1):
        batch = with_payload(compress(Codec.LZ4, MIXED_PAYLOAD), Codec.LZ4, record_count=count)
        builder = RowBuilder(["offset"], **UNLIMITED)
        status = builder.add_run(run_of(batch))
        assert (OK if count == 0 else ELSEWHERE, 0) == (status, len(builder))


def test_add_decompressed_with_wrong_parts_raises() -> None:
    """More ends than parts, and ends that fall or are outside the memory; no row is added."""
    data = packed(header_for(MIXED), MIXED_PAYLOAD, Codec.ZSTD)
    run = run_of(data)
    parts = run.list_compressed(1)
    assert [(Codec.ZSTD, 61, len(data))] == parts
    with pytest.raises(ValueError, match="1"):
        run.add_decompressed([], b"", [0])
    for ends in ([-1], [6], [2**62]):
        with pytest.raises(IndexError):
            run.add_decompressed(parts, b"12345", ends)
        assert COMPRESSED == RowBuilder(["offset"], **UNLIMITED).add_run(run)
    # Records of another batch are compared with the header of this one.
    run.add_decompressed(parts, b"12345", [5])
    assert ELSEWHERE == RowBuilder(["offset"], **UNLIMITED).add_run(run)


def test_decompressed_memory_is_released_after_its_rows_are_copied() -> None:
    """The memory can be resized then."""
    data = packed(header_for(MIXED), MIXED_PAYLOAD, Codec.GZIP)
    run, memory = run_of(data), bytearray(MIXED_PAYLOAD)
    parts = run.list_compressed(1)
    run.add_decompressed(parts, memory, [len(memory)])
    with pytest.raises(BufferError):
        memory.clear()
    assert OK == RowBuilder(["offset"], **UNLIMITED).add_run(run)
    memory.clear()
    assert 1 == run.batch_count
