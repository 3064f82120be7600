"""Tests of codec framings: valid and invalid streams that our own writer does not make."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from typing import Any

import lz4.frame
import pytest
import zstandard

from kafkalog.errors import CorruptRecordError, UnsupportedCodecError
from kafkalog.records import lz4_frame
from kafkalog.records.codecs import Codec, compress, decompress, is_codec_of
from tests.support import reference_codecs
from tests.support.payloads import HELLO

LIMIT_BYTES = 1 << 20

# -- gzip --------------------------------------------------------------------------------------


def test_gzip_members_are_joined() -> None:
    """Members follow each other; the limit is that of all together."""
    packed = b"".join(gzip.compress(part) for part in (b"one", b"", b"two" * 5000, b"three"))
    expected = b"one" + b"two" * 5000 + b"three"
    assert expected == decompress(Codec.GZIP, packed, limit_bytes=len(expected))
    with pytest.raises(CorruptRecordError, match=f"more than {len(expected) - 1} bytes"):
        decompress(Codec.GZIP, packed, limit_bytes=len(expected) - 1)


def test_gzip_truncated_second_member_is_refused() -> None:
    """Bytes that begin as a member must end as one."""
    member = gzip.compress(HELLO)
    for size in range(3, len(member)):
        with pytest.raises(CorruptRecordError):
            decompress(Codec.GZIP, member + member[:size])


def test_gzip_wrong_checksum_is_refused() -> None:
    """No other codec has a checksum of its content."""
    packed = bytearray(compress(Codec.GZIP, HELLO))
    packed[-5] ^= 1
    with pytest.raises(CorruptRecordError, match="gzip data: "):
        decompress(Codec.GZIP, packed)


def test_gzip_raw_deflate_and_zlib_are_refused() -> None:
    """Kafka writes the gzip wrapping only."""
    for packed in (zlib.compress(HELLO), zlib.compress(HELLO, wbits=-15)):
        with pytest.raises(CorruptRecordError):
            decompress(Codec.GZIP, packed)


# -- snappy ------------------------------------------------------------------------------------


def test_snappy_without_framing_is_one_raw_block() -> None:
    """Clients without the framing wrote this; 15 bytes or less are always raw."""
    for data in (b"", b"abc", HELLO, bytes(100_000)):
        framed = compress(Codec.SNAPPY, data)
        if data:
            blocks = compress(Codec.SNAPPY, data[:32768])[20:]
            assert data[:32768] == decompress(Codec.SNAPPY, blocks)
        assert data == decompress(Codec.SNAPPY, framed)
    assert b"" == decompress(Codec.SNAPPY, b"\x00")


def test_snappy_streams_are_joined_and_only_later_headers_are_checked() -> None:
    """The version of the first header is not checked, that of the next header is."""
    stream = compress(Codec.SNAPPY, HELLO)
    assert HELLO * 3 == decompress(Codec.SNAPPY, stream * 3)
    odd = bytearray(stream)
    odd[8:16] = bytes(8)
    assert HELLO * 2 == decompress(Codec.SNAPPY, odd + stream)
    for second in (odd, stream[:9], b"\x82SNAPPX\x00" + stream[8:]):
        with pytest.raises(CorruptRecordError, match="snappy data: "):
            decompress(Codec.SNAPPY, stream + second)


@pytest.mark.parametrize("spare", [b"\x00", b"\x00\x00", b"\x82SN"])
def test_snappy_end_within_a_length_is_the_end(spare: bytes) -> None:
    """There is no end mark: a remainder shorter than a length field is ignored."""
    assert HELLO == decompress(Codec.SNAPPY, compress(Codec.SNAPPY, HELLO) + spare)


@pytest.mark.parametrize("size", [0, -1, -(2**31), (512 << 20) + 1, 12])
def test_snappy_bad_block_size_is_refused(size: int) -> None:
    """Zero, negative, over 512 MiB, past the end."""
    stream = bytearray(compress(Codec.SNAPPY, HELLO))
    stream[16:20] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecordError, match="snappy data: "):
        decompress(Codec.SNAPPY, stream)


@pytest.mark.parametrize("declared", ["ffffffff0f", "8080808001", "ffffffffff01", "ff", ""])
def test_snappy_wrong_declared_size_is_refused(declared: str) -> None:
    """Gigabytes in a few bytes, and a varint that is too long, truncated or missing."""
    block = bytes.fromhex(declared) + b"\x00a"
    with pytest.raises(CorruptRecordError, match="snappy data: "):
        decompress(Codec.SNAPPY, block if declared else b"")


# -- lz4 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [4, 5, 6, 7])
@pytest.mark.parametrize("has_size", [False, True])
@pytest.mark.parametrize("has_checksum", [False, True])
def test_lz4_frames_of_other_writers_are_read(
    code: int, *, has_size: bool, has_checksum: bool
) -> None:
    """All block sizes, content size, checksums of blocks and of the content."""
    data = random.Random(9).randbytes(70_000) + bytes(100_000)
    frame = lz4.frame.compress(
        data,
        block_size=code,
        block_linked=False,
        store_size=has_size,
        block_checksum=has_checksum,
        content_checksum=has_checksum,
    )
    assert data == decompress(Codec.LZ4, frame, limit_bytes=len(data))
    assert data == decompress(Codec.LZ4, frame + b"ignored")
    for size in range(len(frame) - 9, len(frame)):
        with pytest.raises(CorruptRecordError):
            decompress(Codec.LZ4, frame[:size])


def test_lz4_checksum_of_a_block_is_verified_and_of_the_content_is_not() -> None:
    """As in a broker: the batch has its own checksum."""
    frame = bytearray(lz4.frame.compress(HELLO, store_size=False, block_checksum=True))
    frame[-5] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum of a block"):
        decompress(Codec.LZ4, frame)
    frame = bytearray(lz4.frame.compress(HELLO, store_size=False, content_checksum=True))
    frame[-1] ^= 1
    assert HELLO == decompress(Codec.LZ4, frame)


@pytest.mark.parametrize(
    ("flags", "descriptor"),
    [(0x20, 0x40), (0xA0, 0x40), (0x40, 0x40), (0x61, 0x40), (0x62, 0x40)]
    + [(0x60, each) for each in (0x00, 0x30, 0x41, 0x48, 0xC0)],
)
def test_lz4_header_outside_the_subset_is_refused(flags: int, descriptor: int) -> None:
    """Other versions, dependent blocks, dictionaries, reserved bits, unknown block sizes."""
    head = bytes((flags, descriptor))
    checksum = lz4_frame._header_checksum(head)
    frame = b"\x04\x22\x4d\x18" + head + bytes((checksum,)) + bytes(4)
    with pytest.raises(CorruptRecordError, match="lz4 data: "):
        decompress(Codec.LZ4, frame)


def test_lz4_wrong_header_checksum_is_refused_by_default() -> None:
    """Records of magic 0 always have it wrong; their reader disables the check."""
    frame = bytearray(compress(Codec.LZ4, HELLO))
    frame[6] = 0x1A
    with pytest.raises(CorruptRecordError, match="checksum of its header"):
        decompress(Codec.LZ4, frame)
    view = memoryview(frame)
    assert HELLO == lz4_frame.decompress(view, LIMIT_BYTES, check_header=False)


def test_lz4_of_magic_0_has_the_faulty_header_and_is_read_with_either() -> None:
    """The checksum is 1a where it should be 82, as every broker wrote it; nothing else differs."""
    faulty = compress(Codec.LZ4, HELLO, magic=0)
    right = compress(Codec.LZ4, HELLO, magic=1)
    assert (0x1A, 0x82) == (faulty[6], right[6])
    assert faulty == reference_codecs.compress(Codec.LZ4, HELLO, 0)[:7] + right[7:]
    for frame in (faulty, right):
        assert HELLO == decompress(Codec.LZ4, frame, magic=0)
    assert HELLO == decompress(Codec.LZ4, right, magic=1)
    with pytest.raises(CorruptRecordError, match="checksum of its header"):
        decompress(Codec.LZ4, faulty, magic=1)


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_refused_below_magic_2(magic: int) -> None:
    """In both directions; no old reader could read it."""
    with pytest.raises(UnsupportedCodecError, match=f"zstd does not exist in .* magic {magic}"):
        compress(Codec.ZSTD, HELLO, magic=magic)
    with pytest.raises(UnsupportedCodecError, match=f"zstd does not exist in .* magic {magic}"):
        decompress(Codec.ZSTD, compress(Codec.ZSTD, HELLO), magic=magic)


def test_is_codec_of_accepts_zstd_from_magic_2_on_and_five_numbers() -> None:
    """The codecs that a batch may have, installed or not."""
    numbers = [[number for number in range(8) if is_codec_of(magic, number)] for magic in range(3)]
    assert [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3, 4]] == numbers


def test_lz4_end_mark_with_the_stored_bit_ends_the_frame() -> None:
    """A stored block of no bytes is an end mark too."""
    frame = compress(Codec.LZ4, HELLO)[:-4] + b"\x00\x00\x00\x80"
    assert HELLO == decompress(Codec.LZ4, frame)


def test_lz4_second_frame_is_ignored() -> None:
    """Frames are not concatenated."""
    assert HELLO == decompress(Codec.LZ4, compress(Codec.LZ4, HELLO) * 2)


@pytest.mark.parametrize("stored", [0, 0x8000_0000])
def test_lz4_block_over_the_declared_maximum_is_refused(stored: int) -> None:
    """64 KiB are declared, the block has one byte more."""
    size = 65537
    frame = compress(Codec.LZ4, b"")[:7] + struct.pack("<I", size | stored) + bytes(size + 4)
    with pytest.raises(CorruptRecordError, match="65536 are the most"):
        decompress(Codec.LZ4, frame)


def test_lz4_declared_content_size_over_the_limit_is_refused_at_once() -> None:
    """Before any block is read."""
    head = b"\x68\x40" + (LIMIT_BYTES + 1).to_bytes(8, "little")
    frame = b"\x04\x22\x4d\x18" + head + bytes((lz4_frame._header_checksum(head),))
    with pytest.raises(CorruptRecordError, match=f"more than {LIMIT_BYTES} bytes"):
        decompress(Codec.LZ4, frame, limit_bytes=LIMIT_BYTES)


# -- zstd --------------------------------------------------------------------------------------


def zstd_frame(data: bytes, **options: Any) -> bytes:
    """A frame as other writers make it."""
    return zstandard.ZstdCompressor(**options).compress(data)


def skippable(content: bytes, number: int = 0) -> bytes:
    """A skippable frame."""
    return struct.pack("<II", 0x184D2A50 + number, len(content)) + content


def zstd_runs(count: int, *, declared: int | None = None) -> bytes:
    """A frame of `count` blocks, each one byte repeated 131,072 times."""
    head = b"\x28\xb5\x2f\xfd"
    head += b"\x00\x58" if declared is None else b"\xe0" + declared.to_bytes(8, "little")
    blocks = [(0x20000 << 3 | 2 | int(i == count - 1)).to_bytes(3, "little") for i in range(count)]
    return head + b"".join(block + b"a" for block in blocks)


@pytest.mark.parametrize("has_size", [False, True])
@pytest.mark.parametrize("has_checksum", [False, True])
@pytest.mark.parametrize("size", [0, 1, 255, 256, 65791, 65792, 300_000])
def test_zstd_frames_of_other_writers_are_read(
    size: int, *, has_size: bool, has_checksum: bool
) -> None:
    """All widths of the content size, with a checksum and without; every proper prefix is not."""
    data = (HELLO * (size // len(HELLO) + 1))[:size]
    frame = zstd_frame(data, write_content_size=has_size, write_checksum=has_checksum)
    assert data == decompress(Codec.ZSTD, frame, limit_bytes=size)
    for end in range(len(frame)):
        with pytest.raises(CorruptRecordError, match="zstd data: "):
            decompress(Codec.ZSTD, frame[:end])


def test_zstd_streaming_writer_with_an_empty_last_block_is_read() -> None:
    """A Java stream that was flushed before it was closed ends with `01 00 00`."""
    writer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    flush_block = zstandard.COMPRESSOBJ_FLUSH_BLOCK
    frame = writer.compress(HELLO) + writer.flush(flush_block) + writer.flush()
    assert "010000" == frame[-3:].hex()
    assert HELLO == decompress(Codec.ZSTD, frame)


def test_zstd_frames_are_joined_and_skippable_ones_skipped() -> None:
    """In any order; the limit is that of all together."""
    one, two = compress(Codec.ZSTD, HELLO), zstd_frame(b"two")
    data = skippable(b"", 15) + one + skippable(b"meta") + two + skippable(bytes(300), 7)
    expected = HELLO + b"two"
    assert expected == decompress(Codec.ZSTD, data, limit_bytes=len(expected))
    assert b"" == decompress(Codec.ZSTD, skippable(b"only"))
    with pytest.raises(CorruptRecordError, match=f"more than {len(expected) - 1} bytes"):
        decompress(Codec.ZSTD, data, limit_bytes=len(expected) - 1)
    for end in range(len(data) - 307, len(data)):
        with pytest.raises(CorruptRecordError):
            decompress(Codec.ZSTD, data[:end])


@pytest.mark.parametrize("declared", [0, 5, 2**63, 2**64 - 1])
def test_zstd_wrong_content_size_is_refused(declared: int) -> None:
    """More than the blocks can hold, and less than they do."""
    with pytest.raises(CorruptRecordError, match="zstd data: "):
        decompress(Codec.ZSTD, zstd_runs(2, declared=declared), limit_bytes=2**64)
    whole = 2 * 131072
    assert b"a" * whole == decompress(Codec.ZSTD, zstd_runs(2, declared=whole))


def test_zstd_window_over_the_library_limit_is_refused() -> None:
    """128 MiB is the default limit of a decoder; the frame would need more memory."""
    frame = bytearray(compress(Codec.ZSTD, HELLO))
    frame[5] = 17 << 3
    assert HELLO == decompress(Codec.ZSTD, frame)
    frame[5] = 18 << 3
    with pytest.raises(CorruptRecordError, match="a window of 268435456 bytes"):
        decompress(Codec.ZSTD, frame)


@pytest.mark.parametrize(("position", "value"), [(4, 0x08), (4, 0x01), (6, 0x07), (0, 0x27)])
def test_zstd_bad_header_is_refused(position: int, value: int) -> None:
    """A reserved bit, an unknown dictionary, a reserved block type, another magic."""
    frame = bytearray(compress(Codec.ZSTD, HELLO))
    frame[position] = value
    with pytest.raises(CorruptRecordError, match="zstd data: "):
        decompress(Codec.ZSTD, frame)


def test_zstd_block_over_128_kib_is_refused() -> None:
    """A run of one byte more than the format allows."""
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + (0x20001 << 3 | 3).to_bytes(3, "little") + b"a"
    with pytest.raises(CorruptRecordError, match="131072 are the most"):
        decompress(Codec.ZSTD, frame)
