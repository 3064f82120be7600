"""Rules of a leader for one batch, in logs of any format: header, records, claimed append times.

Thread-safety: pure functions.
"""

from __future__ import annotations

from typing import Final

from kafkalog._core.header import BatchHeader
from kafkalog._core.status import STATUS_CODES, status_meaning
from kafkalog._core.summary import RecordSummary, summarize_records
from kafkalog.errors import InvalidRecordError
from kafkalog.layout import LOG_APPEND_TIME, NO_TIMESTAMP, TIMESTAMP_TYPE_MASK
from kafkalog.model import AppendOrigin
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.validation.entries import Payload, refusal

__all__ = [
    "as_create_time",
    "check_header",
    "check_records",
    "claim_fault",
    "second_batch",
    "with_base_offset",
]

_OK: Final = STATUS_CODES["OK"]
_TRUNCATED: Final = STATUS_CODES["TRUNCATED"]
_NO_PRODUCER_ID: Final = -1


def check_header(header: BatchHeader, origin: AppendOrigin) -> None:
    """Raise InvalidRecordError if a v2 header has fields that its origin may not set."""
    if origin is AppendOrigin.CLIENT and header.base_offset != 0:
        raise refusal(header, f"a producer counts from 0, not from {header.base_offset}")
    if header.record_count != header.last_offset_delta + 1 or header.record_count <= 0:
        raise refusal(
            header,
            f"{header.record_count} records, but offsets for {header.last_offset_delta + 1}",
        )
    if origin is AppendOrigin.COORDINATOR:
        return
    if header.is_control:
        raise refusal(header, "only the log itself writes control batches")
    if header.is_transactional and header.producer_id <= _NO_PRODUCER_ID:
        raise refusal(header, "it belongs to a transaction, and names no producer")
    if header.producer_id > _NO_PRODUCER_ID and header.base_sequence < 0:
        raise refusal(
            header,
            f"producer {header.producer_id} without a sequence number ({header.base_sequence})",
        )


def second_batch(header: BatchHeader) -> InvalidRecordError:
    """Return the error for an origin that brings more than one batch."""
    return refusal(header, "a second batch, where one append holds one")


def check_records(header: BatchHeader, payload: Payload) -> RecordSummary:
    """Read every record of a v2 batch; their timestamps are those they have as CreateTime."""
    summary = summarize_records(payload[0], as_create_time(header), payload[1], payload[2])
    if summary.status == _TRUNCATED:
        raise refusal(header, "its records end early")
    if summary.status != _OK:
        raise refusal(header, status_meaning(summary.status))
    return summary


def claim_fault(header: BatchHeader, rules: AppendRules, now_ms: int) -> str | None:
    """Return the fault of a batch that claims an append time, None for no fault."""
    if header.timestamp_type != LOG_APPEND_TIME:
        return None
    if rules.is_log_append_time:
        return "its batch claims an append time, which only the log may give"
    if header.max_timestamp == NO_TIMESTAMP:
        return "its batch claims an append time and has none"
    # Kafka holds the claimed time against the bounds; the records' own are looked at as well.
    if rules.has_invalid_record(now_ms, 0, header.max_timestamp, header.max_timestamp):
        return f"its batch claims {header.max_timestamp} as append time, which is out of bounds"
    return None


def as_create_time(header: BatchHeader) -> BatchHeader:
    """Return the header with the timestamp type that its records are going to have or had."""
    if header.timestamp_type != LOG_APPEND_TIME:
        return header
    return with_base_offset(header, header.base_offset)


def with_base_offset(header: BatchHeader, base_offset: int) -> BatchHeader:
    """Return the header with another offset, and as CreateTime."""
    return BatchHeader(
        header.position,
        base_offset,
        header.batch_length,
        header.partition_leader_epoch,
        header.magic,
        header.crc,
        header.attributes & ~TIMESTAMP_TYPE_MASK,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
