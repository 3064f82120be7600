"""The ways in: records, lists, columns and encoded batches become batches of the log.

Encoding, compressing and validating happen outside the log's lock; what is under it, `appending`
does. A caller who asks for it waits for the disk behind it, where many wait for one sync.

Thread-safety: everything may be called from any thread; one append at a time is under the lock.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import EllipsisType
from typing import Final

from typing_extensions import Buffer

from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.record import Record
from kafkalog._core.timestamps import to_timestamp_ms
from kafkalog.errors import KafkaLogError
from kafkalog.files.errors import storage_errors
from kafkalog.log.adopting import inspect_file
from kafkalog.log.appending import Appender
from kafkalog.log.record_appender import RecordAppender, Wait
from kafkalog.log.resting import RestingLog
from kafkalog.model import AppendInfo, AppendOrigin
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.packing import (
    ArrowTable,
    FieldColumn,
    HeaderColumn,
    HeaderField,
    HeaderList,
    TimestampsLike,
    pack_columns,
    pack_lists,
    pack_records,
    timestamps_of,
)
from kafkalog.records.validation.follower import validate_as_follower
from kafkalog.records.validation.leader import validate_as_leader
from kafkalog.state.verification import NO_GUARD

__all__ = ["Wait", "WritableLog"]

logger = logging.getLogger(__name__)

# To ask an enumeration for its member takes longer than to copy a small batch.
_EMBEDDED: Final = AppendOrigin.EMBEDDED
_REPLICATION: Final = AppendOrigin.REPLICATION


class WritableLog(RestingLog):
    """What appends to a log; `Log` makes what it needs."""

    _rules: AppendRules
    _appender: Appender

    @cached_property
    def _open_appenders(self) -> set[RecordAppender]:
        return set()

    @abstractmethod
    def _flush_in_background(self) -> None:
        """Flush what a roll calls for."""

    def append(
        self,
        records: Iterable[Record],
        *,
        wait: Wait = "written",
        timestamp_ms: int | datetime | None = None,
    ) -> AppendInfo:
        """
        Append records, all of them or none.

        They are packed in batches of `kafkalog.batch.bytes`, compressed by `compression.type`.

        Args:
            records: what to append; their offsets are ignored.
            wait: "written" returns once the operating system has the bytes, "durable" once the
                disk has them (one sync covers all threads that wait).
            timestamp_ms: for records that have none (-1), an int of milliseconds or an aware
                datetime; the clock's time if None, and -1 to leave them without.

        Raises:
            TypeError, ValueError: the timestamp is a float, or a datetime without a time zone.
            RecordTooLargeError: a batch would exceed `max.message.bytes`.
            InvalidRecordError: a record cannot be stored.
            RecordValidationError: records lack a key where the log is compacted, or their
                timestamps are out of bounds; the error lists them.
            UnsupportedForMessageFormatError: headers, where `message.format.version` is an old one.
            DiskFullError: no room; nothing is kept, the append may be tried again.
            LogOfflineError: an earlier failure latched the log.
        """
        if timestamp_ms is not None and type(timestamp_ms) is not int:
            timestamp_ms = to_timestamp_ms(timestamp_ms)
        now_ms = self._admit(wait)
        return self._append(pack_records(records, self._rules, now_ms, timestamp_ms), wait)

    def append_columns(
        self,
        keys: FieldColumn | ArrowTable,
        values: FieldColumn | EllipsisType = ...,
        *,
        headers: HeaderColumn = None,
        timestamps: TimestampsLike | None = None,
        wait: Wait = "written",
    ) -> AppendInfo:
        """
        Append records given as columns, all of them or none.

        Several times faster than `append`: no object is made for a record. A mebibyte or so at a
        time keeps the memory in between small and warm.

        Args:
            keys: a `BytesColumn` over memory in Arrow's layout, or anything that exports an Arrow
                array (`__arrow_c_array__`) of binary or string, plain, large or as views; None for
                records without keys. Instead, and with nothing beside it but `timestamps` and
                `wait`, a table: a record batch or a stream (`__arrow_c_array__`,
                `__arrow_c_stream__`) with the columns `key`, `value`, `timestamp` (int64 in
                milliseconds, or a timestamp of any unit with a time zone) and `headers` (a list of
                structures of key and value, or a map); only `value` must be there. What a scan has
                beside these is passed over.
            values: the same, and of the same length; None for tombstones, which must be given: of a
                table without the column `value`, too.
            headers: a `HeadersColumn`, or an Arrow array as the column of a table.
            timestamps: one for all records, or one for each (-1, and null in a table, is none):
                ints of milliseconds, an array of integers, or aware datetimes; the clock's time if
                None. Floats and naive datetimes are refused.
            wait: as for `append`.

        Raises:
            RecordTooLargeError, DiskFullError, LogOfflineError: as for `append`.
            InvalidRecordError: as for `append`, and of what Arrow exports: types that records do
                not have, or lengths, buffers and offsets that contradict each other.
            OSError: the stream failed.
        """
        now_ms = self._admit(wait)
        times = now_ms if timestamps is None else timestamps_of(timestamps)
        return self._append(pack_columns(keys, values, times, self._rules, now_ms, headers), wait)

    def append_lists(
        self,
        keys: Sequence[HeaderField] | None,
        values: Sequence[HeaderField] | None,
        *,
        headers: HeaderList | None = None,
        timestamps: TimestampsLike | None = None,
        wait: Wait = "written",
    ) -> AppendInfo:
        """
        Append records given as lists of equal length, all of them or none.

        Args:
            keys: bytes or None; None instead of a list for records without keys.
            values: the same; None for tombstones.
            headers: for each record its (str, bytes or None) pairs, or None.
            timestamps: as for `append_columns`.
            wait: as for `append`.

        Raises:
            RecordTooLargeError, InvalidRecordError, DiskFullError, LogOfflineError: as for
                `append`.
        """
        now_ms = self._admit(wait)
        times = now_ms if timestamps is None else timestamps_of(timestamps)
        return self._append(pack_lists(keys, values, times, self._rules, now_ms, headers), wait)

    def appender(
        self,
        *,
        buffer_bytes: int = 1 << 20,
        linger_ms: int | None = None,
        wait: Wait = "written",
        on_append: Callable[[AppendInfo], object] | None = None,
    ) -> RecordAppender:
        """
        Return what takes records one at a time, and writes them together.

        >>> with log.appender(linger_ms=5) as appender:
        ...     for key, value in changes:
        ...         appender.append(key, value)

        Args:
            buffer_bytes: so much is kept back at most, in batches of `kafkalog.batch.bytes` or,
                where it is less, of as much; a larger record is written alone.
            linger_ms: how long a record waits for others at most; None for until there are enough,
                or until a flush.
            wait: as for `append`; how each write is waited for.
            on_append: called with what each write became, by the thread that wrote.
        """
        self._admit(wait)
        appender = RecordAppender(
            self._append,
            lambda: self._rules,
            self._local.context.clock,
            self._scheduler,
            buffer_bytes=buffer_bytes,
            linger_ms=linger_ms,
            wait=wait,
            on_append=on_append,
            on_close=self._open_appenders.discard,
        )
        self._open_appenders.add(appender)
        return appender

    def _close_appenders(self) -> None:
        """Write what records are with appenders, as far as that can be; the log is about to go."""
        for appender in list(self._open_appenders):
            try:
                appender.close()
            except KafkaLogError as error:
                logger.warning("%s: records of an appender are lost: %s", self.directory, error)

    def append_batches(
        self,
        data: Buffer,
        *,
        assign_offsets: bool = True,
        origin: AppendOrigin | None = None,
        guard: int = NO_GUARD,
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
            data: whole batches back to back; copied, but for `bytes` that keep their offsets.
            assign_offsets: whose offsets count.
            origin: who brings the batches. EMBEDDED if None, REPLICATION where they keep their
                offsets. CLIENT takes exactly what a broker's leader takes of a producer: one
                batch at base offset 0, or plain messages of one old format.
            guard: what `begin_verification` returned for the transaction that the batches begin;
                asked for with `kafkalog.verify.transactions`, of CLIENT and COORDINATOR.
            wait: as for `append`.

        Raises:
            CorruptRecordError: a batch is cut, or its CRC or a length is wrong.
            InvalidRecordError: the origin may not append this.
            UnsupportedForMessageFormatError: the log's old format has no place for it.
            RecordValidationError: as for `append`.
            OffsetsOutOfOrderError: kept offsets do not rise.
            UnexpectedAppendOffsetError: they begin below the log end; it has first and last offset.
            OutOfOrderSequenceError, InvalidProducerEpochError, InvalidTxnStateError,
            TransactionCoordinatorFencedError: a producer may not append this, or not now.
            RecordTooLargeError, UnsupportedCodecError, DiskFullError, LogOfflineError: as for
                `append`.
        """
        now_ms = self._admit(wait)
        if origin is _REPLICATION or (origin is None and not assign_offsets):
            run = validate_as_follower(data, self._rules)
            return self._append(run, wait, _REPLICATION)
        if not assign_offsets:
            raise ValueError(f"batches of origin {origin} do not keep their offsets")
        if origin is None:
            origin = _EMBEDDED
        run = validate_as_leader(data, self._rules, now_ms, origin)
        if guard == NO_GUARD:
            return self._append(run, wait, origin)
        return self._append_verified(run, wait, origin, guard)

    def _append_verified(
        self, run: MemoryRecords, wait: Wait, origin: AppendOrigin, guard: int
    ) -> AppendInfo:
        """As `_append`, of batches that show the guard of a verification."""
        with self._write_lock:
            self._ensure_writable()
            info, rolled = self._appender.append(run, self._rules, origin, guard)
        self._after_append(info, rolled, wait)
        return info

    def ingest(self, path: str | PathLike[str], *, check_crc: bool = True) -> AppendInfo:
        """
        Take over a file of encoded batches as the last segment: it is renamed, not copied.

        For much at a time, encoded beside the log, and of format v2. Every CRC is checked, and each
        batch stamped in place with the next offsets and the leader epoch. Otherwise the batches are
        stored as they are, as those of another log: no setting recompresses them or asks for a key.
        Everything is on the disk when this returns.

        Args:
            path: on the file system of the log, and nobody else's any more. While it is there the
                log does not have it, whatever fails; when it has gone the log has it.
            check_crc: read all of it. False is for who has encoded the batches himself, and synced
                them since: their headers are still looked at, one by one.

        Raises:
            CorruptRecordError: it is not whole batches with good CRCs; nothing was changed.
            InvalidRecordError: its batches leave out offsets, name producers or end transactions;
                or it is larger than `segment.bytes`, or its index than `segment.index.bytes`.
            UnsupportedForMessageFormatError: a batch, or the log, has an old format.
            DiskFullError, LogOfflineError, LogStorageError: as for `append`.
        """
        self._ensure_writable()
        with storage_errors(Path(path), doing="looking through"):
            file = inspect_file(self._local.context, Path(path), check_crc=check_crc)
        with self._write_lock:
            self._ensure_writable()
            if self._local.snapshot.end_offset > self._committer.durable_offset:
                self._committer.flush()
            info = self._appender.ingest(file)
        self._after_append(info, True, "durable")
        return info

    def abort_transaction(self, producer_id: int, *, wait: Wait = "written") -> AppendInfo:
        """
        Abort the open transaction of a producer that hangs; return what the marker is.

        Raises:
            InvalidTxnStateError: the producer has no open transaction.
            DiskFullError, LogOfflineError: as for `append`.
        """
        self._admit(wait)
        with self._write_lock:
            self._ensure_writable()
            marker = self._producers.abort_marker(producer_id)
            now_ms, origin = self._local.context.clock.now_ms(), AppendOrigin.COORDINATOR
            run = validate_as_leader(marker, self._rules, now_ms, origin)
            info, rolled = self._appender.append(run, self._rules, origin)
        self._after_append(info, rolled, wait)
        return info

    def _after_append(self, info: AppendInfo, rolled: bool, wait: Wait) -> None:
        """Wait for the disk where the caller or `flush.messages` asks for it; outside the lock."""
        if rolled:
            self._scheduler.schedule("flush-log", self._flush_in_background, delay_ms=0)
        if self._watchers:
            self._notify_watchers()
        committer = self._committer
        end_offset = info.last_offset + 1
        unflushed = end_offset - committer.durable_offset
        if (wait == "durable" or unflushed >= self._flush_messages) and info.record_count:
            committer.wait_until_durable(end_offset)
