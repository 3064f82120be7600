"""Opening a log after a clean stop, and after a kill."""

from __future__ import annotations

import shutil

from ..common import InDirectory, fill, load, sizes

SEGMENT_BYTES = 1 << 20
BATCH_BYTES = 16 * 1024
LEFT_BY_A_STOP = (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", ".lock")
TAKEN_BY_A_STOP = ".kafkalog_syncs"


class OpenLog(InDirectory):
    """A log of several segments of a mebibyte, warm."""

    number = 1
    repeat = (3, 10, 5.0)
    params = sizes((1, 16, 64), (1, 4))
    param_names = ("segments",)

    def setup(self, segments):
        """Fill a log; keep a copy in the state of a kill before anything was checkpointed."""
        self.open_log, config = load("kafkalog", "open_log", "LogConfig")
        self.config = config(segment_bytes=SEGMENT_BYTES, batch_bytes=BATCH_BYTES)
        self.clean = self.make_directory() / "clean-0"
        self.killed = self.directory / "killed-0"
        with self.open_log(self.clean, config=self.config) as log:
            fill(log, segments * SEGMENT_BYTES, 100)
            note = self.clean / TAKEN_BY_A_STOP
            said = note.read_bytes() if note.exists() else None
        shutil.copytree(self.clean, self.killed, ignore=shutil.ignore_patterns(*LEFT_BY_A_STOP))
        if said is not None:
            (self.killed / TAKEN_BY_A_STOP).write_bytes(said)

    def time_open_clean(self, segments):
        """Nothing to scan; closed again."""
        self.open_log(self.clean, config=self.config).close()

    def time_open_unclean(self, segments):
        """Every batch read and checked, every index rebuilt; closed again."""
        self.open_log(self.killed, config=self.config).close()

    def time_open_read_only(self, segments):
        """Without a writer."""
        self.open_log(self.clean, config=self.config, read_only=True).close()
