"""Every decoder of records of v2 compared with the slow reference: same records or verdict."""

from __future__ import annotations

import pytest

from kafkalog._core.record import (
    Record,
    check_records,
    decode_lists,
    decode_records,
    decode_tuples,
)
from kafkalog._core.status import status_name
from kafkalog.errors import CorruptRecordError
from tests.support import reference_records as reference
from tests.support.buffers import exact
from tests.support.column_rows import RECORD_COLUMNS, rows_of_columns
from tests.support.record_cases import as_batch_header, columns_of, refusal
from tests.support.reference import Header
from tests.support.reference_records import Refused

__all__ = ["Row", "assert_like_reference", "reference_rows", "rows_of"]

Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def rows_of(records: list[Record]) -> list[Row]:
    """Return all fields of records."""
    return [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in records]


def reference_rows(payload: bytes, header: Header, *, strict: bool) -> list[Row]:
    """Return what decode_records must return, by the reference."""
    return [
        (
            decoded.offset,
            decoded.timestamp,
            decoded.entry.key,
            decoded.entry.value,
            tuple(
                (name.decode("utf-8", "surrogateescape"), value)
                for name, value in decoded.entry.headers
            ),
        )
        for decoded in reference.decode(payload, header, strict=strict)
    ]


def assert_like_reference(payload: bytes, header: Header, *, strict: bool = True) -> bool:
    """Hold every decoder against the reference, and return whether it took the payload."""
    data = exact(payload)
    batch_header = as_batch_header(header)
    end = len(payload)
    try:
        expected = reference_rows(payload, header, strict=strict)
    except Refused as refused:
        expected_refusal = (refused.verdict, refused.position)
        for decode in (decode_records, decode_tuples, decode_lists, columns_of):
            with pytest.raises(CorruptRecordError) as caught:
                decode(data, batch_header, 0, end, strict=strict)
            assert expected_refusal == refusal(caught.value)
            assert header.base_offset == caught.value.base_offset
        status = check_records(data, batch_header, 0, end, strict=strict)
        assert refused.verdict == status_name(status)
        return False
    assert expected == rows_of(decode_records(data, batch_header, 0, end, strict=strict))
    pairs = [(key, value) for _, _, key, value, _ in expected]
    assert pairs == decode_tuples(data, batch_header, 0, end, strict=strict)
    keys, values = decode_lists(data, batch_header, 0, end, strict=strict)
    assert pairs == list(zip(keys, values, strict=True))
    assert_columns_like_reference(payload, header, strict=strict)
    status = check_records(data, batch_header, 0, end, strict=strict)
    unseen = header.record_count == 0 and end > 0
    assert ("TRAILING_BYTES" if unseen else "OK") == status_name(status)
    return True


def assert_columns_like_reference(payload: bytes, header: Header, *, strict: bool) -> None:
    """Hold the columns against the reference: every number of every row."""
    columns = columns_of(exact(payload), as_batch_header(header), 0, len(payload), strict=strict)
    expected = [
        (
            decoded.offset,
            decoded.timestamp,
            decoded.entry.key_position,
            -1 if decoded.entry.key is None else len(decoded.entry.key),
            decoded.entry.value_position,
            -1 if decoded.entry.value is None else len(decoded.entry.value),
            decoded.entry.headers_position,
            decoded.entry.end - decoded.entry.headers_position,
            len(decoded.entry.headers),
        )
        for decoded in reference.decode(payload, header, strict=strict)
    ]
    assert expected == rows_of_columns(columns, RECORD_COLUMNS)
