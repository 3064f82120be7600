"""Partitions of a manager: the data directory of each, and its log if it is open.

Thread-safety: every method from any thread; the registry's lock is held for moments. The lock of a
partition is held to open, close or delete its log, and is taken after the manager's lock.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter

from kafkalog.errors import TopicExistsError, UnknownTopicOrPartitionError
from kafkalog.forking import refuse_in_children
from kafkalog.log.log import Log
from kafkalog.manager.directory import DataDirectory
from kafkalog.model import TopicPartition

__all__ = ["ManagedPartition", "PartitionRegistry"]


class ManagedPartition:
    """
    One partition of a manager.

    Attributes:
        topic_partition: its name.
        directory: its data directory.
        topic_id: the id in its `partition.metadata`, None if the file has no id.
        lock: held while its log is opened, closed or deleted.
        log: its log, None while it is not open.
        error: reason of the last failure to open it, or of `block`; None otherwise.
        is_duplicate: whether an operator must remove the cause before it can be opened.
        rivals: other data directories that have it, or may have it.
        is_gone: whether it was deleted or moved, or its directory opened again.
    """

    __slots__ = (
        "directory",
        "error",
        "is_duplicate",
        "is_gone",
        "lock",
        "log",
        "rivals",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: DataDirectory,
        topic_id: uuid.UUID | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.directory = directory
        self.topic_id = topic_id
        self.lock = threading.RLock()
        self.log: Log | None = None
        self.error: BaseException | None = None
        self.is_duplicate = False
        self.rivals: tuple[DataDirectory, ...] = ()
        self.is_gone = False

    def __repr__(self) -> str:
        return f"<ManagedPartition {self.topic_partition} in {self.directory.path}>"

    @property
    def usable_log(self) -> Log | None:
        """The log, if it is open and accepts writes."""
        log = self.log
        if log is None or log.is_closed or log.offline_error is not None:
            return None
        return log

    def set_log(self, log: Log) -> None:
        """Record the log that was opened."""
        self.log, self.error = log, None

    def remove_log(self) -> Log | None:
        """Return the log, which the partition no longer has; None if it was not open."""
        log, self.log = self.log, None
        return log

    def record_error(self, error: BaseException) -> None:
        """Record the error of an attempt to open the log."""
        self.error = error

    def block(self, error: BaseException, rival: DataDirectory | None = None) -> None:
        """
        Refuse to open the partition until an operator has removed the cause.

        Args:
            error: the error that every attempt to open it raises.
            rival: another data directory that has the partition, or may have it.
        """
        self.error, self.is_duplicate = error, True
        if rival is not None and rival not in self.rivals:
            self.rivals = (*self.rivals, rival)

    def free(self) -> None:
        """Permit opening again, after `block`."""
        self.error, self.is_duplicate, self.rivals = None, False, ()

    def set_topic_id(self, topic_id: uuid.UUID) -> None:
        """Record the topic id, which a broker writes after the first segment."""
        self.topic_id = topic_id

    def mark_gone(self) -> None:
        """Record that the partition was deleted or moved, or its directory opened again."""
        self.is_gone = True

    def mark_present(self) -> None:
        """Undo `mark_gone`, if the disk refused the deletion."""
        self.is_gone = False


class PartitionRegistry:
    """All partitions of a manager."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        # By topic, with counts, because every creation of a partition reads both.
        self._topics: dict[str, dict[int, ManagedPartition]] = {}
        self._counts: Counter[DataDirectory] = Counter()
        refuse_in_children(self)

    def __len__(self) -> int:
        return self._counts.total()

    def __contains__(self, partition: TopicPartition) -> bool:
        return self._find(partition) is not None

    def get(self, partition: TopicPartition) -> ManagedPartition:
        """
        Return a partition.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
        """
        found = self._find(partition)
        if found is None:
            raise UnknownTopicOrPartitionError(f"partition not found: {partition}")
        return found

    def add(self, partition: ManagedPartition) -> ManagedPartition | None:
        """Add a partition and return None; if its name is in use, return the present one."""
        topic, number = partition.topic_partition
        with self._guard:
            partitions = self._topics.setdefault(topic, {})
            present = partitions.get(number)
            if present is None:
                partitions[number] = partition
                self._counts[partition.directory] += 1
        return None if present is partition else present

    def add_new(self, partition: ManagedPartition) -> None:
        """Add a new partition; raise TopicExistsError if its name is in use."""
        if self.add(partition) is not None:
            raise TopicExistsError(f"partition {partition.topic_partition} exists")

    def replace(self, partition: ManagedPartition, other: ManagedPartition) -> None:
        """Replace a partition by another one of the same name."""
        topic, number = partition.topic_partition
        with self._guard:
            self._topics[topic][number] = other
            self._counts[partition.directory] -= 1
            self._counts[other.directory] += 1

    def remove(self, partition: ManagedPartition) -> None:
        """Remove a partition; no effect if it was removed."""
        topic, number = partition.topic_partition
        with self._guard:
            if self._find(partition.topic_partition) is not partition:
                return
            del self._topics[topic][number]
            if not self._topics[topic]:
                del self._topics[topic]
            self._counts[partition.directory] -= 1

    def all(self) -> list[ManagedPartition]:
        """Return all partitions, by name."""
        with self._guard:
            return [
                partitions[number]
                for _topic, partitions in sorted(self._topics.items())
                for number in sorted(partitions)
            ]

    def of_topic(self, topic: str) -> list[ManagedPartition]:
        """Return the partitions of a topic, by number."""
        with self._guard:
            partitions = self._topics.get(topic, {})
            return [partitions[number] for number in sorted(partitions)]

    def in_directory(self, directory: DataDirectory) -> list[ManagedPartition]:
        """Return the partitions in a directory, by name."""
        return [each for each in self.all() if each.directory is directory]

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """Return the topic id of a topic's partitions, None if they have no id."""
        ids = (each.topic_id for each in self.of_topic(topic))
        return next((each for each in ids if each is not None), None)

    def topic_names(self) -> tuple[str, ...]:
        """Return the topics with at least one partition, unordered."""
        with self._guard:
            return tuple(self._topics)

    def topics(self) -> dict[str, tuple[int, ...]]:
        """Return the topics with the numbers of their partitions, in ascending order."""
        with self._guard:
            return {
                topic: tuple(sorted(partitions))
                for topic, partitions in sorted(self._topics.items())
            }

    def counts(self) -> Counter[DataDirectory]:
        """Return the number of partitions of each directory."""
        with self._guard:
            return self._counts.copy()

    def open_counts(self) -> Counter[DataDirectory]:
        """Return the number of open logs of each directory."""
        return Counter(each.directory for each in self.all() if each.log and not each.log.is_closed)

    def become_inherited(self) -> None:
        """Keep the partitions as they are: this process was forked, only its parent adds others."""
        self._guard = threading.Lock()

    def _find(self, partition: TopicPartition) -> ManagedPartition | None:
        return self._topics.get(partition.topic, {}).get(partition.partition)
