"""Partitioner of rows: by the partition column, else by the key, else in turns.

The key decides as in Kafka's producers: murmur2 of its bytes, so that a log that Spark writes has
its keys where a broker's producers would have put them. Rows without a key stick to a partition for
a batch's worth of bytes, as there; but the partitions take turns, from the number of the task on,
instead of at random: a repeated attempt does the same as the first one.

Thread-safety: a partitioner belongs to one task.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog._core.bytes_column import BytesColumn
from kafkalog._core.murmur2 import partition_column
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError

__all__ = ["Partitioner", "Rule"]

Rule = Literal["murmur2", "roundrobin", "explicit"]
Partitions = npt.NDArray[np.int32]

_NO_PARTITION: Final = -1


class Partitioner:
    """
    Chooses partitions for the rows of one topic, for one task.

    Args:
        topic: for messages.
        partition_count: number of its partitions.
        rule: for rows without a partition in a column.
        task: number of the task, at which turns begin.
        stick_bytes: bytes for one partition before the next one's turn.
    """

    def __init__(
        self, topic: str, partition_count: int, rule: Rule, *, task: int = 0, stick_bytes: int
    ) -> None:
        self.partition_count = partition_count
        self._topic = topic
        self._rule = rule
        self._turn = task % partition_count
        self._stick_bytes = stick_bytes
        self._stuck_bytes = 0

    def partitions(
        self, keys: pa.Array | None, explicit: pa.Array | None, row_count: int, size_bytes: int
    ) -> int | Partitions:
        """
        Return the partition of each row; one number if all have the same.

        Args:
            keys: binary or string, None without such a column.
            explicit: int32, null if the row leaves it open; None without such a column.
            row_count: number of rows.
            size_bytes: about their size.

        Raises:
            KafkaLogSparkError: PARTITION_OUT_OF_RANGE, COLUMN_MISSING.
        """
        if explicit is None or explicit.null_count == row_count:
            if self._rule == "explicit" and row_count:
                raise KafkaLogSparkError(
                    ErrorCode.COLUMN_MISSING,
                    f"topic {self._topic}: partitioner=explicit, and a row has no partition",
                    topic=self._topic,
                    column="partition",
                )
            return self._chosen(keys, row_count, size_bytes)
        numbers = np.asarray(explicit.fill_null(_NO_PARTITION), dtype=np.int32)
        valid = np.asarray(explicit.is_valid())
        self._ensure_in_range(numbers, valid)
        if explicit.null_count == 0:
            return numbers
        if self._rule == "explicit":
            return self.partitions(keys, None, row_count, size_bytes)
        chosen = self._chosen(keys, row_count, size_bytes)
        return np.where(valid, numbers, np.asarray(chosen, dtype=np.int32)).astype(np.int32)

    def _chosen(self, keys: pa.Array | None, row_count: int, size_bytes: int) -> int | Partitions:
        if self.partition_count == 1:
            return 0
        if self._rule == "roundrobin":
            turns = (np.arange(row_count, dtype=np.int64) + self._turn) % self.partition_count
            self._turn = (self._turn + row_count) % self.partition_count
            return turns.astype(np.int32)
        if keys is None or keys.null_count == row_count:
            return self._stuck(size_bytes)
        partitions = np.empty(row_count, dtype=np.int32)
        stuck = _NO_PARTITION
        if keys.null_count:
            stuck = self._stuck(size_bytes * keys.null_count // row_count)
        partition_column(_cells(keys), self.partition_count, partitions, null_partition=stuck)
        return partitions

    def _stuck(self, size_bytes: int) -> int:
        """Return the present partition of rows without a key."""
        if self._stuck_bytes >= self._stick_bytes:
            self._stuck_bytes = 0
            self._turn = (self._turn + 1) % self.partition_count
        self._stuck_bytes += size_bytes
        return self._turn

    def _ensure_in_range(self, numbers: Partitions, valid: npt.NDArray[np.bool_]) -> None:
        wrong = np.flatnonzero(valid & ((numbers < 0) | (numbers >= self.partition_count)))
        if wrong.size:
            raise KafkaLogSparkError(
                ErrorCode.PARTITION_OUT_OF_RANGE,
                f"topic {self._topic} has {self.partition_count} partitions, and a row has"
                f" {int(numbers[wrong[0]])}",
                topic=self._topic,
                partition=int(numbers[wrong[0]]),
                partitions=self.partition_count,
            )


def _cells(keys: pa.Array) -> BytesColumn:
    """Return keys as a column of the core, over the same memory."""
    validity, offsets, data = keys.buffers()
    wide = keys.type in (pa.large_binary(), pa.large_string())
    all_offsets = np.frombuffer(offsets, dtype=np.int64 if wide else np.int32)
    bits = None
    if validity is not None and keys.null_count:
        bits = np.packbits(np.asarray(keys.is_valid()), bitorder="little")
    cells = all_offsets[keys.offset : keys.offset + len(keys) + 1]
    return BytesColumn(b"" if data is None else data, cells, bits)
