"""Rows of the columns of scans and decoders, to be compared with the slow reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafkalog._core.batch import BatchColumns, ScanResult, scan_batches
from kafkalog._core.columns import RecordColumns
from kafkalog._core.status import STATUS_CODES
from tests.support import reference
from tests.support import reference_messages as messages
from tests.support import reference_records as records
from tests.support.buffers import exact
from tests.support.reference_records import Refused

__all__ = [
    "RECORD_COLUMNS",
    "assert_scan_equals_reference",
    "reference_run",
    "rows_of_columns",
]

# Every column of decoded records.
RECORD_COLUMNS: Final = (
    "offset",
    "timestamp",
    "key_position",
    "key_size",
    "value_position",
    "value_size",
    "headers_position",
    "headers_size",
    "header_count",
)

# Every column of scanned batches but the position, by the field of the reference's header.
_COLUMN_OF_FIELD: Final = {
    "base_offset": "base_offset",
    "last_offset": "last_offset",
    "size_bytes": "size_bytes",
    "base_timestamp": "base_timestamp",
    "max_timestamp": "max_timestamp",
    "record_count": "record_count",
    "attributes": "attributes",
    "magic": "magic",
    "crc": "crc",
    "partition_leader_epoch": "leader_epoch",
    "producer_id": "producer_id",
    "producer_epoch": "producer_epoch",
    "base_sequence": "base_sequence",
}


def rows_of_columns(
    columns: BatchColumns | RecordColumns, names: Sequence[str]
) -> list[tuple[int, ...]]:
    """Return the rows in use, with the columns of these names."""
    used = (getattr(columns, name)[: len(columns)].tolist() for name in names)
    return list(zip(*used, strict=True))


def assert_scan_equals_reference(
    data: bytes, *, check_crc: bool = True, check_order: bool = True, capacity: int = 50
) -> None:
    """Scan an exact copy of the data and compare result and every column with the reference."""
    expected = reference.scan_batches(
        data, check_crc=check_crc, check_order=check_order, capacity=capacity
    )
    columns = BatchColumns(capacity)
    actual = scan_batches(
        exact(data), columns=columns, check_crc=check_crc, check_order=check_order
    )
    assert (
        ScanResult(
            len(expected.batches),
            expected.position,
            STATUS_CODES[expected.status],
            expected.next_offset,
            expected.max_timestamp,
            expected.offset_of_max_timestamp,
        )
        == actual
    )
    assert [
        (position, *(getattr(header, field) for field in _COLUMN_OF_FIELD))
        for position, header in expected.batches
    ] == rows_of_columns(columns, ("position", *_COLUMN_OF_FIELD.values()))


def reference_run(data: bytes, *, check_crc: bool, strict: bool) -> tuple[int, int, int, str]:
    """Return (rows, batches, position, verdict) of a run, by the reference."""
    position = rows = batches = 0
    while position < len(data):
        verdict = reference.check_batch(data[position:], check_crc=check_crc)
        if verdict != "OK":
            return rows, batches, position, verdict
        _, header = reference.parse_header(data[position:])
        assert header is not None
        codec = header.attributes & 7
        if codec:
            is_known = codec <= (3 if header.magic < 2 else 4)
            return rows, batches, position, "COMPRESSED" if is_known else "UNKNOWN_CODEC"
        end = position + header.size_bytes
        try:
            if header.magic < 2:
                rows += len(messages.decode_messages(data[position:end], header, strict=strict))
            else:
                rows += len(records.decode(data[position + 61 : end], header, strict=strict))
        except Refused as refused:
            # A whole batch is not torn, whatever the lengths of its records.
            verdict = "RECORD_LENGTH" if refused.verdict == "TRUNCATED" else refused.verdict
            return rows, batches, position, verdict
        batches += 1
        position = end
    return rows, batches, position, "OK"
