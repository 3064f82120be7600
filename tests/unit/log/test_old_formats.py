"""Logs of magic 0, 1 and 2, in one segment and over several: read, cut, followed, looked up.

A wrapper has the offset of its last record. Code that takes it for the offset of the first one
would serve too little, cut too late, or stop one batch early.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkalog import CorruptRecordError, Log, Record
from kafkalog.files.names import CLEAN_SHUTDOWN_MARKER, SegmentFiles
from kafkalog.log.lookup import MAX_TIMESTAMP
from kafkalog.records.codecs import Codec
from tests.support.damage import log_file
from tests.support.logs import expected_indexes, manual_log
from tests.support.old_logs import (
    LOG_KINDS,
    Chapter,
    OldFact,
    chapter,
    chapters_of,
    fact_of,
    facts_of,
    write_chapters,
)

FIRST = 40
EVERY_KIND = pytest.mark.parametrize("kind", LOG_KINDS)


def plan_of(kind: str) -> list[Chapter]:
    return chapters_of(LOG_KINDS[kind], first_offset=FIRST)


def read_all(log: Log) -> list[OldFact]:
    return [fact_of(record) for record in log.records()]


def write_two_segments(directory: Path, chapters: list[Chapter]) -> None:
    """Write entries as a log of two segments, with half of them in each."""
    half = len(chapters) // 2
    write_chapters(directory, chapters[:half])
    write_chapters(directory, chapters[half:])


def test_every_pair_of_magics_and_codecs_is_read(
    tmp_path: Path,
) -> None:
    """In one segment and over two: format and codec may change while a log is in use."""
    kinds = [
        (magic, codec)
        for magic in (0, 1, 2)
        for codec in Codec
        if magic == 2 or codec != Codec.ZSTD
    ]
    plan = [each for pair in ((a, b) for a in kinds for b in kinds) for each in pair]
    chapters = chapters_of((magic, codec, 3 if magic == 2 or codec else 1) for magic, codec in plan)
    one, two = tmp_path / "one-0", tmp_path / "two-0"
    write_chapters(one, chapters)
    for number in range(0, len(chapters), 7):
        write_chapters(two, chapters[number : number + 7])
    for directory in (one, two):
        with manual_log(directory, index_interval_bytes=500) as log:
            assert facts_of(chapters) == read_all(log)
            assert len(chapters) == log.recovery_report.scanned_batches
            assert () == (*log.corrupt_ranges(), *log.recovery_report.cut)


@EVERY_KIND
def test_read_from_any_offset_inside_wrappers(directory: Path, kind: str) -> None:
    """`records`, `batches`, `read` and `get`, with a start and an end at every record."""
    chapters = plan_of(kind)
    write_two_segments(directory, chapters)
    facts = facts_of(chapters)
    with manual_log(directory) as log:
        for number, fact in enumerate(facts):
            offset = fact[0]
            holder = next(each for each in chapters if each.last_offset >= offset)
            assert facts[number:] == [fact_of(record) for record in log.records(offset)]
            assert facts[: number + 1] == [
                fact_of(record) for record in log.records(FIRST, offset + 1)
            ]
            [batch] = log.batches(offset, offset + 1)
            assert holder.data == bytes(batch.data)
            fetched = log.read(offset, max_bytes=1)
            assert holder.data == bytes(fetched.data)
            assert (holder.first_offset, holder.last_offset + 1) == (
                fetched.first_offset,
                fetched.next_offset,
            )
            assert [each for each in holder.facts if each[0] >= offset] == [
                fact_of(record) for record in fetched.records()
            ]
            for _again in range(2):
                record = log.get(offset)
                assert record is not None
                assert fact == fact_of(record)


@EVERY_KIND
def test_time_look_up_finds_records_inside_wrappers(directory: Path, kind: str) -> None:
    """The first at or above each time; records of magic 0 have no time."""
    chapters = plan_of(kind)
    write_two_segments(directory, chapters)
    timed = [fact for fact in facts_of(chapters) if fact[1] >= 0]
    with manual_log(directory) as log:
        for timestamp in (0, *(time + late for _, time, *_ in timed for late in (0, 1))):
            expected = next((fact[:2] for fact in timed if fact[1] >= timestamp), None)
            found = log.offset_for_timestamp(timestamp)
            assert expected == (None if found is None else (found.offset, found.timestamp_ms))
        latest = log.offset_for_timestamp(MAX_TIMESTAMP)
        assert (timed[-1][0] if timed else None) == (None if latest is None else latest.offset)


@EVERY_KIND
def test_recovery_writes_the_indexes_of_a_broker(directory: Path, kind: str) -> None:
    """An entry with a batch's last offset after each interval; the largest time so far."""
    chapters = chapters_of(LOG_KINDS[kind] * 6, first_offset=FIRST)
    half = len(chapters) // 2
    write_two_segments(directory, chapters)
    with manual_log(directory, index_interval_bytes=150, segment_bytes=100) as log:
        assert 2 == log.recovery_report.scanned_segments
        log.roll()
    for base_offset in (FIRST, chapters[half].first_offset):
        files = SegmentFiles(directory, base_offset)
        offsets, times = files.offset_index.read_bytes(), files.time_index.read_bytes()
        assert expected_indexes(directory, base_offset, 150) == (offsets, times)
        assert len(offsets) >= 8
        assert (kind in ("v0", "v0-wrappers")) == (times == b"")


@EVERY_KIND
def test_truncation_cuts_the_entry_that_reaches_the_offset(tmp_path: Path, kind: str) -> None:
    """At its position, as a broker does: a wrapper loses its earlier records as well."""
    chapters = plan_of(kind)
    original = tmp_path / "original-0"
    write_two_segments(original, chapters)
    (original / CLEAN_SHUTDOWN_MARKER).touch()
    for offset in range(FIRST, chapters[-1].last_offset + 1):
        directory = tmp_path / f"cut{offset}-0"
        shutil.copytree(original, directory)
        kept = [each for each in chapters if each.last_offset < offset]
        with manual_log(directory) as log:
            assert offset == log.truncate_to(offset)
            assert facts_of(kept) == read_all(log)
            assert (FIRST, offset) == (log.log_start_offset, log.log_end_offset)
            assert offset == log.append([Record(value=b"new")]).first_offset
        stored = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
        assert stored.startswith(b"".join(each.data for each in kept))
        with manual_log(directory) as log:
            assert facts_of(kept) == read_all(log)[:-1]
            assert (offset, b"new") == (read_all(log)[-1][0], read_all(log)[-1][4])


@EVERY_KIND
def test_log_start_inside_a_wrapper_hides_earlier_records(directory: Path, kind: str) -> None:
    """For reads and look-ups, and the same after a restart and after a crash."""
    chapters = plan_of(kind)
    write_two_segments(directory, chapters)
    facts = facts_of(chapters)
    for start in range(FIRST + 1, chapters[-1].last_offset + 1):
        visible = [fact for fact in facts if fact[0] >= start]
        timed = [fact for fact in visible if fact[1] >= 0]
        with manual_log(directory) as log:
            assert start == log.delete_records(start)
            assert visible == read_all(log)
            found = log.offset_for_timestamp(0)
            assert (timed[0][0] if timed else None) == (None if found is None else found.offset)
        if start % 3 == 0:
            (directory / CLEAN_SHUTDOWN_MARKER).unlink()
        with manual_log(directory, read_only=True) as log:
            assert (start, visible) == (log.log_start_offset, read_all(log))


@EVERY_KIND
def test_reader_follows_a_growing_log_of_old_formats(directory: Path, kind: str) -> None:
    """Byte by byte: a whole entry is seen, and never a part of a wrapper."""
    chapters = plan_of(kind)
    half = len(chapters) // 2
    path = write_chapters(directory, chapters[:half])
    with manual_log(directory, read_only=True) as log, path.open("ab", buffering=0) as file:
        for number in range(half, len(chapters)):
            data = chapters[number].data
            for cut in (1, 12, 25, len(data) - 1):
                file.write(data[:cut])
                assert chapters[number].first_offset == log.log_end_offset
                file.truncate(path.stat().st_size - cut)
            file.write(data)
            assert chapters[number].last_offset + 1 == log.log_end_offset
            assert facts_of(chapters[: number + 1]) == read_all(log)
    write_chapters(directory, [chapter(0, Codec.GZIP, range(90, 95))])
    with manual_log(directory, read_only=True) as log:
        assert 95 == log.log_end_offset


def test_append_after_any_format_is_v2_in_the_same_segment(tmp_path: Path) -> None:
    """As in the log of an upgraded broker; also after a crash."""
    for kind in LOG_KINDS:
        directory = tmp_path / f"{kind}-0"
        chapters = plan_of(kind)
        path = write_chapters(directory, chapters)
        size = path.stat().st_size
        with manual_log(directory) as log:
            info = log.append([Record(key=b"a", value=b"b"), Record(key=b"c", value=b"d")])
            assert (chapters[-1].last_offset + 1, 2) == (info.first_offset, info.record_count)
            assert [path] == [segment.path for segment in log.segments()]
        assert path.stat().st_size > size
        (directory / CLEAN_SHUTDOWN_MARKER).unlink()
        with manual_log(directory) as log:
            assert facts_of(chapters) == read_all(log)[:-2]
            assert [b"b", b"d"] == [fact[4] for fact in read_all(log)[-2:]]


@pytest.mark.parametrize("magic", [0, 1])
def test_read_of_a_compacted_offset_returns_the_next_record(directory: Path, magic: int) -> None:
    """Offsets below a wrapper's first record, and between two of its records."""
    chapters = [
        chapter(magic, Codec.GZIP, (3, 7, 8)),
        chapter(magic, Codec.NONE, (15,)),
        chapter(magic, Codec.LZ4, (20, 29)),
        chapter(2, Codec.GZIP, (33, 34)),
    ]
    path = write_chapters(directory, chapters, base_offset=0)
    facts = facts_of(chapters)
    with manual_log(directory, index_interval_bytes=0) as log:
        for offset in range(35):
            following = [fact for fact in facts if fact[0] >= offset]
            assert following == [fact_of(record) for record in log.records(offset)]
            assert following[0] == fact_of(next(log.read(offset).records()))
            record = log.get(offset)
            assert (following[0] if following[0][0] == offset else None) == (
                None if record is None else fact_of(record)
            )
        assert () == log.corrupt_ranges()
    assert log_file(directory) == path


def test_index_entry_after_the_wrapper_with_the_offset_is_not_used(directory: Path) -> None:
    """The entry leads to a later wrapper; the one before it leads to the right one."""
    chapters = chapters_of([(1, Codec.GZIP, 5)] * 4)
    write_chapters(directory, chapters)
    (directory / CLEAN_SHUTDOWN_MARKER).touch()
    sizes = [len(each.data) for each in chapters]
    lying = [(4, 0), (6, sizes[0] + sizes[1]), (16, sum(sizes[:3]))]
    SegmentFiles(directory, 0).offset_index.write_bytes(
        b"".join(offset.to_bytes(4) + position.to_bytes(4) for offset, position in lying)
    )
    with manual_log(directory, read_only=True) as log:
        for fact in facts_of(chapters):
            record = log.get(fact[0])
            assert record is not None
            assert fact == fact_of(record)


def test_wrong_wrapper_offset_that_overlaps_the_next_is_damage(
    directory: Path,
) -> None:
    """No CRC covers it. The two contradict each other, and the other leaves no hole."""
    chapters = chapters_of([(1, Codec.GZIP, 4), (1, Codec.LZ4, 6), (1, Codec.NONE, 1)])
    path = write_chapters(directory, chapters)
    data = path.read_bytes()
    path.write_bytes((6).to_bytes(8) + data[8:])
    with manual_log(directory) as log:
        with pytest.raises(CorruptRecordError) as caught:
            next(log.records())
        assert (str(path), 0) == (caught.value.path, caught.value.position)
        with pytest.raises(CorruptRecordError):
            list(log.read(0).records())
        assert facts_of(chapters[1:]) == [fact_of(each) for each in log.records(on_corrupt="skip")]


def test_wrong_v0_wrapper_offset_loses_that_wrapper(directory: Path) -> None:
    """Its records have their own offsets: a read raises, and skip reports a corrupt range."""
    chapters = chapters_of([(0, Codec.GZIP, 4), (0, Codec.LZ4, 6), (0, Codec.NONE, 1)])
    path = write_chapters(directory, chapters)
    data = path.read_bytes()
    path.write_bytes((6).to_bytes(8) + data[8:])
    with manual_log(directory) as log:
        with pytest.raises(CorruptRecordError) as caught:
            next(log.records())
        assert (str(path), 0) == (caught.value.path, caught.value.position)
        found = [fact_of(record) for record in log.records(on_corrupt="skip")]
        assert facts_of(chapters[1:]) == found
        assert [(0, 4)] == [
            (corrupt_range.first_offset, corrupt_range.next_offset)
            for corrupt_range in log.corrupt_ranges()
        ]
