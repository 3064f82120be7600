"""Managers of logs on manual time, and what their tests look at on the disk."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafkalog import FileSystem, LogConfig, LogManager, ManagerConfig, Record
from kafkalog.errors import LogStorageError
from kafkalog.files.names import CLEAN_SHUTDOWN_MARKER
from kafkalog.files.posix import PosixFileSystem
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import OffsetCheckpoint
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.simulated_disk import SimulatedDisk

__all__ = [
    "ManualManager",
    "checkpointed",
    "fail_directory",
    "has_marker",
    "manual_manager",
    "values",
]

# A small log: a few records fill a segment, and the clock of the tests may stand anywhere.
SMALL_LOG = LogConfig(
    segment_bytes=600,
    index_interval_bytes=100,
    segment_index_bytes=96,
    batch_bytes=200,
    message_timestamp_after_max_ms=2**62,
    file_delete_delay_ms=1_000,
)


class ManualManager(LogManager):
    """
    A manager with a manual clock.

    Attributes:
        clock, scheduler: what moves it.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        config: ManagerConfig | None = None,
        *,
        scheduler: ManualScheduler | None = None,
        **arguments: Any,
    ) -> None:
        self.scheduler = ManualScheduler() if scheduler is None else scheduler
        super().__init__(
            directories,
            config or ManagerConfig(log=SMALL_LOG),
            clock=self.scheduler.clock,
            scheduler=self.scheduler,
            **arguments,
        )

    @property
    def time(self) -> ManualClock:
        """The clock that everything here runs on."""
        return self.scheduler.clock

    def append(self, topic: str, partition: int, *texts: str) -> None:
        """Append a record for each text, in a separate batch."""
        for text in texts:
            self.log(topic, partition).append([Record(value=text.encode())])


# For tests that look at partition 0 of Kafka's own topics; a broker's default is 50.
ONE_PARTITION = ManagerConfig(
    log=SMALL_LOG, offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1
)


def manual_manager(*directories: Path, **arguments: Any) -> ManualManager:
    """Open a manager with a manual clock whose work waits for a test to run it."""
    return ManualManager(directories, **arguments)


def fail_directory(
    disk: SimulatedDisk, manager: LogManager, topic: str, partition: int = 0
) -> None:
    """Let a sync of a partition fail, which marks its directory offline."""
    path = manager.directory_of(topic, partition)
    disk.fail_at(1, errno.EIO, only=frozenset({"sync"}), suffix=".log")
    with contextlib.suppress(LogStorageError):
        manager.log(topic, partition).flush()
    online = {each.path: each.is_online for each in manager.health().directories}
    assert not online[path]


def values(manager: LogManager, topic: str, partition: int = 0) -> list[str]:
    """Return the texts of a partition."""
    return [
        (record.value or b"").decode(errors="replace")
        for record in manager.log(topic, partition).records()
    ]


def checkpointed(
    directory: Path, name: str, filesystem: FileSystem | None = None
) -> dict[str, int]:
    """Return the lines of a checkpoint file of a data directory."""
    filesystem = PosixFileSystem() if filesystem is None else filesystem
    found: dict[TopicPartition, int] = OffsetCheckpoint(filesystem, directory / name).read()
    return {str(partition): offset for partition, offset in found.items()}


def has_marker(directory: Path, filesystem: FileSystem | None = None) -> bool:
    """Return whether a data directory has the marker of a clean shutdown."""
    filesystem = PosixFileSystem() if filesystem is None else filesystem
    return filesystem.stat(directory / CLEAN_SHUTDOWN_MARKER) is not None
