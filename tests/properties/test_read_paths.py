"""Every read path of a log gives the rows that the reference codecs read in its bytes.

Any log, opened by its writer or read-only, from any log start, below any high watermark, by readers
of all records or of committed ones.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog import (
    MAX_TIMESTAMP,
    FetchReader,
    InvalidRecordError,
    Log,
    OffsetOutOfRangeError,
    Record,
    TopicPartition,
    scan,
)
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.aborted import aborted_on_disk
from kafkalog.log.ranges.reader import RangeOptions, RangeReader
from kafkalog.log.scan.arrays import BytesArray
from kafkalog.log.scan.options import make_options
from kafkalog.log.scan.rows import RowReader
from tests.properties import of_examples
from tests.properties.any_logs import AnyLog, any_logs
from tests.properties.scans import (
    BINARY_TYPES,
    cells_of_row,
    matches,
    scan_arguments,
)
from tests.properties.truth import Isolation, Row, Truth, rows_of_bytes, truth_of
from tests.support.arrow_consumer import read_all
from tests.support.log_sources import Logs
from tests.support.logs import manual_log
from tests.support.scanning import rows_of_scan

PARTITION = TopicPartition("orders", 3)
Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]


@dataclass
class Case:
    """A log, what is in it, and from where to where a test reads it, and how."""

    log: Log
    truth: Truth
    high_watermark: int | None
    start: int
    end: int
    isolation: Isolation

    @property
    def how(self) -> dict[str, Any]:
        """The isolation, as an argument."""
        return {"isolation": self.isolation}

    def rows(self) -> list[Row]:
        """Return what this reader is to be given."""
        return self.visible(self.start, self.end)

    def visible(self, start: int, end: int) -> list[Row]:
        """Return what such a reader is to be given of a range."""
        start = max(start, self.log.log_start_offset)
        return self.truth.visible(self.isolation, start, end, self.high_watermark)

    def limit(self) -> int:
        """Return how far this reader may go."""
        start = self.log.log_start_offset
        return self.truth.limit(self.isolation, start, self.high_watermark)


@contextmanager
def case_of(made: AnyLog, draw: Draw) -> Iterator[Case]:
    """Open a log, by its writer or not, and choose a reader and its range."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / str(PARTITION)
        made.write(directory)
        truth = truth_of(directory)
        first = min(made.segments)
        settings: dict[str, Any] = {"index_interval_bytes": draw(st.sampled_from([1, 300]))}
        start, high_watermark = first, None
        if draw(st.booleans()):
            start = draw(st.sampled_from(_starts(truth, first)))
        read_only = draw(st.booleans())
        with manual_log(directory, **settings) as log:
            assert (first, truth.end_offset) == (log.log_start_offset, log.log_end_offset)
            log.delete_records(start)
            if not read_only:
                if draw(st.sampled_from([False, False, True])):
                    high_watermark = draw(st.integers(start, truth.end_offset))
                    log.set_high_watermark(high_watermark)
                yield _case(log, truth, high_watermark, draw)
        if read_only:
            with manual_log(directory, read_only=True, **settings) as log:
                yield _case(log, truth, None, draw)


def _starts(truth: Truth, first: int) -> list[int]:
    """Return where a log may begin so that no transaction is cut: a cut one is another one."""
    ends = [first, *(row.offset for row in truth.rows), truth.end_offset]
    spans = [
        (each.first_offset, truth.end_offset if each.marker_offset is None else each.marker_offset)
        for each in truth.transactions
    ]
    return [end for end in ends if not any(begun < end <= over for begun, over in spans)]


def _case(log: Log, truth: Truth, high_watermark: int | None, draw: Draw) -> Case:
    log_start, log_end = log.log_start_offset, log.log_end_offset
    start = draw(st.one_of(st.just(log_start), st.integers(log_start, log_end)))
    end = draw(st.one_of(st.just(log_end), st.integers(log_start, log_end + 2)))
    isolation = draw(st.sampled_from(["read_uncommitted", "read_committed", "log_end"]))
    case = Case(log, truth, high_watermark, start, end, isolation)
    limits = {
        "read_committed": log.last_stable_offset,
        "read_uncommitted": log.high_watermark,
        "log_end": log.log_end_offset,
    }
    assert limits[isolation] == case.limit()
    return case


# ---- rows of what the engine gives ------------------------------------------------------------


def seen(row: Row) -> Row:
    """Return what a record shows of a row."""
    return Row(*row[:6])


def row_of(record: Record) -> Row:
    """Return what a record shows, the keys of headers as bytes."""
    headers = tuple((key.encode("utf-8", "surrogateescape"), cell) for key, cell in record.headers)
    return Row(
        record.offset,
        record.timestamp_ms,
        record.timestamp_type,
        record.key,
        record.value,
        headers,
    )


def assert_records(expected: Sequence[Row], records: Sequence[Record]) -> None:
    """Hold records to rows; a record shows nothing of its batch but times."""
    assert [seen(row) for row in expected] == [row_of(record) for record in records]


# ---- records, one by one ----------------------------------------------------------------------


def by_records(case: Case, draw: Draw) -> None:
    """`Log.records`."""
    assert_records(case.rows(), list(case.log.records(case.start, case.end, **case.how)))


def by_batches(case: Case, draw: Draw) -> None:
    """`Log.batches`, and what views of batches give: records, pairs, lists; headers, every one."""
    log, rows = case.log, case.visible(case.start, case.truth.end_offset)
    views = [each for each in log.batches(case.start, **case.how) if not each.header.is_control]
    limit_bytes = log.config.decompressed_max_bytes
    records = [record for view in views for record in view.records(limit_bytes=limit_bytes)]
    # The last batch is whole, however far the reader may go in it.
    assert_records(rows, [each for each in records if case.start <= each.offset < case.limit()])
    pairs = [(each.key, each.value) for each in records]
    assert pairs == [pair for view in views for pair in view.tuples(limit_bytes=limit_bytes)]
    lists = [view.lists(limit_bytes=limit_bytes) for view in views]
    assert pairs == [pair for keys, values in lists for pair in zip(keys, values, strict=True)]
    fields = ("base_offset", "batch_length", "magic", "crc", "attributes", "last_offset_delta")
    inside = range(case.start, log.high_watermark)
    found = [batch.header for batch in log.batches() if batch.header.last_offset in inside]
    expected = [header for header in case.truth.headers if header.last_offset in inside]
    assert [[getattr(header, name) for name in fields] for header in expected] == [
        [getattr(header, name) for name in fields] for header in found
    ]


def by_get(case: Case, draw: Draw) -> None:
    """`Log.get`, of each offset, known or not, in any order, and of those outside."""
    log = case.log
    rows = {row.offset: row for row in case.visible(log.log_start_offset, case.truth.end_offset)}
    offsets = _some_offsets(case, draw)
    for offset in offsets:
        found = log.get(offset, **case.how)
        expected = rows.get(offset)
        assert (None if expected is None else seen(expected)) == (found and row_of(found))
    for outside in (log.log_start_offset - 1, log.log_end_offset + 1):
        with pytest.raises(OffsetOutOfRangeError):
            log.get(outside, **case.how)


def by_get_many(case: Case, draw: Draw) -> None:
    """`Log.get_many`."""
    rows = {row.offset: row for row in case.visible(0, case.truth.end_offset)}
    offsets = _some_offsets(case, draw)
    found = case.log.get_many(offsets, **case.how)
    expected = [rows.get(offset) for offset in offsets]
    assert [each and seen(each) for each in expected] == [each and row_of(each) for each in found]


def _some_offsets(case: Case, draw: Draw) -> list[int]:
    start, end = case.log.log_start_offset, case.log.log_end_offset
    there = [row.offset for row in case.truth.rows if row.offset >= start]
    offset = st.integers(start, end)
    if there:
        offset |= st.sampled_from(there)
    offsets: list[int] = draw(st.lists(offset, max_size=20))
    return offsets


def by_times(case: Case, draw: Draw) -> None:
    """`Log.offset_for_timestamp`, `Log.offsets_for_timestamps`: aborted and control records too."""
    log, limit = case.log, case.limit()
    every = sorted(case.truth.rows + case.truth.control_rows, key=lambda row: row.offset)
    rows = [row for row in every if log.log_start_offset <= row.offset < limit]
    times = sorted({row.timestamp for row in rows if row.timestamp >= 0})
    near = [time + step for time in times for step in (-1, 0, 1)]
    timestamps = draw(st.lists(st.sampled_from([0, 2**62, *near]), max_size=12))
    expected = [next((row for row in rows if row.timestamp >= time), None) for time in timestamps]
    single = [log.offset_for_timestamp(time, **case.how) for time in timestamps]
    assert [row and (row.timestamp, row.offset, _epoch(row)) for row in expected] == [
        each and tuple(each) for each in single
    ]
    many = log.offsets_for_timestamps(timestamps, **case.how)
    assert [-1 if row is None else row.offset for row in expected] == many.tolist()
    latest = next((row for row in rows if times and row.timestamp == times[-1]), None)
    found = log.offset_for_timestamp(MAX_TIMESTAMP, **case.how)
    assert (latest and (latest.timestamp, latest.offset)) == (found and tuple(found)[:2])


def _epoch(row: Row) -> int | None:
    return None if row.leader_epoch < 0 else row.leader_epoch


# ---- slices of bytes --------------------------------------------------------------------------


def by_slices(case: Case, draw: Draw) -> None:
    """`Log.read`: records, pairs and lists of slices, and their bytes read by the reference."""
    max_bytes = draw(st.sampled_from([1, 500, 1 << 20]))
    # A slice has no batch that reaches the limit.
    limit = case.truth.whole_below(case.limit())
    rows = case.visible(case.start, limit)
    offset, apis = case.start, draw(st.sampled_from([("records",), ("pairs", "lists"), ("bytes",)]))
    found: dict[str, list[Any]] = {api: [] for api in apis}
    while offset < limit:
        fetched = case.log.read(offset, max_bytes, **case.how)
        if "records" in found:
            found["records"] += map(row_of, fetched.records())
        if "pairs" in found:
            found["pairs"] += fetched.tuples()
            found["lists"] += zip(*fetched.lists(), strict=True)
        if "bytes" in found:
            found["bytes"] += _rows_of_slice(fetched, offset)
        following = fetched.next_offset
        # After a hole at the end of a segment the read continues in the next segment.
        offset = following if following > offset else max(offset + 1, fetched.following_offset)
    expected = {
        "records": [seen(row) for row in rows],
        "pairs": [(row.key, row.value) for row in rows],
        "lists": [(row.key, row.value) for row in rows],
        "bytes": rows,
    }
    assert {api: expected[api] for api in apis} == found


def _rows_of_slice(fetched: Any, offset: int) -> list[Row]:
    """Return the rows of a slice, whose last batch may be cut, without what was aborted."""
    data = bytes(fetched.data)
    whole = fetched.batches()
    end = max([0, *(view.position - fetched.position + len(view.data) for view in whole)])
    aborted = fetched.aborted_transactions or ()
    return [
        row
        for row in rows_of_bytes(data[:end])
        if row.offset >= offset
        and not any(
            (row.producer_id, True) == (each.producer_id, each.first_offset <= row.offset)
            and row.offset < each.last_offset
            for each in aborted
        )
    ]


def by_fetch_reader(case: Case, draw: Draw) -> None:
    """`FetchReader`, as a client reads what a server sends: all records, aborted ones too."""
    reader = FetchReader(case.start, max_bytes=draw(st.sampled_from([1, 100, 4000, 1 << 20])))
    log, limit = case.log, case.truth.whole_below(case.log.high_watermark)

    def fetch(offset: int, max_bytes: int) -> bytes:
        if offset >= limit:
            return b""
        return bytes(log.read(offset, max_bytes, min_one_batch=False).data)

    start = max(case.start, log.log_start_offset)
    rows = case.truth.visible("read_uncommitted", start, limit, case.high_watermark)
    assert_records(rows, list(reader.records(fetch)))


# ---- columns ----------------------------------------------------------------------------------


def by_scan(case: Case, draw: Draw) -> None:
    """`Log.scan`: any columns, filters, types, sizes of batches."""
    arguments = draw(scan_arguments(case.log.log_end_offset))
    scanned = case.log.scan(case.start, case.end, **arguments, **case.how)
    rows = [row for row in case.rows() if matches(arguments["filters"], row)]
    is_text = arguments["header_key_type"] == "utf8"
    expected = [cells_of_row(row, PARTITION, scanned.columns, is_text=is_text) for row in rows]
    found, error = rows_of_scan(scanned)
    if None in expected:
        # A name of a header that is no text: the rows before it, and an error.
        assert expected[: expected.index(None)] == found
        assert error is not None and error[0] is InvalidRecordError
    else:
        assert (expected, None) == (found, error)


def by_stream(case: Case, draw: Draw) -> None:
    """Arrow's C stream, read by hand and by pyarrow, with a schema that it asks for or without."""
    arguments = draw(scan_arguments(case.log.log_end_offset)) | {"header_key_type": "binary"}
    scanned = case.log.scan(case.start, case.end, **arguments, **case.how)
    rows = [row for row in case.rows() if matches(arguments["filters"], row)]
    names = scanned.columns
    expected = [cells_of_row(row, PARTITION, names, is_text=False) for row in rows]
    cells = read_all(scanned.__arrow_c_stream__())
    assert expected == list(zip(*cells.values(), strict=True))
    template = case.log.scan(columns=names, binary_type=draw(st.sampled_from(BINARY_TYPES)))
    table = pa.table(scanned)
    table.validate(full=True)
    for each in (table, pa.RecordBatchReader.from_stream(scanned, schema=None).read_all()):
        assert expected == _rows_of_table(each)
    capsule = pa.schema(template).__arrow_c_schema__()
    cells_of_schema = (
        read_all(scanned.__arrow_c_stream__(capsule)) if "headers" not in names else cells
    )
    assert cells == cells_of_schema


def _rows_of_table(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = []
    for name in table.column_names:
        column = table[name].cast(pa.int64()) if name == "timestamp" else table[name]
        cells = column.to_pylist()
        if name == "headers":
            cells = [[(pair["key"], pair["value"]) for pair in cell] for cell in cells]
        columns.append(cells)
    return list(zip(*columns, strict=True))


def by_numpy(case: Case, draw: Draw) -> None:
    """`Scan.to_numpy`."""
    arguments = draw(scan_arguments(case.log.log_end_offset))
    names = [name for name in arguments["columns"] if name not in ("headers", "topic")]
    arguments |= {"columns": names or ["offset", "key"]}
    scanned = case.log.scan(case.start, case.end, **arguments, **case.how)
    rows = [row for row in case.rows() if matches(arguments["filters"], row)]
    for name, array in scanned.to_numpy().items():
        made = [cells_of_row(row, PARTITION, [name], is_text=False) for row in rows]
        expected = [cell for cells in made if cells is not None for cell in cells]
        if isinstance(array, BytesArray):
            assert expected == _cells_of(array)
        else:
            # Null in Arrow is -1 in numpy.
            assert [-1 if cell is None else cell for cell in expected] == np.asarray(array).tolist()


def _cells_of(array: BytesArray) -> list[bytes | None]:
    octets = array.data.tobytes()
    cells = [octets[start:end] for start, end in pairwise(array.offsets.tolist())]
    if array.is_null is None:
        return list(cells)
    return [None if null else cell for cell, null in zip(cells, array.is_null, strict=True)]


def by_scan_of_many(case: Case, draw: Draw) -> None:
    """`kafkalog.scan`: one log after the other in the same batches."""
    arguments = draw(scan_arguments(case.log.log_end_offset)) | {"header_key_type": "binary"}
    scanned = scan([case.log, case.log], **arguments, **case.how)
    visible = case.visible(case.log.log_start_offset, case.truth.end_offset)
    rows = [row for row in visible if matches(arguments["filters"], row)]
    expected = [cells_of_row(row, PARTITION, scanned.columns, is_text=False) for row in rows]
    assert (expected + expected, None) == rows_of_scan(scanned)


def by_ranges(case: Case, draw: Draw) -> None:
    """`RangeReader`, with which Spark tasks read the files of no open log, up to the limit."""
    start, end = case.start, min(case.end, case.limit())
    disk, directory = PosixFileSystem(), case.log.directory
    arguments = draw(scan_arguments(case.log.log_end_offset)) | {"header_key_type": "binary"}
    options = make_options(**arguments, **case.how)
    # The caller bounds the range by the filters on offsets.
    offsets = options.conditions.offsets
    start, end = max(start, offsets.first), min(end, offsets.last + 1)
    aborted = None
    if case.isolation == "read_committed":
        aborted = aborted_on_disk(disk, directory, end)

    def fail(what: object) -> Any:
        raise AssertionError(what)

    reader = RangeReader(
        disk,
        directory,
        start,
        end,
        RangeOptions(
            timestamps=options.conditions.timestamps,
            aborted=aborted,
            check_crcs=draw(st.booleans()),
            max_batch_bytes=2**31 - 1,
            retries=0,
            piece_bytes=draw(st.sampled_from([100, 500, 1 << 20])),
        ),
        on_damage=fail,
        on_missing=fail,
    )
    rows = RowReader(options)
    batches = rows.read(
        reader.batch_slices() if start < end else iter(()),
        start,
        end,
        topic=PARTITION.topic,
        partition=PARTITION.partition,
        limit_bytes=2**31 - 1,
    )
    cells: list[tuple[Any, ...]] = []
    for source in (batches, rows.flush()):
        for batch in source:
            cells += _rows_of_batch(batch)
    visible_rows = [row for row in case.visible(start, end) if matches(arguments["filters"], row)]
    assert [
        cells_of_row(row, PARTITION, options.columns, is_text=False) for row in visible_rows
    ] == cells


def _rows_of_batch(batch: Any) -> list[tuple[Any, ...]]:
    return _rows_of_table(pa.Table.from_batches([pa.record_batch(batch)]))


READ_PATHS = [
    by_records,
    by_batches,
    by_get,
    by_get_many,
    by_times,
    by_slices,
    by_fetch_reader,
    by_scan,
    by_stream,
    by_numpy,
    by_scan_of_many,
    by_ranges,
]


@pytest.mark.parametrize("read_path", READ_PATHS)
@of_examples()
@given(made=any_logs(), data=st.data())
def test_read_path_gives_the_rows_of_the_reference(
    read_path: Callable[[Case, Draw], None], made: AnyLog, data: st.DataObject
) -> None:
    """Each path separately, so that a failure names it."""
    with case_of(made, data.draw) as case:
        read_path(case, data.draw)


@of_examples()
@given(made=any_logs(), data=st.data())
def test_consumer_gives_the_rows_of_the_reference(made: AnyLog, data: st.DataObject) -> None:
    """Polls of any size, in a coroutine or not; to the last stable offset or the end."""
    isolation: Isolation = data.draw(st.sampled_from(["read_uncommitted", "read_committed"]))
    count = data.draw(st.sampled_from([1, 3, 10_000]))
    is_async = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as name:
        made.write(Path(name) / str(PARTITION))
        truth = truth_of(Path(name) / str(PARTITION))
        logs = Logs(Path(name))
        logs.take(*PARTITION)
        consumer = logs.clients().consumer(auto_offset_reset="earliest", isolation_level=isolation)
        consumer.assign([PARTITION])
        found: list[Record] = []
        with asyncio.Runner() as runner:
            while True:
                if is_async:
                    polled = runner.run(consumer.poll_async(max_records=count))
                else:
                    polled = consumer.poll(max_records=count)
                if not polled:
                    break
                assert len(polled[PARTITION]) <= count
                found += polled[PARTITION]
        consumer.close()
        logs.close()
        assert_records(truth.visible(isolation, 0, truth.end_offset), found)
