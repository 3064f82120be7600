"""Zstd undone by kernels through a shared library: as the package has it, or left to it."""

from __future__ import annotations

from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.columns import RecordColumns
from kafkalog._core.compressed_decode import PayloadMemory, decode_compressed_run
from kafkalog._core.row_builder import RowBuilder
from kafkalog._core.status import STATUS_CODES
from kafkalog._core.zstd_library import set_used, use
from kafkalog.records.codecs import Codec, compress
from kafkalog.records.zstd_library import load_zstd_library
from tests.core.test_arrow_decode_compressed import (
    HOSTILE,
    LIMIT_BYTES,
    Hostile,
    assert_as_by_itself,
    damaged,
    packed,
    run_of,
    with_payload,
)
from tests.core.test_compressed_decode import assert_taken_or_left, rows_alone, rows_in
from tests.core.test_row_builder import BINARY_TYPES, UNLIMITED
from tests.support import reference_records as reference
from tests.support.buffers import exact
from tests.support.damage import flipped
from tests.support.examples import examples
from tests.support.record_cases import MIXED_PAYLOAD, header_for
from tests.support.reference import encode_batch
from tests.support.reference_records import Entry

OK = STATUS_CODES["OK"]
COMPRESSED = STATUS_CODES["COMPRESSED"]

HAS_LIBRARY = load_zstd_library()
set_used(False)
needs_library = pytest.mark.skipif(not HAS_LIBRARY, reason="there is no such library")


@pytest.fixture(name="zstd_library")
def fixture_zstd_library(fixture_no_zstd_library: None) -> None:
    """Kernels call the library."""
    set_used(True)


def frame_of(content: bytes, **how: Any) -> bytes:
    """Return a frame as some writer makes it."""
    return zstandard.ZstdCompressor(level=3, **how).compress(content)


@needs_library
@settings(max_examples=examples(60))
@given(hostile=HOSTILE, strict=st.booleans(), binary_type=st.sampled_from(BINARY_TYPES))
def test_hostile_frame_gives_what_the_package_makes_of_it_or_nothing(
    hostile: Hostile, strict: bool, binary_type: str
) -> None:
    """In columns of Arrow, and in those of positions behind a good batch."""
    set_used(True)
    assert_as_by_itself(damaged(Codec.ZSTD, hostile), hostile[2], binary_type)
    assert_taken_or_left(Codec.ZSTD, hostile, strict=strict)


@needs_library
@pytest.mark.parametrize("checksum", [False, True])
def test_every_flipped_bit_of_a_frame_gives_what_the_package_makes_of_it(
    checksum: bool, zstd_library: None
) -> None:
    """Each bit in turn, and each end."""
    payload = reference.encode([Entry(slot, slot, b"key", b"value" * 9) for slot in range(4)])
    made = header_for([Entry(slot, slot, None, None) for slot in range(4)], attributes=Codec.ZSTD)
    stream = frame_of(payload, write_checksum=checksum)
    cases = [flipped(stream, [(bit // 8, bit % 8)]) for bit in range(8 * len(stream))]
    cases += [stream[:size] for size in range(len(stream))]
    for case in cases:
        assert_as_by_itself(encode_batch(made, case), LIMIT_BYTES, "binary")


@needs_library
def test_frames_of_other_writers_are_taken_or_left(zstd_library: None) -> None:
    """With content size and checksum; several, or skippable ones, are for the package."""
    frame = frame_of(MIXED_PAYLOAD, write_content_size=True, write_checksum=True)
    half = len(MIXED_PAYLOAD) // 2
    two = frame_of(MIXED_PAYLOAD[:half]) + frame_of(MIXED_PAYLOAD[half:])
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"what"
    for stream, is_taken in (
        (frame, True),
        (compress(Codec.ZSTD, MIXED_PAYLOAD), True),
        (frame_of(MIXED_PAYLOAD, write_content_size=False), True),
        (two, False),
        (frame + skippable, False),
        (skippable + frame, False),
        (frame[:-1], False),
        (frame + b"behind", False),
        (b"", False),
    ):
        batch = with_payload(stream, Codec.ZSTD)
        assert is_taken == (OK == RowBuilder(["value"], **UNLIMITED).add_run(run_of(batch)))
        for limit_bytes in (len(MIXED_PAYLOAD) - 1, LIMIT_BYTES):
            assert_as_by_itself(batch, limit_bytes, "binary")


@needs_library
def test_content_that_does_not_shrink_or_is_one_byte_is_taken(zstd_library: None) -> None:
    """Blocks that are stored, and blocks of one byte again and again, of any number."""
    for value in (bytes(range(256)) * 3, bytes(300_000), b"", bytes(range(256)) * 1500):
        entries = [Entry(0, 0, b"k", value), Entry(1, 0, None, value[::-1])]
        batch = packed(header_for(entries), reference.encode(entries), Codec.ZSTD)
        columns, memory = RecordColumns(2), PayloadMemory()
        found = decode_compressed_run(exact(batch), 0, columns, memory)
        assert (2, 1, len(batch), OK) == found
        assert rows_alone(batch, 1 << 21) == rows_in(memory, columns)


@needs_library
def test_bomb_is_left_alone_by_the_library_too(zstd_library: None) -> None:
    """Far more than the limit may come out: no row is given, nor memory taken."""
    batch = with_payload(compress(Codec.ZSTD, bytes(8 << 20)), Codec.ZSTD)
    columns, memory = RecordColumns(100), PayloadMemory(1 << 20)
    assert (0, 0, 0, COMPRESSED) == decode_compressed_run(batch, 0, columns, memory)
    assert 0 == len(memory)


def test_library_that_is_not_used_decompresses_nothing() -> None:
    """As where there is none."""
    batch = with_payload(compress(Codec.ZSTD, MIXED_PAYLOAD), Codec.ZSTD)
    columns, memory = RecordColumns(100), PayloadMemory()
    assert (0, 0, 0, COMPRESSED) == decode_compressed_run(batch, 0, columns, memory)
    assert not set_used(False)


@needs_library
def test_library_is_used_once() -> None:
    """Whoever comes second says nothing new: a first that is loaded stays."""
    use(1, 1, 1, 1)
    assert load_zstd_library()
    set_used(True)
    batch = with_payload(compress(Codec.ZSTD, MIXED_PAYLOAD), Codec.ZSTD)
    assert OK == RowBuilder(["value"], **UNLIMITED).add_run(run_of(batch))
