"""Records: out of batches in every form that is offered, and into a batch under construction."""

from __future__ import annotations

from ..common import (
    BASE_TIMESTAMP_MS,
    KAFKA_BATCH_SIZES,
    VALUE_BYTES,
    batch,
    keys_and_values,
    load,
    record_count_of,
    run,
)

TOTAL_BYTES = 8 << 20
HEADER_BYTES = 61
BUILT_RECORDS = 10_000
SIZE_LIMIT = 1 << 30


class DecodeColumns:
    """Eight mebibytes of uncompressed batches into columns, in one call."""

    params = (KAFKA_BATCH_SIZES, VALUE_BYTES)
    param_names = ("batch_bytes", "value_bytes")

    def setup(self, batch_bytes, value_bytes):
        """Make the bytes and the columns."""
        self.decode_run, columns = load("kafkalog._core.columns", "decode_run", "RecordColumns")
        self.data = run(TOTAL_BYTES, batch_bytes, value_bytes)
        self.columns = columns(len(self.data) // value_bytes)

    def time_decode_run(self, batch_bytes, value_bytes):
        """CRC checked, as a reader does."""
        self.columns.clear()
        self.decode_run(self.data, 0, self.columns)

    def time_decode_run_unchecked(self, batch_bytes, value_bytes):
        """Without the CRC."""
        self.columns.clear()
        self.decode_run(self.data, 0, self.columns, check_crc=False)


class DecodeBatch:
    """One batch into Python objects of several kinds."""

    params = (KAFKA_BATCH_SIZES, VALUE_BYTES)
    param_names = ("batch_bytes", "value_bytes")

    def setup(self, batch_bytes, value_bytes):
        """Make the batch and parse its header."""
        (parse_header,) = load("kafkalog._core.batch", "parse_header")
        self.record = load("kafkalog._core.record")
        self.data = batch(0, record_count_of(batch_bytes, value_bytes), value_bytes)
        self.header = parse_header(self.data)

    def time_records_untouched(self, batch_bytes, value_bytes):
        """Record objects without access to their fields."""
        self.record.decode_records(self.data, self.header, HEADER_BYTES, len(self.data))

    def time_records_touched(self, batch_bytes, value_bytes):
        """Record objects, key and value of each."""
        records = self.record.decode_records(self.data, self.header, HEADER_BYTES, len(self.data))
        for record in records:
            record.key
            record.value

    def time_tuples(self, batch_bytes, value_bytes):
        """(key, value) tuples."""
        self.record.decode_tuples(self.data, self.header, HEADER_BYTES, len(self.data))

    def time_lists(self, batch_bytes, value_bytes):
        """A list of keys and a list of values."""
        self.record.decode_lists(self.data, self.header, HEADER_BYTES, len(self.data))

    def time_check(self, batch_bytes, value_bytes):
        """Full validation, nothing built."""
        self.record.check_records(self.data, self.header, HEADER_BYTES, len(self.data))


class BuildBatch:
    """Ten thousand records into one batch."""

    params = VALUE_BYTES
    param_names = ("value_bytes",)

    def setup(self, value_bytes):
        """Make the keys and values, and a builder that has grown already."""
        (builder,) = load("kafkalog._core.builder", "BatchBuilder")
        self.keys, self.values = keys_and_values(BUILT_RECORDS, value_bytes)
        self.builder = builder()
        self.time_extend_lists(value_bytes)

    def time_append(self, value_bytes):
        """One call per record."""
        builder = self.builder
        builder.reset()
        for key, value in zip(self.keys, self.values, strict=True):
            builder.append(key, value, BASE_TIMESTAMP_MS)
        builder.finish()

    def time_extend_lists(self, value_bytes):
        """One call for two lists."""
        builder = self.builder
        builder.reset()
        builder.extend_lists(self.keys, self.values, BASE_TIMESTAMP_MS, 0, SIZE_LIMIT)
        builder.finish()
