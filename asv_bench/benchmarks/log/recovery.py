"""Opening a log after a clean stop, and after a kill."""

from __future__ import annotations

import shutil

from ..common import InDirectory, load, run

SEGMENT_BYTES = 1 << 20
BATCH_BYTES = 16 * 1024


class OpenLog(InDirectory):
    """A log of several segments of a mebibyte, warm."""

    number = 1
    repeat = (3, 10, 5.0)
    params = (1, 16, 64)
    param_names = ("segments",)

    def setup(self, segments):
        """Fill a log; keep a copy taken while it was open, as a kill would leave it."""
        self.open_log, config = load("kafkalog", "open_log", "LogConfig")
        self.config = config(segment_bytes=SEGMENT_BYTES)
        data = run(SEGMENT_BYTES * 7 // 8, BATCH_BYTES, 100)
        self.clean = self.make_directory() / "clean-0"
        self.killed = self.directory / "killed-0"
        with self.open_log(self.clean, config=self.config) as log:
            for _ in range(segments):
                log.append_batches(bytearray(data))
            shutil.copytree(self.clean, self.killed)

    def time_open_clean(self, segments):
        """Nothing to scan; closed again."""
        self.open_log(self.clean, config=self.config).close()

    def time_open_unclean(self, segments):
        """Every batch read and checked, every index made anew; closed again."""
        self.open_log(self.killed, config=self.config).close()

    def time_open_read_only(self, segments):
        """Beside a writer that is not there."""
        self.open_log(self.clean, config=self.config, read_only=True).close()
