"""Assertions about logs, groups and transactions, with messages in Kafka's terms.

They read through the public API and change nothing. Every failure is an AssertionError.

Thread-safety: that of the logs.
"""

from __future__ import annotations

from collections import Counter

from kafkalog.clients.internal_topics import TRANSACTION_STATE
from kafkalog.clients.transaction_records import TransactionRecord, decode_key, decode_value
from kafkalog.log.isolation import Isolation
from kafkalog.log.log import Log
from kafkalog.manager.manager import LogManager
from kafkalog.model import TopicPartition
from kafkalog.testing.record_difference import (
    ExpectedRecords,
    RecordFields,
    describe_difference,
    expected_fields,
)

__all__ = [
    "assert_committed",
    "assert_offsets",
    "assert_records",
    "assert_topic_records",
    "assert_transaction",
]


def assert_records(
    log: Log,
    expected: ExpectedRecords,
    *,
    start: int | None = None,
    isolation: Isolation = "read_uncommitted",
) -> None:
    """
    Assert that a log has exactly these records, in this order.

    Args:
        log: the log of a partition.
        expected: values; (key, value) of each record; or a Record for each, whose key, value and
            headers are compared. Timestamps and offsets are compared if each Record has one.
        start: first offset; the log start offset if None.
        isolation: as of `Log.records`; "read_committed" leaves aborted records out.

    Raises:
        AssertionError: records are missing, additional or out of order.
        TypeError: the expected records are of several kinds.
        CorruptRecordError: the log is damaged.
    """
    __tracebackhide__ = True
    fields = expected_fields(expected)
    records = list(log.records(start, isolation=isolation))
    like = fields[0] if fields else RecordFields((None,), (None,))
    found = [like.fields_of(each) for each in records]
    if found != fields:
        offsets = [f"offset {each.offset}" for each in records]
        lines = describe_difference(fields, found, offsets)
        counts = f"{len(fields)} expected, {len(found)} found with {isolation}"
        raise AssertionError(
            "\n  ".join([f"{log.topic_partition} has other records: {counts}", *lines])
        )


def assert_topic_records(
    manager: LogManager,
    topic: str,
    expected: ExpectedRecords,
    *,
    isolation: Isolation = "read_uncommitted",
) -> None:
    """
    Assert that the partitions of a topic have exactly these records together, in any order.

    Arguments and errors as for `assert_records`; UnknownTopicOrPartitionError for another topic.
    """
    __tracebackhide__ = True
    fields = expected_fields(expected)
    like = fields[0] if fields else RecordFields((None,), (None,))
    found, places = list[RecordFields](), list[str]()
    for partition in manager.topics().get(topic, (0,)):
        for record in manager.log(topic, partition).records(isolation=isolation):
            found.append(like.fields_of(record))
            places.append(f"{topic}-{partition} offset {record.offset}")
    if Counter(found) != Counter(fields):
        lines = describe_difference(*_in_one_order(fields, found, places))
        counts = f"{len(fields)} expected, {len(found)} found with {isolation}"
        raise AssertionError("\n  ".join([f"{topic} has other records: {counts}", *lines]))


def _in_one_order(
    fields: list[RecordFields], found: list[RecordFields], places: list[str]
) -> tuple[list[RecordFields], list[RecordFields], list[str]]:
    """Return what was expected and found, sorted, so that no order is a difference."""
    pairs = sorted(zip(found, places, strict=True), key=lambda pair: repr(pair[0]))
    return (
        sorted(fields, key=repr),
        [record for record, _place in pairs],
        [place for _record, place in pairs],
    )


def assert_offsets(
    log: Log,
    *,
    start: int | None = None,
    end: int | None = None,
    durable: int | None = None,
    high_watermark: int | None = None,
    last_stable: int | None = None,
) -> None:
    """
    Assert offsets of a log; an offset that is None is not compared.

    Args:
        log: the log of a partition.
        start, end: log start offset and log end offset.
        durable: one past the last record that is on the disk (`Log.durable_offset`).
        high_watermark: high watermark.
        last_stable: last stable offset.

    Raises:
        AssertionError: an offset differs; the message has all that differ.
    """
    __tracebackhide__ = True
    offsets = [
        ("log start offset", start, log.log_start_offset),
        ("log end offset", end, log.log_end_offset),
        ("durable offset", durable, log.durable_offset),
        ("high watermark", high_watermark, log.high_watermark),
        ("last stable offset", last_stable, log.last_stable_offset),
    ]
    differences = [
        f"{name} must be {expected}, got {found}"
        for name, expected, found in offsets
        if expected is not None and expected != found
    ]
    if differences:
        raise AssertionError(f"{log.topic_partition}: {'; '.join(differences)}")


def assert_committed(
    manager: LogManager, group: str, topic: str, partition: int, offset: int | None
) -> None:
    """
    Assert the committed position of a group in a partition.

    Args:
        manager: the manager of the group.
        group: name of the group.
        topic, partition: the partition.
        offset: offset of the next record of the group; None if the group must have no position.

    Raises:
        AssertionError: the group has another position.
    """
    __tracebackhide__ = True
    name = TopicPartition(topic, partition)
    with manager.consumer(group) as consumer:
        committed = consumer.committed(name)
    found = None if committed is None else committed.offset
    if found != offset:
        raise AssertionError(
            f"group {group!r}: committed offset of {name} must be {offset}, got {found}"
        )


def assert_transaction(
    manager: LogManager,
    transactional_id: str,
    state: str,
    *partitions: TopicPartition | tuple[str, int],
) -> None:
    """
    Assert the state of the last transaction of a transactional id.

    Args:
        manager: the manager of the transaction.
        transactional_id: the transactional id.
        state: Kafka's name of the state: "Empty", "Ongoing", "PrepareCommit", "PrepareAbort",
            "CompleteCommit" or "CompleteAbort".
        partitions: partitions of an unfinished transaction; not compared if there are none.

    Raises:
        AssertionError: the transaction has another state or other partitions, or none was begun.
    """
    __tracebackhide__ = True
    record = _last_transaction(manager, transactional_id)
    found = None if record is None else record.state.name.title().replace("_", "")
    if record is None or found != state:
        raise AssertionError(
            f"transaction of {transactional_id!r} must be {state}, got {found or 'no transaction'}"
        )
    names = sorted(TopicPartition(*each) for each in partitions)
    if names and names != sorted(record.partitions):
        raise AssertionError(
            f"transaction of {transactional_id!r} must have the partitions"
            f" {', '.join(map(str, names))}, got {', '.join(map(str, record.partitions)) or 'none'}"
        )


def _last_transaction(manager: LogManager, transactional_id: str) -> TransactionRecord | None:
    """Return the last record of a transactional id; None if it has none."""
    last: TransactionRecord | None = None
    for partition in manager.topics().get(TRANSACTION_STATE, ()):
        if manager.has_files(TRANSACTION_STATE, partition):
            for record in manager.log(TRANSACTION_STATE, partition).records():
                if decode_key(record.key) == transactional_id:
                    last = None if record.value is None else decode_value(record.value)
    return last
