"""Streams of a real Spark: the order of its calls, limits, restarts, growth and losses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from kafkalog import LogConfig, Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.query import StreamingQuery

    from kafkalog.spark.listener import QueryLag

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SMALL = LogConfig(segment_bytes=20_000, index_interval_bytes=1024)


def append(root: Path, name: str, first: int, count: int) -> None:
    """Append records with the values `first` and up, ten a batch."""
    (root / "meta.properties").touch()
    with kafkalog.open_log(root / name, config=SMALL) as log:
        for start in range(first, first + count, 10):
            stop = min(start + 10, first + count)
            log.append([Record(value=b"%d" % value) for value in range(start, stop)])


class Pipeline:
    """A stream from a directory of logs to Parquet files, with a checkpoint."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        from kafkalog.spark import register

        register(spark)
        self.spark = spark
        self.logs, self.out, self.checkpoint = root / "logs", root / "out", root / "checkpoint"
        self.logs.mkdir()

    def frame(self, **options: str) -> DataFrame:
        """Return the stream."""
        reader = self.spark.readStream.format("kafkalog").option("startingOffsets", "earliest")
        return reader.options(**options).load(str(self.logs))

    def run(self, **options: str) -> list[dict[str, Any]]:
        """Read what is there now, and return the progress of each micro-batch that read."""
        from pyspark.sql.functions import col

        rows = self.frame(**options).select(
            "topic", "partition", "offset", col("value").cast("string").alias("value")
        )
        query = (
            rows.writeStream.format("parquet")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start(str(self.out))
        )
        return finished(query)

    def rows(self) -> list[tuple[str, int, int, int]]:
        """Return what came out: topic, partition, offset and value of each record, sorted."""
        found = self.spark.read.parquet(str(self.out)).collect()
        return sorted((row.topic, row.partition, row.offset, int(row.value)) for row in found)


def finished(query: StreamingQuery) -> list[dict[str, Any]]:
    """Wait for a query that ends, and return the progress of each micro-batch that read."""
    try:
        assert query.awaitTermination(120)
        return [json.loads(each.json) for each in query.recentProgress if each.numInputRows]
    finally:
        query.stop()


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    """Return a pipeline over an empty directory."""
    return Pipeline(spark, tmp_path)


def expected_rows(name: str, partition: int, values: range, first: int = 0) -> list[Any]:
    """Return the rows of a partition whose values count up with its offsets."""
    return [(name, partition, first + slot, value) for slot, value in enumerate(values)]


def test_stream_available_now_limited_reads_each_record_once(pipeline: Pipeline) -> None:
    """Four micro-batches of a hundred; a second run reads what came since, a new partition too."""
    append(pipeline.logs, "a-0", 0, 250)
    append(pipeline.logs, "a-1", 0, 150)
    batches = pipeline.run(maxOffsetsPerTrigger="100")
    assert [100] * 4 == [each["numInputRows"] for each in batches]
    source = batches[-1]["sources"][0]
    assert {"a": {"0": 250, "1": 150}} == source["endOffset"] == source["latestOffset"]
    assert [] == pipeline.run(maxOffsetsPerTrigger="100")
    append(pipeline.logs, "a-0", 250, 10)
    append(pipeline.logs, "b-0", 0, 5)
    batches = pipeline.run()
    assert [15] == [each["numInputRows"] for each in batches]
    assert [
        *expected_rows("a", 0, range(260)),
        *expected_rows("a", 1, range(150)),
        *expected_rows("b", 0, range(5)),
    ] == pipeline.rows()


def test_stream_bytes_limited_reads_some_at_a_time(pipeline: Pipeline) -> None:
    """About as many bytes each; together everything."""
    append(pipeline.logs, "a-0", 0, 1000)
    size = sum(path.stat().st_size for path in (pipeline.logs / "a-0").glob("*.log"))
    batches = pipeline.run(maxBytesPerTrigger=str(size // 4 + 500))
    assert 4 <= len(batches) <= 6
    assert expected_rows("a", 0, range(1000)) == pipeline.rows()


def test_stream_commit_lost_is_replayed_with_the_same_records(pipeline: Pipeline) -> None:
    """Without the last entry of the commit log the micro-batch is read again, and not doubled."""
    append(pipeline.logs, "a-0", 0, 100)
    pipeline.run(maxOffsetsPerTrigger="50")
    commits = sorted(
        (pipeline.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name)
    )
    commits[-1].unlink()
    commits[-1].with_name(f".{commits[-1].name}.crc").unlink(missing_ok=True)
    append(pipeline.logs, "a-0", 100, 20)
    batches = pipeline.run(maxOffsetsPerTrigger="50")
    assert 20 == batches[-1]["numInputRows"]
    assert expected_rows("a", 0, range(120)) == pipeline.rows()


def test_stream_data_loss_fails_with_its_code(pipeline: Pipeline) -> None:
    """Records that were lost unread stop the query; failOnDataLoss=false continues after them."""
    from pyspark.errors import StreamingQueryException

    append(pipeline.logs, "a-0", 0, 50)
    pipeline.run()
    append(pipeline.logs, "a-0", 50, 50)
    with kafkalog.open_log(pipeline.logs / "a-0") as log:
        log.delete_records(70)
    with pytest.raises(StreamingQueryException) as caught:
        pipeline.run()
    assert "[KAFKALOG.DATA_LOSS] a-0: offsets from 50 on, up to 70, are gone" in str(caught.value)
    assert [30] == [each["numInputRows"] for each in pipeline.run(failOnDataLoss="false")]
    kept = [*range(50), *range(70, 100)]
    assert [("a", 0, value, value) for value in kept] == pipeline.rows()


def test_stream_of_a_growing_log_reads_each_record_once(pipeline: Pipeline) -> None:
    """A continuing query, a concurrent writer that rolls, and the lag of a listener."""
    from kafkalog.spark.listener import LagListener

    lags: list[QueryLag] = []
    listener = LagListener(lags.append, options={"path": str(pipeline.logs)})
    append(pipeline.logs, "a-0", 0, 600)
    pipeline.spark.streams.addListener(listener)
    query = (
        pipeline.frame(maxOffsetsPerTrigger="200")
        .selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
        .writeStream.format("memory")
        .queryName("growing")
        .option("checkpointLocation", str(pipeline.checkpoint))
        .start()
    )
    try:
        with kafkalog.open_log(pipeline.logs / "a-0", config=SMALL) as log:
            for start in range(600, 1500, 30):
                log.append([Record(value=b"%d" % value) for value in range(start, start + 30)])
                if start == 900:
                    query.processAllAvailable()
        query.processAllAvailable()
        rows = pipeline.spark.table("growing").collect()
    finally:
        query.stop()
        # Spark notifies in a separate thread.
        pipeline.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        pipeline.spark.streams.removeListener(listener)
    check_lags(lags, query)
    assert {} == listener.latest
    assert sorted((0, value, str(value)) for value in range(1500)) == sorted(map(tuple, rows))
    progress = [each for each in query.recentProgress if each.numInputRows]
    assert all(each.numInputRows <= 200 for each in progress)
    assert json.loads(progress[-1].sources[0].endOffset) == {"a": {"0": 1500}}


def check_lags(lags: list[QueryLag], query: StreamingQuery) -> None:
    """Assert that what a listener heard is what the progress of a query comes to."""
    from kafkalog.spark.lag import lag_between

    sources = [(each.batchId, each.sources[0]) for each in query.recentProgress]
    pairs = {(batch, lag_between(each.endOffset, each.latestOffset)) for batch, each in sources}
    assert {(str(query.id), "growing")} == {(each.query_id, each.query_name) for each in lags}
    assert {(each.batch_id, replace(each.lag, estimated_bytes=None)) for each in lags} <= pairs
    # The first micro-batch of 200 leaves at least what was there before it began.
    assert lags[0].lag.total_offsets >= 400
    assert lags[0].lag.estimated_bytes
    assert (0, 0) == (lags[-1].lag.total_offsets, lags[-1].lag.estimated_bytes)


def test_stream_group_offsets_cover_committed_records(pipeline: Pipeline) -> None:
    """The group of the options gets its positions with the micro-batch after."""
    append(pipeline.logs, "a-0", 0, 40)
    pipeline.run(groupId="etl", maxOffsetsPerTrigger="20", isolationLevel="read_committed")
    assert (pipeline.logs / "__consumer_offsets-0").is_dir()
    shutil.rmtree(pipeline.logs / "__consumer_offsets-0")
    assert expected_rows("a", 0, range(40)) == pipeline.rows()


def test_stream_hooks_are_called_in_order(pipeline: Pipeline, tmp_path: Path) -> None:
    """Order of the calls of a reader, as in its documentation."""
    trace = tmp_path / "trace"
    append(pipeline.logs, "a-0", 0, 20)
    pipeline.spark.dataSource.register(traced_source(str(trace)))
    query = (
        pipeline.spark.readStream.format("kafkalog_traced")
        .options(startingOffsets="earliest", maxOffsetsPerTrigger="10")
        .load(str(pipeline.logs))
        .writeStream.format("noop")
        .option("checkpointLocation", str(pipeline.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    finished(query)
    calls = trace.read_text().split()
    assert ["prepareForTriggerAvailableNow", "getDefaultReadLimit", "initialOffset"] == calls[:3]
    rest = [call for call in calls[3:] if call not in ("initialOffset", "reportLatestOffset")]
    assert ["latestOffset", "partitions", "latestOffset", "commit", "partitions"] == rest[:5]
    assert "stop" not in calls[:-1]


def traced_source(trace: str) -> type[DataSource]:
    """Return a data source like ours that writes down which hooks of its stream are called."""
    from kafkalog.spark.source import KafkaLogDataSource

    hooks = [
        "prepareForTriggerAvailableNow",
        "getDefaultReadLimit",
        "initialOffset",
        "latestOffset",
        "reportLatestOffset",
        "partitions",
        "commit",
        "stop",
    ]

    class Traced(KafkaLogDataSource):
        @classmethod
        def name(cls) -> str:
            return "kafkalog_traced"

        def streamReader(self, schema: Any) -> Any:
            reader = super().streamReader(schema)
            plain = type(reader)

            def traced(name: str) -> Callable[..., Any]:
                def call(self: Any, *arguments: Any) -> Any:
                    with open(trace, "a") as file:  # noqa: PTH123
                        file.write(f"{name}\n")
                    return getattr(plain, name)(self, *arguments)

                # Spark derives from the parameters whether there are limits.
                call.__signature__ = signature(getattr(plain, name))  # type: ignore[attr-defined]
                return call

            reader.__class__ = type("Traced", (plain,), {name: traced(name) for name in hooks})
            return reader

    return Traced
