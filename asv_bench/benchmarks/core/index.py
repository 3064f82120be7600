"""Look-ups in index entries: one at a time through a held view, and many at once."""

from __future__ import annotations

import bisect

import numpy as np

from ..common import BASE_TIMESTAMP_MS, SEED, load, offset_index, time_index

CALLS = 1000
KEYS = 100_000
BASE_OFFSET = 5_000_000_000


class OffsetIndexLookup:
    """Floor look-ups by offset."""

    params = (1_000, 1_300_000)
    param_names = ("entries",)

    def setup(self, entries):
        """Make the entries, the keys, and the list that `bisect` searches for comparison."""
        (view,) = load("kafkalog._core.index", "OffsetIndexView")
        data = offset_index(entries)
        self.index = view(data, BASE_OFFSET)
        relative = np.frombuffer(data, ">i4")[::2].astype(np.int64)
        self.offsets = (relative + BASE_OFFSET).tolist()
        last = self.offsets[-1]
        random = np.random.default_rng(SEED)
        self.many = random.integers(BASE_OFFSET, last, KEYS)
        self.out = np.empty(KEYS, np.int64)
        self.random_keys = self.many[:CALLS].tolist()
        self.tail_keys = random.integers(max(BASE_OFFSET, last - 20_000), last, CALLS).tolist()

    def time_floor_random(self, entries):
        """A thousand keys anywhere."""
        lookup = self.index.lookup
        for key in self.random_keys:
            lookup(key)

    def time_floor_tail(self, entries):
        """A thousand keys near the end, where most reads are."""
        lookup = self.index.lookup
        for key in self.tail_keys:
            lookup(key)

    def time_floor_many(self, entries):
        """A hundred thousand keys in one call."""
        self.index.lookup_many(self.many, self.out)

    def time_bisect_random(self, entries):
        """The same thousand keys by `bisect` on a list."""
        offsets = self.offsets
        for key in self.random_keys:
            bisect.bisect_right(offsets, key)


class TimeIndexLookup:
    """Floor look-ups by timestamp."""

    params = (1_000, 870_000)
    param_names = ("entries",)

    def setup(self, entries):
        """Make the entries and the keys."""
        (view,) = load("kafkalog._core.index", "TimeIndexView")
        self.index = view(time_index(entries), BASE_OFFSET)
        random = np.random.default_rng(SEED)
        self.keys = (BASE_TIMESTAMP_MS + random.integers(0, entries * 40, CALLS)).tolist()

    def time_floor_random(self, entries):
        """A thousand keys anywhere."""
        lookup = self.index.lookup
        for key in self.keys:
            lookup(key)


class CheckIndex:
    """The check of order and range before the first use."""

    params = (1_000, 1_300_000)
    param_names = ("entries",)

    def setup(self, entries):
        """Make the entries."""
        (self.check,) = load("kafkalog._core.index", "check_offset_index")
        self.data = offset_index(entries)

    def time_check(self, entries):
        """Check all entries."""
        self.check(self.data, segment_size=(1 << 31) - 1)
