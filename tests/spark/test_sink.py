"""`df.write` and `writeStream` through Spark: rows, transactions, replays, retries, refusals."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalog import LogManager, Record
from kafkalog._core.murmur2 import partition_of
from kafkalog.files.posix import PosixFileSystem
from kafkalog.records.codecs import Codec
from kafkalog.spark.txn.staging import StagingArea

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

COUNT = 2_000


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """Return a session that knows the sink."""
    from kafkalog.spark import register

    register(spark, tune=False)
    return spark


def numbers(spark: SparkSession, count: int = COUNT, parts: int = 3) -> DataFrame:
    """Return rows with a number each."""
    return spark.range(0, count, 1, parts).selectExpr(
        "cast(id as string) as key", "concat('v', id) as value"
    )


def save(rows: DataFrame, path: Path, mode: str = "append", **options: str) -> None:
    """Write rows."""
    settings = {"path": str(path), "topic": "t", **options}
    rows.write.format("kafkalog").options(**settings).mode(mode).save()


def stored(path: Path, topic: str = "t") -> dict[int, list[Record]]:
    """Return the records of a topic by partition; their offsets leave nothing out."""
    with LogManager([path]) as manager:
        found = {
            number: list(manager.log(topic, number).records()) for number in manager.topics()[topic]
        }
        for number, records in found.items():
            start = manager.log(topic, number).log_start_offset
            assert list(range(start, start + len(records))) == [each.offset for each in records]
    return found


def values(path: Path, topic: str = "t") -> list[str]:
    """Return the values of all partitions, sorted."""
    return sorted(
        (record.value or b"").decode() for records in stored(path, topic).values()
        for record in records
    )  # fmt: skip


def expected(*ranges: range) -> list[str]:
    """Return the values of numbers, sorted."""
    return sorted(f"v{number}" for each in ranges for number in each)


def refused(act: Callable[[], object], code: str) -> str:
    """Return the text of Spark's error, which has the code."""
    with pytest.raises(Exception, match=rf"\[KAFKALOG\.{code}\]") as caught:
        act()
    return str(caught.value)


def test_batch_write_rows_are_in_the_partition_of_their_key(
    session: SparkSession, tmp_path: Path
) -> None:
    """All rows once, in the partitions of Kafka's producers, compressed; nothing else is left."""
    save(numbers(session), tmp_path / "data", partitions="4", partitioner="murmur2")
    found = stored(tmp_path / "data")
    assert {0, 1, 2, 3} == set(found)
    assert expected(range(COUNT)) == values(tmp_path / "data")
    for number, records in found.items():
        assert {number} == {partition_of(record.key or b"", 4) for record in records}
    with LogManager([tmp_path / "data"]) as manager:
        codecs = {batch.header.codec for batch in manager.log("t", 0).batches()}
    assert {Codec.ZSTD} == codecs
    left = [path.name for path in (tmp_path / "data").iterdir() if "staging" in path.name]
    assert [] == left


def test_batch_write_all_columns_are_kept(session: SparkSession, tmp_path: Path) -> None:
    """Topic, partition, time, headers, nulls; other columns of the source are ignored."""
    rows = session.sql(
        "select cast(null as binary) key, cast('a' as binary) value, 'x' topic, 1 partition,"
        " timestamp_millis(1700000000123) timestamp, 5L offset, 0 timestampType,"
        " array(struct('h' as key, cast('1' as binary) as value)) headers"
        " union all select cast('k' as binary), cast(null as binary), 'y', 0,"
        " timestamp_millis(1700000000000), 6L, 0, null"
    )
    rows.write.format("kafkalog").option("path", str(tmp_path)).option("partitions", 2).mode(
        "append"
    ).save()
    [first] = stored(tmp_path, "x")[1]
    assert (None, b"a", 1_700_000_000_123, (("h", b"1"),)) == (
        first.key, first.value, first.timestamp_ms, first.headers,
    )  # fmt: skip
    [second] = stored(tmp_path, "y")[0]
    assert (b"k", None, 1_700_000_000_000, ()) == (
        second.key, second.value, second.timestamp_ms, second.headers,
    )  # fmt: skip


def test_batch_write_options_set_sizes_times_and_staging(
    session: SparkSession, tmp_path: Path
) -> None:
    """Batches, segments, the column with the times, another staging directory, and its orphans."""
    data, staging = tmp_path / "data", tmp_path / "staging"
    root = StagingArea(PosixFileSystem(), data, staging).root
    for name, age_s in (("query-old-1", 7_200), ("query-young-1", 60)):
        orphan = root / name / "0-0-t-0.log"
        orphan.parent.mkdir(parents=True)
        orphan.write_bytes(b"left by a task")
        for path in (orphan, orphan.parent):
            os.utime(path, (time.time() - age_s,) * 2)
    rows = numbers(session, 1_000, 1).selectExpr("*", "cast(key as bigint) + 17 as at")
    save(
        rows, data, timestampColumn="at", batchBytes="2k", segmentBytes="8k", compression="none",
        stagingDir=str(staging), orphanAge="1h", partitions="1",
    )  # fmt: skip
    records = stored(data)[0]
    assert list(range(17, 1_017)) == [record.timestamp_ms for record in records]
    with LogManager([data]) as manager:
        log = manager.log("t", 0)
        assert max(batch.header.size_bytes for batch in log.batches()) <= 2_048
        sizes = [segment.size_bytes for segment in log.segments()]
    assert len(sizes) > 1
    assert max(sizes) <= 8_192
    assert ["query-young-1"] == [path.name for path in root.iterdir()]


def test_batch_write_repeated_version_writes_nothing(session: SparkSession, tmp_path: Path) -> None:
    """The same version again, and an earlier one, are passed over; a later one is not."""
    for version in (5, 5, 4):
        save(numbers(session), tmp_path, txnAppId="nightly", txnVersion=str(version))
    assert expected(range(COUNT)) == values(tmp_path)
    save(numbers(session), tmp_path, txnAppId="nightly", txnVersion="6")
    assert expected(range(COUNT), range(COUNT)) == values(tmp_path)


def test_batch_write_overwrite_deletes_earlier_records(
    session: SparkSession, tmp_path: Path
) -> None:
    """Only where it is allowed; offsets continue."""
    save(numbers(session, 10), tmp_path)
    text = refused(
        lambda: save(numbers(session, 3), tmp_path, "overwrite"), "OVERWRITE_UNSUPPORTED"
    )
    assert "allowTruncate" in text
    assert expected(range(10)) == values(tmp_path)
    save(numbers(session, 3), tmp_path, "overwrite", allowTruncate="true")
    assert [10, 11, 12] == [record.offset for record in stored(tmp_path)[0]]


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_batch_write_failed_leaves_no_rows_and_can_be_repeated(
    session: SparkSession, tmp_path: Path
) -> None:
    """Each task fails once at its end; here that fails the write, which is run until it is done."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def fail_once(batches: Iterator[object]) -> Iterator[object]:
        from pyspark import TaskContext

        context = TaskContext.get()
        mark = marks / str(None if context is None else context.partitionId())
        yield from batches
        if not mark.exists():
            mark.touch()
            raise RuntimeError("this attempt fails at its end")

    rows = numbers(session).mapInArrow(fail_once, "key string, value string")
    for _ in range(4):
        try:
            save(rows, tmp_path / "data", txnAppId="a", txnVersion="1")
        except Exception as error:  # noqa: BLE001 - whatever Spark makes of it
            assert "this attempt fails" in str(error)
        else:
            break
    assert expected(range(COUNT)) == values(tmp_path / "data")
    assert [] == list((tmp_path / "data").glob(".kafkalog-sink-staging*"))


def test_write_beside_a_live_writer_raises_locked(session: SparkSession, tmp_path: Path) -> None:
    """The embedded writer continues, and no row is written."""
    with LogManager([tmp_path]) as manager:
        manager.create_topic("t")
        refused(lambda: save(numbers(session, 10), tmp_path), "LOCKED")
        manager.log("t").append([Record(value=b"v0")])
    assert ["v0"] == values(tmp_path)


@pytest.mark.parametrize(
    ("columns", "options", "code"),
    [
        ("id", {}, "COLUMN_UNKNOWN|COLUMN_MISSING"),
        ("'a' value, 1 other", {}, "COLUMN_UNKNOWN"),
        ("'a' key", {}, "COLUMN_MISSING"),
        ("1 value", {}, "TYPE_INVALID"),
        ("'a' value, 7 partition", {}, "PARTITION_OUT_OF_RANGE"),
        ("'a' value", {"partitioner": "explicit"}, "COLUMN_MISSING"),
        ("'a' value", {"compresion": "zstd"}, "OPTION_UNKNOWN"),
        ("'a' value", {"commitStrategy": "manifest"}, "UNSUPPORTED"),
        ("'a' value", {"preserveOffsets": "true"}, "UNSUPPORTED"),
        ("'a' value", {"txnAppId": "a"}, "OPTION_CONFLICT"),
    ],
)
def test_write_invalid_is_refused_with_an_error_class(
    session: SparkSession, tmp_path: Path, columns: str, options: dict[str, str], code: str
) -> None:
    """Before anything is published."""
    rows = session.range(1).selectExpr(*columns.split(", "))
    refused(lambda: save(rows, tmp_path / "data", **options), f"({code})")
    assert not (tmp_path / "data" / "t-0").exists()


# ------------------------------------------------------------------------------ streams


def stream(spark: SparkSession, tmp_path: Path, **options: str) -> None:
    """Stream the files of numbers that are there, one a batch."""
    query = (
        spark.readStream.schema("value string")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp_path / "in"))
        .writeStream.format("kafkalog")
        .options(path=str(tmp_path / "data"), topic="t", **options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def feed(spark: SparkSession, tmp_path: Path, start: int, stop: int) -> None:
    """Add a file of numbers."""
    rows = spark.range(start, stop, 1, 1).selectExpr("concat('v', id) as value")
    rows.write.mode("append").parquet(str(tmp_path / "in"))


def committed(tmp_path: Path) -> int:
    """Return the latest batch that the ledger has."""
    [ledger] = (tmp_path / "data").glob(".kafkalog-sink-ledger-*.json")
    version = json.loads(ledger.read_bytes())["version"]
    assert isinstance(version, int)
    return version


def test_stream_write_replayed_has_every_row_once(session: SparkSession, tmp_path: Path) -> None:
    """The last commit of the checkpoint is lost, with the log's copy of it there."""
    for number in range(3):
        feed(session, tmp_path, number * 100, number * 100 + 100)
    stream(session, tmp_path, partitions="2")
    assert 2 == committed(tmp_path)
    for path in (tmp_path / "checkpoint" / "commits").glob("*2*"):
        path.unlink()
    feed(session, tmp_path, 300, 400)
    stream(session, tmp_path, partitions="2")
    assert 3 == committed(tmp_path)
    assert expected(range(400)) == values(tmp_path / "data")


def test_stream_with_transaction_options_is_refused(session: SparkSession, tmp_path: Path) -> None:
    """A stream has names for its transactions."""
    feed(session, tmp_path, 0, 5)
    refused(lambda: stream(session, tmp_path, txnAppId="a", txnVersion="1"), "OPTION_CONFLICT")


def test_stream_foreach_batch_with_versions_writes_once(
    session: SparkSession, tmp_path: Path
) -> None:
    """As documented: the number of the batch as the version."""
    feed(session, tmp_path, 0, 50)

    def write(rows: DataFrame, batch: int) -> None:
        for _ in range(2):
            save(rows, tmp_path / "data", txnAppId="q", txnVersion=str(batch))

    query = (
        session.readStream.schema("value string")
        .parquet(str(tmp_path / "in"))
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert expected(range(50)) == values(tmp_path / "data")
