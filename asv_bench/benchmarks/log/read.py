"""Reads of a log in the page cache."""

from __future__ import annotations

import socket
import threading

import numpy as np

from ..common import BASE_TIMESTAMP_MS, SEED, InDirectory, fill, load, message_run

TOTAL_BYTES = 16 << 20
SEGMENT_BYTES = 4 << 20
VALUE_BYTES = 100
LOOKUPS = 200
MESSAGES = 20_000


class FilledLog(InDirectory):
    """Base: a log of sixteen mebibytes in four segments."""

    params = (4 * 1024, 16 * 1024)
    param_names = ("batch_bytes",)

    def setup(self, batch_bytes):
        """Fill the log with batches of the size."""
        open_log, config = load("kafkalog", "open_log", "LogConfig")
        self.log = open_log(
            self.make_directory() / "read-0",
            config=config(segment_bytes=SEGMENT_BYTES, batch_bytes=batch_bytes),
        )
        fill(self.log, TOTAL_BYTES, VALUE_BYTES)
        random = np.random.default_rng(SEED)
        self.offsets = random.integers(0, self.log.log_end_offset, LOOKUPS).tolist()


class ReadSequential(FilledLog):
    """The whole log, from its first offset to its end."""

    def time_read(self, batch_bytes):
        """Slices of a mebibyte."""
        log, offset = self.log, 0
        while offset < log.log_end_offset:
            fetched = log.read(offset, max_bytes=1 << 20)
            offset = fetched.next_offset

    def time_records(self, batch_bytes):
        """Record objects, untouched."""
        for _ in self.log.records():
            pass

    def time_batches(self, batch_bytes):
        """Batch views."""
        for _ in self.log.batches():
            pass


class ReadMessages(InDirectory):
    """A log of twenty thousand plain messages of an old format."""

    params = (0, 1)
    param_names = ("magic",)

    def setup(self, magic):
        """Fill the log, as a follower does."""
        (open_log,) = load("kafkalog", "open_log")
        self.log = open_log(self.make_directory() / "read-0")
        self.log.append_batches(message_run(magic, MESSAGES, VALUE_BYTES), assign_offsets=False)

    def time_records(self, magic):
        """Record objects, untouched."""
        for _ in self.log.records():
            pass

    def time_records_touched(self, magic):
        """Record objects, key and value of each."""
        for record in self.log.records():
            record.key
            record.value


class ReadRandom(FilledLog):
    """Two hundred look-ups anywhere in the log."""

    def time_read(self, batch_bytes):
        """The batch that holds an offset, its bytes in hand."""
        read = self.log.read
        for offset in self.offsets:
            read(offset, max_bytes=1).data

    def time_get(self, batch_bytes):
        """One record by its offset."""
        get = getattr(self.log, "get", None)
        if get is None:
            raise NotImplementedError("this version reads ranges only")
        for offset in self.offsets:
            get(offset).value

    def time_get_many(self, batch_bytes):
        """The same in one call."""
        get_many = getattr(self.log, "get_many", None)
        if get_many is None:
            raise NotImplementedError("before calls for many")
        get_many(self.offsets)

    def time_offsets_for_timestamps(self, batch_bytes):
        """Times of records, in one call."""
        find = getattr(self.log, "offsets_for_timestamps", None)
        if find is None:
            raise NotImplementedError("before calls for many")
        find([BASE_TIMESTAMP_MS + offset for offset in self.offsets])

    def time_offset_for_timestamp(self, batch_bytes):
        """The first record at or after a time."""
        find = self.log.offset_for_timestamp
        for offset in self.offsets:
            find(BASE_TIMESTAMP_MS + offset)


class ReadTail(FilledLog):
    """The newest batch, which most readers want."""

    def time_read_last_batch(self, batch_bytes):
        """Two hundred times."""
        read, offset = self.log.read, self.log.log_end_offset - 1
        for _ in range(LOOKUPS):
            read(offset).data


class ReadMissing(FilledLog):
    """An offset that does not exist yet."""

    def setup(self, batch_bytes):
        """Know the error."""
        (self.error,) = load("kafkalog.errors", "OffsetOutOfRangeError")
        super().setup(batch_bytes)

    def time_read_past_end(self, batch_bytes):
        """Two hundred refusals."""
        read, offset = self.log.read, self.log.log_end_offset + 1
        for _ in range(LOOKUPS):
            try:
                read(offset)
            except self.error:
                continue
            raise AssertionError("an offset above the end was read")


class SendLog(FilledLog):
    """The whole log into a socket, whose other end throws it away."""

    def setup(self, batch_bytes):
        """Connect a pair, and read what comes in another thread."""
        super().setup(batch_bytes)
        self.near, far = socket.socketpair()
        if not hasattr(self.log.read(0), "send_to"):
            raise NotImplementedError("before sending")
        self.reader = threading.Thread(target=_read_all, args=(far,), daemon=True)
        self.reader.start()

    def teardown(self, batch_bytes):
        """Let the other end go too."""
        self.near.close()
        if hasattr(self, "reader"):
            self.reader.join()
        super().teardown(batch_bytes)

    def time_send_to(self, batch_bytes):
        """A mebibyte at a time."""
        log, offset = self.log, 0
        while offset < log.log_end_offset:
            fetched = log.read(offset, max_bytes=1 << 20)
            fetched.send_to(self.near)
            offset = fetched.next_offset


def _read_all(far):
    room = bytearray(1 << 20)
    with far:
        while far.recv_into(room):
            pass
