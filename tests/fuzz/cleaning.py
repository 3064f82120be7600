"""Both passes of a cleaning over hostile batches: the offset map, and the retained records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.offset_map import ABSENT, KEYLESS, OffsetMap
from kafkalog._core.record_filter import (
    COPY,
    DROP,
    EMPTY,
    REWRITE,
    max_output_bytes,
    write_retained,
)
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from tests.fuzz.inputs import Choices
from tests.support import reference, reference_records
from tests.support.buffers import exact
from tests.support.reference import Header
from tests.support.reference_records import Decoded

__all__ = ["clean_run"]

ENTRY_BYTES = 24
FIELDS = ("headers_position", "headers_size", "key_position", "key_size")


def clean_run(data: bytes) -> None:
    """
    Put the keys of a run into a map, look up all, and write the latest record of each.

    With `is_damaged` a number in the columns changes first: positions outside are refused.
    """
    choices = Choices(data)
    is_damaged, siphash, has_horizon = choices.flags(3)
    room = 1 + choices.byte() % 16
    column, row = choices.one_of(FIELDS), choices.byte()
    value = choices.number(choices.one_of([1, 2, 4, 8]))
    run, parts = _sound_part(choices.rest)
    buffer = exact(run)
    columns = RecordColumns(max(1, len(run)))
    rows, batches, position, _ = decode_run(buffer, 0, columns, check_crc=False)
    assert (sum(len(records) for _, records in parts), len(parts), len(run)) == (
        rows,
        batches,
        position,
    )
    if is_damaged and rows:
        numbers = getattr(columns, column)
        limits = np.iinfo(numbers.dtype)
        numbers[row % rows] = min(max(value, int(limits.min)), int(limits.max))
    offset_map = OffsetMap(
        bytearray(ENTRY_BYTES * room),
        load_factor=1.0,
        identity="siphash" if siphash else "md5",
        secret=bytes(16),
    )
    try:
        keep = _latest(buffer, columns, offset_map)
    except (CorruptRecordError, IndexError):
        assert is_damaged
        return
    if not is_damaged:
        _assert_latest([record for _, each in parts for record in each], room, keep)
    horizon = value if has_horizon else None
    _write(buffer, columns, parts, keep, horizon=horizon, is_damaged=is_damaged)


Part = tuple[Header, list[Decoded]]


def _sound_part(data: bytes) -> tuple[bytes, list[Part]]:
    """Return the run up to its first damage or compressed batch, and its rows by the reference."""
    parts: list[Part] = []
    walk = reference.scan_batches(data, check_crc=False, check_order=True)
    end = 0
    for start, header in walk.batches:
        if header.magic != 2 or header.attributes & 7:
            break
        payload = data[start + 61 : start + header.size_bytes]
        try:
            records = reference_records.decode(payload, header)
        except reference_records.Refused:
            break
        if header.record_count == 0 and payload:
            break
        parts.append((header, list(records)))
        end = start + header.size_bytes
    return data[:end], parts


def _latest(buffer: Buffer, columns: RecordColumns, offset_map: OffsetMap) -> NDArray[np.uint8]:
    """Return a flag for each record: whether the map has no later one of its key."""
    places, count = (columns.key_position, columns.key_size), len(columns)
    put, status = offset_map.put_run(buffer, *places, columns.offset, end=count)
    assert (put == count) == (status == STATUS_CODES["OK"])
    found = np.full(columns.capacity, -99, np.int64)
    offset_map.get_run(buffer, *places, found, end=count)
    is_latest = (found[:count] != KEYLESS) & (columns.offset[:count] >= found[:count])
    return np.asarray(is_latest, np.uint8)


def _assert_latest(records: list[Decoded], room: int, keep: NDArray[np.uint8]) -> None:
    """Compare the flags with a dictionary that has no more keys than the map."""
    latest: dict[bytes, int] = {}
    for record in records:
        key = record.entry.key
        if key is not None:
            if key not in latest and len(latest) == room:
                break
            latest[key] = record.offset
    expected = [
        record.entry.key is not None and record.offset >= latest.get(record.entry.key, ABSENT)
        for record in records
    ]
    assert expected == keep.astype(bool).tolist()


def _write(
    buffer: Buffer,
    columns: RecordColumns,
    parts: list[Part],
    keep: NDArray[np.uint8],
    *,
    horizon: int | None,
    is_damaged: bool,
) -> None:
    """Write the retained records and read them by the reference."""
    first_rows = np.cumsum([0, *(len(records) for _, records in parts)]).astype(np.int64)
    actions, expected = [], []
    for slot, (header, records) in enumerate(parts):
        flags = keep[first_rows[slot] : first_rows[slot + 1]]
        stays = [record for record, flag in zip(records, flags, strict=True) if flag]
        if len(stays) == len(records) and (horizon is None or not stays):
            actions.append(COPY)
            expected.append((header.base_offset, header.last_offset, stays))
        elif stays:
            actions.append(REWRITE)
            expected.append((header.base_offset, header.last_offset, stays))
        elif slot % 2:
            actions.append(EMPTY)
            expected.append((header.base_offset, header.last_offset, []))
        else:
            actions.append(DROP)
    count = len(parts)
    room = bytearray(max(0, max_output_bytes(columns, memoryview(buffer).nbytes)))
    try:
        size = write_retained(
            buffer,
            0,
            np.array(actions, np.uint8),
            first_rows,
            np.full(count, horizon is not None, np.uint8),
            np.full(count, horizon or 0, np.int64),
            columns,
            keep,
            room,
        )
    except (CorruptRecordError, InvalidRecordError):
        assert is_damaged
        return
    if is_damaged:
        return
    for (start, header), (base, last, stays) in zip(
        reference.scan_batches(bytes(room[:size]), check_crc=False).batches, expected, strict=True
    ):
        assert (base, last) == (header.base_offset, header.last_offset)
        payload = bytes(room[start + 61 : start + header.size_bytes])
        found = reference_records.decode(payload, header)
        assert [_row(record) for record in stays] == [_row(record) for record in found]


def _row(record: Decoded) -> tuple[object, ...]:
    entry = record.entry
    return record.offset, record.timestamp, entry.key, entry.value, entry.headers
