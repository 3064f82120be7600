"""Producer state without a change to the disk: from the newest snapshot, and from the segments.

Damage is walked around: what a corrupt range holds no state can know. Where a transaction's marker
was lost in it, the transaction stays open; a reader of committed records then sees too little,
never what was aborted.

Thread-safety: works on one snapshot of the log, without a lock; the states belong to the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog._core.batch import BatchColumns
from kafkalog.log.batch_walk import ResumePoint
from kafkalog.log.producer_recovery import replay_batches
from kafkalog.log.reading import after_damage, start_position
from kafkalog.log.segment_types import SegmentContext
from kafkalog.state.producers import CompletedTransaction, ProducerStates
from kafkalog.state.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    from kafkalog._engine.snapshot import LogSnapshot

__all__ = ["load_states", "replay_segments"]

WALK_BATCHES = 4096


def load_states(
    context: SegmentContext, start_offset: int, end_offset: int, *, at_start: bool = False
) -> ProducerStates:
    """
    Return what the newest snapshot between two offsets knows; nothing, at the first, without one.

    Args:
        context: what the log's segments share.
        start_offset: snapshots above it count.
        end_offset: snapshots up to it count.
        at_start: whether one at `start_offset` counts too, which knows of what lies below.

    Raises:
        LogStorageError: the disk refused.
    """
    files = SnapshotFiles(context.filesystem, context.directory, read_only=True)
    # Read-only that forgets what does not belong to this part of the log, and removes nothing.
    files.truncate(start_offset - 1 if at_start else start_offset, end_offset)
    states = ProducerStates(context.directory, end_offset=start_offset)
    latest = files.load_latest()
    if latest is not None:
        offset, entries = latest
        states.load(entries, offset)
    return states


def replay_segments(
    states: ProducerStates, snapshot: LogSnapshot, *, last_slot: int | None = None
) -> list[CompletedTransaction]:
    """
    Bring states forward from where they end to the end of a segment; return what was completed.

    Args:
        states: covers the records below its end, which lies in the log.
        snapshot: the log.
        last_slot: the segment to stop behind; the last if None.
    """
    segments = snapshot.segments
    completed: list[CompletedTransaction] = []
    if states.end_offset >= snapshot.end_offset:
        # After every stop in order; looking for nothing costs as much as the rest of an opening.
        return completed
    columns: BatchColumns | None = None
    stop = len(segments) if last_slot is None else last_slot + 1
    for slot in range(max(segments.floor_slot(states.end_offset), 0), stop):
        segment, bound = segments.segments[slot], snapshot.read_bound(slot)
        if bound.end:
            position: int | None = 0
            if segment.base_offset < states.end_offset:
                position = start_position(segment, states.end_offset, bound, "skip")
            if position is not None:
                columns = columns or BatchColumns(WALK_BATCHES)
                start = ResumePoint(position, segment.base_offset)
                on_damage = after_damage(segment, bound, "skip")
                for walked in segment.walk(start, bound, columns, on_damage):
                    completed += replay_batches(
                        states,
                        walked.data,
                        columns,
                        walked.count,
                        path=segment.path,
                        position=walked.origin,
                    )
        if bound.following_offset > states.end_offset:
            states.advance_to(bound.following_offset)
    return completed
