"""Batch headers: parse one, walk many, find one, stamp many."""

from __future__ import annotations

from ..common import KAFKA_BATCH_SIZES, load, run

TOTAL_BYTES = 8 << 20
VALUE_BYTES = 100
CALLS = 1000


class ParseHeader:
    """A thousand headers, one call each."""

    def setup(self):
        """Make one batch."""
        (self.parse,) = load("kafkalog._core.batch", "parse_header")
        self.data = run(1, 16 * 1024, VALUE_BYTES)

    def time_parse(self):
        """Parse the same header again and again."""
        parse, data = self.parse, self.data
        for _ in range(CALLS):
            parse(data)


class ScanBatches:
    """A walk over eight mebibytes."""

    params = KAFKA_BATCH_SIZES
    param_names = ("batch_bytes",)

    def setup(self, batch_bytes):
        """Make the bytes and the columns."""
        self.scan, columns = load("kafkalog._core.batch", "scan_batches", "BatchColumns")
        self.data = run(TOTAL_BYTES, batch_bytes, VALUE_BYTES)
        self.columns = columns(len(self.data) // 1024)

    def time_scan(self, batch_bytes):
        """Headers into columns, each batch's CRC checked."""
        self.columns.clear()
        self.scan(self.data, columns=self.columns)

    def time_scan_headers(self, batch_bytes):
        """Headers into columns, no CRC."""
        self.columns.clear()
        self.scan(self.data, columns=self.columns, check_crc=False)


class FindBatch:
    """Position of an offset or a timestamp, from the start of eight mebibytes; and after damage."""

    params = KAFKA_BATCH_SIZES
    param_names = ("batch_bytes",)

    def setup(self, batch_bytes):
        """Make the bytes, and a copy whose first batch is damaged."""
        self.find_offset, self.find_batch = load(
            "kafkalog._core.batch", "find_offset", "find_batch"
        )
        self.data = run(TOTAL_BYTES, batch_bytes, VALUE_BYTES)
        self.last = TOTAL_BYTES // (VALUE_BYTES + 40)

    def time_find_offset(self, batch_bytes):
        """Walk headers to an offset near the end."""
        self.find_offset(self.data, self.last)

    def time_find_batch(self, batch_bytes):
        """Search byte by byte for the second batch."""
        self.find_batch(self.data, 1, offset_min=0, offset_max=1 << 40)


class StampBatches:
    """Offsets and leader epoch into encoded batches, in place."""

    params = KAFKA_BATCH_SIZES
    param_names = ("batch_bytes",)

    def setup(self, batch_bytes):
        """Make a buffer that may be written."""
        (self.assign,) = load("kafkalog._core.batch", "assign_offsets")
        self.data = bytearray(run(TOTAL_BYTES, batch_bytes, VALUE_BYTES))

    def time_assign(self, batch_bytes):
        """Stamp them all."""
        self.assign(self.data, base_offset=1 << 32, partition_leader_epoch=3)
