"""Compaction of single partitions, for whoever asks the manager for it.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalog.cleaner.cleaning import CleaningProgress, CleaningResult
from kafkalog.cleaner.explain import CompactionExplanation, explain_compaction
from kafkalog.cleaner.plan import plan_compaction
from kafkalog.cleaner.plan_model import CompactionPlan
from kafkalog.log.log import Log
from kafkalog.manager.cleaning.compaction import Compaction
from kafkalog.manager.opening import LogOpener
from kafkalog.manager.registry import PartitionRegistry
from kafkalog.manager.settings import TopicSettings
from kafkalog.manager.standing import ManagerStanding
from kafkalog.model import TopicPartition

__all__ = ["CompactingManager"]


class CompactingManager(ManagerStanding):
    """What can be asked of a manager about compaction; a base of `LogManager`."""

    _registry: PartitionRegistry
    _opener: LogOpener
    _settings: TopicSettings
    _compaction: Compaction

    def compact(
        self,
        topic: str,
        partition: int = 0,
        *,
        include_active: bool = False,
        on_progress: Callable[[CleaningProgress], object] | None = None,
    ) -> CleaningResult:
        """
        Compact a partition now, in the calling thread, as far as its settings let it be.

        How dirty it is does not matter; `min.compaction.lag.ms` and open transactions do. Where a
        thread of the cleaner has it, that is waited for, and what is left is cleaned. The limit of
        bytes a second counts here too, as does the memory of one thread for its keys: where that
        does not suffice for all that is dirty, the answer is not `is_complete`, and the next call
        goes on from there.

        Args:
            topic, partition: which.
            include_active: whether to begin a new segment first, so that the one that is appended
                to now is compacted as well.
            on_progress: told how far it is; what it raises ends the cleaning, and is raised here.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
            ConfigError: `compact` is not in its `cleanup.policy`.
            LogCleaningAbortedError: it was truncated, deleted, told another policy, or the manager
                closed, meanwhile. Nothing is lost; what was replaced already stays so.
            DiskFullError, LogStorageError, LogOfflineError: the disk refused.
        """
        self._ensure_owner_process()
        self._ensure_open()
        found = self._registry.get(TopicPartition(topic, partition))
        return self._compaction.compact(
            found, include_active=include_active, on_progress=on_progress
        )

    def plan_compaction(
        self,
        topic: str,
        partition: int = 0,
        *,
        include_active: bool = False,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> CompactionPlan:
        """
        Find out what `compact` would do now; nothing is changed, whatever the `cleanup.policy`.

        Arguments and errors as for `kafkalog.plan_compaction`.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """
        return plan_compaction(
            self._open_partition(topic, partition),
            include_active=include_active,
            config=self._settings.config.cleaner,
            on_progress=on_progress,
        )

    def explain_compaction(
        self, topic: str, partition: int, offset: int, *, include_active: bool = False
    ) -> CompactionExplanation:
        """
        Say which rule keeps or removes the record at an offset, if `compact` ran now.

        Arguments and errors as for `kafkalog.explain_compaction`.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """
        return explain_compaction(
            self._open_partition(topic, partition),
            offset,
            include_active=include_active,
            config=self._settings.config.cleaner,
        )

    def _open_partition(self, topic: str, partition: int) -> Log:
        self._ensure_open()
        return self._opener.open(self._registry.get(TopicPartition(topic, partition)))
