"""`kafkalog.files.zeros`: telling a hole from bytes."""

from __future__ import annotations

import pytest

from kafkalog.files.zeros import is_zero


@pytest.mark.parametrize("size", [0, 1, 8, 511, 4096])
def test_is_zero_of_zeros_is_true(size: int) -> None:
    """A hole of any length, none at all too, in every kind of buffer."""
    assert is_zero(bytes(size))
    assert is_zero(memoryview(bytearray(size)))


@pytest.mark.parametrize("position", [0, 7, 8, 510])
def test_is_zero_with_one_other_byte_is_false(position: int) -> None:
    """Wherever the byte is."""
    data = bytearray(511)
    data[position] = 1
    assert not is_zero(data)
    assert not is_zero(memoryview(data)[position:])
    assert is_zero(memoryview(data)[position + 1 :])
