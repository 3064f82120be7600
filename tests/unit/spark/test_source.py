"""Data source: schemas, columns, pushed filters and imports."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pyspark = pytest.importorskip("pyspark")

from pyspark.sql.datasource import (  # noqa: E402
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)
from pyspark.sql.types import StructType  # noqa: E402

from kafkalog.spark import prerequisites  # noqa: E402
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError  # noqa: E402
from kafkalog.spark.options import ReadOptions  # noqa: E402
from kafkalog.spark.pushdown import push_filters  # noqa: E402
from kafkalog.spark.source import (  # noqa: E402
    KafkaLogDataSource,
    KafkaLogPushdownReader,
    KafkaLogReader,
)
from tests.support.logs import manual_log, numbered  # noqa: E402

LATE = datetime(2024, 1, 1, tzinfo=UTC)
EARLY = datetime(1960, 1, 1, tzinfo=UTC)


def source(path: Path | str = "/none", **options: str) -> KafkaLogDataSource:
    """Return a source as Spark makes it, with option names in lower case."""
    entries = {"path": str(path), **options}
    return KafkaLogDataSource({name.lower(): value for name, value in entries.items()})


def schema(*fields: tuple[str, str] | tuple[str, str, bool]) -> StructType:
    """Return a schema of simple types, without a JVM."""
    return StructType.fromJson(
        {
            "type": "struct",
            "fields": [
                {
                    "name": field[0],
                    "type": field[1],
                    "nullable": field[2] if len(field) > 2 else True,
                    "metadata": {},
                }
                for field in fields
            ],
        }
    )


def pushed(*filters: Filter, **options: str) -> tuple[list[tuple[Any, ...]], list[Filter]]:
    """Return the terms for the engine, and the filters left to Spark."""
    found, rest = push_filters(list(filters), ReadOptions.parse({"path": "/none", **options}))
    prefixes = [("topic", "startswith", prefix) for prefix in found.topic_prefixes]
    return [*found.terms, *prefixes], rest


TAKEN: list[tuple[Filter, tuple[Any, ...]]] = [
    (EqualTo(("topic",), "a"), ("topic", "==", "a")),
    (EqualNullSafe(("topic",), "a"), ("topic", "==", "a")),
    (In(("topic",), ["a", None, "b"]), ("topic", "in", ["a", "b"])),  # type: ignore[arg-type]
    (StringStartsWith(("topic",), "a"), ("topic", "startswith", "a")),
    (EqualTo(("partition",), 3), ("partition", "==", 3)),
    (LessThan(("partition",), 3), ("partition", "<", 3)),
    (GreaterThan(("offset",), 3), ("offset", ">", 3)),
    (GreaterThanOrEqual(("offset",), 3), ("offset", ">=", 3)),
    (LessThanOrEqual(("offset",), 3), ("offset", "<=", 3)),
    (In(("offset",), (1, 2)), ("offset", "in", [1, 2])),
    (EqualTo(("key",), b"k"), ("key", "==", b"k")),
    (In(("key",), (b"k", None)), ("key", "in", [b"k"])),
    (IsNull(("key",)), ("key", "==", None)),
    (EqualNullSafe(("key",), None), ("key", "==", None)),
]


@pytest.mark.parametrize(("spark_filter", "term"), TAKEN, ids=lambda each: str(each)[:40])
def test_exact_filter_is_not_returned_to_spark(spark_filter: Filter, term: tuple[Any, ...]) -> None:
    """The engine returns exactly those records."""
    assert ([term], []) == pushed(spark_filter)


LEFT: list[Filter] = [
    EqualTo(("topic",), None),
    StringContains(("topic",), "a"),
    GreaterThan(("topic",), "a"),
    GreaterThan(("key",), b"k"),
    EqualTo(("value",), b"v"),
    EqualTo(("headers", "key"), "h"),
    IsNotNull(("key",)),
    IsNull(("offset",)),
    Not(EqualTo(("offset",), 3)),
    EqualTo(("offset",), True),
    EqualTo(("offset",), 2**63 - 1),
    EqualTo(("timestampType",), 1),
]


@pytest.mark.parametrize("spark_filter", LEFT, ids=str)
def test_unsupported_filter_is_returned_to_spark(spark_filter: Filter) -> None:
    """The same object, because Spark compares identities."""
    terms, (rest,) = pushed(spark_filter)
    assert [] == terms
    assert spark_filter is rest


def test_filter_of_times_is_applied_and_returned() -> None:
    """Except if it matches records without a time, which Spark shows as before 1970."""
    later, sooner = GreaterThanOrEqual(("timestamp",), LATE), LessThan(("timestamp",), LATE)
    assert ([("timestamp", ">=", LATE)], [later]) == pushed(later)
    assert ([], [sooner]) == pushed(sooner)
    both = ([("timestamp", "<", LATE), ("timestamp", ">=", LATE)], [sooner, later])
    assert both == pushed(sooner, later)
    early = GreaterThan(("timestamp",), EARLY)
    assert ([], [early]) == pushed(early)
    assert 1 == len(pushed(In(("timestamp",), (LATE,)))[0])
    assert 0 == len(pushed(In(("timestamp",), (LATE, EARLY)))[0])


def test_filter_that_is_always_true_is_dropped() -> None:
    """For columns that are never null; in PERMISSIVE mode times may be null."""
    names = ("topic", "partition", "offset", "timestamp", "timestampType")
    filters = [IsNotNull((name,)) for name in names]
    assert ([], []) == pushed(*filters)
    assert ([], filters[3:]) == pushed(*filters, mode="PERMISSIVE")


def test_not_null_filter_of_a_compared_key_is_dropped() -> None:
    """Spark adds it to every comparison; not if the key is compared with null."""
    there = IsNotNull(("key",))
    terms, rest = pushed(there, EqualTo(("key",), b"a"))
    assert ([("key", "==", b"a")], []) == (list(terms), rest)
    _, rest = pushed(there, IsNull(("key",)))
    assert [there] == rest


def test_filters_of_views_apply_only_to_partitions() -> None:
    """Other columns of a view are filtered by Spark."""
    offset = EqualTo(("offset",), 3)
    terms, rest = pushed(EqualTo(("topic",), "a"), offset, view="batches")
    assert ([("topic", "==", "a")], [offset]) == (terms, rest)


def test_schema_follows_the_options() -> None:
    """Seven columns, optional headers, chosen columns, or those of a view."""
    plain = "`key` binary, `value` binary, `topic` string, `partition` int, `offset` long, "
    plain += "`timestamp` timestamp, `timestampType` int"
    assert plain == source().schema()
    headers = ", `headers` array<struct<key: string, value: binary>>"
    assert plain + headers == source(includeHeaders="true").schema()
    assert "`producerId` long, `key` binary" == source(columns="producerId, key").schema()
    assert source(view="partitions").schema().startswith("`topic` string, `partition` int")
    assert plain == source(maxOffsetsPerTrigger="7", startingOffsets="latest").schema()
    assert (
        "`broken` string" == source(columns="broken", columnNameOfCorruptRecord="broken").schema()
    )
    with pytest.raises(KafkaLogSparkError, match="OPTION_CONFLICT"):
        source(columnNameOfCorruptRecord="key").schema()


REFUSED = [
    (schema(("ofset_", "long")), ErrorCode.COLUMN_UNKNOWN),
    (schema(("offset", "integer")), ErrorCode.TYPE_INVALID),
    (schema(("timestamp", "timestamp_ntz")), ErrorCode.TYPE_INVALID),
    (schema(("key", "binary", False)), ErrorCode.TYPE_INVALID),
    (schema(("offset", "long"), ("offset", "long")), ErrorCode.OPTION_INVALID),
    (schema(), ErrorCode.OPTION_INVALID),
]


@pytest.mark.parametrize(("spark_schema", "code"), REFUSED, ids=str)
def test_invalid_schema_is_refused(spark_schema: StructType, code: ErrorCode) -> None:
    """Unknown names, wrong types, non-nullable columns with nulls, none, or duplicates."""
    with pytest.raises(KafkaLogSparkError) as caught:
        source().reader(spark_schema)
    assert code is caught.value.code


def test_column_without_nulls_may_be_declared_not_null() -> None:
    """In PERMISSIVE mode times may be null."""
    never = schema(("offset", "long", False), ("timestamp", "timestamp", False))
    assert not source().reader(never).fields.field("offset").nullable  # type: ignore[attr-defined]
    with pytest.raises(KafkaLogSparkError, match="timestamp"):
        source(mode="PERMISSIVE").reader(never)


def test_reader_is_chosen_by_the_planning_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pushdown reader is used if Spark pushes filters down, or if it is required."""
    columns = schema(("offset", "long"))
    module = "pyspark.sql.worker.data_source_pushdown_filters"
    monkeypatch.delitem(sys.modules, module, raising=False)
    assert type(source(filterPushdown="auto").reader(columns)) is KafkaLogReader
    assert type(source(filterPushdown="true").reader(columns)) is KafkaLogPushdownReader
    monkeypatch.setitem(sys.modules, module, sys)
    assert type(source(filterPushdown="auto").reader(columns)) is KafkaLogPushdownReader
    assert type(source().reader(columns)) is KafkaLogReader


def test_different_filters_of_one_load_are_refused() -> None:
    """Spark would use the plan of the later one for both; another load may differ."""
    columns = schema(("offset", "long"))
    shared, other = source(filterPushdown="true"), source(filterPushdown="true")
    for each, value in ((shared, 3), (other, 4), (shared, 3)):
        # As in Spark, from the pickled source of the load.
        reader = pickle.loads(pickle.dumps(each)).reader(columns)
        assert [] == reader.pushFilters([EqualTo(("offset",), value)])
    with pytest.raises(KafkaLogSparkError, match="load again") as caught:
        shared.reader(columns).pushFilters([EqualTo(("offset",), 4)])
    assert ErrorCode.OPTION_CONFLICT is caught.value.code


def test_reader_and_partitions_can_be_pickled(tmp_path: Path) -> None:
    """The copy reads the same rows."""
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 5))
    reader = source(tmp_path).reader(schema(("offset", "long"), ("value", "binary")))
    reader, partitions = pickle.loads(pickle.dumps((reader, reader.partitions())))
    rows = [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]
    assert [{"offset": n, "value": b"v%d" % n} for n in range(5)] == rows


def test_empty_read_has_one_task_without_rows(tmp_path: Path) -> None:
    """For an empty list Spark makes a separate partition, and reads it."""
    with manual_log(tmp_path / "orders-0"):
        pass
    reader = source(tmp_path).reader(schema(("offset", "long")))
    (partition,) = reader.partitions()
    assert isinstance(partition, InputPartition)
    assert [] == list(reader.read(partition))


def test_pyspark_kafkalog_does_not_import_the_engine() -> None:
    """Spark imports it with the first use of any format."""
    program = (
        "import sys, pyspark.sql.datasource; before = set(sys.modules)\n"
        "import pyspark_kafkalog as found\n"
        "assert found.DefaultSource.name() == 'kafkalog'\n"
        "print(sorted(set(sys.modules) - before))"
    )
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
        timeout=120,
    )
    assert "['pyspark_kafkalog']" == said.stdout.strip()


@pytest.mark.parametrize("module", ["", ".errors", ".options", ".plan", ".prerequisites"])
def test_module_without_spark_does_not_import_it(module: str) -> None:
    """It does not import Arrow either; programs without Spark use these modules."""
    program = (
        f"import sys, kafkalog.spark{module}\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas') if name in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
        timeout=120,
    )
    assert "[]" == said.stdout.strip()


def test_default_source_equals_the_registered_class(tmp_path: Path) -> None:
    """Spark finds it by its name."""
    from pyspark_kafkalog import DefaultSource

    found = DefaultSource({"path": str(tmp_path), "view": "segments"})
    assert source(tmp_path, view="segments").schema() == found.schema()
    (tmp_path / "meta.properties").write_text("version=1\n")
    columns = schema(("topic", "string"))
    assert isinstance(found.reader(columns), KafkaLogReader)


# ---- prerequisites ----------------------------------------------------------------------------


def test_missing_java_is_reported_with_advice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not in PATH, not in JAVA_HOME, or too old."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KafkaLogSparkError, match=r"JAVA_MISSING.*Java 17.*PATH"):
        prerequisites.require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(KafkaLogSparkError, match=r"JAVA_MISSING.*JAVA_HOME"):
        prerequisites.require_java()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(KafkaLogSparkError, match=r"JAVA_MISSING.*1\.8\.0"):
        prerequisites.require_java()
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\" 2023' >&2\n")
    assert 21 == prerequisites.require_java()


def test_missing_spark_is_reported_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names `kafkalog[spark]`."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(KafkaLogSparkError, match=r"SPARK_MISSING.*kafkalog\[spark\]"):
        prerequisites.require_pyspark()
