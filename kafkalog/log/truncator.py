"""Truncation of a log, and the checkpoint of its start.

Crash points: those of `truncation.py`, after the recovery point was lowered. A raised log start is
checkpointed before any removal: files that a crash leaves are below it. A lowered log start is
checkpointed last, else records that were deleted before would return after a crash.

Thread-safety: every method from any thread. Truncations pause the cleaning first, then take the
log's lock; callbacks of deletions run after the lock was released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafkalog.errors import LogStorageError
from kafkalog.log.checkpoint_store import CheckpointStore
from kafkalog.log.deletion import Deleter
from kafkalog.log.dependent_state import DependentState
from kafkalog.log.epoch_lowering import lower_batches
from kafkalog.log.flusher import LogFlusher
from kafkalog.log.local_log import LocalLog, check_base_offset
from kafkalog.log.truncation import (
    find_cut,
    prepare_segment,
    removed_on_error,
    truncate_fully_and_start_at,
    truncate_to,
)
from kafkalog.log.write_gate import WriteGate

__all__ = ["LogTruncator"]


class LogTruncator:
    """
    Truncates one log.

    Args:
        gate: the log's lock, write permission and cleaning pause.
        local: the segments.
        store: checkpoints the log start offset.
        state: producers and leader epochs, which follow.
        flusher: lowers the recovery point first.
        deleter: unlinks the files of segments that left.
        on_change: called when the log was truncated, or could not be; without a lock.

    Thread-safety: see the module.
    """

    def __init__(
        self,
        gate: WriteGate,
        local: LocalLog,
        store: CheckpointStore,
        state: DependentState,
        flusher: LogFlusher,
        deleter: Deleter,
        on_change: Callable[[], object],
    ) -> None:
        self._gate = gate
        self._local = local
        self._store = store
        self._state = state
        self._flusher = flusher
        self._deleter = deleter
        self._on_change = on_change

    def truncate_to(self, offset: int) -> int:
        """Remove every batch that reaches `offset`; return the log end offset."""
        if offset < 0:
            raise ValueError(f"offset must be >= 0, got {offset}")
        try:
            return self._truncate_to(offset)
        finally:
            self._on_change()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the log is empty and its next offset is `offset`."""
        if offset < 0:
            raise ValueError(f"offset must be >= 0, got {offset}")
        check_base_offset(offset, self._local.context.directory)
        try:
            with self._exclusive():
                self._restart_at(offset)
        finally:
            self._on_change()

    def drop_log_start_checkpoint(self) -> bool:
        """
        Remove the log start from its checkpoint if a segment's base equals it; return whether.

        Crash points: before the names of what was deleted are synced, the checkpoint has the log
        start; after that, the name of the first segment has it.

        Raises:
            LogStorageError: the disk refused.
        """
        gate, local = self._gate, self._local
        with gate.lock:
            if gate.state.is_closed or not gate.can_write():
                return False
            snapshot = local.snapshot
            base = snapshot.segments.segments[0].base_offset
            if snapshot.start_offset > base or local.has_unrenamed_files:
                return False
            with gate.mark_offline_on_error("dropping the checkpoint of the log start"):
                local.context.filesystem.sync_directory(local.context.directory)
                self._store.write_start_offset(None)
        return True

    def lower_leader_epochs(self, highest: int) -> int:
        """Lower leader epochs above `highest` to it; return how many batches were changed."""
        if highest < 0:
            raise ValueError(f"the highest leader epoch must be 0 or more, got {highest}")
        gate = self._gate
        with (
            gate.pause_cleaning(),
            gate.writable(),
            self._local.context.commits_withdrawn(self._flusher.sync_all),
            gate.mark_offline_on_error("lowering leader epochs"),
        ):
            count = lower_batches(self._local, highest)
            self._state.epochs.lower(highest)
        return count

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Pause the cleaning, hold the lock, and notify of deletions when it was released."""
        with self._gate.pause_cleaning(), self._deleter.notify_after(self._gate.writable()):
            yield

    def _truncate_to(self, offset: int) -> int:
        with self._exclusive():
            snapshot = self._local.snapshot
            if offset >= snapshot.end_offset:
                return snapshot.end_offset
            if offset < max(snapshot.segments.segments[0].base_offset, snapshot.start_offset):
                self._restart_at(offset)
                return offset
            with (
                self._local.context.commits_withdrawn(self._flusher.sync_all),
                self._gate.mark_offline_on_error("truncating"),
                self._state.truncating(),
            ):
                cut = find_cut(self._local, offset)
                self._flusher.lower(cut.kept_offset)
                self._flusher.lower_recovery_point(offset)
                leaving = truncate_to(self._local, cut)
                self._deleter.delete_truncated(leaving, snapshot, self._local.snapshot)
            # Again: a sync that ran at the same time still saw the old end.
            self._flusher.lower(offset)
            return offset

    def _restart_at(self, offset: int) -> None:
        local = self._local
        snapshot = local.snapshot
        with (
            local.context.commits_withdrawn(self._flusher.sync_all),
            self._gate.mark_offline_on_error("truncating"),
            self._state.truncating(),
            removed_on_error(local.context.filesystem) as made,
        ):
            self._flusher.lower(offset)
            prepare_segment(local, offset, made)
            self._flusher.lower_recovery_point(offset)
            # A higher start is checkpointed first: files that a crash leaves are below it. A lower
            # start comes last, else deleted records would return after a crash.
            self._store.write_start_offset(max(offset, snapshot.start_offset))
            leaving = truncate_fully_and_start_at(local, offset)
            self._deleter.delete_truncated(leaving, snapshot, local.snapshot)
            try:
                self._store.write_start_offset(offset)
            except LogStorageError as error:
                # Appends from now on would lie below the start that is on the disk.
                self._gate.mark_offline(error)
                raise
        self._flusher.lower(offset)
