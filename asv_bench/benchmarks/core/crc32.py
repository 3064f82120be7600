"""CRC-32: our kernel and, for the ratio, that of `zlib` on the same bytes."""

from __future__ import annotations

import zlib

from ..common import load, random_bytes


class Crc32:
    """One checksum; old messages are mostly small, and of any size."""

    params = (62, 126, 1024, 16 * 1024, 1024 * 1024)
    param_names = ("size_bytes",)

    def setup(self, size_bytes):
        """Make the bytes."""
        (self.value,) = load("kafkalog._core.crc32", "value")
        self.data = random_bytes(size_bytes)

    def time_value(self, size_bytes):
        """The kernel that was chosen for this processor."""
        self.value(self.data)

    def time_zlib(self, size_bytes):
        """The library that is the oracle."""
        zlib.crc32(self.data)
