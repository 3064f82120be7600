"""A stream's progress as the positions of a consumer group, for tools that show lag.

The positions are stored where Kafka's group coordinator and the engine's consumers store theirs, in
the topic `__consumer_offsets` of the first data directory. They are informational: a stream resumes
from its checkpoint, and does not fail if a position could not be stored.

To store them, the topic's log is opened for writing for a moment. That fails while another program
has the directory open for writing.

Thread-safety: none; one stream's.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from kafkalog.clients.group_offsets import GroupOffsets
from kafkalog.clients.internal_topics import CONSUMER_OFFSETS
from kafkalog.clock import Clock, SystemClock
from kafkalog.config import LogConfig
from kafkalog.errors import KafkaLogError, NotALogError, UnknownTopicOrPartitionError
from kafkalog.files.names import (
    partition_directory_name,
    try_parse_partition_directory,
    try_parse_segment_file,
)
from kafkalog.files.posix import PosixFileSystem
from kafkalog.files.unmapped_filesystem import without_mappings
from kafkalog.log.log import Log
from kafkalog.log.opening import open_log
from kafkalog.log.partition_paths import find_partition_paths
from kafkalog.manager.group_commit import GroupCommitter
from kafkalog.manager.overrides import SavedOverrides, read_overrides, write_overrides
from kafkalog.model import TopicPartition
from kafkalog.spark.options import TOPIC_IDS
from kafkalog.spark.stream_offsets import OffsetJson

__all__ = ["GroupProgress"]

logger = logging.getLogger(__name__)


class GroupProgress:
    """
    Publisher of a group's positions.

    Args:
        paths: the data directories of the stream.
        group: the name of the group.
        clock: dates the positions; the machine's if None.
    """

    def __init__(self, paths: tuple[str, ...], group: str, clock: Clock | None = None) -> None:
        self._root = Path(paths[0]).absolute()
        self._group = group
        self._clock = SystemClock() if clock is None else clock
        self._published: dict[TopicPartition, int] = {}
        self._problem = ""

    def publish(self, offsets: OffsetJson) -> bool:
        """Store the new positions; return True if that succeeded."""
        fresh = {
            TopicPartition(topic, int(number)): offset
            for topic, of_topic in offsets.items()
            if topic != TOPIC_IDS
            for number, offset in of_topic.items()
        }
        changed = {
            name: offset for name, offset in fresh.items() if self._published.get(name) != offset
        }
        if not changed:
            return True
        try:
            with _open_logs(_data_directory(self._root)) as logs:
                positions = GroupOffsets(logs, clock=self._clock)
                positions.commit(self._group, changed, now_ms=self._clock.now_ms(), wait="written")
        except (KafkaLogError, OSError) as error:
            if str(error) != self._problem:
                self._problem = str(error)
                logger.warning("group %s does not get its positions: %s", self._group, error)
            return False
        self._published, self._problem = fresh, ""
        return True


def _data_directory(path: Path) -> Path:
    """Return the data directory of a query's path: the path itself or its parent."""
    disk = PosixFileSystem()
    if not any(try_parse_segment_file(name) is not None for name in disk.list(path)):
        return path
    found = find_partition_paths(disk, path).state_directory
    if found == path:
        raise NotALogError(f"{path} must be in a data directory", path=path)
    return found


@contextmanager
def _open_logs(root: Path) -> Iterator[_LogsOfDirectory]:
    logs = _LogsOfDirectory(root)
    try:
        yield logs
    finally:
        logs.close()


class _LogsOfDirectory:
    """Logs of one data directory, opened for writing on first use."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # The directory may be on shared storage, where nothing may be mapped.
        self._disk = without_mappings(PosixFileSystem())
        self._open: dict[tuple[str, int], Log] = {}
        self._committer = GroupCommitter(1)

    def log(self, topic: str, partition: int) -> Log:
        """Return the log of an existing partition."""
        log = self._open.get((topic, partition))
        if log is None:
            directory = self._root / partition_directory_name(TopicPartition(topic, partition))
            if not directory.is_dir():
                raise UnknownTopicOrPartitionError(f"{directory} does not exist", path=directory)
            log = self._open[topic, partition] = open_log(directory, filesystem=self._disk)
        return log

    def topics(self) -> Mapping[str, tuple[int, ...]]:
        """Return the topic of positions, if it exists."""
        parsed = map(try_parse_partition_directory, PosixFileSystem().list(self._root))
        numbers = sorted(
            each.topic_partition.partition
            for each in parsed
            if each is not None and each.topic_partition.topic == CONSUMER_OFFSETS
        )
        return MappingProxyType({CONSUMER_OFFSETS: tuple(numbers)} if numbers else {})

    def create_topic(
        self, topic: str, partition_count: int = 1, config: Mapping[str, str] | None = None
    ) -> object:
        """Make a topic, with its settings in the place where a manager reads them."""
        settings = dict(config or {})
        for number in range(partition_count):
            directory = self._root / partition_directory_name(TopicPartition(topic, number))
            self._open[topic, number] = open_log(
                directory, config=LogConfig.from_properties(settings), filesystem=self._disk
            )
        # The lock of the first log is that of the data directory: no manager is open.
        disk, now_ms = PosixFileSystem(), SystemClock().now_ms()
        before = read_overrides(disk, self._root) or SavedOverrides()
        content = SavedOverrides(
            before.generation,
            {**before.topics, topic: settings},
            before.defaults,
            before.creating,
            before.deleting,
        )
        write_overrides(disk, self._root, before.followed_by(content, now_ms=now_ms), now_ms=now_ms)
        return None

    def create_partition(self, topic: str, partition: int) -> object:
        """Refuse: a manager moves the topic of an older version, which has one partition."""
        raise NotImplementedError(f"no partition {topic}-{partition} is made here")

    @property
    def delayed_commits(self) -> None:
        """No append is delayed."""
        return None

    def has_files(self, topic: str, partition: int) -> bool:
        """Return whether a partition may hold records."""
        name = partition_directory_name(TopicPartition(topic, partition))
        return any(each.endswith(".log") for each in PosixFileSystem().list(self._root / name))

    def commit(self, logs: Collection[Log]) -> Mapping[Log, KafkaLogError]:
        """Put what was appended to logs on the disk."""
        return self._committer.commit(logs)

    def close(self) -> None:
        """Close what was opened."""
        for log in self._open.values():
            log.close()
        self._open.clear()
