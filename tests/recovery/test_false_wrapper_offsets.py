"""Wrappers of old formats with a flipped offset, which no CRC covers: all read APIs agree.

The header of a wrapper has only the offset of its last record. Each low bit of each is flipped, and
each read API runs first once, so that it has no cached results of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kafkalog import CorruptRecordError, Log, LogConfig
from kafkalog.records.codecs import Codec
from tests.support.damage import forget_shutdown
from tests.support.logs import manual_log
from tests.support.old_logs import Chapter, chapters_of, facts_of, write_chapters
from tests.support.scanning import rows_of_scan

FIRST = 40
SIZES = (4, 9, 7, 12)
# Entries of the first segment; the last entry is in another segment.
IN_FIRST = 3
Served = dict[int, bytes | None]


def plan(magic: int) -> list[Chapter]:
    """Return wrappers back to back."""
    codecs = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.GZIP)
    entries = [(magic, codec, count) for codec, count in zip(codecs, SIZES, strict=True)]
    return chapters_of(entries, first_offset=FIRST)


def write(directory: Path, chapters: list[Chapter]) -> None:
    """Write two segments as a kill leaves them."""
    base_offset = sum(SIZES[:IN_FIRST]) + FIRST
    write_chapters(directory, chapters[:IN_FIRST], base_offset=FIRST)
    write_chapters(directory, chapters[IN_FIRST:], base_offset=base_offset)


def renamed(chapter: Chapter, bit: int) -> Chapter:
    """Return an entry with a bit of its offset flipped."""
    data = bytearray(chapter.data)
    data[7 - bit // 8] ^= 1 << bit % 8
    return Chapter(bytes(data), chapter.magic, chapter.codec, chapter.facts)


def by_records(log: Log, _: range) -> Served:
    """Read record by record, around damage."""
    return {record.offset: record.value for record in log.records(on_corrupt="skip")}


def by_scan(log: Log, _: range) -> Served:
    """Read columns."""
    rows, error = rows_of_scan(log.scan(columns=["offset", "value"], on_corrupt="skip"))
    assert error is None
    return dict(rows)


def by_batches(log: Log, _: range) -> Served:
    """Read batches, and decode them."""
    batches = log.batches(on_corrupt="skip")
    return {each.offset: each.value for batch in batches for each in batch.records()}


def _looked_up(log: Log, offsets: Iterable[int]) -> Served:
    found: Served = {}
    for offset in offsets:
        try:
            record = log.get(offset)
        except CorruptRecordError:
            continue
        assert record is not None, f"offset {offset} is missing without a word"
        assert record.offset == offset
        found[offset] = record.value
    return found


def by_get(log: Log, offsets: range) -> Served:
    """Look up the offsets in order."""
    return _looked_up(log, offsets)


def by_get_backwards(log: Log, offsets: range) -> Served:
    """Look up the offsets in reverse order."""
    return _looked_up(log, reversed(offsets))


def by_get_many(log: Log, offsets: range) -> Served:
    """Look up with `get_many`, each offset alone, since a lost record raises for all."""
    found: Served = {}
    for offset in offsets:
        try:
            (record,) = log.get_many([offset])
        except CorruptRecordError:
            continue
        assert record is not None, f"offset {offset} is missing without a word"
        found[offset] = record.value
    return found


def by_slices(log: Log, offsets: range) -> Served:
    """Read the slice of each offset, and the first record in it."""
    found: Served = {}
    for offset in offsets:
        try:
            record = next(iter(log.read(offset).records()), None)
        except CorruptRecordError:
            continue
        if record is not None and record.offset == offset:
            found[offset] = record.value
    return found


READ_APIS: tuple[Callable[[Log, range], Served], ...] = (
    by_records,
    by_scan,
    by_batches,
    by_get,
    by_get_backwards,
    by_get_many,
    by_slices,
)


def is_contradicted(magic: int, number: int, bit: int) -> bool:
    """Return whether anything contradicts an offset: in v1 nothing does at the ends of a log."""
    is_raised = not plan(magic)[number].last_offset >> bit & 1
    return magic == 0 or number != (len(SIZES) - 1 if is_raised else 0)


CASES = [
    (magic, number, bit)
    for magic in (0, 1)
    for number in range(len(SIZES))
    for bit in (0, 1, 3)
    if is_contradicted(magic, number, bit)
]


@pytest.mark.parametrize(("magic", "number", "bit"), CASES)
def test_wrapper_with_a_flipped_offset_is_corrupt_for_every_read_api(
    tmp_path: Path, magic: int, number: int, bit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All read APIs serve the same records, and the others are reported."""
    if (number + bit) % 2:
        monkeypatch.setattr("kafkalog.log.segment_file.maps_files", lambda _: False)
    chapters = plan(magic)
    others = {fact[0]: fact[4] for fact in facts_of(chapters[:number] + chapters[number + 1 :])}
    lost = {fact[0] for fact in chapters[number].facts}
    changed = [*chapters]
    changed[number] = renamed(chapters[number], bit)
    for read_api in READ_APIS:
        directory = tmp_path / f"{read_api.__name__}-0"
        write(directory, changed)
        for read_only in (True, False, True):
            with manual_log(directory, read_only=read_only) as log:
                offsets = range(FIRST, FIRST + sum(SIZES))
                assert others == read_api(log, offsets), (read_api.__name__, read_only)
                corrupt_ranges = [
                    (each.first_offset, each.next_offset) for each in log.corrupt_ranges()
                ]
                reported = {offset for first, end in corrupt_ranges for offset in range(first, end)}
                assert lost <= reported, (read_api.__name__, read_only, corrupt_ranges)
                assert log.log_end_offset >= FIRST + sum(SIZES)
    forget_shutdown(directory)
    with manual_log(directory) as log:
        assert others == by_records(log, range(0))
        assert [] == [each for each in log.get_many(sorted(others)) if each is None]


def test_wrappers_with_flipped_offsets_cost_only_themselves(tmp_path: Path) -> None:
    """More than the limit of checks a segment: each is a corrupt range, and the rest is served."""
    chapters = chapters_of([(0, Codec.GZIP, 3)] * 120, first_offset=FIRST)
    lying = range(1, 120, 2)
    changed = [*chapters]
    for number in lying:
        changed[number] = renamed(chapters[number], 0)
    write_chapters(tmp_path / "t-0", changed, base_offset=FIRST)
    with manual_log(tmp_path / "t-0", config=LogConfig()) as log:
        found = by_records(log, range(0))
        lost = {fact[0] for number in lying for fact in chapters[number].facts}
        reported = {
            offset
            for each in log.corrupt_ranges()
            for offset in range(each.first_offset, each.next_offset)
        }
    whole = [each for number, each in enumerate(chapters) if number not in lying]
    assert {fact[0]: fact[4] for fact in facts_of(whole)} == found
    assert lost <= reported
