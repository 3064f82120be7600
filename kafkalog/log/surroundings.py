"""What a log is given by whoever opens it, beside its paths and its settings.

Thread-safety: immutable; what it holds may be shared by any number of logs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalog.clock import Clock
from kafkalog.errors import LogStorageError
from kafkalog.files.locking import DirectoryLock
from kafkalog.files.pool import FilePool
from kafkalog.log.deletion import SegmentDeletion
from kafkalog.log.retention import RetentionPolicy
from kafkalog.scheduler import Scheduler

if TYPE_CHECKING:
    from kafkalog.log.resting import RestingLog

__all__ = ["PRODUCER_EXPIRATION_MS", "LogEnvironment"]

# Kafka's defaults of `producer.id.expiration.ms`, and of the time between two looks.
PRODUCER_EXPIRATION_MS: Final = 86_400_000
PRODUCER_CHECK_MS: Final = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnvironment:
    """
    What a log is given.

    Attributes:
        clock: source of time.
        scheduler: runs background work; a thread of the log's own, started when first needed, if
            None.
        pool: keeps files open for reading; the log's own if None.
        directory_lock: the exclusive lock of the data directory, where somebody has it.
        retention: policies in place of those of the settings; None for these.
        on_deletion: called with each segment that left the log.
        on_offline: called once with the error after which the log takes no more writes, by the
            thread that met it, which may hold the log's lock: it must neither wait nor call back.
        on_storage_error: called with each error that the disk raised in a call of the log, reads
            too, as `on_offline` is. Errors of opening and closing are raised only.
        on_reopen: called when a log at rest takes writes again, under its lock; it may put others
            to rest (`Log.try_release`). A log without it never rests.
        pause_cleaning: entered for a truncation, without the log's lock: keeps the log from being
            compacted meanwhile, and waits until nobody does.
        producer_expiration_ms: after how long a silent producer is forgotten.
        producer_check_ms: time between two looks for such producers.
    """

    clock: Clock
    scheduler: Scheduler | None = None
    pool: FilePool | None = None
    directory_lock: DirectoryLock | None = None
    retention: Sequence[RetentionPolicy] | None = None
    on_deletion: Callable[[SegmentDeletion], object] | None = None
    on_offline: Callable[[BaseException], object] | None = None
    on_storage_error: Callable[[LogStorageError], object] | None = None
    on_reopen: Callable[[RestingLog], object] | None = None
    pause_cleaning: Callable[[], AbstractContextManager[object]] = nullcontext
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS
    producer_check_ms: int = PRODUCER_CHECK_MS
