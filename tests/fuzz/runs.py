"""Fast paths over runs of batches: direct Arrow columns, look-ups of records, and cleanings.

Each leaves some batches to a slow path. Its results equal the reference's, and it stops for a
reason that the reference confirms.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import numpy as np

from kafkalog._core.arrow_decode import ArrowBatchRun
from kafkalog._core.index import OffsetIndexView, TimeIndexView
from kafkalog._core.point_read import PointReader
from kafkalog._core.record import Record
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import KafkaLogError
from tests.fuzz.inputs import Choices, mended
from tests.fuzz.rows import builder_of, names_of
from tests.support import reference, reference_messages, reference_records
from tests.support.arrow_consumer import cells_of
from tests.support.buffers import exact
from tests.support.cleaning import SegmentCleaning
from tests.support.reference import Header
from tests.support.reference_records import Refused
from tests.support.row_cases import expected_rows, rows_of

__all__ = ["build_runs", "clean_runs", "look_up"]

INT64_MAX = 2**63 - 1
# Sizes of offset and timestamp of an index entry, and of a whole entry.
ENTRY_BYTES = 8


# ---- directly to columns --------------------------------------------------------------------


def build_runs(data: bytes) -> None:
    """Plain batches become the reference's rows, up to the first that is not plain or outside."""
    choices = Choices(data)
    mends, check_crc, has_start, has_end = choices.flags(4)
    names = names_of(choices)
    builder = builder_of(choices, names, text_keys=False)
    start = choices.number(2) if has_start else 0
    end = choices.number(2) if has_end else INT64_MAX
    octets = mended(choices.rest) if mends else choices.rest
    run = ArrowBatchRun(
        exact(octets), 0, len(octets), check_crc=check_crc, offset_min=start, offset_end=end
    )
    if not builder.can_add_runs:
        return
    batches = []
    while (status := builder.add_run(run)) == STATUS_CODES["FULL"]:
        batches.append(cells_of(builder.finish()))
    if len(builder):
        batches.append(cells_of(builder.finish()))
    rows, count, verdict = _plain_rows(octets, names, start, end, check_crc=check_crc)
    assert (rows, count) == (rows_of(batches), run.batch_count)
    assert (verdict == "OK") == (status == 0)
    if status == STATUS_CODES["CRC"]:
        assert verdict == "CRC"


def _plain_rows(
    octets: bytes, names: list[str], start: int, end: int, *, check_crc: bool
) -> tuple[list[tuple[Any, ...]], int, str]:
    """Return rows and batch count of a run by the reference, and the reason for its end."""
    rows: list[tuple[Any, ...]] = []
    count = position = 0
    while position < len(octets):
        verdict, header = reference.whole_batch(octets[position:])
        if verdict != "OK" or header is None:
            return rows, count, verdict
        elsewhere = header.magic != 2 or header.attributes & 7
        if elsewhere or header.base_offset < start or header.last_offset >= end:
            return rows, count, "ELSEWHERE"
        batch = octets[position : position + header.size_bytes]
        if check_crc and reference.check_batch(batch) != "OK":
            return rows, count, "CRC"
        try:
            rows += expected_rows(batch[61:], header, names)
        except Refused as refused:
            return rows, count, refused.verdict
        count += 1
        start = header.last_offset + 1
        position += header.size_bytes
    return rows, count, "OK"


# ---- to one record ----------------------------------------------------------------------------


def look_up(data: bytes) -> None:
    """A record at an offset, several records, a record at a time: the reference's, or None."""
    choices = Choices(data)
    mends, has_index, is_near = choices.flags(3)
    target = choices.number(1 if is_near else 8)
    entry_timestamp, entry_offset = choices.number(2), choices.number(2)
    entries = choices.take(ENTRY_BYTES * (choices.byte() % 4)) if has_index else b""
    octets = mended(choices.rest) if mends else choices.rest
    index = OffsetIndexView(exact(entries), 0)
    times = TimeIndexView(exact(struct.pack(">qi", entry_timestamp, entry_offset)), 0)
    reader = PointReader(exact(octets), index, times)
    # Only headers are read to find a batch; only the CRC of that batch is checked.
    walk = reference.scan_batches(octets, check_crc=False, check_order=False)
    rows, is_corrupt = _rows_of_walk(octets, walk.batches)
    # If two batches have an offset, either may be found, depending on earlier look-ups.
    is_clear = all(
        before.last_offset < header.base_offset
        for (_, before), (_, header) in pairwise(walk.batches)
    )
    offsets = sorted({target, *(row[0] for row in rows)} - {-1})[:20]
    singles = [reader.find(offset) for offset in offsets]
    many: list[Record | None] = [None] * len(offsets)
    reader.find_many(np.array(offsets, np.int64), many, 0, len(offsets))
    for offset, single, other in zip(offsets, singles, many, strict=True):
        for found in (single, other):
            assert found is None or found.offset == offset
            # A record before the corrupt one of its batch is found; the CRC is valid.
            if found is not None and not has_index and not is_corrupt:
                assert (offset, found.timestamp_ms, found.key, found.value) in rows
        if is_clear and single is not None and other is not None:
            assert single == other
    when = reader.find_time(target)
    if when is not None:
        timestamp, offset, _ = when
        assert timestamp >= target and offset >= 0
        # Records after it in its batch are not read.
        if not has_index and not is_corrupt:
            assert (offset, timestamp) in {row[:2] for row in rows}


Row = tuple[int, int, bytes | None, bytes | None]


def _rows_of_walk(octets: bytes, batches: tuple[tuple[int, Header], ...]) -> tuple[set[Row], bool]:
    """Return the records of plain batches and messages, and whether one cannot be read."""
    rows: set[Row] = set()
    is_corrupt = False
    for start, header in batches:
        entry = octets[start : start + header.size_bytes]
        if header.attributes & 7 or reference.check_batch(entry) != "OK":
            continue
        try:
            if header.magic == 2:
                decoded = reference_records.decode(entry[61:], header)
                rows |= {(r.offset, r.timestamp, r.entry.key, r.entry.value) for r in decoded}
            else:
                messages = reference_messages.decode_entry(entry, header)
                rows |= {(r.offset, r.timestamp, r.key, r.value) for r in messages}
        except Refused:
            is_corrupt = True
    return rows, is_corrupt


# ---- cleanings --------------------------------------------------------------------------------


def clean_runs(data: bytes) -> None:
    """A run of whole batches with any records: the slow path has the same result."""
    choices = Choices(data)
    tombstones_stay, has_horizon, is_narrow = choices.flags(3)
    entries, dirty, now_ms = 1 + choices.byte() % 16, choices.byte(), choices.number(8)
    octets = mended(choices.rest)
    walk = reference.scan_batches(octets)
    run = octets[: walk.position]
    cleaning = SegmentCleaning(
        end_offset=walk.next_offset,
        first_dirty=min(dirty, walk.next_offset),
        now_ms=now_ms if has_horizon else 0,
        old_tombstones_stay=tombstones_stay,
        entries=entries,
        max_message_bytes=200 if is_narrow else 1 << 20,
    )
    try:
        cleaned = cleaning.clean([run])
    except KafkaLogError:
        return
    kept = reference.scan_batches(cleaned.data)
    assert (kept.status, kept.position) == ("OK", len(cleaned.data))
