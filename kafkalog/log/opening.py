"""Opening of a log: from a path to a `Log`.

Order for a writer: the lock is acquired; the shutdown marker is removed, so that a crash from here
on is noticed; the log is loaded and recovered. An error at any step restores the marker and
releases the lock.

Thread-safety: no state; any thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from kafkalog.clock import Clock, SystemClock
from kafkalog.closing import warn_unless_closed
from kafkalog.config import LogConfig
from kafkalog.errors import DiskFullError, KafkaLogError, LogStorageError, NotALogError
from kafkalog.files.directories import ensure_no_link, make_directories
from kafkalog.files.errors import has_missed_file, storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.locking import acquire_partition_lock
from kafkalog.files.names import PARTITION_METADATA, FileState
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.checkpoint_store import (
    CheckpointStore,
    FileCheckpointStore,
    keeps_end,
    make_sync_journal,
)
from kafkalog.log.deletion import SegmentDeletion
from kafkalog.log.epochs import load_epochs
from kafkalog.log.followed_start import FollowedStartOffset
from kafkalog.log.loader import LoadedLog, closed_on_error, load_log
from kafkalog.log.log import Log
from kafkalog.log.partition import (
    PRODUCER_EXPIRATION_MS,
    LogEnvironment,
    OpenedLog,
    Partition,
)
from kafkalog.log.partition_paths import PartitionPaths, find_partition_paths
from kafkalog.log.producer_loading import load_producer_state
from kafkalog.log.retention import RetentionPolicy
from kafkalog.log.segment_types import SegmentContext, make_context
from kafkalog.log.startup_cleanup import live_bases
from kafkalog.log.tail import ReadOnlyTail
from kafkalog.log.transactions import recover_indexes
from kafkalog.log.view import PAUSES_SECONDS
from kafkalog.scheduler import Scheduler, ThreadScheduler
from kafkalog.state.commit_journal import ensure_applied
from kafkalog.state.producer_state_manager import ProducerStateManager

__all__ = ["open_log", "open_partition"]

logger = logging.getLogger(__name__)


def open_log(
    directory: str | PathLike[str],
    *,
    config: LogConfig | Mapping[str, Any] | None = None,
    read_only: bool = False,
    create: bool = True,
    clock: Clock | None = None,
    scheduler: Scheduler | None = None,
    filesystem: FileSystem | None = None,
    retention: Sequence[RetentionPolicy] | None = None,
    on_deletion: Callable[[SegmentDeletion], object] | None = None,
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
) -> Log:
    """
    Open the log of one partition; recover it if the last writer did not close it.

    Args:
        directory: the partition directory (`topic-partition` inside a data directory, any name
            for a log outside of a data directory). A writer creates it if it is missing.
        config: settings of the log, or a mapping of Kafka's keys to their values; Kafka's defaults
            if None.
        read_only: acquire no lock and change nothing; appends of another process become visible.
        create: whether a writer creates a missing log. If False, NotALogError is raised, and
            nothing is created or changed.
        clock: source of time; the machine's if None.
        scheduler: runs background work (flushes, delayed deletion); a thread of the log, started
            when first needed, if None.
        filesystem: the disk; the machine's if None.
        retention: policies for `apply_retention`, in order, instead of the size and the time in the
            settings (which `cleanup.policy` without `delete` switches off, too).
        on_deletion: called with each segment that left the log, by the thread that deleted it.
        producer_expiration_ms: time after which a producer without appends is removed.

    Raises:
        NotALogError: the path is a file, a data directory, or has other files than those of a log;
            or has no log, and `read_only` or `create=False` does not allow to create one.
        ConfigError: a setting of `config` is unknown or wrong.
        LogLockedError: another writer has it open.
        LogPermissionError: the file system denies access.
        LogStorageError: the disk failed. LogOfflineError: a commit journal was not applied before.
    """
    settings = LogConfig.of(config)
    path = Path(directory).absolute()
    filesystem = PosixFileSystem() if filesystem is None else filesystem
    with storage_errors(path, doing="opening"):
        store = FileCheckpointStore(find_partition_paths(filesystem, path))
        if not create and not read_only:
            _ensure_present(store.paths)
        elif not read_only:
            make_directories(filesystem, path)
    environment = LogEnvironment(
        clock=SystemClock() if clock is None else clock,
        scheduler=scheduler,
        retention=retention,
        on_deletion=on_deletion,
        producer_expiration_ms=producer_expiration_ms,
    )
    return Log(
        open_partition(store, settings, environment, read_only=read_only, is_standalone=True)
    )


def open_partition(
    store: CheckpointStore,
    config: LogConfig,
    environment: LogEnvironment,
    *,
    read_only: bool = False,
    is_standalone: bool = False,
) -> Partition:
    """
    Open the log of a partition whose paths are known; a writer's directory must be there.

    A standalone log has no manager that closes it; it warns if it is never closed.

    Raises:
        NotALogError, LogLockedError, LogPermissionError, LogStorageError: as `open_log`.
    """
    clock, paths = environment.clock, store.paths
    with storage_errors(paths.directory, doing="opening"):
        context = make_context(
            paths.filesystem,
            paths.directory,
            config,
            clock,
            read_only=read_only,
            pool=environment.pool,
            meters=environment.meters,
        )
        context.set_callbacks(
            on_storage_error=environment.on_storage_error,
            was_cleaned=lambda: store.read_cleaner_offset() is not None,
            withdraw_commits=environment.withdraw_commits,
        )
        if read_only:
            opened = _load_read_only(store, context)
        else:
            if not paths.is_standalone:
                # The caller's path may be a link; names inside of a data directory may not.
                ensure_no_link(paths.filesystem, paths.directory)
                if environment.directory_lock is None:
                    ensure_applied(paths.filesystem, paths.state_directory)
            opened = _load_for_writing(store, context, environment)
        ending = _Ending(environment.scheduler, clock)
        partition = Partition(store, opened, ending.scheduler, environment, ending.close)
        if is_standalone:
            ending.watch(partition)
        return partition


class _Ending:
    """
    Resources that end with a log: its own scheduler, and the warning that it was not closed.

    Attributes:
        scheduler: the caller's, or the log's own.
    """

    def __init__(self, scheduler: Scheduler | None, clock: Clock) -> None:
        self._own: ThreadScheduler | None = None
        if scheduler is None:
            scheduler = self._own = ThreadScheduler(clock)
        self.scheduler = scheduler
        self._end_warning: Callable[[], object] | None = None

    def watch(self, partition: Partition) -> None:
        """Warn if the log is dropped, or the program ends, before it is closed."""
        abandon = None if self._own is None else self._own.abandon
        is_read_only = partition.gate.state.is_read_only
        kind = "read-only log" if is_read_only else "log"
        self._end_warning = warn_unless_closed(
            partition,
            f"{kind} at {partition.paths.directory}",
            has_written=not is_read_only,
            release=abandon,
        )

    def close(self) -> None:
        """End the log's own scheduler."""
        if self._end_warning is not None:
            self._end_warning()
        if self._own is not None:
            self._own.close()


def _move_recovery_point(
    store: CheckpointStore, before: int, loaded: LoadedLog, producers: ProducerStateManager
) -> None:
    """
    Write the recovery point, below which no recovery reads the log again.

    A higher one only saves work of the next recovery: an error is no reason to refuse a log on a
    full disk, from which records may be deleted. If it is lower, the old one belongs to another log
    of this name, and must not be used for this log's records.

    Raises:
        LogStorageError: the disk refused.
    """
    fresh = loaded.recovery_point
    if fresh > before and producers.needs_snapshot:
        return
    try:
        store.write_recovery_point(fresh)
    except DiskFullError as error:
        if fresh < before:
            raise
        logger.warning("%s: its next recovery will take longer: %s", store.paths.directory, error)


def _ensure_present(paths: PartitionPaths) -> None:
    """Raise NotALogError if the directory is missing or has no segment."""
    facts = paths.filesystem.stat(paths.directory)
    if facts is None:
        raise NotALogError(
            f"No log found at {paths.directory}: no such directory", path=paths.directory
        )
    if not live_bases(paths.filesystem, paths.directory):
        raise NotALogError(
            f"No log found at {paths.directory}: the directory holds no segment",
            path=paths.directory,
        )


def _load_read_only(store: CheckpointStore, context: SegmentContext) -> OpenedLog:
    """
    Load a log that another process may be writing.

    If a file is removed or truncated between the listing and the read, the load begins again, until
    PAUSES_SECONDS are over, which is longer than a truncation.
    """
    for pause in PAUSES_SECONDS:
        try:
            return _try_load(store, context)
        except (OSError, LogStorageError) as error:
            if not has_missed_file(error):
                raise
        time.sleep(pause)
    return _try_load(store, context, is_last=True)


def _try_load(
    store: CheckpointStore, context: SegmentContext, *, is_last: bool = False
) -> OpenedLog:
    paths = store.paths
    facts = paths.filesystem.stat(paths.directory)
    if facts is None or not live_bases(paths.filesystem, paths.directory):
        names = [] if facts is None else paths.filesystem.list(paths.directory)
        if not is_last and any(name.endswith(FileState.DELETED.value) for name in names):
            # Between two steps of a truncation, unless everything was deleted for good.
            raise FileNotFoundError(f"the segments of {paths.directory} were removed")
        # A new partition has its topic's id, but no segment before the first write.
        if PARTITION_METADATA not in names:
            _ensure_present(paths)
    clean = store.was_closed_in_order()
    loaded = load_log(
        context,
        clean=clean,
        recovery_point=store.read_recovery_point(),
        start_offset=store.read_start_offset(),
    )
    with closed_on_error(loaded.local.snapshot.segments.segments):
        if not clean:
            try:
                loaded = _with_transaction_indexes(context, loaded)
            except (OSError, LogStorageError) as error:
                if has_missed_file(error):
                    raise
                # Readers of committed records raise it; others need no index.
                logger.warning("%s: %s", paths.directory, error)
        epochs = load_epochs(store, loaded, keeps_end=True)
        tail = ReadOnlyTail(loaded.local, FollowedStartOffset(store))
    return OpenedLog(loaded, epochs, tail=tail)


def _with_transaction_indexes(context: SegmentContext, loaded: LoadedLog) -> LoadedLog:
    """Repair the transaction indexes of scanned segments; the report lists the repaired ones."""
    repaired = recover_indexes(context, loaded.local.snapshot, loaded.scanned.bases)
    return replace(loaded, report=replace(loaded.report, repaired=repaired)) if repaired else loaded


def _load_for_writing(
    store: CheckpointStore, context: SegmentContext, environment: LogEnvironment
) -> OpenedLog:
    paths = store.paths
    lock = acquire_partition_lock(
        paths.filesystem,
        paths.directory,
        lock_directory=paths.state_directory,
        owner=environment.directory_lock,
    )
    try:
        clean = store.begin_session(lock.tenure)
        try:
            recovery_point = store.read_recovery_point()
            journal = make_sync_journal(store)
            context.use_journal(journal)
            doubtful_offset, is_end_kept = None, clean
            if not clean:
                is_end_kept = keeps_end(paths, journal)
                doubtful_offset = journal.begin_recovery(
                    recovery_point, errors_are_kept=paths.filesystem.keeps_errors(paths.directory)
                )
            loaded = load_log(
                context,
                clean=clean,
                recovery_point=recovery_point,
                start_offset=store.read_start_offset(),
                doubtful_offset=doubtful_offset,
                may_release=environment.on_reopen is not None,
            )
            # Before the recovery point rises above batches whose epochs only a replay can find.
            epochs = load_epochs(store, loaded, keeps_end=is_end_kept)
            producers = load_producer_state(
                loaded,
                recovery_point=recovery_point,
                expiration_ms=environment.producer_expiration_ms,
            )
            if not clean:
                loaded = _with_transaction_indexes(context, loaded)
            if not clean or loaded.recovery_point < recovery_point:
                _move_recovery_point(store, recovery_point, loaded, producers)
                if loaded.recovery_point > recovery_point:
                    # The recovery has synced it, and the checkpoint may only be cached.
                    store.publish_durable_offset(loaded.recovery_point)
            if not loaded.local.snapshot.segments.active.is_released:
                journal.record_synced(loaded.recovery_point)
        except (OSError, KafkaLogError):
            # Nothing was appended: a clean log still is, unless it lost its producer snapshots.
            is_known = context.journal is None or not context.journal.lacks_producers
            store.end_session(in_order=clean and is_known)
            raise
        except BaseException:
            # Interrupted anywhere: the next opening, in this process too, recovers the log.
            store.end_session(in_order=False)
            raise
    except BaseException:
        lock.release()
        raise
    return OpenedLog(loaded, epochs, producers, lock)
