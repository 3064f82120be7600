"""Messages of the old formats: out of runs and wrappers in every form, and into sets."""

from __future__ import annotations

import zlib

from ..common import (
    BASE_TIMESTAMP_MS,
    VALUE_BYTES,
    keys_and_values,
    load,
    message,
    message_run,
)

COUNT = 10_000
MAGICS = (0, 1)
GZIP = 1
GZIP_WINDOW = 31


class DecodePlain:
    """Ten thousand plain messages into columns, in one call."""

    params = (MAGICS, VALUE_BYTES)
    param_names = ("magic", "value_bytes")

    def setup(self, magic, value_bytes):
        """Make the bytes and the columns."""
        load("kafkalog._core.message")  # else this version knows no old messages
        self.decode_run, columns = load("kafkalog._core.columns", "decode_run", "RecordColumns")
        self.data = message_run(magic, COUNT, value_bytes)
        self.columns = columns(COUNT)

    def time_decode_run(self, magic, value_bytes):
        """CRC checked, as a reader does."""
        self.columns.clear()
        self.decode_run(self.data, 0, self.columns)


class DecodePlainObjects:
    """Ten thousand plain messages into objects of several kinds, in one call."""

    params = (MAGICS, VALUE_BYTES)
    param_names = ("magic", "value_bytes")

    def setup(self, magic, value_bytes):
        """Make the bytes."""
        self.kernels = load("kafkalog._core.message")
        self.data = message_run(magic, COUNT, value_bytes)

    def time_records_touched(self, magic, value_bytes):
        """Record objects, key and value of each."""
        for record in self.kernels.decode_run_records(self.data)[0]:
            record.key
            record.value

    def time_tuples(self, magic, value_bytes):
        """(key, value) tuples."""
        self.kernels.decode_run_tuples(self.data)

    def time_lists(self, magic, value_bytes):
        """A list of keys and a list of values."""
        self.kernels.decode_run_lists(self.data)


class DecodeWrapped:
    """Content of one wrapper of ten thousand messages, into objects of several kinds."""

    params = (MAGICS, VALUE_BYTES)
    param_names = ("magic", "value_bytes")

    def setup(self, magic, value_bytes):
        """Make the messages, their wrapper's header, and columns."""
        self.kernels = load("kafkalog._core.message")
        (parse_header,) = load("kafkalog._core.header", "parse_header")
        (columns,) = load("kafkalog._core.columns", "RecordColumns")
        self.data = message_run(magic, COUNT, value_bytes)
        value = zlib.compress(self.data, 1, wbits=GZIP_WINDOW)
        stamp = BASE_TIMESTAMP_MS + COUNT - 1
        self.header = parse_header(message(magic, COUNT - 1, stamp, None, value, codec=GZIP))
        self.columns = columns(COUNT)

    def time_records_touched(self, magic, value_bytes):
        """Record objects, key and value of each; the sums inside are checked."""
        for record in self.kernels.decode_messages(self.data, self.header, 0, len(self.data)):
            record.key
            record.value

    def time_tuples(self, magic, value_bytes):
        """(key, value) tuples."""
        self.kernels.decode_message_tuples(self.data, self.header, 0, len(self.data))

    def time_lists(self, magic, value_bytes):
        """A list of keys and a list of values."""
        self.kernels.decode_message_lists(self.data, self.header, 0, len(self.data))

    def time_columns(self, magic, value_bytes):
        """Columns, nothing else."""
        self.columns.clear()
        self.kernels.decode_message_columns(self.data, self.header, 0, len(self.data), self.columns)

    def time_check(self, magic, value_bytes):
        """Full validation, nothing built."""
        self.kernels.check_messages(self.data, self.header, 0, len(self.data))


class BuildMessages:
    """Ten thousand records into one set of messages."""

    params = (MAGICS, VALUE_BYTES)
    param_names = ("magic", "value_bytes")

    def setup(self, magic, value_bytes):
        """Make the keys and values, and a builder that has grown already."""
        (builder,) = load("kafkalog._core.message_builder", "MessageSetBuilder")
        self.keys, self.values = keys_and_values(COUNT, value_bytes)
        self.builder = builder(magic)
        self.time_extend_lists(magic, value_bytes)

    def time_append(self, magic, value_bytes):
        """One call per record."""
        builder = self.builder
        builder.reset()
        for key, value in zip(self.keys, self.values, strict=True):
            builder.append(key, value, BASE_TIMESTAMP_MS)
        builder.finish_plain()

    def time_extend_lists(self, magic, value_bytes):
        """One call for two lists."""
        builder = self.builder
        builder.reset()
        builder.extend_lists(self.keys, self.values, BASE_TIMESTAMP_MS)
        builder.finish_plain()
