"""Look-ups of single records that a log has answered before: while it grows, moves, is closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkalog import CorruptRecordError, Log, LogClosedError, Record, TimestampOffset
from kafkalog._core.point_read import PointReader
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_types import Bound
from tests.support.damage import batch_positions, flip, log_file
from tests.support.logs import manual_log

SMALL: dict[str, Any] = {"segment_bytes": 1000, "index_interval_bytes": 100, "batch_bytes": 250}


def append(log: Log, times: list[int]) -> None:
    """Append a record for each time."""
    log.append([Record(value=b"v" * 30, timestamp_ms=time) for time in times])


def check_all(log: Log, times: list[int]) -> None:
    """Hold look-ups of each time, twice, against the times of all records from the start on."""
    start = log.log_start_offset
    for _again in range(2):
        for asked in range(max(times, default=0) + 2):
            answers = ((time, n) for n, time in enumerate(times) if n >= start and time >= asked)
            expected = next(answers, None)
            found = log.offset_for_timestamp(asked)
            assert expected == (found and (found.timestamp_ms, found.offset))
            assert found == log.offset_for_timestamp(asked, check_crcs=False)
            assert found is None or isinstance(found, TimestampOffset)


def test_time_looked_up_again_is_answered_the_same_while_the_log_changes(tmp_path: Path) -> None:
    """It grows, rolls, loses its start and its end; times rise and fall."""
    with manual_log(tmp_path / "orders-0", **SMALL) as log:
        times: list[int] = []
        for part in ([5, 3, 9, 1], [2, 2, 8, 4], [30, 12], [11, 40, 13, 41, 7, 3], [20, 50, 1]):
            times += part
            append(log, part)
            check_all(log, times)
        for _batch in range(6):
            times += [60, 55, 70, 3, 65]
            append(log, times[-5:])
        assert len(log.segments()) > 2
        check_all(log, times)
        log.delete_records_before(2)
        check_all(log, times)
        log.delete_records_before(14)
        check_all(log, times)
        log.truncate_to(40)
        check_all(log, times[:40])
    with manual_log(tmp_path / "orders-0", read_only=True, **SMALL) as log:
        check_all(log, times[:40])


def test_known_time_stops_at_a_new_high_watermark(tmp_path: Path) -> None:
    """What was answered before is nothing that a reader may see now, until it may again."""
    with manual_log(tmp_path / "orders-0", **SMALL) as log:
        append(log, list(range(20)))
        assert TimestampOffset(9, 9, 0) == log.offset_for_timestamp(9)
        log.set_high_watermark(9)
        assert None is log.offset_for_timestamp(9)
        log.set_high_watermark(None)
        assert TimestampOffset(9, 9, 0) == log.offset_for_timestamp(9)


def test_closed_log_answers_nothing_it_knew(tmp_path: Path) -> None:
    """Whatever a look-up had left for the next."""
    with manual_log(tmp_path / "orders-0") as log:
        append(log, [1, 2])
        assert TimestampOffset(2, 1, 0) == log.offset_for_timestamp(2)
        assert log.get(1) is not None
    for ask in (log.get, log.offset_for_timestamp):
        with pytest.raises(LogClosedError):
            ask(1)


def test_log_closed_while_a_look_up_learns_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close has forgotten what was known; what comes behind it must not stay."""
    with manual_log(tmp_path / "orders-0") as log:
        append(log, [1, 2])
        point_reader = log.segments()[0].point_reader

        def close_meanwhile(_segment: LogSegment, bound: Bound) -> PointReader:
            reader = point_reader(bound)
            log.close()
            return reader

        monkeypatch.setattr(LogSegment, "point_reader", close_meanwhile)
        with pytest.raises(LogClosedError):
            log.get(1)
        assert log._points.owner is None


def test_sums_are_not_needed_where_nobody_asks_for_them(tmp_path: Path) -> None:
    """One record at a time and many; by default damage is told, or passed over by time."""
    with manual_log(tmp_path / "orders-0") as log:
        for first in range(0, 9, 3):
            append(log, [first, first + 1, first + 2])
        start, end = batch_positions(log_file(tmp_path / "orders-0"))[1:3]
    flip(log_file(tmp_path / "orders-0"), end - 5)
    with manual_log(tmp_path / "orders-0", read_only=True) as log:
        assert start < end
        found = log.get(4, check_crcs=False)
        assert found is not None
        assert b"v" * 30 == found.value
        assert found == log.get_many([4], check_crcs=False)[0]
        assert TimestampOffset(4, 4, 0) == log.offset_for_timestamp(4, check_crcs=False)
        assert [4, 7] == log.offsets_for_timestamps([4, 7], check_crcs=False).tolist()
        assert TimestampOffset(6, 6, 0) == log.offset_for_timestamp(4)
        assert [6, 6, 7] == log.offsets_for_timestamps([4, 5, 7]).tolist()
        for ask in (log.get, lambda offset: log.get_many(np.array([offset]))):
            with pytest.raises(CorruptRecordError):
                ask(4)
