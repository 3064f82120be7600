"""Factory of the producers and consumers of one manager, with the parts that they share.

All of them share one transaction coordinator and one view of the positions of groups. Before the
first of them is made, the transactions that the previous process left unfinished are finished.

Thread-safety: every method from any thread; the lock guards recovery and the set of producers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from random import Random, SystemRandom
from typing import Any, NamedTuple
from weakref import WeakSet

from kafkalog.clients.accumulator import ProducerCounters
from kafkalog.clients.batch_sender import ReportFull
from kafkalog.clients.config import ConsumerConfig, ProducerConfig
from kafkalog.clients.consumer import Consumer, LostRecords
from kafkalog.clients.group_offsets import GroupOffsets
from kafkalog.clients.group_positions import GroupPositions, ReadOnlyPositions
from kafkalog.clients.internal_topics import (
    CONSUMER_OFFSETS,
    InternalTopicSettings,
    OnUnreadable,
)
from kafkalog.clients.producer import DeliveryRules, OnFull, Producer
from kafkalog.clients.producer_sequence import draw_producer_id
from kafkalog.clients.source import LogSource
from kafkalog.clients.transactions import Coordinators, TransactionCoordinator
from kafkalog.clock import Clock, SystemClock
from kafkalog.errors import KafkaLogError, ReadOnlyLogError
from kafkalog.forking import forked_error, refuse_in_children
from kafkalog.log.log import Wait
from kafkalog.log.reading import OnCorrupt
from kafkalog.model import TopicPartition
from kafkalog.scheduler import Scheduler
from kafkalog.settings import settings_of, unknown_name

__all__ = ["Clients", "OpenPositions", "ProducerFigures", "consumer_config", "producer_config"]

logger = logging.getLogger(__name__)

# Returns the positions of a consumer's group, given those in the directories.
OpenPositions = Callable[[GroupPositions], GroupPositions]


class ProducerFigures(NamedTuple):
    """
    Figures of all producers of a manager together.

    Attributes:
        producer_count: number of the open producers.
        reserved_bytes, limit_bytes: `buffer.memory` that undelivered batches use, and all of it.
        waiting_batches, oldest_ms: batches that are full or due and not written, and the age of
            the oldest.
        retry_count, failure_count: batches that were written again after an error, and that were
            not delivered, with those of closed producers.
    """

    producer_count: int
    reserved_bytes: int
    limit_bytes: int
    waiting_batches: int
    oldest_ms: int
    retry_count: int
    failure_count: int


class Clients:
    """
    Factory of producers and consumers.

    Args:
        source: the logs.
        clock: clock of all of them; the system clock if None.
        scheduler: scheduler of all producers; a separate thread for each producer if None.
        random: draws producer ids, and partitions for records without a key.
        on_unreadable: called with records of Kafka's own topics that cannot be decoded.
        internal_topics: settings with which these topics are created.
        on_full: see `DeliveryRules`.
    """

    def __init__(
        self,
        source: LogSource,
        *,
        clock: Clock | None = None,
        scheduler: Scheduler | None = None,
        random: Random | None = None,
        on_unreadable: OnUnreadable | None = None,
        internal_topics: InternalTopicSettings | None = None,
        on_full: ReportFull | None = None,
    ) -> None:
        self._source = source
        self._clock = SystemClock() if clock is None else clock
        self._scheduler = scheduler
        self._on_full = on_full
        self._random = SystemRandom() if random is None else random
        topics = InternalTopicSettings() if internal_topics is None else internal_topics
        self._offsets = GroupOffsets(
            source,
            on_unreadable,
            self._clock,
            partition_count=topics.offsets_partitions,
            is_own=topics.is_own,
        )
        self._coordinator = TransactionCoordinator(
            source,
            self._clock,
            self._random,
            on_unreadable,
            partition_count=topics.transaction_partitions,
            is_own=topics.is_own,
        )
        self._coordinators = Coordinators(self._offsets, self._coordinator)
        self._is_read_only = topics.is_read_only
        self._lock = threading.Lock()
        self._has_recovered = False
        self._producers: WeakSet[Producer] = WeakSet()
        self._counters = ProducerCounters()
        self._is_inherited = False
        refuse_in_children(self)

    def become_inherited(self) -> None:
        """Refuse all work: this process was forked."""
        self._is_inherited = True
        self._lock = threading.Lock()

    def producer(
        self, *, wait: Wait = "written", on_full: OnFull = "wait", **settings: Any
    ) -> Producer:
        """See `LogManager.producer`."""
        self._recover()
        made = Producer(
            self._source,
            producer_config(settings),
            rules=DeliveryRules(wait, on_full, self._on_full, self._counters),
            clock=self._clock,
            scheduler=self._scheduler,
            random=self._random,
            coordinators=self._coordinators,
        )
        with self._lock:
            self._producers.add(made)
        return made

    def consumer(
        self,
        group: str = "",
        *,
        on_corrupt: OnCorrupt = "raise",
        on_lost: Callable[[LostRecords], object] | None = None,
        open_positions: OpenPositions | None = None,
        **settings: Any,
    ) -> Consumer:
        """
        Return a consumer; see `LogManager.consumer`.

        Args:
            group, on_corrupt, on_lost, settings: as for `LogManager.consumer`.
            open_positions: returns the positions of the group, given those in the directories.
        """
        self._recover()
        config = consumer_config(settings)
        if open_positions is not None and not group:
            raise ValueError("group must be named for a consumer with a file of positions")
        if self._is_read_only and open_positions is None and group and config.enable_auto_commit:
            raise ReadOnlyLogError(
                f"enable_auto_commit of group {group!r} needs positions_file: the manager is"
                " read-only"
            )
        return Consumer(
            self._source,
            group,
            config,
            coordinators=self._coordinators_for(open_positions),
            clock=self._clock,
            on_corrupt=on_corrupt,
            on_lost=on_lost,
        )

    def new_producer_id(self) -> int:
        """See `LogManager.new_producer_id`."""
        self._ensure_own()
        return draw_producer_id(self._random)

    def _coordinators_for(self, open_positions: OpenPositions | None) -> Coordinators:
        """Return what a consumer uses; one of a read-only manager undoes no transactions."""
        positions: GroupPositions = self._offsets
        if open_positions is not None:
            positions = open_positions(positions)
        elif self._is_read_only:
            positions = ReadOnlyPositions(positions)
        transactions = None if self._is_read_only else self._coordinator
        return Coordinators(self._offsets, transactions, positions)

    def remove_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Remove the positions of groups in deleted partitions; a storage error is only logged."""
        self._ensure_own()
        gone = {each for each in partitions if each.topic != CONSUMER_OFFSETS}
        if not gone:
            return
        try:
            self._offsets.remove(gone, now_ms=self._clock.now_ms())
        except KafkaLogError as error:
            logger.warning("groups keep their positions in deleted partitions: %s", error)

    def lower_epochs(self, highest: int) -> int:
        """
        Commit the groups' positions with a leader epoch above `highest` again; return how many.

        Raises:
            LogStorageError: as for an append.
        """
        self._recover()
        return self._offsets.lower_epochs(highest, now_ms=self._clock.now_ms())

    def figures(self) -> ProducerFigures:
        """Return the figures of all producers."""
        with self._lock:
            producers = [each for each in self._producers if not each.is_closed]
        waiting = [each.waiting() for each in producers]
        return ProducerFigures(
            len(producers),
            sum(each.pending_bytes for each in producers),
            sum(each.memory_bytes for each in producers),
            sum(each.batch_count for each in waiting),
            max((each.oldest_ms for each in waiting), default=0),
            self._counters.retry_count,
            self._counters.failure_count,
        )

    def group_offsets(self) -> dict[str, dict[TopicPartition, int]]:
        """
        Return the committed offsets of all groups, by group and partition.

        Groups whose positions cannot be read now are left out.
        """
        return {
            group: {where: position.offset for where, position in positions.items()}
            for group, positions in self._offsets.all_committed().items()
        }

    def close(self) -> None:
        """
        Deliver the records of all producers, and close them, before the logs are closed.

        Records that cannot be written now get a ClientClosedError. Never raises: a transaction that
        could not be aborted is undone by the next process. In a forked child nothing happens.
        """
        if self._is_inherited:
            return
        with self._lock:
            producers = list(self._producers)
        for producer in producers:
            try:
                producer.close(timeout_ms=0)
            except KafkaLogError as error:
                logger.warning("%s was not closed in order: %s", producer, error)

    def _ensure_own(self) -> None:
        if self._is_inherited:
            raise forked_error("the manager")

    def _recover(self) -> None:
        self._ensure_own()
        if self._is_read_only:
            return
        with self._lock:
            if not self._has_recovered:
                self._has_recovered = self._coordinator.recover()


def producer_config(settings: dict[str, Any]) -> ProducerConfig:
    """Return the settings of a producer, given as fields; ConfigError of a wrong one."""
    made: ProducerConfig = _config(ProducerConfig, settings)
    return made


def consumer_config(settings: dict[str, Any]) -> ConsumerConfig:
    """Return the settings of a consumer, given as fields; ConfigError of a wrong one."""
    made: ConsumerConfig = _config(ConsumerConfig, settings)
    return made


def _config(kind: type[Any], settings: dict[str, Any]) -> Any:
    names = settings_of(kind)
    for name in settings:
        if name not in names:
            raise unknown_name("setting", name, names)
    return kind(**settings)
