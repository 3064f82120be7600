"""Recovery and closing of many partitions with several threads per data directory.

Each data directory has `num.recovery.threads.per.data.dir` separate threads, so that a slow disk
does not delay the other directories. A failure concerns one partition; the others continue.

Thread-safety: the callback is called by many threads, one at a time.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafkalog.log.report import RecoveryReport
from kafkalog.manager.background import started_thread, taken_from
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.registry import ManagedPartition
from kafkalog.model import TopicPartition

__all__ = ["RecoveryProgress", "for_each", "recover"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveryProgress:
    """
    Progress after one more partition was recovered, or failed.

    Attributes:
        directory: the data directory.
        topic_partition: the partition.
        done_count: finished partitions of that directory, including this one.
        total_count: partitions of that directory to recover.
        report: findings of the recovery; None if it failed.
        error: reason of the failure; None if it succeeded.
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
        open_partition: opens one partition; its exception is passed to the callback only.
        thread_count: threads for each directory.
        on_progress: called after each partition; its exceptions are logged.
    """
    guard = threading.Lock()
    done: dict[DataDirectory, int] = {}
    totals = {directory: len(partitions) for directory, partitions in work}

    def attempt(partition: ManagedPartition) -> None:
        report: RecoveryReport | None = None
        failure: Exception | None = None
        try:
            report = open_partition(partition)
        except Exception as error:  # noqa: BLE001 - reported, and recorded by the opener
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
    Call an action for every partition, with separate threads for each directory.

    An exception of an action is raised when all threads have ended. An interruption of the calling
    thread cancels actions that have not begun. Where the system starts no thread, as at the end of
    the interpreter, the calling thread does the work.
    """
    left = [(directory, deque(partitions)) for directory, partitions in work if partitions]
    errors: list[BaseException] = []
    threads = []
    try:
        for directory, partitions in left:
            for _ in range(min(thread_count, len(partitions))):
                drain = partial(_drain, partitions, action, errors)
                thread = started_thread(f"{name}-{directory.path.name}", drain)
                if thread is None:
                    drain()
                else:
                    threads.append(thread)
        for thread in threads:
            thread.join()
    except BaseException:
        for _directory, partitions in left:
            partitions.clear()
        for thread in threads:
            thread.join()
        raise
    for error in errors:
        raise error


def _drain(
    partitions: deque[ManagedPartition],
    action: Callable[[ManagedPartition], object],
    errors: list[BaseException],
) -> None:
    """Call an action for the partitions that are left; keep its exceptions."""
    for partition in taken_from(partitions):
        try:
            action(partition)
        except BaseException as error:  # noqa: BLE001 - `for_each` raises it
            errors.append(error)
