"""A retention pass over a log: with nothing to delete, which is almost all of them, and why."""

from __future__ import annotations

from ..common import InDirectory, fill, load, sizes

SEGMENT_BYTES = 16 * 1024
# The records are of 2023: a century keeps them.
CENTURY_MS = 3_155_760_000_000


class RetentionPass(InDirectory):
    """A log of many small segments, their timestamps known after the first pass."""

    params = sizes((10, 100, 1000), (10,))
    param_names = ("segments",)

    def setup(self, segments):
        """Fill a log whose settings delete nothing yet."""
        open_log, config = load("kafkalog", "open_log", "LogConfig")
        settings = config(
            segment_bytes=SEGMENT_BYTES,
            segment_index_bytes=4096,
            batch_bytes=4096,
            retention_ms=CENTURY_MS,
            retention_bytes=1 << 40,
        )
        self.log = open_log(self.make_directory() / "retained-0", config=settings)
        if not hasattr(self.log, "apply_retention"):
            raise NotImplementedError
        fill(self.log, segments * SEGMENT_BYTES, 100)
        self.log.apply_retention()

    def time_apply_nothing(self, segments):
        """Look at every segment, delete none."""
        self.log.apply_retention()

    def time_explain(self, segments):
        """Explain every segment that stays."""
        self.log.explain_retention()
