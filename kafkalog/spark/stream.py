"""Logs as a stream of Spark: offsets, limits and losses; the reading is that of batches.

The order of calls (first run, with Trigger.AvailableNow, and every micro-batch):

    prepareForTriggerAvailableNow -> getDefaultReadLimit -> initialOffset
    latestOffset(start, limit) -> reportLatestOffset -> [partitions(start, end) -> read ...]
    -> latestOffset ... -> commit(end of the micro-batch before)

All of them run in one process of the driver, and their state stays there; tasks get only ranges of
offsets. After a crash Spark calls for the partitions of the last micro-batch again, by the offsets
in its checkpoint, and gets the same records.

A partition that appears during a stream, or between two runs, is read from its beginning. Losses
are decided by offsets and the ids of topics, never by holes (`plan/loss.py`).

Thread-safety: none; Spark calls one method after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kafkalog.clock import Clock
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.split_reader import read_split
from kafkalog.spark.stream_offsets import OffsetJson
from kafkalog.spark.stream_plan import StreamPlan
from kafkalog.spark.workers import disable_gc

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalog.spark.schema import Column

__all__ = ["KafkaLogStreamReader"]


class KafkaLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """
    Reader of a stream.

    Args:
        options: of the query.
        columns: to read, in order.
        fields: of each batch.
        clock: for relative times, and delays; the machine's if None.
    """

    def __init__(
        self,
        options: ReadOptions,
        columns: tuple[Column, ...],
        fields: pa.Schema,
        clock: Clock | None = None,
    ) -> None:
        self.options = options
        self.columns = columns
        self.fields = fields
        self._clock = clock
        # Made in the process that runs the stream; the readers in the workers have none.
        self._plan: StreamPlan | None = None

    @property
    def plan(self) -> StreamPlan:
        """The decisions, in the process that runs the stream."""
        if self._plan is None:
            self._plan = StreamPlan(self.options, self._clock)
        return self._plan

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the plan: a task needs none of it."""
        return {**self.__dict__, "_plan": None}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that Spark returns with each micro-batch."""
        limits = self.options.limits
        if limits.max_offsets_per_trigger is not None:
            return ReadMaxRows(limits.max_offsets_per_trigger)
        if limits.max_bytes_per_trigger is not None:
            return ReadMaxBytes(limits.max_bytes_per_trigger)
        if limits.min_offsets_per_trigger is not None:
            return ReadMinRows(limits.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of this run."""
        self.plan.freeze()

    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """Return the start of a new query."""
        return self.plan.initial()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802
        """Return the end of the next micro-batch; its start if there is nothing to read yet."""
        return self.plan.latest(start, is_limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> OffsetJson:  # noqa: N802
        """Return the ends of the logs, from which the progress shows the lag."""
        return self.plan.newest()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Return the splits of the tasks of a micro-batch."""
        return [InputPartition(split) for split in self.plan.splits(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        disable_gc()
        return read_split(partition.value, self.columns, self.fields, self.options)

    def commit(self, end: OffsetJson) -> None:
        """Publish the position of the stream for a consumer group, if the options name one."""
        self.plan.publish(end)

    def stop(self) -> None:
        """Release the resources of the run."""
        self._plan = None
