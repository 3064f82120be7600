"""Tests of gzip by either library: the same content, and the strict one before a write."""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from kafkalog import CorruptRecordError, InvalidRecordError, Record
from kafkalog._core.builder import BatchBuilder
from kafkalog.records import gzip_members
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec, decompress
from tests.support.logs import manual_log

LIMIT_BYTES = 1 << 16
FLAGS_POSITION = 3
UNDEFINED_FLAG = 0x20


def libraries() -> dict[str, Any]:
    """Return both libraries: this package's developers have the other one installed."""
    isal_zlib = import_module("isal.isal_zlib")
    return {
        "zlib": gzip_members._ZLIB,
        "isal": gzip_members._Library(isal_zlib.decompressobj, isal_zlib.error),
    }


@pytest.fixture(params=["zlib", "isal"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Let one of them be the fastest."""
    chosen = libraries()[request.param]
    monkeypatch.setattr(gzip_members, "_fastest", lambda: chosen)
    yield request.param


def member(data: bytes, level: int = 6, strategy: int = 0) -> bytes:
    """Return one member."""
    packer = zlib.compressobj(level, zlib.DEFLATED, 31, 8, strategy)
    return packer.compress(data) + packer.flush()


def outcome(data: bytes, *, exact: bool = False, limit_bytes: int = LIMIT_BYTES) -> bytes | None:
    """Return the content, None if it is refused."""
    try:
        return gzip_members.decompress(memoryview(data), limit_bytes, exact=exact)
    except CorruptRecordError as error:
        assert str(error).startswith("gzip data: ")
        return None


@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_gzip_content_round_trips(library: str, level: int) -> None:
    """Empty, short, and longer than any internal buffer."""
    source = random.Random(level)
    for size in (0, 1, 1000, 70_000, 900_000):
        data = source.randbytes(size // 2) + b"abc" * (size // 6)
        assert data == outcome(member(data, level), limit_bytes=len(data))
        if data:
            assert None is outcome(member(data, level), limit_bytes=len(data) - 1), library


def test_gzip_members_are_joined_and_junk_after_them_is_refused(library: str) -> None:
    """Bytes that begin as a member must be one."""
    packed = member(b"one") + member(b"") + member(b"two" * 9000)
    expected = b"one" + b"two" * 9000
    for behind in (b"", b"tail", bytes(20_000), b"\x1f\x8b"):
        assert expected == outcome(packed + behind), library
    for size in range(3, len(member(b"x"))):
        assert None is outcome(packed + member(b"x")[:size])


def test_gzip_prefix_is_refused(library: str) -> None:
    """At every length."""
    packed = member(random.Random(5).randbytes(200) + bytes(300))
    for size in range(len(packed)):
        assert None is outcome(packed[:size]), (library, size)


@pytest.mark.parametrize("strategy", [zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY, zlib.Z_FIXED])
def test_gzip_flipped_bit_never_yields_wrong_content(library: str, strategy: int) -> None:
    """Members that zlib accepts are accepted; others are refused or yield the content."""
    for data in (b"hello world " * 20 + random.Random(7).randbytes(60), b"k" * 40):
        packed = member(data, strategy=strategy)
        for bit in range(8 * len(packed)):
            damaged = bytearray(packed)
            damaged[bit // 8] ^= 1 << bit % 8
            found, strict = outcome(bytes(damaged)), outcome(bytes(damaged), exact=True)
            if strict is not None or library == "zlib":
                assert strict == found
            else:
                assert found in (None, data), bit


def test_gzip_without_the_extra_is_read_by_zlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """And by the other library if it is installed."""
    choose = gzip_members._fastest.__wrapped__
    assert "isal" in choose().inflater.__module__
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    assert gzip_members._ZLIB == choose()


def test_gzip_with_an_undefined_flag_is_refused_by_a_leader(tmp_path: Path, library: str) -> None:
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
    if library == "isal":
        assert [b"v" * 200] == [record.value for record in BatchView(batch).records()]
    with pytest.raises(CorruptRecordError):
        decompress(Codec.GZIP, bytes(payload), exact=True)
