"""Segments that nothing stays of: a broker's look-ups by time pass over them."""

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
    """Append three segments: keys that are kept, keys that are replaced, and what replaces them."""
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
    """
    Look a time up as a broker does: in the first segment whose largest time is late enough.

    Of a segment without records that is the time of its file, and no other segment is asked.
    """
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
    """Return the segments without a byte, but the active one."""
    return [path for path in sorted(directory.glob("*.log"))[:-1] if not path.stat().st_size]


def compact(directory: Path, **settings: Any) -> None:
    """Fill a log, and clean it so that a segment in its middle is left empty."""
    with manual_log(directory, **(COMPACT | {"segment_bytes": 600} | settings)) as log:
        fill(log)
        compact_log(log, memory_bytes=1 << 16)


def test_empty_segment_of_a_cleaning_stops_no_look_up_of_a_broker(tmp_path: Path) -> None:
    """INT-5: its file is older than any record, so the segment behind it is asked."""
    directory = tmp_path / "orders-0"
    compact(directory)
    assert [f"{KEYS:020d}.log"] == [path.name for path in emptied(directory)]
    with manual_log(directory, read_only=True) as log:
        for record in log.records():
            found = log.offset_for_timestamp(record.timestamp_ms)
            assert (record.timestamp_ms, record.offset) == (found and tuple(found)[:2])
            expected = record.timestamp_ms, record.offset
            assert expected == answer_of_a_broker(log, record.timestamp_ms)


def test_empty_segment_is_no_older_where_times_of_files_count(tmp_path: Path) -> None:
    """INT-5: retention by time would delete it at once, and the log start would move with it."""
    directory = tmp_path / "orders-0"
    compact(directory, cleanup_policy=("compact", "delete"))
    (path,) = emptied(directory)
    assert path.stat().st_mtime_ns > 0


@pytest.mark.parametrize("magic", [0, 1])
def test_empty_segment_behind_old_formats_is_no_older(tmp_path: Path, magic: int) -> None:
    """INT-5: how long their tombstones stay hangs on the times of files."""
    directory = tmp_path / "orders-0"
    write_chapters(directory, chapters_of([(magic, 0, 1)] * KEYS))
    with manual_log(directory, **COMPACT, segment_bytes=600) as log:
        log.roll()
        fill(log)
        compact_log(log, memory_bytes=1 << 16)
    assert emptied(directory)
    assert all(path.stat().st_mtime_ns > 0 for path in emptied(directory))
