"""Tests of varints: Kafka's vectors, the reference, every prefix, buffers of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import Buffer

from kafkalog._core import varint
from kafkalog._core.status import STATUS_CODES, status_meaning
from kafkalog.errors import CorruptRecordError
from tests.support import golden, reference
from tests.support.buffers import BUFFER_KINDS, exact
from tests.support.examples import examples

VECTORS = golden.vectors("varint")

Decode = Callable[[Buffer, int], tuple[int, int]]

# Name in the vectors -> (decoder, encoder, bits, signed).
KINDS: dict[str, tuple[Decode, Callable[[int], bytes], int, bool]] = {
    "varint": (varint.decode_varint, varint.encode_varint, 32, True),
    "varlong": (varint.decode_varlong, varint.encode_varlong, 64, True),
    "unsigned_varint": (varint.decode_unsigned_varint, varint.encode_unsigned_varint, 32, False),
    "unsigned_varlong": (
        varint.decode_unsigned_varlong,
        varint.encode_unsigned_varlong,
        64,
        False,
    ),
}


def _decoded(decode: Decode, data: bytes) -> tuple[str, int, int]:
    """Decode from a buffer of exact size; a refusal is (name of the status, 0, 0)."""
    try:
        value, end = decode(exact(data), 0)
    except CorruptRecordError as error:
        for name in ("TRUNCATED", "VARINT_TOO_LONG"):
            if str(error).startswith(status_meaning(STATUS_CODES[name])):
                return name, 0, 0
        raise
    return "OK", value, end


@pytest.mark.parametrize("kind", KINDS)
def test_varint_vectors_encode_and_decode_as_in_kafka(kind: str) -> None:
    """Each value of Kafka's list is encoded to Kafka's bytes and decoded from them."""
    decode, encode, _, _ = KINDS[kind]
    assert VECTORS[kind]
    for case in VECTORS[kind]:
        data = bytes.fromhex(case["hex"])
        assert data == encode(case["value"])
        assert ("OK", case["value"], case["size"]) == _decoded(decode, data)


@pytest.mark.parametrize("kind", ["varint", "varlong", "unsigned_varint"])
@pytest.mark.parametrize("case", VECTORS["decode"], ids=lambda case: case["hex"] or "empty")
def test_varint_odd_forms_decode_as_in_kafka(kind: str, case: dict[str, Any]) -> None:
    """Padded forms and surplus bits are read as in Kafka; too long and too short are refused."""
    verdict, value, size = _decoded(KINDS[kind][0], bytes.fromhex(case["hex"]))
    expected = case[kind]
    if "error" in expected:
        assert verdict != "OK"
    else:
        assert ("OK", expected["value"], expected["bytes_read"]) == (verdict, value, size)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(200))
@given(data=st.binary(max_size=12) | st.lists(st.sampled_from(b"\x80\xff\x00\x01\x7f")).map(bytes))
def test_varint_any_bytes_decode_as_in_the_reference(kind: str, data: bytes) -> None:
    """Verdict, value and size are equal for any bytes."""
    decode, _, bits, signed = KINDS[kind]
    assert reference.decode_varint(data, bits, signed=signed) == _decoded(decode, data)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(200))
@given(data=st.data())
def test_varint_any_value_round_trips(kind: str, data: st.DataObject) -> None:
    """The encoding equals the reference's, and every prefix is truncated."""
    decode, encode, bits, signed = KINDS[kind]
    lowest = -(2 ** (bits - 1)) if signed else 0
    highest = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    value = data.draw(st.integers(lowest, highest))
    encoded = encode(value)
    assert reference.encode_varint(reference.zigzag(value) if signed else value) == encoded
    assert ("OK", value, len(encoded)) == _decoded(decode, encoded)
    for size in range(len(encoded)):
        assert ("TRUNCATED", 0, 0) == _decoded(decode, encoded[:size])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("buffer", BUFFER_KINDS)
def test_varint_any_buffer_decodes_from_a_position(kind: str, buffer: str) -> None:
    """Positions and the returned end count from the start of any kind of buffer."""
    decode, encode, _, _ = KINDS[kind]
    data = b"\xff\xff" + encode(300) + b"\x07"
    assert (300, 4) == decode(BUFFER_KINDS[buffer](data), 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("position", [-1, 3])
def test_varint_position_outside_is_refused(kind: str, position: int) -> None:
    """A position neither in the buffer nor at its end is a mistake of the caller."""
    with pytest.raises(IndexError, match="outside the 2 bytes"):
        KINDS[kind][0](b"\x00\x00", position)


@pytest.mark.parametrize("kind", KINDS)
def test_varint_value_out_of_range_is_refused(kind: str) -> None:
    """A value outside the type is not truncated silently."""
    _, encode, bits, signed = KINDS[kind]
    with pytest.raises(OverflowError):
        encode(2 ** (bits - 1) if signed else 2**bits)
    with pytest.raises(OverflowError):
        encode(-(2 ** (bits - 1)) - 1 if signed else -1)
