"""The collection of segments: finding one among many, and what a change costs."""

from __future__ import annotations

import numpy as np

from ..common import SEED, InDirectory, load, sizes

LOOKUPS = 1_000


class FloorLookup(InDirectory):
    """Offsets anywhere in a log of many segments."""

    params = sizes((10, 500), (10,))
    param_names = ("segments",)

    def setup(self, segments):
        """Make a log that rolled so often."""
        open_log, config, record = load("kafkalog", "open_log", "LogConfig", "Record")
        self.records = [record(value=b"x" * 100)] * 10
        self.log = open_log(
            self.make_directory() / "many-0", config=config(segment_index_bytes=4096)
        )
        for _ in range(segments):
            self.log.append(self.records)
            self.log.roll()
        random = np.random.default_rng(SEED)
        self.offsets = random.integers(0, self.log.log_end_offset, LOOKUPS).tolist()

    def time_floor(self, segments):
        """A thousand reads; the bytes are not asked for."""
        read = self.log.read
        for offset in self.offsets:
            read(offset)

    def time_snapshot_while_rolling(self, segments):
        """Ten rolls, each with an append before it and a read after it."""
        for _ in range(10):
            self.log.append(self.records)
            self.log.roll()
            self.log.segments()
