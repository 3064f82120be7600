"""Logs as a stream of Spark: offsets, limits and losses; the reading is that of batches.

The order of calls (first run, with Trigger.AvailableNow, and every micro-batch):

    prepareForTriggerAvailableNow -> getDefaultReadLimit -> initialOffset
    latestOffset(start, limit) -> reportLatestOffset -> [partitions(start, end) -> read ...]
    -> latestOffset ... -> commit(end of the micro-batch before)

All of them run in one process of the driver, and what they know stays there; tasks get nothing but
ranges of offsets. After a crash Spark asks for the partitions of the last micro-batch again, by the
offsets in its checkpoint, and gets the same records.

A partition that appears while a stream runs, or between two runs, is read from its beginning. What
is lost is decided by offsets and the ids of topics, never by holes (`plan/loss.py`).

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
    Reads a stream.

    Args:
        options: of the query.
        columns: that are read, in order.
        fields: what each batch has.
        clock: for times given as so long ago, and delays; the machine's if None.
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
        # Made by whoever runs the stream; the readers in the workers have none.
        self._plan: StreamPlan | None = None

    @property
    def plan(self) -> StreamPlan:
        """What decides, in the process that runs the stream."""
        if self._plan is None:
            self._plan = StreamPlan(self.options, self._clock)
        return self._plan

    def __getstate__(self) -> dict[str, object]:
        """Leave behind what the driver knows: a task needs none of it."""
        return {**self.__dict__, "_plan": None}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that Spark hands back with each micro-batch."""
        limits = self.options.limits
        if limits.max_offsets_per_trigger is not None:
            return ReadMaxRows(limits.max_offsets_per_trigger)
        if limits.max_bytes_per_trigger is not None:
            return ReadMaxBytes(limits.max_bytes_per_trigger)
        if limits.min_offsets_per_trigger is not None:
            return ReadMinRows(limits.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Freeze where this run ends."""
        self.plan.freeze()

    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """Return where a new query begins."""
        return self.plan.initial()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802
        """Return where the next micro-batch ends; its start where there is nothing to read yet."""
        return self.plan.latest(start, is_limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> OffsetJson:  # noqa: N802
        """Return where the logs end: what the progress shows the lag by."""
        return self.plan.newest()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Return what the tasks of a micro-batch read."""
        return [InputPartition(split) for split in self.plan.splits(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield what one task reads."""
        disable_gc()
        return read_split(partition.value, self.columns, self.fields, self.options)

    def commit(self, end: OffsetJson) -> None:
        """Tell a consumer group how far the stream has come, where the options name one."""
        self.plan.publish(end)

    def stop(self) -> None:
        """Let go of what the run held."""
        self._plan = None
