"""Tests of key hashes: MD5 kernels compared with hashlib, SipHash with its reference."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core import key_hash
from tests.support import golden
from tests.support.buffers import BUFFER_KINDS, exact
from tests.support.examples import examples
from tests.support.reference_key_hashes import siphash_128

KERNELS = key_hash.md5_implementations()
SECRET = bytes(range(16))

# Around the ends of blocks: one block has at most 55 bytes, two 119, three 183.
EDGES = (0, 4, 8, 16, 55, 64, 119, 128, 183, 192)


def md5(data: bytes) -> bytes:
    """Return the MD5 sum of hashlib."""
    return hashlib.md5(data, usedforsecurity=False).digest()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("count", [0, 1, 7, 16, 17, 32, 33, 65, 150])
def test_md5_of_any_number_of_keys_equals_hashlib(kernel: str, count: int) -> None:
    """Empty lanes and keys of several kernel calls are independent."""
    keys = [b"key-%d" % number for number in range(count)]
    assert [md5(key) for key in keys] == key_hash.md5_with(kernel, [exact(key) for key in keys])


@pytest.mark.parametrize("kernel", KERNELS)
def test_md5_of_sizes_around_the_blocks_equals_hashlib(kernel: str) -> None:
    """Padding and length are in the right block, and nothing is read after a key."""
    noise = random.Random(1).randbytes(300)
    sizes = sorted({max(0, edge + step) for edge in EDGES for step in range(-9, 10)})
    keys = [noise[shift : shift + size] for size in sizes for shift in (0, 1, 3)]
    assert [md5(key) for key in keys] == key_hash.md5_with(kernel, [exact(key) for key in keys])


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=examples(50))
@given(
    keys=st.lists(
        st.builds(
            lambda size, seed: random.Random(seed).randbytes(size),
            st.one_of(st.integers(0, 70), st.integers(0, 2000)),
            st.integers(),
        ),
        max_size=80,
    )
)
def test_md5_of_keys_of_mixed_sizes_equals_hashlib(kernel: str, keys: list[bytes]) -> None:
    """Keys shorter than the other lanes keep their sums."""
    assert [md5(key) for key in keys] == key_hash.md5_with(kernel, [exact(key) for key in keys])


@pytest.mark.parametrize("kernel", KERNELS)
def test_md5_of_a_large_key_among_small_ones_equals_hashlib(kernel: str) -> None:
    """One key has a megabyte."""
    keys = [b"a" * 60, random.Random(1).randbytes(1 << 20), b"b" * 100, b"c"]
    assert [md5(key) for key in keys] == key_hash.md5_with(kernel, keys)


def test_md5_of_published_collision_is_equal() -> None:
    """The vector has two different keys with equal sums, which an attacker can make."""
    vector = golden.vectors("md5_collision")
    keys = [bytes.fromhex(vector[name]) for name in ("first", "second")]
    assert keys[0] != keys[1]
    for kernel in KERNELS:
        assert [bytes.fromhex(vector["md5"])] * 2 == key_hash.md5_with(kernel, keys)


def test_md5_kernels_end_with_the_portable_one() -> None:
    """The best kernel is first; the portable kernel is always available."""
    assert KERNELS[-1] == "portable"


def test_md5_unknown_kernel_is_refused() -> None:
    """A kernel that this CPU does not have raises."""
    with pytest.raises(ValueError, match=r"MD5 kernel must be one of .*, got 'abacus'"):
        key_hash.md5_with("abacus", [b""])


# Of the reference implementation: secret 00..0f, input 00..n-1.
PUBLISHED = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
}


@pytest.mark.parametrize("size", PUBLISHED)
def test_siphash_equals_published_values(size: int) -> None:
    """The kernel and the oracle equal the published SipHash."""
    expected = bytes.fromhex(PUBLISHED[size])
    assert expected == siphash_128(SECRET, bytes(range(size)))
    assert [expected] == key_hash.siphash(SECRET, [bytes(range(size))])


def test_siphash_of_all_sizes_equals_reference() -> None:
    """Every tail of a word; nothing after the key is read."""
    keys = [random.Random(size).randbytes(size) for size in range(70)]
    assert [siphash_128(SECRET, key) for key in keys] == key_hash.siphash(
        SECRET, [exact(key) for key in keys]
    )


@settings(max_examples=examples(50))
@given(secret=st.binary(min_size=16, max_size=16), keys=st.lists(st.binary(), max_size=5))
def test_siphash_of_any_key_equals_reference(secret: bytes, keys: list[bytes]) -> None:
    """All bytes of the secret change the hash."""
    assert [siphash_128(secret, key) for key in keys] == key_hash.siphash(secret, keys)


@pytest.mark.parametrize("size", [0, 15, 17])
def test_siphash_secret_of_wrong_size_is_refused(size: int) -> None:
    """A secret has 16 bytes."""
    with pytest.raises(ValueError, match="a secret must have 16 bytes, got"):
        key_hash.siphash(bytes(size), [b""])


@pytest.mark.parametrize("buffer", BUFFER_KINDS)
def test_hashes_of_any_buffer_are_equal(buffer: str) -> None:
    """Any contiguous buffer of bytes is a key."""
    key = BUFFER_KINDS[buffer](b"123456789")
    assert [md5(b"123456789")] == key_hash.md5_with(KERNELS[0], [key])
    assert [siphash_128(SECRET, b"123456789")] == key_hash.siphash(SECRET, [key])


@settings(max_examples=examples(60))
@given(keys=st.lists(st.binary(max_size=70), max_size=140), skipped=st.integers(0, 5))
def test_cells_of_a_column_equal_single_keys(keys: list[bytes], skipped: int) -> None:
    """MD5 and SipHash, columns that start after other bytes, empty cells."""
    data = b"x" * skipped + b"".join(keys)
    ends = np.cumsum([skipped, *map(len, keys)]).astype(np.int32)
    assert b"".join(map(md5, keys)) == key_hash.hash_cells(exact(data), ends)
    secret = b"".join(key_hash.siphash(SECRET, keys))
    assert secret == key_hash.hash_cells(exact(data), ends, secret=SECRET)


@pytest.mark.parametrize("offsets", [[0, 3, 2], [-1, 2], [0, 4]])
def test_cells_outside_their_bytes_are_refused(offsets: list[int]) -> None:
    """Offsets fall, start before or end after the bytes; secrets of another size."""
    with pytest.raises(ValueError, match="offsets"):
        key_hash.hash_cells(b"abc", np.array(offsets, np.int32))
    assert b"" == key_hash.hash_cells(b"", np.array([0], np.int32))
    with pytest.raises(ValueError, match="secret"):
        key_hash.hash_cells(b"abc", np.array([0, 3], np.int32), secret=b"short")
