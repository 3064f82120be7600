"""Compaction: in memory keys into the offset map, then what stays of each batch; and of a log."""

from __future__ import annotations

import numpy as np

from ..common import InDirectory, keys_and_values, load, sizes

RECORDS = 128_000
BATCH_RECORDS = 128
VALUE_BYTES = 100
SECRET = bytes(range(16))


class Compact:
    """One run of batches, all of it dirty."""

    params = (0, 9)
    param_names = ("superseded_of_ten",)

    def setup(self, superseded_of_ten):
        """Make the run, and a map in which later offsets wait for so many of ten keys."""
        (batch_run,) = load("kafkalog.records.conversion.conversion_units", "FileRecords")
        (self.tracker,) = load("kafkalog.cleaner.transactions", "TransactionTracker")
        (self.collector,) = load("kafkalog.cleaner.keys", "KeyCollector")
        self.filter, rules = load("kafkalog.cleaner.record_filter", "RecordFilter", "CleaningRules")
        (offset_map,) = load("kafkalog._core.offset_map", "OffsetMap")
        (builder_type,) = load("kafkalog._core.builder", "BatchBuilder")
        keys = [b"key-%012d" % number for number in range(RECORDS)]
        builder, batches = builder_type(), []
        for start in range(0, RECORDS, BATCH_RECORDS):
            for key in keys[start : start + BATCH_RECORDS]:
                builder.append(key, bytes(VALUE_BYTES), start)
            batches.append(bytes(builder.finish(base_offset=start)))
            builder.reset()
        self.data = batch_run(memoryview(b"".join(batches)))
        self.rules = rules(0, 0, 2 * RECORDS, {}, 1 << 20)
        self.empty, self.map = (
            offset_map(np.zeros(2 * RECORDS * 24, np.uint8), secret=SECRET) for _ in range(2)
        )
        offsets = np.arange(RECORDS, dtype=np.int64)
        self.map.put_run(
            b"".join(keys),
            offsets * len(keys[0]),
            np.full(RECORDS, len(keys[0]), np.int32),
            np.where(offsets % 10 < superseded_of_ten, offsets + RECORDS, offsets),
        )

    def time_collect_keys(self, superseded_of_ten):
        """The first pass."""
        self.empty.clear(secret=SECRET)
        self.collector(self.empty, self.tracker()).add(self.data)

    def time_filter(self, superseded_of_ten):
        """The second pass."""
        record_filter = self.filter(self.map, self.rules, self.tracker())
        record_filter.filter(self.data, old_tombstones_stay=True)


class CompactLog(InDirectory):
    """A log of several segments on disk; every key comes ten times."""

    number = 1
    repeat = (3, 10, 10.0)
    params = (sizes((10_000, 500_000), (2_000,)), ("uncompressed", "zstd"))
    param_names = ("records", "codec")

    def setup(self, records, codec):
        """Fill a log, and begin a new segment: the one before it can be cleaned."""
        open_log, config, record, self.compact_log = load(
            "kafkalog", "open_log", "LogConfig", "Record", "compact_log"
        )
        settings = config(
            segment_bytes=16 << 20, cleanup_policy=("compact",), compression_type=codec
        )
        keys, values = keys_and_values(records // 10, VALUE_BYTES)
        made = [record(key=key, value=value) for key, value in zip(keys, values, strict=True)]
        self.log = open_log(self.make_directory() / "compacted-0", config=settings)
        for _ in range(10):
            self.log.append(made)
        self.log.roll()

    def time_compact(self, records, codec):
        """Both passes and the exchange of segments."""
        self.compact_log(self.log)
