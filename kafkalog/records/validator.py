"""What encoded batches must be before a log takes them, and what is set right in them.

Two ways in. `validate_client_batches` is for batches whose offsets the log gives: everything a
leader checks of a producer's batches, stricter where Kafka lets through what no reader can read
(offset deltas with gaps, record lengths that lie). `validate_own_offsets` is for batches that keep
their offsets, copied from another log: whole, checksum right, offsets rising, control records
readable; data records are what somebody else accepted.

Both return a `PackedRun` over a private copy, so that nothing the caller does later to its buffer
reaches the log. Offsets are stamped by the run, under the log's lock.

Errors: CorruptRecordError where bytes were damaged on their way (cut, or the CRC is wrong),
InvalidRecordError where they are what somebody wrote and are not allowed; `position` is that of the
batch in the caller's buffer. One bad batch refuses the run.

Not checked here: sequences of producers and their epochs (they need the log's state). Transactional
batches are refused from clients, for nothing here could ever write the marker that ends one. The
codec is kept as it comes, whatever `compression.type` says. Old formats (magic 0 and 1) are
refused.

Thread-safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from typing_extensions import Buffer

from kafkalog._core.batch import scan_batches
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.record import decode_records
from kafkalog._core.stamp import set_max_timestamp
from kafkalog._core.status import STATUS_CODES, check_status, status_meaning
from kafkalog._core.summary import RecordSummary, summarize_records
from kafkalog.config import LogConfig
from kafkalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    OffsetsOutOfOrderError,
    RecordTooLargeError,
    UnsupportedCodecError,
)
from kafkalog.records.codecs import Codec, decompress
from kafkalog.records.control import ControlType, decode_control
from kafkalog.records.packing import BatchFacts, PackedRun

__all__ = ["validate_client_batches", "validate_own_offsets"]

_OK: Final = STATUS_CODES["OK"]
_OFFSET_ORDER: Final = STATUS_CODES["OFFSET_ORDER"]
_TRUNCATED: Final = STATUS_CODES["TRUNCATED"]

_RECORDS_POSITION: Final = 61  # the size of a header
_CREATE_TIME, _LOG_APPEND_TIME = 0, 1
_TIMESTAMP_TYPE_MASK: Final = 0x08
_NO_TIMESTAMP: Final = -1
_MAGIC_V2: Final = 2
_NO_PRODUCER_ID: Final = -1
_NO_LEADER_EPOCH: Final = -1


def validate_client_batches(data: Buffer, config: LogConfig, now_ms: int) -> PackedRun:
    """
    Check batches of a producer and prepare them for the offsets that the log will give.

    Their own base offsets do not matter. Timestamp type and largest timestamp become what the
    topic's settings and the records say. Nothing at all is a run of no batches.

    Args:
        data: batches of format v2 back to back, nothing else.
        config: limits on size and time, timestamp type, policy.
        now_ms: time of the append.

    Raises:
        CorruptRecordError: a batch is cut, or its CRC or a length is wrong.
        InvalidRecordError: the records are not what the header says or do not decompress, a batch
            says what a producer may not say, a timestamp is out of bounds, or a key is missing in
            a compacted log.
        RecordTooLargeError: a batch is larger than `max.message.bytes` or `segment.bytes`.
        UnsupportedCodecError: its codec is unknown or not installed.
    """
    copy = bytearray(data)
    batches: list[BatchFacts] = []
    rules = _ClientRules(config, now_ms)
    position = record_count = 0
    while position < len(copy):
        header = _next_header(copy, position)
        _check_size(header, "max.message.bytes", config.max_message_bytes)
        _check_size(header, "segment.bytes", config.segment_bytes)
        result = scan_batches(copy, position, end=header.end_position, check_order=False)
        check_status(result.status, position, None, header.base_offset)
        facts = rules.accept(copy, header, record_count)
        batches.append(facts)
        record_count += header.record_count
        position = header.end_position
    append_time = now_ms if config.is_log_append_time else None
    return PackedRun(copy, batches, record_count, append_time)


def validate_own_offsets(data: Buffer, config: LogConfig) -> PackedRun:
    """
    Check batches that keep their offsets, as a follower takes them from its leader.

    Control batches, transactions, gaps and emptied batches are all allowed; data records are not
    looked at. That the first offset is not below the log end is checked when the run is stamped.

    Args:
        data: batches of format v2 back to back, nothing else.
        config: for the size of a segment, which one batch must not exceed.

    Raises:
        CorruptRecordError: a batch is cut, or its CRC or a length is wrong.
        OffsetsOutOfOrderError: a batch begins at or below the end of the one before.
        RecordTooLargeError: a batch is larger than `segment.bytes`.
        UnsupportedCodecError: its codec is unknown; it need not be installed.
        InvalidRecordError: its leader epoch is below -1, or it is a control batch that says
            nothing known.
    """
    copy = bytearray(data)
    batches: list[BatchFacts] = []
    position = record_count = next_offset = 0
    while position < len(copy):
        header = _next_header(copy, position)
        _check_size(header, "segment.bytes", config.segment_bytes)
        result = scan_batches(copy, position, end=header.end_position, next_offset=next_offset)
        if result.status == _OFFSET_ORDER:
            raise OffsetsOutOfOrderError(
                f"the batch at position {position} begins at offset {header.base_offset}, the one"
                f" before it ends at {next_offset - 1}",
                position=position,
                base_offset=header.base_offset,
            )
        check_status(result.status, position, None, header.base_offset)
        _check_foreign(copy, header, config)
        batches.append(
            BatchFacts(
                header.size_bytes, header.base_offset, header.last_offset, header.max_timestamp
            )
        )
        record_count += header.record_count
        next_offset = header.next_offset
        position = header.end_position
    return PackedRun(copy, batches, record_count, assign_offsets=False)


def _next_header(data: bytearray, position: int) -> BatchHeader:
    """Return the header at `position`; the whole batch is in `data`."""
    if len(data) - position < _RECORDS_POSITION:
        raise CorruptRecordError(
            f"{len(data) - position} bytes at position {position} are too few for a batch",
            position=position,
        )
    header = parse_header(data, position)
    if header.magic < _MAGIC_V2:
        check_status(STATUS_CODES["LEGACY"], position, None, header.base_offset)
    if header.end_position > len(data):
        raise CorruptRecordError(
            f"the batch at position {position} says {header.size_bytes} bytes, and only"
            f" {len(data) - position} are left",
            position=position,
            base_offset=header.base_offset,
        )
    return header


def _check_size(header: BatchHeader, key: str, limit: int) -> None:
    if header.size_bytes > limit:
        raise RecordTooLargeError(
            f"{_where(header)} takes {header.size_bytes} bytes, and {key} is {limit}",
            position=header.position,
            base_offset=header.base_offset,
        )


def _check_foreign(data: bytearray, header: BatchHeader, config: LogConfig) -> None:
    """Check of a batch with its own offsets what would otherwise stop a broker that loads it."""
    with _blaming(header):
        Codec.of(header.codec)
    if header.partition_leader_epoch < _NO_LEADER_EPOCH:
        raise _refusal(header, f"leader epoch {header.partition_leader_epoch}")
    if not header.is_control:
        return
    payload, start, end = _payload(data, header, config)
    with _blaming(header):
        for record in decode_records(payload, header, start, end):
            control = decode_control(record.key, record.value)
            if control.type is ControlType.UNKNOWN:
                raise InvalidRecordError(f"a control record of unknown type {control.type_id}")


def _payload(
    data: bytearray, header: BatchHeader, config: LogConfig
) -> tuple[memoryview | bytes, int, int]:
    """Return (buffer, start, end) of the plain records."""
    view = memoryview(data).toreadonly()
    start, end = header.position + _RECORDS_POSITION, header.end_position
    if header.codec == Codec.NONE or header.record_count == 0:
        return view, start, end
    with _blaming(header):
        limit_bytes = config.decompressed_max_bytes
        payload = decompress(header.codec, view[start:end], limit_bytes=limit_bytes)
    return payload, 0, len(payload)


@contextmanager
def _blaming(header: BatchHeader) -> Iterator[None]:
    """
    Say of an error inside which batch it is of, and that the batch was written like that.

    Its CRC was right, so whoever made it is at fault, not the way here.
    """
    try:
        yield
    except UnsupportedCodecError as error:
        raise UnsupportedCodecError(
            f"{_where(header)}: {error}", position=header.position, base_offset=header.base_offset
        ) from error
    except (CorruptRecordError, InvalidRecordError) as error:
        raise _refusal(header, str(error)) from error


@dataclass(frozen=True, slots=True)
class _ClientRules:
    """The rules of a leader for a producer's batches, with the settings they depend on."""

    config: LogConfig
    now_ms: int

    def accept(self, data: bytearray, header: BatchHeader, first_offset: int) -> BatchFacts:
        """Check one whole batch, set its timestamps right, and return its facts."""
        self._check_header(header)
        summary = self._check_records(data, header)
        self._check_timestamps(header, summary)
        if self.config.is_log_append_time:
            kind, largest = _LOG_APPEND_TIME, self.now_ms
        else:
            # Timestamps below -1 are read as they are, but -1 is the least a header may say.
            kind, largest = _CREATE_TIME, max(summary.max_timestamp, _NO_TIMESTAMP)
        set_max_timestamp(data, header.position, timestamp_type=kind, max_timestamp=largest)
        last_offset = first_offset + header.last_offset_delta
        return BatchFacts(header.size_bytes, first_offset, last_offset, largest)

    def _check_header(self, header: BatchHeader) -> None:
        if header.record_count != header.last_offset_delta + 1 or header.record_count <= 0:
            raise _refusal(
                header,
                f"{header.record_count} records, but offsets for {header.last_offset_delta + 1}",
            )
        if header.is_control:
            raise _refusal(header, "only the log itself writes control batches")
        if header.is_transactional:
            raise _refusal(header, "it belongs to a transaction, which nothing here could end")
        if header.producer_id > _NO_PRODUCER_ID and header.base_sequence < 0:
            raise _refusal(
                header,
                f"producer {header.producer_id} without a sequence number ({header.base_sequence})",
            )

    def _check_records(self, data: bytearray, header: BatchHeader) -> RecordSummary:
        """Read every record; their timestamps are those they have as CreateTime."""
        payload, start, end = _payload(data, header, self.config)
        summary = summarize_records(payload, _as_create_time(header), start, end)
        if summary.status == _TRUNCATED:
            raise _refusal(header, "its records end early")
        if summary.status != _OK:
            raise _refusal(header, status_meaning(summary.status))
        if self.config.is_compacted and summary.null_key_count:
            raise _refusal(
                header,
                f"{summary.null_key_count} records without a key, and cleanup.policy is"
                f" {','.join(self.config.cleanup_policy)}",
            )
        return summary

    def _check_timestamps(self, header: BatchHeader, summary: RecordSummary) -> None:
        claims_append_time = header.timestamp_type == _LOG_APPEND_TIME
        if self.config.is_log_append_time:
            if claims_append_time:
                raise _refusal(header, "it claims an append time, which only the log may give")
            return
        if claims_append_time and header.max_timestamp == _NO_TIMESTAMP:
            raise _refusal(header, "it claims an append time and has none")
        lower, upper = summary.min_timestamp, summary.max_timestamp
        # -1 may mean "none" in both, which always passes.
        if lower != _NO_TIMESTAMP:
            self._check_bound(header, lower, "before", self.now_ms - lower)
            self._check_bound(header, upper, "after", upper - self.now_ms)

    def _check_bound(self, header: BatchHeader, timestamp: int, side: str, distance: int) -> None:
        limit = (
            self.config.message_timestamp_before_max_ms
            if side == "before"
            else self.config.message_timestamp_after_max_ms
        )
        if distance > limit:
            raise _refusal(
                header,
                f"timestamp {timestamp} lies {distance} ms {side} the time of the append"
                f" ({self.now_ms}), and message.timestamp.{side}.max.ms is {limit}",
            )


def _as_create_time(header: BatchHeader) -> BatchHeader:
    """Return the header with the timestamp type that its records are going to have or had."""
    if header.timestamp_type == _CREATE_TIME:
        return header
    return BatchHeader(
        header.position,
        header.base_offset,
        header.batch_length,
        header.partition_leader_epoch,
        header.magic,
        header.crc,
        header.attributes & ~_TIMESTAMP_TYPE_MASK,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )


def _where(header: BatchHeader) -> str:
    return f"the batch at position {header.position}"


def _refusal(header: BatchHeader, why: str) -> InvalidRecordError:
    return InvalidRecordError(
        f"{_where(header)}: {why}", position=header.position, base_offset=header.base_offset
    )
