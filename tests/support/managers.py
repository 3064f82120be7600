"""Managers of logs on manual time, and what their tests look at on the disk."""

from __future__ import annotations

import contextlib
import errno
import weakref
from pathlib import Path
from typing import Any

from kafkalog import FileSystem, LogConfig, LogManager, ManagerConfig, Record
from kafkalog.errors import LogStorageError
from kafkalog.files.names import CLEAN_SHUTDOWN_MARKER
from kafkalog.files.posix import PosixFileSystem
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import OffsetCheckpoint
from tests.support.manual_time import ManualScheduler
from tests.support.simulated_disk import SimulatedDisk

__all__ = [
    "append_texts",
    "checkpointed",
    "fail_directory",
    "has_marker",
    "manual_manager",
    "scheduler_of",
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


# For tests that look at partition 0 of Kafka's own topics; a broker's default is 50.
ONE_PARTITION = ManagerConfig(
    log=SMALL_LOG, offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1
)


# The schedulers of the managers that tests have open.
SCHEDULERS: weakref.WeakKeyDictionary[LogManager, ManualScheduler] = weakref.WeakKeyDictionary()


def manual_manager(
    *directories: Path, config: ManagerConfig | None = None, **arguments: Any
) -> LogManager:
    """Open a manager with a manual clock whose work waits for a test to run it."""
    scheduler = ManualScheduler()
    manager = LogManager(
        directories,
        config or ManagerConfig(log=SMALL_LOG),
        clock=scheduler.clock,
        scheduler=scheduler,
        **arguments,
    )
    SCHEDULERS[manager] = scheduler
    return manager


def scheduler_of(manager: LogManager) -> ManualScheduler:
    """Return the scheduler, with its clock, of a manager that `manual_manager` has opened."""
    return SCHEDULERS[manager]


def append_texts(manager: LogManager, topic: str, partition: int, *texts: str) -> None:
    """Append a record for each text, in a separate batch."""
    for text in texts:
        manager.log(topic, partition).append([Record(value=text.encode())])


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
