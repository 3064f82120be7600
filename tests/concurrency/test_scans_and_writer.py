"""Scans with a writer that appends, rolls, truncates and deletes: each sees one whole log."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Log, OffsetOutOfRangeError, Record
from tests.support.logs import manual_log
from tests.support.manual_time import START_MS
from tests.support.scanning import rows_of_scan

ROUNDS = 60


def record_at(offset: int) -> Record:
    """Return a record made from its offset."""
    return Record(key=b"k%d" % offset, value=b"v%d" % offset * 9, timestamp_ms=START_MS + offset)


def scan_until(log: Log, stop: threading.Event, faults: list[Any], **how: Any) -> None:
    """Scan again and again; note whatever is not a run of whole records."""
    while not stop.is_set():
        try:
            rows, error = rows_of_scan(log.scan(columns=["offset", "key", "value"], **how))
        except ValueError as fault:
            faults.append(fault)
            return
        first = rows[0][0] if rows else 0
        expected: list[tuple[Any, ...]] = [
            (offset, record_at(offset).key, record_at(offset).value)
            for offset in range(first, first + len(rows))
        ]
        # Of a follower the writer may take what it was about to read.
        if expected != rows or (error is not None and error[0] is not OffsetOutOfRangeError):
            faults.append((error, rows[:3], len(rows)))


@pytest.mark.parametrize("binary_type", ["binary", "binary_view"])
@pytest.mark.parametrize("codec", ["uncompressed", "lz4"])
def test_scans_during_appends_see_whole_records(
    codec: str, binary_type: Any, tmp_path: Path
) -> None:
    """In the writing process, and in a process that follows it."""
    directory, stop = tmp_path / "orders-0", threading.Event()
    faults: list[Any] = []
    settings: dict[str, Any] = {"segment_bytes": 3000, "compression_type": codec}
    with (
        manual_log(directory, **settings) as log,
        manual_log(directory, read_only=True, **settings) as follower,
    ):
        threads = [
            threading.Thread(
                target=scan_until,
                args=(each, stop, faults),
                kwargs={"binary_type": binary_type, "batch_rows": 7},
            )
            for each in (log, follower)
        ]
        for thread in threads:
            thread.start()
        for number in range(ROUNDS):
            end = log.log_end_offset
            log.append([record_at(offset) for offset in range(end, end + 10)])
            if number % 10 == 7:
                log.truncate_to(end - 20)  # between two batches: no holes
            if number % 10 == 4:
                log.delete_records(end - 30)
        stop.set()
        for thread in threads:
            thread.join()
    assert [] == faults
