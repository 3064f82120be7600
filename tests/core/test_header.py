"""Tests of batch headers: Kafka's vectors, any bytes compared with the reference, the object."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch import BatchHeader, check_batch, parse_header
from kafkalog._core.status import STATUS_CODES, status_meaning, status_name
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from tests.support import golden, reference
from tests.support.buffers import BUFFER_KINDS, exact
from tests.support.examples import examples
from tests.support.reference import Header

BATCHES = golden.vectors("batches")["batches"]
FIELDS = tuple(vars(Header()))

GOOD = Header(
    base_offset=300,
    partition_leader_epoch=7,
    attributes=0x40,
    last_offset_delta=3,
    base_timestamp=1_700_086_400_000,
    max_timestamp=1_700_000_000_000,
    producer_id=4242,
    producer_epoch=3,
    base_sequence=17,
    record_count=2,
)
GOOD_BATCH = reference.encode_batch(GOOD, b"\x0c" + bytes(6) + b"\x0c" + bytes(6))


def verdict_of(data: bytes) -> str:
    """Return the verdict of parse_header on a buffer that ends with the data."""
    try:
        parse_header(exact(data))
    except (CorruptRecordError, InvalidRecordError) as error:
        for name, code in STATUS_CODES.items():
            if str(error) == f"{status_meaning(code)} at position 0":
                return name
        raise
    return "OK"


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case["name"])
def test_header_of_kafkas_batch_has_kafkas_fields(case: dict[str, Any]) -> None:
    """Stored and derived fields of every batch of the list."""
    data = bytes.fromhex(case["hex"])
    header = parse_header(exact(data))
    derived = case["derived"]
    assert case["header"] == {name: getattr(header, name) for name in FIELDS}
    assert case["size"] == header.size_bytes == header.end_position
    assert derived["compression"] == golden.CODECS[header.codec]
    assert derived["timestamp_type"] == golden.TIMESTAMP_TYPES[header.timestamp_type]
    assert derived["transactional"] is header.is_transactional
    assert derived["control"] is header.is_control
    assert derived["delete_horizon_ms"] == header.delete_horizon_ms
    assert derived["last_offset"] == header.last_offset
    assert derived["next_offset"] == header.next_offset
    assert derived["last_sequence"] == header.last_sequence
    assert STATUS_CODES["OK"] == check_batch(exact(data))


@pytest.mark.parametrize("case", BATCHES[:12], ids=lambda case: case["name"])
def test_header_cut_anywhere_is_truncated(case: dict[str, Any]) -> None:
    """A header needs 61 bytes; the whole batch needs its last byte."""
    data = bytes.fromhex(case["hex"])
    for size in range(len(data)):
        assert ("OK" if size >= 61 else "TRUNCATED") == verdict_of(data[:size])
        assert STATUS_CODES["TRUNCATED"] == check_batch(exact(data[:size]))


def test_header_with_any_flipped_bit_has_the_verdict_of_the_reference() -> None:
    """Except in offset, epoch, length and magic, the CRC or an earlier check finds each flip."""
    for position in range(len(GOOD_BATCH)):
        for bit in range(8):
            data = bytearray(GOOD_BATCH)
            data[position] ^= 1 << bit
            expected = reference.check_batch(bytes(data))
            assert expected == status_name(check_batch(exact(bytes(data))))
            assert reference.parse_header(bytes(data))[0] == verdict_of(bytes(data))
            assert expected != "OK" or position in range(16)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("base_offset", -1, "BASE_OFFSET"),
        ("base_offset", -(2**63), "BASE_OFFSET"),
        ("base_offset", 2**63 - 4, "LAST_OFFSET_DELTA"),
        ("base_offset", 2**63 - 5, "OK"),
        ("batch_length", 0, "BATCH_LENGTH"),
        ("batch_length", 13, "BATCH_LENGTH"),
        ("batch_length", 48, "BATCH_LENGTH"),
        ("batch_length", 49, "RECORD_COUNT"),
        ("batch_length", -1, "BATCH_LENGTH"),
        ("batch_length", -(2**31), "BATCH_LENGTH"),
        ("batch_length", 2**31 - 1, "BATCH_LENGTH"),
        ("batch_length", 2**31 - 12, "BATCH_LENGTH"),
        ("batch_length", 2**31 - 13, "OK"),
        ("magic", 0, "OK"),
        ("magic", 1, "OK"),
        ("magic", 3, "MAGIC"),
        ("magic", -1, "MAGIC"),
        ("magic", 127, "MAGIC"),
        ("attributes", -1, "OK"),
        ("attributes", 0x7FF8, "OK"),
        ("last_offset_delta", -1, "LAST_OFFSET_DELTA"),
        ("last_offset_delta", -(2**31), "LAST_OFFSET_DELTA"),
        ("last_offset_delta", 2**31 - 1, "OK"),
        ("record_count", -1, "RECORD_COUNT"),
        ("record_count", 3, "RECORD_COUNT"),
        ("record_count", 2**31 - 1, "RECORD_COUNT"),
        ("record_count", 0, "OK"),
    ],
)
def test_header_field_at_its_limit_has_the_expected_verdict(
    field: str, value: int, expected: str
) -> None:
    """Each field is valid up to its limit and refused by name beyond."""
    values: dict[str, Any] = vars(GOOD) | {"batch_length": 63} | {field: value}
    data = Header(**values).encode()
    assert expected == verdict_of(data)
    assert expected == reference.parse_header(data)[0]


@pytest.mark.parametrize(("magic", "length_min"), [(0, 14), (1, 22)])
def test_header_of_old_format_too_short_is_refused(magic: int, length_min: int) -> None:
    """A length below the minimum of the old format is damage."""
    for length, expected in ((length_min - 1, "BATCH_LENGTH"), (length_min, "TRUNCATED")):
        data = replace(GOOD, batch_length=length, magic=magic).encode()[:17]
        assert expected == verdict_of(data)
        assert expected == status_name(check_batch(exact(data)))
        whole = data + bytes(length + 12 - len(data))
        assert ("CRC" if expected == "TRUNCATED" else expected) == status_name(
            check_batch(exact(whole))
        )


def test_header_compressed_count_is_not_bounded_by_the_bytes() -> None:
    """A codec may compress any number of records to a few bytes."""
    data = replace(GOOD, attributes=4, record_count=2**31 - 1, batch_length=50).encode()
    assert "OK" == verdict_of(data)


@settings(max_examples=examples(300))
@given(
    data=st.binary(max_size=90),
    length=st.sampled_from([-1, 0, 13, 14, 22, 48, 49, 60, 78]) | st.integers(-(2**31), 2**31 - 1),
    magic=st.sampled_from([0, 1, 2, 2, 2, 3, 255]),
)
def test_header_of_any_bytes_has_the_verdict_of_the_reference(
    data: bytes, length: int, magic: int
) -> None:
    """Any bytes, in a buffer of exact size."""
    framed = data[:8] + length.to_bytes(4, "big", signed=True) + data[12:16] + bytes([magic])
    data = (framed + data[17:])[: len(data)]
    assert reference.parse_header(data)[0] == verdict_of(data)
    assert reference.check_batch(data) == status_name(check_batch(exact(data)))
    assert reference.check_batch(data, check_crc=False) == status_name(
        check_batch(exact(data), check_crc=False)
    )


@pytest.mark.parametrize("buffer", BUFFER_KINDS)
def test_header_any_buffer_is_read_from_a_position(buffer: str) -> None:
    """Header and errors have the position that the caller passed."""
    data = BUFFER_KINDS[buffer](b"\xff" * 5 + GOOD_BATCH)
    header = parse_header(data, 5)
    assert (5, 5 + len(GOOD_BATCH)) == (header.position, header.end_position)
    assert STATUS_CODES["OK"] == check_batch(data, 5)
    with pytest.raises(CorruptRecordError, match="at position 70"):
        parse_header(data, 70)
    with pytest.raises(IndexError, match="not inside"):
        parse_header(data, 200)


@pytest.mark.parametrize(
    ("base_sequence", "last_offset_delta", "expected"),
    [
        (-1, 5, -1),
        (0, 0, 0),
        (17, 9, 26),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31 - 1, 1, 0),
        (2**31 - 2, 3, 1),
    ],
)
def test_header_last_sequence_wraps_to_zero(
    base_sequence: int, last_offset_delta: int, expected: int
) -> None:
    """Sequences run from 0 to 2^31-1 and restart at 0; -1 means no sequence."""
    fields = replace(GOOD, base_sequence=base_sequence, last_offset_delta=last_offset_delta)
    assert expected == parse_header(reference.encode_batch(fields, bytes(14))).last_sequence


def test_header_objects_compare_hash_and_pickle_by_value() -> None:
    """Headers of the same bytes and position are equal, also after a pickle."""
    header = parse_header(GOOD_BATCH)
    copy = pickle.loads(pickle.dumps(header))
    assert header == copy
    assert hash(header) == hash(copy)
    assert header != parse_header(b"\0" + GOOD_BATCH, 1)
    assert header != "a header"
    assert header == BatchHeader(0, *(getattr(header, name) for name in FIELDS))
    assert "offsets=300..303, records=2" in repr(header)


def test_header_is_immutable() -> None:
    """Assigning an attribute raises."""
    header = parse_header(GOOD_BATCH)
    with pytest.raises(AttributeError):
        header.base_offset = 1
    with pytest.raises(AttributeError):
        header.last_offset = 1  # type: ignore[misc]
