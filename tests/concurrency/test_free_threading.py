"""Objects that threads share, without the GIL: what such a build would have to pass to be marked.

No extension module declares support of free threading: importing one turns the GIL on
again. On a build without it, run `PYTHON_GIL=0 python -m pytest tests/concurrency`, which leaves it
off; the stress below is then long. With the GIL it is short, and shows that the test works.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkalog import Record
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.header import parse_header
from kafkalog._core.index import OffsetIndexView
from kafkalog._core.point_read import PointReader
from kafkalog._core.record import decode_records
from kafkalog.fetch import FetchReader
from tests.support.logs import manual_log
from tests.support.scanning import rows_of_scan

IS_FREE_BUILD = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
IS_FREE = IS_FREE_BUILD and not getattr(sys, "_is_gil_enabled", lambda: True)()
THREADS = 4
ROUNDS = 400 if IS_FREE else 8
RECORDS = 300


def test_free_threading_is_active() -> None:
    """If this test is skipped, the others show nothing about free threading."""
    if not IS_FREE:
        pytest.skip("NOT TESTED WITHOUT THE GIL: this needs a free-threaded build and PYTHON_GIL=0")
    assert not sys._is_gil_enabled()  # type: ignore[attr-defined, unused-ignore]


def together(*works: Callable[[], object], times: int = THREADS) -> None:
    """Run each work in so many threads, begun at one moment; raise what one raised."""
    barrier = threading.Barrier(len(works) * times)
    faults: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        barrier.wait()
        try:
            work()
        except BaseException as fault:  # noqa: BLE001 - raised by the waiting thread
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(work,)) for work in works for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


def batch() -> bytes:
    """Return a batch whose records have their number, with headers."""
    builder = BatchBuilder()
    for number in range(RECORDS):
        builder.append(b"k%d" % number, b"v%d" % number * 9, number, [("h", b"%d" % number)])
    return bytes(builder.finish())


def test_record_fields_read_by_racing_threads_are_equal() -> None:
    """The first thread that reads a record makes its fields; all threads get equal fields."""
    data = batch()
    header = parse_header(data)
    for _ in range(ROUNDS):
        records = decode_records(data, header, 61, len(data))
        seen: list[list[Any]] = []

        def touch(records: list[Record] = records, seen: list[list[Any]] = seen) -> None:
            seen.append([(each.key, each.value, each.headers) for each in records])

        together(touch)
        expected = [
            (b"k%d" % number, b"v%d" % number * 9, (("h", b"%d" % number),))
            for number in range(RECORDS)
        ]
        assert [expected] * THREADS == seen


def test_index_views_shared_by_threads_find_the_same() -> None:
    """Look-ups have no state, and each thread has result columns for itself."""
    entries = np.arange(1, 5001, dtype=">i4").repeat(2) * 3
    view = OffsetIndexView(entries.tobytes(), 0)
    offsets = np.arange(0, 15_000, 7, dtype=np.int64)
    expected = [view.lookup(int(offset))[1] for offset in offsets]

    def look_up() -> None:
        positions = np.empty_like(offsets)
        for _ in range(ROUNDS):
            view.lookup_many(offsets, positions)
            assert expected == positions.tolist()

    together(look_up)


def test_point_reader_shared_by_threads_finds_every_record() -> None:
    """All threads fill its cache of positions."""
    data = batch()
    expected = [b"v%d" % number * 9 for number in range(RECORDS)]
    for _ in range(ROUNDS):
        reader = PointReader(data, OffsetIndexView(b"", 0))

        def find(reader: PointReader = reader) -> None:
            found = [reader.find(number) for number in range(RECORDS)]
            assert expected == [each.value for each in found if each is not None]

        together(find)


def test_log_shared_by_writers_and_readers_keeps_all_records(tmp_path: Path) -> None:
    """Appends, an appender, scans, look-ups and fetches at once: all records, in order."""
    with manual_log(tmp_path / "orders-0", segment_bytes=20_000) as log:
        appender = log.appender(buffer_bytes=4096)

        def append() -> None:
            for _ in range(ROUNDS):
                log.append([Record(key=b"a", value=b"b" * 20) for _ in range(10)])

        def append_one_by_one() -> None:
            for number in range(10 * ROUNDS):
                appender.append(b"c%d" % number, b"d" * 20)

        def scan() -> None:
            for _ in range(ROUNDS):
                rows, error = rows_of_scan(log.scan(columns=["offset"]))
                assert error is None
                assert [(offset,) for offset in range(len(rows))] == rows

        def get() -> None:
            for _ in range(10 * ROUNDS):
                end = log.log_end_offset
                record = log.get(end // 2) if end else None
                assert record is None or end // 2 == record.offset

        def fetch() -> None:
            reader = FetchReader(0, max_bytes=2000)
            for _ in range(ROUNDS):
                reader.read(log.read(reader.offset, reader.max_bytes).data)

        together(append, append_one_by_one, scan, get, fetch, times=2)
        appender.close()
        keys = [record.key for record in log.records()]
    assert 2 * 10 * ROUNDS == keys.count(b"a")
    assert 2 * 10 * ROUNDS == len(keys) - keys.count(b"a")
