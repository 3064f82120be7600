"""Table of the topics of a producer: their partitions, and the accumulator of each partition.

A topic is read from the source at the first record, then when it is older than
`metadata.max.age.ms`, or when a caller names a partition that is not in the table.

Records without a key stick to a partition until a batch's worth of them went there, and then to
another, drawn at random: small batches for every partition would cost more than they spread. The
partition of a record with a key is that of Kafka's producers, murmur2 of the key (`Producer.send`).

Thread-safety: every method from any thread. The lock guards the table; entries are replaced, so
`by_name` is read without it. The lock is not held while a log is opened.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random

from kafkalog.clients.accumulator import Accumulator
from kafkalog.clients.config import ProducerConfig
from kafkalog.clients.source import LogSource
from kafkalog.clock import Clock
from kafkalog.errors import KafkaLogError, UnknownTopicOrPartitionError
from kafkalog.log.log import Log
from kafkalog.model import TopicPartition

__all__ = ["Topic", "TopicTable"]


class Topic:
    """
    Topic to which records were sent.

    Args:
        partitions: numbers of its partitions.
        stick_bytes: bytes without a key for one partition before another is drawn.
        random: draws the partitions.
        refreshed_ms: time at which the partitions were read.

    Thread-safety: every method from any thread; two threads may both draw a partition.

    Attributes:
        accumulators: accumulator of each partition, by number; None before its first record.
    """

    __slots__ = (
        "_left_bytes",
        "_random",
        "_stick_bytes",
        "_sticky",
        "accumulators",
        "partitions",
        "refreshed_ms",
    )

    def __init__(
        self, partitions: tuple[int, ...], stick_bytes: int, random: Random, refreshed_ms: int
    ) -> None:
        self.partitions = partitions
        self.accumulators: list[Accumulator | None] = [None] * (max(partitions) + 1)
        self.refreshed_ms = refreshed_ms
        self._random = random
        self._sticky = random.randrange(len(self.accumulators))
        self._stick_bytes = self._left_bytes = stick_bytes

    def set_refreshed(self, now_ms: int) -> None:
        """Set the time at which the partitions were read."""
        self.refreshed_ms = now_ms

    def sticky_partition(self, size: int) -> int:
        """Return the partition of a record without a key, and count its size."""
        partition = self._sticky
        self._left_bytes -= size
        if self._left_bytes <= 0:
            self._left_bytes = self._stick_bytes
            self._sticky = self._random.randrange(len(self.accumulators))
        return partition


class TopicTable:
    """
    Topics of one producer.

    Args:
        source: the logs.
        config: settings of the producer.
        clock: source of the times at which topics were read.
        random: draws partitions for records without a key.
        new_accumulator: makes the accumulator of a partition.

    Attributes:
        by_name: topics that were read, by name; only this object changes it.
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
        self.by_name: dict[str, Topic] = {}

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
            found = self.by_name.get(topic)
            if found is not None and found.partitions == partitions:
                found.set_refreshed(now_ms)
                return found
            made = Topic(partitions, self._config.batch_size, self._random, now_ms)
            if found is not None:
                count = min(len(found.accumulators), len(made.accumulators))
                made.accumulators[:count] = found.accumulators[:count]
            self.by_name[topic] = made
            return made

    def refresh_if_old(self, topic: str, now_ms: int) -> None:
        """Read a topic again after `metadata.max.age.ms`; if that fails it stays as it is."""
        if now_ms - self.by_name[topic].refreshed_ms >= self._config.metadata_max_age_ms:
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
            accumulators = self.by_name[topic].accumulators
            found = accumulators[partition]
            if found is None:
                where = TopicPartition(topic, partition)
                found = accumulators[partition] = self._new_accumulator(where, log)
            return found


def _unknown(topic: str, names: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(topic, sorted(names), n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"topic not found: {topic!r}{hint}"
