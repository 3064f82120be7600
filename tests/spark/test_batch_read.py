"""A session, and a batch read from `load` to rows: filters, schemas, views, damage, errors.

What the rows are is proved without a JVM (tests/unit/spark); here is that Spark gets them.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog.spark
from kafkalog import Record
from tests.golden_directories.facts import visible_records
from tests.golden_directories.old_facts import manifest_of, visible_of
from tests.support.damage import batch_positions, flip, log_file
from tests.support.golden import CLEAN, UNCLEAN, Manifest, data_directory
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import START_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(name="logs", scope="module")
def fixture_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics: one of two partitions with several segments, and a compressed one."""
    root = tmp_path_factory.mktemp("logs")
    for partition in range(2):
        with manual_log(root / f"orders-{partition}", segment_bytes=2000) as log:
            for first in range(0, 100, 5):
                log.append(numbered(first, 5))
    with manual_log(root / "others-0", compression_type="zstd") as log:
        log.append([Record(key=None, value=b"v", headers=[("h", b"1"), ("h", None)])])
        log.append(numbered(1, 9))
    return root


def reader(spark: SparkSession, **options: str) -> DataFrameReader:
    """Return a reader of the format."""
    return spark.read.format("kafkalog").options(**options)


@contextmanager
def pushing(spark: SparkSession, how: str) -> Iterator[None]:
    """Turn Spark's switch for filters on or off."""
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, how)
    try:
        yield
    finally:
        assert before is not None
        spark.conf.set(PUSHDOWN, before)


def error_of(action: Any) -> str:
    """Return the text of the error that an action ends with."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def detail_of(text: str, code: str) -> dict[str, Any]:
    """Return the JSON detail after a code in an error's text."""
    found = re.search(rf"\[KAFKALOG\.{code}\] .*?(\{{\".*\}})", text)
    assert found is not None, text
    detail: dict[str, Any] = json.loads(found[1])
    return detail


def test_start_session_runs_rows_through_python(spark: SparkSession) -> None:
    """The JVM answers, and its Python workers have this package."""

    def package_of(_: int) -> str:
        return kafkalog.__name__

    answers = spark.sparkContext.parallelize([1, 2], 2).map(package_of).collect()

    assert ["kafkalog", "kafkalog"] == answers
    assert 10 == spark.range(10).count()


def test_format_without_registration_is_found(spark: SparkSession, logs: Path) -> None:
    """Spark searches the package next to ours; it has the same classes."""
    assert 210 == reader(spark).load(str(logs)).count()


@pytest.mark.parametrize("data_set", [CLEAN, UNCLEAN])
def test_read_broker_directory_equals_manifest(spark: SparkSession, data_set: str) -> None:
    """Count, offsets, keys and sizes of values, for each of its partitions."""
    frame = reader(spark, splitBytes="64k").load(str(data_directory(data_set)))
    frame.createOrReplaceTempView("records")
    found = spark.sql(
        "select topic, partition, count(*) n, sum(offset) o, sum(length(key)) k,"
        " sum(length(value)) v, sum(unix_millis(timestamp)) t from records group by 1, 2"
    ).collect()
    starts = {
        (row.topic, row.partition): row.logStartOffset
        for row in reader(spark, view="partitions").load(str(data_directory(data_set))).collect()
    }
    assert len(found) > 3
    for row in found:
        manifest = Manifest(data_set, f"{row.topic}-{row.partition}")
        facts = visible_records(manifest, starts[row.topic, row.partition])
        sizes = [fact.value_size for fact in facts if fact.value_size >= 0]
        keys = [len(fact.key) for fact in facts if fact.key is not None]
        expected = (len(facts), sum(fact.offset for fact in facts))
        assert expected == (row.n, row.o)
        assert (sum(keys), sum(sizes)) == (row.k or 0, row.v or 0)
        if max(fact.timestamp_ms for fact in facts) < 2**50:
            assert sum(fact.timestamp_ms for fact in facts) == row.t


def test_read_old_format_returns_its_records(spark: SparkSession) -> None:
    """A standalone partition directory; v0 has no timestamp type."""
    manifest = manifest_of("kafka-0.8.2", "plain-0")
    rows = reader(spark).load(str(manifest.directory)).orderBy("offset").collect()
    facts = visible_of(manifest)
    expected = [(fact.offset, fact.key, -1) for fact in facts]
    assert expected == [(row.offset, row.key, row.timestampType) for row in rows]


def test_load_several_paths_is_one_table(spark: SparkSession, logs: Path) -> None:
    """As a list, and through the helper."""
    paths = [str(logs / "orders-0"), str(logs / "others-0")]
    assert 110 == reader(spark).load(paths).count()
    frame = kafkalog.spark.read(spark, [Path(path) for path in paths], columns=["offset"])
    assert ["offset"] == frame.columns
    assert 110 == frame.count()


QUERIES = [
    ("topic = 'orders' and partition = 1 and offset between 10 and 12", 3, 0),
    ("topic in ('others', 'none') and offset >= 8", 2, 0),
    ("topic like 'ord%' and offset in (1, 2, 99, 100)", 6, 0),
    ("partition > 0 and offset < 3", 3, 0),
    ("key = cast('k7' as binary)", 3, 0),
    ("key is null", 1, 0),
    (f"timestamp >= timestamp_millis({START_MS + 98})", 4, 1),
    (f"timestamp < timestamp_millis({START_MS + 1})", 3, 1),
    ("offset % 50 = 0", 5, 1),
    ("topic = 'orders' or offset = 3", 201, 1),
    ("offset not in (0, 1, 2, 3, 4, 5, 6, 7, 8)", 183, 1),
    ("cast(value as string) = 'v5'", 3, 1),
]


@pytest.mark.parametrize("how", ["true", "false"])
def test_filters_pushed_down_or_not_give_the_same_rows(
    spark: SparkSession, logs: Path, how: str
) -> None:
    """The same source and the same rows with Spark's switch on and off; on, less is left to it."""
    kafkalog.spark.register(spark)
    with pushing(spark, how):
        for condition, count, left in QUERIES:
            filtered = reader(spark, filterPushdown="auto").load(str(logs)).where(condition)
            assert count == filtered.count(), condition
            plan = filtered._jdf.queryExecution().executedPlan().toString()
            assert (how == "true" and not left) == (" Filter " not in plan), plan


def test_load_with_several_queries_keeps_their_filters_apart(
    spark: SparkSession, logs: Path
) -> None:
    """Spark keeps one plan for each load; where filters come down nevertheless, two are refused."""
    kafkalog.spark.register(spark)
    frame = reader(spark).load(str(logs))
    assert 3 == frame.where("offset = 3").count()
    assert 210 == frame.count()
    assert 5 == frame.where("offset = 3").union(frame.where("offset = 12")).count()
    pushed_down = reader(spark, filterPushdown="true").load(str(logs))
    assert 3 == pushed_down.where("offset = 3").count() == pushed_down.where("offset = 3").count()
    text = error_of(pushed_down.where("offset = 3").union(pushed_down.where("offset = 12")).count)
    assert "filterPushdown" == detail_of(text, "OPTION_CONFLICT")["option"]


def test_filters_required_but_not_pushable_are_refused(spark: SparkSession, logs: Path) -> None:
    """With the switch off Spark raises the error; with `false` no filter is pushed down."""
    kafkalog.spark.register(spark)
    with pushing(spark, "false"):
        text = error_of(reader(spark, filterPushdown="true").load(str(logs)).count)
        assert "DATA_SOURCE_PUSHDOWN_DISABLED" in text and PUSHDOWN in text
    assert 210 == reader(spark, filterPushdown="true").load(str(logs)).count()
    frame = reader(spark).load(str(logs)).where("offset = 3")
    assert 3 == frame.count()
    assert " Filter " in frame._jdf.queryExecution().executedPlan().toString()


def test_schema_equals_the_columns_read(spark: SparkSession, logs: Path) -> None:
    """By a user's schema or by `columns`; others than there are, and other types, are refused."""
    frame = reader(spark).schema("segment string, offset long not null").load(str(logs))
    (row,) = frame.where("offset = 99").select("segment").distinct().collect()
    assert row.segment.endswith(".log")
    assert ["partition", "value"] == reader(spark, columns="partition,value").load(
        str(logs)
    ).columns
    (row,) = (
        reader(spark, includeHeaders="true").load(str(logs)).where("headers is not null").collect()
    )
    assert [("h", b"1"), ("h", None)] == [tuple(header) for header in row.headers]
    hashed = reader(spark).schema("key binary, keyHash binary").load(str(logs))
    assert 0 == hashed.where("keyHash <> unhex(md5(key))").count()
    for schema, code in (
        ("offzet long", "COLUMN_UNKNOWN"),
        ("key string", "TYPE_INVALID"),
        ("value binary not null", "TYPE_INVALID"),
    ):
        text = error_of(reader(spark).schema(schema).load(str(logs)).count)
        assert f"KAFKALOG.{code}" in text
    text = error_of(lambda: reader(spark, columns="offset,valux").load(str(logs)))
    assert "valux" == detail_of(text, "COLUMN_UNKNOWN")["column"] and "'value'" in text


def test_views_read_headers_without_decoding_records(spark: SparkSession, logs: Path) -> None:
    """Counts and times of headers are those of records; every segment is sound."""
    frames: dict[str, DataFrame] = {
        view: reader(spark, view=view).load(str(logs))
        for view in ("partitions", "segments", "batches", "verify")
    }
    count = "sum(recordCount) as n"
    assert 210 == frames["segments"].selectExpr(count).first()["n"]  # type: ignore[index]
    assert 210 == frames["batches"].selectExpr(count).first()["n"]  # type: ignore[index]
    assert [("orders", 0, 100), ("orders", 1, 100), ("others", 0, 10)] == [
        (row.topic, row.partition, row.logEndOffset)
        for row in frames["partitions"].orderBy("topic", "partition").collect()
    ]
    assert {(0, True, "none")} == {
        (row.bad, row.indexOk, row.tail) for row in frames["verify"].collect()
    }
    assert 11 == frames["segments"].where("topic = 'others'").count() + 10
    newest = frames["batches"].selectExpr("max(maxTimestamp) as t").first()
    assert newest == reader(spark).load(str(logs)).selectExpr("max(timestamp) as t").first()
    assert {"none", "zstd"} == {row.compression for row in frames["batches"].collect()}


def test_sql_temporary_view_can_be_queried(spark: SparkSession, logs: Path) -> None:
    """All options arrive; a catalog table passes none, and its error names the remedy."""
    kafkalog.spark.register(spark)
    spark.sql(
        f"create or replace temporary view orders using kafkalog"
        f" options (path '{logs}', subscribe 'orders', endingOffsets 'latest')"
    )
    assert 200 == spark.sql("select count(*) as n from orders").first()["n"]  # type: ignore[index]
    text = error_of(lambda: reader(spark).load().count())
    assert "path" == detail_of(text, "OPTION_MISSING")["option"] and "TEMPORARY VIEW" in text


def test_load_invalid_options_raise_at_once(spark: SparkSession, logs: Path) -> None:
    """Unknown names with the nearest name, invalid values, missing paths and topics."""
    text = error_of(lambda: reader(spark, subscrib="orders").load(str(logs)))
    assert "subscribe" == detail_of(text, "OPTION_UNKNOWN")["nearest"]
    text = error_of(lambda: reader(spark, mode="LOUD").load(str(logs)))
    assert "LOUD" == detail_of(text, "OPTION_INVALID")["value"]
    text = error_of(reader(spark).load(str(logs / "none")).count)
    assert "KAFKALOG.PATH_NOT_FOUND" in text
    text = error_of(reader(spark, subscribe="ordres").load(str(logs)).count)
    assert ["ordres"] == detail_of(text, "TOPIC_NOT_FOUND")["topics"]
    assert (
        110
        == reader(spark, strictOptions="false", foo="1", subscribe="orders,others")
        .load(str(logs))
        .where("partition = 0")
        .count()
    )


def test_read_offset_bounds_limit_the_rows(spark: SparkSession, logs: Path) -> None:
    """As with Spark's own source: JSON by partition, words."""
    starting = json.dumps({"orders": {"0": 90, "1": -2}})
    ending = json.dumps({"orders": {"0": -1, "1": 7}})
    frame = reader(spark, subscribe="orders", startingOffsets=starting, endingOffsets=ending).load(
        str(logs)
    )
    found = {
        (row.partition, row.n)
        for row in frame.groupBy("partition")
        .agg({"*": "count"})
        .withColumnRenamed("count(1)", "n")
        .collect()
    }
    assert {(0, 10), (1, 7)} == found


def test_read_without_records_returns_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    """An empty log, and filters that leave nothing."""
    with manual_log(tmp_path / "empty-0"):
        pass
    frame = reader(spark).load(str(tmp_path))
    assert 0 == frame.count() == frame.where("topic = 'none'").count()


def test_read_damaged_log_follows_its_mode(spark: SparkSession, tmp_path: Path) -> None:
    """An error with class and detail; a row; nothing. Records before the damage can be read."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        for first in range(0, 100, 5):
            log.append(numbered(first, 5))
    path = log_file(directory)
    position = batch_positions(path)[10]
    flip(path, position + 80)
    text = error_of(reader(spark).load(str(directory)).count)
    detail = detail_of(text, "CORRUPT_BATCH")
    assert (str(path), position, 50) == (detail["path"], detail["position"], detail["base_offset"])
    assert 5 == len(reader(spark, arrowBatchRows="5").load(str(directory)).take(5))
    schema = "offset long, value binary, _corrupt_record string"
    rows = reader(spark, mode="PERMISSIVE").schema(schema).load(str(directory)).collect()
    (corrupt,) = [row for row in rows if row._corrupt_record is not None]
    assert (96, 50, None) == (len(rows), corrupt.offset, corrupt.value)
    assert "CORRUPT_BATCH" == json.loads(corrupt._corrupt_record)["code"]
    kafkalog.spark.register(spark, worker_logs=True)
    assert 95 == reader(spark, mode="DROPMALFORMED").load(str(directory)).count()
    logged = spark.sql("select msg from python_worker_logs()").collect()
    assert any("KAFKALOG.CORRUPT_BATCH" in str(row) for row in logged)
    (row,) = reader(spark, view="verify").load(str(directory)).collect()
    assert (1, position) == (row.bad, row.firstBad)


@pytest.mark.parametrize("page", ["spark-streaming", "spark-writing", "spark-jobs"])
def test_docs_examples_of_a_page_run_without_imports(
    spark: SparkSession, logs: Path, tmp_path: Path, page: str
) -> None:
    """USE-5: over logs in the directory that the page names."""
    text = (Path(__file__).parents[2] / "docs" / f"{page}.md").read_text("ascii")
    kafka = tmp_path / "kafka"
    shutil.copytree(logs, kafka)
    text = text.replace("/data/", f"{tmp_path}/").replace("/lake/", f"{tmp_path}/")
    namespace: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, page, "exec"), namespace)
    if page == "spark-streaming":
        assert spark.read.parquet(str(tmp_path / "tables/orders")).count() > 0
    elif page == "spark-writing":
        namespace["query"].processAllAvailable()
        namespace["query"].stop()
        assert {"flights-0", "flights-3"} <= {each.name for each in kafka.iterdir()}
    else:
        assert namespace["health"].count() > 0


def test_docs_examples_of_readme_and_spark_page_run(
    spark: SparkSession, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Block after block in one session, over logs in the directory that they name."""
    root = Path(__file__).parents[2]
    for name, fence in (("README.md", "py"), ("docs/spark.md", "python")):
        text = (root / name).read_text("ascii").replace("/data/kafka", str(logs))
        blocks = re.findall(rf"```{fence}\n(.*?)```", text, re.DOTALL)
        assert blocks
        namespace: dict[str, Any] = {}
        for block in blocks:
            exec(compile(block, name, "exec"), namespace)
    shown = capsys.readouterr().out
    assert "|        0|   10|" in shown
    assert "|99" in shown.replace(" ", "").replace("max(offset)", "")
    assert "\n10\n" in shown and "\n210\n" in shown
