"""Decisions of a stream in the driver: its start, the end of a micro-batch, losses.

Offsets come and go as JSON (`stream_offsets.py`). In between they are columns over the present
partitions: the offset of the checkpoint, the ends of the log, and the end of the next micro-batch.

Three special cases:

  * a partition that the start does not name is new: it is read from its beginning;
  * a named partition that is gone, or has other offsets, or another topic's id, is a loss, which
    fails the query or moves its start, as the options require (`plan/loss.py`);
  * a run with a fixed end leaves partitions that came later to the next one.

Thread-safety: none; one stream's. Nothing here imports pyspark.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kafkalog.clock import Clock
from kafkalog.spark.admission_control import AdmissionControl
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.group_progress import GroupProgress
from kafkalog.spark.log_ends import LogEnds
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import Bounds, LogSplit, find_loss, resolve, resolve_loss, split_and_pack
from kafkalog.spark.plan.size_estimator import SizeEstimator
from kafkalog.spark.stream_offsets import NO_OFFSET, OffsetJson, topic_ids_of

__all__ = ["StreamPlan"]

logger = logging.getLogger(__name__)

Int64Array: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


class StreamPlan:
    """
    The decisions of one run of a stream.

    Args:
        options: of the stream.
        clock: for relative times, and delays; the machine's if None.
    """

    def __init__(self, options: ReadOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock
        self._logs = LogEnds(options)
        self._admission = AdmissionControl(options.limits, clock)
        self._initial: OffsetJson | None = None
        # End of a run that reads only the offsets of its beginning.
        self._frozen: dict[tuple[str, int], int] | None = None
        self._reported: set[str] = set()
        # The ends of the logs, and their JSON.
        self._newest: tuple[Int64Array, OffsetJson] | None = None
        self._group = None
        if options.group_id is not None:
            self._group = GroupProgress(options.paths, options.group_id)

    def freeze(self) -> None:
        """Fix the end of the run at the present ends; later records are for another run."""
        self._logs.refresh(fully=True)
        ends = self._logs.visible_ends.tolist()
        self._frozen = dict(zip(self._logs.rows.names, ends, strict=True))

    def initial(self) -> OffsetJson:
        """
        Return the start of a new query; the same at every call in a run.

        Raises:
            KafkaLogSparkError: OFFSET_INVALID, OFFSET_OUT_OF_RANGE.
        """
        if self._initial is None:
            self._logs.ensure_refreshed()
            starts = resolve(self._logs.snapshot(), self._options.starting, clock=self._clock)
            # An offset that does not exist yet, or no longer, is a loss at the first look.
            self._initial = self._to_json(starts, None)
        return self._initial

    def newest(self) -> OffsetJson:
        """Return the ends of the logs, as of the last refresh."""
        self._logs.ensure_refreshed()
        ends = self._logs.visible_ends
        if self._newest is None or self._newest[0] is not ends:
            self._newest = ends, self._to_json(ends, None)
        return self._newest[1]

    def latest(self, start: OffsetJson, *, is_limited: bool) -> OffsetJson:
        """
        Return the end of the next micro-batch, `start` itself if there is none.

        Args:
            start: end of the last one.
            is_limited: True to apply the limits of the options.

        Raises:
            KafkaLogSparkError: DATA_LOSS, and errors of reading the logs.
        """
        self._logs.refresh()
        starts, offsets, is_new = self._starts_of(start, None, self._logs.topic_ids)
        ends = np.maximum(self._logs.visible_ends, starts)
        chosen = np.ones(len(ends), np.bool_)
        if self._frozen is not None:
            frozen = (self._frozen.get(name, NO_OFFSET) for name in self._logs.rows.names)
            limit = np.fromiter(frozen, np.int64, len(ends))
            ends = np.maximum(np.minimum(ends, limit), starts)
            chosen = (limit != NO_OFFSET) | ~is_new
        if is_limited:
            backlog = np.where(chosen, ends, starts)
            ends = self._admission.admit(
                starts, backlog, self._estimator, may_wait=self._frozen is None
            )
            if self._holds_back(starts, ends, backlog):
                return start
        if np.array_equal(ends[chosen], offsets[chosen]) and not self._has_new_ids(start):
            # Unchanged, for Spark compares texts; every partition that it names exists.
            foreign = self._logs.rows.from_json(start)[1]
            if not foreign:
                return start
        if chosen.all() and np.array_equal(ends, self._logs.visible_ends):
            return self.newest()
        return self._to_json(ends, chosen)

    def splits(self, start: OffsetJson, end: OffsetJson) -> list[LogSplit]:
        """
        Return the tasks of a micro-batch; the same offsets give the same records.

        Raises:
            KafkaLogSparkError: DATA_LOSS, and errors of reading the logs.
        """
        self._logs.ensure_refreshed()
        ends, foreign = self._logs.rows.from_json(end)
        if foreign or np.any(ends > self._logs.log_ends):
            # Named by the run before this one, or by a refresh since then.
            self._logs.refresh(fully=True)
            ends, foreign = self._logs.rows.from_json(end)
        for topic, partition in foreign:
            self._lose_partition(topic, partition)
        starts, _offsets, _is_new = self._starts_of(start, ends, topic_ids_of(end))
        ends = np.minimum(ends, self._logs.log_ends)
        for row in self._renamed_rows(topic_ids_of(end), self._logs.topic_ids):
            # The unread records went with the topic, since the end was decided.
            self._resolve_range(row, int(starts[row]), int(ends[row]), same_topic=False)
            starts[row] = ends[row]
        rows = np.flatnonzero(starts < ends)
        if not len(rows):
            return []
        options = self._options
        return split_and_pack(
            self._logs.snapshot(rows),
            Bounds(starts[rows], ends[rows]),
            split_bytes=options.split_bytes,
            min_partitions=options.min_partitions,
            max_records_per_partition=options.max_records_per_partition,
        )

    def publish(self, end: OffsetJson) -> None:
        """Publish the position of the stream for the consumer group of the options, if any."""
        if self._group is not None:
            self._group.publish(end)

    def _estimator(self) -> SizeEstimator:
        return SizeEstimator(self._logs.snapshot())

    def _holds_back(self, starts: Int64Array, ends: Int64Array, backlog: Int64Array) -> bool:
        """Return True if there is something to read, and the limits delay it."""
        return bool(np.array_equal(starts, ends) and not np.array_equal(starts, backlog))

    def _has_new_ids(self, start: OffsetJson) -> bool:
        """Return True if a topic has another id than in the start."""
        ids = topic_ids_of(start)
        return any(ids[topic] != self._logs.topic_ids.get(topic) for topic in ids)

    def _to_json(self, offsets: Int64Array, chosen: BoolArray | None) -> OffsetJson:
        return self._logs.rows.to_json(offsets, self._logs.topic_ids, chosen)

    def _starts_of(
        self, start: OffsetJson, ends: Int64Array | None, ids: Mapping[str, str]
    ) -> tuple[Int64Array, Int64Array, BoolArray]:
        """
        Return the start offset of each partition, its offset in `start`, and the new partitions.

        Args:
            start: end of the last micro-batch.
            ends: end of this one; None if that is to be decided.
            ids: the ids of topics when that is decided.
        """
        logs = self._logs
        offsets, foreign = logs.rows.from_json(start)
        for topic, partition in foreign:
            self._lose_partition(topic, partition)
        is_new = offsets == NO_OFFSET
        starts = np.where(is_new, logs.log_starts, offsets)
        limits = logs.visible_ends if ends is None else ends
        is_strange = (starts < logs.log_starts) & (starts < limits)
        is_strange |= (starts > logs.log_ends) | (limits > logs.log_ends)
        renamed = set(self._renamed_rows(topic_ids_of(start), ids))
        is_strange[list(renamed)] = True
        for row in np.flatnonzero(is_strange & ~is_new).tolist():
            end = None if ends is None or row in renamed else int(ends[row])
            starts[row] = self._resolve_range(
                row, int(starts[row]), end, same_topic=row not in renamed
            )
        return starts, offsets, is_new

    def _renamed_rows(self, before: Mapping[str, str], after: Mapping[str, str]) -> list[int]:
        """Return the partitions whose topic was deleted and created again, by its ids."""
        renamed = {topic for topic in before if after.get(topic, before[topic]) != before[topic]}
        if not renamed:
            return []
        return [row for row, (topic, _) in enumerate(self._logs.rows.names) if topic in renamed]

    def _resolve_range(self, row: int, start: int, end: int | None, *, same_topic: bool) -> int:
        logs = self._logs
        topic, partition = logs.rows.names[row]
        loss = find_loss(
            start,
            end,
            log_start_offset=int(logs.log_starts[row]),
            log_end_offset=int(logs.log_ends[row]),
            same_topic=same_topic,
        )
        if loss is None:
            return start
        settled = resolve_loss(loss, self._options.on_data_loss, topic, partition)
        self._report(
            f"{topic}-{partition}: {loss.cause}: offsets {loss.first} to {loss.end} are lost"
        )
        # Present offsets are read, whatever is missing after them.
        return start if loss.cause == "truncated" and start < loss.first else settled

    def _lose_partition(self, topic: str, partition: int) -> None:
        """Handle a partition that is gone, as the options require."""
        if self._options.on_data_loss == "fail":
            raise KafkaLogSparkError(
                ErrorCode.DATA_LOSS,
                f"{topic}-{partition} is gone: the stream has read of it before;"
                " failOnDataLoss=false continues without it",
                topic=topic,
                partition=partition,
                cause="deleted",
            )
        self._report(f"{topic}-{partition} is gone")

    def _report(self, message: str) -> None:
        if message not in self._reported:
            self._reported.add(message)
            logger.warning("%s", message)
