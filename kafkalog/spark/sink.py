"""Writers for Spark: a batch writer and a stream writer, on the sink's transactions.

Both are pickled to the tasks, so they hold plain data, and the engine is opened within `write`. A
task stages files and lists them in its message; the driver's commit publishes the files of the
attempts that count. Spark commits a stream with another object than its writer: everything it needs
is in the messages.

The transaction is:

  * for a micro-batch: the query's id and the batch's number, which are the same in a replay;
  * for a batch write with `txnAppId` and `txnVersion`: these;
  * for another batch write: a new name, so that a commit that Spark repeats is done once. A write
    that runs again is another write.

Thread-safety: Spark's; each instance is used by one thread at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kafkalog.clock import SystemClock
from kafkalog.errors import KafkaLogError
from kafkalog.files.posix import PosixFileSystem
from kafkalog.records.codecs import Codec
from kafkalog.spark.encoding import EncodingRules, TaskAttempt, TaskWriter
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError, coded_errors
from kafkalog.spark.options.write import WriteOptions
from kafkalog.spark.schema import ensure_type
from kafkalog.spark.txn.model import StagedFile, TransactionId
from kafkalog.spark.txn.transaction import CommitReport, SinkOptions, SinkTransaction
from kafkalog.spark.workers import disable_gc

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["KafkaLogBatchWriter", "KafkaLogStreamWriter", "StagedMessage"]

# Spark's properties of a task, with its query and micro-batch.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"

# Columns of a row, with the types that each may have.
_BYTES: Final = ("binary", "string")
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_TIMES: Final = ("timestamp", "timestamp_ntz", "bigint")
# Further columns of the source; a copy of a log need not drop them first.
_SKIPPED: Final = frozenset({"offset", "timestamp", "timestampType"})

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):  # type: ignore[misc, unused-ignore]
    """
    Message of a task to the driver.

    Attributes:
        transaction: of the files.
        files: the staged files.
    """

    transaction: TransactionId
    files: tuple[StagedFile, ...]


@dataclass(frozen=True)
class _Plan:
    """Plan of a write; plain data, for every process that takes part in it."""

    options: WriteOptions
    columns: tuple[str, ...]
    timestamp_column: str | None
    overwrite: bool

    def rules(self) -> EncodingRules:
        """Return the rules of the encoding."""
        options = self.options
        return EncodingRules(
            options.topic,
            options.partitions,
            options.partitioner,
            Codec[options.compression.upper()],
            options.batch_bytes,
            options.segment_bytes,
            self.timestamp_column,
        )

    def transaction(self, transaction: TransactionId) -> SinkTransaction:
        """Return a transaction with these options."""
        options = self.options
        return SinkTransaction(
            Path(options.path),
            transaction,
            SinkOptions(
                None if options.staging_dir is None else Path(options.staging_dir),
                options.segment_bytes,
                options.orphan_age_ms,
            ),
        )

    def write(self, transaction: TransactionId, batches: Iterable[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of one task attempt; a failure leaves nothing."""
        disable_gc()
        context = TaskContext.get()
        filesystem = PosixFileSystem()
        sink = self.transaction(transaction)
        attempt = (
            TaskAttempt()
            if context is None
            else TaskAttempt(context.partitionId(), context.taskAttemptId())
        )
        with coded_errors(transaction=str(transaction)):
            writer = TaskWriter(
                Path(self.options.path),
                sink.staging,
                transaction,
                self.rules(),
                filesystem=filesystem,
                clock=SystemClock(),
                attempt=attempt,
            )
            try:
                for batch in batches:
                    writer.write(batch.select(list(self.columns)))
                    # Only one batch is in memory at a time.
                    del batch
                return StagedMessage(transaction, tuple(writer.finish()))
            except BaseException:
                writer.abandon()
                raise

    def commit(self, transaction: TransactionId, files: Sequence[StagedFile]) -> CommitReport:
        """Publish the staged files of the tasks."""
        disable_gc()
        emptied: set[str] = set()
        if self.overwrite:
            emptied = {file.topic for file in files}
            if self.options.topic is not None:
                emptied.add(self.options.topic)
        report = self.transaction(transaction).commit(files, emptied_topics=sorted(emptied))
        logger.info("%s", report)
        return report

    def abort(self, transaction: TransactionId, files: Sequence[StagedFile]) -> None:
        """Remove the staged files of the tasks, unless they are committed; never raises."""
        try:
            self.transaction(transaction).abort(files)
        except KafkaLogError as error:
            logger.warning("staged files of %s are left to a sweep: %s", transaction, error)


class KafkaLogBatchWriter(DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    """
    Writer of a DataFrame.

    Args:
        options: checked.
        schema: of the rows.
        overwrite: True to delete older records of the topics.

    Raises:
        KafkaLogSparkError: COLUMN_MISSING, COLUMN_UNKNOWN, TYPE_INVALID, OPTION_CONFLICT,
            OVERWRITE_UNSUPPORTED, UNSUPPORTED.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self._plan = _plan_of(options, schema, overwrite=overwrite)
        if options.app_id is not None and options.version is not None:
            self._transaction = TransactionId.of_application(options.app_id, options.version)
        else:
            self._transaction = TransactionId.unique()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of a task."""
        return self._plan.write(self._transaction, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the staged files of all tasks."""
        self._plan.commit(self._transaction, _files_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files, unless they were published."""
        self._plan.abort(self._transaction, _files_of(messages))


class KafkaLogStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc, unused-ignore]
    """
    Writer of a streaming query, each micro-batch exactly once.

    Args:
        options: checked.
        schema: of the rows.
        overwrite: True for Spark's output mode `complete`, whose batches hold everything: refused
            without `allowTruncate`.

    Raises:
        KafkaLogSparkError: as for a batch.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if options.app_id is not None:
            raise KafkaLogSparkError(
                ErrorCode.OPTION_CONFLICT,
                "txnAppId and txnVersion are of batch writes: a stream has its own",
                options=["txnAppId", "txnVersion"],
            )
        self._plan = _plan_of(options, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of a task of a micro-batch."""
        context = TaskContext.get()
        query = batch = None
        if context is not None:
            query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise KafkaLogSparkError(
                ErrorCode.UNSUPPORTED,
                "this Spark does not give a task its query and its batch: nothing could be written"
                " once",
                query=query,
                batch=batch,
            )
        return self._plan.write(TransactionId.of_query(query, int(batch)), iterator)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Publish a micro-batch, unless that was done."""
        transaction = _transaction_of(messages, batchId)
        if transaction is not None:
            self._plan.commit(transaction, _files_of(messages))

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Remove the staged files of a micro-batch, unless they were published."""
        transaction = _transaction_of(messages, batchId)
        if transaction is not None:
            self._plan.abort(transaction, _files_of(messages))


def _files_of(messages: Iterable[WriterCommitMessage | None]) -> list[StagedFile]:
    """Return the files of all messages; failed tasks have none."""
    return [
        file for message in messages if isinstance(message, StagedMessage) for file in message.files
    ]


def _transaction_of(
    messages: Iterable[WriterCommitMessage | None], batch_id: int
) -> TransactionId | None:
    """Return the transaction of the messages, None if there are none."""
    named = {message.transaction for message in messages if isinstance(message, StagedMessage)}
    if not named:
        return None
    if len(named) > 1 or next(iter(named)).version != batch_id:
        raise KafkaLogSparkError(
            ErrorCode.TXN_CONFLICT,
            f"batch {batch_id} has what tasks wrote for {sorted(map(str, named))}",
            batch=batch_id,
        )
    return named.pop()


def _plan_of(options: WriteOptions, schema: StructType, *, overwrite: bool) -> _Plan:
    """Check the options and the schema of a write; return its plan."""
    disable_gc()
    if overwrite and not options.allow_truncate:
        raise KafkaLogSparkError(
            ErrorCode.OVERWRITE_UNSUPPORTED,
            "overwriting deletes all records of a topic: set allowTruncate=true, or"
            ' .mode("append")',
            option="allowTruncate",
        )
    if options.commit_strategy == "manifest":
        raise KafkaLogSparkError(
            ErrorCode.UNSUPPORTED,
            "commitStrategy=manifest is for object stores, and a log that can be appended to has"
            " to be on a file system: use rename",
            option="commitStrategy",
        )
    if options.preserve_offsets:
        raise KafkaLogSparkError(
            ErrorCode.UNSUPPORTED,
            "preserveOffsets is for the import job, which has rows in the order of their offsets",
            option="preserveOffsets",
        )
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    timestamp = options.timestamp_column
    if timestamp is None and "timestamp" in types:
        timestamp = "timestamp"
    _ensure_columns(types, timestamp, options)
    columns = [name for name in _COLUMNS if name in types]
    if timestamp is not None:
        columns.append(timestamp)
    return _Plan(options, tuple(columns), timestamp, overwrite)


def _ensure_columns(types: dict[str, str], timestamp: str | None, options: WriteOptions) -> None:
    needed = ["value"]
    if options.topic is None:
        needed.append("topic")
    if options.partitioner == "explicit":
        needed.append("partition")
    if timestamp is not None:
        needed.append(timestamp)
    for name in needed:
        if name not in types:
            hint = ", or the option of that name" if name == "topic" else ""
            raise KafkaLogSparkError(
                ErrorCode.COLUMN_MISSING, f"unknown column {name!r}{hint}", column=name
            )
    for name, kind in types.items():
        allowed = _TIMES if name == timestamp else _COLUMNS.get(name, ())
        if not allowed:
            if name in _SKIPPED:
                continue
            raise KafkaLogSparkError(
                ErrorCode.COLUMN_UNKNOWN,
                f"a record has no {name!r}: select the columns {', '.join(_COLUMNS)}, timestamp",
                column=name,
            )
        ensure_type(name, kind, allowed)
