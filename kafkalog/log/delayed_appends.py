"""Delayed appends of a log: records that a commit journal has, and the log gets a little later.

The records have offsets above the log end (`kafkalog._engine.delayed_records`). They are appended
by a task of the manager after `kafkalog.journal.linger.ms`, and before anything else is done with
the log that its `WriteGate` guards: another append, a truncation, a roll, a close.

No setting refuses them here: they were checked when they were accepted, and are durable since.

Before a segment begins, the log is synced if the journal has records of it (`sync_recorded`).

Crash points: those of an append. Its batches need not be on the disk: the journal has the records
until the log's own files were synced.

Thread-safety: every method from any thread; one at a time under the log's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from kafkalog._engine.delayed_records import DelayedRecords
from kafkalog.errors import KafkaLogError
from kafkalog.files.errors import translate
from kafkalog.log.appender import LogAppender
from kafkalog.log.delayed_batch import batch_of
from kafkalog.log.flusher import LogFlusher
from kafkalog.log.local_log import LocalLog
from kafkalog.log.write_gate import WriteGate

__all__ = ["DelayedAppends"]

logger = logging.getLogger(__name__)


class DelayedAppends:
    """
    Delayed appends of one log.

    Args:
        gate: the log's lock and write permission.
        local: the segments.
        appender: appends the records.
        flusher: what is durable.

    Attributes:
        records: the records; None before `begin`.
    """

    def __init__(
        self, gate: WriteGate, local: LocalLog, appender: LogAppender, flusher: LogFlusher
    ) -> None:
        self._gate = gate
        self._local = local
        self._appender = appender
        self._flusher = flusher
        self.records: DelayedRecords | None = None

    def begin(
        self, log: object, make_name: Callable[[], object], journal: object
    ) -> DelayedRecords:
        """
        Return the records, made by the first call.

        Args:
            log: the log, for the journal.
            make_name: returns the name of the partition in the journal.
            journal: the journal of the data directory.

        Raises:
            LogClosedError, ReadOnlyLogError, ForkedLogError, LogOfflineError: no records are taken.
        """
        with self._gate.owned():
            if self.records is None:
                self.records = DelayedRecords(
                    self._gate.state,
                    self._local.published,
                    self._flusher.source,
                    self._appender.lane,
                    self._gate.lock,
                    log,
                    make_name(),
                    journal,
                )
            return self.records

    def make_ready(self) -> None:
        """
        Let the log take delayed records again: open the files of an idle log, try what failed.

        Raises:
            KafkaLogError: the log may not be written, or the disk refused.
        """
        records = self.records
        if records is not None and records.has_failed:
            self.append_all()
        if self._gate.state.is_idle:
            self._gate.ensure_writable()

    def append_all(self) -> None:
        """
        Append the records, and give up the offsets that are reserved for more.

        Raises:
            KafkaLogError: the disk refused; what was not appended waits, and the log takes no more
                delayed records until an append succeeds.
        """
        records = self.records
        if records is None or not self._gate.state.has_delayed:
            return
        with self._gate.lock:
            if len(records):
                self._append(records)
            if self._gate.state.has_delayed:
                records.release()

    def append_due(self) -> bool:
        """
        Append the records that wait; keep the offsets for more if there were any.

        Returns:
            whether there were any.

        Raises:
            KafkaLogError: as `append_all`.
        """
        records = self.records
        if records is None or not self._gate.state.has_delayed:
            return False
        with self._gate.lock:
            if not len(records):
                if self._gate.state.has_delayed:
                    records.release()
                return False
            self._append(records)
            return True

    def _append(self, records: DelayedRecords) -> None:
        """Append all records; the lock is held."""
        self._gate.ensure_owner()
        # Some may be in the log: of a call that was interrupted.
        records.drop_first(self._local.snapshot.end_offset - records.first_offset)
        try:
            records.append_by(partial(self._append_batches, records))
        except BaseException as error:
            records.record_outcome(has_failed=True)
            if isinstance(error, OSError):
                directory = self._local.context.directory
                raise translate(error, directory, doing="appending") from error
            raise
        else:
            records.record_outcome(has_failed=False)
        finally:
            records.cover()

    def _append_batches(self, records: DelayedRecords) -> None:
        """Append all records to a log that takes other appends during this call."""
        self._gate.ensure_writable()
        keys, values, timestamps = records.fields()
        limit = self._appender.lane.rules.limits.batch_bytes
        start = 0
        while start < len(values):
            # One batch: a segment that begins with it follows a log that can be synced.
            run = batch_of(keys, values, timestamps, start, limit)
            self._appender.append(run, "written")
            start += run.record_count

    def sync_recorded(self) -> None:
        """
        Sync the log if a commit journal has records of it as such, before another segment begins.

        After a power cut in between the new segment could be there without the end of the one
        before: the records that are missing could not be appended. The lock is held.

        Raises:
            LogStorageError, LogOfflineError: the disk refused.
        """
        records = self.records
        if records is None:
            return
        synced_offset = self._flusher.synced_offset
        # Records whose append came before their commit, which is still to come, have these offsets.
        is_reserved = records.next_offset >= 0 and self._local.snapshot.end_offset > synced_offset
        if is_reserved or records.claimed_offset > synced_offset:
            self._flusher.sync_all()

    def close(self) -> KafkaLogError | None:
        """Append the records of a log that is closing; return the error. The lock is held."""
        try:
            self.append_all()
        except KafkaLogError as error:
            logger.warning(
                "%s: records stay in the commit journal: %s", self._local.context.directory, error
            )
            return error
        return None
