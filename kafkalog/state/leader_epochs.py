"""Leader epochs of one log: the leader epoch of each offset.

An ordered list of (epoch, first offset), both rising, kept in `leader-epoch-checkpoint`. A follower
uses the end offset of an epoch to find where two logs diverge; a log that a crash truncated and
that continues with a new epoch can be distinguished from its earlier content.

`assign` follows Kafka: an entry whose epoch is not below the new one, or whose start is not below
the new start, is first removed from the end. So an epoch that got no records is replaced by the
next one, and of contradicting entries the last one counts.

Content of the file, and the crash points:

  1. `assign` writes before it returns, and an append assigns its epoch before it writes its
     records. So the log has no record whose epoch is missing in the file; the file may have an
     epoch that begins at the log end;
  2. truncations change the memory and leave the file to the next `flush`. A crash before that
     leaves entries above the end, or first entries below the start: `truncate_from_end` and
     `truncate_from_start` remove them at the next load;
  3. during a write: the old file or the new file, complete (`kafkalog.state.checkpoints`).

After a write that failed, the next change or `flush` writes everything.

Thread-safety: one writer, under the log's lock; look-ups may be called by any thread at any time,
and use the entries that were published last.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog.errors import CorruptStateError
from kafkalog.state.checkpoints import EpochEntry, LeaderEpochCheckpoint

__all__ = ["UNKNOWN_EPOCH_END", "EpochEnd", "LeaderEpochs"]

MAX_EPOCH: Final = 2**31 - 1

logger = logging.getLogger(__name__)

_epoch_of = attrgetter("epoch")
_start_of = attrgetter("start_offset")


class EpochEnd(NamedTuple):
    """The largest epoch not above the requested one, and the offset after its last record."""

    epoch: int
    end_offset: int


UNKNOWN_EPOCH_END: Final = EpochEnd(-1, -1)


class LeaderEpochs:
    """
    The leader epochs of one log.

    Args:
        checkpoint: the file of the epochs; None for a read-only log.

    Attributes:
        written_epoch: the epoch at the log's end; None if there is none, or if the file lacks a
            change. Each append reads it.
    """

    __slots__ = ("_checkpoint", "_entries", "_is_unwritten", "written_epoch")

    def __init__(self, checkpoint: LeaderEpochCheckpoint | None = None) -> None:
        self._checkpoint = checkpoint
        self._entries: tuple[EpochEntry, ...] = ()
        self._is_unwritten = False
        self.written_epoch: int | None = None

    def __repr__(self) -> str:
        return f"<LeaderEpochs {[tuple(entry) for entry in self._entries]}>"

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, ascending."""
        return self._entries

    @property
    def latest_epoch(self) -> int | None:
        """The epoch at the log's end."""
        entries = self._entries
        return entries[-1].epoch if entries else None

    @property
    def is_unwritten(self) -> bool:
        """True if the file lacks a change."""
        return self._is_unwritten

    # The file.

    def load(self, checkpoint: LeaderEpochCheckpoint | None = None) -> bool:
        """
        Load the entries of the file, or of `checkpoint` if the object has no file.

        Returns False if the file is damaged: the epochs begin empty, and the caller restores them
        from the log's batches (`assign_batches`). Entries that do not rise are not damage: the last
        one of contradicting entries counts, as with a broker.

        Raises:
            LogStorageError: the disk reported an error.
        """
        source = checkpoint or self._checkpoint
        self._entries, self.written_epoch = (), None
        if source is None:
            return True
        try:
            read = source.read(rising=False)
        except CorruptStateError as error:
            logger.warning("%s; the leader epochs are restored from the log", error)
            self._is_unwritten = self._checkpoint is not None
            return False
        for epoch, start_offset in read:
            self._entries = _with_entry(self._entries, EpochEntry(epoch, start_offset))
        self._is_unwritten = self._checkpoint is not None and list(self._entries) != read
        self._record_written()
        return True

    def flush(self, beyond: EpochEntry | None = None) -> None:
        """
        Write the changes that the file lacks; they are on the disk when this returns.

        Args:
            beyond: an epoch that no record has yet; it is written to the file only, for the next
                load.

        Raises:
            LogStorageError: the disk reported an error; the file is unchanged.
        """
        if self._is_unwritten and self._checkpoint is not None:
            extra = () if beyond is None else (beyond,)
            self._checkpoint.write((*self._entries, *extra))
            self._is_unwritten = False
            self._record_written()

    # Changes.

    def assign(self, epoch: int, start_offset: int, *, flush: bool = True) -> bool:
        """
        Assign `epoch` to the records from `start_offset` on.

        Args:
            epoch: leader epoch of the batch; not negative.
            start_offset: base offset of the batch; not negative.
            flush: True to write the file at once; False while a whole log is scanned.

        Returns whether an entry was added.

        Raises:
            ValueError: a number is out of range.
            LogStorageError: the file could not be written; the records must not be appended.
        """
        entries = self._entries
        # Called for each batch that is appended; nearly all calls return here.
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            if flush and self._is_unwritten:
                self.flush()
            return False
        if not (0 <= epoch <= MAX_EPOCH and start_offset >= 0):
            raise ValueError(
                f"epoch must be in 0 to {MAX_EPOCH} and start offset not negative, "
                f"got {epoch}, {start_offset}"
            )
        self._change(_with_entry(entries, EpochEntry(epoch, start_offset)))
        if flush:
            self.flush()
        return True

    def assign_batches(
        self, epochs: npt.NDArray[np.int32], base_offsets: npt.NDArray[np.int64]
    ) -> bool:
        """
        Assign those epochs that a scan found and that rise; the caller calls `flush`.

        Args:
            epochs: leader epoch of each batch, -1 for none.
            base_offsets: base offset of each batch.

        Returns whether an entry was added.
        """
        latest = -1 if not self._entries else self._entries[-1].epoch
        highest = np.maximum.accumulate(np.concatenate(([latest], epochs)))
        changed = False
        for row in np.flatnonzero(highest[1:] > highest[:-1]).tolist():
            changed |= self.assign(int(epochs[row]), int(base_offsets[row]), flush=False)
        return changed

    def truncate_from_end(self, end_offset: int) -> bool:
        """
        Remove the epochs that begin at `end_offset` or above; return whether there were any.

        A negative offset is an unknown offset: nothing is removed, as in Kafka.
        """
        if end_offset < 0:
            return False
        kept = self._entries[: bisect_left(self._entries, end_offset, key=_start_of)]
        return self._change(kept)

    def truncate_from_start(self, start_offset: int) -> bool:
        """Make the first epoch begin at `start_offset`; return whether an entry changed."""
        entries = self._entries
        gone = bisect_right(entries, start_offset, key=_start_of)
        if gone == 0:
            return False
        first = EpochEntry(entries[gone - 1].epoch, start_offset)
        return self._change((first, *entries[gone:]))

    def lower(self, highest: int) -> bool:
        """Limit all epochs to `highest`; return whether an entry changed."""
        kept = self._entries[: bisect_right(self._entries, highest, key=_epoch_of)]
        above = self._entries[len(kept) :]
        if above and (not kept or kept[-1].epoch < highest):
            kept = (*kept, EpochEntry(highest, above[0].start_offset))
        return self._change(kept)

    def clear(self) -> bool:
        """Remove all epochs; return whether there were any."""
        return self._change(())

    def _change(self, entries: tuple[EpochEntry, ...]) -> bool:
        if entries == self._entries:
            return False
        self._entries = entries
        self._is_unwritten = self._checkpoint is not None
        self._record_written()
        return True

    def _record_written(self) -> None:
        self.written_epoch = None if self._is_unwritten else self.latest_epoch

    # Look-ups.

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """
        Return the end offset of an epoch.

        The latest epoch ends with the log. For an epoch without records here, the result is the end
        of the largest epoch below it; for an epoch below all known ones, its own number and the
        start of the first known one. The end of an epoch above the latest is unknown.
        """
        entries = self._entries
        if not entries or epoch < 0 or epoch > entries[-1].epoch:
            return UNKNOWN_EPOCH_END
        if epoch == entries[-1].epoch:
            return EpochEnd(epoch, log_end_offset)
        slot = bisect_right(entries, epoch, key=_epoch_of)
        floor = entries[slot - 1].epoch if slot else epoch
        return EpochEnd(floor, entries[slot].start_offset)

    def epoch_for(self, offset: int) -> int | None:
        """Return the epoch of an offset, None below the first epoch."""
        entries = self._entries
        slot = bisect_right(entries, offset, key=_start_of)
        return entries[slot - 1].epoch if slot else None


def _with_entry(entries: tuple[EpochEntry, ...], entry: EpochEntry) -> tuple[EpochEntry, ...]:
    """Return entries with a new one, without those at the end that it contradicts."""
    kept = len(entries)
    while kept and (
        entries[kept - 1].epoch >= entry.epoch
        or entries[kept - 1].start_offset >= entry.start_offset
    ):
        kept -= 1
    return (*entries[:kept], entry)
