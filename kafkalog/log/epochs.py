"""The leader epochs of an open log: the epoch of its appends, and the changes of that epoch.

An embedded log is its own leader. Its appends carry the current epoch: the latest epoch of the log,
0 for a new log. Batches of another log keep their own epochs. If offsets will be assigned again,
the current epoch is above every known epoch, also those of lost records, so that no offset gets
other content under the same epoch. There are three cases:

  * a truncation;
  * an opening that finds that the log ended higher (a torn end, damage there, an end below the
    recovery point);
  * a power cut, which may remove whole batches without a trace: an unclean stop counts as a power
    cut unless the sync journal and the session note prove that nothing was lost
    (`state/sync_journal.py`, `state/session_note.py`).

The epoch does not rise after a process was killed: its writes are still there, and the epoch need
not be above that of a controller that leads the log next. A raised epoch is written to the file
with the first append that follows, or when the log is closed, and costs an opening nothing; until
then the journal does not prove that the end is kept.

Messages of the old formats carry no epoch, so the leader that appended them is unknown. As in a
broker, an append of them removes all epochs, in the file too; the next v2 batch begins a new list
with the current epoch. After an unclean stop the highest epoch is read from all batches of the log.

The file is written, and on the disk, before the first record of an epoch is written (rules and
crash points: `kafkalog.state.leader_epochs`). The sync journal then gets the new fingerprint,
because it takes a change of that file for the trace of a broker.

Crash points of `load_epochs`: none, it writes nothing. Of an assignment: before the file is
replaced, nothing has happened; between that and the journal, the journal is not believed and a
recovery rewrites more; after the journal, before the records, an epoch begins at the log end, which
the next opening removes, and its current epoch is above it.

Thread-safety: changes under the log's lock; `follow`, look-ups and `current` from any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import update_wrapper
from typing import Concatenate, ParamSpec, TypeVar

from kafkalog._core.batch import BatchColumns
from kafkalog._core.header import parse_header
from kafkalog._core.memory_records import MemoryRecords
from kafkalog._engine.epoch_state import EpochState
from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.files.errors import storage_errors
from kafkalog.layout import MAGIC_V2
from kafkalog.log.checkpoint_store import CheckpointStore
from kafkalog.log.loader import LoadedLog
from kafkalog.log.reading import walk_whole_segment
from kafkalog.log.scanner import NO_EPOCH
from kafkalog.state.checkpoints import EpochEntry
from kafkalog.state.leader_epochs import MAX_EPOCH, EpochEnd, LeaderEpochs
from kafkalog.state.sync_journal import SyncJournal

__all__ = ["LogEpochs", "load_epochs"]

logger = logging.getLogger(__name__)

WALK_BATCHES = 4096


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _updates_state(
    method: Callable[Concatenate[LogEpochs, _Arguments], _Result],
) -> Callable[Concatenate[LogEpochs, _Arguments], _Result]:
    """Publish the changed list to appends after the method, also if the method failed."""

    def call(epochs: LogEpochs, /, *args: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        try:
            return method(epochs, *args, **options)
        finally:
            epochs.update_state()

    return update_wrapper(call, method)


class LogEpochs:
    """
    The leader epochs of one log.

    Args:
        epochs: the list, with its file.
        current: epoch of the log's own appends.
        store: checkpoints of the log; its fingerprint is in the journal.
        journal: the partition's sync journal, None if it has no journal.
        was_bumped: whether `current` is above the file, because offsets are assigned again.

    Attributes:
        state: epochs that the fast path of an append compares.

    Thread-safety: changes under the log's lock; look-ups from any thread.
    """

    def __init__(
        self,
        epochs: LeaderEpochs,
        current: int,
        store: CheckpointStore,
        journal: SyncJournal | None,
        *,
        was_bumped: bool = False,
    ) -> None:
        self._was_bumped = was_bumped
        self._epochs = epochs
        self.state = EpochState(current, epochs.written_epoch, epochs.is_unwritten)
        self._store = store
        self._journal = journal

    def __repr__(self) -> str:
        return f"<LogEpochs at {self.current} of {self._epochs}>"

    @property
    def current(self) -> int:
        """The epoch of the log's own appends."""
        return self.state.current

    def update_state(self) -> None:
        """Publish the epochs of the list to appends."""
        self.state.set_written(self._epochs.written_epoch, self._epochs.is_unwritten)

    @property
    def is_current_flushed(self) -> bool:
        """True if the current epoch is the latest of the list, and the file has all of it."""
        return self._epochs.written_epoch == self.current

    @property
    def latest(self) -> int | None:
        """The epoch of the log's end, None if no batch has an epoch."""
        return self._epochs.latest_epoch

    def epoch_for(self, offset: int) -> int | None:
        """Return the epoch of an offset, None below the first epoch."""
        return self._epochs.epoch_for(offset)

    @property
    def is_empty(self) -> bool:
        """True if no epoch is known, and the file has no epoch."""
        return not self._epochs.entries and not self._epochs.is_unwritten

    @_updates_state
    def assign_current(self, start_offset: int) -> None:
        """
        Assign the current epoch from `start_offset` on, before an append there.

        Raises:
            LogStorageError: the file could not be written; nothing may be appended.
        """
        self._epochs.assign(self.current, start_offset, flush=False)
        self._flush()

    @_updates_state
    def assign_run(self, run: MemoryRecords) -> None:
        """
        Assign the epochs of batches that keep their own; an old-format batch removes all before it.

        Raises:
            LogStorageError: the file could not be written; nothing may be appended.
        """
        if run.batches.is_all_messages:
            self.clear_and_flush()
            return
        epochs, position, before = self._epochs, 0, -1
        data = memoryview(run.data)
        for batch in run.batches:
            header = parse_header(data, position)
            epoch = header.partition_leader_epoch
            if header.magic != MAGIC_V2:
                self._clear_entries()
                before = -1
            elif epoch >= 0 and epoch != before:
                epochs.assign(epoch, batch.base_offset, flush=False)
                self.state.set_current(max(self.current, epoch))
                before = epoch
            position += batch.size_bytes
        # Every write of the file includes a raised epoch, or a crash would lower it again. Not for
        # an old format, which has no epochs.
        beyond: EpochEntry | None = None
        if self.current > (epochs.latest_epoch or 0) and header.magic == MAGIC_V2:
            beyond = EpochEntry(self.current, run.batches[-1].last_offset + 1)
        self._flush(beyond)

    @_updates_state
    def clear_and_flush(self) -> None:
        """
        Remove all epochs, before messages of an old format are appended.

        Epochs of the list that no batch has, such as a raised epoch, are recorded nowhere then:
        after an unclean stop the next opening raises the epoch above those of all batches.

        Raises:
            LogStorageError: the file could not be written; nothing may be appended.
        """
        if self._clear_entries():
            logger.warning(
                "%s forgets its leader epochs: an old message format, which has none, is appended",
                self._store.paths.directory,
            )
        self._flush()

    def _clear_entries(self) -> bool:
        """Remove all entries, and return whether there were any."""
        if self._epochs.entries:
            self.begin_truncation()
            self._was_bumped = True
        return self._epochs.clear()

    def begin_truncation(self) -> None:
        """
        Record that offsets may be removed from now on.

        Raises:
            LogStorageError: the journal cannot be written; no offset may be removed.
        """
        if self._journal is not None:
            with storage_errors(self._journal.path, doing="writing"):
                self._journal.mark_end_uncertain()

    def end_truncation(self) -> None:
        """Record that no offset was removed, or that `bump` was called."""
        if self._journal is not None and not self._was_bumped:
            self._journal.mark_end_certain()

    def bump(self) -> None:
        """Append under a higher epoch from now on: offsets are assigned again."""
        self.state.set_current(min(self.current + 1, MAX_EPOCH))
        self._was_bumped = True

    @_updates_state
    def lower(self, highest: int) -> None:
        """
        Lower all epochs above `highest` to it, in the file too; the caller lowers the batches.

        Raises:
            LogStorageError: the file could not be written.
        """
        self._epochs.lower(highest)
        self.state.set_current(min(self.current, highest))
        self._was_bumped = False
        self._flush()
        self.end_truncation()

    @_updates_state
    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at the new log end or above; the file follows later."""
        self._epochs.truncate_from_end(end_offset)

    @_updates_state
    def truncate_from_start(self, start_offset: int) -> None:
        """Let the first epoch begin at the new log start; the file follows later."""
        self._epochs.truncate_from_start(start_offset)

    @_updates_state
    def clear(self) -> None:
        """Remove all epochs: the emptied log continues elsewhere; the file follows later."""
        self._epochs.clear()

    def _flush(self, beyond: EpochEntry | None = None) -> None:
        if not self._epochs.is_unwritten:
            return
        self._epochs.flush(beyond)
        if self._journal is not None:
            self._journal.update_fingerprint(self._store.broker_fingerprint())
        written = self._epochs.latest_epoch if beyond is None else beyond.epoch
        if self._was_bumped and written is not None and written >= self.current:
            self._was_bumped = False
            self.end_truncation()

    @_updates_state
    def close(self, end_offset: int) -> None:
        """
        Write the epochs that the file lacks, and a current epoch that no record has yet.

        A raised epoch would otherwise fall back to an epoch of lost records.

        Raises:
            LogStorageError: the disk refused.
        """
        if self.current > (self._epochs.latest_epoch or 0):
            self._epochs.assign(self.current, end_offset, flush=False)
        self._flush()

    @_updates_state
    def follow(self, snapshot: LogSnapshot) -> None:
        """
        Reload the file that the writer has written, for a log that is open read-only.

        The writer puts an epoch into the file before the first record of the epoch. So the present
        file, cut to the snapshot, has the epochs of all records in the snapshot.

        Raises:
            LogStorageError: the file cannot be read.
        """
        checkpoint = self._store.paths.leader_epochs()
        fresh = LeaderEpochs()
        if self._store.paths.filesystem.stat(checkpoint.path) is None or not fresh.load(checkpoint):
            # Only the epochs that were read from the batches at the opening are left.
            return
        fresh.truncate_from_end(snapshot.end_offset)
        fresh.truncate_from_start(snapshot.start_offset)
        self._epochs = fresh

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the end offset of an epoch; see `LeaderEpochs.end_offset_for`."""
        return self._epochs.end_offset_for(epoch, log_end_offset)


def load_epochs(store: CheckpointStore, loaded: LoadedLog, *, keeps_end: bool) -> LogEpochs:
    """
    Return the epochs of a log that was just loaded, made to fit its range.

    A file with entries has every epoch of the log. Without entries, as after a copy of a `.log`
    file alone, they are read from the scanned batches; if the file is damaged, or was emptied
    before an unclean stop, from all batches.

    Args:
        store: checkpoints of the log.
        loaded: the log.
        keeps_end: whether journal and session note prove that its end is as its last writer left
            it.

    Raises:
        LogStorageError: the file cannot be read.
    """
    local, report = loaded.local, loaded.report
    read_only = local.context.read_only
    paths = store.paths
    checkpoint = paths.leader_epochs()
    epochs = LeaderEpochs(None if read_only else checkpoint)
    found: Iterable[tuple[int, int]] = ()
    if not epochs.load(checkpoint):
        found = _epochs_of(local.snapshot)
    elif not epochs.entries:
        # Only without entries: no CRC covers the epoch of a batch. A file that an append of an old
        # format emptied had entries, and a close in order would have written the highest.
        was_emptied = not report.clean and paths.filesystem.stat(checkpoint.path) is not None
        found = _epochs_of(local.snapshot) if was_emptied else loaded.scanned.leader_epochs
    highest = _assign(epochs, found)
    latest = epochs.latest_epoch
    latest = highest if latest is None else max(latest, highest)
    snapshot = local.snapshot
    # Without a segment nothing was lost.
    was_bumped = loaded.has_lost_end or not (keeps_end or report.scanned_segments == 0)
    current, journal = 0, local.context.journal
    if latest != NO_EPOCH:
        # Before the list is cut: lost records had epochs, too.
        current = min(latest + was_bumped, MAX_EPOCH) if not read_only else latest
    if journal is not None:
        # In a log without any epoch no two contents can have the same epoch.
        journal.set_keeps_end(not was_bumped or latest == NO_EPOCH)
    epochs.truncate_from_end(snapshot.end_offset)
    epochs.truncate_from_start(snapshot.start_offset)
    return LogEpochs(epochs, current, store, journal, was_bumped=current > latest >= 0)


def _assign(epochs: LeaderEpochs, found: Iterable[tuple[int, int]]) -> int:
    """Assign epochs as they rise in the log; return the highest, also of those removed again."""
    highest = NO_EPOCH
    for epoch, base_offset in found:
        latest = epochs.latest_epoch
        if epoch == NO_EPOCH:
            epochs.clear()
        elif latest is None or epoch > latest:
            epochs.assign(epoch, base_offset, flush=False)
        highest = max(highest, epoch)
    return highest


def _epochs_of(snapshot: LogSnapshot) -> Iterable[tuple[int, int]]:
    """
    Yield epoch and base offset of the batches in which the epoch changes, around damage.

    NO_EPOCH where messages of an old format begin.
    """
    before = NO_EPOCH
    columns = BatchColumns(WALK_BATCHES)
    for slot, segment in enumerate(snapshot.segments.segments):
        bound = snapshot.read_bound(slot)
        for walked in walk_whole_segment(segment, bound, columns):
            epochs = columns.leader_epoch[: walked.count].tolist()
            bases = columns.base_offset[: walked.count].tolist()
            is_new = columns.magic[: walked.count] >= MAGIC_V2
            for epoch, base_offset, has_epoch in zip(epochs, bases, is_new.tolist(), strict=True):
                if epoch != before and (epoch >= 0 or not has_epoch):
                    before = epoch
                    yield epoch, base_offset
