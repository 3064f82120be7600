"""The sink as a data source of its own, for tests of the sink alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SinkOnly", "register"]


class SinkOnly(DataSource):  # type: ignore[misc, unused-ignore]
    """What can be written to, and not read."""

    @classmethod
    def name(cls) -> str:
        return "kafkalog"

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from kafkalog.spark.options import WriteOptions
        from kafkalog.spark.sink import KafkaLogBatchWriter

        return KafkaLogBatchWriter(WriteOptions.parse(self.options), schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from kafkalog.spark.options import WriteOptions
        from kafkalog.spark.sink import KafkaLogStreamWriter

        return KafkaLogStreamWriter(WriteOptions.parse(self.options), schema, overwrite)


def register(spark: SparkSession) -> None:
    """Let a session know the sink."""
    spark.dataSource.register(SinkOnly)
