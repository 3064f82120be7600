"""Tests of CRC-32: every kernel of this CPU, compared with zlib and Kafka's old messages."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core import crc32
from tests.support import golden
from tests.support.buffers import BUFFER_KINDS, exact
from tests.support.examples import examples

KERNELS = crc32.implementations()

# Around every size at which a kernel changes its step: 4, 8, 16, 48, 64, 128, 256 and 512 bytes.
EDGES = (0, 4, 8, 16, 32, 48, 64, 80, 128, 192, 256, 512, 576, 768, 1024, 1280, 12288)


@pytest.mark.parametrize("kernel", KERNELS)
def test_crc32_sizes_around_the_steps_equal_zlib(kernel: str) -> None:
    """No step of a kernel drops or repeats a byte, at any alignment."""
    noise = random.Random(2).randbytes(3 * 12288)
    for edge in EDGES:
        for size in range(max(0, edge - 9), edge + 18):
            for shift in (0, 1, 7):
                data = noise[shift : shift + size]
                assert zlib.crc32(data) == crc32.value_with(kernel, exact(data))


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=examples(50))
@given(data=st.binary(max_size=3000), cut=st.integers(0, 3000))
def test_crc32_of_parts_continues(kernel: str, data: bytes, cut: int) -> None:
    """The CRC of the whole equals the CRC of part two, started with the CRC of part one."""
    first = crc32.value_with(kernel, exact(data[:cut]))
    assert zlib.crc32(data) == crc32.value_with(kernel, exact(data[cut:]), first)


@pytest.mark.parametrize("size", [0, 1, 1000, 1 << 20])
def test_crc32_value_equals_zlib(size: int) -> None:
    """The public function, below and above the size from which it releases the GIL."""
    data = random.Random(size).randbytes(size)
    assert zlib.crc32(data) == crc32.value(data)
    assert zlib.crc32(data, 0xDEADBEEF) == crc32.value(data, 0xDEADBEEF)


@pytest.mark.parametrize("buffer", BUFFER_KINDS)
def test_crc32_of_any_buffer_is_the_check_value(buffer: str) -> None:
    """Any contiguous buffer of bytes has the check value of the polynomial."""
    assert crc32.value(BUFFER_KINDS[buffer](b"123456789")) == 0xCBF43926


@pytest.mark.parametrize("kernel", KERNELS)
def test_crc32_of_kafkas_messages_equals_the_stored_one(kernel: str) -> None:
    """Every kernel returns the checksum that Kafka stored in each old message."""
    seen = 0
    for case in golden.vectors("legacy")["sets"]:
        data = bytes.fromhex(case["hex"])
        for message in case["messages"]:
            start, end = message["position"], message["position"] + 12 + message["size"]
            assert message["crc"] == crc32.value_with(kernel, exact(data[start + 16 : end]))
            seen += 1
    assert seen > 50


def test_crc32_implementations_end_with_the_portable_one() -> None:
    """The best kernel is first and in use; the table kernel is always available."""
    assert crc32.implementations()[-1] == "portable"
    assert crc32.implementations()[0] == crc32.implementation()


def test_crc32_unknown_kernel_is_refused() -> None:
    """A kernel that this CPU does not have raises."""
    with pytest.raises(ValueError, match=r"CRC-32 kernel must be one of .*, got 'abacus'"):
        crc32.value_with("abacus", b"")
