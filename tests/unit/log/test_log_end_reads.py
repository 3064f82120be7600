"""Reads up to the log end, beyond the high watermark: Kafka's FetchIsolation LOG_END (PAR-10)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog import LATEST_TIMESTAMP, MAX_TIMESTAMP, Log, OffsetOutOfRangeError
from kafkalog._core.batch import scan_batches
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import START_MS
from tests.support.producing import Client

COUNT, HIGH_WATERMARK = 12, 5


def fill(log: Log) -> None:
    """Append batches of one record in several segments, and set the high watermark among them."""
    for number in range(COUNT):
        log.append(numbered(number, 1))
        if number % 4 == 3:
            log.roll()
    log.set_high_watermark(HIGH_WATERMARK)


READ_APIS: dict[str, Callable[[Log, Any], list[int]]] = {
    "records": lambda log, how: [each.offset for each in log.records(isolation=how)],
    "batches": lambda log, how: [each.header.base_offset for each in log.batches(isolation=how)],
    "get": lambda log, how: [n for n in range(COUNT + 1) if log.get(n, isolation=how) is not None],
    "get_many": lambda log, how: [
        each.offset for each in log.get_many(range(COUNT), isolation=how) if each is not None
    ],
    "scan": lambda log, how: list(log.scan(isolation=how).to_numpy()["offset"]),
    "offset_for_timestamp": lambda log, how: [
        found.offset
        for number in range(COUNT)
        if (found := log.offset_for_timestamp(START_MS + number, isolation=how)) is not None
    ],
    "offsets_for_timestamps": lambda log, how: [
        int(found)
        for found in log.offsets_for_timestamps(
            [START_MS + number for number in range(COUNT)], isolation=how
        )
        if found >= 0
    ],
}


def read_all(log: Log, isolation: Any) -> list[int]:
    """Return the offsets of batches that slices contain."""
    offset = log.log_start_offset
    found: list[int] = []
    while True:
        data = bytes(log.read(offset, 200, isolation=isolation).data)
        if not data:
            return found
        batch_count = scan_batches(data).count
        found += range(offset, offset + batch_count)
        offset += batch_count


READ_APIS["read"] = read_all


@pytest.mark.parametrize("name", READ_APIS)
@pytest.mark.parametrize("is_aware", [True, False], ids=["looked up before", "at first"])
def test_log_end_isolation_reads_beyond_the_high_watermark(
    directory: Path, name: str, is_aware: bool
) -> None:
    """PAR-10: every read API, on the handle that set it; the other isolations stay below."""
    with manual_log(directory) as log:
        fill(log)
        if is_aware:
            log.set_high_watermark(None)
            READ_APIS[name](log, "read_uncommitted")
            log.set_high_watermark(HIGH_WATERMARK)
        assert list(range(COUNT)) == READ_APIS[name](log, "log_end")
        for isolation in ("read_uncommitted", "read_committed"):
            assert list(range(HIGH_WATERMARK)) == READ_APIS[name](log, isolation)
        log.set_high_watermark(None)
        assert list(range(COUNT)) == READ_APIS[name](log, "log_end")


def test_log_end_isolation_shows_open_and_aborted_transactions(directory: Path) -> None:
    """PAR-10: a follower copies everything; aborted transactions are not attached to a slice."""
    with manual_log(directory) as log:
        first, second = Client(1), Client(2)
        first.send(log, 2, transactional=True)
        first.end(log, "abort")
        second.send(log, 2, transactional=True)
        log.set_high_watermark(2)
        assert [0, 1, 3, 4] == [each.offset for each in log.records(isolation="log_end")]
        fetched = log.read(0, isolation="log_end")
        assert fetched.aborted_transactions is None
        assert log.log_end_offset == fetched.next_offset


def test_log_end_isolation_finds_latest_and_largest_time(directory: Path) -> None:
    """PAR-10: ListOffsets of a follower: latest is the log end, the maximum may be above."""
    with manual_log(directory) as log:
        fill(log)
        latest = log.offset_for_timestamp(LATEST_TIMESTAMP, isolation="log_end")
        largest = log.offset_for_timestamp(MAX_TIMESTAMP, isolation="log_end")
        assert latest is not None
        assert largest is not None
        assert (COUNT, COUNT - 1) == (latest.offset, largest.offset)
        visible = log.offset_for_timestamp(LATEST_TIMESTAMP)
        assert visible is not None
        assert HIGH_WATERMARK == visible.offset


def test_copy_read_at_the_log_end_raises_the_high_watermark(directory: Path) -> None:
    """PAR-10: the purpose of the isolation, on one handle and without a second opening."""
    with manual_log(directory) as log, manual_log(directory.parent / "copy-0") as copy:
        log.set_high_watermark(0)
        for number in range(COUNT):
            log.append(numbered(number, 1))
            fetched = log.read(copy.log_end_offset, isolation="log_end")
            copy.append_batches(bytes(fetched.data), assign_offsets=False)
            assert number == len(list(log.records()))
            log.set_high_watermark(copy.log_end_offset)
        assert list(log.records()) == list(copy.records())


def test_log_end_isolation_keeps_the_bounds_of_the_log(directory: Path) -> None:
    """PAR-10: a read at the log end is empty, one above it raises."""
    with manual_log(directory) as log:
        fill(log)
        log.delete_records(2)
        assert b"" == bytes(log.read(COUNT, isolation="log_end").data)
        for offset in (1, COUNT + 1):
            with pytest.raises(OffsetOutOfRangeError):
                log.read(offset, isolation="log_end")


def test_unknown_isolation_error_names_all_three(directory: Path) -> None:
    """PAR-10: the error lists the valid values."""
    with manual_log(directory) as log:
        wrong: Any = "dirty"
        with pytest.raises(ValueError, match=r"log_end.*got 'dirty'"):
            log.records(isolation=wrong)
