"""Tests of codecs: bytes of the format, levels and names, golden batches, foreign codecs."""

from __future__ import annotations

import gzip
import random
import struct
import sys
import warnings
from types import ModuleType
from typing import Any

import aiokafka.codec
import numpy
import pytest

from kafkalog.errors import ConfigError, CorruptRecordError, UnsupportedCodecError
from kafkalog.records import codecs
from kafkalog.records.codecs import Codec, compress, decompress
from tests.support.golden import CLEAN, Manifest, data_directory, vectors
from tests.support.payloads import (
    COMPRESSING,
    HEADER_BYTES,
    HELLO,
    contents,
    hostile_payloads,
    payload_of,
    record_sizes,
)

# Decompressed by Kafka's classes: the verdict of `iterate` is about records, not about streams.
STREAM_IS_WHOLE = (
    "good",
    "bytes_after_records",
    "count_4_of_3",
    "key_length_beyond",
    "record_length_1GiB",
)
STREAM_IS_DAMAGED = ("garbage", "not_compressed", "truncated", "empty")


@pytest.mark.parametrize(
    ("codec", "data", "expected"),
    [
        (
            Codec.SNAPPY,
            HELLO,
            "82534e4150505900 00000001 00000001 0000000b 17 14 68656c6c6f20 420600",
        ),
        (
            Codec.LZ4,
            HELLO,
            "04224d18 6040 82 0f000000 68 68656c6c6f20 0600 50 68656c6c6f 00000000",
        ),
        (Codec.LZ4, b"hello", "04224d18 6040 82 05000080 68656c6c6f 00000000"),
        (Codec.LZ4, b"", "04224d18 6040 82 00000000"),
        (Codec.NONE, HELLO, HELLO.hex()),
    ],
)
def test_compress_equals_the_documented_examples(codec: Codec, data: bytes, expected: str) -> None:
    """The examples of the format description, which Kafka's own classes accepted."""
    assert bytes.fromhex(expected) == compress(codec, data)
    assert data == decompress(codec, bytes.fromhex(expected))


def test_compress_zstd_has_window_but_neither_content_size_nor_checksum() -> None:
    """The frame descriptor is 0, as the Java library's stream writes it."""
    for data in (b"", HELLO, bytes(1 << 20)):
        assert "28b52ffd00" == compress(Codec.ZSTD, data)[:5].hex()


def test_compress_gzip_is_one_plain_member() -> None:
    """No name, no time, no extra field; any gzip reads it."""
    data = compress(Codec.GZIP, HELLO)
    assert "1f8b0800000000000" == data.hex()[:17]
    assert HELLO == gzip.decompress(data)


def test_compress_lz4_splits_at_64_kib_and_stores_incompressible_blocks() -> None:
    """Block sizes are those of the BD byte; bit 31 marks a stored block."""
    data = random.Random(3).randbytes(65536) + bytes(65536) + b"end"
    frame = compress(Codec.LZ4, data)
    position, blocks = 7, []
    while (word := struct.unpack_from("<I", frame, position)[0]) != 0:
        blocks.append((bool(word >> 31), word & 0x7FFF_FFFF))
        position += 4 + blocks[-1][1]
    assert len(frame) == position + 4
    assert [(True, 65536), (False, blocks[1][1]), (True, 3)] == blocks
    assert blocks[1][1] < 400


def test_compress_snappy_splits_at_32_kib() -> None:
    """Each block has its uncompressed size; a reader may read them one at a time."""
    data = compress(Codec.SNAPPY, bytes(32768 * 2 + 5))
    position, count = 16, 0
    while position < len(data):
        position += 4 + int.from_bytes(data[position : position + 4], "big")
        count += 1
    assert (3, len(data)) == (count, position)


@pytest.mark.parametrize("codec", list(Codec))
def test_decompress_of_compress_is_the_content(codec: Codec) -> None:
    """Around the block sizes, exactly at the limit, and not one byte below it."""
    for data in contents():
        packed = compress(codec, data)
        assert data == decompress(codec, packed, limit_bytes=len(data))
        if data:
            with pytest.raises(CorruptRecordError, match=r"more than|allowed"):
                decompress(codec, packed, limit_bytes=len(data) - 1)


@pytest.mark.parametrize("codec", list(Codec))
def test_codec_accepts_every_kind_of_buffer(codec: Codec) -> None:
    """Bytes, writable ones, slices of views, arrays of other item sizes."""
    data = HELLO + b"!"
    packed = compress(codec, data)
    kinds: list[Any] = [bytearray(data), memoryview(b"x" + data)[1:], numpy.frombuffer(data, ">i8")]
    for view in kinds:
        assert packed == compress(codec, view)
    kinds = [bytearray(packed), memoryview(b"x" + packed)[1:], numpy.frombuffer(packed, "u1")]
    for view in kinds:
        assert data == decompress(codec, view)


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Codec.GZIP, [-1, 1, 9]),
        (Codec.LZ4, [1, 2, 3, 8, 9, 10, 12, 13, 17]),
        (Codec.ZSTD, [-131072, -5, 0, 1, 3, 22]),
    ],
)
def test_compress_every_level_round_trips(codec: Codec, levels: list[int]) -> None:
    """The ends of Kafka's ranges, and the levels at which the library changes its strategy."""
    data = HELLO * 5000 + random.Random(1).randbytes(5000)
    for level in levels:
        assert data == decompress(codec, compress(codec, data, level))
    assert compress(codec, data) == compress(codec, data, {1: -1, 3: 9, 4: 3}[codec])


def test_compress_lz4_level_9_is_the_fast_one() -> None:
    """Kafka's default level selects the fast compressor, all others the thorough one."""
    words = [b"alpha", b"beta", b"gamma", b"delta"]
    source = random.Random(5)
    data = b" ".join(source.choice(words) for _ in range(9000))
    assert len(compress(Codec.LZ4, data, 8)) < len(compress(Codec.LZ4, data, 9))
    assert compress(Codec.LZ4, data, 12) == compress(Codec.LZ4, data, 17)


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (Codec.GZIP, 0),
        (Codec.GZIP, 10),
        (Codec.GZIP, -2),
        (Codec.LZ4, 0),
        (Codec.LZ4, 18),
        (Codec.ZSTD, 23),
        (Codec.ZSTD, -131073),
        (Codec.ZSTD, 1.5),
        (Codec.NONE, 1),
        (Codec.SNAPPY, 1),
    ],
)
def test_compress_level_out_of_range_is_refused(codec: Codec, level: int) -> None:
    """A level of another codec is an error."""
    with pytest.raises(ConfigError, match=codec.kafka_name):
        compress(codec, HELLO, level)


def test_codec_has_kafkas_numbers_and_names() -> None:
    """Numbers of the attribute bits; `uncompressed` is the word of the settings."""
    names = ["none", "gzip", "snappy", "lz4", "zstd"]
    assert names == [Codec.of(number).kafka_name for number in range(5)]
    words = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]
    assert list(Codec) == [Codec.of_config(word) for word in words]
    assert Codec.of_config("producer") is None


@pytest.mark.parametrize("number", [5, 6, 7, -1, 8])
def test_codec_unknown_number_is_refused(number: int) -> None:
    """Three bits allow codecs that are not defined."""
    for call in (Codec.of, lambda each: compress(each, b""), lambda each: decompress(each, b"")):
        with pytest.raises(UnsupportedCodecError, match=f"codec must be 0 to 4, got {number}"):
            call(number)


def test_codec_unknown_word_is_refused() -> None:
    """Only the words of `compression.type`."""
    with pytest.raises(UnsupportedCodecError, match=r"codec must be .* or zstd, got 'brotli'"):
        Codec.of_config("brotli")


def test_snappy_without_its_package_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing names the optional package and its extra; reading needs neither."""
    packed = compress(Codec.SNAPPY, HELLO)
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(UnsupportedCodecError, match=r"pip install kafkalog\[snappy\]"):
        compress(Codec.SNAPPY, HELLO)
    assert HELLO == decompress(Codec.SNAPPY, packed)


@pytest.mark.parametrize(
    "partition",
    ["gzip-0", "snappy-0", "lz4-0", "zstd-0", "mixed-codec-0", "logappendtime-lz4-0", "odd-0"],
)
def test_decompress_batches_of_a_broker(partition: str) -> None:
    """Every compressed batch of a real log holds the number of records in its manifest."""
    folder = data_directory(CLEAN) / partition
    files: dict[str, bytes] = {}
    seen = 0
    for fact in Manifest(CLEAN, partition).batches():
        if fact.codec == Codec.NONE or fact.record_count == 0:
            continue
        data = files.setdefault(fact.segment, (folder / fact.segment).read_bytes())
        payload = memoryview(data)[fact.position + HEADER_BYTES : fact.position + fact.batch_size]
        assert fact.record_count == len(record_sizes(decompress(fact.codec, payload)))
        seen += 1
    assert seen > 0


@pytest.mark.parametrize("codec", COMPRESSING)
def test_decompress_batch_vectors_hold_their_records(codec: Codec) -> None:
    """Record sizes are what Kafka's classes counted."""
    seen = 0
    for case in vectors("batches")["batches"]:
        if case["derived"]["compression"] == codec.kafka_name and case["records"]:
            payload = decompress(codec, bytes.fromhex(case["hex"])[HEADER_BYTES:])
            assert [record["size"] for record in case["records"]] == record_sizes(payload)
            seen += 1
    assert seen >= 4


@pytest.mark.parametrize(
    ("codec", "name"), [each for kind in STREAM_IS_WHOLE for each in hostile_payloads(kind)]
)
def test_decompress_whole_stream_with_bad_records_succeeds(codec: Codec, name: str) -> None:
    """Errors within the content are found by the record parser."""
    assert len(decompress(codec, payload_of(name))) > 0


@pytest.mark.parametrize(
    ("codec", "name"), [each for kind in STREAM_IS_DAMAGED for each in hostile_payloads(kind)]
)
def test_decompress_damaged_stream_is_refused(codec: Codec, name: str) -> None:
    """Random bytes, plain records, a truncated stream, no bytes."""
    with pytest.raises(CorruptRecordError, match=f"{codec.kafka_name} data: "):
        decompress(codec, payload_of(name))


def test_decompress_bytes_after_the_stream_are_treated_as_in_kafka() -> None:
    """gzip and lz4 ignore them, snappy and zstd read them as the next block or frame."""
    for codec in (Codec.GZIP, Codec.LZ4):
        assert len(decompress(codec, payload_of(f"{codec.kafka_name}_bytes_after_stream"))) > 0
    for codec in (Codec.SNAPPY, Codec.ZSTD):
        with pytest.raises(CorruptRecordError):
            decompress(codec, payload_of(f"{codec.kafka_name}_bytes_after_stream"))


@pytest.mark.parametrize("codec", COMPRESSING)
def test_decompress_flipped_body_is_refused_or_yields_the_same_size(codec: Codec) -> None:
    """Only gzip has a checksum; for the others the batch's own CRC must notice."""
    name = codec.kafka_name
    if codec is Codec.GZIP:
        with pytest.raises(CorruptRecordError):
            decompress(codec, payload_of(f"{name}_body_flipped"))
        return
    whole = decompress(codec, payload_of(f"{name}_good"))
    flipped = decompress(codec, payload_of(f"{name}_body_flipped"))
    assert len(whole) == len(flipped)
    assert whole != flipped


@pytest.mark.parametrize("codec", COMPRESSING)
def test_codec_agrees_with_aiokafka(codec: Codec) -> None:
    """Either side reads what the other wrote."""
    name = codec.kafka_name
    for data in contents()[3:]:
        theirs = getattr(aiokafka.codec, f"{name}_encode")(data)
        assert data == decompress(codec, theirs)
        ours = compress(codec, data)
        assert data == bytes(getattr(aiokafka.codec, f"{name}_decode")(ours))


@pytest.fixture(name="kafka_python", scope="module")
def fixture_kafka_python() -> ModuleType:
    """Its codecs; the import of that package warns of what is deprecated in itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kafka.codec
    module: ModuleType = kafka.codec
    return module


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_codec_agrees_with_kafka_python(codec: Codec, kafka_python: ModuleType) -> None:
    """Either side reads what the other wrote; its snappy needs one more package."""
    name = codec.kafka_name
    for data in contents()[3:]:
        theirs = getattr(kafka_python, f"{name}_encode")(data)
        assert data == decompress(codec, theirs)
        ours = compress(codec, data)
        assert data == bytes(getattr(kafka_python, f"{name}_decode")(ours))


def test_default_limit_is_that_of_the_configuration() -> None:
    """One number, in one place."""
    assert 256 << 20 == codecs.DEFAULT_LIMIT_BYTES
