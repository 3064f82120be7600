"""CRC-32C: our kernel and, for the ratio, the `crc32c` package on the same bytes."""

from __future__ import annotations

import crc32c

from ..common import load, random_bytes


class Crc32c:
    """One checksum."""

    params = (64, 1024, 16 * 1024, 1024 * 1024)
    param_names = ("size_bytes",)

    def setup(self, size_bytes):
        """Make the bytes."""
        (self.value,) = load("kafkalog._core.crc32c", "value")
        self.data = random_bytes(size_bytes)

    def time_value(self, size_bytes):
        """The kernel that was chosen for this processor."""
        self.value(self.data)

    def time_package(self, size_bytes):
        """The package that is the oracle and the fallback."""
        crc32c.crc32c(self.data)
