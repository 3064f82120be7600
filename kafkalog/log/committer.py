"""Group commit: one sync covers all threads that wait for it.

The first thread that waits becomes the leader and syncs up to the log end of that moment; threads
that come during the sync wait for it, and one of them leads the next round. A caller that syncs
several logs at once leads a round by `begin`, then `finish` or `fail`.

Offsets also become durable by the commit journal of a data directory, which is not a round: the
files of the log are synced later (`synced_offset`), and until then a recovery needs the journal.

After a failed sync no offset is reported durable again: the content of the disk is unknown, and the
success of a retry would prove nothing.

Thread-safety: all methods from any thread. The sync itself runs outside the condition's lock;
`on_change` runs under it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from kafkalog._engine.commit_source import CommitSource, CommitState, UnsyncedNames
from kafkalog._engine.durable_slots import DurableSlot
from kafkalog._engine.gate_state import GateState
from kafkalog._engine.snapshot import PublishedSnapshot
from kafkalog.errors import LogOfflineError

__all__ = ["Committer"]


class Committer:
    """
    Makes offsets durable for the threads that wait.

    Args:
        sync: puts everything below the log end on the disk and returns that end.
        synced_offset: offset up to which the files on the disk have everything already.
        on_change: called with the durable offset after it rose; and before offsets above it are
            removed, with True as second argument. It must not raise. The slot that it returns may
            take later offsets instead.
        on_sync: called after each successful sync with the number of callers that it served.

    Attributes:
        state: the offsets; compiled code reads it.
    """

    def __init__(
        self,
        sync: Callable[[], int],
        synced_offset: int,
        on_change: Callable[[int, bool], DurableSlot | None] | None = None,
        on_sync: Callable[[int], object] | None = None,
    ) -> None:
        self._sync = sync
        self._on_change = on_change
        self._on_sync = on_sync
        # Offsets that callers wait for, and no sync has reached.
        self._awaited: list[int] = []
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self.state = CommitState(synced_offset)
        self._is_syncing = False
        self._source: CommitSource | None = None

    @property
    def durable_offset(self) -> int:
        """One above the last offset known to be on the disk; never ahead of it."""
        return self.state.durable_offset

    @property
    def synced_offset(self) -> int:
        """The same of the log's own files: what the commit journal alone has is not counted."""
        return self.state.synced_offset

    @property
    def waiting_count(self) -> int:
        """Number of callers that wait for an offset that is not durable."""
        return len(self._awaited)

    def wait_until_durable(self, offset: int) -> int:
        """
        Wait until everything below `offset` is on the disk; return the durable offset.

        Returns early if the log is truncated during the wait: the awaited offset may be gone, and
        no sync would ever reach it.
        """
        truncations = self.state.truncations
        with self._condition:
            if self.durable_offset >= offset:
                return self.durable_offset
            self._awaited.append(offset)
        try:
            while True:
                with self._condition:
                    while self._is_syncing and self.durable_offset < offset:
                        self._wait()
                    if self.durable_offset >= offset or truncations != self.state.truncations:
                        return self.durable_offset
                    truncations_before = self._begin()
                self._lead(truncations_before)
        finally:
            with self._condition, contextlib.suppress(ValueError):
                # Still there after a failure, a truncation or an interruption.
                self._awaited.remove(offset)

    def flush(self) -> int:
        """Sync even if nothing waits (new files, an empty log); return the durable offset."""
        self._lead(self.begin())
        return self.durable_offset

    def begin(self) -> int:
        """
        Begin a round whose sync the caller does; wait for the present round first.

        The caller must call `finish` or `fail`: until then every other caller waits.

        Returns:
            a number for `finish`.

        Raises:
            LogOfflineError: an earlier sync failed.
        """
        with self._condition:
            while self._is_syncing:
                self._wait()
            return self._begin()

    def finish(self, truncations_before: int, reached: int) -> None:
        """
        End a round whose sync succeeded.

        Args:
            truncations_before: the result of `begin`.
            reached: everything below it is on the disk.
        """
        with self._condition:
            # An end that was truncated away during the sync does not cover later appends there.
            if truncations_before == self.state.truncations:
                self.state.raise_synced(reached)
                self._raise_to(reached)
            left = [offset for offset in self._awaited if offset > self.durable_offset]
            # A flush waits for no offset.
            served = max(len(self._awaited) - len(left), 1)
            self._awaited = left
            self._is_syncing = False
            self._condition.notify_all()
        if self._on_sync is not None:
            self._on_sync(served)

    def fail(self, error: BaseException) -> None:
        """End a round whose sync failed: no offset becomes durable any more."""
        with self._condition:
            self.state.fail(error)
            self._is_syncing = False
            self._condition.notify_all()

    def refuse(self, error: BaseException) -> None:
        """Let no offset become durable any more; a round that runs ends by itself."""
        with self._condition:
            self.state.fail(error)
            self._condition.notify_all()

    def commit_source(
        self, gate: GateState, published: PublishedSnapshot, names: UnsyncedNames
    ) -> CommitSource:
        """Return what a commit journal asks for bytes of the log, and of what is durable."""
        made = self._source = CommitSource(
            gate,
            published,
            names,
            self.state,
            self._lock,
            self._ensure_no_error,
            self._condition.notify_all,
            self._on_change,
        )
        return made

    def end_reports(self) -> None:
        """Report no change any more: another log may have the directory, or its name."""
        with self._condition:
            self._on_change = None
            if self._source is not None:
                self._source.end_reports()

    def lower(self, offset: int) -> None:
        """Lower the durable offset to `offset`: the log was truncated there."""
        with self._condition:
            if self.state.lower(offset):
                self._report(is_lowered=True)
            self.state.count_truncation()

    def _raise_to(self, reached: int) -> None:
        """Raise the durable offset; the lock is held."""
        if self.state.raise_durable(reached):
            self._report(is_lowered=False)

    def _wait(self) -> None:
        """Wait for a notification; the lock is held."""
        self.state.add_waiting(1)
        try:
            self._condition.wait()
        finally:
            self.state.add_waiting(-1)

    def _report(self, *, is_lowered: bool) -> None:
        """Report a change; the condition is held, so that changes are reported in order."""
        if self._on_change is not None:
            self._on_change(self.durable_offset, is_lowered)

    def _begin(self) -> int:
        self._ensure_no_error()
        self._is_syncing = True
        return self.state.truncations

    def _ensure_no_error(self) -> None:
        if self.state.error is not None:
            raise LogOfflineError(
                "an earlier sync failed, what the disk holds is unknown: "
                + (str(self.state.error) or type(self.state.error).__name__)
            ) from self.state.error

    def _lead(self, truncations_before: int) -> None:
        try:
            reached = self._sync()
        except BaseException as error:
            self.fail(error)
            raise
        self.finish(truncations_before, reached)
