"""Tests of batches decompressed together by libraries, compared with each batch alone."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.zstd_frames import walk_frame
from kafkalog.errors import CorruptRecordError
from kafkalog.records.codecs import Codec, compress, decompress
from kafkalog.records.decompressed_batches import DecompressedBatches
from tests.support.buffers import exact
from tests.support.damage import flipped

LIMIT_BYTES = 16 << 20
SMALL = b"some words, some words again, and some more of the words" * 9


def frame_of(content: bytes, **how: Any) -> bytes:
    """Return a frame as some writer makes it."""
    compressor = zstandard.ZstdCompressor(level=3, **how)
    return compressor.compress(content)


def alone(codec: Codec, data: bytes, limit_bytes: int) -> bytes | None:
    """Return the content of a stream; None if it is refused."""
    try:
        return decompress(codec, data, limit_bytes=limit_bytes)
    except CorruptRecordError:
        return None


def filled(
    run: DecompressedBatches, streams: list[tuple[Codec, bytes]], limit_bytes: int = LIMIT_BYTES
) -> list[bytes]:
    """Return the result of a run for streams that are adjacent in memory."""
    data, parts = b"", []
    for codec, stream in streams:
        parts.append((int(codec), len(data), len(data) + len(stream)))
        data += stream
    count = run.fill(memoryview(exact(data)), parts, limit_bytes)
    assert count == len(run.ends)
    return [bytes(run.memory[start:end]) for start, end in pairwise([0, *run.ends])]


@settings(max_examples=40)
@given(
    contents=st.lists(
        st.tuples(st.sampled_from([Codec.ZSTD, Codec.GZIP]), st.binary(max_size=300)), max_size=5
    )
)
def test_streams_in_one_run_are_decompressed(contents: list[tuple[Codec, bytes]]) -> None:
    """All of them, for any order of codecs, and twice by the same run."""
    run = DecompressedBatches()
    streams = [(codec, compress(codec, content)) for codec, content in contents]
    for _ in range(2):
        assert [content for _, content in contents] == filled(run, streams)


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.GZIP])
def test_stream_refused_ends_the_run(codec: Codec) -> None:
    """The streams before it are returned."""
    good = (codec, compress(codec, SMALL))
    bad = (codec, good[1][:-3])
    assert [SMALL, SMALL] == filled(DecompressedBatches(), [good, good, bad, good])
    assert [] == filled(DecompressedBatches(), [bad, good])
    assert [] == filled(DecompressedBatches(), [good], limit_bytes=len(SMALL) - 1)
    assert [SMALL] == filled(DecompressedBatches(), [good], limit_bytes=len(SMALL))


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("size_known", [False, True])
def test_damaged_frame_gives_the_same_alone_and_in_a_run(checksum: bool, size_known: bool) -> None:
    """Each flipped bit, and each prefix, of frames with and without content size and checksum."""
    content = SMALL[:120] + random.Random(5).randbytes(40)
    frame = frame_of(content, write_checksum=checksum, write_content_size=size_known)
    cases = [flipped(frame, [(bit // 8, bit % 8)]) for bit in range(8 * len(frame))]
    cases += [frame[:size] for size in range(len(frame))]
    # Consecutive frames, skippable ones, bytes that are no frame.
    skippable = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    cases += [frame * 2, skippable + frame, frame + skippable, frame + b"x", b""]
    run = DecompressedBatches()
    for limit_bytes in (LIMIT_BYTES, len(content), len(content) - 1):
        for case in cases:
            expected = alone(Codec.ZSTD, case, limit_bytes)
            found = filled(run, [(Codec.ZSTD, case)], limit_bytes)
            assert ([] if expected is None else [expected]) == found


def test_run_ends_at_its_limits() -> None:
    """After enough rows, or before a stream that does not fit; the first always fits."""
    content = random.Random(6).randbytes(100_000)
    for codec in (Codec.ZSTD, Codec.GZIP):
        stream = (codec, compress(codec, content))
        assert 3 == len(filled(DecompressedBatches(), [stream] * 5))
    small, large, huge = ((Codec.ZSTD, frame_of(bytes(size))) for size in (10, 1 << 20, 9 << 20))
    run = DecompressedBatches()
    assert [bytes(10)] == filled(run, [small, large])
    assert [bytes(1 << 20)] == filled(run, [large, small])
    assert [bytes(10), bytes(1 << 20)] == filled(run, [small, large][:1]) + filled(run, [large])
    assert [bytes(9 << 20)] == filled(run, [huge, small])
    assert [bytes(10)] == filled(run, [small, huge])
    gzip_huge = (Codec.GZIP, compress(Codec.GZIP, bytes(9 << 20)))
    assert [bytes(9 << 20)] == filled(run, [gzip_huge, small])
    assert [bytes(10)] == filled(run, [small, gzip_huge])


def test_wide_window_is_decompressed_alone() -> None:
    """The stream would keep memory for it; the content is the same."""
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=25)
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    stream = compressor.compressobj()
    frame = stream.compress(SMALL) + stream.flush()
    walked = walk_frame(frame, 0)
    assert walked is not None and 1 << 25 == walked[3]
    assert [SMALL] == filled(DecompressedBatches(), [(Codec.ZSTD, frame)])


def test_walk_outside_the_data_raises() -> None:
    """A skippable frame is not a data frame."""
    frame = frame_of(SMALL)
    assert walk_frame(frame, 1) is None
    assert walk_frame(frame, len(frame)) is None
    for position in (-1, len(frame) + 1):
        with pytest.raises(ValueError, match="position"):
            walk_frame(frame, position)
