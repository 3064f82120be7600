"""Appending: from records to the page cache, and to the disk."""

from __future__ import annotations

import numpy as np

from ..common import (
    BASE_TIMESTAMP_MS,
    InDirectory,
    keys_and_values,
    load,
    message_run,
    run,
)

APPENDED_RECORDS = 20_000
WAYS_RECORDS = 10_000
ENCODED_BYTES = 8 << 20


class AppendSequential(InDirectory):
    """Twenty thousand records into a new log, in appends of several sizes."""

    # One call fills one log; the next one gets a new log from `setup`.
    number = 1
    repeat = (3, 10, 5.0)
    params = ((100, 1024), (1, 100, 10_000))
    param_names = ("value_bytes", "append_records")

    def setup(self, value_bytes, append_records):
        """Make the records and an empty log."""
        open_log, record = load("kafkalog", "open_log", "Record")
        count = min(APPENDED_RECORDS, append_records * 2_000)
        keys, values = keys_and_values(count, value_bytes)
        records = [
            record(key=key, value=value, timestamp_ms=BASE_TIMESTAMP_MS)
            for key, value in zip(keys, values, strict=True)
        ]
        self.chunks = [
            records[start : start + append_records] for start in range(0, count, append_records)
        ]
        self.log = open_log(self.make_directory() / "append-0")

    def time_append(self, value_bytes, append_records):
        """Return when the operating system has the bytes."""
        append = self.log.append
        for chunk in self.chunks:
            append(chunk)


class AppendSingle(InDirectory):
    """One record an append, into a log of one or of many segments; and with rolls."""

    number = 1
    repeat = (3, 10, 5.0)
    params = (1, 100)
    param_names = ("segments",)

    def setup(self, segments):
        """Make a log of so many segments."""
        open_log, config, record = load("kafkalog", "open_log", "LogConfig", "Record")
        self.records = [record(key=bytes(16), value=bytes(100), timestamp_ms=BASE_TIMESTAMP_MS)]
        self.log = open_log(self.make_directory() / "append-0")
        self.rolling = config(segment_bytes=100)
        for _ in range(segments):
            self.log.roll()
            self.log.append(self.records)

    def time_append(self, segments):
        """A thousand appends."""
        for _ in range(1000):
            self.log.append(self.records)

    def time_roll(self, segments):
        """An append that begins a segment: the worst that a single one meets."""
        self.log.reconfigure(self.rolling)
        self.log.append(self.records)


class AppendMessages(InDirectory):
    """Twenty thousand records into a new log of an old format, plain: each is a batch there."""

    number = 1
    repeat = (3, 10, 5.0)
    params = ("0.9.0", "0.10.2")
    param_names = ("message_format_version",)

    def setup(self, message_format_version):
        """Make lists, the same as encoded messages, and an empty log."""
        open_log, config = load("kafkalog", "open_log", "LogConfig")
        self.keys, self.values = keys_and_values(APPENDED_RECORDS, 100)
        magic = 0 if message_format_version == "0.9.0" else 1
        self.data = message_run(magic, APPENDED_RECORDS, 100)
        self.log = open_log(
            self.make_directory() / "append-0",
            config=config(message_format_version=message_format_version),
        )

    def time_append_columns(self, message_format_version):
        """A thousand at a time."""
        for start in range(0, APPENDED_RECORDS, 1000):
            stop = start + 1000
            self.log.append_columns(
                self.keys[start:stop], self.values[start:stop], timestamps=BASE_TIMESTAMP_MS
            )

    def time_append_batches(self, message_format_version):
        """As a leader: all in one call, checked and stamped."""
        self.log.append_batches(self.data)

    def time_replicate(self, message_format_version):
        """As a follower: all in one call, checked."""
        self.log.append_batches(self.data, assign_offsets=False)


class AppendBatches(InDirectory):
    """Eight mebibytes of encoded batches, checked and stamped in place."""

    number = 1
    repeat = (3, 10, 5.0)
    params = (16 * 1024, 1024 * 1024)
    param_names = ("batch_bytes",)

    def setup(self, batch_bytes):
        """Make the batches and an empty log."""
        (open_log,) = load("kafkalog", "open_log")
        self.data = bytearray(run(ENCODED_BYTES, batch_bytes - 1024, 100))
        self.log = open_log(self.make_directory() / "append-0")
        if not hasattr(self.log, "append_batches"):
            raise NotImplementedError("this version has no Log.append_batches")

    def time_append_batches(self, batch_bytes):
        """All of them in one call."""
        self.log.append_batches(self.data)


class AppendOldFormats(InDirectory):
    """Twenty thousand records into a log of an old format: packed here, or sent by a producer."""

    number = 1
    repeat = (3, 10, 5.0)
    params = (("0.9.0", "0.10.2"), ("uncompressed", "lz4"))
    param_names = ("message_format_version", "compression_type")

    def setup(self, message_format_version, compression_type):
        """Make columns, what a producer of the time sends of them, and an empty log."""
        open_log, config_class = load("kafkalog", "open_log", "LogConfig")
        if not hasattr(config_class, "message_magic"):
            raise NotImplementedError("this version has no message.format.version")
        config = config_class(
            message_format_version=message_format_version, compression_type=compression_type
        )
        self.keys, self.values = keys_and_values(APPENDED_RECORDS, 100)
        with open_log(self.make_directory() / "sent-0", config=config) as source:
            source.append_columns(self.keys, self.values, timestamps=BASE_TIMESTAMP_MS)
            self.sent = b"".join(bytes(batch.data) for batch in source.batches(0))
        self.log = open_log(self.make_directory() / "append-0", config=config)

    def time_append_columns(self, message_format_version, compression_type):
        """A plain message is one batch; wrappers have as many records as a v2 batch would."""
        self.log.append_columns(self.keys, self.values, timestamps=BASE_TIMESTAMP_MS)

    def time_append_sent(self, message_format_version, compression_type):
        """Messages of the log's own format, as a leader takes them."""
        self.log.append_batches(self.sent)


class AppendSynced(InDirectory):
    """Appends that wait for the disk. Measures the disk, not the library."""

    number = 1
    repeat = (3, 5, 5.0)
    params = (1, 1_000)
    param_names = ("append_records",)

    def setup(self, append_records):
        """Make the records and an empty log."""
        open_log, record = load("kafkalog", "open_log", "Record")
        keys, values = keys_and_values(append_records, 100)
        self.records = [
            record(key=key, value=value) for key, value in zip(keys, values, strict=True)
        ]
        self.log = open_log(self.make_directory() / "append-0")

    def time_append_flush(self, append_records):
        """Ten appends, one sync each."""
        for _ in range(10):
            self.log.append(self.records, wait="durable")


class BytesPerRecord(InDirectory):
    """Bytes on the disk of a record of 116 bytes, batch header and indexes included."""

    unit = "bytes"

    def setup(self):
        """Fill a log."""
        open_log, record = load("kafkalog", "open_log", "Record")
        keys, values = keys_and_values(APPENDED_RECORDS, 100)
        path = self.make_directory() / "append-0"
        with open_log(path) as log:
            log.append(
                record(key=key, value=value, timestamp_ms=BASE_TIMESTAMP_MS)
                for key, value in zip(keys, values, strict=True)
            )
        self.size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())

    def track_bytes_per_record(self):
        """Apparent size of all files after a clean close."""
        return self.size / APPENDED_RECORDS


class AppendApis(InDirectory):
    """Ten thousand records to a log that grows, by each call without objects of records."""

    number = 1
    repeat = (3, 10, 5.0)
    params = (100, 1024)
    param_names = ("value_bytes",)

    def setup(self, value_bytes):
        """Make lists, arrays, and a log whose scan is Arrow."""
        open_log, columns, settings = load("kafkalog", "open_log", "BytesColumn", "LogConfig")
        config = settings(segment_bytes=64 << 20)
        self.keys, self.values = keys_and_values(WAYS_RECORDS, value_bytes)
        self.columns = [
            columns(b"".join(cells), np.cumsum([0, *map(len, cells)], dtype=np.int32))
            for cells in (self.keys, self.values)
        ]
        self.times = np.full(WAYS_RECORDS, BASE_TIMESTAMP_MS)
        self.source = open_log(self.make_directory() / "source-0", config=config)
        self.source.append_columns(self.keys, self.values, timestamps=self.times)
        self.log = open_log(self.directory / "ways-0", config=config)
        if not hasattr(self.log, "append_lists"):
            raise NotImplementedError("before lists and appenders")

    def teardown(self, value_bytes):
        """Close the other log as well."""
        if hasattr(self, "source"):
            self.source.close()
        super().teardown(value_bytes)

    def time_append_columns(self, value_bytes):
        """Arrays with offsets."""
        self.log.append_columns(*self.columns, timestamps=self.times)

    def time_append_arrow(self, value_bytes):
        """A stream of Arrow's C interface: another log's scan, which is in the figure."""
        self.log.append_columns(self.source.scan(columns=["timestamp", "key", "value"]))

    def time_append_lists(self, value_bytes):
        """Lists of bytes."""
        self.log.append_lists(self.keys, self.values)

    def time_appender(self, value_bytes):
        """A call for each record, a write for each mebibyte."""
        with self.log.appender() as appender:
            for key, value in zip(self.keys, self.values, strict=True):
                appender.append(key, value)
