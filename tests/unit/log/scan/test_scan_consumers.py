"""Tests of scans read by Arrow consumers: pyarrow, polars, DuckDB and pandas."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Log, Record
from kafkalog.log.scan.options import DEFAULT_COLUMNS
from tests.support.damage import batch_positions, flip, log_file
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import START_MS
from tests.support.scanning import slow_rows

pa = pytest.importorskip("pyarrow")

ROOT = Path(__file__).resolve().parents[4]
BINARY_TYPES: tuple[Any, ...] = ("binary", "large_binary", "binary_view")
VALUES = (b"v" * 40, None, b"", b"short", b"w" * 13, b"x" * 12, None)
RECORDS = [
    Record(
        key=None if number % 4 == 3 else b"key %d" % (number % 3),
        value=VALUES[number % len(VALUES)],
        headers=[(f"h{slot}", VALUES[slot]) for slot in range(number % 3)],
        timestamp_ms=-1 if number % 5 == 4 else START_MS + number,
    )
    for number in range(50)
]


@pytest.fixture(name="log", params=["uncompressed", "lz4"])
def fixture_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """Fifty records in five batches."""
    with manual_log(tmp_path / "orders-3", compression_type=request.param) as log:
        for first in range(0, len(RECORDS), 10):
            log.append(RECORDS[first : first + 10])
        yield log


def rows_of_table(table: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a pyarrow table in the form of the slow reader."""
    columns = []
    for name in table.column_names:
        column = table[name]
        if name == "timestamp":
            column = column.cast(pa.int64())
        cells = column.to_pylist()
        if name == "headers":
            cells = [[(pair["key"], pair["value"]) for pair in cell] for cell in cells]
        columns.append(cells)
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("binary_type", BINARY_TYPES)
@pytest.mark.parametrize("batch_rows", [1, 7, 65536])
def test_pyarrow_reads_the_records(log: Log, binary_type: Any, batch_rows: int) -> None:
    """A valid table of the requested types, from the stream and batch by batch."""
    scan = log.scan(binary_type=binary_type, batch_rows=batch_rows)
    table = pa.table(scan)
    table.validate(full=True)
    assert pa.schema(scan) == table.schema
    assert getattr(pa, binary_type)() == table.schema.field("value").type
    expected, _ = slow_rows(log, DEFAULT_COLUMNS)
    assert expected == rows_of_table(table)
    batches = [pa.record_batch(batch) for batch in scan]
    assert table == pa.Table.from_batches(batches)
    read = pa.RecordBatchReader.from_stream(scan).read_all()
    assert table == read


def test_pyarrow_error_has_its_name(tmp_path: Path) -> None:
    """The batches before the error come first."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        for first in range(0, 12, 4):
            log.append(numbered(first, 4))
    flip(log_file(directory), batch_positions(log_file(directory))[2] + 70)
    with manual_log(directory, read_only=True) as log:
        reader = pa.RecordBatchReader.from_stream(log.scan(columns=["offset"]))
        assert 8 == reader.read_next_batch().num_rows
        with pytest.raises(OSError, match=r"CorruptRecordError: .*orders-0"):
            reader.read_next_batch()


def test_pyarrow_reads_in_one_thread_and_releases_in_another(log: Log) -> None:
    """Streams and arrays belong to no thread."""
    tables: list[Any] = []
    reader = pa.RecordBatchReader.from_stream(log.scan(binary_type="binary_view", batch_rows=3))
    thread = threading.Thread(target=lambda: tables.append(reader.read_all()))
    thread.start()
    thread.join()
    assert list(range(50)) == tables[0]["offset"].to_pylist()
    thread = threading.Thread(target=tables.clear)
    thread.start()
    thread.join()


def test_polars_reads_the_records(log: Log) -> None:
    """A data frame, for each type of values."""
    pl = pytest.importorskip("polars")
    expected, _ = slow_rows(log, ["offset", "key", "value"])
    for binary_type in BINARY_TYPES:
        scan = log.scan(columns=["offset", "key", "value"], binary_type=binary_type, batch_rows=7)
        assert expected == pl.DataFrame(scan).rows()
        assert expected == pl.from_arrow(scan).struct.unnest().rows()
    headers = pl.DataFrame(log.scan(columns=["headers"]))["headers"].to_list()
    pairs = [[(pair["key"], pair["value"]) for pair in cell] for cell in headers]
    assert [list(record.headers) for record in log.records()] == pairs


QUERY = """
import sys, duckdb
from kafkalog import open_log
with open_log(sys.argv[1], read_only=True) as log:
    found = duckdb.from_arrow(log.scan(batch_rows=7)).filter("value is not null")
    rows = found.order('"offset"').project('"offset", key, value, topic, partition').fetchall()
    # Each query reads the scan anew.
    assert len(rows) == len(found.project("key").fetchall())
    print(rows)
"""


def test_duckdb_reads_the_records(log: Log) -> None:
    """The scan is a relation. A separate process reports leaks at its exit."""
    if importlib.util.find_spec("duckdb") is None:
        pytest.skip("no duckdb")
    result = subprocess.run(
        [sys.executable, "-c", QUERY, str(log.directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (0, "") == (result.returncode, result.stderr)
    expected, _ = slow_rows(
        log,
        ["offset", "key", "value", "topic", "partition"],
        condition=lambda record: record.value is not None,
    )
    assert f"{expected}\n" == result.stdout


def test_pandas_reads_the_records(log: Log) -> None:
    """Through pyarrow; a null value is None."""
    pytest.importorskip("pandas")
    frame = pa.table(log.scan(columns=["offset", "value"])).to_pandas()
    assert [record.value for record in log.records()] == frame["value"].tolist()


def test_fork_keeps_a_stream_in_parent_and_child(log: Log) -> None:
    """Each continues at the same position, and frees its own memory."""
    reader = pa.RecordBatchReader.from_stream(log.scan(binary_type="binary_view", batch_rows=4))
    first = reader.read_next_batch()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            rest = sum(batch.num_rows for batch in reader)
            del reader
            status = 0 if (rest, first.num_rows) == (46, 4) else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert 0 == os.waitstatus_to_exitcode(status)
    assert 46 == sum(batch.num_rows for batch in reader)
    first.validate(full=True)


def table_with_schema(log: Log, schema: Any, **arguments: Any) -> Any:
    """Return the table of a consumer that requests a schema."""
    scan = log.scan(**arguments)
    return pa.RecordBatchReader.from_stream(Asking(scan, schema)).read_all()


class Asking:
    """A scan whose stream always gets this requested schema, whatever pyarrow would pass."""

    def __init__(self, scan: Any, schema: Any) -> None:
        self._scan = scan
        self._schema = schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._scan.__arrow_c_stream__(self._schema.__arrow_c_schema__())


@pytest.mark.parametrize("binary_type", BINARY_TYPES)
@pytest.mark.parametrize("text", [True, False])
def test_consumer_gets_the_requested_types(log: Log, binary_type: Any, text: bool) -> None:
    """Key and value in any of their three types, keys of headers as text or bytes."""
    fields = list(pa.schema(log.scan()))
    pair = pa.struct([("key", pa.utf8() if text else pa.binary()), ("value", pa.binary())])
    types = {
        "key": getattr(pa, binary_type)(),
        "value": getattr(pa, binary_type)(),
        "headers": pa.list_(pair),
    }
    schema = pa.schema([(each.name, types.get(each.name, each.type)) for each in fields])
    table = table_with_schema(log, schema)
    assert [types.get(each.name, each.type) for each in fields][3:5] == table.schema.types[3:5]
    assert schema.field("headers").type.value_type.field(0).type == (
        table.schema.field("headers").type.value_type.field(0).type
    )
    offsets, values = table["offset"].to_pylist(), table["value"].to_pylist()
    assert (list(range(50)), [record.value for record in RECORDS]) == (offsets, values)


@pytest.mark.parametrize(
    "fields",
    [
        [("key", "large_binary"), ("value", "binary")],
        [("key", "utf8"), ("value", "utf8")],
        [("value", "binary"), ("key", "binary")],
        [("key", "large_binary")],
        [("key", "large_binary"), ("other", "large_binary")],
        [],
    ],
)
def test_consumer_with_impossible_schema_gets_that_of_the_scan(
    log: Log, fields: list[tuple[str, str]]
) -> None:
    """Two different types, text for any bytes, or other columns."""
    schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in fields])
    scan = log.scan(columns=["key", "value"])
    assert pa.schema(scan) == table_with_schema(log, schema, columns=["key", "value"]).schema


def test_consumer_with_released_schema_is_refused(log: Log) -> None:
    """Its memory must not be read; nor that of a capsule of another kind."""
    capsule = pa.schema([("key", pa.binary())]).__arrow_c_schema__()
    pa.Schema._import_from_c_capsule(capsule)
    scan = log.scan(columns=["key"])
    with pytest.raises(ValueError, match="released"):
        scan.__arrow_c_stream__(capsule)
    with pytest.raises(ValueError, match="PyCapsule"):
        scan.__arrow_c_stream__(log.scan().__arrow_c_stream__())
