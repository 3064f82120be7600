"""Import of rows as batches that keep their offsets, including gaps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from kafkalog import Codec, LogConfig, Record, open_log
from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.jobs.importing import append_file, import_
from kafkalog.spark.jobs.offset_keeping_writer import OffsetKeepingWriter

Row = tuple[int, bytes | None, bytes | None, int | None, list[tuple[str, bytes | None]]]
Rows = list[Row]
CELL = st.none() | st.binary(max_size=12)
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def batch_of(partitions: list[tuple[int, Rows]]) -> pa.RecordBatch:
    """Return rows of a topic, sorted as by Spark."""
    rows = [
        {
            "topic": "t",
            "partition": partition,
            "offset": offset,
            "key": key,
            "value": value,
            "timestamp": None if time is None else time * 1000,
            "headers": [{"key": name, "value": cell} for name, cell in headers],
        }
        for partition, listed in partitions
        for offset, key, value, time, headers in listed
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@st.composite
def rows_of_partition(draw: st.DrawFn) -> Rows:
    """Draw rows with rising offsets and gaps, some too wide for one batch."""
    offset = draw(st.integers(0, 5))
    rows: Rows = []
    for _ in range(draw(st.integers(0, 25))):
        headers = draw(st.lists(st.tuples(st.sampled_from("ab"), CELL), max_size=2))
        time = draw(st.none() | st.integers(0, 2**40))
        rows.append((offset, draw(CELL), draw(CELL), time, headers))
        offset += draw(st.sampled_from([1, 1, 1, 2, 7, 2**31]))
    return rows


@settings(max_examples=25)
@given(
    st.lists(rows_of_partition(), min_size=1, max_size=3),
    st.sampled_from([Codec.NONE, Codec.LZ4]),
    st.integers(80, 400),
    st.integers(1, 40),
)
def test_imported_rows_keep_their_offsets(
    tmp_path_factory: pytest.TempPathFactory,
    partitions: list[Rows],
    codec: Codec,
    batch_bytes: int,
    cut: int,
) -> None:
    """Read back through a log that appends the batches without new offsets."""
    folder = tmp_path_factory.mktemp("files")
    writer = OffsetKeepingWriter(folder, codec, batch_bytes)
    whole = batch_of(list(enumerate(partitions)))
    for start in range(0, whole.num_rows, cut):
        writer.add(whole.slice(start, cut))
    files = {each["partition"]: each for each in writer.finish()}

    assert {number for number, rows in enumerate(partitions) if rows} == set(files)
    for number, rows in enumerate(partitions):
        if not rows:
            continue
        file = files[number]
        assert (rows[0][0], rows[-1][0]) == (file["first_offset"], file["last_offset"])
        assert len(rows) == file["rows"]
        with open_log(folder / f"t-{number}") as log:
            log.append_batches(Path(file["path"]).read_bytes(), assign_offsets=False)
            found = [
                (
                    record.offset,
                    record.key,
                    record.value,
                    None if record.timestamp_ms < 0 else record.timestamp_ms,
                    list(record.headers),
                )
                for record in log.records()
            ]
        assert rows == found


@pytest.mark.parametrize("settings", [{}, {"message_timestamp_type": "LogAppendTime"}])
def test_repeated_append_continues_after_its_own_batches(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Batches of an earlier run are not appended twice; other records are a conflict."""
    rows: Rows = [(offset, b"k", b"v%d" % offset, 1, []) for offset in range(20)]
    writer = OffsetKeepingWriter(tmp_path, Codec.NONE, 100)
    writer.add(batch_of([(0, rows)]))
    (file,) = writer.finish()
    data = Path(file["path"]).read_bytes()
    config = LogConfig(**settings)
    with open_log(tmp_path / "t-0", config=config) as log:
        first = ends_of_batches(data)[0]
        log.append_batches(data[:first], assign_offsets=False)
        append_file(log, file, 0)
        append_file(log, file, 0)
        assert [value for _, _, value, *_ in rows] == [record.value for record in log.records()]
    with open_log(tmp_path / "t-1", config=config) as log:
        log.append([Record(value=b"of somebody else")])
        with pytest.raises(KafkaLogSparkError, match=r"TXN_CONFLICT.*t-1 has got .* at 0:"):
            append_file(log, file, 0)
        assert 1 == log.log_end_offset


def ends_of_batches(data: bytes) -> list[int]:
    """Return the end position of each batch."""
    columns = BatchColumns(100)
    scan_batches(data, columns=columns)
    ends = columns.position[: len(columns)] + columns.size_bytes[: len(columns)]
    return [int(end) for end in ends]


def test_two_rows_with_one_offset_are_refused(tmp_path: Path) -> None:
    """In one Arrow batch or in two."""
    row: Row = (4, b"k", b"v", 1, [])
    for parts in ([[row, row]], [[row], [row]]):
        writer = OffsetKeepingWriter(tmp_path, Codec.NONE)
        with pytest.raises(KafkaLogSparkError, match="two rows have one offset") as caught:
            for rows in parts:
                writer.add(batch_of([(0, rows)]))
        writer.abandon()

        assert ErrorCode.RECORD_INVALID == caught.value.code
    assert [] == list(tmp_path.iterdir())


def field(name: str, kind: str) -> StructField:
    """Return a column of a schema; Spark's parser of types needs a JVM."""
    kinds = {"int": IntegerType, "bigint": LongType, "string": StringType, "binary": BinaryType}
    return StructField(name, kinds[kind]())


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            "topic string, partition bigint, offset bigint, value binary",
            "TYPE_INVALID.*'partition'",
        ),
        ("topic string, partition int, offset int, value binary", "TYPE_INVALID.*'offset'"),
        ("topic string, partition int, offset bigint, value int", "TYPE_INVALID.*'value'"),
        (
            "topic string, partition int, offset bigint, value string, timestamp bigint",
            "TYPE_INVALID.*'timestamp'",
        ),
        ("topic string, partition int, value string", "COLUMN_MISSING.*offset"),
    ],
)
def test_import_wrong_column_type_is_refused(tmp_path: Path, columns: str, message: str) -> None:
    """Before any write: integers of another width would be misread."""
    fields = [field(*each.split(" ")) for each in columns.split(", ")]
    frame: Any = SimpleNamespace(schema=StructType(fields))
    with pytest.raises(KafkaLogSparkError, match=message):
        import_(None, frame, tmp_path / "data")  # type: ignore[arg-type]
    assert [] == list(tmp_path.iterdir())


def test_import_unknown_codec_or_missing_path_is_refused(tmp_path: Path) -> None:
    """No file is written."""
    with pytest.raises(KafkaLogSparkError, match=r"OPTION_INVALID.*brotli.*zstd"):
        import_(None, tmp_path, tmp_path / "data", codec="brotli")  # type: ignore[arg-type]
    with pytest.raises(KafkaLogSparkError, match="PATH_NOT_FOUND"):
        import_(None, tmp_path / "none", tmp_path / "data")  # type: ignore[arg-type]


def test_import_null_offset_is_refused(tmp_path: Path) -> None:
    """The error has the code COLUMN_MISSING."""
    batch = batch_of([(0, [(4, b"k", b"v", 1, [])])])
    without = batch.set_column(2, SCHEMA.field("offset"), pa.array([None], pa.int64()))
    with pytest.raises(KafkaLogSparkError, match="a row has no offset") as caught:
        OffsetKeepingWriter(tmp_path, Codec.NONE).add(without)

    assert ErrorCode.COLUMN_MISSING == caught.value.code
