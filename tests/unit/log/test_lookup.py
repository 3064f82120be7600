"""Repeated look-ups of single records, while the log grows, changes and closes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkalog import CorruptRecordError, FetchData, Log, LogClosedError, Record, TimestampOffset
from kafkalog._core.point_read import PointReader
from kafkalog._engine.snapshot import ReadBound
from kafkalog.log.log import partition_of
from kafkalog.log.reading import fetch
from kafkalog.log.segment import LogSegment
from tests.support.damage import batch_positions, flip, log_file
from tests.support.logs import manual_log

SMALL: dict[str, Any] = {"segment_bytes": 1000, "index_interval_bytes": 100, "batch_bytes": 250}


def append(log: Log, times: list[int]) -> None:
    """Append a record for each time."""
    log.append([Record(value=b"v" * 30, timestamp_ms=time) for time in times])


def check_all(log: Log, times: list[int]) -> None:
    """Compare look-ups of each time, twice, with the times of all records from the log start on."""
    start = log.log_start_offset
    for _again in range(2):
        for target in range(max(times, default=0) + 2):
            answers = ((time, n) for n, time in enumerate(times) if n >= start and time >= target)
            expected = next(answers, None)
            found = log.offset_for_timestamp(target)
            assert expected == (found and (found.timestamp_ms, found.offset))
            assert found == log.offset_for_timestamp(target, check_crcs=False)
            assert found is None or isinstance(found, TimestampOffset)


def test_repeated_time_look_up_is_right_while_the_log_changes(tmp_path: Path) -> None:
    """The log grows, rolls, loses records at both ends; times rise and fall."""
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
        log.delete_records(2)
        check_all(log, times)
        log.delete_records(14)
        check_all(log, times)
        log.truncate_to(40)
        check_all(log, times[:40])
    with manual_log(tmp_path / "orders-0", read_only=True, **SMALL) as log:
        check_all(log, times[:40])


def test_cached_time_look_up_respects_a_new_high_watermark(tmp_path: Path) -> None:
    """An earlier answer above the watermark is hidden until the watermark is removed."""
    with manual_log(tmp_path / "orders-0", **SMALL) as log:
        append(log, list(range(20)))
        assert TimestampOffset(9, 9, 0) == log.offset_for_timestamp(9)
        log.set_high_watermark(9)
        assert None is log.offset_for_timestamp(9)
        log.set_high_watermark(None)
        assert TimestampOffset(9, 9, 0) == log.offset_for_timestamp(9)


def test_closed_log_answers_no_cached_look_up(tmp_path: Path) -> None:
    """Cached readers of earlier look-ups are not used."""
    with manual_log(tmp_path / "orders-0") as log:
        append(log, [1, 2])
        assert TimestampOffset(2, 1, 0) == log.offset_for_timestamp(2)
        assert log.get(1) is not None
    for ask in (log.get, log.offset_for_timestamp):
        with pytest.raises(LogClosedError):
            ask(1)


def test_log_closed_during_a_look_up_keeps_no_cached_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close clears the cache; a reader that arrives after it must not stay."""
    with manual_log(tmp_path / "orders-0") as log:
        append(log, [1, 2])
        point_reader = log.segments()[0].point_reader

        def close_meanwhile(_segment: LogSegment, bound: ReadBound) -> PointReader:
            reader = point_reader(bound)
            log.close()
            return reader

        monkeypatch.setattr(LogSegment, "point_reader", close_meanwhile)
        with pytest.raises(LogClosedError):
            log.get(1)
        assert partition_of(log).lookup.table.readers is None


def test_look_up_without_crc_check_reads_damaged_batches(tmp_path: Path) -> None:
    """Of one record and of many. By default damage raises, and look-ups by time skip it."""
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


def slices_known(log: Log, offsets: range, max_bytes: int, *, min_one_batch: bool) -> int:
    """Compare slices of cached readers with those of a read; return the number of slices."""
    snapshot, count = partition_of(log).view.snapshot(), 0
    for offset in offsets:
        part = partition_of(log).lookup.table.slice(offset, max_bytes, min_one_batch)
        if part is None:
            continue
        count += 1
        expected = fetch(
            snapshot,
            offset,
            max_bytes,
            min_one_batch=min_one_batch,
            end_offset=snapshot.end_offset,
        )
        assert repr(expected) == repr(part)
        assert bytes(expected.data) == bytes(part.data)
        for name in ("following_offset", "bound_position", "log_start_offset", "log_end_offset"):
            assert getattr(expected, name) == getattr(part, name)
        assert isinstance(part, FetchData)
    return count


def know_all(log: Log) -> None:
    """Cache a reader of every segment."""
    for slot in range(len(log.segments())):
        partition_of(log).lookup.cache_reader(partition_of(log).view.snapshot(), slot)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"compression_type": "lz4"},
        {"message_format_version": "0.9.0"},
        {"message_format_version": "0.10.0", "compression_type": "gzip"},
    ],
)
def test_cached_slice_equals_the_slice_of_a_read(tmp_path: Path, settings: dict[str, Any]) -> None:
    """In all formats, from every offset on, while the log grows and loses both ends."""
    with manual_log(tmp_path / "orders-0", **SMALL, **settings) as log:
        for _part in range(12):
            append(log, [1, 2, 3, 4, 5])
        whole = range(-1, 63)
        assert 0 == slices_known(log, whole, 1, min_one_batch=True)
        know_all(log)
        is_plain = "gzip" not in settings.values()
        for max_bytes in (0, 1, 300, 2**70):
            for min_one_batch in (False, True):
                count = slices_known(log, whole, max_bytes, min_one_batch=min_one_batch)
                assert count == 61 or not is_plain
        log.delete_records(7)
        log.roll()
        append(log, [6])
        know_all(log)
        append(log, [7])
        # New batches are after the bytes of the cached readers, except at the log end.
        assert slices_known(log, range(68), 2**40, min_one_batch=True) == 54 or not is_plain
        log.truncate_to(33)
        assert 0 == slices_known(log, whole, 1, min_one_batch=True)
        know_all(log)
        assert slices_known(log, whole, 1, min_one_batch=True) >= 24 * is_plain


def test_cached_slice_of_damaged_bytes_equals_a_read_or_is_none(tmp_path: Path) -> None:
    """One byte of a header or of an index is changed, then restored."""
    source = random.Random(5)
    with manual_log(tmp_path / "orders-0", **{**SMALL, "segment_bytes": 10_000}) as log:
        for _part in range(12):
            append(log, [1, 2, 3, 4, 5])
        log.roll()
        path, index = log.segments()[0].path, log.segments()[0].path.with_suffix(".index")
        starts, index_size = batch_positions(path), index.stat().st_size
        counts = set()
        for number in range(120):
            in_index = number % 4 == 0
            file = index if in_index else path
            position = source.randrange(index_size)
            if not in_index:
                position = source.choice(starts[:-1]) + source.randrange(61)
            before = file.read_bytes()
            flip(file, position, 1 << source.randrange(8))
            partition_of(log).lookup.invalidate()
            partition_of(log).lookup.cache_reader(partition_of(log).view.snapshot(), 0)
            counts.add(_slices_or_damage(log))
            with file.open("r+b") as handle:
                handle.write(before)
        assert max(counts) == 60
        assert len(counts) > 2


def _slices_or_damage(log: Log) -> int:
    """Like `slices_known` for the whole log; the cache must not serve what a read refuses."""
    count = 0
    for offset in range(60):
        try:
            count += slices_known(log, range(offset, offset + 1), 1, min_one_batch=True)
        except CorruptRecordError:
            pytest.fail("points know what reading refuses")
    return count


def test_slice_of_a_closed_log_has_its_fetched_bytes_only(tmp_path: Path) -> None:
    """With and without a cached reader."""
    with manual_log(tmp_path / "orders-0", **SMALL) as log:
        append(log, [1, 2, 3])
        first = log.read(1)
        second, late = log.read(1), log.read(1)
        assert bytes(first.data) == bytes(second.data)
        assert second.is_fetched
    assert bytes(first.data) == bytes(second.data)
    with pytest.raises(LogClosedError, match="before the bytes"):
        late.data  # noqa: B018
    with pytest.raises(LogClosedError):
        log.read(1)


@pytest.mark.parametrize("max_bytes", [-1, -(2**70)])
def test_read_negative_size_is_refused(tmp_path: Path, max_bytes: int) -> None:
    """With and without a cached reader of the segment."""
    with manual_log(tmp_path / "orders-0") as log:
        append(log, [1])
        for _again in range(2):
            with pytest.raises(ValueError, match="max_bytes must be >= 0"):
                log.read(0, max_bytes)
            assert log.read(0).size_bytes
