"""The offset map of compaction: keys in and out, as columns; and the hashes alone."""

from __future__ import annotations

import numpy as np

from ..common import load, sizes

(KEYS,) = sizes((1_000_000,), (10_000,))
KEY_SIZE = 16
SECRET = bytes(range(16))


def key_columns(prefix):
    """Return a million keys of 16 bytes, and where they lie."""
    data = b"".join(b"%s-%012d" % (prefix, number) for number in range(KEYS))
    positions = np.arange(KEYS, dtype=np.int64) * KEY_SIZE
    return data, positions, np.full(KEYS, KEY_SIZE, np.int32)


class CleanerMap:
    """A million keys in memory that they fill to the load factor."""

    params = (("md5", "siphash"), (0.5, 0.9))
    param_names = ("identity", "load_factor")

    def setup(self, identity, load_factor):
        """Make the keys and two maps, one empty and one full."""
        (offset_map,) = load("kafkalog._core.offset_map", "OffsetMap")
        self.keys, self.others = key_columns(b"key"), key_columns(b"abs")
        self.offsets = np.arange(KEYS, dtype=np.int64)
        self.found = np.empty(KEYS, np.int64)
        entries = int(KEYS / load_factor) + 1
        self.empty, self.full = (
            offset_map(
                np.zeros(entries * 24, np.uint8), load_factor=1.0, identity=identity, secret=SECRET
            )
            for _ in range(2)
        )
        self.full.put_run(*self.keys, self.offsets)

    def time_put_new(self, identity, load_factor):
        """Every key for the first time, and clearing the memory before."""
        self.empty.clear(secret=SECRET)
        self.empty.put_run(*self.keys, self.offsets)

    def time_put_known(self, identity, load_factor):
        """Every key once more."""
        self.full.put_run(*self.keys, self.offsets)

    def time_get(self, identity, load_factor):
        """Every key looked up."""
        self.full.get_run(*self.keys, self.found)

    def time_get_absent(self, identity, load_factor):
        """As many keys that are not there."""
        self.full.get_run(*self.others, self.found)


class KeyHashes:
    """MD5 of ten thousand keys by one kernel, with lists of bytes in and out."""

    params = (("avx512", "avx2", "vector", "portable"), (16, 100))
    param_names = ("kernel", "key_bytes")

    def setup(self, kernel, key_bytes):
        """Make the keys; a kernel that this CPU has not is skipped."""
        implementations, self.md5 = load(
            "kafkalog._core.key_hash", "md5_implementations", "md5_with"
        )
        if kernel not in implementations():
            raise NotImplementedError(f"no {kernel} here")
        self.keys = [b"%0*d" % (key_bytes, number) for number in range(10_000)]

    def time_md5(self, kernel, key_bytes):
        """All keys in one call."""
        self.md5(kernel, self.keys)
