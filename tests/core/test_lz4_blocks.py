"""Tests of the LZ4 decoder, compared with the library on valid and hostile blocks."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import lz4.block
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.lz4_blocks import decode_blocks
from kafkalog.errors import CorruptRecordError
from tests.support.buffers import BUFFER_KINDS, exact
from tests.support.examples import examples
from tests.support.payloads import contents

BLOCK_SIZE = 65536
LIMIT_BYTES = 1 << 20
END_MARK = bytes(4)
STORED = 0x8000_0000


def framed(*blocks: bytes) -> bytes:
    """Return compressed blocks as in a frame, with the end mark."""
    return b"".join(struct.pack("<I", len(block)) + block for block in blocks) + END_MARK


def decode(data: bytes, **options: int) -> bytes:
    """Decode from a buffer of exact size, and assert that all bytes were consumed."""
    sizes = {"block_size_max": BLOCK_SIZE, "limit_bytes": LIMIT_BYTES} | options
    content, end = decode_blocks(exact(data), 0, **sizes)
    assert len(data) == end
    return content


def verdict_of_library(block: bytes) -> bytes | None:
    """Return the content of one block by the reference library, None if it refuses."""
    try:
        decoded: bytes = lz4.block.decompress(block, uncompressed_size=BLOCK_SIZE)
    except lz4.block.LZ4BlockError:
        return None
    return decoded


def verdict_of_ours(block: bytes) -> bytes | None:
    """Return the content of one block by the kernel, None if it refuses."""
    try:
        return decode(framed(block))
    except CorruptRecordError:
        return None


def has_distance_of_zero(block: bytes) -> bool:
    """Return whether a match of the block has distance 0, which the library accepts."""
    source = iter(block)
    try:
        while True:
            token = next(source)
            for _ in range(length_of(token >> 4, source)):
                next(source)
            if next(source) == next(source) == 0:
                return True
            length_of(token & 15, source)
    except StopIteration:
        return False


def length_of(half: int, source: Iterator[int]) -> int:
    """Return a length whose first part is half a token."""
    length = byte = half
    if half == 15:
        byte = 255
    while byte == 255:
        byte = next(source)
        length += byte
    return length


@pytest.mark.parametrize("level", [0, 9])
def test_lz4_blocks_of_all_contents_round_trip(level: int) -> None:
    """Sizes around a block, compressible and random contents, both compressors."""
    for data in contents():
        pieces = [data[start : start + BLOCK_SIZE] for start in range(0, len(data), BLOCK_SIZE)]
        mode = {"mode": "high_compression", "compression": level} if level else {}
        blocks = [lz4.block.compress(piece, store_size=False, **mode) for piece in pieces]
        if all(len(block) <= BLOCK_SIZE for block in blocks):
            assert data == decode(framed(*blocks))


@pytest.mark.parametrize("distance", [*range(1, 20), 31, 32, 33, 64, 100])
def test_lz4_blocks_with_matches_of_all_distances_and_lengths_decode(distance: int) -> None:
    """Overlapping copies: shorter than a stride, equal, longer."""
    source = random.Random(distance).randbytes(distance)
    for length in (*range(4, 40), 63, 64, 65, 300, 1000):
        data = (source * (length // distance + 2))[: distance + length]
        token = bytes((min(distance, 15) << 4 | min(length - 4, 15),))
        match = struct.pack("<H", distance) + more_of(length - 4)
        tail = bytes(range(12))
        block = token + more_of(distance) + source + match + b"\xc0" + tail
        assert data + tail == decode(framed(block))
        assert data + tail == verdict_of_library(block)


def more_of(length: int) -> bytes:
    """Return the bytes after the token for a length above its four bits."""
    return b"" if length < 15 else b"\xff" * ((length - 15) // 255) + bytes(((length - 15) % 255,))


@settings(max_examples=examples(300))
@given(
    data=st.lists(
        st.one_of(st.binary(max_size=40), st.sampled_from([b"abcabcabc" * 9, bytes(300)])),
        max_size=12,
    ).map(b"".join),
    edits=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 5),
)
def test_lz4_blocks_edited_have_the_verdict_of_the_library(
    data: bytes, edits: list[tuple[int, int]], cut: int
) -> None:
    """Bytes are overwritten or the end is cut: equal contents, or refused by both."""
    block = bytearray(lz4.block.compress(data, store_size=False))
    for position, value in edits:
        block[position % len(block)] = value
    hostile = bytes(block[: len(block) - cut])
    if not hostile:
        return
    expected = verdict_of_library(hostile)
    actual = verdict_of_ours(hostile)
    assert expected == actual or (actual is None and has_distance_of_zero(hostile))


@settings(max_examples=examples(300))
@given(block=st.binary(min_size=1, max_size=60))
def test_lz4_blocks_of_random_bytes_have_the_verdict_of_the_library(block: bytes) -> None:
    """The blocks are random bytes."""
    expected = verdict_of_library(block)
    actual = verdict_of_ours(block)
    assert expected == actual or (actual is None and has_distance_of_zero(block))


def test_lz4_blocks_distance_of_zero_is_refused() -> None:
    """The format has no distance 0: no byte could be repeated."""
    assert None is verdict_of_ours(b"\x10a\x00\x00" + b"\xc0" + bytes(12))


def test_lz4_blocks_stored_and_compressed_are_joined() -> None:
    """Bit 31 of the size marks stored data."""
    stored = struct.pack("<I", 5 | STORED) + b"plain"
    data = bytes(1000)
    packed = framed(lz4.block.compress(data, store_size=False))
    assert b"plain" + data == decode(stored + packed)
    assert b"plainplain" == decode(stored * 2 + END_MARK)


def test_lz4_blocks_every_prefix_is_refused() -> None:
    """The end mark is required."""
    data = framed(lz4.block.compress(bytes(200) + b"x" * 30, store_size=False))
    for size in range(len(data)):
        with pytest.raises(CorruptRecordError, match="the stream ends"):
            decode(data[:size])


def test_lz4_blocks_one_byte_over_the_limit_are_refused() -> None:
    """A limit equal to the size passes, one byte less is refused."""
    data = framed(*[lz4.block.compress(bytes(BLOCK_SIZE), store_size=False)] * 5)
    total = 5 * BLOCK_SIZE
    assert bytes(total) == decode(data, limit_bytes=total)
    for limit in (total - 1, BLOCK_SIZE, 1, 0):
        with pytest.raises(CorruptRecordError, match=f"more than {limit} bytes"):
            decode(data, limit_bytes=limit)
    assert b"" == decode(END_MARK, limit_bytes=0)


def test_lz4_blocks_larger_than_declared_inside_are_refused() -> None:
    """A small block decompresses to more than the frame's block size."""
    data = framed(lz4.block.compress(bytes(BLOCK_SIZE + 1), store_size=False))
    with pytest.raises(CorruptRecordError, match="does not decompress"):
        decode(data)
    assert bytes(BLOCK_SIZE + 1) == decode(data, block_size_max=4 * BLOCK_SIZE)


@pytest.mark.parametrize("kind", BUFFER_KINDS)
def test_lz4_blocks_from_any_buffer_and_position_decode(kind: str) -> None:
    """Bytes before the position and after the end mark are ignored."""
    data = framed(lz4.block.compress(b"hello" * 50, store_size=False))
    source = BUFFER_KINDS[kind](b"before!" + data + b"after")
    content, end = decode_blocks(source, 7, block_size_max=BLOCK_SIZE, limit_bytes=LIMIT_BYTES)
    assert (b"hello" * 50, 7 + len(data)) == (content, end)


@pytest.mark.parametrize(
    ("position", "block_size_max", "limit_bytes"), [(-1, 9, 9), (5, 9, 9), (0, 0, 9), (0, 9, -1)]
)
def test_lz4_blocks_arguments_out_of_range_raise_value_error(
    position: int, block_size_max: int, limit_bytes: int
) -> None:
    """A mistake of the caller is not reported as damage."""
    with pytest.raises(ValueError, match=r"position must be in 0 to \d, .*, got -?\d, "):
        decode_blocks(END_MARK, position, block_size_max=block_size_max, limit_bytes=limit_bytes)
