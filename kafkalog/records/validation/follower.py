"""Validation of batches that keep their offsets, as a follower: whole batches, rising offsets.

Another log has accepted their records, so these are not checked. All formats are accepted, mixed
too, and stored unchanged, in a log of any format. Returns a `MemoryRecords` over the given bytes,
or over a private copy of a buffer that can change. The compiled fast path checks a whole run in one
call; if a batch needs the slow path, the whole run is checked batch by batch.

The header of a wrapper has no first offset: its messages are read for it, and for the number of its
records, but a wrapper that cannot be read is not refused.

Thread-safety: pure functions.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from typing_extensions import Buffer

from kafkalog._core.append_fast_path import follower_fast_path
from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._core.header import BatchHeader
from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.message import summarize_messages
from kafkalog._core.status import STATUS_CODES, check_status
from kafkalog.errors import CorruptRecordError, InvalidRecordError, OffsetsOutOfOrderError
from kafkalog.layout import CODEC_MASK, MAGIC_V2, NO_TIMESTAMP
from kafkalog.model import Rewriting
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.codecs import Codec
from kafkalog.records.validation.entries import (
    add_offset_to_error,
    check_control_records,
    check_size,
    next_header,
    plain_records,
    refusal,
)

__all__ = ["validate_as_follower"]

_OK: Final = STATUS_CODES["OK"]
_OFFSET_ORDER: Final = STATUS_CODES["OFFSET_ORDER"]
_NO_LEADER_EPOCH: Final = -1
_NO_PRODUCER: Final = -1
# Plain messages that are looked at together, first and at most.
_ENTRIES_AHEAD: Final = 16
_ENTRIES_MAX: Final = 4096
# By codec: followers store batches with the codec that they came with.
_UNCHANGED_CODECS: Final = tuple(Rewriting(codec, codec) for codec in Codec)


def validate_as_follower(data: Buffer, rules: AppendRules) -> MemoryRecords:
    """
    Check batches that keep their offsets, as a follower takes them from its leader.

    Control batches, transactions, gaps and emptied batches are all allowed; data records are not
    looked at. That the first offset is not below the log end is checked when the run is stamped.

    Args:
        data: batches back to back, nothing else.
        rules: for the size of a segment, which one batch must not exceed.

    Raises:
        CorruptRecordError: a batch is cut, or its CRC or a length is wrong.
        OffsetsOutOfOrderError: a batch begins at or below the end of the one before; for a
            wrapper, the first message inside.
        RecordTooLargeError: a batch is larger than `segment.bytes`.
        UnsupportedCodecError: its codec is unknown; it need not be installed.
        InvalidRecordError: its leader epoch, producer id, producer epoch or base sequence is below
            -1, or it is a control batch of an unknown type.
    """
    # Nothing is stamped into them: bytes that cannot change need not be copied.
    copy = data if type(data) is bytes else bytearray(data)
    run = follower_fast_path(copy, rules.segment_bytes, _UNCHANGED_CODECS)
    return _run_of_any(copy, rules) if run is None else run


def _run_of_any(copy: bytes | bytearray, rules: AppendRules) -> MemoryRecords:
    """
    Check batch by batch: old formats, control batches, and what is wrong.

    Not `walk_memory`: each batch is refused with its own error, and runs of plain messages are
    taken in one step.
    """
    batches = BatchMetadata()
    position = record_count = next_offset = codec = 0
    ahead = _ENTRIES_AHEAD
    has_producers = False
    while position < len(copy):
        header = next_header(copy, position, takes_old=True)
        if header.magic < MAGIC_V2 and not header.codec and header.end_position < len(copy):
            messages = _plain_messages(copy, position, next_offset, ahead, rules)
            # Short runs use a small chunk, so that few entries are read twice.
            ahead = min(4 * ahead, _ENTRIES_MAX) if len(messages) == ahead else _ENTRIES_AHEAD
            if messages:
                batches.extend(messages)
                record_count += len(messages)
                next_offset = messages[-1].last_offset + 1
                position += messages.size_bytes
                continue
        first_offset, count = _check_batch(copy, header, next_offset, rules)
        shallow = header.last_offset if header.max_timestamp != NO_TIMESTAMP else -1
        batches.add(
            header.size_bytes, first_offset, header.last_offset, header.max_timestamp, shallow
        )
        codec = header.codec or codec
        has_producers = has_producers or header.producer_id >= 0
        record_count += count
        next_offset = header.next_offset
        position = header.end_position
    rewriting = _UNCHANGED_CODECS[codec] if codec else None
    return MemoryRecords(
        copy,
        batches,
        record_count,
        needs_offsets=False,
        rewriting=rewriting,
        has_producers=has_producers,
    )


def _plain_messages(
    data: bytes | bytearray, position: int, next_offset: int, count: int, rules: AppendRules
) -> BatchMetadata:
    """
    Return the plain messages of old formats from `position` on, `count` at most.

    It ends before the first message with a fault, which the check of single entries reports.
    """
    columns = BatchColumns(count)
    scan_batches(data, position, columns=columns, next_offset=next_offset)
    rows = slice(len(columns))
    is_good = (columns.magic[rows] < MAGIC_V2) & (columns.attributes[rows] & CODEC_MASK == 0)
    is_good &= columns.size_bytes[rows] <= rules.segment_bytes
    is_good &= columns.max_timestamp[rows] >= NO_TIMESTAMP
    stop = len(is_good) if is_good.all() else int(is_good.argmin())
    return BatchMetadata.of_messages(
        np.concatenate(([0], np.cumsum(columns.size_bytes[:stop], dtype=np.int64))),
        columns.base_offset[:stop],
        columns.max_timestamp[:stop],
    )


def _check_batch(
    data: bytes | bytearray, header: BatchHeader, next_offset: int, rules: AppendRules
) -> tuple[int, int]:
    """Check one batch; return the offset of its first record, and how many it has."""
    position = header.position
    check_size(header, header.size_bytes, "segment.bytes", rules.segment_bytes)
    result = scan_batches(data, position, end=header.end_position, next_offset=next_offset)
    if result.status == _OFFSET_ORDER:
        raise _out_of_order(header, header.base_offset, next_offset)
    check_status(result.status, position, None, header.base_offset)
    _check_content(data, header, rules)
    if not header.is_wrapper:
        return header.base_offset, header.record_count
    first_offset, count = _inside(data, header, rules)
    if first_offset < next_offset:
        raise _out_of_order(header, first_offset, next_offset)
    return first_offset, count


def _check_content(data: bytes | bytearray, header: BatchHeader, rules: AppendRules) -> None:
    """Check what would otherwise stop a broker that loads the batch."""
    with add_offset_to_error(header):
        Codec.of(header.codec)
    if header.partition_leader_epoch < _NO_LEADER_EPOCH:
        raise refusal(header, f"leader epoch {header.partition_leader_epoch}")
    if min(header.producer_id, header.producer_epoch, header.base_sequence) < _NO_PRODUCER:
        raise refusal(
            header,
            f"producer id {header.producer_id}, epoch {header.producer_epoch} and base sequence"
            f" {header.base_sequence} must be -1 or more",
        )
    if header.is_control:
        check_control_records(header, plain_records(data, header, rules))


def _inside(data: bytes | bytearray, header: BatchHeader, rules: AppendRules) -> tuple[int, int]:
    """Return first offset and number of the messages in a wrapper; one where none can be read."""
    try:
        payload, start, end = plain_records(data, header, rules)
        summary = summarize_messages(payload, header, start, end, strict=False)
    except (CorruptRecordError, InvalidRecordError):
        return header.last_offset, 1
    if summary.status != _OK or summary.first_offset > header.last_offset:
        return header.last_offset, 1
    return summary.first_offset, summary.record_count


def _out_of_order(
    header: BatchHeader, first_offset: int, next_offset: int
) -> OffsetsOutOfOrderError:
    return OffsetsOutOfOrderError(
        f"the batch at position {header.position} begins at offset {first_offset}, the one before"
        f" it ends at {next_offset - 1}",
        position=header.position,
        base_offset=header.base_offset,
    )
