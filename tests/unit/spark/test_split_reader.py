"""Rows of tasks: golden directories, any split, any columns, exact types."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from hashlib import md5
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkalog import Record, open_log
from kafkalog.files.posix import PosixFileHandle
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import FilterSet
from tests.golden_directories.facts import visible_records
from tests.golden_directories.old_facts import PARTITIONS as OLD
from tests.golden_directories.old_facts import manifest_of, visible_of
from tests.support.golden import CLEAN, UNCLEAN, Manifest, data_directory, partitions
from tests.support.golden_old import OldManifest
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import START_MS, ManualClock, ManualScheduler
from tests.support.spark_rows import map_nothing, planned, read_batches, read_table

LAST_TIME = (2**63 - 1) // 1000 * 1000
ALL = ("offset", "timestamp", "timestampType", "key", "value", "headers", "topic", "partition")

Rows = dict[tuple[str, int], list[dict[str, Any]]]


def by_partition(rows: list[dict[str, Any]]) -> Rows:
    """Return rows by topic and partition, each in the order of offsets."""
    found: Rows = defaultdict(list)
    for row in rows:
        found[row["topic"], row["partition"]].append(row)
    for each in found.values():
        each.sort(key=lambda row: row["offset"])
    return found


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table, with times in microseconds: `datetime` ends in 9999."""
    number = table.schema.get_field_index("timestamp")
    table = table.set_column(number, "timestamp", table["timestamp"].cast("int64"))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def check_row(fact: Any, row: dict[str, Any]) -> None:
    """Assert that a row equals the record of a manifest."""
    expected = (
        fact.offset,
        min(1000 * fact.timestamp_ms, LAST_TIME),
        fact.timestamp_type,
        fact.key,
    )
    assert expected == (row["offset"], row["timestamp"], row["timestampType"], row["key"])
    assert fact.has_value(row["value"])
    headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
    assert [
        (key.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), value)
        for key, value in fact.headers
    ] == headers
    assert (row["headers"] is None) == (not fact.headers)


@cache
def facts(data_set: str, name: str) -> list[Any]:
    """Return the records of a golden partition that are visible to a reader."""
    manifest = Manifest(data_set, name)
    clock = ManualClock()
    with open_log(
        manifest.directory, read_only=True, clock=clock, scheduler=ManualScheduler(clock)
    ) as log:
        return visible_records(manifest, log.log_start_offset)


@pytest.mark.parametrize("data_set", [CLEAN, UNCLEAN])
@pytest.mark.parametrize("split_bytes", ["256m", "3000"])
def test_rows_of_a_brokers_directory_equal_its_manifests(data_set: str, split_bytes: str) -> None:
    """One task or hundreds; compacted logs, transactions and every codec."""
    table = read_table(data_directory(data_set), columns=ALL, splitBytes=split_bytes)
    found = by_partition(rows_of(table))
    # Without internal topics and deleted partitions.
    names = [name for name in partitions(data_set) if not name.endswith("-delete")]
    expected = {name: facts(data_set, name) for name in names}
    shown = {f"{topic}-{partition}": rows for (topic, partition), rows in found.items()}
    for name in shown:
        assert len(expected[name]) == len(shown[name])
        for fact, row in zip(expected[name], shown[name], strict=True):
            check_row(fact, row)
    assert {name for name in names if expected[name] and not name.startswith("__")} == shown.keys()


@pytest.mark.parametrize(("broker", "partition"), OLD)
def test_rows_of_old_formats_equal_their_manifests(broker: str, partition: str) -> None:
    """v0, v1 and v2, plain and wrapped; a v0 record has no timestamp and no type."""
    manifest: OldManifest = manifest_of(broker, partition)
    topic = partition.rpartition("-")[0]
    table = read_table(manifest.directory, columns=ALL, subscribe=topic)
    rows = rows_of(table.sort_by("offset"))
    visible_facts = visible_of(manifest)
    assert len(visible_facts) == len(rows)
    for fact, row in zip(visible_facts, rows, strict=True):
        check_row(fact, row)


@pytest.mark.parametrize("damage", ["whole", "missing", "cut"])
def test_committed_rows_equal_those_of_the_engine(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the transaction index or, if it is wrong, by the batches; no file is mapped."""
    from tests.golden_directories.test_isolation import TRANSACTIONAL
    from tests.support.golden import copy_tree

    checked = 0
    for number, source in enumerate(TRANSACTIONAL):
        directory = tmp_path / str(number) / source.name
        directory.parent.mkdir()
        copy_tree(source, directory)
        if damage != "whole":
            for index in directory.glob("*.txnindex"):
                if damage == "missing":
                    index.unlink()
                else:
                    index.write_bytes(index.read_bytes()[:-20])
        clock = ManualClock()
        scheduler = ManualScheduler(clock)
        with open_log(directory, read_only=True, clock=clock, scheduler=scheduler) as log:
            offsets = [record.offset for record in log.records(isolation="read_committed")]
        monkeypatch.setattr(PosixFileHandle, "map", map_nothing)
        for split_bytes in ("256m", "8000"):
            table = read_table(
                directory,
                columns=["offset"],
                isolationLevel="read_committed",
                splitBytes=split_bytes,
            )
            assert offsets == sorted(table["offset"].to_pylist())
        monkeypatch.undo()
        checked += len(offsets)
    assert checked


def test_columns_equal_those_of_the_schema(tmp_path: Path) -> None:
    """In its order, including columns that only a schema can name."""
    directory = tmp_path / "orders-3"
    with manual_log(directory, segment_bytes=250) as log:
        for first in range(0, 12, 4):
            log.append(numbered(first, 4))
        log.append([Record(key=None, value=None, headers=[("h", b"1"), ("h", None)])])
        segments = [segment.base_offset for segment in log.segments()]
    assert len(segments) > 1
    names = ["keyHash", "segment", "_corrupt_record", "offset", "leaderEpoch", "producerId"]
    rows = read_table(directory, columns=names).to_pylist()
    assert list(range(13)) == [row["offset"] for row in rows]
    assert [md5(b"k%d" % number).digest() for number in range(12)] + [None] == [
        row["keyHash"] for row in rows
    ]
    for row in rows:
        base = max(base for base in segments if base <= row["offset"])
        assert (f"{base:020d}.log", None, None) == (
            row["segment"],
            row["_corrupt_record"],
            row["producerId"],
        )
    assert {"segment": ["00000000000000000000.log"]} == {
        "segment": read_table(directory, columns=["segment"])["segment"].to_pylist()[:1]
    }
    table = read_table(directory, columns=["_corrupt_record"])
    assert (13, 13) == (table.num_rows, table["_corrupt_record"].null_count)
    (headers,) = read_table(directory, columns=["headers"])["headers"].to_pylist()[12:]
    assert [{"key": "h", "value": b"1"}, {"key": "h", "value": None}] == headers


def test_timestamp_above_the_range_of_spark_is_its_maximum(tmp_path: Path) -> None:
    """A Kafka timestamp may have any 64 bits of milliseconds."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        log.append([Record(value=b"", timestamp_ms=time) for time in (2**62, START_MS)])
    table = read_table(directory, columns=["timestamp"])
    assert [LAST_TIME, START_MS * 1000] == table["timestamp"].cast("int64").to_pylist()


def test_header_key_not_utf8_has_replacement_characters(tmp_path: Path) -> None:
    """As in Kafka's clients; other header keys are not changed."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        log.append([Record(value=b"", headers=[("\udcff", b"1"), ("\xe9", b"2")])])
    (headers,) = read_table(directory, columns=["headers"])["headers"].to_pylist()
    assert ["\ufffd", "\xe9"] == [header["key"] for header in headers]


def test_batches_follow_the_limits_of_the_options(tmp_path: Path) -> None:
    """Rows and bytes of a batch; a second read of a task is the same."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        log.append(numbered(0, 100))
    options = ReadOptions.parse({"path": str(directory), "arrowBatchRows": "30"})
    tasks = planned(options)
    first = list(read_batches(tasks, options))
    assert [30, 30, 30, 10] == [batch.num_rows for batch in first]
    assert first == list(read_batches(tasks, options))
    options = ReadOptions.parse({"path": str(directory), "arrowBatchBytes": "1k"})
    assert len(list(read_batches(tasks, options))) > 3


def test_filters_select_rows_over_several_segments(tmp_path: Path) -> None:
    """Offsets, keys, times, topics and partitions."""
    directory = tmp_path / "orders-0"
    with manual_log(directory, segment_bytes=500, index_interval_bytes=100) as log:
        for number in range(50):
            log.append(numbered(number, 1))
    cases: list[tuple[list[tuple[str, str, Any]], list[int]]] = [
        ([("offset", ">=", 10), ("offset", "<", 13)], [10, 11, 12]),
        ([("offset", "in", [3, 49, 60])], [3, 49]),
        ([("key", "in", [b"k7", b"k30"])], [7, 30]),
        ([("timestamp", ">=", START_MS + 47)], [47, 48, 49]),
        ([("topic", "==", "orders"), ("offset", "==", 5)], [5]),
        ([("topic", "startswith", "ord"), ("partition", "in", [0, 4]), ("offset", "<", 2)], [0, 1]),
        ([("topic", "==", "others")], []),
        ([("partition", "==", 1)], []),
    ]
    for terms, offsets in cases:
        table = read_table(directory, columns=["offset"], filters=FilterSet.of(terms))
        assert offsets == table["offset"].to_pylist()
