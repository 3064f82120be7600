"""Validation of batches that get their offsets here, as a leader: checks and corrections.

The rules are those of Kafka's LogValidator, stricter where Kafka accepts batches that no reader can
read (offset deltas with gaps, false record lengths). Timestamps are corrected in place; if
`compression.type` selects another codec the records are compressed again. Returns a
`MemoryRecords` over a private copy: later changes of the caller's buffer do not reach the log. The
run assigns its offsets under the lock of the log. The compiled fast path checks a run in one call
if no batch must be decompressed or corrected; else the whole run is checked batch by batch. One
invalid batch refuses the run; bytes after the last whole batch are refused, where Kafka drops them
silently.

Not checked here: sequences of producers, their epochs and transactions, which need the state of the
log (`kafkalog.log.producers`); the log checks them if the run `has_producers`. Appends with
an old format go to `old_formats`. The fast paths of leader and follower are one kernel; these slow
paths are separate, because a leader corrects and recompresses where a follower only checks.

Thread-safety: pure functions.
"""

from __future__ import annotations

from typing import Final

from typing_extensions import Buffer

from kafkalog._core.append_fast_path import leader_fast_path
from kafkalog._core.assign_offsets import set_max_timestamp
from kafkalog._core.batch import scan_batches
from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._core.columns import RecordColumns, decode_columns
from kafkalog._core.header import BatchHeader
from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.recompress import replace_payload
from kafkalog._core.status import STATUS_CODES, check_status
from kafkalog._core.summary import RecordSummary
from kafkalog.layout import CREATE_TIME, LOG_APPEND_TIME, MAGIC_POSITION, MAGIC_V2, NO_TIMESTAMP
from kafkalog.model import NOTHING_REWRITTEN, AppendOrigin, Rewriting
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.codecs import Codec, compress_if_smaller
from kafkalog.records.record_faults import RecordFaults
from kafkalog.records.validation.batch_rules import (
    as_create_time,
    check_header,
    check_records,
    claim_fault,
    second_batch,
)
from kafkalog.records.validation.entries import (
    Payload,
    add_offset_to_error,
    check_control_records,
    check_sizes,
    next_header,
    plain_records,
)
from kafkalog.records.validation.old_formats import OldFormatAppend

__all__ = ["validate_as_leader"]

_OK: Final = STATUS_CODES["OK"]
# To ask an enumeration for its member takes longer than to check a small batch.
_CLIENT: Final = AppendOrigin.CLIENT
_COORDINATOR: Final = AppendOrigin.COORDINATOR


def validate_as_leader(
    data: Buffer,
    rules: AppendRules,
    now_ms: int,
    origin: AppendOrigin = AppendOrigin.EMBEDDED,
) -> MemoryRecords:
    """
    Check encoded batches and prepare them for the offsets that the log will give.

    Timestamp type and largest timestamp are set from the settings and the records. Empty data gives
    a run without batches.

    Args:
        data: batches of one format back to back, nothing else; one at most from CLIENT and
            COORDINATOR, but for plain messages of an old format.
        rules: limits on size and time, timestamp type, policy, codec.
        now_ms: time of the append.
        origin: source of the batches; not REPLICATION, whose batches keep their offsets.

    Raises:
        CorruptRecordError: a batch is cut, or its CRC or a length is wrong.
        InvalidRecordError: the records do not agree with the header or do not decompress, or a
            header has fields that its origin may not set.
        RecordValidationError: a timestamp is out of bounds, or a key is missing in a compacted
            log; the error lists the records.
        RecordTooLargeError: a batch is larger than `max.message.bytes` or `segment.bytes`.
        UnsupportedCodecError: its codec is unknown, also to the format, or not installed.
        UnsupportedForMessageFormatError: the log's old format has no place for it.
    """
    copy = bytearray(data)
    # The first magic byte decides, also of bytes that are no batch; those are found out below.
    first_magic = copy[MAGIC_POSITION] if len(copy) > MAGIC_POSITION else MAGIC_V2
    if rules.magic < MAGIC_V2 or first_magic < MAGIC_V2:
        return OldFormatAppend(copy, rules, now_ms, origin).run()
    run: MemoryRecords | None = None
    if not rules.wanted_codec and origin is not _COORDINATOR:
        of_client = origin is _CLIENT
        run = leader_fast_path(copy, rules.limits, rules.segment_bytes, now_ms, of_client=of_client)
    return _LeaderAppend(copy, rules, now_ms, origin).run() if run is None else run


class _LeaderAppend:
    """Check of one append, batch by batch."""

    __slots__ = (
        "_batches",
        "_copied_end",
        "_data",
        "_faults",
        "_has_producers",
        "_now_ms",
        "_origin",
        "_parts",
        "_recompressed_count",
        "_record_count",
        "_rules",
        "_source_codec",
        "_target_codec",
    )

    def __init__(
        self, data: bytearray, rules: AppendRules, now_ms: int, origin: AppendOrigin
    ) -> None:
        self._data = data
        self._rules = rules
        self._now_ms = now_ms
        self._origin = origin
        self._faults: RecordFaults | None = None
        self._batches = BatchMetadata()
        self._record_count = 0
        self._has_producers = False
        # Parts of the result; until something was recompressed the copy itself is the result.
        self._parts: list[memoryview | bytearray] = []
        self._copied_end = 0
        self._source_codec = self._target_codec = self._recompressed_count = 0

    def run(self) -> MemoryRecords:
        """
        Check everything and return the run.

        Not `walk_memory`: the size of a batch is limited before its records are read, and its copy
        may be replaced by another one.
        """
        data, rules = self._data, self._rules
        position = 0
        while position < len(data):
            header = next_header(data, position)
            check_sizes(header, header.size_bytes, rules)
            result = scan_batches(data, position, end=header.end_position, check_order=False)
            if result.status != _OK:
                check_status(result.status, position, None, header.base_offset)
            self._accept(header)
            position = header.end_position
        if self._faults is not None:
            self._faults.raise_if_any()
        return MemoryRecords(
            self._result(),
            self._batches,
            self._record_count,
            self._now_ms if rules.is_log_append_time else None,
            rewriting=self._describe_rewriting(),
            has_producers=self._has_producers,
        )

    def _accept(self, header: BatchHeader) -> None:
        self._check_header(header)
        codec = header.codec
        if header.producer_id >= 0:
            self._has_producers = True
        payload = plain_records(self._data, header, self._rules)
        summary = check_records(header, payload)
        if header.is_control:
            check_control_records(header, payload)
        else:
            self._find_faults(header, payload, summary)
        target, position, size = self._data, header.position, header.size_bytes
        log_codec = self._rules.wanted_codec
        self._source_codec = codec or self._source_codec
        # A control batch stays as it is, as in Kafka: it is tiny, and found by its header.
        if log_codec is not None and log_codec != codec and not header.is_control:
            target, position, size, codec = self._with_codec(header, payload, log_codec)
        if self._rules.is_log_append_time:
            kind, largest = LOG_APPEND_TIME, self._now_ms
        else:
            # Timestamps below -1 are read unchanged, but -1 is the lowest value of a header.
            kind, largest = CREATE_TIME, max(summary.max_timestamp, NO_TIMESTAMP)
        set_max_timestamp(target, position, timestamp_type=kind, max_timestamp=largest)
        last = self._record_count + header.last_offset_delta
        # As Kafka's leader: a compressed batch that stays has an offset here whatever its times.
        shallow = last if largest >= 0 or (codec and target is self._data) else -1
        self._batches.add(size, self._record_count, last, largest, shallow)
        self._target_codec = codec or self._target_codec
        self._record_count += header.record_count

    def _describe_rewriting(self) -> Rewriting:
        source, target, count = self._source_codec, self._target_codec, self._recompressed_count
        return Rewriting(source, target, count) if source or target else NOTHING_REWRITTEN

    # ---------------------------------------------------------------------------------- checks

    def _check_header(self, header: BatchHeader) -> None:
        if self._batches and self._origin is not AppendOrigin.EMBEDDED:
            raise second_batch(header)
        check_header(header, self._origin)

    def _find_faults(self, header: BatchHeader, payload: Payload, summary: RecordSummary) -> None:
        """Hold the records against the settings; only where one fails are they looked at."""
        claim = claim_fault(header, self._rules, self._now_ms)
        if claim is None and not self._rules.has_invalid_record(
            self._now_ms, summary.null_key_count, summary.min_timestamp, summary.max_timestamp
        ):
            return
        faults = self._faults = self._faults or RecordFaults(self._rules, self._now_ms)
        columns = RecordColumns(header.record_count)
        decode_columns(payload[0], as_create_time(header), payload[1], payload[2], columns)
        faults.add(columns, self._record_count, claim)

    # ----------------------------------------------------------------------------------- codecs

    def _with_codec(
        self, header: BatchHeader, payload: Payload, codec: Codec
    ) -> tuple[bytearray, int, int, int]:
        """Return (bytes, position, size, codec) of the batch in the codec that the log wants."""
        records = memoryview(payload[0])[payload[1] : payload[2]]
        codec, compressed = compress_if_smaller(codec, records, self._rules.level)
        if codec == header.codec:
            return self._data, header.position, header.size_bytes, header.codec
        body = records if compressed is None else compressed
        original = memoryview(self._data)[header.position : header.end_position]
        with add_offset_to_error(header):
            batch = replace_payload(original, int(codec), body)
        check_sizes(header, len(batch), self._rules)
        self._copy_up_to(header.position)
        self._parts.append(batch)
        self._copied_end = header.end_position
        self._recompressed_count += 1
        return batch, 0, len(batch), int(codec)

    def _copy_up_to(self, position: int) -> None:
        """Take the batches before `position` that stayed as they are into the result."""
        if position > self._copied_end:
            self._parts.append(memoryview(self._data)[self._copied_end : position])

    def _result(self) -> bytearray:
        if not self._parts:
            return self._data
        self._copy_up_to(len(self._data))
        return bytearray().join(self._parts)
