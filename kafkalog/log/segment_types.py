"""Objects that the segments of a log share: context, error report, input of an index rebuild.

Thread-safety: immutable, except the context: its attributes change under the log's lock, one by
one, and any thread reads them.
"""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from kafkalog.clock import Clock
from kafkalog.config import LogConfig
from kafkalog.errors import LogStorageError
from kafkalog.files.errors import storage_errors, translate
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import FileState, SegmentFiles
from kafkalog.files.pool import FilePool
from kafkalog.log.meters import LogMeters
from kafkalog.log.scanner import SegmentScan, scan_file
from kafkalog.log.segment_file import SegmentFile
from kafkalog.state.sync_journal import SyncJournal

__all__ = [
    "IndexRebuildInput",
    "ReportedErrors",
    "SegmentContext",
    "WithdrawCommits",
    "make_context",
]

# Enters a context in which a commit journal has no bytes of a log; its argument syncs the log.
WithdrawCommits = Callable[[Callable[[], object]], AbstractContextManager[None]]

# One for all logs: a separate state per log takes 3 KB, and the order of use is not visible.
_JITTER = random.Random()


@dataclass(slots=True)
class SegmentContext:
    """
    Dependencies and facts that all segments of a log share.

    `state` is that of their files' names. `journal` is None if the log is read-only, and for
    segments that are not in use yet: their creator syncs them before the rename.
    `on_storage_error` is called with every error of the disk in a call of the log.
    """

    filesystem: FileSystem
    directory: Path
    config: LogConfig
    clock: Clock
    random: random.Random
    pool: FilePool
    read_only: bool
    state: FileState = FileState.LIVE
    journal: SyncJournal | None = None
    on_storage_error: Callable[[LogStorageError], object] | None = None
    meters: LogMeters = field(default_factory=LogMeters)
    # Held while the files of transaction indexes are used, which readers may repair.
    repair_lock: threading.Lock = field(default_factory=threading.Lock)
    # True if offsets may be missing between segments without any damage, None while unknown.
    may_have_holes: bool | None = None
    # True if the ends of all segments of the opening were searched.
    has_searched_holes: bool = False
    # Base offsets of segments made here, before which offsets are missing but none was lost.
    made_bases: set[int] = field(default_factory=set)
    # Returns whether a cleaner has compacted the log.
    was_cleaned: Callable[[], bool] = bool
    # See `commits_withdrawn`; None without a commit journal.
    withdraw_commits: WithdrawCommits | None = None
    # Below it everything was on the disk when the log was opened, transaction indexes too: a fault
    # in them there was not caused by a crash, nor by an active writer.
    settled_offset: int = 0
    # Called, if its object still lives, when damage is found.
    on_damage: weakref.WeakMethod[Callable[[], None]] | None = None
    # Returns, if its object still lives, the end of the segment before a base offset.
    read_end_before: weakref.WeakMethod[Callable[[int], int]] | None = None

    def connect(
        self,
        *,
        on_damage: weakref.WeakMethod[Callable[[], None]],
        read_end_before: weakref.WeakMethod[Callable[[int], int]],
    ) -> None:
        """Set the methods of an open log that segments call, while their objects live."""
        self.on_damage = on_damage
        self.read_end_before = read_end_before

    def set_callbacks(
        self,
        *,
        on_storage_error: Callable[[LogStorageError], object] | None,
        was_cleaned: Callable[[], bool],
        withdraw_commits: WithdrawCommits | None = None,
    ) -> None:
        """Set the handler of errors of the disk, the check for a cleaner, and the journal."""
        self.on_storage_error = on_storage_error
        self.was_cleaned = was_cleaned
        self.withdraw_commits = withdraw_commits

    def commits_withdrawn(self, sync: Callable[[], object]) -> AbstractContextManager[None]:
        """
        Return a context for a change of bytes that a commit journal may have.

        In it the journal has no bytes of the log: a recovery must not write them again.

        Args:
            sync: puts everything that was appended in the files on the disk; called where the
                journal has bytes of the log.

        Raises:
            LogStorageError: on entering; the disk refused, and nothing may be changed.
        """
        return nullcontext() if self.withdraw_commits is None else self.withdraw_commits(sync)

    def apply_config(self, config: LogConfig) -> None:
        """Use other settings from now on."""
        self.config = config

    def use_journal(self, journal: SyncJournal) -> None:
        """Set the sync journal; the context reports the errors that it does not raise."""
        journal.set_on_error(self.report)
        self.journal = journal

    def set_settled_offset(self, offset: int) -> None:
        """Set the offset below which everything was on the disk when the log was opened."""
        self.settled_offset = offset

    def lower_settled_offset(self, offset: int) -> None:
        """Lower it, because the offsets from `offset` on will be assigned to other batches."""
        self.settled_offset = min(self.settled_offset, offset)

    def can_have_holes(self) -> bool:
        """Return whether offsets may be missing between segments without any damage."""
        if self.may_have_holes is None:
            self.may_have_holes = "compact" in self.config.cleanup_policy or self.was_cleaned()
        return self.may_have_holes

    def allow_missing_before(self, base_offset: int) -> None:
        """Record that a segment was made here: no offset before it was lost."""
        self.made_bases.add(base_offset)

    def allows_missing_before(self, base_offset: int) -> bool:
        """Return whether offsets that are missing before a segment were not lost."""
        return base_offset in self.made_bases

    def mark_holes_possible(self) -> None:
        """Record that offsets may be missing between segments without any damage."""
        self.may_have_holes = True

    def mark_holes_searched(self) -> None:
        """Record that the ends of all segments were searched."""
        self.has_searched_holes = True

    def report_damage(self) -> None:
        """Report that new damage was found in a segment."""
        notify = None if self.on_damage is None else self.on_damage()
        if notify is not None:
            notify()

    def end_before(self, base_offset: int) -> int | None:
        """
        Return one above the last offset of the segment before, 0 if it is unknown.

        None if no log is open that has the segments.
        """
        read = None if self.read_end_before is None else self.read_end_before()
        return None if read is None else read(base_offset)

    def files(self, base_offset: int) -> SegmentFiles:
        """Return the paths of a segment."""
        return SegmentFiles(self.directory, base_offset, self.state)

    def report(self, error: BaseException | None) -> None:
        """Report an error to the owner of the log, if the disk raised it. Waits for nothing."""
        if self.on_storage_error is None:
            return
        if isinstance(error, OSError):
            error = translate(error)
        if isinstance(error, LogStorageError):
            self.on_storage_error(error)

    def errors(self, doing: str) -> ReportedErrors:
        """Return a context that raises errors of the disk as typed ones, and reports them."""
        return ReportedErrors(self, doing)

    def sync_attempt(
        self, synced_offset: int | None = None, size_bytes: int = 0
    ) -> AbstractContextManager[None]:
        """Hold the sync journal while a log file is synced; see `SyncJournal.attempt_sync`."""
        if self.journal is None:
            return nullcontext()
        return self.journal.attempt_sync(synced_offset, size_bytes)


class ReportedErrors(storage_errors):
    """As `storage_errors`, and reports the error to the owner of the log."""

    __slots__ = ("_context",)

    def __init__(self, context: SegmentContext, doing: str) -> None:
        super().__init__(context.directory, doing=doing)
        self._context = context

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._context.report(error)
            super().__exit__(kind, error, traceback)


def make_context(
    filesystem: FileSystem,
    directory: Path,
    config: LogConfig,
    clock: Clock,
    *,
    read_only: bool = False,
    state: FileState = FileState.LIVE,
    pool: FilePool | None = None,
    meters: LogMeters | None = None,
) -> SegmentContext:
    """Return the context of the segments in a directory; with a new pool if `pool` is None."""
    if pool is None:
        pool = FilePool(
            filesystem, max_open_files=config.open_files_max, max_mappings=config.mappings_max
        )
    return SegmentContext(
        filesystem=filesystem,
        directory=directory,
        config=config,
        clock=clock,
        random=_JITTER,
        pool=pool,
        read_only=read_only,
        state=state,
        meters=LogMeters() if meters is None else meters,
    )


@dataclass(frozen=True, slots=True)
class IndexRebuildInput:
    """Input of an index rebuild; not the segment, so that no cycle keeps files open."""

    file: SegmentFile
    base_offset: int
    interval: int

    def size_bytes(self) -> int:
        return self.file.size_bytes

    def scan(self) -> SegmentScan:
        return scan_file(self.file, base_offset=self.base_offset, interval=self.interval)

    def offset_entries(self) -> bytes:
        return self.scan().offset_entries

    def time_entries(self) -> bytes:
        return self.scan().time_entries
