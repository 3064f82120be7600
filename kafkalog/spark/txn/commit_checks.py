"""Checks before a commit: nothing is refused once there is an intent.

Thread-safety: pure functions, except that missing partitions are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kafkalog.config import LogConfig
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.layout import MAGIC_V2
from kafkalog.manager.manager import LogManager
from kafkalog.records.append_rules import AppendRules
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.txn.model import StagedFile, TransactionId
from kafkalog.spark.txn.staging import StagingArea

__all__ = ["ensure_acceptable", "ensure_staged", "make_partitions", "partition_count"]


def ensure_staged(
    filesystem: FileSystem,
    transaction: TransactionId,
    files: Sequence[StagedFile],
    staging: StagingArea,
) -> None:
    """
    Raise if a file is not as its task left it.

    Raises:
        KafkaLogSparkError: TXN_CONFLICT: another run of the transaction has removed it, or it was
            swept as an orphan.
    """
    seen: set[str] = set()
    for file in files:
        path = Path(file.path)
        with storage_errors(path, doing="looking at"):
            facts = filesystem.stat(path)
        size = None if facts is None else facts.size_bytes
        if size != file.size_bytes or file.path in seen or not staging.owns(path):
            raise KafkaLogSparkError(
                ErrorCode.TXN_CONFLICT,
                f"transaction {transaction}: staged file {path} must belong to it, be listed once"
                f" and have {file.size_bytes} bytes, got {'no file' if size is None else size}",
                path=str(path),
                transaction=str(transaction),
            )
        seen.add(file.path)


def partition_count(topic: str, numbers: Sequence[int]) -> int:
    """
    Return the number of partitions of a topic.

    Raises:
        KafkaLogSparkError: UNSUPPORTED: some of them are in another directory.
    """
    if list(numbers) != list(range(len(numbers))):
        raise KafkaLogSparkError(
            ErrorCode.UNSUPPORTED,
            f"topic {topic} has the partitions {list(numbers)} here, and so others elsewhere: the"
            " sink writes to topics that are in one data directory",
            topic=topic,
            partitions=list(numbers),
        )
    return len(numbers)


def make_partitions(
    manager: LogManager, files: Sequence[StagedFile], segment_bytes: int | None
) -> None:
    """
    Make the missing topics.

    Raises:
        KafkaLogSparkError: TXN_CONFLICT: the number of partitions has changed since the tasks ran.
    """
    counts: dict[str, int] = {}
    for file in files:
        count = counts.setdefault(file.topic, file.partition_count)
        if count != file.partition_count or not 0 <= file.partition < count:
            raise _changed(file.topic, file.partition_count, count)
    topics = manager.topics()
    for topic, count in counts.items():
        if topic in topics:
            present = partition_count(topic, topics[topic])
            if present != count:
                raise _changed(topic, count, present)
            continue
        default = LogConfig().segment_bytes
        config = None
        if segment_bytes is not None and segment_bytes != default:
            config = {"segment.bytes": str(segment_bytes)}
        manager.create_topic(topic, count, config)


def ensure_acceptable(manager: LogManager, files: Sequence[StagedFile], now_ms: int) -> None:
    """
    Raise if the settings of a topic do not allow the files.

    Raises:
        KafkaLogSparkError: UNSUPPORTED, BATCH_TOO_LARGE, RECORD_INVALID.
    """
    for file in files:
        rules = AppendRules.of(manager.log(*file.topic_partition).config)
        facts = {"topic": file.topic, "partition": file.partition}
        if rules.magic < MAGIC_V2 or rules.is_log_append_time:
            what = "an old message.format.version" if rules.magic < MAGIC_V2 else "LogAppendTime"
            raise KafkaLogSparkError(
                ErrorCode.UNSUPPORTED,
                f"topic {file.topic} has {what}: batches would have to be rewritten",
                **facts,
            )
        limit = min(rules.max_message_bytes, rules.segment_bytes)
        if file.largest_batch_bytes > limit:
            raise KafkaLogSparkError(
                ErrorCode.BATCH_TOO_LARGE,
                f"a batch for {file.topic} takes {file.largest_batch_bytes} bytes, and"
                f" max.message.bytes and segment.bytes allow {limit}; lower batchBytes, or raise"
                " the setting",
                **facts,
            )
        if rules.has_invalid_record(
            now_ms, file.null_key_count, file.min_timestamp, file.max_timestamp
        ):
            raise KafkaLogSparkError(
                ErrorCode.RECORD_INVALID,
                f"topic {file.topic}: {file.null_key_count} records without a key, timestamps from"
                f" {file.min_timestamp} to {file.max_timestamp}; its cleanup.policy is"
                f" {rules.policy}, and its message.timestamp bounds are {rules.before_ms} ms"
                f" before and {rules.after_ms} ms after now",
                **facts,
            )


def _changed(topic: str, there: int, here: int) -> KafkaLogSparkError:
    return KafkaLogSparkError(
        ErrorCode.TXN_CONFLICT,
        f"topic {topic} had {there} partitions when a task wrote, and has {here} now: the keys"
        " would be in the wrong ones; run it again",
        topic=topic,
        task_partitions=there,
        partitions=here,
    )
