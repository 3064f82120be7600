"""Tests of the snappy decoder, compared with another implementation on any bytes."""

from __future__ import annotations

import random

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.snappy_blocks import decode_stream
from kafkalog.errors import CorruptRecordError
from tests.support.buffers import BUFFER_KINDS, exact
from tests.support.examples import examples
from tests.support.payloads import contents

LIMIT_BYTES = 1 << 20
HEADER = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


def packed(data: bytes) -> bytes:
    """Return one raw block."""
    return bytes(cramjam.snappy.compress_raw(data))


def framed(*blocks: bytes) -> bytes:
    """Return raw blocks after the header."""
    return HEADER + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


def varint(value: int) -> bytes:
    """Return an unsigned varint."""
    head = b""
    while value > 0x7F:
        head += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return head + bytes((value,))


def verdict_of_peer(block: bytes) -> bytes | None:
    """Return the content of a raw block by the other implementation, None if it refuses."""
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError:
        return None


def verdict_of_ours(data: bytes) -> bytes | None:
    """Return the content of a stream by the kernel, None if it refuses."""
    try:
        return decode_stream(exact(data), limit_bytes=LIMIT_BYTES)
    except CorruptRecordError:
        return None


def test_snappy_blocks_of_all_contents_round_trip() -> None:
    """Sizes around a block, compressible and random contents; raw and framed."""
    for data in contents():
        assert data == verdict_of_ours(packed(data))
        pieces = [data[start : start + 1000] for start in range(0, len(data), 1000)]
        assert data == verdict_of_ours(framed(*map(packed, pieces)))


@pytest.mark.parametrize("distance", [*range(1, 20), 31, 33, 100, 2047, 2048, 70_000])
def test_snappy_copies_of_all_kinds_decode(distance: int) -> None:
    """Distances of one, two and four bytes; lengths below, at and above the stride of a copy."""
    source = random.Random(distance).randbytes(distance)
    count = len(source) - 1
    tag = bytes((61 << 2,)) if distance > 255 else b""
    if distance <= 60:
        literals = bytes((count << 2,)) + source
    elif distance <= 256:
        literals = bytes((60 << 2, count)) + source
    elif distance <= 65536:
        literals = tag + count.to_bytes(2, "little") + source
    else:
        literals = bytes((62 << 2,)) + count.to_bytes(3, "little") + source
    for length in range(1, 65):
        copies = [bytes((length - 1 << 2 | 3,)) + distance.to_bytes(4, "little")]
        if distance < 65536:
            copies.append(bytes((length - 1 << 2 | 2,)) + distance.to_bytes(2, "little"))
        if distance < 2048 and 4 <= length < 12:
            copies.append(bytes((distance >> 8 << 5 | length - 4 << 2 | 1, distance & 255)))
        data = (source * (length // distance + 2))[: distance + length]
        for copy in copies:
            assert data == verdict_of_ours(varint(len(data)) + literals + copy)


@settings(max_examples=examples(300))
@given(
    data=st.lists(
        st.one_of(st.binary(max_size=80), st.sampled_from([b"abcabcabc" * 9, bytes(300)])),
        max_size=12,
    ).map(b"".join),
    edits=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 5),
)
def test_snappy_blocks_edited_have_the_verdict_of_the_peer(
    data: bytes, edits: list[tuple[int, int]], cut: int
) -> None:
    """Bytes are overwritten or the end is cut: equal contents, or refused by both."""
    block = bytearray(packed(data))
    for position, value in edits:
        block[position % len(block)] = value
    hostile = bytes(block[: len(block) - cut])
    if hostile[:4] == HEADER[:4] or not hostile:
        return
    assert verdict_of_peer(hostile) == verdict_of_ours(hostile)


@settings(max_examples=examples(300))
@given(tags=st.binary(max_size=60), size=st.integers(0, 700))
def test_snappy_blocks_of_random_tags_have_the_verdict_of_the_peer(tags: bytes, size: int) -> None:
    """Random bytes after a size that may be right."""
    block = varint(size) + tags
    assert verdict_of_peer(block) == verdict_of_ours(block)


def test_snappy_wrong_declared_size_is_refused() -> None:
    """The size is one more or one less than the content, or impossible for any tags."""
    for size in (22, 24):
        assert None is verdict_of_ours(bytes((size,)) + packed(b"hello hello hello hello")[1:])
    with pytest.raises(CorruptRecordError, match="cannot hold what it declares"):
        decode_stream(varint(100) + b"\x00a", limit_bytes=LIMIT_BYTES)


def test_snappy_one_byte_over_the_limit_is_refused() -> None:
    """All blocks together: a limit equal to the size passes, one byte less is refused."""
    stream = framed(*[packed(bytes(1000))] * 3)
    assert bytes(3000) == decode_stream(stream, limit_bytes=3000)
    for limit in (2999, 1000, 0):
        with pytest.raises(CorruptRecordError, match=f"more than {limit} bytes"):
            decode_stream(stream, limit_bytes=limit)


@pytest.mark.parametrize("kind", BUFFER_KINDS)
def test_snappy_from_any_buffer_decodes(kind: str) -> None:
    """Read-only and writable, mapped and in memory."""
    source = BUFFER_KINDS[kind](framed(packed(b"one" * 40), packed(b"two")))
    assert b"one" * 40 + b"two" == decode_stream(source, limit_bytes=LIMIT_BYTES)


def test_snappy_negative_limit_raises_value_error() -> None:
    """A mistake of the caller is not reported as damage."""
    with pytest.raises(ValueError, match="limit_bytes must not be negative, got -1"):
        decode_stream(b"\x00", limit_bytes=-1)
