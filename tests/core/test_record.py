"""Tests of records: Kafka's vectors, any bytes compared with the reference, the object."""

from __future__ import annotations

import copy
import gc
import pickle
import struct
import weakref
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.header import BatchHeader
from kafkalog._core.record import (
    Record,
    check_records,
    decode_lists,
    decode_records,
    decode_tuples,
)
from kafkalog._core.status import status_name
from kafkalog.errors import CorruptRecordError
from tests.support import golden
from tests.support import reference_records as reference
from tests.support.buffers import BUFFER_KINDS, exact
from tests.support.examples import examples
from tests.support.record_cases import (
    MIXED,
    MIXED_PAYLOAD,
    as_batch_header,
    entries,
    header_for,
    headers,
)
from tests.support.record_laws import (
    assert_like_reference,
    reference_rows,
    rows_of,
)
from tests.support.reference import Header, encode_varint, zigzag
from tests.support.reference_records import Entry

BATCHES = [
    case
    for case in golden.vectors("batches")["batches"]
    if case["derived"]["compression"] == "none"
]


def unhex(text: str | None) -> bytes | None:
    """Return the bytes of a vector's field."""
    return None if text is None else bytes.fromhex(text)


# ---- Kafka's vectors ----


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case["name"])
def test_records_of_kafkas_batch_are_kafkas_records(case: dict[str, Any]) -> None:
    """Offset, timestamp, key, value and headers of every uncompressed batch of the list."""
    data = bytes.fromhex(case["hex"])
    header = BatchHeader(position=0, **case["header"])
    expected = [
        (
            record["offset"],
            record["timestamp"],
            unhex(record["key"]),
            unhex(record["value"]),
            tuple((name, unhex(value)) for name, value in record["headers"]),
        )
        for record in case["records"]
    ]
    assert expected == rows_of(decode_records(exact(data), header, 61, len(data)))
    assert_like_reference(data[61:], Header(**case["header"]))


def invalid_cases() -> Iterator[Any]:
    """Yield the hostile inputs that are one whole uncompressed v2 batch with a valid header."""
    for case in golden.vectors("invalid")["cases"]:
        data = bytes.fromhex(case["hex"])
        if len(data) < 61 or data[16] != 2 or data[22] & 7:
            continue
        if int.from_bytes(data[8:12], "big", signed=True) != len(data) - 12:
            continue
        yield pytest.param(case, id=case["name"])


@pytest.mark.parametrize("case", list(invalid_cases()))
def test_hostile_batch_has_kafkas_verdict(case: dict[str, Any]) -> None:
    """Strict reading refuses what Kafka's iterator refuses; strict=False reads what it reads."""
    data = bytes.fromhex(case["hex"])
    header = Header(*reference_fields(data))
    taken = assert_like_reference(data[61:], header, strict=False)
    assert (case["iterate"]["error"] is None) is taken
    if taken and header.record_count > 0:
        assert case["iterate"]["records"] == header.record_count
    assert_like_reference(data[61:], header, strict=True)


def reference_fields(data: bytes) -> tuple[Any, ...]:
    """Return the header fields without checks."""
    return struct.unpack_from(">qiibIhiqqqhii", data)


# ---- any bytes ----


@given(st.data())
@settings(max_examples=examples(150))
def test_records_of_any_shape_are_decoded_like_the_reference(data: st.DataObject) -> None:
    """Null, empty and long fields, many headers, extreme deltas, in strictly rising offsets."""
    records = data.draw(entries())
    header = data.draw(headers(records))
    assert assert_like_reference(reference.encode(records), header)


@pytest.mark.parametrize("strict", [True, False])
def test_payload_cut_anywhere_is_refused_like_the_reference(strict: bool) -> None:
    """Every proper prefix, in a buffer of exact size."""
    header = header_for(MIXED)
    assert assert_like_reference(MIXED_PAYLOAD, header, strict=strict)
    for size in range(len(MIXED_PAYLOAD)):
        assert not assert_like_reference(MIXED_PAYLOAD[:size], header, strict=strict)


def test_single_record_cut_anywhere_is_truncated() -> None:
    """For any cut the length of a record shows that bytes are missing."""
    payload = reference.encode([Entry(0, 5, b"key", b"v" * 200, ((b"h", None),))])
    header = as_batch_header(Header(record_count=1))
    for size in range(7, len(payload)):
        status = check_records(exact(payload[:size]), header, 0, size)
        assert "TRUNCATED" == status_name(status)


@pytest.mark.parametrize("strict", [True, False])
def test_payload_with_a_flipped_bit_has_the_references_verdict(strict: bool) -> None:
    """Every bit of a payload with every kind of record."""
    header = header_for(MIXED)
    outcomes = set()
    for bit in range(8 * len(MIXED_PAYLOAD)):
        damaged = bytearray(MIXED_PAYLOAD)
        damaged[bit // 8] ^= 1 << bit % 8
        outcomes.add(assert_like_reference(bytes(damaged), header, strict=strict))
    assert {True, False} == outcomes


@given(
    st.binary(max_size=200),
    st.integers(0, len(MIXED_PAYLOAD)),
    st.integers(0, len(MIXED_PAYLOAD)),
    st.integers(-1, 20),
    st.booleans(),
)
@settings(max_examples=examples(200))
def test_spliced_payload_has_the_references_verdict(
    junk: bytes, cut: int, resume: int, count: int, strict: bool
) -> None:
    """Foreign bytes between two parts of a valid payload, and a count that may be wrong."""
    payload = MIXED_PAYLOAD[:cut] + junk + MIXED_PAYLOAD[resume:]
    assert_like_reference(payload, header_for(MIXED, record_count=count), strict=strict)


@pytest.mark.parametrize(
    "damage",
    [
        b"\x80" * 5 + b"\x01",
        b"\x80" * 4 + b"\x7f",
        b"\xff" * 10,
        b"\x80" * 9 + b"\x01",
        b"\x82\x00",
    ],
    ids=["six bytes", "surplus bits", "eleven bytes", "ten bytes", "padded"],
)
@pytest.mark.parametrize("slot", range(6))
def test_odd_varint_in_any_field_has_the_references_verdict(damage: bytes, slot: int) -> None:
    """Over-long, padded and overflowing varints for each number, with space after them."""
    numbers = [b"\x00", b"\x00", b"\x02" + b"k", b"\x02" + b"v", b"\x00"]
    if slot < 5:
        numbers[slot] = damage + b"kkkk"[: slot // 2]
        body = b"\x00" + b"".join(numbers)
        payload = encode_varint(zigzag(len(body))) + body
    else:
        payload = damage + b"\x00" * 7
    payload += reference.encode([Entry(1, 0, b"k", b"v" * 30)])
    assert_like_reference(payload, Header(record_count=2, last_offset_delta=9), strict=False)


@pytest.mark.parametrize(
    "deltas", [(1, 0), (0, 0), (-1, 0), (0, 5), (0, 2**31 - 1), (-(2**31), 3)], ids=str
)
def test_offset_deltas_out_of_order_are_read_only_without_strict(deltas: tuple[int, int]) -> None:
    """Kafka's readers accept them; strict reading does not."""
    payload = reference.encode(Entry(delta, 0, b"k" * 30, b"v" * 30) for delta in deltas)
    header = Header(base_offset=7, record_count=2, last_offset_delta=3)
    assert not assert_like_reference(payload, header, strict=True)
    assert assert_like_reference(payload, header, strict=False)


def test_count_zero_ignores_the_payload() -> None:
    """Like Kafka's iterator, no record is returned; only the check refuses the bytes."""
    header = Header(record_count=0)
    assert assert_like_reference(b"", header)
    assert assert_like_reference(b"\xff" * 30, header)


@pytest.mark.parametrize("count", [-1, -(2**31), 2, 2**31 - 1])
def test_impossible_count_is_refused_before_allocation(count: int) -> None:
    """Seven bytes have at most one record: no list of 2^31 slots is allocated."""
    payload = reference.encode([Entry(0, 0, None, None)])
    assert not assert_like_reference(payload, Header(record_count=count))


def test_append_time_batch_sets_its_max_timestamp_on_every_record() -> None:
    """The stored deltas are ignored."""
    payload = reference.encode([Entry(0, 5), Entry(1, -9)])
    header = Header(attributes=8, max_timestamp=77, last_offset_delta=1, record_count=2)
    assert assert_like_reference(payload, header)
    records = decode_records(payload, as_batch_header(header), 0, len(payload))
    assert [(77, 1), (77, 1)] == [(r.timestamp_ms, r.timestamp_type) for r in records]


# ---- entry points ----


@pytest.mark.parametrize("kind", BUFFER_KINDS)
@pytest.mark.parametrize("prefix", [0, 61])
def test_records_are_read_from_every_kind_of_buffer(kind: str, prefix: int) -> None:
    """At any position of the buffer."""
    data = BUFFER_KINDS[kind](b"\xff" * prefix + MIXED_PAYLOAD + b"\xff" * 5)
    header = as_batch_header(header_for(MIXED))
    end = prefix + len(MIXED_PAYLOAD)
    expected = reference_rows(MIXED_PAYLOAD, header_for(MIXED), strict=True)
    assert expected == rows_of(decode_records(data, header, prefix, end))
    pairs = [row[2:4] for row in expected]
    assert pairs == decode_tuples(data, header, prefix, end)
    assert tuple(map(list, zip(*pairs, strict=True))) == decode_lists(data, header, prefix, end)
    assert 0 == check_records(data, header, prefix, end)


@pytest.mark.parametrize("bounds", [(-1, 5), (3, 2), (0, 11), (11, 11)], ids=str)
def test_bounds_outside_the_buffer_raise_index_error(bounds: tuple[int, int]) -> None:
    """They are not clamped: a wrong position is a mistake of the caller."""
    header = as_batch_header(Header())
    for decode in (decode_records, decode_tuples, decode_lists, check_records):
        with pytest.raises(IndexError, match="outside the 10 bytes"):
            decode(bytes(10), header, *bounds)


def test_buffer_not_contiguous_or_no_buffer_raises() -> None:
    """Kernels read contiguous bytes."""
    header = as_batch_header(Header())
    for payload in ("text", None, 5, memoryview(bytes(20))[::2], numpy.zeros(20)[::2]):
        with pytest.raises((TypeError, BufferError, ValueError)):
            decode_records(payload, header, 0, 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        decode_records(b"", None, 0, 0)  # type: ignore[arg-type]


# ---- the object ----


class Owner(bytearray):
    """A buffer with support for weak references."""


def lazy(entry: Entry) -> tuple[Record, weakref.ref[Owner]]:
    """Return a lazy record and a weak reference to the owner of its buffer."""
    owner = Owner(reference.encode([entry]))
    header = as_batch_header(Header(record_count=1, last_offset_delta=0))
    record = decode_records(owner, header, 0, len(owner))[0]
    return record, weakref.ref(owner)


FULL = Entry(0, 0, b"key", b"value", ((b"name", b"1"), (b"", None)))


def test_record_keeps_its_buffer_alive() -> None:
    """The buffer is freed with the record."""
    record, owner = lazy(FULL)
    gc.collect()
    assert owner() is not None
    assert (b"key", b"value", (("name", b"1"), ("", None))) == (
        record.key,
        record.value,
        record.headers,
    )
    del record
    gc.collect()
    assert owner() is None


def test_detached_record_releases_the_buffer_and_keeps_its_fields() -> None:
    """For callers that keep few records of a large batch."""
    record, owner = lazy(FULL)
    assert record is record.detach()
    gc.collect()
    assert owner() is None
    assert (b"key", b"value", (("name", b"1"), ("", None))) == (
        record.key,
        record.value,
        record.headers,
    )


def test_record_prevents_resizing_of_its_buffer() -> None:
    """A bytearray cannot grow while a record points to it."""
    payload = bytearray(reference.encode([FULL]))
    header = as_batch_header(Header(record_count=1))
    record = decode_records(payload, header, 0, len(payload))[0]
    with pytest.raises(BufferError):
        payload.extend(b"more")
    assert b"key" == record.key


def test_fields_are_made_once() -> None:
    """A field is created at the first access and kept."""
    record, _ = lazy(FULL)
    assert record.key is record.key
    assert record.value is record.value
    assert record.headers is record.headers


def test_field_is_found_by_a_name_that_is_not_interned() -> None:
    """A name built at run time works; an unknown name raises AttributeError."""
    record, _ = lazy(FULL)
    for name in ("key", "value", "offset", "timestamp_ms", "headers"):
        made_at_run_time = "".join(list(name))
        assert getattr(record, name) == getattr(record, made_at_run_time)
    with pytest.raises(AttributeError, match="Record' object has no attribute 'keys'"):
        getattr(record, "keys")  # noqa: B009


@pytest.mark.parametrize("sizes", [(16, 40), (None, 40), (16, 500), (None, 500), (0, 0)])
def test_lists_of_many_records_have_each_record(sizes: tuple[int | None, int]) -> None:
    """Memory kept between large batches is never memory of a record."""
    keys = [None if sizes[0] is None else b"%016d" % n if sizes[0] else b"" for n in range(1100)]
    values = [b"%040d" % n * (sizes[1] // 40) for n in range(1100)]
    many = [Entry(n, n, *both) for n, both in enumerate(zip(keys, values, strict=True))]
    payload, header = reference.encode(many), as_batch_header(header_for(many))
    for _ in range(9):
        assert (keys, values) == decode_lists(payload, header, 0, len(payload))
    assert list(zip(keys, values, strict=True)) == decode_tuples(payload, header, 0, len(payload))


def test_headers_overwritten_after_decoding_raise_and_stay_in_bounds() -> None:
    """A write to the buffer under a record causes an error, not a crash."""
    payload = bytearray(reference.encode([FULL]))
    header = as_batch_header(Header(record_count=1))
    record = decode_records(payload, header, 0, len(payload))[0]
    payload[:] = b"\xfe" * len(payload)
    with pytest.raises(CorruptRecordError):
        _ = record.headers


def test_header_key_that_is_not_utf8_survives() -> None:
    """Surrogates encode to the same bytes again."""
    record, _ = lazy(Entry(0, 0, None, None, ((b"\xff\xfe-k", b"v"),)))
    assert b"\xff\xfe-k" == record.headers[0][0].encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("made", [lambda: lazy(FULL)[0], lambda: Record(key=b"k", offset=4)])
def test_record_survives_pickling_and_copying(made: Any) -> None:
    """The copy is equal, also for lazy records, at every protocol."""
    record = made()
    copies = [copy.copy(record), copy.deepcopy(record)]
    copies += [pickle.loads(pickle.dumps(record, p)) for p in range(pickle.HIGHEST_PROTOCOL + 1)]
    for other in copies:
        assert record == other
        assert hash(record) == hash(other)
        assert record.timestamp_type == other.timestamp_type


def test_append_time_record_keeps_its_timestamp_type_when_pickled() -> None:
    """The type is a field of the record, but not compared for equality."""
    payload = reference.encode([Entry()])
    header = as_batch_header(Header(attributes=8, max_timestamp=5, record_count=1))
    record = decode_records(payload, header, 0, len(payload))[0]
    assert 1 == pickle.loads(pickle.dumps(record)).timestamp_type


def test_records_are_equal_by_their_fields() -> None:
    """Null and empty differ, and each field counts."""
    fields: dict[str, Any] = {
        "key": b"k",
        "value": b"v",
        "headers": (("h", b"1"),),
        "timestamp_ms": 3,
        "offset": 9,
    }
    record = Record(**fields)
    assert record == Record(**fields)
    others: dict[str, Any] = {
        "key": None,
        "value": b"",
        "headers": (("h", None),),
        "timestamp_ms": 4,
        "offset": 8,
    }
    for name, other in others.items():
        assert record != Record(**{**fields, name: other})
    assert Record(key=None) != Record(key=b"")
    assert record != "record"
    assert 1 == len({record, Record(**fields)})


def test_record_defaults_are_null() -> None:
    """A record without arguments is empty."""
    record = Record()
    assert (-1, -1, 0, None, None, ()) == (
        record.offset,
        record.timestamp_ms,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
    )
    assert "Record(offset=-1, timestamp_ms=-1, key=None, value=None, headers=())" == repr(record)


def test_record_of_any_buffer_keeps_a_copy() -> None:
    """A later change of a bytearray does not change the record."""
    key = bytearray(b"key")
    record = Record(key=key, value=memoryview(b"abcd")[::2], headers=[("h", bytearray(b"x"))])
    key[:] = b"yek"
    assert (b"key", b"ac", (("h", b"x"),)) == (record.key, record.value, record.headers)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"key": "text"}, "key must be bytes or None, got str"),
        ({"value": 5}, "value must be bytes or None, got int"),
        ({"value": [1, 2]}, "value must be bytes or None, got list"),
        ({"headers": "abc"}, "headers must be a sequence"),
        ({"headers": [("a", b"", b"")]}, "a header must be a pair"),
        ({"headers": [5]}, "a header must be a pair"),
        ({"headers": [(b"a", b"")]}, "header key must be str, got bytes"),
        ({"headers": [(None, b"")]}, "header key must be str, got NoneType"),
        ({"headers": [("a", "b")]}, "header value must be bytes or None, got str"),
    ],
)
def test_record_of_wrong_types_raises_with_the_reason(fields: dict[str, Any], message: str) -> None:
    """The caller must choose the encoding of text."""
    with pytest.raises(TypeError, match=message):
        Record(**fields)


def test_record_is_immutable() -> None:
    """No attribute can be set, and calling the constructor again changes nothing."""
    record = Record(key=b"k")
    for name in ("key", "value", "headers", "offset", "timestamp_ms", "timestamp_type", "other"):
        with pytest.raises(AttributeError):
            setattr(record, name, 1)
    with pytest.raises(TypeError, match="immutable"):
        record.__init__(key=b"other")
    assert b"k" == record.key
