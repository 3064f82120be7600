"""The data source `kafkalog` of Spark: makes readers and writers from options and a schema.

    load(path) -> schema() -> reader(schema) -> [pushFilters] -> partitions() -> read(partition) ...

All but the last run in planning processes of the driver, the last in the workers of executors; only
plain data is passed between them. Spark pushes filters down only if its switch
`spark.sql.python.filterPushdown.enabled` is on, and a reader with `pushFilters` is an error if it
is off; so there are two readers, and the module that runs in the planning worker decides which one
is made.

A plan with filters is kept by Spark for everything that came of the same `load`: for a query
without filters afterwards, and for both sides of a union or a join with different filters. So
filters are accepted only if the options allow it, and no load accepts two different sets.

Thread-safety: none; Spark calls one method after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError, coded_errors
from kafkalog.spark.options import ReadOptions, WriteOptions
from kafkalog.spark.plan import (
    EVERYTHING,
    FilterSet,
    LogSplit,
    QuerySnapshot,
    resolve_bounds,
    split_and_pack,
)
from kafkalog.spark.pushdown import push_filters
from kafkalog.spark.schema import (
    Column,
    check_fields,
    columns_of,
    ddl_of,
    known_columns,
    never_null,
)
from kafkalog.spark.split_reader import read_split
from kafkalog.spark.views import ViewSplit, plan_view, read_view
from kafkalog.spark.workers import disable_gc

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["KafkaLogDataSource", "KafkaLogPushdownReader", "KafkaLogReader", "checked_schema"]

# A process that plans with filters runs this module of Spark's; without filters it runs another.
_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
# The filters of the latest loads in this process.
_FILTERS_OF_LOADS: Final[dict[str, FilterSet]] = {}
_LOADS_MAX: Final = 10_000


class KafkaLogDataSource(DataSource):
    """
    Logs in Kafka's format as a table, a stream and a target of writes.

    Args:
        options: as Spark has them.
        load_id: id of its `load`, which all queries of the load share.
    """

    def __init__(self, options: MutableMapping[str, str], load_id: str | None = None) -> None:
        disable_gc()
        super().__init__(options)
        self.load_id = uuid4().hex if load_id is None else load_id

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return "kafkalog"

    def schema(self) -> str:
        """Return the columns, for a query without a schema."""
        options = _options_of_either(self.options)
        return ddl_of(columns_of(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of a batch."""
        options = ReadOptions.parse(self.options)
        columns, fields = checked_schema(options, schema)
        # On an explicit request Spark itself reports that its switch is off.
        takes_filters = options.filter_pushdown == "true" or (
            options.filter_pushdown == "auto" and _PUSHDOWN_WORKER in sys.modules
        )
        if takes_filters:
            return KafkaLogPushdownReader(options, columns, fields, self.load_id)
        return KafkaLogReader(options, columns, fields)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a reader of a stream."""
        options = ReadOptions.parse(self.options, streaming=True)
        columns, fields = checked_schema(options, schema)
        stream = import_module("kafkalog.spark.stream")
        reader: DataSourceStreamReader = stream.KafkaLogStreamReader(options, columns, fields)
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of a batch."""
        from kafkalog.spark.sink import KafkaLogBatchWriter

        return KafkaLogBatchWriter(WriteOptions.parse(self.options), schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return a writer of a stream."""
        from kafkalog.spark.sink import KafkaLogStreamWriter

        return KafkaLogStreamWriter(WriteOptions.parse(self.options), schema, overwrite)


def checked_schema(
    options: ReadOptions, schema: StructType
) -> tuple[tuple[Column, ...], pa.Schema]:
    """
    Return the columns of a query, and the fields of each of its batches.

    Raises:
        KafkaLogSparkError: COLUMN_UNKNOWN, TYPE_INVALID, OPTION_INVALID.
    """
    fields = to_arrow_schema(schema, timezone="UTC")
    return check_fields(known_columns(options), fields, never_null(options)), fields


def _options_of_either(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a stream, or else of a batch: the schema is the same for both."""
    try:
        return ReadOptions.parse(options, streaming=True)
    except KafkaLogSparkError:
        return ReadOptions.parse(options)


class KafkaLogReader(DataSourceReader):
    """
    Reader of a batch.

    Args:
        options: of the query.
        columns: to read, in order.
        fields: of each batch.
    """

    def __init__(
        self, options: ReadOptions, columns: tuple[Column, ...], fields: pa.Schema
    ) -> None:
        self.options = options
        self.columns = columns
        self.fields = fields
        self.filters = EVERYTHING

    @coded_errors()
    def partitions(self) -> list[InputPartition]:
        """Return the splits of the tasks; an empty split if there is nothing to read."""
        disable_gc()
        options = self.options
        snapshot = QuerySnapshot.take(options, filters=self.filters)
        bounds = resolve_bounds(snapshot, options)
        splits: Sequence[ViewSplit]
        if options.view in ("records", "batches"):
            splits = split_and_pack(
                snapshot,
                bounds,
                split_bytes=options.split_bytes,
                min_partitions=options.min_partitions,
                max_records_per_partition=options.max_records_per_partition,
                filters=self.filters,
            )
        else:
            splits = plan_view(snapshot, bounds, options)
        return [InputPartition(split) for split in splits or [LogSplit((), 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        disable_gc()
        split: ViewSplit = partition.value
        if self.options.view != "records" or not isinstance(split, LogSplit):
            return read_view(split, self.fields, self.options)
        return read_split(split, self.columns, self.fields, self.options, self.filters)


class KafkaLogPushdownReader(KafkaLogReader):
    """
    Reader of a batch that applies filters of the query early.

    Args:
        options, columns, fields: as of any reader.
        load_id: of the `load` of its query.
    """

    def __init__(
        self,
        options: ReadOptions,
        columns: tuple[Column, ...],
        fields: pa.Schema,
        load_id: str,
    ) -> None:
        super().__init__(options, columns, fields)
        self._load_id = load_id

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """
        Accept the filters that can be applied here; return those that Spark has to apply.

        Raises:
            KafkaLogSparkError: OPTION_CONFLICT for other filters than this load had before.
        """
        self.filters, rest = push_filters(filters, self.options)
        before = _FILTERS_OF_LOADS.setdefault(self._load_id, self.filters)
        if before != self.filters:
            raise KafkaLogSparkError(
                ErrorCode.OPTION_CONFLICT,
                "filterPushdown is for one set of filters a load, and this one had others before:"
                " Spark would read by one of them for both; load again for each, or leave the"
                " option out",
                option="filterPushdown",
            )
        if len(_FILTERS_OF_LOADS) > _LOADS_MAX:
            del _FILTERS_OF_LOADS[next(iter(_FILTERS_OF_LOADS))]
        return rest
