"""Producer state with its snapshots: when a snapshot is written, and the state after a start.

A start, or a truncation, takes these steps:

    manager.truncate_and_reload(log_start_offset, log_end_offset, now_ms)
    replay of the batches from `manager.states.end_offset` on   (`kafkalog.log.producer_replay`)
    manager.states.advance_to(log_end_offset)
    manager.take_snapshot()

While the log is open, a snapshot is written at each roll (without waiting for the disk), and when
the log is closed. It covers all offsets below its own, so that a later start replays one segment or
nothing.

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
        expiration_ms: `producer.id.expiration.ms`: time after which an idle producer is removed.
    """

    def __init__(self, states: ProducerStates, files: SnapshotFiles, expiration_ms: int) -> None:
        self.states = states
        self.files = files
        self._expiration_ms = expiration_ms
        self._last_snapshot_offset = states.end_offset

    def __repr__(self) -> str:
        return f"<ProducerStateManager of {self.states}, {self.files}>"

    @property
    def needs_snapshot(self) -> bool:
        """True if the newest snapshot lacks the current state of the producers."""
        is_needed = bool(self.states.entries) or self.files.latest_offset is not None
        return is_needed and self.states.end_offset > self._last_snapshot_offset

    def take_snapshot(self, *, durable: bool = True) -> bool:
        """
        Write a snapshot at the end of the state, if the state has grown since the last one.

        Returns whether a snapshot was written.

        Raises:
            LogStorageError: the disk reported an error.
        """
        end_offset = self.states.end_offset
        if end_offset <= self._last_snapshot_offset:
            return False
        self.files.write(end_offset, self.states.snapshot_entries(), durable=durable)
        self._last_snapshot_offset = end_offset
        return True

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """
        Limit the state to the records from log start to log end.

        The state becomes that of the newest snapshot in this range, or empty at the log start,
        unless it has producers and ends at the log end already; the caller replays the batches from
        `states.end_offset` on.

        Raises:
            LogStorageError: the disk reported an error.
        """
        self.files.truncate(log_start_offset, log_end_offset)
        if log_end_offset == self.states.end_offset and self.states.entries:
            self.raise_start(log_start_offset)
            return
        latest = self.files.load_latest()
        if latest is None:
            self.states.clear(log_start_offset)
        else:
            offset, entries = latest
            self.states.load(entries, offset)
            # A restart does not bring back a producer that expired.
            self.states.remove_expired(now_ms, self._expiration_ms)
        self._last_snapshot_offset = self.states.end_offset

    def raise_start(self, log_start_offset: int) -> None:
        """Set the log start offset to `log_start_offset`."""
        self.states.raise_start(log_start_offset)
        latest = self.files.latest_offset
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def expire_after(self, expiration_ms: int) -> None:
        """Remove producers after this time without a batch from now on."""
        self._expiration_ms = expiration_ms

    def remove_expired(self, now_ms: int) -> int:
        """Remove idle producers; return their number."""
        return self.states.remove_expired(now_ms, self._expiration_ms)

    def reset(self, end_offset: int) -> None:
        """
        Remove all entries and snapshots: the log continues, empty, at `end_offset`.

        Raises:
            LogStorageError: the disk reported an error.
        """
        self.files.remove_all()
        self.states.clear(end_offset)
        self._last_snapshot_offset = end_offset
