"""The package by which Spark finds the data source `kafkalog`: it searches packages `pyspark_*`.

Spark imports every one of them at the first search for any format, so this imports only what Spark
has imported already, and the engine when a log is read or written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from kafkalog.spark.source import KafkaLogDataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The data source, made when it is needed; see `kafkalog.spark.source`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._load_id = uuid4().hex

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return "kafkalog"

    def _source(self) -> KafkaLogDataSource:
        from kafkalog.spark.source import KafkaLogDataSource

        return KafkaLogDataSource(self.options, self._load_id)

    def schema(self) -> StructType | str:
        """Return the columns."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of a batch."""
        return self._source().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a reader of a stream."""
        return self._source().streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of a batch."""
        return self._source().writer(schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return a writer of a stream."""
        return self._source().streamWriter(schema, overwrite)
