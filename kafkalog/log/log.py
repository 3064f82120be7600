"""One partition's log: the public facade.

`Log` holds references to the parts of its `Partition` and no other state. Four calls go to compiled
parts directly, because a delegating call costs 440 instructions: 3.5 % of an append, 8 % of a
`get`. Every other call delegates.

Thread-safety: every method from any thread; one writer at a time (the log's lock), and readers
never wait for it. After `fork` the child may read, and every write of it is refused.

After a failed sync, or a write that could not be undone, the log is offline: reads work, and every
write raises `LogOfflineError` until the log is opened again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import EllipsisType
from typing import Final, Unpack

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.record import Record
from kafkalog._core.record_groups import RecordGroup
from kafkalog._core.timestamps import to_timestamp_ms
from kafkalog._engine.fetch_data import FetchData
from kafkalog.closing import ClosingContextManager
from kafkalog.config import LogConfig
from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.log.deletion import SegmentDeletion
from kafkalog.log.isolation import Isolation
from kafkalog.log.partition import Partition
from kafkalog.log.reading import OnCorrupt
from kafkalog.log.record_appender import RecordAppender, RecordAppenderOptions, Wait
from kafkalog.log.report import RecoveryReport, RepairedIndex
from kafkalog.log.retention_plan import SegmentExplanation
from kafkalog.log.scan.conditions import Filter
from kafkalog.log.scan.options import (
    BATCH_BYTES,
    BATCH_ROWS,
    BinaryType,
    HeaderKeyType,
    ScanArguments,
    make_options,
)
from kafkalog.log.scan.scan import Scan, ScannedLog
from kafkalog.log.segment import LogSegment
from kafkalog.log.view import whole_offset
from kafkalog.model import (
    ActiveProducer,
    AppendInfo,
    AppendOrigin,
    OngoingTransaction,
    TimestampOffset,
    TopicPartition,
)
from kafkalog.records.batch_view import BatchView
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
from kafkalog.settings import ConfigChange
from kafkalog.state.leader_epochs import EpochEnd
from kafkalog.state.verification import NO_GUARD

__all__ = ["Log", "Wait", "partition_of", "scan"]

# Constants: an attribute look-up on an enumeration costs more than copying a small batch.
_EMBEDDED: Final = AppendOrigin.EMBEDDED
_REPLICATION: Final = AppendOrigin.REPLICATION
_WRITTEN: Final = "written"


class Log(ClosingContextManager):
    """
    One partition's records on disk. Made by `kafkalog.open_log`.

    >>> with kafkalog.open_log(tmp / "orders-0") as log:
    ...     info = log.append([Record(key=b"k", value=b"v")])
    ...     [record.value for record in log.records(info.first_offset)]
    [b'v']

    Thread-safety: one writer at a time (internal lock); readers and writers never wait for each
    other.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._appender = partition.appender
        self._lane = partition.appender.lane
        self._lookup = partition.lookup
        self._table = partition.lookup.table

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "read-only" if self.is_read_only else "open"
        return f"<Log {self.topic_partition} {state} at {self.directory}>"

    # ------------------------------------------------------------------------------ properties

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition, by the name of the directory."""
        return self._partition.paths.topic_partition

    @property
    def directory(self) -> Path:
        """The partition directory."""
        return self._partition.paths.directory

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The topic id that `partition.metadata` has now; None if it cannot be read."""
        return self._partition.read_topic_id()

    @property
    def config(self) -> LogConfig:
        """The settings in force."""
        return self._partition.config

    @property
    def is_closed(self) -> bool:
        """True if the log was closed."""
        return self._partition.gate.state.is_closed

    @property
    def is_read_only(self) -> bool:
        """True if the log was opened with `read_only=True`."""
        return self._partition.gate.state.is_read_only

    @property
    def offline_error(self) -> BaseException | None:
        """The failure since which the log refuses writes; None while it takes them."""
        return self._partition.gate.state.offline_error

    @property
    def recovery_report(self) -> RecoveryReport:
        """Findings of opening the log, and its truncations, rebuilds and new corrupt ranges."""
        return self._partition.report

    @property
    def log_start_offset(self) -> int:
        """Smallest offset that may be read; read-only, as another process has last moved it."""
        return self._partition.view.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset that the next record gets; read-only, the end of what another process wrote."""
        return self._partition.view.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Offset below which readers may read: the log end unless `set_high_watermark` was used."""
        return self._partition.view.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Offset below which readers of committed records may read."""
        return self._partition.view.last_stable_offset

    @property
    def durable_offset(self) -> int:
        """Offset below which everything survives a power cut; never ahead of the disk."""
        return self._partition.flusher.durable_offset

    @property
    def leader_epoch(self) -> int:
        """The epoch that the log's own appends carry; it rises with an unclean stop."""
        return self._partition.state.epochs.current

    # -------------------------------------------------------------------------------- appending

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
            records: the records; their offsets are ignored.
            wait: "written" returns once the operating system has the bytes, "durable" once the
                disk has them (one sync covers all threads that wait).
            timestamp_ms: for records without a timestamp (-1), an int of milliseconds or an aware
                datetime; the clock's time if None, and -1 to leave them without.

        Raises:
            TypeError, ValueError: the timestamp is a float, or a datetime without a time zone.
            RecordTooLargeError: a batch would exceed `max.message.bytes`.
            InvalidRecordError: a record cannot be stored.
            RecordValidationError: records lack a key where the log is compacted, or their
                timestamps are out of bounds; the error lists them.
            UnsupportedForMessageFormatError: headers, where `message.format.version` is an old one.
            DiskFullError: no space; nothing is kept, and the append may be tried again.
            LogOfflineError: an earlier failure marked the log offline.
        """
        if timestamp_ms is not None and type(timestamp_ms) is not int:
            timestamp_ms = to_timestamp_ms(timestamp_ms)
        lane = self._lane
        now_ms = lane.admit(wait)
        run = pack_records(records, lane.rules, now_ms, timestamp_ms)
        info = lane.append(run)
        if info is None or wait is not _WRITTEN or lane.has_followers:
            return self._appender.finish(run, info, wait)
        return info

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

        Several times faster than `append`: no object is made for a record. About a mebibyte in a
        call keeps the memory in between small and in the caches.

        Args:
            keys: a `BytesColumn` over memory in Arrow's layout, or anything that exports an Arrow
                array (`__arrow_c_array__`) of binary or string, plain, large or as views; None for
                records without keys. Instead, and with no other argument than `timestamps` and
                `wait`, a table: a record batch or a stream (`__arrow_c_array__`,
                `__arrow_c_stream__`) with the columns `key`, `value`, `timestamp` (int64 in
                milliseconds, or a timestamp of any unit with a time zone) and `headers` (a list of
                structures of key and value, or a map); only `value` must be there. Further columns
                of a scan are ignored.
            values: the same, and of the same length; None for tombstones, which must be given: of a
                table without the column `value`, too.
            headers: a `HeadersColumn`, or an Arrow array as the column of a table.
            timestamps: one for all records, or one for each (-1, and null in a table, is none):
                ints of milliseconds, an array of integers, or aware datetimes; the clock's time if
                None. Floats and naive datetimes are refused.
            wait: as for `append`.

        Raises:
            RecordTooLargeError, DiskFullError, LogOfflineError: as for `append`.
            InvalidRecordError: as for `append`, and for what Arrow exports: types that records do
                not have, or lengths, buffers and offsets that contradict each other.
            OSError: the stream failed.
        """
        lane = self._lane
        now_ms = lane.admit(wait)
        times = now_ms if timestamps is None else timestamps_of(timestamps)
        run = pack_columns(keys, values, times, lane.rules, now_ms, headers)
        return self._appender.append(run, wait)

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
        lane = self._lane
        now_ms = lane.admit(wait)
        times = now_ms if timestamps is None else timestamps_of(timestamps)
        run = pack_lists(keys, values, times, lane.rules, now_ms, headers)
        return self._appender.append(run, wait)

    def append_group(
        self,
        group: RecordGroup,
        timestamp_ms: int,
        size_limit: int,
        producer: tuple[int, int, int],
    ) -> AppendInfo | None:
        """
        Append records that a producer of this library has checked and grouped, all or none.

        None, and nothing has changed, if the settings of the log change or refuse the batches: they
        are encoded, and appended by `append_batches`, which takes three times as long.

        Args:
            group: records for this partition.
            timestamp_ms: of all records.
            size_limit: largest size of a batch; None is returned if a record is larger.
            producer: id, epoch and sequence of the first batch; -1 for none.

        Raises:
            KafkaLogError: as for `append_batches`.
        """
        lane = self._lane
        found = lane.append_group(group, timestamp_ms, size_limit, *producer)
        if isinstance(found, MemoryRecords):
            return self._appender.finish(found, None, _WRITTEN)
        if found is not None and lane.has_followers:
            self._appender.follow_up(found, has_rolled=False, wait=_WRITTEN)
        return found

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

        With `assign_offsets` each is checked to its last record, gets the next offsets and the
        timestamp type of the settings, and is recompressed where `compression.type` names another
        codec. Batches of another format than `message.format.version` are converted; one append
        has one format. Without, batches come from another log, are stored as they are and keep
        their offsets, which must rise and begin at or above the log end; control batches, gaps and
        mixed formats are then allowed.

        Batches of idempotent and transactional producers are compared with the producers' state:
        sequences and epochs of EMBEDDED and CLIENT, epochs of COORDINATOR, which also appends the
        markers that end transactions. What a producer sends a second time is not written; the
        result has the offsets of the first time, and `is_duplicate`.

        Args:
            data: whole consecutive batches; copied, except for `bytes` that keep their offsets.
            assign_offsets: whether the log assigns the offsets.
            origin: sender of the batches. EMBEDDED if None, REPLICATION if they keep their
                offsets. CLIENT accepts exactly what a broker's leader accepts from a producer: one
                batch at base offset 0, or plain messages of one old format.
            guard: what `begin_verification` returned for the transaction that the batches begin;
                required with `kafkalog.verify.transactions`, of CLIENT and COORDINATOR.
            wait: as for `append`.

        Raises:
            CorruptRecordError: a batch is incomplete, or its CRC or a length is wrong.
            InvalidRecordError: the origin may not append this.
            UnsupportedForMessageFormatError: the log's old format cannot store it.
            RecordValidationError: as for `append`.
            OffsetsOutOfOrderError: kept offsets do not rise.
            UnexpectedAppendOffsetError: they begin below the log end; it has first and last offset.
            OutOfOrderSequenceError, InvalidProducerEpochError, InvalidTxnStateError,
            TransactionCoordinatorFencedError: a producer may not append this, or not now.
            RecordTooLargeError, UnsupportedCodecError, DiskFullError, LogOfflineError: as for
                `append`.
        """
        lane = self._lane
        now_ms = lane.admit(wait)
        run: MemoryRecords
        if origin is _REPLICATION or (origin is None and not assign_offsets):
            run, origin, guard = validate_as_follower(data, lane.rules), _REPLICATION, NO_GUARD
        elif not assign_offsets:
            raise ValueError(f"origin must be REPLICATION where offsets are kept, got {origin}")
        else:
            origin = _EMBEDDED if origin is None else origin
            run = validate_as_leader(data, lane.rules, now_ms, origin)
        info = lane.append(run)
        if info is None or wait is not _WRITTEN or lane.has_followers:
            return self._appender.finish(run, info, wait, origin, guard)
        return info

    def appender(
        self,
        *,
        buffer_bytes: int = 1 << 20,
        linger_ms: int | None = None,
        wait: Wait = "written",
        on_append: Callable[[AppendInfo], object] | None = None,
    ) -> RecordAppender:
        """
        Return an appender that buffers single records, and writes them together.

        >>> with log.appender(linger_ms=5) as appender:
        ...     for key, value in changes:
        ...         appender.append(key, value)

        Args:
            buffer_bytes: largest number of bytes buffered, in batches of `kafkalog.batch.bytes` or,
                where it is less, of as much; a larger record is written alone.
            linger_ms: longest time that a record is buffered; None to buffer until there are
                enough, or until a flush.
            wait: as for `append`; how each write is waited for.
            on_append: called with the result of each write, by the thread that wrote.
        """
        return self._appender.appender(
            RecordAppenderOptions(buffer_bytes, linger_ms, wait, on_append)
        )

    def abort_transaction(self, producer_id: int, *, wait: Wait = "written") -> AppendInfo:
        """
        Abort the open transaction of a producer that hangs; return the result for the marker.

        Raises:
            InvalidTxnStateError: the producer has no open transaction.
            DiskFullError, LogOfflineError: as for `append`.
        """
        return self._appender.abort_transaction(producer_id, wait)

    def watch(self, on_change: Callable[[], object]) -> Callable[[], None]:
        """
        Register a callback for new data. Return a function that unregisters it.

        It is called after each append of this process, also of a transaction's marker, after the
        high watermark was set, after a truncation, and when the log is closed; by the thread that
        did it, without any lock, before a wait for the disk. It must be quick, and must not raise.
        An append of another process does not call it.
        """
        return self._appender.watch(on_change)

    # ------------------------------------------------------------------------------- durability

    def flush(self) -> int:
        """Put everything appended so far on the disk; return the durable offset."""
        partition = self._partition
        if partition.gate.state.has_delayed:
            partition.gate.ensure_writable()
        return partition.flusher.flush()

    def roll(self) -> LogSegment:
        """Start a new segment, unless the active one is empty; return the active segment."""
        return self._appender.roll()

    def close(self) -> None:
        """
        Flush, trim, checkpoint and release all files. Idempotent.

        A log that is offline, or belongs to the parent of a forked process, is closed as it is.
        """
        self._partition.close()

    # ---------------------------------------------------------------------- removal of records

    def truncate_to(self, offset: int) -> int:
        """
        Remove every batch that reaches `offset`; return the log end offset.

        Nothing happens at or above the log end. Below the log start everything is removed, and the
        log begins again at `offset`.
        """
        return self._partition.truncator.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """
        Remove everything; the log is empty and its next offset is `offset`.

        Raises:
            ValueError: `offset` is negative.
            OffsetOverflowError: `offset` is too near to 2**63 for a segment to begin there.
        """
        self._partition.truncator.truncate_fully_and_start_at(offset)

    def delete_records(self, offset: int) -> int:
        """
        Move the log start offset up to `offset`, and delete the segments below it.

        Returns the log start offset. The active segment stays. A reader that holds a segment
        reads it to its end. Records that no reader may see yet are not deleted. Unlike a broker,
        kafkalog does not check that `cleanup.policy` has `delete`.

        Raises:
            ValueError: `offset` is negative (Kafka's -1 is `high_watermark`).
            OffsetOutOfRangeError: `offset` is above the high watermark.
            DiskFullError: `offset` is within a segment, and there is no space for the checkpoint.
                All segments below that one are deleted: try again when their space is free.
        """
        return self._partition.retention.delete_records(offset)

    def apply_retention(
        self, *, now_ms: int | None = None, limit_offset: int | None = None
    ) -> tuple[SegmentDeletion, ...]:
        """
        Delete the segments that the settings, or the log's own policies, release; return them.

        The log end stays where it is; the log start moves up to the first segment that stays. A
        reader that holds a segment reads it to its end.

        Args:
            now_ms: the time to judge by; the clock's if None.
            limit_offset: segments that reach above it stay; the high watermark if None.

        Raises:
            LogOfflineError, LogStorageError: as for every write.
            Exception: a policy raised it; nothing was deleted then.
        """
        return self._partition.retention.apply(now_ms, limit_offset)

    def explain_retention(
        self, *, now_ms: int | None = None, limit_offset: int | None = None
    ) -> tuple[SegmentExplanation, ...]:
        """Return why each segment is still there; arguments as for `apply_retention`."""
        return self._partition.retention.explain(now_ms, limit_offset)

    def reconfigure(self, config: LogConfig) -> ConfigChange:
        """
        Apply new settings to the open log. Return the changed keys and when each takes effect.

        Settings that need the log to be reopened keep their value in `config` until then.
        """
        return self._partition.reconfigure(config)

    # ------------------------------------------------------------------------------- one offset

    def read(
        self,
        offset: int,
        max_bytes: int = 1_048_576,
        *,
        min_one_batch: bool = True,
        isolation: Isolation = "read_uncommitted",
    ) -> FetchData:
        """
        Return a slice of the log that begins with the batch of `offset`.

        Args:
            offset: first offset to read.
            max_bytes: largest size of the slice, unless its first batch alone is larger.
            min_one_batch: whether that first batch is returned whole even so.
            isolation: "read_committed" ends at the last stable offset, and returns which
                transactions were aborted; "read_uncommitted" ends at the high watermark, "log_end"
                at the log end.

        Raises:
            OffsetOutOfRangeError: below the log start offset or above the log end offset.
            CorruptRecordError: the offset is in a corrupt range.
        """
        if isolation == "read_uncommitted":
            # The table has readers only while a reader may read up to the log end.
            found: FetchData | None = self._table.slice(offset, max_bytes, min_one_batch)
            if found is not None:
                return found
        return self._lookup.read(
            offset, max_bytes, min_one_batch=min_one_batch, isolation=isolation
        )

    def get(
        self,
        offset: int,
        *,
        isolation: Isolation = "read_uncommitted",
        check_crcs: bool = True,
    ) -> Record | None:
        """
        Return the record at `offset`, None where there is none: compacted away, a control record,
        or the log end offset, which the next record gets.

        A reader also gets None at the high watermark and above, or, with "read_committed", at the
        last stable offset and above, and for the records of an aborted transaction. "log_end" reads
        up to the log end. "read_uncommitted" is the fastest.

        Key, value and headers of the record are decoded on access, as in `records`.

        Args:
            offset: of the record.
            isolation: as for `records`.
            check_crcs: whether the CRC of its batch must be right. Without, a record that is found
                at once is returned unchecked, as by Kafka's broker: for a disk that checks its
                blocks itself. A read that finds anything odd at once is still checked.

        Raises:
            OffsetOutOfRangeError: below the log start offset or above the log end offset.
            CorruptRecordError: the offset is in a corrupt range.
        """
        if isolation == "read_uncommitted":
            # The table has readers only while a reader may read up to the log end.
            record: Record | None = self._table.find(offset, check_crcs)
            if record is not None:
                return record
        return self._lookup.get(offset, isolation, check_crcs)

    def get_many(
        self,
        offsets: Sequence[int] | npt.NDArray[np.int64],
        *,
        isolation: Isolation = "read_uncommitted",
        check_crcs: bool = True,
    ) -> list[Record | None]:
        """
        Return the record at each offset, in the order of the offsets, as `get` does.

        Offsets may be in any order, and may repeat. Each batch is checked and decoded once.

        Args:
            offsets: in any order.
            isolation, check_crcs: as for `get`.

        Raises:
            OffsetOutOfRangeError: one is below the log start offset or above the log end offset.
            CorruptRecordError: one is in a corrupt range.
        """
        return self._lookup.get_many(offsets, isolation=isolation, check_crcs=check_crcs)

    # ------------------------------------------------------------------------------- timestamps

    def offset_for_timestamp(
        self,
        timestamp_ms: int | datetime,
        *,
        isolation: Isolation = "read_uncommitted",
        check_crcs: bool = True,
    ) -> TimestampOffset | None:
        """
        Return the first record whose timestamp is at or above `timestamp_ms`, None for none.

        EARLIEST_TIMESTAMP gives the log start, LATEST_TIMESTAMP the end of a reader: the high
        watermark, with "read_committed" the last stable offset, with "log_end" the log end.
        MAX_TIMESTAMP gives the first record that has the largest timestamp. No result is at or
        above the end of a reader. As with a broker it may be a record of an aborted transaction, or
        the control record that ended one: it is a position to read from.

        Corrupt ranges are skipped, and so is what cannot be decoded though its CRC is right, from
        there to the end of its batch: the result is the first of the records that can be read, at
        the price that older ones may be hidden. `batches` shows them, and `records` raises.

        Args:
            timestamp_ms: milliseconds since 1970, an aware datetime, or one of Kafka's names.
            isolation: as for `records`.
            check_crcs: whether the CRC of the batch with the record must be right, as for `get`.

        Raises:
            UnsupportedCodecError: the library for a batch's codec is not installed.
        """
        return self._lookup.offset_for_timestamp(timestamp_ms, isolation, check_crcs)

    def offsets_for_timestamps(
        self,
        timestamps: Sequence[int | datetime] | npt.NDArray[np.int64],
        *,
        isolation: Isolation = "read_uncommitted",
        check_crcs: bool = True,
    ) -> npt.NDArray[np.int64]:
        """
        Return for each time the offset that `offset_for_timestamp` finds, -1 where it finds none.

        Args:
            timestamps: milliseconds since 1970, or aware datetimes, none below 0, in any order.
            isolation, check_crcs: as for `offset_for_timestamp`.

        Returns:
            An int64 array of the same length.

        Raises:
            UnsupportedCodecError: the library for a batch's codec is not installed.
        """
        return self._lookup.offsets_for_timestamps(
            timestamps, isolation=isolation, check_crcs=check_crcs
        )

    # ------------------------------------------------------------------------- sequential reads

    def batches(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        on_corrupt: OnCorrupt = "raise",
        isolation: Isolation = "read_uncommitted",
    ) -> Iterator[BatchView]:
        """
        Yield whole batches, control batches too, beginning with the batch of `start`.

        Args:
            start: first offset; the log start offset if None.
            end: one past the last offset; the present end of `isolation` if None.
            on_corrupt: "raise" at damage, after everything before it; "skip" continues after it.
            isolation: "read_uncommitted" ends at the high watermark; "read_committed" at the last
                stable offset, and leaves out the data batches of aborted transactions; "log_end"
                ends at the log end, for programs that copy the log to raise the high watermark.
        """
        return self._partition.reader.batches(
            start, end, on_corrupt=on_corrupt, isolation=isolation
        )

    def records(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        on_corrupt: OnCorrupt = "raise",
        isolation: Isolation = "read_uncommitted",
    ) -> Iterator[Record]:
        """
        Yield records with `start` <= offset < `end`; control records are left out.

        Records decode their key, value and headers on access. Arguments as for `batches`; with
        on_corrupt="skip" the log's `corrupt_ranges()` list what was skipped.
        """
        return self._partition.reader.records(
            start, end, on_corrupt=on_corrupt, isolation=isolation
        )

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Iterable[str] | None = None,
        filters: Iterable[Filter] = (),
        isolation: Isolation = "read_uncommitted",
        on_corrupt: OnCorrupt = "raise",
        binary_type: BinaryType = "binary",
        header_key_type: HeaderKeyType = "utf8",
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
    ) -> Scan:
        """
        Return the records with `start` <= offset < `end` as columns; control records are left out.

        Nothing is read yet. Any reader of Arrow can read the scan, any number of times:

        >>> table = pyarrow.table(log.scan(columns=["offset", "value"]))

        Args:
            start: first offset; the log start offset of the time of reading if None.
            end: one past the last offset; the high watermark of the time of reading if None.
            columns: which, in this order: offset, timestamp, timestamp_type, key, value, headers,
                topic, partition, which are the default; producer_id, producer_epoch, sequence,
                leader_epoch. Other columns are not decoded.
            filters: (column, operator, value) that all have to match: offset, timestamp (ms, or an
                aware datetime) and partition with ==, <, <=, >, >= and in; key and topic with ==
                and in. They skip segments and batches whose headers and indexes rule them out.
            isolation, on_corrupt: as of `records`.
            binary_type: of key and value: "binary", "large_binary", or "binary_view", whose values
                are not copied out of an uncompressed segment, which stays mapped as long as they
                are kept.
            header_key_type: of the keys of headers: "utf8", which they have to be then, or
                "binary".
            batch_rows, batch_bytes: largest size of a batch; one row may have more bytes.

        Raises:
            ValueError, TypeError: an argument names an unknown column, operator or type.
        """
        options = make_options(
            columns=columns,
            filters=filters,
            isolation=isolation,
            on_corrupt=on_corrupt,
            binary_type=binary_type,
            header_key_type=header_key_type,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
        )
        return Scan([_source_of(self, start, end)], options)

    # --------------------------------------------------------------------- segments and damage

    def segments(self) -> tuple[LogSegment, ...]:
        """Return the segments as they are now; the tuple never changes."""
        return self._partition.view.segments()

    def corrupt_ranges(self) -> tuple[CorruptRange, ...]:
        """
        Return the corrupt ranges known so far: from recovery, and from readers.

        Ranges below the log start are not part of the log, though their files may still exist.
        """
        return self._partition.view.corrupt_ranges()

    def find_holes(self) -> None:
        """
        Search the end of each segment for missing offsets, at the first call.

        Holes before the next segment are in `corrupt_ranges()` from then on, although no reader has
        reached them: after a clean stop no opening searches. Segments that are made later follow
        each other without holes.

        Raises:
            LogStorageError: the disk refused; the next call searches again.
        """
        self._partition.view.search_holes()

    def repaired_indexes(self) -> tuple[RepairedIndex, ...]:
        """
        Return the transaction indexes that contradicted their segments.

        A recovery compares them with the batches; after a clean stop the first reader of committed
        records that needs them does.
        """
        return self._partition.view.repaired_indexes()

    # ------------------------------------------------- producers, transactions, leader epochs

    def set_high_watermark(self, offset: int | None) -> int:
        """
        Show readers only records below `offset`; return the high watermark.

        For programs that copy the log elsewhere: records that could be lost with this log alone are
        not shown yet, and a transaction is stable when its marker is below the high watermark.

        Args:
            offset: brought into the log's range; None for the log end, also as it grows.
        """
        return self._partition.set_high_watermark(offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """
        Return the largest leader epoch not above `epoch`, and the offset after its last record.

        A follower of this log finds there the offset at which the two logs diverge. Both are -1 if
        no epoch is known.
        """
        return self._partition.view.end_offset_for_epoch(epoch)

    def lower_leader_epochs(self, highest: int) -> int:
        """
        Lower all leader epochs above `highest` to it, and return how many batches were changed.

        For a hand-over to a controller that counts from a lower epoch: its clients wait for a
        leader whose epoch is as high as that of the records they read. Batches,
        `leader-epoch-checkpoint` and `leader_epoch` are lowered; two epochs may become one. Not for
        a log that followers copy by its epochs. See `kafkalog.log.epoch_lowering` for the crash
        points.

        Args:
            highest: the controller's epoch for the partition, or less; 0 fits any controller.

        Raises:
            ValueError: `highest` is negative.
            LogStorageError: the disk refused; calling it again does the rest.
        """
        return self._partition.truncator.lower_leader_epochs(highest)

    def list_transactions(self) -> list[OngoingTransaction]:
        """
        Return the transactions without a marker, the earliest first.

        A log that is open read-only derives them from its writer's batches.

        Raises:
            LogClosedError, LogOfflineError: as for a write.
            LogStorageError: the disk refused.
        """
        return self._partition.list_transactions()

    def list_producers(self) -> list[ActiveProducer]:
        """
        Return the log's idempotent and transactional producers, by rising id.

        A producer without an append for `producer.id.expiration.ms` is removed.

        Raises:
            ReadOnlyLogError, LogClosedError: as for a write.
        """
        with self._partition.gate.owned():
            return self._partition.producers.active()

    def find_producer(self, producer_id: int) -> ActiveProducer | None:
        """
        Return the state of one producer, None for an unknown one.

        Raises:
            ReadOnlyLogError, LogClosedError: as for a write.
        """
        with self._partition.gate.owned():
            return self._partition.producers.find(producer_id)

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        supports_epoch_bump: bool = False,
    ) -> int:
        """
        Return the guard that the append of a batch has to present which begins a transaction.

        For servers, with `kafkalog.verify.transactions`. Before a client's transactional batch is
        appended, call this, then ask the coordinator whether the transaction is open and has this
        partition, and then call `append_batches(guard=)`. A marker that comes in between
        invalidates the guard, so that no batch opens a transaction after its own end. Batches of
        one producer that wait together get one guard, and the one with the lowest sequence goes
        first.

        Args:
            producer_id, producer_epoch, base_sequence: of the batch's header.
            supports_epoch_bump: whether each transaction of the producer has a separate epoch
                (transaction version 2): an unknown producer begins with sequence 0 then.

        Returns:
            A positive number; 0 if the producer's transaction is open in this log: nothing needs to
            be verified.

        Raises:
            ReadOnlyLogError, LogClosedError: as for a write.
        """
        with self._partition.gate.owned():
            return self._partition.producers.begin_verification(
                producer_id, producer_epoch, base_sequence, supports_epoch_bump
            )


def partition_of(log: Log) -> Partition:
    """Return the parts of a log; for the packages log, cleaner, manager and spark only."""
    return log._partition


def scan(logs: Log | Iterable[Log], **arguments: Unpack[ScanArguments]) -> Scan:
    """
    Return the records of many logs as columns, one log after the other.

    Args:
        logs: open logs, in the order of the result; or one open log.
        arguments: columns, filters, isolation and so on, as of `Log.scan`.
    """
    options = make_options(**arguments)
    logs = [logs] if isinstance(logs, Log) else list(logs)
    for log in logs:
        if not isinstance(log, Log):
            raise TypeError(f"logs must be open logs, got {type(log).__name__}")
    return Scan([_source_of(log) for log in logs], options)


def _source_of(log: Log, start: int | None = None, end: int | None = None) -> ScannedLog:
    start = None if start is None else whole_offset("start", start)
    end = None if end is None else whole_offset("end", end)
    return ScannedLog(log.topic_partition, lambda: log._partition.reader, start, end)
