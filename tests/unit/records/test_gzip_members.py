"""Tests of gzip by either library: the same content, and the strict one before a write."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest

from kafkalog import CorruptRecordError, InvalidRecordError, Record
from kafkalog._core.builder import BatchBuilder
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec, decompress
from kafkalog.records.gzip_members import ISAL, ZLIB, GzipLibrary, find_library, inflate
from tests.support.logs import manual_log

LIMIT_BYTES = 1 << 16
FLAGS_POSITION = 3
UNDEFINED_FLAG = 0x20


@pytest.fixture(params=["zlib", ISAL])
def library(request: pytest.FixtureRequest) -> GzipLibrary:
    """Return one library, then the other, which developers of this package have installed."""
    found = find_library(request.param)
    assert request.param == found.inflater.__module__
    return found


def member(data: bytes, level: int = 6, strategy: int = 0) -> bytes:
    """Return one member."""
    packer = zlib.compressobj(level, zlib.DEFLATED, 31, 8, strategy)
    return packer.compress(data) + packer.flush()


def outcome(library: GzipLibrary, data: bytes, limit_bytes: int = LIMIT_BYTES) -> bytes | None:
    """Return the content, None if it is refused."""
    try:
        return inflate(library, memoryview(data), limit_bytes)
    except CorruptRecordError as error:
        assert str(error).startswith("gzip data: ")
        return None


@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_gzip_content_round_trips(library: GzipLibrary, level: int) -> None:
    """Empty, short, and longer than any internal buffer."""
    source = random.Random(level)
    for size in (0, 1, 1000, 70_000, 900_000):
        data = source.randbytes(size // 2) + b"abc" * (size // 6)
        assert data == outcome(library, member(data, level), limit_bytes=len(data))
        if data:
            assert None is outcome(library, member(data, level), limit_bytes=len(data) - 1), library


def test_gzip_members_are_joined_and_junk_after_them_is_refused(library: GzipLibrary) -> None:
    """Bytes that begin as a member must be one."""
    packed = member(b"one") + member(b"") + member(b"two" * 9000)
    expected = b"one" + b"two" * 9000
    for behind in (b"", b"tail", bytes(20_000), b"\x1f\x8b"):
        assert expected == outcome(library, packed + behind), library
    for size in range(3, len(member(b"x"))):
        assert None is outcome(library, packed + member(b"x")[:size])


def test_gzip_prefix_is_refused(library: GzipLibrary) -> None:
    """At every length."""
    packed = member(random.Random(5).randbytes(200) + bytes(300))
    for size in range(len(packed)):
        assert None is outcome(library, packed[:size]), (library, size)


@pytest.mark.parametrize("strategy", [zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY, zlib.Z_FIXED])
def test_gzip_flipped_bit_never_yields_wrong_content(library: GzipLibrary, strategy: int) -> None:
    """Members that zlib accepts are accepted; others are refused or yield the content."""
    for data in (b"hello world " * 20 + random.Random(7).randbytes(60), b"k" * 40):
        packed = member(data, strategy=strategy)
        for bit in range(8 * len(packed)):
            damaged = bytearray(packed)
            damaged[bit // 8] ^= 1 << bit % 8
            found, strict = outcome(library, bytes(damaged)), outcome(ZLIB, bytes(damaged))
            if strict is not None or library is ZLIB:
                assert strict == found
            else:
                assert found in (None, data), bit


def test_gzip_without_the_extra_is_read_by_zlib() -> None:
    """And by the other library if it is installed."""
    assert ISAL == find_library().inflater.__module__
    assert ZLIB is find_library("isal.of_no_wheel")


def test_gzip_with_an_undefined_flag_is_refused_by_a_leader(tmp_path: Path) -> None:
    """Other clients refuse it, so it must not get into a log, with either library."""
    builder = BatchBuilder()
    builder.extend_records([Record(key=b"k", value=b"v" * 200)], 0, 1, 1 << 20)
    payload = bytearray(member(bytes(builder.payload())))
    payload[FLAGS_POSITION] |= UNDEFINED_FLAG
    batch = bytes(builder.finish(codec=Codec.GZIP, payload=bytes(payload)))
    with manual_log(tmp_path / "t-0") as log:
        with pytest.raises(InvalidRecordError, match="gzip data: "):
            log.append_batches(batch)
        assert 0 == log.log_end_offset
    assert [b"v" * 200] == [record.value for record in BatchView(batch).records()]
    with pytest.raises(CorruptRecordError):
        decompress(Codec.GZIP, bytes(payload), exact=True)
