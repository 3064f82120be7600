"""Tests of first calls by users of Kafka: accepted, or refused with clear errors (USE-8, USE-2)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kafkalog import LogManager, Record, UnknownTopicOrPartitionError
from kafkalog.log.log import partition_of


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    """A manager with a topic."""
    with LogManager(tmp_path) as made:
        made.create_topic("orders", 2)
        yield made


def test_subscribe_to_a_list_reads_its_topics(manager: LogManager) -> None:
    """USE-8: every client of Kafka accepts a list."""
    with manager.consumer() as consumer:
        consumer.subscribe(["orders"])
        assert len(consumer.assignment()) == 2
        with pytest.raises(TypeError, match="a topic must be a str, got 5"):
            consumer.subscribe([5])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="at least one"):
            consumer.subscribe([])


def test_send_to_an_unknown_topic_names_the_nearest(manager: LogManager) -> None:
    """USE-8: the error is about the topic, not about its partition 0."""
    with (
        manager.producer() as producer,
        pytest.raises(UnknownTopicOrPartitionError, match="'ordes'; did you mean orders"),
    ):
        producer.send("ordes", b"v")


def test_send_with_a_float_timestamp_raises(manager: LogManager) -> None:
    """USE-2: it would count as January 1970, and retention would delete the record."""
    with manager.producer() as producer:
        for wrong in (time.time(), datetime(2026, 1, 1)):
            with pytest.raises((TypeError, ValueError), match="timestamp_ms"):
                producer.send("orders", b"v", timestamp_ms=wrong)  # type: ignore[arg-type]
        right = datetime(2026, 1, 1, tzinfo=UTC)
        sent = producer.send("orders", b"v", timestamp_ms=right)
        producer.flush()
    assert sent.result().timestamp_ms == int(right.timestamp() * 1000)


def test_watchers_are_notified_of_truncations(manager: LogManager) -> None:
    """PAR-14: a reader that waits at the log end checks the new end."""
    log = manager.log("orders", 0)
    log.append([Record(value=b"%d" % number) for number in range(5)])
    called: list[int] = []
    log.watch(lambda: called.append(log.log_end_offset))
    log.truncate_to(0)
    log.truncate_fully_and_start_at(9)
    assert called == [0, 9]


def test_producers_of_a_log_are_listed(manager: LogManager) -> None:
    """PAR-11: their epochs, last sequence and open transaction, without a snapshot file."""
    log = manager.log("orders", 0)
    producer = manager.producer(transactional_id="t")
    producer.begin_transaction()
    for _ in range(3):
        producer.send("orders", b"v", partition=0)
    producer.flush()
    (found,) = log.list_producers()
    assert (found.producer_epoch, found.last_sequence, found.coordinator_epoch) == (0, 2, -1)
    assert found.transaction_first_offset == 0
    producer.commit_transaction()
    (found,) = log.list_producers()
    assert (found.producer_epoch, found.transaction_first_offset) == (1, None)
    assert found == log.find_producer(found.producer_id)
    assert log.find_producer(found.producer_id + 1) is None
    producer.close()


def test_first_unstable_offset_is_not_below_the_log_start(manager: LogManager) -> None:
    """PAR-16: deleted records of an open transaction are not unstable."""
    log = manager.log("orders", 0)
    producer = manager.producer(transactional_id="t")
    producer.begin_transaction()
    for _ in range(3):
        producer.send("orders", b"v", partition=0)
    producer.flush()
    assert partition_of(log).view.first_unstable_offset == 0
    log.delete_records(2)
    assert (
        log.log_start_offset
        == partition_of(log).view.first_unstable_offset
        == log.last_stable_offset
        == 2
    )
    producer.abort_transaction()
    assert partition_of(log).view.first_unstable_offset is None
    producer.close()
