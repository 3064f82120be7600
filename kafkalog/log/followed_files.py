"""File of a read-only log: its last segment, held open while another process appends to it.

A program that follows thousands of logs cannot hold a file open for each. The opener of many logs
counts them, and releases the files of logs above its limit; sealed segments are read through the
pool of files in any case. While nothing changes, a look at a released log opens nothing.

Thread-safety: every method from any thread. `try_release` waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalog.log.idle_files import ReleasableFiles
from kafkalog.log.local_log import LocalLog
from kafkalog.log.tail import ReadOnlyTail
from kafkalog.log.write_gate import WriteGate

__all__ = ["FollowedFiles"]


class FollowedFiles:
    """
    Releases the file of one read-only log, which the next look opens again if it has changed.

    Args:
        gate: the log's state.
        local: the segments.
        tail: follows the writer.
        on_reopen: called with this object when the file was opened again; without it the file is
            never released.
    """

    def __init__(
        self,
        gate: WriteGate,
        local: LocalLog,
        tail: ReadOnlyTail,
        on_reopen: Callable[[ReleasableFiles], object] | None,
    ) -> None:
        self._gate = gate
        self._local = local
        self._tail = tail
        self._can_release = on_reopen is not None
        if on_reopen is not None:
            tail.set_on_reopen(lambda: on_reopen(self))

    @property
    def is_released(self) -> bool:
        """True if no file is held open."""
        return self._tail.is_released

    @property
    def is_closed(self) -> bool:
        """True if the log was closed."""
        return self._gate.state.is_closed

    @property
    def end_offset(self) -> int:
        """The log end offset that was published last."""
        return self._local.snapshot.end_offset

    def try_release(self) -> bool:
        """Close the file, unless the log is being looked at; return whether it is closed."""
        return self._can_release and not self.is_closed and self._tail.try_release()
