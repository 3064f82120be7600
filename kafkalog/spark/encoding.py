"""Encoding of Arrow batches to files of Kafka batches, one or more for each partition, in one task.

Rows are encoded from the columns, in their order, each into the batch of its partition. No object
is made for a row. Rows are not moved before, except for very many partitions or with headers, where
the rows of a partition are brought together first. A full batch is closed, compressed and written.
If very many partitions have open batches, the largest are closed early, so that memory stays
bounded; then only some files are held open.

A file that is large enough to become a segment by itself is written back during the task, and
dropped from the page cache after that (`write_behind`): the sync at the end has little left to do.

Offsets count from zero in each file and the leader epoch is unknown: a commit fills in both, which
the CRC does not cover. Files and their names are synced before the driver learns of them.

Thread-safety: a writer belongs to one task attempt. It never reads what it wrote.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog._core.arrow_source import arrow_column, arrow_headers
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.partition_writer import extend_partitions
from kafkalog.clock import Clock
from kafkalog.errors import KafkaLogError
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.names import DirectoryState, is_topic_name, try_parse_partition_directory
from kafkalog.layout import NO_TIMESTAMP, RECORD_BATCH_OVERHEAD
from kafkalog.records.codecs import Codec, compress_if_smaller
from kafkalog.spark.arrow_cells import array_of
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.partitioning import Partitioner, Rule
from kafkalog.spark.txn.commit_checks import partition_count
from kafkalog.spark.txn.model import StagedFile, TransactionId, smallest_segment
from kafkalog.spark.txn.staging import StagingArea
from kafkalog.spark.write_behind import WriteBehind

__all__ = ["EncodingRules", "TaskAttempt", "TaskWriter", "topics_in"]

# Bytes of batches under construction in one task; above it the largest are closed.
PENDING_BYTES: Final = 64 * 1024 * 1024
OPEN_FILES: Final = 64
# For up to this many batches rows are written in turn; for more, they are brought together first.
SPREAD_MAX: Final = 64
_US_IN_MS: Final = 1000
_INT16_MAX: Final = 2**15 - 1


@dataclass(frozen=True, slots=True)
class EncodingRules:
    """
    Rules of the encoding of rows.

    Attributes:
        topic: of all rows, None if a column has it.
        new_partitions: number of partitions of a topic that does not exist yet.
        partitioner: rule for rows without a partition in a column.
        codec: of the batches.
        batch_bytes, segment_bytes: sizes of a batch before compression, and of a file.
        timestamp_column: column of the time, None for the time of writing.
    """

    topic: str | None
    new_partitions: int
    partitioner: Rule
    codec: Codec
    batch_bytes: int
    segment_bytes: int
    timestamp_column: str | None


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """
    An attempt of a task of Spark.

    Attributes:
        task: number of the task in its job.
        number: number of the attempt, which no other attempt has.
    """

    task: int = 0
    number: int = 0


FIRST_ATTEMPT: Final = TaskAttempt()


def topics_in(filesystem: FileSystem, directory: Path) -> dict[str, list[int]]:
    """
    Return the topics of a data directory, each with its partitions; empty if it does not exist.
    """
    found: dict[str, list[int]] = {}
    try:
        with storage_errors(directory, doing="listing"):
            names = filesystem.list(directory)
    except KafkaLogError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return {}
        raise
    for name in names:
        parsed = try_parse_partition_directory(name)
        if parsed is not None and parsed.state is DirectoryState.LIVE:
            found.setdefault(parsed.topic_partition.topic, []).append(
                parsed.topic_partition.partition
            )
    return {topic: sorted(numbers) for topic, numbers in found.items()}


class _Target:
    """One partition of one topic: its batch under construction, and the file it goes to."""

    def __init__(self, topic: str, partition: int, partition_count: int, keep_bytes: int) -> None:
        self.topic = topic
        self.partition = partition
        self.partition_count = partition_count
        self.sequence = 0
        self.builder = BatchBuilder()
        self._keep_bytes = keep_bytes
        self.begin()

    def begin(self) -> None:
        """Begin another file."""
        self.path: Path | None = None
        self.handle: FileHandle | None = None
        self.write_behind = WriteBehind(self._keep_bytes)
        self.record_count = self.batch_count = self.size_bytes = 0
        self.largest_batch_bytes = self.null_key_count = 0
        self.min_timestamp = self.max_timestamp = NO_TIMESTAMP

    def begin_next(self) -> None:
        """Begin the file after this one."""
        self.sequence += 1
        self.begin()

    def on_opened(self, handle: FileHandle) -> None:
        """Set the open file."""
        self.handle, self.path = handle, handle.path

    def detach_handle(self) -> FileHandle | None:
        """Return the open file, None if there is none; the caller closes it."""
        handle, self.handle = self.handle, None
        return handle

    def count_batch(self, size: int) -> None:
        """Count a written batch, which is still in the builder."""
        builder = self.builder
        self.record_count += builder.count
        self.batch_count += 1
        self.size_bytes += size
        self.largest_batch_bytes = max(self.largest_batch_bytes, size)
        self.null_key_count += builder.null_key_count
        self.max_timestamp = max(self.max_timestamp, builder.max_timestamp)
        earliest = builder.min_timestamp
        if earliest != NO_TIMESTAMP:
            current = self.min_timestamp
            self.min_timestamp = earliest if current == NO_TIMESTAMP else min(current, earliest)

    def staged(self, task: int) -> StagedFile:
        """Return the description of the file."""
        return StagedFile(
            str(self.path),
            self.topic,
            self.partition,
            self.partition_count,
            self.record_count,
            self.size_bytes,
            self.batch_count,
            self.largest_batch_bytes,
            self.min_timestamp,
            self.max_timestamp,
            self.null_key_count,
            task,
            self.sequence,
        )


class TaskWriter:
    """
    Writer of the rows of one task attempt.

    Args:
        directory: the data directory, of which only the topics are read.
        staging: where to write.
        transaction: the transaction of the files.
        rules: of the encoding.
        filesystem, clock: the machine's.
        attempt: the task attempt; the number of the task orders the files of a partition.
    """

    def __init__(
        self,
        directory: Path,
        staging: StagingArea,
        transaction: TransactionId,
        rules: EncodingRules,
        *,
        filesystem: FileSystem,
        clock: Clock,
        attempt: TaskAttempt = FIRST_ATTEMPT,
    ) -> None:
        self._staging = staging
        self._transaction = transaction
        self._rules = rules
        self._filesystem = filesystem
        self._clock = clock
        self._attempt = attempt
        self._topics = topics_in(filesystem, directory)
        self._partitioners: dict[str, Partitioner] = {}
        self._targets: dict[tuple[str, int], _Target] = {}
        self._finished: list[StagedFile] = []
        self._open_count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """
        Encode the rows of a batch.

        Raises:
            KafkaLogSparkError: a row cannot be written.
            LogStorageError: the disk refused.
        """
        if not batch.num_rows:
            return
        for topic, rows in self._by_topic(batch):
            self._add_rows(topic, rows)
        self._bound_memory()

    def finish(self) -> list[StagedFile]:
        """Close and sync everything; return the files. The writer is then finished."""
        for target in self._targets.values():
            self._close_batch(target)
            self._close_file(target)
        if self._finished:
            with storage_errors(self._staging.root, doing="syncing"):
                self._staging.sync_directory_names(self._transaction)
        return self._finished

    def abandon(self) -> None:
        """Remove the written files after a failure of the attempt."""
        paths = [file.path for file in self._finished]
        for target in self._targets.values():
            self._release(target)
            if target.path is not None:
                paths.append(str(target.path))
        with contextlib.suppress(KafkaLogError):
            self._staging.discard_files(paths)

    # --------------------------------------------------------------------------- encoding rows

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._rules.topic is not None:
            yield self._rules.topic, batch
            return
        column = batch.column("topic")
        if column.null_count:
            raise KafkaLogSparkError(
                ErrorCode.COLUMN_MISSING,
                "a row has no topic, and no option gives it",
                column="topic",
            )
        coded = column.dictionary_encode()
        names = coded.dictionary.to_pylist()
        if len(names) == 1:
            yield names[0], batch
            return
        yield from ((names[code], part) for code, part in _split(batch, np.asarray(coded.indices)))

    def _add_rows(self, topic: str, rows: pa.RecordBatch) -> None:
        """Encode the rows of a topic."""
        partitioner = self._partitioner(topic)
        partitions = partitioner.partitions(
            _column(rows, "key"), _column(rows, "partition"), rows.num_rows, rows.nbytes
        )
        if isinstance(partitions, int):
            self._encode(topic, partitions, rows)
        elif partitioner.partition_count <= SPREAD_MAX and _column(rows, "headers") is None:
            self._spread(topic, partitions, rows)
        else:
            for partition, part in _split(rows, partitions):
                self._encode(topic, partition, part)

    def _partitioner(self, topic: str) -> Partitioner:
        found = self._partitioners.get(topic)
        if found is not None:
            return found
        if not is_topic_name(topic):
            raise KafkaLogSparkError(
                ErrorCode.OPTION_INVALID,
                f"topic must be a valid topic name, got {topic!r}",
                topic=topic,
            )
        numbers = self._topics.get(topic)
        count = self._rules.new_partitions if numbers is None else partition_count(topic, numbers)
        rules = self._rules
        made = Partitioner(
            topic, count, rules.partitioner, task=self._attempt.task, stick_bytes=rules.batch_bytes
        )
        return self._partitioners.setdefault(topic, made)

    def _target(self, topic: str, partition: int) -> _Target:
        target = self._targets.get((topic, partition))
        if target is None:
            count = self._partitioner(topic).partition_count
            keep_bytes = smallest_segment(self._rules.segment_bytes)
            target = _Target(topic, partition, count, keep_bytes)
            self._targets[topic, partition] = target
        return target

    def _spread(self, topic: str, partitions: npt.NDArray[np.int32], rows: pa.RecordBatch) -> None:
        """Encode rows of several partitions in one pass, without bringing them together first."""
        targets = [
            self._target(topic, number)
            for number in range(self._partitioner(topic).partition_count)
        ]
        builders = [target.builder for target in targets]
        key, times = _column(rows, "key"), self._times(rows)
        keys = None if key is None else arrow_column(key)
        values = arrow_column(rows.column("value"))
        start, count, limit = 0, rows.num_rows, self._rules.batch_bytes
        while start < count:
            start = extend_partitions(builders, partitions, keys, values, times, start, limit)
            if start < count:
                self._close_batch(targets[partitions[start]])

    def _encode(self, topic: str, partition: int, rows: pa.RecordBatch) -> None:
        target = self._target(topic, partition)
        times = self._times(rows)
        key, headers = _column(rows, "key"), _column(rows, "headers")
        keys = None if key is None else arrow_column(key)
        values = arrow_column(rows.column("value"))
        encoded_headers = None if headers is None else arrow_headers(headers)
        start, count, limit = 0, rows.num_rows, self._rules.batch_bytes
        builder = target.builder
        while start < count:
            start += builder.extend_columns(
                keys, values, times, start, None, limit, encoded_headers
            )
            if start < count:
                self._close_batch(target)

    def _times(self, rows: pa.RecordBatch) -> int | npt.NDArray[np.int64]:
        name = self._rules.timestamp_column
        if name is None:
            return self._clock.now_ms()
        column = rows.column(name)
        is_ms = pa.types.is_int64(column.type)
        numbers = column if is_ms else column.cast(pa.int64())
        times = np.asarray(numbers.fill_null(NO_TIMESTAMP), dtype=np.int64)
        if not is_ms:
            times = np.floor_divide(times, _US_IN_MS)
        if column.null_count:
            times = np.where(np.asarray(column.is_valid()), times, NO_TIMESTAMP)
        if int(times.min()) < NO_TIMESTAMP:
            raise KafkaLogSparkError(
                ErrorCode.RECORD_INVALID,
                f"column {name} has a time before 1970, which a record cannot have",
                column=name,
            )
        return np.ascontiguousarray(times, dtype=np.int64)

    # ------------------------------------------------------------------------------------ files

    def _close_batch(self, target: _Target) -> None:
        """Write the batch of the builder, into a new file if this one is full."""
        builder = target.builder
        if not builder.count:
            return
        codec, payload = self._rules.codec, None
        if codec is not Codec.NONE:
            codec, payload = compress_if_smaller(codec, builder.payload())
        size = builder.size_bytes
        if payload is not None:
            size = RECORD_BATCH_OVERHEAD + len(payload)
        if target.size_bytes + size > self._rules.segment_bytes:
            self._close_file(target)
        handle = self._open(target)
        # With a view alive at the next batch, the builder would allocate other memory each time.
        with (
            storage_errors(target.path, doing="writing"),
            builder.finish(
                base_offset=target.record_count, codec=int(codec), payload=payload
            ) as batch,
        ):
            handle.pwrite(batch, target.size_bytes)
            target.write_behind.wrote(handle, target.size_bytes, size)
        target.count_batch(size)
        builder.reset()

    def _open(self, target: _Target) -> FileHandle:
        if target.handle is not None:
            return target.handle
        if self._open_count >= OPEN_FILES:
            for other in self._targets.values():
                self._release(other)
        with storage_errors(self._staging.root, doing="creating a staged file"):
            if target.path is None:
                label = f"{self._attempt.task}-{self._attempt.number}-{target.partition}"
                handle = self._staging.create(self._transaction, label)
            else:
                handle = self._filesystem.open(target.path, write=True)
        target.on_opened(handle)
        self._open_count += 1
        return handle

    def _close_file(self, target: _Target) -> None:
        """Sync a file, and add it to the finished ones."""
        if not target.record_count:
            return
        handle = self._open(target)
        with storage_errors(target.path, doing="syncing"):
            handle.sync()
        self._release(target)
        self._finished.append(target.staged(self._attempt.task))
        target.begin_next()

    def _release(self, target: _Target) -> None:
        handle = target.detach_handle()
        if handle is not None:
            handle.close()
            self._open_count -= 1

    def _bound_memory(self) -> None:
        """Close the largest batches early if all of them together exceed the limit."""
        pending = sum(target.builder.size_bytes for target in self._targets.values())
        if pending <= PENDING_BYTES:
            return
        for target in sorted(self._targets.values(), key=_pending_bytes, reverse=True):
            pending -= target.builder.size_bytes
            self._close_batch(target)
            if pending <= PENDING_BYTES // 2:
                return


def _pending_bytes(target: _Target) -> int:
    return target.builder.size_bytes


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    index = rows.schema.get_field_index(name)
    return None if index < 0 else rows.column(index)


def _split(
    rows: pa.RecordBatch, codes: npt.NDArray[np.int32]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each code, in their order."""
    first = int(codes[0])
    if not (codes != first).any():
        yield first, rows
        return
    # NumPy sorts 16 bits by counting, in a third of the time.
    narrow = codes.astype(np.int16) if int(codes.max()) <= _INT16_MAX else codes
    order = np.argsort(narrow, kind="stable")
    ordered = codes[order]
    bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
    taken = rows.take(array_of(pa.int64(), order))
    for start, stop in pairwise(bounds):
        yield int(ordered[start]), taken.slice(start, stop - start)
