"""Parts of a producer, each made without the producer: topic table, batch sender, transaction."""

from __future__ import annotations

from random import Random

import pytest

from kafkalog import KafkaLogError, Log, TopicPartition
from kafkalog.clients.accumulator import (
    Accumulator,
    AccumulatorSettings,
    BufferMemory,
    IdleBuilders,
)
from kafkalog.clients.batch_sender import BatchSender
from kafkalog.clients.config import ProducerConfig
from kafkalog.clients.producer_transaction import ProducerTransaction
from kafkalog.clients.topic_table import Topic, TopicTable
from kafkalog.clients.transactions import TransactionCoordinator
from kafkalog.errors import (
    BufferExhaustedError,
    ClientClosedError,
    InvalidTxnStateError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
)
from kafkalog.records.codecs import Codec
from tests.support.log_sources import Logs

ORDERS = TopicPartition("orders", 0)


def settings_of(logs: Logs, memory: BufferMemory, *, durable: bool = False) -> AccumulatorSettings:
    """Return settings of accumulators with batches of 1,000 bytes."""
    return AccumulatorSettings(
        source=logs,
        clock=logs.clock,
        memory=memory,
        builders=IdleBuilders(),
        batch_size=1000,
        codec=Codec.NONE,
        delivery_timeout_ms=60_000,
        durable=durable,
        raises_when_full=False,
        transactional=False,
        new_identity=None,
    )


class Calls:
    """Calls that a sender made of its two callables."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, int]] = []
        self.failures: list[KafkaLogError] = []

    def add_write(self, topic: str, now_ms: int) -> None:
        self.writes.append((topic, now_ms))


def sender_of(
    logs: Logs, calls: Calls, *, memory: int = 10_000, durable: bool = False
) -> BatchSender:
    """Return a sender with a linger of 100 ms and no wait for memory."""
    return BatchSender(
        ProducerConfig(linger_ms=100, max_block_ms=0, batch_size=1000, buffer_memory=memory),
        settings_of(logs, BufferMemory(memory), durable=durable),
        logs.scheduler,
        logs.scheduler,
        on_write=calls.add_write,
        on_failure=calls.failures.append,
    )


def table_of(logs: Logs, made: list[TopicPartition] | None = None) -> TopicTable:
    """Return a table that refreshes topics after 1,000 ms; accumulators go nowhere."""

    def new_accumulator(where: TopicPartition, log: Log) -> Accumulator:
        if made is not None:
            made.append(where)
        settings = settings_of(logs, BufferMemory(10_000))
        return Accumulator(where, log, settings, lambda *_batch: None)

    config = ProducerConfig(metadata_max_age_ms=1000, batch_size=1000)
    return TopicTable(logs, config, logs.clock, Random(1), new_accumulator)


def topic_of(partition_count: int, stick_bytes: int = 100) -> Topic:
    """Return a topic with the partitions from 0 on."""
    return Topic(tuple(range(partition_count)), stick_bytes, Random(3), 0)


def test_topic_after_a_batch_of_bytes_without_a_key_draws_another_partition() -> None:
    """The first record at or above the limit draws it, for the records after it."""
    topic = topic_of(1000)
    first = topic.sticky_partition(99)
    assert topic.sticky_partition(1) == first
    assert topic.sticky_partition(1) != first


def test_producer_with_a_key_that_is_not_bytes_raises(logs: Logs) -> None:
    """A text key is a mistake of the caller."""
    with (
        logs.clients().producer() as producer,
        pytest.raises(TypeError, match="key must be bytes or None, got str"),
    ):
        producer.send("orders", b"v", key="text")  # type: ignore[arg-type]


def test_topic_table_for_an_unknown_topic_names_the_nearest(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message helps with a misspelled name."""

    def refuse(topic: str, partition: int) -> Log:
        raise UnknownTopicOrPartitionError(f"no {topic}-{partition}")

    monkeypatch.setattr(logs, "log", refuse)
    with pytest.raises(UnknownTopicOrPartitionError, match=r"'ordrs'; did you mean orders\?"):
        table_of(logs).refresh("ordrs")


def test_topic_table_makes_one_accumulator_for_each_partition(logs: Logs) -> None:
    """Only a partition with a record has one."""
    made: list[TopicPartition] = []
    table = table_of(logs, made)
    assert table.accumulator("orders", 2) is table.accumulator("orders", 2)
    assert table.by_name["orders"].accumulators[0] is None
    assert made == [TopicPartition("orders", 2)]
    assert list(table.by_name) == ["orders"]


def test_topic_table_refreshes_old_topics_and_keeps_their_accumulators(logs: Logs) -> None:
    """Added partitions are found after `metadata.max.age.ms`."""
    table = table_of(logs)
    kept = table.accumulator("orders", 1)
    logs.take("orders", 3)
    table.refresh_if_old("orders", logs.clock.monotonic_ms() + 999)
    assert list(table.by_name["orders"].partitions) == [0, 1, 2]
    table.refresh_if_old("orders", logs.clock.monotonic_ms() + 1000)
    assert list(table.by_name["orders"].partitions) == [0, 1, 2, 3]
    assert table.by_name["orders"].accumulators[1] is kept


def test_batch_sender_writes_an_open_batch_after_linger_ms(logs: Logs) -> None:
    """Not before, and the topic and time are reported."""
    calls = Calls()
    accumulator = sender_of(logs, calls).new_accumulator(ORDERS, logs.log(*ORDERS))
    delivery = accumulator.append(None, b"v", None, 1)
    assert delivery is not None
    logs.scheduler.advance(99)
    assert not delivery.done()
    logs.scheduler.advance(1)
    assert delivery.result(0).offset == 0
    assert [topic for topic, _now_ms in calls.writes] == ["orders"]
    assert calls.failures == []


def test_batch_sender_with_durable_batches_syncs_before_it_completes(logs: Logs) -> None:
    """A written batch is not acknowledged before its sync."""
    log = logs.log(*ORDERS)
    sender = sender_of(logs, Calls(), durable=True)
    accumulator = sender.new_accumulator(ORDERS, log)
    delivery = accumulator.append(None, b"v", None, 1)
    assert delivery is not None
    accumulator.close_open()
    sender.write(accumulator)
    assert log.log_end_offset == 1
    assert not delivery.done()
    assert sender.flush(None) == 0
    assert delivery.result(0).offset == 0
    assert log.durable_offset == 1


def test_batch_sender_interrupted_commit_is_repeated(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a flush: what is on the disk is unknown, and the next flush syncs it again."""
    sender = sender_of(logs, Calls(), durable=True)
    accumulator = sender.new_accumulator(ORDERS, logs.log(*ORDERS))
    delivery = accumulator.append(b"k", b"v", None, 0)
    assert delivery is not None

    def interrupt(_logs: object) -> dict[Log, KafkaLogError]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(logs, "commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            sender.flush(0)
    assert not delivery.done()
    assert 0 == sender.flush(0)
    assert 0 == delivery.result(0).offset
    assert 1 == logs.log(*ORDERS).durable_offset


def test_batch_sender_drop_reports_the_error_and_frees_memory(logs: Logs) -> None:
    """Every future of the batch gets the error."""
    calls = Calls()
    sender = sender_of(logs, calls, memory=1000)
    accumulator = sender.new_accumulator(ORDERS, logs.log(*ORDERS))
    delivery = accumulator.append(None, b"v", None, 1)
    assert delivery is not None
    error = ClientClosedError("closed")
    sender.drop(error)
    assert delivery.exception(0) is error
    assert calls.failures == [error]
    assert accumulator.append(None, b"w", None, 1) is not None


def test_batch_sender_without_free_memory_writes_open_batches_first(logs: Logs) -> None:
    """It waits for other threads only after that."""
    sender = sender_of(logs, Calls(), memory=1000)
    first = sender.new_accumulator(ORDERS, logs.log(*ORDERS))
    second = sender.new_accumulator(TopicPartition("orders", 1), logs.log("orders", 1))
    delivery = first.append(None, b"v", None, 1)
    assert second.append(None, b"w", None, 1) is None
    sender.reserve_memory(second, 1000)
    assert delivery is not None
    assert delivery.done()
    with pytest.raises(BufferExhaustedError, match=r"orders-1: buffer\.memory = 1000 was full"):
        sender.reserve_memory(second, 1000)


def test_accumulators_keep_at_most_64_idle_builders(logs: Logs) -> None:
    """Each builder is as large as a batch."""
    settings = settings_of(logs, BufferMemory(10**9))
    logs.create_topic("many", 70)
    made = [
        Accumulator(TopicPartition("many", n), logs.log("many", n), settings, lambda *_batch: None)
        for n in range(70)
    ]
    for accumulator in made:
        accumulator.append(None, b"v", None, 1)
        accumulator.close_open()
    for accumulator in made:
        accumulator.write(0)
    assert len(settings.builders) == 64


@pytest.fixture
def transaction(logs: Logs) -> ProducerTransaction:
    """A transaction of a producer that has not begun."""
    coordinator = TransactionCoordinator(logs, logs.clock, Random(1), partition_count=1)
    return ProducerTransaction(coordinator, "t", 60_000)


def test_producer_transaction_begun_twice_raises(transaction: ProducerTransaction) -> None:
    """One transaction at a time."""
    with pytest.raises(InvalidTxnStateError, match="no transaction is open"):
        transaction.ensure_open()
    transaction.begin()
    transaction.ensure_open()
    with pytest.raises(InvalidTxnStateError, match="is open already"):
        transaction.begin()


def test_producer_transaction_joined_by_a_partition_numbers_its_batches(
    logs: Logs, transaction: ProducerTransaction
) -> None:
    """A partition joins once."""
    settings = settings_of(logs, BufferMemory(10_000))
    accumulator = Accumulator(ORDERS, logs.log(*ORDERS), settings, lambda *_batch: None)
    transaction.begin()
    transaction.join(accumulator)
    transaction.join(accumulator)
    assert transaction.begun == {ORDERS}
    assert accumulator.is_in(transaction.begun)


def test_producer_transaction_with_an_undelivered_record_is_not_committed(
    transaction: ProducerTransaction,
) -> None:
    """With its error as the cause, or with a count alone."""
    transaction.begin()
    error = ClientClosedError("not delivered")
    transaction.record_failure(error)
    with pytest.raises(TransactionAbortedError, match="not delivered") as caught:
        transaction.commit(transaction.begun, 0)
    assert caught.value.__cause__ is error
    assert transaction.is_open
    transaction.abort()
    transaction.begin()
    with pytest.raises(TransactionAbortedError):
        transaction.commit(transaction.begun, 1)
    transaction.commit(transaction.begun, 0)
    assert not transaction.is_open
