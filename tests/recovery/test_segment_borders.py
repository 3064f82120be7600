"""Borders of segments: stray files, holes, and offsets beyond 32 bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import Record
from tests.support.damage import batch_positions, forget_shutdown, log_file, truncate
from tests.support.encoded_batches import batch
from tests.support.logs import manual_log, numbered


def fill(directory: Path, count: int) -> None:
    """Write `count` batches of one record, and remove the signs of the orderly close."""
    with manual_log(directory) as log:
        for number in range(count):
            log.append(numbered(number, 1))
    forget_shutdown(directory)


@pytest.mark.parametrize("content", [b"", bytes(100), b"garbage" * 10], ids=["empty", "0", "junk"])
def test_stray_segment_inside_another_costs_no_record(directory: Path, content: bytes) -> None:
    """HOST-7: all records are served, read-only too, and no offset is assigned again."""
    fill(directory, 10)
    log_file(directory, 5).write_bytes(content)
    for read_only in (True, False):
        with manual_log(directory, read_only=read_only) as log:
            assert list(range(10)) == [record.offset for record in log.records()]
            assert 10 == log.log_end_offset
    with manual_log(directory) as log:
        assert 10 == log.append([Record(value=b"new")]).first_offset
    assert not log_file(directory, 5).exists()


def test_empty_stray_segment_after_a_clean_stop_is_removed(directory: Path) -> None:
    """HOST-7: its size shows it, and the end of the segment before is read once."""
    with manual_log(directory) as log:
        for number in range(10):
            log.append(numbered(number, 1))
    log_file(directory, 5).write_bytes(b"")
    with manual_log(directory) as log:
        assert list(range(10)) == [record.offset for record in log.records()]
        assert (log_file(directory, 5),) == log.recovery_report.removed


@pytest.mark.parametrize("is_clean", [True, False])
def test_hole_between_two_segments_is_reported(directory: Path, is_clean: bool) -> None:
    """DUR-4: by recovery in its report; after a clean stop by the reader that passes it."""
    with manual_log(directory) as log:
        for number in range(10):
            log.append(numbered(number, 1))
        log.roll()
        log.append([Record(value=b"later")])
    truncate(log_file(directory), batch_positions(log_file(directory))[5])
    if not is_clean:
        forget_shutdown(directory)
    with manual_log(directory) as log:
        assert is_clean or log.recovery_report.corrupt_ranges
        assert [0, 1, 2, 3, 4, 10] == [record.offset for record in log.records()]
        assert [(5, 10, 0)] == [
            (corrupt_range.first_offset, corrupt_range.next_offset, corrupt_range.size_bytes)
            for corrupt_range in log.corrupt_ranges()
        ]


def test_hole_of_a_compacted_log_is_not_reported(directory: Path) -> None:
    """DUR-4: no false alarm if the settings allow compaction."""
    with manual_log(directory) as log:
        for number in range(10):
            log.append(numbered(number, 1))
        log.roll()
        log.append([Record(value=b"later")])
    truncate(log_file(directory), batch_positions(log_file(directory))[5])
    forget_shutdown(directory)
    with manual_log(directory, cleanup_policy=("compact",)) as log:
        assert 6 == len(list(log.records()))
        assert () == log.corrupt_ranges()


@pytest.mark.parametrize("read_only", [True, False])
def test_overflowing_segment_is_served_whole(directory: Path, read_only: bool) -> None:
    """PAR-1: no whole batch is truncated, and appends continue after it."""
    directory.mkdir()
    far = 2**31 + 5
    log_file(directory).write_bytes(batch(base_offset=0) + batch(base_offset=far))
    with manual_log(directory, read_only=read_only) as log:
        expected = [0, 1, 2, far, far + 1, far + 2]
        assert expected == [record.offset for record in log.records()]
        assert far + 3 == log.log_end_offset
        assert far + 1 == next(log.records(far + 1)).offset
        assert () == log.recovery_report.cut
        if not read_only:
            assert far + 3 == log.append([Record(value=b"new")]).first_offset
    if not read_only:
        for _again in range(2):
            with manual_log(directory) as log:
                assert [*expected, far + 3] == [record.offset for record in log.records()]
            forget_shutdown(directory)
