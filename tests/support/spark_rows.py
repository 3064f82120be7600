"""The rows of a query of the Spark source, without Spark: plan, tasks, rows of all tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from kafkalog.files.filesystem import FileSystem
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import (
    EVERYTHING,
    FilterSet,
    LogSplit,
    QuerySnapshot,
    resolve_bounds,
    split_and_pack,
)
from kafkalog.spark.schema import arrow_type, columns_of, known_columns
from kafkalog.spark.split_reader import read_split
from kafkalog.spark.views import ViewSplit, plan_view, read_view

__all__ = ["map_nothing", "planned", "read_batches", "read_table", "schema_of"]


def map_nothing(*_: object) -> NoReturn:
    """Stand for the mapping of a file that another process may cut: reading there would kill."""
    raise AssertionError("a file of another process was mapped")


def schema_of(options: ReadOptions, columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the schema that Spark would promise: of the query, or of columns a caller names."""
    if columns is None:
        chosen = columns_of(options)
    else:
        chosen = tuple(known_columns(options)[name] for name in columns)
    return pa.schema([pa.field(column.name, arrow_type(column.kind)) for column in chosen])


def planned(options: ReadOptions, filters: FilterSet = EVERYTHING) -> Sequence[ViewSplit]:
    """Return the tasks of a query."""
    snapshot = QuerySnapshot.take(options, filters=filters)
    bounds = resolve_bounds(snapshot, options)
    if options.view not in ("records", "batches"):
        return plan_view(snapshot, bounds, options)
    return split_and_pack(
        snapshot,
        bounds,
        split_bytes=options.split_bytes,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
        filters=filters,
    )


def read_batches(
    tasks: Sequence[ViewSplit],
    options: ReadOptions,
    *,
    columns: Sequence[str] | None = None,
    filters: FilterSet = EVERYTHING,
    filesystem: FileSystem | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of tasks, each checked against its schema and by Arrow itself."""
    schema = schema_of(options, columns)
    chosen = tuple(known_columns(options)[name] for name in schema.names)
    for task in tasks:
        if options.view == "records" and isinstance(task, LogSplit):
            found = read_split(task, chosen, schema, options, filters, filesystem=filesystem)
        else:
            found = read_view(task, schema, options, filesystem=filesystem)
        for batch in found:
            assert schema.equals(batch.schema)
            batch.validate(full=True)
            yield batch


def read_table(
    *paths: Path,
    columns: Sequence[str] | None = None,
    filters: FilterSet = EVERYTHING,
    filesystem: FileSystem | None = None,
    **settings: Any,
) -> pa.Table:
    """Return all rows of a query over directories."""
    texts = {name.replace("__", "."): str(value) for name, value in settings.items()}
    options = ReadOptions.parse({"paths": ",".join(map(str, paths)), **texts})
    tasks = planned(options, filters)
    batches = read_batches(tasks, options, columns=columns, filters=filters, filesystem=filesystem)
    return pa.Table.from_batches(batches, schema_of(options, columns))
