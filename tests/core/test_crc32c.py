"""Tests of CRC-32C: every kernel, compared with Kafka, the reference and the package."""

from __future__ import annotations

import random

import crc32c as package
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core import crc32c
from tests.support import golden, reference
from tests.support.buffers import BUFFER_KINDS, exact
from tests.support.examples import examples

VECTORS = golden.vectors("crc32c")["inputs"]
KERNELS = (*crc32c.implementations(), "package")

# Around every size at which a kernel changes its step: 8, 16, 32, 64, the folding blocks of 128 to
# 512 bytes, and the three streams of 128 and 2048 bytes.
EDGES = (0, 8, 16, 32, 64, 128, 192, 256, 320, 384, 512, 576, 768, 1024, 1280, 3 * 2048, 12288)


@pytest.mark.parametrize("kernel", KERNELS)
def test_crc_vectors_equal_kafka(kernel: str) -> None:
    """Every kernel returns Kafka's checksum for every input of the list."""
    assert VECTORS
    for case in VECTORS:
        assert case["crc32c"] == crc32c.value_with(kernel, exact(bytes.fromhex(case["hex"])))


@pytest.mark.parametrize("kernel", KERNELS)
def test_crc_sizes_around_the_steps_equal_the_package(kernel: str) -> None:
    """No step of a kernel drops or repeats a byte, at any alignment."""
    noise = random.Random(1).randbytes(3 * 12288)
    for edge in EDGES:
        for size in range(max(0, edge - 9), edge + 10):
            for shift in (0, 1, 7):
                data = noise[shift : shift + size]
                assert package.crc32c(data) == crc32c.value_with(kernel, exact(data))


def test_crc_reference_equals_the_package() -> None:
    """This checks the oracle of the batch tests."""
    for size in (0, 1, 9, 100, 1000):
        data = random.Random(size).randbytes(size)
        assert package.crc32c(data) == reference.crc32c(data)


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=examples(50))
@given(data=st.binary(max_size=3000), cut=st.integers(0, 3000))
def test_crc_of_parts_continues(kernel: str, data: bytes, cut: int) -> None:
    """The CRC of the whole equals the CRC of part two, started with the CRC of part one."""
    first = crc32c.value_with(kernel, exact(data[:cut]))
    assert package.crc32c(data) == crc32c.value_with(kernel, exact(data[cut:]), first)


@pytest.mark.parametrize("size", [0, 1, 1000, 1 << 20])
def test_crc_value_equals_the_package(size: int) -> None:
    """The public function, below and above the size from which it releases the GIL."""
    data = random.Random(size).randbytes(size)
    assert package.crc32c(data) == crc32c.value(data)
    assert package.crc32c(data, 0xDEADBEEF) == crc32c.value(data, 0xDEADBEEF)


@pytest.mark.parametrize("buffer", BUFFER_KINDS)
def test_crc_of_any_buffer_is_the_check_value(buffer: str) -> None:
    """Any contiguous buffer of bytes is accepted."""
    assert crc32c.value(BUFFER_KINDS[buffer](b"123456789")) == 0xE3069283


def test_crc_implementations_end_with_the_portable_one() -> None:
    """The best kernel is first and in use; the table kernel is always available."""
    assert crc32c.implementations()[-1] == "portable"
    assert crc32c.implementations()[0] == crc32c.implementation()


def test_crc_unknown_kernel_is_refused() -> None:
    """A kernel that this CPU does not have raises."""
    with pytest.raises(ValueError, match=r"CRC-32C kernel must be one of .*, got 'abacus'"):
        crc32c.value_with("abacus", b"")
