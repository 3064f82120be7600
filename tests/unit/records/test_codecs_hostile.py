"""Tests of codecs with hostile input: prefixes, flips, random bytes, bombs, many threads."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.errors import CorruptRecordError
from kafkalog.records.codecs import Codec, compress, decompress
from tests.support.payloads import COMPRESSING, HELLO

ROOT = Path(__file__).resolve().parents[3]
LIMIT_BYTES = 1 << 20


def decompress_or_refuse(codec: Codec, data: bytes) -> None:
    """Assert the law of hostile input: a result within the limit or the typed error."""
    try:
        result = decompress(codec, data, limit_bytes=LIMIT_BYTES)
    except CorruptRecordError:
        return
    assert len(result) <= LIMIT_BYTES


@pytest.mark.parametrize("codec", COMPRESSING)
def test_decompress_every_prefix_is_refused_or_shorter(codec: Codec) -> None:
    """A truncated stream never yields the whole content; only snappy has no end mark."""
    data = random.Random(2).randbytes(300) + bytes(300)
    packed = compress(codec, data)
    for size in range(len(packed)):
        if codec is Codec.SNAPPY and 16 <= size < 20:
            assert b"" == decompress(codec, packed[:size])
        else:
            with pytest.raises(CorruptRecordError):
                decompress(codec, packed[:size])


@pytest.mark.parametrize("codec", COMPRESSING)
def test_decompress_every_flipped_bit_is_refused_or_bounded(codec: Codec) -> None:
    """Each bit of a small stream in turn."""
    packed = compress(codec, HELLO * 40 + random.Random(4).randbytes(60))
    for bit in range(8 * len(packed)):
        damaged = bytearray(packed)
        damaged[bit // 8] ^= 1 << bit % 8
        decompress_or_refuse(codec, bytes(damaged))


@pytest.mark.parametrize("codec", COMPRESSING)
@settings(max_examples=150)
@given(data=st.binary(max_size=200))
def test_decompress_random_bytes_are_refused_or_bounded(codec: Codec, data: bytes) -> None:
    """Alone, and after the beginning of a real stream."""
    decompress_or_refuse(codec, data)
    start = compress(codec, HELLO)
    for size in (4, 7, 16, len(start)):
        decompress_or_refuse(codec, start[:size] + data)


@pytest.mark.parametrize("codec", COMPRESSING)
@settings(max_examples=100)
@given(
    data=st.binary(max_size=3000), edits=st.lists(st.tuples(st.integers(0), st.integers(0, 255)))
)
def test_decompress_edited_streams_are_refused_or_bounded(
    codec: Codec, data: bytes, edits: list[tuple[int, int]]
) -> None:
    """Streams of any content with any bytes overwritten."""
    packed = bytearray(compress(codec, data))
    for position, value in edits:
        packed[position % len(packed)] = value
    decompress_or_refuse(codec, bytes(packed))


BOMBS = """
import resource, struct, sys, zlib
from kafkalog.errors import CorruptRecordError
from kafkalog.records.codecs import Codec, compress, decompress

GIB = 1 << 30
def gzip_bomb():
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([packer.compress(bytes(1 << 22)) for _ in range(256)] + [packer.flush()])
def lz4_bomb():
    frame = compress(Codec.LZ4, bytes(65536))
    return frame[:7] + frame[7:-4] * (GIB >> 16) + frame[-4:]
def snappy_bomb():
    stream = compress(Codec.SNAPPY, bytes(32768))
    return stream[:16] + stream[16:] * (GIB >> 15)
def zstd_bomb():
    run = (0x20000 << 3 | 2).to_bytes(3, "little") + b"a"
    last = (0x20000 << 3 | 3).to_bytes(3, "little") + b"a"
    return b"\\x28\\xb5\\x2f\\xfd\\x00\\x58" + run * (GIB >> 17) + last
limit = 8 << 20
bombs = {Codec.GZIP: gzip_bomb(), Codec.LZ4: lz4_bomb(), Codec.SNAPPY: snappy_bomb(),
         Codec.ZSTD: zstd_bomb()}
for codec in bombs:
    decompress(codec, compress(codec, bytes(1000)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for codec, bomb in bombs.items():
    try:
        decompress(codec, bomb, limit_bytes=limit)
    except CorruptRecordError as error:
        assert "more than 8388608 bytes" in str(error), error
    else:
        sys.exit(f"{codec!r} was not refused")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_decompress_bombs_take_no_more_memory_than_the_limit() -> None:
    """A gigabyte in a small stream of each codec, and a limit of 8 MiB."""
    command = [sys.executable, "-c", BOMBS]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (0, "") == (done.returncode, done.stderr)
    # Twice the limit: the pieces, and the buffer that joins them.
    assert int(done.stdout) < 24 * 1024


def test_gzip_thousands_of_tiny_members_are_read_in_linear_time() -> None:
    """Each leftover is copied once for a piece, not once for the whole rest."""
    member = gzip.compress(b"x")
    assert b"x" * 20_000 == decompress(Codec.GZIP, member * 20_000)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_codec_from_several_threads_is_right(codec: Codec) -> None:
    """Contexts are one for each thread."""
    failures: list[int] = []

    def work(seed: int) -> None:
        source = random.Random(seed)
        for _ in range(40):
            data = source.randbytes(500) + bytes(source.randrange(90_000))
            level = source.choice([1, 2, 4, 5, 6, 7]) if codec is Codec.ZSTD else None
            if data != decompress(codec, compress(codec, data, level)):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == failures
