"""The ways in: records, lists, columns and encoded batches become batches of the log.

Encoding, compressing and validating happen outside the log's lock; what is under it, `appending`
does. A caller who asks for it waits for the disk behind it, where many wait for one sync.

Thread-safety: everything may be called from any thread; one append at a time is under the lock.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Literal

from typing_extensions import Buffer

from kafkalog._core.record import Record
from kafkalog.log.appending import Appender
from kafkalog.log.resting import RestingLog
from kafkalog.model import AppendInfo, AppendOrigin
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.packed_run import PackedRun
from kafkalog.records.packing import FieldColumn, Timestamps, pack_columns, pack_records
from kafkalog.records.validation.follower import validate_own_offsets
from kafkalog.records.validation.leader import validate_for_leader

__all__ = ["Wait", "WritableLog"]

Wait = Literal["written", "durable"]


class WritableLog(RestingLog):
    """What appends to a log; `Log` makes what it needs."""

    _rules: AppendRules
    _appender: Appender

    @abstractmethod
    def _flush_in_background(self) -> None:
        """Flush what a roll calls for."""

    def append(
        self,
        records: Iterable[Record],
        *,
        wait: Wait = "written",
        timestamp_ms: int | None = None,
    ) -> AppendInfo:
        """
        Append records, all of them or none.

        They are packed in batches of `kafkalog.batch.bytes`, compressed by `compression.type`.

        Args:
            records: what to append; their offsets are ignored.
            wait: "written" returns once the operating system has the bytes, "durable" once the
                disk has them (one sync covers all threads that wait).
            timestamp_ms: for records that have none (-1); the clock's time if None, and -1 to
                leave them without.

        Raises:
            RecordTooLargeError: a batch would exceed `max.message.bytes`.
            InvalidRecordError: a record cannot be stored.
            RecordValidationError: records lack a key where the log is compacted, or their
                timestamps are out of bounds; the error lists them.
            UnsupportedForMessageFormatError: headers, where `message.format.version` is an old one.
            DiskFullError: no room; nothing is kept, the append may be tried again.
            LogOfflineError: an earlier failure latched the log.
        """
        self._ensure_writable()
        _check_wait(wait)
        now_ms = self._local.context.clock.now_ms()
        return self._append(pack_records(records, self._rules, now_ms, timestamp_ms), wait)

    def append_columns(
        self,
        keys: FieldColumn,
        values: FieldColumn,
        *,
        timestamps: Timestamps | None = None,
        wait: Wait = "written",
    ) -> AppendInfo:
        """
        Append records without headers, given as columns, all of them or none.

        Several times faster than `append`: no object is made for a record. A mebibyte or so at a
        time keeps the memory in between small and warm.

        Args:
            keys: a list of bytes or None, or a `BytesColumn` over memory in Arrow's layout; None
                for records without keys.
            values: the same, and of the same kind and length; None for tombstones.
            timestamps: one for all records, or an int64 array with one for each (-1 is none); the
                clock's time if None.
            wait: as for `append`.

        Raises:
            RecordTooLargeError, InvalidRecordError, DiskFullError, LogOfflineError: as for
                `append`.
        """
        self._ensure_writable()
        _check_wait(wait)
        now_ms = self._local.context.clock.now_ms()
        times = now_ms if timestamps is None else timestamps
        return self._append(pack_columns(keys, values, times, self._rules, now_ms), wait)

    def append_batches(
        self,
        data: Buffer,
        *,
        assign_offsets: bool = True,
        origin: AppendOrigin | None = None,
        wait: Wait = "written",
    ) -> AppendInfo:
        """
        Append encoded batches, all of them or none.

        With `assign_offsets` each is checked to its last record, stamped with the next offsets and
        the settings' timestamp type, and recompressed where `compression.type` names another
        codec. Batches of another format than `message.format.version` says are converted; one
        append has one format. Without, batches come from another log, are stored as they are and
        keep their offsets, which must rise and begin at or above the log end; control batches,
        gaps and mixed formats are then allowed.

        Batches of idempotent and transactional producers are held against what the log knows of
        them: sequences and epochs of EMBEDDED and CLIENT, epochs of COORDINATOR, which also brings
        the markers that end transactions. What a producer sends a second time is not written; the
        answer has the offsets of the first time, and `is_duplicate`.

        Args:
            data: whole batches back to back; it is copied.
            assign_offsets: whose offsets count.
            origin: who brings the batches. EMBEDDED if None, REPLICATION where they keep their
                offsets. CLIENT takes exactly what a broker's leader takes of a producer: one
                batch at base offset 0, or plain messages of one old format.
            wait: as for `append`.

        Raises:
            CorruptRecordError: a batch is cut, or its CRC or a length is wrong.
            InvalidRecordError: the origin may not append this.
            UnsupportedForMessageFormatError: the log's old format has no place for it.
            RecordValidationError: as for `append`.
            OffsetsOutOfOrderError: kept offsets do not rise, or begin below the log end.
            OutOfOrderSequenceError, InvalidProducerEpochError, InvalidTxnStateError,
            TransactionCoordinatorFencedError: a producer may not append this, or not now.
            RecordTooLargeError, UnsupportedCodecError, DiskFullError, LogOfflineError: as for
                `append`.
        """
        self._ensure_writable()
        _check_wait(wait)
        if origin is AppendOrigin.REPLICATION or (origin is None and not assign_offsets):
            run = validate_own_offsets(data, self._rules)
            return self._append(run, wait, AppendOrigin.REPLICATION)
        if not assign_offsets:
            raise ValueError(f"batches of origin {origin} do not keep their offsets")
        now_ms = self._local.context.clock.now_ms()
        origin = origin or AppendOrigin.EMBEDDED
        run = validate_for_leader(data, self._rules, now_ms, origin)
        return self._append(run, wait, origin)

    def abort(self, producer_id: int, *, wait: Wait = "written") -> AppendInfo:
        """
        Abort the open transaction of a producer that hangs; return what the marker is.

        Raises:
            InvalidTxnStateError: the producer has no open transaction.
            DiskFullError, LogOfflineError: as for `append`.
        """
        _check_wait(wait)
        with self._write_lock:
            self._ensure_writable()
            marker = self._producers.abort_marker(producer_id)
            now_ms, origin = self._local.context.clock.now_ms(), AppendOrigin.COORDINATOR
            run = validate_for_leader(marker, self._rules, now_ms, origin)
            info, rolled = self._appender.append(run, self._rules, origin)
        return self._after_append(info, rolled=rolled, wait=wait)

    def _append(
        self, run: PackedRun, wait: Wait, origin: AppendOrigin = AppendOrigin.EMBEDDED
    ) -> AppendInfo:
        with self._write_lock:
            self._ensure_writable()
            info, rolled = self._appender.append(run, self._rules, origin)
        return self._after_append(info, rolled=rolled, wait=wait)

    def _after_append(self, info: AppendInfo, *, rolled: bool, wait: Wait) -> AppendInfo:
        """Wait for the disk where the caller or `flush.messages` asks for it; outside the lock."""
        if rolled:
            self._scheduler.schedule("flush-log", self._flush_in_background, delay_ms=0)
        if self._watchers:
            self._tell_watchers()
        end_offset = info.last_offset + 1
        unflushed = end_offset - self._committer.durable_offset
        if info.record_count and (wait == "durable" or unflushed >= self.config.flush_messages):
            self._committer.wait_until_durable(end_offset)
        return info


def _check_wait(wait: str) -> None:
    if wait not in ("written", "durable"):
        raise ValueError(f'wait is "written" or "durable", not {wait!r}')
