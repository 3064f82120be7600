"""Lowering of the leader epochs of a log for a controller that counts from a lower epoch.

A broker compares the epoch that its controller gives a partition with `leader-epoch-checkpoint`,
and removes later entries; clients compare the epoch in each batch, and the epoch committed with a
position, with the partition's, and wait for a leader with an epoch as high. So no epoch in a log
that is handed over may be above the epoch of its next leader. The CRC of a batch does not cover its
epoch: it is written in place, four bytes, and nothing else of the batch changes.

Order, and crash points: the batches, file after file, each synced; then the list of epochs, as any
change of it. In between some batches have the lower epoch, and the list is unchanged: a broker, and
the next opening here, find no contradiction, and lowering again does the rest. If the four bytes
are in two sectors, a power cut may leave bytes of both epochs: the next call lowers a result above
`highest`, and no CRC covers it.

Files keep their time of last modification, which retention uses if records have no timestamp.

Thread-safety: under the log's lock, while no cleaner compacts it. Readers see either epoch during
the change.
"""

from __future__ import annotations

from kafkalog._core.batch import BatchColumns
from kafkalog._engine.snapshot import ReadBound
from kafkalog.layout import LEADER_EPOCH_POSITION, MAGIC_V2
from kafkalog.log.local_log import LocalLog
from kafkalog.log.reading import walk_whole_segment
from kafkalog.log.segment import LogSegment

__all__ = ["lower_batches"]

WALK_BATCHES = 4096


def lower_batches(local: LocalLog, highest: int) -> int:
    """
    Lower leader epochs of batches to `highest`, on the disk; return the number of changed batches.

    Damaged ranges stay as they are.

    Raises:
        OSError: the disk refused; some batches are lowered.
    """
    snapshot = local.snapshot
    columns = BatchColumns(WALK_BATCHES)
    return sum(
        _lower_segment(local, segment, snapshot.read_bound(slot), columns, highest)
        for slot, segment in enumerate(snapshot.segments.segments)
    )


def _lower_segment(
    local: LocalLog, segment: LogSegment, bound: ReadBound, columns: BatchColumns, highest: int
) -> int:
    positions: list[int] = []
    for walked in walk_whole_segment(segment, bound, columns):
        is_above = columns.leader_epoch[: walked.count] > highest
        is_above &= columns.magic[: walked.count] >= MAGIC_V2
        found = columns.position[: walked.count][is_above] + walked.origin
        positions += found.tolist()
    if not positions:
        return 0
    filesystem, epoch = local.context.filesystem, highest.to_bytes(4, "big")
    facts = filesystem.stat(segment.path)
    with local.context.sync_attempt():
        handle = filesystem.open(segment.path, write=True)
        try:
            for position in positions:
                handle.pwrite(epoch, position + LEADER_EPOCH_POSITION)
            if facts is not None:
                filesystem.set_modified_ms(segment.path, facts.modified_ms)
            handle.sync()
        finally:
            handle.close()
    return len(positions)
