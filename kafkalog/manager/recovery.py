"""Many partitions at once: recovered after an unclean stop, or closed.

Each data directory has `num.recovery.threads.per.data.dir` threads of its own, so that a slow disk
does not keep the others waiting. What fails is bound to its partition; its neighbours go on.

Thread-safety: the callback is called by many threads, one at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kafkalog.log.report import RecoveryReport
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.registry import ManagedPartition
from kafkalog.model import TopicPartition

__all__ = ["RecoveryProgress", "for_each", "recover"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveryProgress:
    """
    One more partition was recovered, or could not be.

    Attributes:
        directory: the data directory.
        topic_partition: the partition.
        done_count: partitions of that directory that were looked at, this one too.
        total_count: partitions of that directory to look at.
        report: what recovery found; None where it failed.
        error: why it failed; None where it did not.
    """

    directory: Path
    topic_partition: TopicPartition
    done_count: int
    total_count: int
    report: RecoveryReport | None
    error: BaseException | None


def recover(
    work: Sequence[tuple[DataDirectory, Sequence[ManagedPartition]]],
    open_partition: Callable[[ManagedPartition], RecoveryReport],
    *,
    thread_count: int,
    on_progress: Callable[[RecoveryProgress], object] | None,
) -> None:
    """
    Open all partitions of some directories.

    Args:
        work: directories, each with its partitions.
        open_partition: opens one; what it raises is told by the callback, and kept by nobody here.
        thread_count: threads for each directory.
        on_progress: called after each partition; what it raises is logged.
    """
    guard = threading.Lock()
    done: dict[DataDirectory, int] = {}
    totals = {directory: len(partitions) for directory, partitions in work}

    def attempt(partition: ManagedPartition) -> None:
        report: RecoveryReport | None = None
        failure: Exception | None = None
        try:
            report = open_partition(partition)
        except Exception as error:  # noqa: BLE001 - told, and kept by who opens
            failure = error
        directory = partition.directory
        with guard:
            done[directory] = done.get(directory, 0) + 1
            if on_progress is None:
                return
            try:
                on_progress(
                    RecoveryProgress(
                        directory.path,
                        partition.topic_partition,
                        done[directory],
                        totals[directory],
                        report,
                        failure,
                    )
                )
            except Exception:
                logger.exception("the callback for the progress of recovery failed")

    for_each(work, attempt, thread_count=thread_count, name="kafkalog-recovery")


def for_each(
    work: Iterable[tuple[DataDirectory, Sequence[ManagedPartition]]],
    action: Callable[[ManagedPartition], object],
    *,
    thread_count: int,
    name: str,
) -> None:
    """
    Do something with every partition, each directory with threads of its own.

    What an action raises is raised when all threads have ended; an interruption of this thread
    lets nothing more begin.
    """
    futures: list[Future[object]] = []
    with ExitStack() as pools:
        for directory, partitions in work:
            if not partitions:
                continue
            pool = ThreadPoolExecutor(
                max_workers=min(thread_count, len(partitions)),
                thread_name_prefix=f"{name}-{directory.path.name}",
            )
            pools.callback(pool.shutdown, wait=True, cancel_futures=True)
            futures.extend(pool.submit(action, partition) for partition in partitions)
        for future in futures:
            future.result()
