"""Load of producer state at an opening: the newest whole snapshot, and the batches after it.

A log of this library without any snapshot had no producer below the segment with its recovery point
(see `kafkalog.log.producers`), so only the batches that recovery has scanned are replayed; the sync
journal shows that it is such a log. Any other log is replayed from its start. But a log that was
closed in order is believed unread, as by a broker, which leaves a snapshot when it closes a log.

An opening for writing that had to replay leaves a snapshot at the log end, on the disk before the
recovery point rises to it: a crash before that only repeats the work, and so does a full disk.

Crash points, while snapshots that are damaged, or above the log end, are replaced:
  * before the journal records that producers are missing: the snapshots still exist;
  * from there to the end of the opening: any or none of them is left, and without one the next
    opening replays the whole log, however often that is interrupted;
  * later: the new snapshot is on the disk, with or without the record of the journal.

Thread-safety: `load_producer_state` before the log has any other user; a follower may be asked by
any thread, one after the other.
"""

from __future__ import annotations

import logging
import threading

from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.errors import DiskFullError
from kafkalog.log.isolation import Visibility
from kafkalog.log.loader import LoadedLog
from kafkalog.log.producer_replay import load_states, replay_segments
from kafkalog.log.segment_types import SegmentContext
from kafkalog.state.producer_state_manager import ProducerStateManager
from kafkalog.state.producers import OpenTransaction, ProducerStates
from kafkalog.state.snapshot_files import SnapshotFiles

__all__ = ["ReadOnlyProducers", "load_producer_state"]

logger = logging.getLogger(__name__)


def load_producer_state(
    loaded: LoadedLog, *, recovery_point: int, expiration_ms: int
) -> ProducerStateManager:
    """
    Return the producers of a log that was just loaded for writing, as they are at its end.

    Args:
        loaded: the log.
        recovery_point: below which, as was noted before, all is on the disk.
        expiration_ms: after how long a silent producer is forgotten.

    Raises:
        OSError, LogStorageError: the disk refused.
    """
    context, snapshot = loaded.local.context, loaded.local.snapshot
    files = SnapshotFiles(context.filesystem, context.directory)
    # Not from the log start, which may lie within the segment: a producer whose last batch is below
    # it is known until the segment goes.
    first_offset = snapshot.segments.segments[0].base_offset
    states = ProducerStates(context.directory, end_offset=first_offset)
    manager = ProducerStateManager(states, files, expiration_ms)
    journal = context.journal
    if files.latest_offset is None:
        states.clear(max(_first_doubtful_offset(loaded), first_offset))
    else:
        announce = None if journal is None else journal.mark_producers_uncertain
        with files.last_removal_announced(announce):
            files.remove_strays(snapshot.segments.bases)
            files.truncate(first_offset, _believed_end(loaded, recovery_point))
            now_ms = context.clock.now_ms()
            manager.truncate_and_reload(first_offset, snapshot.end_offset, now_ms)
    replay_segments(states, snapshot)
    if manager.needs_snapshot:
        try:
            manager.take_snapshot()
        except DiskFullError as error:
            # The recovery point waits for the next one. What is in the log can be deleted.
            logger.warning("no producer snapshot at offset %d: %s", states.end_offset, error)
    if journal is not None and not (manager.needs_snapshot and files.latest_offset is None):
        journal.mark_producers_certain()
    return manager


def _believed_end(loaded: LoadedLog, recovery_point: int) -> int:
    """
    Return the offset up to which snapshots describe batches that exist.

    A snapshot of an unsynced segment may be on the disk while batches below it are not. With it a
    lost batch would be refused as a duplicate.
    """
    end_offset, first_offset = loaded.local.snapshot.end_offset, loaded.scanned.first_offset
    if loaded.report.clean or first_offset is None:
        return end_offset
    return max(first_offset, recovery_point if recovery_point <= end_offset else 0)


def _first_doubtful_offset(loaded: LoadedLog) -> int:
    """Return where a log without snapshots may have its first batch of a producer."""
    journal, scanned = loaded.local.context.journal, loaded.scanned
    if not loaded.report.clean and (journal is None or journal.lacks_producers):
        return 0
    if scanned.has_producers and scanned.first_offset is not None:
        return scanned.first_offset
    return loaded.local.snapshot.end_offset


class ReadOnlyProducers:
    """
    Last stable offset of a log that another process writes; computed from its batches on demand.

    Args:
        context: what its segments share.
    """

    def __init__(self, context: SegmentContext) -> None:
        self._context = context
        self._guard = threading.Lock()
        self._states: ProducerStates | None = None
        self._seen: LogSnapshot | None = None

    def visibility(self, snapshot: LogSnapshot) -> Visibility:
        """
        Return what readers of `snapshot` may see.

        Raises:
            OSError, LogStorageError: the disk refused, or the writer has taken files away.
        """
        with self._guard:
            states = self._states
            if states is None or not self._continues(snapshot):
                start, end = snapshot.start_offset, snapshot.end_offset
                states = load_states(self._context.filesystem, self._context.directory, start, end)
            # After a replay that failed the states are no longer those of the last snapshot.
            self._states = None
            replay_segments(states, snapshot)
            states.advance_high_watermark(snapshot.end_offset)
            self._states, self._seen = states, snapshot
            return Visibility(None, states.first_unstable_offset)

    def transactions(self, snapshot: LogSnapshot) -> list[OpenTransaction]:
        """Return the open transactions of a snapshot, the earliest first; errors as above."""
        self.visibility(snapshot)
        with self._guard:
            return [] if self._states is None else self._states.open_transactions()

    def _continues(self, snapshot: LogSnapshot) -> bool:
        """Return whether a snapshot has all replayed batches, in the same files."""
        seen = self._seen
        if seen is None or snapshot.end_offset < seen.end_offset:
            return False
        slot = max(seen.segments.floor_slot(seen.end_offset - 1), 0)
        segment = seen.segments.segments[slot]
        return any(segment is each for each in snapshot.segments.segments)
