"""Payloads for tests of codecs and batches: contents, hostile vectors, a walk over records."""

from __future__ import annotations

import random
from typing import Final

from kafkalog.records.codecs import Codec
from tests.support.golden import vectors

__all__ = [
    "COMPRESSING",
    "HEADER_BYTES",
    "HELLO",
    "contents",
    "hostile_payloads",
    "payload_of",
    "record_sizes",
]

HELLO: Final = b"hello hello hello hello"
COMPRESSING: Final = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
HEADER_BYTES: Final = 61


def contents() -> list[bytes]:
    """Sizes around the blocks of snappy and lz4, of what compresses and what does not."""
    source = random.Random(11)
    sizes = (0, 1, 60, 32767, 32768, 32769, 65535, 65536, 65537, 200_000)
    kinds = [(bytes(size), source.randbytes(size), (HELLO * size)[:size]) for size in sizes]
    return [data for kind in kinds for data in kind]


def record_sizes(payload: bytes) -> list[int]:
    """Sizes of the records in a payload by their length prefixes; they must end where it ends."""
    sizes, position = [], 0
    while position < len(payload):
        start, encoded, shift = position, 0, 0
        while True:
            byte = payload[position]
            position += 1
            encoded |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        position += (encoded >> 1) ^ -(encoded & 1)
        sizes.append(position - start)
    assert position == len(payload)
    return sizes


def payload_of(name: str) -> bytes:
    """Compressed payload of a case of the hostile vectors."""
    case = next(each for each in vectors("invalid")["cases"] if each["name"] == name)
    return bytes.fromhex(case["hex"])[HEADER_BYTES:]


def hostile_payloads(kind: str) -> list[tuple[Codec, str]]:
    """Names of the hostile cases of one kind, for each codec that has it."""
    names = {case["name"] for case in vectors("invalid")["cases"]}
    found = [(codec, f"{codec.kafka_name}_{kind}") for codec in COMPRESSING]
    return [(codec, name) for codec, name in found if name in names]
