"""Scans of logs: damage, arrays, filters, refusals, and the life of a scan.

`tests/properties/test_read_paths.py` shows that any scan of any log has the right rows.
"""

from __future__ import annotations

import gc
import tempfile
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog import (
    CorruptRecordError,
    InvalidRecordError,
    LogClosedError,
    OffsetOutOfRangeError,
    Record,
    TopicPartition,
    scan,
)
from kafkalog._core.arrow_decode import ArrowBatchRun
from kafkalog._core.crc32c import value
from kafkalog.log.scan.arrays import BytesArray
from kafkalog.log.scan.conditions import Filter
from kafkalog.log.scan.options import DEFAULT_COLUMNS
from tests.support.arrow_consumer import Stream, cells_of, read_all
from tests.support.damage import batch_positions, flip, log_file
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import START_MS
from tests.support.old_logs import LOG_KINDS, chapters_of, write_chapters
from tests.support.producer_batches import Produced, encoded
from tests.support.producing import Client
from tests.support.scanning import ALL_COLUMNS, rows_of_scan, slow_rows

BINARY_TYPES = ("binary", "large_binary", "binary_view")
SMALL: dict[str, Any] = {"segment_bytes": 2000, "index_interval_bytes": 200}


@pytest.mark.parametrize("kind", sorted(LOG_KINDS))
def test_scan_of_old_logs_equals_their_records(kind: str, tmp_path: Path) -> None:
    """Every column, for each kind of log in the tests of old formats."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    write_chapters(directory, chapters_of(LOG_KINDS[kind]))
    with manual_log(directory) as log:
        assert slow_rows(log, ALL_COLUMNS) == rows_of_scan(log.scan(columns=ALL_COLUMNS))


@pytest.mark.parametrize("how", [{}, {"start": 70, "end": 290}, {"columns": ["offset", "value"]}])
def test_scan_of_mixed_codecs_equals_records(how: dict[str, Any], tmp_path: Path) -> None:
    """Codecs of kernels and of packages take turns; whole, in part, and with fewer columns."""
    sizes: dict[str, Any] = {"segment_bytes": 4000, "batch_bytes": 600}
    with manual_log(tmp_path / "orders-0", **sizes) as log:
        for codec in ("zstd", "lz4", "zstd", "uncompressed", "gzip", "zstd"):
            log.reconfigure(log.config.replace(compression_type=codec))
            log.append([Record(key=b"k%d" % n, value=b"word " * n) for n in range(60)])
        start, end = how.get("start", 0), how.get("end", 360)
        found = read_all(log.scan(**how).__arrow_c_stream__())
        assert list(range(start, end)) == found["offset"]
        assert [b"word " * (n % 60) for n in range(start, end)] == found["value"]


@settings(max_examples=30)
@given(data=st.data())
def test_scan_of_damaged_log_equals_its_records(data: st.DataObject) -> None:
    """The same rows before the same error, or without damaged ones; also with damaged markers."""
    with tempfile.TemporaryDirectory() as name:
        directory, client = Path(name) / "orders-3", Client(7)
        codec = data.draw(st.sampled_from(["uncompressed", "lz4"]))
        with manual_log(directory, segment_bytes=900, compression_type=codec) as log:
            for first in range(0, 40, 4):
                log.append(numbered(first, 4))
                client.send(log, 1, transactional=True)
                client.end(log, "commit")
        for path in sorted(directory.glob("*.log")):
            for _ in range(data.draw(st.integers(0, 2))):
                flip(path, data.draw(st.integers(0, path.stat().st_size - 1)))
        how: dict[str, Any] = {"on_corrupt": data.draw(st.sampled_from(["raise", "skip"]))}
        with manual_log(directory, read_only=True) as log:
            expected = slow_rows(log, DEFAULT_COLUMNS, **how)
            assert expected == rows_of_scan(log.scan(batch_rows=3, **how))
            assert expected == rows_of_scan(log.scan(**how))


def log_with_a_batch_of_no_records(tmp_path: Path) -> Path:
    """Write three batches; the second has a right CRC and content that cannot be decoded."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        for first in (0, 3, 6):
            log.append(numbered(first, 3))
    path = log_file(directory)
    data = bytearray(path.read_bytes())
    start, end = batch_positions(path)[1:3]
    data[start + 61] ^= 0x7F
    crc = value(bytes(data[start + 21 : end]))
    data[start + 17 : start + 21] = crc.to_bytes(4, "big")
    path.write_bytes(data)
    return directory


def test_scan_undecodable_batch_raises_or_is_skipped(tmp_path: Path) -> None:
    """Its CRC is right: rows before it come first, and "skip" continues after it."""
    directory = log_with_a_batch_of_no_records(tmp_path)
    with manual_log(directory, read_only=True) as log:
        for how in ("raise", "skip"):
            expected = slow_rows(log, ["offset"], on_corrupt=how)
            assert expected == rows_of_scan(log.scan(columns=["offset"], on_corrupt=how))
            assert (how == "raise") == (expected[1] is not None)


def test_scan_ended_by_an_error_keeps_no_buffer(tmp_path: Path) -> None:
    """The error keeps the frames, often in a cycle, whose views must be free to be cleared."""
    directory = log_with_a_batch_of_no_records(tmp_path)
    with (
        manual_log(directory, read_only=True) as log,
        pytest.raises(CorruptRecordError) as caught,
    ):
        list(log.scan(columns=["offset"]))
    assert "_add_runs" in {entry.name for entry in caught.traceback}
    assert [] == [each for each in gc.get_objects() if isinstance(each, ArrowBatchRun)]


def cells_of_bytes(array: BytesArray) -> list[bytes | None]:
    """Return the cells that three arrays contain."""
    octets, offsets = array.data.tobytes(), array.offsets.tolist()
    cells = [octets[start:end] for start, end in pairwise(offsets)]
    if array.is_null is None:
        return list(cells)
    return [None if null else cell for cell, null in zip(cells, array.is_null, strict=True)]


def numbers_of(array: Any) -> list[int]:
    """Return the numbers of an array of numbers."""
    assert isinstance(array, np.ndarray)
    numbers: list[int] = array.tolist()
    return numbers


@pytest.mark.parametrize("codec", ["uncompressed", "gzip"])
def test_scan_to_numpy_equals_the_records(codec: str, tmp_path: Path) -> None:
    """With the documented shapes and types; placeholder numbers stay, and headers are left out."""
    with manual_log(tmp_path / "orders-3", compression_type=codec, **SMALL) as log:
        log.append(numbered(0, 4))
        log.append([Record(value=b"v" * 40, timestamp_ms=-1), Record(key=b"", value=None)])
        log.append(numbered(6, 60))
        records = list(log.records())
        arrays = log.scan().to_numpy()
        assert [*DEFAULT_COLUMNS[:5], "partition"] == list(arrays)
        for name in ("offset", "timestamp", "partition"):
            cells = arrays[name]
            assert not isinstance(cells, BytesArray) and not cells.flags.writeable
        assert [record.offset for record in records] == numbers_of(arrays["offset"])
        assert [record.timestamp_ms for record in records] == numbers_of(arrays["timestamp"])
        keys, values = arrays["key"], arrays["value"]
        assert isinstance(keys, BytesArray) and isinstance(values, BytesArray)
        assert [record.key for record in records] == cells_of_bytes(keys)
        assert [record.value for record in records] == cells_of_bytes(values)
        assert ("uint8", "int64") == (values.data.dtype.name, values.offsets.dtype.name)
        some = log.scan(filters=[("key", "==", b"k3")], columns=["value", "producer_epoch"])
        value, epoch = some.to_numpy().values()
        assert isinstance(value, BytesArray) and value.is_null is None
        assert ([b"v3"], [-1]) == (cells_of_bytes(value), numbers_of(epoch))


def test_scan_to_numpy_of_empty_log_is_empty(tmp_path: Path) -> None:
    """With the right types. The error of a column that arrays cannot hold has its name."""
    with manual_log(tmp_path / "orders-3") as log:
        arrays = log.scan(columns=["leader_epoch", "value"]).to_numpy()
        epochs, values = arrays.values()
        assert isinstance(values, BytesArray) and not isinstance(epochs, BytesArray)
        assert ([0], "int32") == (values.offsets.tolist(), epochs.dtype.name)
        assert [] == cells_of_bytes(values)
        with pytest.raises(ValueError, match="'headers'"):
            log.scan(columns=["offset", "headers"]).to_numpy()


def test_scan_of_empty_log_or_range_has_no_batch(tmp_path: Path) -> None:
    """The stream ends at once, with its schema."""
    with manual_log(tmp_path / "orders-0") as log:
        assert ([], None) == rows_of_scan(log.scan())
        assert {"offset": [], "value": []} == read_all(
            log.scan(columns=["offset", "value"]).__arrow_c_stream__()
        )
        log.append(numbered(0, 3))
        assert ([], None) == rows_of_scan(log.scan(2, 2))
        assert ([], None) == rows_of_scan(log.scan(filters=[("offset", ">", 99)]))


def test_scan_reads_the_log_again_each_time(tmp_path: Path) -> None:
    """Each iteration reads the log as it is at its start."""
    with manual_log(tmp_path / "orders-0") as log:
        scanned = log.scan(columns=["offset"])
        assert ([], None) == rows_of_scan(scanned)
        log.append(numbered(0, 3))
        assert [(0,), (1,), (2,)] == rows_of_scan(scanned)[0] == rows_of_scan(scanned)[0]
        running = iter(log.scan(columns=["offset"], batch_rows=2))
        assert 2 == len(next(running))
        log.append(numbered(3, 1))
        assert 1 == sum(map(len, running))
        assert {"offset": [0, 1, 2, 3]} == read_all(scanned.__arrow_c_stream__())


def test_two_readers_of_a_scan_are_independent(tmp_path: Path) -> None:
    """Each has its own position in the log."""
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 6))
        scanned = log.scan(columns=["offset"], batch_rows=2)
        first, second = iter(scanned), iter(scanned)
        assert [2, 2, 2, 2] == [len(next(each)) for each in (first, first, second, first)]
        assert [2, 2] == [len(batch) for batch in second]


def test_scan_of_closed_log_ends_with_log_closed_error(tmp_path: Path) -> None:
    """The stream names the error. Earlier batches stay valid, and their views too."""
    with manual_log(tmp_path / "orders-0") as log:
        for first in range(0, 8, 4):
            log.append([Record(value=b"%d" % first * 40) for _ in range(4)])
        scanned = log.scan(columns=["value"], binary_type="binary_view", batch_rows=2)
        stream, iterator = Stream(scanned.__arrow_c_stream__()), iter(scanned)
        kept = next(iterator)
        array = stream.next()
        assert array is not None
    with pytest.raises(LogClosedError):
        list(iterator)
    while stream.next() is not None:
        pass
    assert 5 == stream.code
    assert (stream.last_error() or "").startswith("LogClosedError: ")
    stream.release()
    assert {"value": [b"0" * 40] * 2} == cells_of(kept)


def test_scanned_view_outlives_log_and_file(tmp_path: Path) -> None:
    """The values keep the mapping."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        log.append([Record(value=b"v" * 100)])
        (batch,) = log.scan(columns=["value"], binary_type="binary_view")
    log_file(directory).unlink()
    assert {"value": [b"v" * 100]} == cells_of(batch)


def test_scan_offset_out_of_range_raises_on_read(tmp_path: Path) -> None:
    """The scan is created without a read; offsets in filters only leave out rows."""
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 3))
        scanned = log.scan(7)
        with pytest.raises(OffsetOutOfRangeError):
            list(scanned)
        stream = Stream(scanned.__arrow_c_stream__())
        assert stream.next() is None
        assert (stream.last_error() or "").startswith("OffsetOutOfRangeError: offset 7")
        stream.release()


def test_scan_header_key_not_utf8_raises_or_is_binary(tmp_path: Path) -> None:
    """Rows before it come first; `on_corrupt` does not apply, since nothing is corrupt."""
    odd = Record(value=b"v", headers=[(b"\xff".decode("utf-8", "surrogateescape"), b"x")])
    with manual_log(tmp_path / "orders-0") as log:
        log.append([*numbered(0, 2), odd, *numbered(3, 1)])
        rows, error = rows_of_scan(log.scan(columns=["offset", "headers"], on_corrupt="skip"))
        assert ([(0, []), (1, [])], InvalidRecordError) == (rows, error and error[0])
        scanned = log.scan(columns=["headers"], header_key_type="binary")
        assert [([],), ([],), ([(b"\xff", b"x")],), ([],)] == rows_of_scan(scanned)[0]


def test_scan_read_committed_leaves_out_aborted_and_control_batches(tmp_path: Path) -> None:
    """It has the rows of committed readers, up to the last stable offset."""
    client = Client(7)
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 2))
        client.send(log, 2, transactional=True)
        client.end(log, "abort")
        client.send(log, 2, transactional=True)
        client.end(log, "commit")
        client.send(log, 1, transactional=True)
        columns = ["offset", "producer_id", "sequence"]
        scanned = log.scan(columns=columns, isolation="read_committed")
        expected = [(0, None, None), (1, None, None), (5, 7, 2), (6, 7, 3)]
        assert expected == rows_of_scan(scanned)[0]
        assert [0, 1, 2, 3, 5, 6, 8] == [row[0] for row in rows_of_scan(log.scan())[0]]


def test_scan_of_many_logs_is_one_stream(tmp_path: Path) -> None:
    """Batches span several logs; topics and partitions are filtered before any read."""
    names = ["orders-0", "orders-1", "bills-0"]
    logs = [manual_log(tmp_path / name) for name in names]
    for number, log in enumerate(logs):
        log.append(numbered(10 * number, 3))
    try:
        columns = ["topic", "partition", "offset", "value"]
        everything = scan(logs, columns=columns)
        assert [9] == [len(batch) for batch in everything]
        expected = [row for log in logs for row in slow_rows(log, columns)[0]]
        assert expected == rows_of_scan(everything)[0]
        some = scan(logs, filters=[("topic", "==", "orders"), ("partition", ">", 0)])
        assert (TopicPartition("orders", 1),) == some.partitions
        assert expected[3:6] == [(row[6], row[7], row[0], row[4]) for row in rows_of_scan(some)[0]]
        assert "<Scan of nothing: offset>" == repr(
            scan(logs, columns=["offset"], filters=[("topic", "in", [])])
        )
        assert "<Scan of orders-0, orders-1, bills-0: offset>" == repr(
            scan(logs, columns=["offset"])
        )
    finally:
        for log in logs:
            log.close()


def test_scan_skips_segments_outside_the_time_range(tmp_path: Path) -> None:
    """Their facts are enough: damage in their bytes is not noticed."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        for number in range(3):
            log.append(numbered(4 * number, 4, timestamp_ms=START_MS + 1000 * number))
            log.roll()
    flip(log_file(directory), 80)
    with manual_log(directory, read_only=True) as log:
        scanned = log.scan(columns=["offset"], filters=[("timestamp", ">=", START_MS + 2000)])
        assert ([(8,), (9,), (10,), (11,)], None) == rows_of_scan(scanned)
        assert rows_of_scan(log.scan())[1] is not None


def test_scan_compares_times_to_the_microsecond(tmp_path: Path) -> None:
    """Aware datetimes of any zone; no record is between two milliseconds."""
    zone = timezone(timedelta(hours=5))
    begin = datetime.fromtimestamp(START_MS / 1000, UTC).astimezone(zone)
    half = begin + timedelta(microseconds=1500)
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 4))
        cases: list[tuple[list[Filter], list[int]]] = [
            ([("timestamp", ">=", begin + timedelta(milliseconds=1))], [1, 2, 3]),
            ([("timestamp", "==", begin + timedelta(milliseconds=1))], [1]),
            ([("timestamp", "==", half)], []),
            ([("timestamp", "<", half)], [0, 1]),
            ([("timestamp", "<=", half)], [0, 1]),
            ([("timestamp", ">", half)], [2, 3]),
            ([("timestamp", ">=", half)], [2, 3]),
            ([("timestamp", "in", [half, begin])], [0]),
            ([("timestamp", ">", begin), ("timestamp", "<", START_MS + 3)], [1, 2]),
        ]
        for filters, expected in cases:
            rows, _ = rows_of_scan(log.scan(columns=["offset"], filters=filters))
            assert expected == [row[0] for row in rows], filters


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"columns": ["offsets"]}, ValueError),
        ({"columns": []}, ValueError),
        ({"columns": ["key", "key"]}, ValueError),
        ({"columns": "key"}, TypeError),
        ({"filters": [("value", "==", b"v")]}, ValueError),
        ({"filters": [("key", "<", b"v")]}, ValueError),
        ({"filters": [("key", "==", "text")]}, TypeError),
        ({"filters": [("key", "in", b"text")]}, TypeError),
        ({"filters": [("topic", "==", b"text")]}, TypeError),
        ({"filters": [("offset", "!=", 1)]}, ValueError),
        ({"filters": [("offset", "==", 1.5)]}, TypeError),
        ({"filters": [("offset", "==", True)]}, TypeError),
        ({"filters": [("offset", ">", 2**70)]}, ValueError),
        ({"filters": [("timestamp", ">", datetime(2020, 1, 1))]}, ValueError),
        ({"binary_type": "text"}, ValueError),
        ({"header_key_type": "text"}, ValueError),
        ({"on_corrupt": "hide"}, ValueError),
        ({"isolation": "serializable"}, ValueError),
        ({"batch_rows": 0}, ValueError),
        ({"batch_bytes": 0}, ValueError),
        ({"batch_bytes": 2**31}, ValueError),
    ],
)
def test_scan_invalid_argument_is_refused(
    arguments: dict[str, Any], error: type[Exception], tmp_path: Path
) -> None:
    """When the scan is created, not when it is read."""
    with manual_log(tmp_path / "orders-0") as log, pytest.raises(error):
        log.scan(**arguments)


def anonymous_bytes() -> int:
    """Return the bytes of the process's memory that no file backs."""
    status = Path("/proc/self/status").read_text("ascii")
    return 1024 * int(status.split("RssAnon:")[1].split()[0])


@pytest.mark.parametrize("codec", ["uncompressed", "lz4"])
def test_scan_memory_does_not_grow_with_the_log(codec: str, tmp_path: Path) -> None:
    """A reader that keeps nothing needs a few batches, in a log of many times their size."""
    value = np.random.default_rng(7).bytes(1000)
    with manual_log(tmp_path / "orders-0", compression_type=codec, segment_bytes=4 << 20) as log:
        for _ in range(30):
            log.append_lists([None] * 1000, [value] * 1000)
            reader = iter(log.scan(columns=["offset", "value"], batch_bytes=1 << 20))
        rows = len(next(reader))
        before = largest = anonymous_bytes()
        for batch in reader:
            rows += len(batch)
            largest = max(largest, anonymous_bytes())
    assert 30_000 == rows
    assert largest - before < 8 << 20


def test_scan_of_markers_only_has_no_rows(tmp_path: Path) -> None:
    """A log of control batches has no rows, and raises no error."""
    with manual_log(tmp_path / "orders-0") as log:
        data = encoded([Produced(7, ends="commit"), Produced(8, ends="abort")])
        log.append_batches(data, assign_offsets=False)
        assert ([], None) == rows_of_scan(log.scan())
