"""The hash of keys: one at a time, as a producer asks, and a column at once."""

from __future__ import annotations

import numpy as np

from ..common import load, random_bytes

CALLS = 1000
KEYS = 100_000
PARTITIONS = 12


class Murmur2:
    """Partitions of keys of one size."""

    params = (4, 16, 100)
    param_names = ("key_bytes",)

    def setup(self, key_bytes):
        """Make the keys."""
        self.partition_of, self.partition_column = load(
            "kafkalog._core.murmur2", "partition_of", "partition_column"
        )
        (column,) = load("kafkalog", "BytesColumn")
        data = random_bytes(KEYS * key_bytes)
        self.keys = [data[i * key_bytes : (i + 1) * key_bytes] for i in range(CALLS)]
        self.column = column(data, np.arange(0, len(data) + 1, key_bytes, dtype=np.int64))
        self.partitions = np.empty(KEYS, np.int32)

    def time_partition_of(self, key_bytes):
        """A thousand keys, a call for each."""
        partition_of = self.partition_of
        for key in self.keys:
            partition_of(key, PARTITIONS)

    def time_partition_column(self, key_bytes):
        """A hundred thousand keys in one call."""
        self.partition_column(self.column, PARTITIONS, self.partitions)
