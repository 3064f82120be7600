"""What tests of the batch builder share: rows, the batch that must come of them, columns."""

from __future__ import annotations

from typing import Any

import numpy

from kafkalog._core.bytes_column import BytesColumn
from tests.support import reference
from tests.support import reference_records as records
from tests.support.reference import Header
from tests.support.reference_records import Entry

__all__ = ["Field", "Row", "column", "reference_batch"]

Field = bytes | None
Row = tuple[Field, Field, int]


def reference_batch(rows: list[Row], **fields: Any) -> bytes:
    """Return the batch of records at consecutive offsets, by the reference."""
    base = rows[0][2]
    payload = records.encode(
        Entry(slot, records.wrap64(timestamp - base), key, value)
        for slot, (key, value, timestamp) in enumerate(rows)
    )
    header = Header(
        base_timestamp=base,
        max_timestamp=max(timestamp for _, _, timestamp in rows),
        last_offset_delta=len(rows) - 1,
        record_count=len(rows),
        **fields,
    )
    return reference.encode_batch(header, payload)


def column(fields: list[Field], offset_type: str, *, before: int = 0) -> BytesColumn:
    """Return fields as a column in Arrow's layout, with `before` other cells in front."""
    cells = [b"other"] * before + fields
    offsets = numpy.cumsum([0, *(len(cell or b"") for cell in cells)], dtype=offset_type)
    valid = [cell is not None for cell in cells]
    bitmap = numpy.packbits(valid, bitorder="little") if not all(valid) else None
    return BytesColumn(b"".join(cell or b"" for cell in cells), offsets, bitmap)
