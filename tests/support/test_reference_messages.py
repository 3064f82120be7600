"""Tests of the reference codec of the old formats against bytes written by Kafka."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from tests.support import golden, reference
from tests.support import reference_codecs as codecs
from tests.support.golden_old import OldManifest, all_old_partitions
from tests.support.manifest_old import OldEntryFact, OldRecordFact
from tests.support.payloads import contents
from tests.support.reference import Header
from tests.support.reference_messages import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    Message,
    OldRecord,
    decode_entry,
    decode_payload,
    encode_message,
    encode_set,
    message_timestamp_type,
)
from tests.support.reference_records import Refused

LEGACY = golden.vectors("legacy")["sets"]
INVALID = [c for c in golden.vectors("invalid")["cases"] if c["name"][:3] in ("v0_", "v1_")]
TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
T = 1_700_000_000_000

# The examples of the format's description: bytes and content.
EXAMPLES = {
    "v0": "0000000000000005 00000012 316a1df0 00 00 00000001 6b 00000003 76616c",
    "v0_nulls": "0000000000000006 0000000e a7ec6803 00 00 ffffffff ffffffff",
    "v1": "0000000000000006 0000001a c3573efc 01 00 0000018bcfe56800 00000001 6b 00000003 76616c",
    "v1_log_append_time": (
        "0000000000000006 0000001a e6a5378a 01 08 0000018bcfe56800 00000001 6b 00000003 76616c"
    ),
    "v1_gzip": (
        "000000000000000b 00000052 ca0faaae 01 01 0000018bcfe56803 ffffffff 0000003c"
        "1f8b0800000000000003636080038902d6ea34462083b1fbfcd30c9008632288"
        "3084ca83a4c4a31f8af8c3d530ff070210c7080025ee3c6c47000000"
    ),
    "v0_lz4": (
        "0000000000000005 0000003d 539da159 00 03 ffffffff 0000002f"
        "04224d1860401a2000000012000100820500000037 58bffc0e007f0161000000"
        "28310100 0f50313131313100000000"
    ),
}
EXAMPLE_RECORDS = {
    "v0": [(5, -1, -1, b"k", b"val")],
    "v0_nulls": [(6, -1, -1, None, None)],
    "v1": [(6, T, 0, b"k", b"val")],
    "v1_log_append_time": [(6, T, 1, b"k", b"val")],
    "v1_gzip": [(10, T, 0, b"a", b"1"), (11, T + 3, 0, None, b"2")],
    "v0_lz4": [(5, -1, -1, b"a", b"1" * 40)],
}


def example(name: str) -> bytes:
    """Return the bytes of an example."""
    return bytes.fromhex(EXAMPLES[name].replace(" ", ""))


def header_of(entry: bytes) -> Header:
    """Return the header of a whole message with a good CRC."""
    verdict, header = reference.parse_message_header(entry)
    assert verdict == "OK"
    assert header is not None
    assert header.size_bytes == len(entry)
    assert header.crc == reference.batch_crc(entry)
    return header


def fields(record: OldRecord) -> tuple[Any, ...]:
    """Return the fields of a record."""
    return record.offset, record.timestamp, record.timestamp_type, record.key, record.value


def unhex(text: str | None) -> bytes | None:
    """Return the bytes of a vector's field."""
    return None if text is None else bytes.fromhex(text)


# ---- codecs ----


@pytest.mark.parametrize("codec", [codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD])
def test_reference_codecs_round_trip(codec: int) -> None:
    """Sizes around the blocks, of compressible and random content, for both lz4 headers."""
    for data in contents():
        for magic in (0, 1):
            stream = codecs.compress(codec, data, magic)
            assert data == codecs.decompress(codec, stream, magic)


def test_reference_lz4_header_checksum_is_faulty_in_v0_only() -> None:
    """The two bytes of the format's description, and the reader of each."""
    wrong, right = codecs.compress(codecs.LZ4, b"x", 0), codecs.compress(codecs.LZ4, b"x", 1)
    assert (0x1A, 0x82) == (wrong[6], right[6])
    assert b"x" == codecs.decompress(codecs.LZ4, right, 0)
    with pytest.raises(codecs.Damaged):
        codecs.decompress(codecs.LZ4, wrong, 1)


# ---- vectors ----


@pytest.mark.parametrize("name", EXAMPLES)
def test_reference_decodes_the_examples(name: str) -> None:
    """Offsets, timestamps, types, keys and values as in the description."""
    entry = example(name)
    assert EXAMPLE_RECORDS[name] == [fields(r) for r in decode_entry(entry, header_of(entry))]


@pytest.mark.parametrize("name", EXAMPLES)
def test_reference_encodes_the_examples(name: str) -> None:
    """Plain messages byte for byte; wrappers with equal content and equal outer fields."""
    entry = example(name)
    header = header_of(entry)
    written = encode_again(decode_entry(entry, header), header)
    if header.attributes & 7 == 0:
        assert entry == written
    assert_same_but_for_compression(entry, written)


def encode_again(records: list[OldRecord], header: Header) -> bytes:
    """Return the set that the reference makes of decoded records."""
    return encode_set(
        [
            Message(r.offset, header.magic, 0, r.timestamp, r.message.key, r.message.value)
            for r in records
        ],
        codec=header.attributes & 7,
        timestamp_type=message_timestamp_type(header.magic, header.attributes),
        append_time=header.base_timestamp,
    )


def assert_same_but_for_compression(expected: bytes, actual: bytes) -> None:
    """Compare the header fields without sizes and checksums, and the content."""
    first, second = header_of(expected), header_of(actual)
    assert (first.base_offset, first.magic, first.attributes, first.base_timestamp) == (
        second.base_offset,
        second.magic,
        second.attributes,
        second.base_timestamp,
    )
    assert decode_payload(expected, first) == decode_payload(actual, second)


@pytest.mark.parametrize("case", LEGACY, ids=lambda case: case["name"])
def test_reference_decodes_kafkas_sets(case: dict[str, Any]) -> None:
    """Every outer message, and every record in it, with each field that the vectors name."""
    data = bytes.fromhex(case["hex"])
    position = 0
    for fact in case["messages"]:
        assert fact["position"] == position
        entry = data[position : position + 12 + fact["size"]]
        header = header_of(entry)
        assert (fact["offset"], fact["crc"], fact["magic"], fact["attributes"]) == (
            header.base_offset,
            header.crc,
            header.magic,
            header.attributes,
        )
        assert header.base_timestamp == (-1 if fact["timestamp"] is None else fact["timestamp"])
        timestamp_type = TYPES[fact["timestamp_type"]]
        assert timestamp_type == message_timestamp_type(header.magic, header.attributes)
        assert [
            (r["offset"], r["timestamp"], timestamp_type, unhex(r["key"]), unhex(r["value"]))
            for r in fact["records"]
        ] == [fields(record) for record in decode_entry(entry, header)]
        assert fact["base_offset"] == decode_entry(entry, header)[0].offset
        position += len(entry)
    assert len(data) == position


@pytest.mark.parametrize("case", LEGACY, ids=lambda case: case["name"])
def test_reference_encodes_kafkas_sets(case: dict[str, Any]) -> None:
    """Plain sets byte for byte, wrappers with the inner set of Kafka's builder."""
    data = bytes.fromhex(case["hex"])
    written = b""
    for fact in case["messages"]:
        entry = data[fact["position"] : fact["position"] + 12 + fact["size"]]
        header = header_of(entry)
        again = encode_again(decode_entry(entry, header), header)
        assert_same_but_for_compression(entry, again)
        written += again
    if not case["messages"][0]["attributes"] & 7:
        assert data == written


@pytest.mark.parametrize("case", INVALID, ids=lambda case: case["name"])
def test_reference_refuses_as_kafkas_iterators(case: dict[str, Any]) -> None:
    """Lenient as Kafka; strict also refuses as a leader does, with the exceptions listed here."""
    entry = bytes.fromhex(case["hex"])[: case["walk"]["whole_bytes"]]
    if case["walk"]["error"] or not entry:
        return
    verdict, header = reference.parse_message_header(entry)
    assert verdict == "OK"
    assert header is not None
    assert (case["check"]["error"] is None) == (header.crc == zlib.crc32(entry[16:]))
    lenient, strict = outcome(entry, header, strict=False), outcome(entry, header, strict=True)
    assert (case["iterate"]["error"] is None) == isinstance(lenient, int)
    if isinstance(lenient, int):
        assert case["iterate"]["records"] == lenient
    stricter_than_a_leader = {
        "value_size_short": "RECORD_LENGTH",
        "wrapper_inner_truncated": "TRUNCATED",
        "wrapper_inner_offsets_fall": "OFFSET_DELTA",
    }
    looser_than_a_leader = ("crc_wrong", "timestamp_negative", "wrapper_inner_other_magic")
    name = case["name"][3:]
    if name in stricter_than_a_leader:
        assert stricter_than_a_leader[name] == strict
    elif name not in looser_than_a_leader:
        assert (case["leader_append"]["error"] is None) == isinstance(strict, int)


def outcome(entry: bytes, header: Header, *, strict: bool) -> int | str:
    """Return how many records an entry has, or the verdict on it."""
    try:
        return len(decode_entry(entry, header, strict=strict))
    except Refused as refusal:
        return refusal.verdict
    except codecs.Damaged:
        return "DAMAGED"


# ---- messages of brokers ----


@pytest.mark.parametrize(("broker", "partition"), all_old_partitions())
def test_reference_decodes_every_message_of_old_brokers(broker: str, partition: str) -> None:
    """Records, inner and outer CRCs, timestamps of wrappers, of all entries of magic 0 and 1."""
    manifest = OldManifest(broker, partition)
    data: dict[str, bytes] = {}
    for fact in manifest.entries():
        if fact.magic == 2:
            continue
        if fact.segment not in data:
            data[fact.segment] = (manifest.directory / fact.segment).read_bytes()
        assert_entry_is_as_its_manifest(data[fact.segment][fact.position : fact.end_position], fact)


def assert_entry_is_as_its_manifest(entry: bytes, fact: OldEntryFact) -> None:
    """Decode one outer entry strictly and compare it with the manifest."""
    header = header_of(entry)
    assert (fact.magic, fact.codec, fact.offset, fact.crc) == (
        header.magic,
        header.attributes & 7,
        header.base_offset,
        header.crc,
    )
    records = decode_entry(entry, header)
    assert len(fact.records) == len(records)
    for expected, actual in zip(fact.records, records, strict=True):
        assert_record_is_as_its_manifest(expected, actual, header)


def assert_record_is_as_its_manifest(
    expected: OldRecordFact, actual: OldRecord, header: Header
) -> None:
    """Compare one record, its CRC inside a wrapper included."""
    assert (expected.offset, expected.timestamp_ms, expected.timestamp_type, expected.key) == (
        actual.offset,
        actual.timestamp,
        actual.timestamp_type,
        actual.key,
    )
    assert expected.has_value(actual.value)
    if expected.inner_crc is not None:
        assert expected.inner_crc == actual.message.crc
    if expected.wrapper_timestamp is not None:
        assert expected.wrapper_timestamp == header.base_timestamp


# ---- sets that no broker wrote ----


def test_reference_wrapper_with_log_append_time_overrides_inner_timestamps() -> None:
    """The inner messages have it too in our encoding, and need not in others."""
    inner = [Message(3, 1, 0, 50, None, b"a"), Message(4, 1, 0, 60, None, b"b")]
    entry = encode_set(inner, codec=codecs.GZIP, timestamp_type=LOG_APPEND_TIME, append_time=99)
    header = header_of(entry)
    found = [(r.offset, r.timestamp, r.timestamp_type) for r in decode_entry(entry, header)]
    assert [(3, 99, 1), (4, 99, 1)] == found
    plain = encode_set(inner, codec=codecs.NONE, timestamp_type=CREATE_TIME)
    value = codecs.compress(codecs.GZIP, plain)
    foreign = encode_message(Message(4, 1, 9, 99, None, value))
    times = [r.timestamp for r in decode_entry(foreign, header_of(foreign))]
    assert [99, 99] == times
