"""Opening a data directory of many small partitions: what a start costs before the first append."""

from __future__ import annotations

from pathlib import Path

from ..common import InDirectory, copy_partition, fill, load, sizes

TOPIC = "orders"
LOG_BYTES = 8 * 1024
MARKER = ".kafka_cleanshutdown"


def count_descriptors():
    """Return how many descriptors this process has."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class OpenDirectory(InDirectory):
    """Partitions of one small segment each, in one directory, warm."""

    number = 1
    repeat = (3, 5, 20.0)
    timeout = 600
    params = sizes((1, 100, 10_000), (1, 20))
    param_names = ("partitions",)

    def setup(self, partitions):
        """Fill one log, and copy it."""
        (self.manager,) = load("kafkalog", "LogManager")
        (open_log,) = load("kafkalog", "open_log")
        self.data = self.make_directory() / "data"
        with open_log(self.directory / "template-0") as log:
            fill(log, LOG_BYTES, 100)
        copy_partition(self.directory / "template-0", self.data, TOPIC, partitions)

    def open_all(self, manager, partitions):
        """Ask every log where it ends."""
        for partition in range(partitions):
            manager.log(TOPIC, partition).log_end_offset

    def time_open_clean(self, partitions):
        """No log is opened before it is requested; closed again."""
        self.manager([self.data]).close()

    def time_open_clean_and_ask_each(self, partitions):
        """Every log is opened; closed again."""
        with self.manager([self.data]) as manager:
            self.open_all(manager, partitions)

    def time_open_unclean(self, partitions):
        """Every log is recovered; closed again."""
        (self.data / MARKER).unlink()
        self.manager([self.data]).close()

    def track_descriptors(self, partitions):
        """Descriptors of the process when every log was opened."""
        before = count_descriptors()
        with self.manager([self.data]) as manager:
            self.open_all(manager, partitions)
            return count_descriptors() - before

    track_descriptors.unit = "descriptors"  # type: ignore[attr-defined]
