"""Table of the topics of a producer: their partitions, and the accumulator of each partition.

A topic is read from the source at the first record, then when it is older than
`metadata.max.age.ms`, or when a caller names a partition that is not in the table.

A record with a key goes where Kafka's producers send it: murmur2 of the key selects the partition.
Without a key it sticks to a partition until a batch's worth of such records went there, and then to
another, drawn at random: small batches for every partition would cost more than they spread.

Thread-safety: every method from any thread. The lock guards the table; entries are replaced, so
`find` reads without it. The lock is not held while a log is opened.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random

from kafkalog._core.murmur2 import partition_of
from kafkalog.clients.accumulator import Accumulator
from kafkalog.clients.config import ProducerConfig
from kafkalog.clients.source import LogSource
from kafkalog.clock import Clock
from kafkalog.errors import KafkaLogError, UnknownTopicOrPartitionError
from kafkalog.log.log import Log
from kafkalog.model import TopicPartition

__all__ = ["StickyPartition", "Topic", "TopicTable"]


class StickyPartition:
    """
    Current partition of a topic for records without a key.

    Args:
        partition_count: number of partitions of the topic.
        stick_bytes: bytes for one partition before another is drawn.
        random: draws the partitions.

    Thread-safety: every method from any thread; two threads may both draw a partition.

    Attributes:
        partition: the current partition.
    """

    __slots__ = ("_count", "_left_bytes", "_random", "_stick_bytes", "partition")

    def __init__(self, partition_count: int, stick_bytes: int, random: Random) -> None:
        self._count = partition_count
        self._stick_bytes = stick_bytes
        self._random = random
        self.partition = random.randrange(partition_count)
        self._left_bytes = stick_bytes

    def count_record(self, size: int) -> None:
        """Count a record for the current partition; draw another partition if it is full."""
        self._left_bytes -= size
        if self._left_bytes <= 0:
            self._left_bytes = self._stick_bytes
            self.partition = self._random.randrange(self._count)


class Topic:
    """
    Topic to which records were sent.

    Attributes:
        partitions: numbers of its partitions.
        accumulators: accumulator of each partition, by number; None before its first record.
        sticky: partition of records without a key.
    """

    __slots__ = ("accumulators", "partitions", "refreshed_ms", "sticky")

    def __init__(
        self, partitions: tuple[int, ...], sticky: StickyPartition, refreshed_ms: int
    ) -> None:
        self.partitions = partitions
        self.accumulators: list[Accumulator | None] = [None] * (max(partitions) + 1)
        self.sticky = sticky
        self.refreshed_ms = refreshed_ms

    def set_refreshed(self, now_ms: int) -> None:
        """Set the time at which the partitions were read."""
        self.refreshed_ms = now_ms

    def select_partition(self, key: bytes | None, value: bytes | None, *, ignore_key: bool) -> int:
        """
        Return the partition of a record, by its key or in turn.

        Raises:
            TypeError: the key is not bytes.
        """
        if key is None or ignore_key:
            partition = self.sticky.partition
            self.sticky.count_record(len(value or b"") + len(key or b"") + 8)
            return partition
        try:
            return partition_of(key, len(self.accumulators))
        except TypeError:
            raise TypeError(f"key must be bytes or None, got {type(key).__name__}") from None


class TopicTable:
    """
    Topics of one producer.

    Args:
        source: the logs.
        config: settings of the producer.
        clock: source of the times at which topics were read.
        random: draws partitions for records without a key.
        new_accumulator: makes the accumulator of a partition.
    """

    def __init__(
        self,
        source: LogSource,
        config: ProducerConfig,
        clock: Clock,
        random: Random,
        new_accumulator: Callable[[TopicPartition, Log], Accumulator],
    ) -> None:
        self._source = source
        self._config = config
        self._clock = clock
        self._random = random
        self._new_accumulator = new_accumulator
        self._lock = threading.Lock()
        self._topics: dict[str, Topic] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def find(self, topic: str) -> Topic:
        """
        Return a topic.

        Raises:
            KafkaLogError: as for `refresh`.
        """
        return self._topics.get(topic) or self.refresh(topic)

    def refresh(self, topic: str) -> Topic:
        """
        Return a topic with all its current partitions, read from the source.

        Raises:
            KafkaLogError: the topic does not exist, or its log does not open.
        """
        topics = self._source.topics()
        partitions = tuple(sorted(topics.get(topic, ())))
        if not partitions:
            try:
                self._source.log(topic, 0)
            except UnknownTopicOrPartitionError as error:
                raise UnknownTopicOrPartitionError(_unknown(topic, topics)) from error
            partitions = (0,)
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            found = self._topics.get(topic)
            if found is not None and found.partitions == partitions:
                found.set_refreshed(now_ms)
                return found
            stick_bytes = self._config.batch_size
            sticky = StickyPartition(max(partitions) + 1, stick_bytes, self._random)
            made = Topic(partitions, sticky, now_ms)
            if found is not None:
                count = min(len(found.accumulators), len(made.accumulators))
                made.accumulators[:count] = found.accumulators[:count]
            self._topics[topic] = made
            return made

    def refresh_if_old(self, topic: str, now_ms: int) -> None:
        """Read a topic again after `metadata.max.age.ms`; if that fails it stays as it is."""
        if now_ms - self._topics[topic].refreshed_ms >= self._config.metadata_max_age_ms:
            with suppress(KafkaLogError):
                self.refresh(topic)

    def accumulator(self, topic: str, partition: int) -> Accumulator:
        """
        Return the accumulator of a partition, made if necessary.

        Raises:
            KafkaLogError: the partition does not exist, or its log does not open.
        """
        # The topic is read again: the caller may name a partition that was added since.
        self.refresh(topic)
        log = self._source.log(topic, partition)
        with self._lock:
            accumulators = self._topics[topic].accumulators
            found = accumulators[partition]
            if found is None:
                where = TopicPartition(topic, partition)
                found = accumulators[partition] = self._new_accumulator(where, log)
            return found


def _unknown(topic: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(topic, sorted(known), n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"topic not found: {topic!r}{hint}"
