"""Tests of segments that lost all records: a broker's look-ups by time skip them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog import Log, Record
from kafkalog.cleaner.compaction import compact_log
from kafkalog.log.log import partition_of
from tests.support.logs import manual_log
from tests.support.manual_time import START_MS
from tests.support.old_logs import chapters_of, write_chapters

COMPACT: dict[str, Any] = {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.0}
KEYS = 10


def fill(log: Log) -> None:
    """Append three segments: retained keys, replaced keys, and the records that replace them."""
    for round_number, kind in enumerate((b"kept", b"replaced", b"replaced")):
        first_ms = START_MS + 1000 * round_number
        log.append(
            [
                Record(
                    key=b"%s %d" % (kind, number), value=bytes(30), timestamp_ms=first_ms + number
                )
                for number in range(KEYS)
            ]
        )
        log.roll()


def answer_of_a_broker(log: Log, timestamp_ms: int) -> tuple[int, int] | None:
    """Look a time up as a broker does, which takes the file time for a segment without records."""
    for segment in partition_of(log).view.snapshot().segments.segments:
        largest = segment.max_timestamp
        if largest < 0:
            largest = segment.path.stat().st_mtime_ns // 1_000_000
        if largest >= timestamp_ms:
            end = segment.base_offset + KEYS
            for record in log.records(segment.base_offset, min(end, log.log_end_offset)):
                if record.timestamp_ms >= timestamp_ms:
                    return record.timestamp_ms, record.offset
            return None
    return None


def emptied(directory: Path) -> list[Path]:
    """Return the empty segments, but for the active one."""
    return [path for path in sorted(directory.glob("*.log"))[:-1] if not path.stat().st_size]


def compact(directory: Path, **settings: Any) -> None:
    """Fill a log, and clean it so that a segment in its middle is empty."""
    with manual_log(directory, **(COMPACT | {"segment_bytes": 600} | settings)) as log:
        fill(log)
        compact_log(log, memory_bytes=1 << 16)


def test_empty_segment_after_a_cleaning_is_skipped_by_a_brokers_look_up(tmp_path: Path) -> None:
    """INT-5: its file is older than any record, so the next segment is searched."""
    directory = tmp_path / "orders-0"
    compact(directory)
    assert [f"{KEYS:020d}.log"] == [path.name for path in emptied(directory)]
    with manual_log(directory, read_only=True) as log:
        for record in log.records():
            found = log.offset_for_timestamp(record.timestamp_ms)
            assert (record.timestamp_ms, record.offset) == (found and tuple(found)[:2])
            expected = record.timestamp_ms, record.offset
            assert expected == answer_of_a_broker(log, record.timestamp_ms)


def test_empty_segment_is_not_older_if_retention_uses_file_times(tmp_path: Path) -> None:
    """INT-5: retention by time would delete it at once, and move the log start with it."""
    directory = tmp_path / "orders-0"
    compact(directory, cleanup_policy=("compact", "delete"))
    (path,) = emptied(directory)
    assert path.stat().st_mtime_ns > 0


@pytest.mark.parametrize("magic", [0, 1])
def test_empty_segment_after_old_formats_is_not_older(tmp_path: Path, magic: int) -> None:
    """INT-5: the horizon of their tombstones depends on file times."""
    directory = tmp_path / "orders-0"
    write_chapters(directory, chapters_of([(magic, 0, 1)] * KEYS))
    with manual_log(directory, **COMPACT, segment_bytes=600) as log:
        log.roll()
        fill(log)
        compact_log(log, memory_bytes=1 << 16)
    assert emptied(directory)
    assert all(path.stat().st_mtime_ns > 0 for path in emptied(directory))
