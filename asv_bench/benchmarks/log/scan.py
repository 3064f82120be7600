"""Scan of a log in the page cache into Arrow columns."""

from __future__ import annotations

from pathlib import Path

from ..common import BASE_TIMESTAMP_MS, InDirectory, fill, load

TOTAL_BYTES = 16 << 20
SEGMENT_BYTES = 4 << 20
VALUE_BYTES = 100
BATCH_BYTES = 16 * 1024


class ScanLog(InDirectory):
    """A log of sixteen mebibytes in four segments."""

    params = ("uncompressed", "lz4", "zstd")
    param_names = ("codec",)

    def setup(self, codec):
        """Fill the log with batches of 16 KiB."""
        open_log, config = load("kafkalog", "open_log", "LogConfig")
        self.log = open_log(
            self.make_directory() / "scan-0",
            config=config(
                segment_bytes=SEGMENT_BYTES, batch_bytes=BATCH_BYTES, compression_type=codec
            ),
        )
        fill(self.log, TOTAL_BYTES, VALUE_BYTES)
        self.end_offset = self.log.log_end_offset
        if not hasattr(self.log, "scan"):
            raise NotImplementedError("before scans")

    def run(self, **how):
        """Read a scan to its end."""
        for _batch in self.log.scan(**how):
            pass

    def time_default_columns(self, codec):
        """All eight."""
        self.run()

    def time_offset_timestamp_key_value(self, codec):
        """Usual columns."""
        self.run(columns=["offset", "timestamp", "key", "value"])

    def time_views(self, codec):
        """Keys and values as views."""
        self.run(columns=["offset", "timestamp", "key", "value"], binary_type="binary_view")

    def time_offset(self, codec):
        """No byte of a key or a value."""
        self.run(columns=["offset"])

    def time_one_key(self, codec):
        """Every record is asked for its key, none has it."""
        self.run(columns=["value"], filters=[("key", "==", b"no such key")])

    def time_last_offsets(self, codec):
        """The last hundred records."""
        self.run(columns=["value"], filters=[("offset", ">=", self.end_offset - 100)])

    def time_last_times(self, codec):
        """The last hundred records, by their times."""
        first = BASE_TIMESTAMP_MS + self.end_offset - 100
        self.run(columns=["value"], filters=[("timestamp", ">=", first)])

    def time_to_numpy(self, codec):
        """All at once."""
        self.log.scan(columns=["offset", "timestamp", "value"]).to_numpy()

    def track_memory_growth(self, codec):
        """Most memory of a running scan beyond what was there; mapped files do not count."""
        before = largest = _anonymous_bytes()
        for _batch in self.log.scan():
            largest = max(largest, _anonymous_bytes())
        return largest - before

    track_memory_growth.unit = "bytes"  # type: ignore[attr-defined]


def _anonymous_bytes():
    status = Path("/proc/self/status").read_text("ascii")
    return 1024 * int(status.split("RssAnon:")[1].split()[0])
