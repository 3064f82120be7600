"""One append, under the log's lock: offsets, producers, epoch, bytes, and who has to know of them.

In this order: the batches get their offsets; the state of their producers is asked, which may
refuse them or know them already; the leader epoch is in its file; readers of committed records are
stopped before a transaction that begins; the bytes are written and published; state, transaction
index and readers follow. Whatever fails before the bytes are published leaves the log as it was.

A file of batches that is taken over goes the same way: `adopting` says how.

Crash points: those of `LocalLog.append`, and before it that of an epoch (`epochs.py`). Behind it
nothing has to be on the disk: state and transaction index are told from the batches.

Thread-safety: called under the log's lock.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalog._core.memory_records import MemoryRecords
from kafkalog._engine.append_lane import RunAppender
from kafkalog.files.errors import translate
from kafkalog.layout import MAGIC_V2
from kafkalog.log.adopting import IngestFile, ingest_file
from kafkalog.log.changing import Changing
from kafkalog.log.epochs import LogEpochs
from kafkalog.log.local_log import LocalLog, LogSnapshot, UndoFailedError
from kafkalog.log.producers import LogProducers, PendingAppend, duplicate_info
from kafkalog.model import AppendInfo, AppendOrigin
from kafkalog.records.append_rules import AppendRules
from kafkalog.state.verification import NO_GUARD

__all__ = ["Appender"]


class Appender(RunAppender):
    """
    Appends runs to a log.

    Args:
        local: its segments.
        producers: its producers.
        epochs: its leader epochs.
        mark_offline: called with an error after which nothing may be written.
    """

    _local: LocalLog
    _epochs: LogEpochs

    def __init__(
        self,
        local: LocalLog,
        producers: LogProducers,
        epochs: LogEpochs,
        mark_offline: Callable[[BaseException], None],
    ) -> None:
        self._local = local
        self._producers = producers
        self._epochs = epochs
        self._mark_offline = mark_offline

    def append(
        self, run: MemoryRecords, rules: AppendRules, origin: AppendOrigin, guard: int = NO_GUARD
    ) -> tuple[AppendInfo, bool]:
        """
        Append any run; return what it is now, and whether a segment was begun.

        Args:
            run, rules, origin: the append.
            guard: of the verification that its transaction passed.

        Raises:
            ProducerStateError: a producer may not append this, or not now.
            KafkaLogError: the run does not fit the log, or the disk refused.
        """
        local, epochs = self._local, self._epochs
        before = local.snapshot
        info = run.assign_offsets(before.end_offset, epochs.current)
        if not run.batches:
            return info, False
        pending: PendingAppend | None = None
        if run.has_producers:
            pending = self._producers.begin(run, origin, guard)
            if pending.duplicates:
                is_log_append_time = rules.is_log_append_time
                return duplicate_info(
                    pending.duplicates, run, is_log_append_time=is_log_append_time
                ), False
        if not epochs.is_epoch_written(run):
            self._assign_epoch(run, rules, info)
        if pending is not None:
            self._producers.announce(pending)
        try:
            rolled = local.append(run.data, run.batches)
        except BaseException as error:
            self._not_written(error, pending)
            raise
        if pending is not None:
            self._producers.commit(pending, before)
        elif rolled:
            self._rolled(before)
        return info, rolled

    def _rolled(self, before: LogSnapshot) -> None:
        self._producers.on_roll(before)

    def _assign_epoch(self, run: MemoryRecords, rules: AppendRules, info: AppendInfo) -> None:
        """Have the epoch of a run in its file before the run is in the log."""
        epochs = self._epochs
        if run.needs_offsets and rules.magic < MAGIC_V2 and epochs.is_empty:
            return
        with Changing(self._local, "assigning a leader epoch", self._mark_offline):
            if not run.needs_offsets:
                epochs.assign_run(run)
            elif rules.magic == MAGIC_V2:
                epochs.assign_current(info.first_offset)
            else:
                epochs.clear_and_flush()

    def ingest(self, file: IngestFile) -> AppendInfo:
        """
        Take over a file that was looked through; everything before it is on the disk.

        Raises:
            KafkaLogError: the disk refused.
        """
        local, epochs = self._local, self._epochs
        before = local.snapshot
        first = before.end_offset

        if not epochs.is_current_flushed:
            with Changing(local, "assigning a leader epoch", self._mark_offline):
                epochs.assign_current(first)
        with Changing(local, "taking over a file", self._mark_offline):
            ingest_file(local, file, epochs.current)
        self._producers.on_roll(before)
        active = local.snapshot.segments.active
        return AppendInfo(
            first,
            first + file.record_count - 1,
            file.record_count,
            len(file.batches),
            file.size_bytes,
            None,
            active.max_timestamp,
            active.offset_of_max_timestamp,
        )

    def _not_written(self, error: BaseException, pending: PendingAppend | None) -> None:
        """Take back what was announced, and say what an error of the disk means."""
        if pending is not None:
            self._producers.withdraw()
        self._local.context.report(error)
        if isinstance(error, OSError):
            if isinstance(error, UndoFailedError):
                self._mark_offline(error)
            raise translate(error, self._local.context.directory, doing="appending") from error
