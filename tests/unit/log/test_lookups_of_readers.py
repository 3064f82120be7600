"""Limits of `get` and of look-ups by time: high watermark, last stable offset, aborts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Log,
    OffsetOutOfRangeError,
    Record,
)
from kafkalog.log.isolation import Isolation
from kafkalog.log.log import partition_of
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import START_MS
from tests.support.producing import Client, committed_offsets

SMALL: dict[str, Any] = {"segment_bytes": 400, "index_interval_bytes": 100}


def got(log: Log, isolation: Isolation = "read_uncommitted") -> list[int]:
    """Return the offsets at which `get` finds a record."""
    offsets = range(log.log_start_offset, log.log_end_offset + 1)
    return [n for n in offsets if log.get(n, isolation=isolation) is not None]


def looked_up(log: Log, timestamp_ms: int, isolation: Isolation = "read_uncommitted") -> int | None:
    """Return the offset that a look-up by time finds."""
    found = log.offset_for_timestamp(timestamp_ms, isolation=isolation)
    return None if found is None else found.offset


def test_get_at_or_above_the_high_watermark_finds_nothing(tmp_path: Path) -> None:
    """Also with a cached reader of the segment; without a watermark all records are found."""
    with manual_log(tmp_path / "orders-0", **SMALL) as log:
        for number in range(12):
            log.append(numbered(number, 1))
        assert list(range(12)) == got(log) == got(log)
        for high_watermark in (5, 0, 12, 7):
            assert high_watermark == log.set_high_watermark(high_watermark)
            assert list(range(high_watermark)) == got(log) == got(log)
        log.set_high_watermark(None)
        assert list(range(12)) == got(log)
        with pytest.raises(OffsetOutOfRangeError):
            log.get(13, isolation="read_committed")


def test_get_during_a_new_high_watermark_caches_no_old_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-up began before the watermark was set: its reader must not stay in the cache."""
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 4))
        segment = log.segments()[0]
        point_reader: Callable[..., Any] = segment.point_reader

        def set_meanwhile(bound: object) -> object:
            log.set_high_watermark(1)
            return point_reader(bound)

        monkeypatch.setattr(
            type(segment), "point_reader", lambda _self, bound: set_meanwhile(bound)
        )
        assert log.get(3) is not None
        assert [0] == got(log)


def test_get_read_committed_finds_what_readers_see(tmp_path: Path) -> None:
    """Neither aborted records, nor records above the last stable offset."""
    first, second = Client(7), Client(8)
    with manual_log(tmp_path / "orders-0", **SMALL) as log:
        log.append(numbered(0, 2))
        first.send(log, 2, transactional=True)
        second.send(log, 3, transactional=True)
        first.end(log, "abort")
        log.append(numbered(2, 2))
        assert [0, 1] == committed_offsets(log) == got(log, "read_committed")
        second.end(log, "commit")
        assert [0, 1, 4, 5, 6, 8, 9] == committed_offsets(log) == got(log, "read_committed")
        assert [0, 1, 2, 3, 4, 5, 6, 8, 9] == got(log)
    with manual_log(tmp_path / "orders-0", read_only=True, **SMALL) as log:
        assert committed_offsets(log) == got(log, "read_committed")


def test_latest_offset_depends_on_the_isolation(tmp_path: Path) -> None:
    """As a broker answers a consumer; the earliest offset is the same for all."""
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 2))
        Client(7).send(log, 2, transactional=True)
        log.append(numbered(2, 2))
        assert 6 == looked_up(log, LATEST_TIMESTAMP)
        assert 2 == looked_up(log, LATEST_TIMESTAMP, "read_committed")
        log.set_high_watermark(3)
        assert 3 == looked_up(log, LATEST_TIMESTAMP)
        assert 2 == looked_up(log, LATEST_TIMESTAMP, "read_committed")
        log.set_high_watermark(1)
        assert 1 == looked_up(log, LATEST_TIMESTAMP, "read_committed")
        assert 0 == looked_up(log, EARLIEST_TIMESTAMP, "read_committed")


@pytest.mark.parametrize("segment_bytes", [200, 1 << 20])
@pytest.mark.parametrize("batch_count", [1, 3])
def test_time_look_up_finds_visible_records_only(
    tmp_path: Path, segment_bytes: int, batch_count: int
) -> None:
    """Every limit with every time, also the largest; within a batch, and over segments."""
    times = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 9, 7]
    with manual_log(
        tmp_path / "orders-0", index_interval_bytes=0, segment_bytes=segment_bytes
    ) as log:
        for first in range(0, len(times), batch_count):
            part = times[first : first + batch_count]
            log.append([Record(value=b"x", timestamp_ms=START_MS + time) for time in part])
        log.delete_records(1)
        for limit in range(1, len(times) + 1):
            log.set_high_watermark(limit)
            seen = list(enumerate(times))[1:limit]
            for time in range(11):
                expected = next((offset for offset, each in seen if each >= time), None)
                assert expected == looked_up(log, START_MS + time)
            largest = max((time for _offset, time in seen), default=None)
            first_offset = next((offset for offset, time in seen if time == largest), None)
            assert first_offset == looked_up(log, MAX_TIMESTAMP)


def test_largest_time_ignores_an_append_after_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The active segment has a larger timestamp than the snapshot of the reader."""
    with manual_log(tmp_path / "orders-0") as log:
        log.append([Record(value=b"x", timestamp_ms=START_MS + 5)])
        before = partition_of(log).view.snapshot()
        log.append([Record(value=b"x", timestamp_ms=START_MS + 9)])
        monkeypatch.setattr(partition_of(log).view, "snapshot", lambda: before)
        assert 0 == looked_up(log, MAX_TIMESTAMP)


def test_records_above_the_high_watermark_are_not_deleted(tmp_path: Path) -> None:
    """Neither by a call nor by retention; those below it are."""
    with manual_log(tmp_path / "orders-0", retention_bytes=0, **SMALL) as log:
        for number in range(12):
            log.append(numbered(number, 1))
        assert [0, 5, 10] == [segment.base_offset for segment in log.segments()]
        log.set_high_watermark(5)
        with pytest.raises(OffsetOutOfRangeError, match="high watermark 5"):
            log.delete_records(6)
        assert 3 == log.delete_records(3)
        log.apply_retention()
        assert [5, 10] == [segment.base_offset for segment in log.segments()]
        log.set_high_watermark(None)
        assert 12 == log.delete_records(12)
