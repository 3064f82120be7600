"""Compaction of a manager's logs, by background threads and on demand.

Threads `kafka-log-cleaner-thread-N` are started for compacted partitions, one for each, up to
`log.cleaner.threads`. If the scheduler of the manager is not a `ThreadScheduler`, the rounds are
its tasks. A round cleans one log, then applies retention to compacted logs that are not being
cleaned. The manager's periodic retention does that too, less often, and without a cleaner.

The end of a cleaning is checkpointed after its segments were installed. Crash point: between the
two steps; the same records are cleaned again, without a change.

A call for a partition that is being cleaned waits for that cleaning, and then cleans the rest, so
that no finished work is repeated. The limit of bytes per second applies to all cleanings.

Thread-safety: every method from any thread. No lock of the manager, a partition or a log is held
while anything here is waited for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final

from kafkalog.cleaner.cleaning import CleaningProgress, CleaningResult
from kafkalog.cleaner.explain import CompactionExplanation, explain_compaction
from kafkalog.cleaner.plan import plan_compaction
from kafkalog.cleaner.plan_model import CompactionPlan
from kafkalog.errors import ConfigError, LogCleaningAbortedError
from kafkalog.log.log import Log
from kafkalog.manager.cleaning.cleaner_buffers import CleanerBuffers, memory_share
from kafkalog.manager.cleaning.cleaning_history import CLEANER_RETENTION, CleaningHistory
from kafkalog.manager.cleaning.health import (
    CleanerHealth,
    CleaningUnderWay,
    DirtyLog,
    UncleanablePartition,
)
from kafkalog.manager.cleaning.log_selection import (
    REPORTED_ELSEWHERE,
    LogSelection,
    SelectionResult,
    cleanable_bytes,
    cleanable_range,
    record_cleaned,
)
from kafkalog.manager.cleaning.states import CleaningRun, CleaningStates
from kafkalog.manager.cleaning.throttle import Throttle
from kafkalog.manager.cleaning.worker import CleanerWorker
from kafkalog.manager.opening import LogOpener
from kafkalog.manager.registry import ManagedPartition, PartitionRegistry
from kafkalog.manager.settings import TopicSettings
from kafkalog.manager.supervision import Supervisor
from kafkalog.manager_config import CleanerConfig
from kafkalog.model import TopicPartition
from kafkalog.scheduler import Scheduler

__all__ = ["ON_DEMAND", "Compaction"]

logger = logging.getLogger(__name__)

# Name of the last cleaning on demand in health().
ON_DEMAND: Final = "compact"


class Compaction:
    """
    Cleans the logs of a manager.

    Args:
        registry: the partitions.
        settings: settings of the manager and its topics.
        states: states of the partitions.
        opener: opens logs, and gets the errors of directories.
        retain: applies retention to a partition.
        supervisor: has the fault registry and the clock.
        scheduler: runs the rounds; cleaner threads if None.
    """

    def __init__(
        self,
        registry: PartitionRegistry,
        settings: TopicSettings,
        states: CleaningStates,
        opener: LogOpener,
        retain: Callable[[TopicPartition], object],
        supervisor: Supervisor,
        scheduler: Scheduler | None,
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._states = states
        self._open_log = opener.open
        self._on_error = opener.on_directory_error
        self._retain = retain
        self._faults = supervisor.faults
        self._clock = supervisor.clock
        self._scheduler = scheduler
        self._history = CleaningHistory(self._faults, self._clock, self._backoff_ms, self._on_error)
        self._selection = LogSelection(
            registry, settings, states, self._history, self._open_log, self._clock
        )
        self._throttle = Throttle(self._config().io_max_bytes_per_second, self._clock)
        self._guard = threading.Lock()
        self._workers: list[CleanerWorker] = []
        self._retention_lock = threading.Lock()
        self._retention_ms: int | None = None

    # ------------------------------------------------------------------------ in the background

    def start(self, delay_ms: int) -> None:
        """Start threads for compacted partitions; their first round follows after a delay."""
        config = self._config()
        if config.enable and config.threads > len(self._workers) and not self._states.is_stopped:
            self._start_workers(len(self._selection.compacted()), delay_ms)

    def on_topic_created(self, topic: str) -> None:
        """Start threads for a new topic or partition, if it is compacted."""
        if self._settings.config_of(topic).is_compacted:
            self.start(self._backoff_ms())

    def on_settings_changed(self) -> None:
        """Apply changed settings; abort cleanings of topics that are no longer compacted."""
        config = self._config()
        self._throttle.set_limit(config.io_max_bytes_per_second)
        with self._guard:
            surplus = self._workers[config.threads :]
            del self._workers[config.threads :]
        for worker in surplus:
            worker.retire()
        self.start(self._backoff_ms())
        names = [run.topic_partition for run in self._states.under_way()]
        unwanted = [name for name in names if not self._settings.config_of(name.topic).is_compacted]
        self._states.abort(*unwanted)

    def close(self) -> None:
        """Abort all cleanings, wait for their end, and start no more."""
        self._states.stop()
        with self._guard:
            workers = list(self._workers)
        for worker in workers:
            worker.close()

    def _config(self) -> CleanerConfig:
        return self._settings.config.cleaner

    def _backoff_ms(self) -> int:
        return self._config().backoff_ms

    def _start_workers(self, partition_count: int, delay_ms: int) -> None:
        config = self._config()
        with self._guard:
            # `close` stops the states before it takes the guard, so no thread is left over.
            while not self._states.is_stopped and len(self._workers) < min(
                partition_count, config.threads
            ):
                worker = CleanerWorker(
                    f"kafka-log-cleaner-thread-{len(self._workers)}",
                    CleanerBuffers(self._config, self._throttle, self._clock),
                    self._work,
                    self._faults,
                    self._clock,
                    self._scheduler,
                    self._backoff_ms,
                )
                try:
                    worker.start(delay_ms)
                except RuntimeError as error:
                    # The system refused a thread. Other rounds and the next new topic try again.
                    self._faults.record_failure(worker.name, None, error)
                    return
                self._workers.append(worker)

    def _work(self, worker: str, buffers: CleanerBuffers) -> bool:
        """Run a round; return whether the next round should follow at once."""
        chosen = self._selection.begin_next()
        has_more = chosen is not None and self._clean_chosen(worker, buffers, *chosen)
        self._apply_retention()
        return has_more

    def _clean_chosen(
        self, worker: str, buffers: CleanerBuffers, partition: ManagedPartition, run: CleaningRun
    ) -> bool:
        """Clean a log; return whether the next round should follow at once."""
        cleaning: CleaningResult | None = None
        try:
            log = partition.usable_log
            # Since the selection, its topic may have changed, or its log failed.
            if log is not None and log.config.is_compacted:
                cleaning = self._clean(partition, log, run, buffers)
        except (LogCleaningAbortedError, *REPORTED_ELSEWHERE) as error:
            logger.info("%s was not cleaned: %s", partition.topic_partition, error)
        except BaseException as error:
            self._history.record_failure(partition, error)
            if not isinstance(error, Exception):
                raise
            # The partition is skipped for a while; the other partitions follow at once.
            return True
        finally:
            self._states.finish(run)
        if cleaning is None:
            return False
        self._history.record_success(worker, cleaning)
        return True

    def _apply_retention(self) -> None:
        """Apply retention to compacted logs, by one thread, once per `log.cleaner.backoff.ms`."""
        if not self._retention_lock.acquire(blocking=False):
            return
        try:
            now_ms = self._clock.monotonic_ms()
            if self._retention_ms is not None and now_ms - self._retention_ms < self._backoff_ms():
                return
            self._retention_ms = now_ms
            self.start(self._backoff_ms())
            names = [partition.topic_partition for partition in self._selection.compacted()]
            for name in names:
                if self._states.is_stopped:
                    return
                self._retain_one(name)
            self._history.retain_only(set(names))
        finally:
            self._retention_lock.release()

    def _retain_one(self, name: TopicPartition) -> None:
        try:
            self._retain(name)
        except Exception as error:  # noqa: BLE001 - recorded as a fault
            pause_ms = self._backoff_ms()
            self._faults.record_failure(CLEANER_RETENTION, name, error, retry_after_ms=pause_ms)
        else:
            self._faults.clear_error(CLEANER_RETENTION, name)

    # -------------------------------------------------------------------------------- on demand

    def compact(
        self,
        partition: ManagedPartition,
        *,
        include_active: bool,
        on_progress: Callable[[CleaningProgress], object] | None,
    ) -> CleaningResult:
        """Clean a partition now; see `LogManager.compact`."""
        log, run = self._begin(partition)
        buffers = CleanerBuffers(self._config, self._throttle, self._clock)
        try:
            if include_active:
                log.roll()
            cleaning = self._clean(partition, log, run, buffers, on_progress)
        except BaseException as error:
            self._on_error(partition.directory, error)
            raise
        finally:
            self._states.finish(run)
        self._history.record_success(ON_DEMAND, cleaning)
        return cleaning

    def plan_compaction(
        self,
        partition: ManagedPartition,
        *,
        include_active: bool,
        on_progress: Callable[[int, int], object] | None,
    ) -> CompactionPlan:
        """See `LogManager.plan_compaction`."""
        return plan_compaction(
            self._open_log(partition),
            include_active=include_active,
            config=self._config(),
            on_progress=on_progress,
        )

    def explain_compaction(
        self, partition: ManagedPartition, offset: int, *, include_active: bool
    ) -> CompactionExplanation:
        """See `LogManager.explain_compaction`."""
        return explain_compaction(
            self._open_log(partition), offset, include_active=include_active, config=self._config()
        )

    def _begin(self, partition: ManagedPartition) -> tuple[Log, CleaningRun]:
        while True:
            # Before the run begins: reopening the log waits for the partition's cleaning.
            log = self._open_log(partition)
            if not log.config.is_compacted:
                policy = ",".join(log.config.cleanup_policy)
                raise ConfigError(
                    f"{partition.topic_partition} is not compacted: cleanup.policy = {policy}"
                )
            run = self._states.begin_when_free(partition.topic_partition)
            if partition.usable_log is log and log.config.is_compacted:
                return log, run
            self._states.finish(run)

    def _clean(
        self,
        partition: ManagedPartition,
        log: Log,
        run: CleaningRun,
        buffers: CleanerBuffers,
        on_progress: Callable[[CleaningProgress], object] | None = None,
    ) -> CleaningResult:
        # Computed again: since the selection, the log may have been truncated.
        _facts, span = cleanable_range(partition, log, self._clock.now_ms())
        cleaning = buffers.clean(log, span, run, on_progress)
        if not run.is_aborted:
            refusal = record_cleaned(partition, cleaning.end_offset)
            if refusal is not None:
                self._on_error(partition.directory, refusal)
        return cleaning

    # ---------------------------------------------------------------------------------- health

    def health(self) -> CleanerHealth:
        """Return the health of compaction."""
        with self._guard:
            workers = list(self._workers)
        result = self._selection.last_result
        return CleanerHealth(
            is_enabled=self._config().enable,
            thread_count=len(workers),
            alive_count=sum(worker.is_alive for worker in workers),
            replaced_count=sum(worker.replaced_count for worker in workers),
            compacted_count=len(self._selection.compacted()),
            under_way=tuple(
                CleaningUnderWay(run.topic_partition, run.thread_name, run.is_aborted, run.progress)
                for run in self._states.under_way()
            ),
            uncleanable=tuple(self._uncleanable()),
            last_look_ms=None if result is None else result.at_ms,
            time_since_last_look_ms=None if result is None else self._clock.now_ms() - result.at_ms,
            max_dirty_percent=0.0 if result is None else 100 * result.max_dirty_ratio,
            max_delay_ms=0 if result is None else result.max_delay_ms,
            cleaning_count=self._history.count,
            last_cleanings=self._history.last(),
            throttled_ms=self._throttle.waited_ms,
            memory_bytes=memory_share(self._config()),
            candidates=() if result is None else tuple(self._dirty_logs(result)),
            totals=self._history.totals(),
        )

    def _dirty_logs(self, result: SelectionResult) -> Iterator[DirtyLog]:
        for each in result.candidates:
            partition = each.name
            assert isinstance(partition, ManagedPartition)
            if not partition.is_gone:
                yield DirtyLog(
                    partition.topic_partition,
                    each.dirty_ratio,
                    each.cleanable_bytes,
                    each.is_due,
                )

    def _uncleanable(self) -> Iterator[UncleanablePartition]:
        for fault in self._history.faults():
            name = fault.subject
            if not isinstance(name, TopicPartition) or name not in self._registry:
                continue
            partition = self._registry.get(name)
            yield UncleanablePartition(
                name,
                partition.directory.path,
                fault.error,
                fault.failure_count,
                fault.next_retry_ms,
                cleanable_bytes(partition),
            )
