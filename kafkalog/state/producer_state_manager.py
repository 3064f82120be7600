"""Producer state and its snapshots together: when one is taken, and what a start begins with.

A start, or a truncation, goes

    manager.truncate_and_reload(log_start_offset, log_end_offset, now_ms)
    replay of the batches from `manager.states.end_offset` on   (`kafkalog.log.producer_recovery`)
    manager.states.advance_to(log_end_offset)
    manager.take_snapshot()

and while the log is open a snapshot is taken whenever a segment is begun (without waiting for the
disk) and when the log is closed. Each covers all that lies below it, so that a later start replays
one segment, or nothing.

Thread-safety: called under the log's lock.
"""

from __future__ import annotations

from kafkalog.state.producers import ProducerStates
from kafkalog.state.snapshot_files import SnapshotFiles

__all__ = ["ProducerStateManager"]


class ProducerStateManager:
    """
    The producer state of one log, with its files.

    Args:
        states: the state in memory.
        files: its snapshots.
        expiration_ms: `producer.id.expiration.ms`: after how long a silent producer is forgotten.
    """

    def __init__(self, states: ProducerStates, files: SnapshotFiles, expiration_ms: int) -> None:
        self.states = states
        self.files = files
        self.expiration_ms = expiration_ms
        self._last_snapshot_offset = states.end_offset

    def __repr__(self) -> str:
        return f"<ProducerStateManager of {self.states}, {self.files}>"

    @property
    def needs_snapshot(self) -> bool:
        """Whether there are producers that no snapshot tells of as they are now."""
        is_needed = bool(self.states.entries) or self.files.latest_offset is not None
        return is_needed and self.states.end_offset > self._last_snapshot_offset

    def take_snapshot(self, *, durable: bool = True) -> bool:
        """
        Write a snapshot at the end of what is known, if the state has moved since the last one.

        Returns whether one was written.

        Raises:
            LogStorageError: the disk refused.
        """
        end_offset = self.states.end_offset
        if end_offset <= self._last_snapshot_offset:
            return False
        self.files.write(end_offset, self.states.snapshot_entries(), durable=durable)
        self._last_snapshot_offset = end_offset
        return True

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """
        Make the state one of no more than the records from log start to log end.

        It goes back to the newest snapshot in that range, or to nothing at the log start, unless it
        ends at the log end already; the caller replays what lies behind `states.end_offset`.

        Raises:
            LogStorageError: the disk refused.
        """
        self.files.truncate(log_start_offset, log_end_offset)
        if log_end_offset == self.states.end_offset:
            self.raise_start(log_start_offset)
            return
        latest = self.files.load_latest()
        if latest is None:
            self.states.clear(log_start_offset)
        else:
            offset, entries = latest
            self.states.load(entries, offset)
            # A producer that fell silent long ago is not brought back by a restart.
            self.states.remove_expired(now_ms, self.expiration_ms)
        self._last_snapshot_offset = self.states.end_offset

    def raise_start(self, log_start_offset: int) -> None:
        """Take note that the log begins at `log_start_offset` now."""
        self.states.raise_start(log_start_offset)
        latest = self.files.latest_offset
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def remove_expired(self, now_ms: int) -> int:
        """Forget silent producers; return how many they were."""
        return self.states.remove_expired(now_ms, self.expiration_ms)

    def reset(self, end_offset: int) -> None:
        """
        Forget all, snapshots too: the log goes on, empty, at `end_offset`.

        Raises:
            LogStorageError: the disk refused.
        """
        self.files.remove_all()
        self.states.clear(end_offset)
        self._last_snapshot_offset = end_offset
