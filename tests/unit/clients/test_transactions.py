"""Tests of transactions over partitions and positions: ended, fenced, resumed after a crash."""

from __future__ import annotations

import errno
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafkalog import AppendOrigin, Log, LogOfflineError, Record, TopicPartition
from kafkalog.clients import transactions
from kafkalog.clients.group_offsets import GroupOffsets
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.clients.producer import Producer
from kafkalog.clients.transaction_records import TransactionState, decode_value
from kafkalog.errors import (
    DiskFullError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    RecordTooLargeError,
    TopicExistsError,
    TransactionAbortedError,
)
from kafkalog.records.control import ControlType, encode_marker
from tests.support.log_sources import Logs
from tests.support.simulated_disk import SimulatedDisk

GROUP = "billing"
POSITION = {TopicPartition("input", 0): 17}


def producer_of(logs: Logs, name: str = "t") -> Producer:
    """Return a transactional producer on manual time."""
    return logs.clients().producer(transactional_id=name)


def decide_commit(logs: Logs, producer: Producer) -> None:
    """Commit; all topics go offline once the decision is durable, before the markers."""
    find = logs.log

    def found(topic: str, partition: int) -> Log:
        log = find(topic, partition)
        if not topic.startswith("__") and states_of(logs)[-1] is TransactionState.PREPARE_COMMIT:
            raise LogOfflineError("no markers now")
        return log

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "log", found)
        with pytest.raises(LogOfflineError, match="no markers now"):
            producer.commit_transaction()


def committed_values(logs: Logs, topic: str = "orders") -> list[bytes | None]:
    """Return what readers of committed records see of a topic."""
    return [
        record.value
        for number in logs.topics()[topic]
        for record in logs.log(topic, number).records(isolation="read_committed")
    ]


def position_of(logs: Logs) -> int | None:
    """Return the position that the group has committed."""
    found = GroupOffsets(logs).committed(GROUP).get(TopicPartition("input", 0))
    return None if found is None else found.offset


def next_process(logs: Logs) -> None:
    """Begin to coordinate, as a process that opens the directory after a crash."""
    logs.clients().consumer(GROUP).close()


def states_of(logs: Logs) -> list[TransactionState]:
    """Return the recorded states of transactions, in order."""
    values = [record.value for record in logs.log("__transaction_state", 0).records()]
    return [decode_value(value).state for value in values if value is not None]


def test_committed_transaction_is_seen_whole(logs: Logs) -> None:
    """Records of several partitions and a position, none before the commit."""
    with producer_of(logs) as producer:
        with producer.transaction():
            sent = [producer.send("orders", b"%d" % n, partition=n) for n in range(3)]
            producer.send_offsets_to_transaction(POSITION, GROUP)
            producer.flush()
            assert committed_values(logs) == []
            assert position_of(logs) is None
        assert [b"0", b"1", b"2"] == committed_values(logs)
        assert position_of(logs) == 17
        assert [0, 0, 0] == [each.result().offset for each in sent]
    assert states_of(logs)[-1] is TransactionState.COMPLETE_COMMIT
    assert all(logs.log("orders", n).durable_offset == 2 for n in range(3))


def test_aborted_transaction_is_never_seen(logs: Logs) -> None:
    """Neither written nor pending records."""
    with producer_of(logs) as producer:
        producer.begin_transaction()
        producer.send("orders", b"written", partition=0)
        producer.send_offsets_to_transaction(POSITION, GROUP)
        producer.flush()
        unwritten = producer.send("orders", b"unwritten", partition=1)
        producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            unwritten.result(0)
        assert committed_values(logs) == []
        assert position_of(logs) is None
        with producer.transaction():
            producer.send("orders", b"next", partition=0)
        assert [b"next"] == committed_values(logs)
    assert logs.log("orders", 0).list_transactions() == []


@pytest.mark.parametrize("ending", ["close", "abort_transaction"])
def test_commit_after_an_abort_by_another_thread_raises(
    logs: Logs, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """An abort between flush and decision, as by `close`, must not pass for a commit."""
    producer = producer_of(logs)
    producer.begin_transaction()
    producer.send("orders", b"v", partition=0)
    flush = producer.flush

    def flush_and_be_overtaken(timeout_ms: int | None = None) -> int:
        monkeypatch.setattr(producer, "flush", flush)
        left = flush(timeout_ms)
        getattr(producer, ending)()
        return left

    monkeypatch.setattr(producer, "flush", flush_and_be_overtaken)
    with pytest.raises(TransactionAbortedError, match="was aborted before"):
        producer.commit_transaction()
    assert committed_values(logs) == []
    assert states_of(logs)[-1] is TransactionState.COMPLETE_ABORT
    producer.close()


def test_commit_after_a_failed_abort_raises(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction with a decided abort and some markers is aborted, not committed."""
    producer = producer_of(logs)
    producer.begin_transaction()
    producer.send("orders", b"v", partition=0)
    producer.flush()
    find = logs.log

    def found(topic: str, partition: int) -> Log:
        if topic == "orders":
            raise LogOfflineError("no markers now")
        return find(topic, partition)

    with monkeypatch.context() as patch:
        patch.setattr(logs, "log", found)
        with pytest.raises(LogOfflineError, match="no markers now"):
            producer.abort_transaction()
    assert states_of(logs)[-1] is TransactionState.PREPARE_ABORT
    with pytest.raises(TransactionAbortedError, match="abort it again"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert committed_values(logs) == []
    with producer.transaction():
        producer.send("orders", b"next", partition=0)
    assert [b"next"] == committed_values(logs)
    producer.close()


def test_commit_retried_after_its_markers_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all markers written the error of a new producer id does not abort it."""
    monkeypatch.setattr(transactions, "EPOCH_LAST", 1)
    disk = SimulatedDisk()
    disk.make_durable(Path("/data"))
    logs = Logs(Path("/data"), filesystem=disk)
    logs.create_topic("orders", 1)
    producer = producer_of(logs)
    producer.begin_transaction()
    producer.send("orders", b"v", partition=0)
    producer.flush()
    # The decision, the completion, and the first state of the new id.
    writes = frozenset({"pwrite", "pwritev"})
    state = "__transaction_state-0/00000000000000000000.log"
    disk.fail_at(3, errno.ENOSPC, only=writes, suffix=state)
    with pytest.raises(DiskFullError):
        producer.commit_transaction()
    assert states_of(logs)[-1] is TransactionState.COMPLETE_COMMIT
    producer.commit_transaction()
    assert [b"v"] == committed_values(logs)
    producer.close()
    logs.close()


def test_transaction_left_by_an_exception_is_aborted(logs: Logs) -> None:
    """The block's own error is raised."""
    with producer_of(logs) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send("orders", b"v", partition=0)
            producer.flush()
            raise ZeroDivisionError
        assert committed_values(logs) == []
        with producer.transaction():
            producer.send("orders", b"w", partition=0)
    assert [b"w"] == committed_values(logs)


def test_empty_transaction_writes_nothing(logs: Logs) -> None:
    """No decision is recorded for a transaction without records."""
    with producer_of(logs) as producer:
        with producer.transaction():
            pass
        producer.begin_transaction()
        producer.abort_transaction()
    assert [TransactionState.EMPTY] == states_of(logs)


def test_transaction_with_a_refused_record_cannot_be_committed(logs: Logs) -> None:
    """The commit raises the error of the record."""
    logs.create_topic("small", 1, {"max.message.bytes": "500"})
    with producer_of(logs) as producer:
        producer.begin_transaction()
        producer.send("orders", b"good", partition=0)
        refused = producer.send("small", bytes(1000))
        with pytest.raises(TransactionAbortedError, match="was not delivered") as caught:
            producer.commit_transaction()
        assert isinstance(caught.value.__cause__, RecordTooLargeError)
        assert refused.exception() is caught.value.__cause__
        producer.abort_transaction()
    assert committed_values(logs) == []


def test_transaction_call_in_the_wrong_state_raises(logs: Logs) -> None:
    """Sending, ending and beginning have their order."""
    with producer_of(logs) as producer:
        with pytest.raises(InvalidTxnStateError, match="no transaction is open"):
            producer.send("orders", b"v")
        with pytest.raises(InvalidTxnStateError, match="no transaction is open"):
            producer.commit_transaction()
        producer.begin_transaction()
        with pytest.raises(InvalidTxnStateError, match="a transaction is open already"):
            producer.begin_transaction()


def test_transaction_open_at_close_is_aborted(logs: Logs) -> None:
    """No caller can end it any more."""
    producer = producer_of(logs)
    producer.begin_transaction()
    producer.send("orders", b"v", partition=0)
    producer.flush()
    producer.close()
    assert logs.log("orders", 0).list_transactions() == []
    assert committed_values(logs) == []


def test_second_producer_of_an_id_fences_the_first(logs: Logs) -> None:
    """The open transaction of the first is aborted, and all its calls raise."""
    clients = logs.clients()
    first = clients.producer(transactional_id="t")
    first.begin_transaction()
    first.send("orders", b"first", partition=0)
    first.flush()
    second = clients.producer(transactional_id="t")
    assert logs.log("orders", 0).list_transactions() == []
    late = first.send("orders", b"late", partition=0)
    first.flush()
    assert isinstance(late.exception(), InvalidProducerEpochError)
    with pytest.raises(InvalidProducerEpochError, match="another producer"):
        first.send("orders", b"elsewhere", partition=1)
    with pytest.raises(TransactionAbortedError):
        first.commit_transaction()
    with pytest.raises(InvalidProducerEpochError):
        first.abort_transaction()
    with second.transaction():
        second.send("orders", b"second", partition=0)
    second.close()
    with pytest.raises(InvalidProducerEpochError):
        first.close()
    assert [b"second"] == committed_values(logs)


def test_batch_of_a_fenced_session_is_refused_in_an_unwritten_partition(logs: Logs) -> None:
    """DUR-1: the partition was added, so it has a marker; a late batch would join the next one."""
    clients = logs.clients()
    first = clients.producer(transactional_id="t")
    first.begin_transaction()
    late = first.send("orders", b"late", partition=0)
    with clients.producer(transactional_id="t") as second:
        first.flush()
        assert isinstance(late.exception(), InvalidProducerEpochError)
        assert logs.log("orders", 0).list_transactions() == []
        with second.transaction():
            second.send("orders", b"second", partition=0)
    assert [b"second"] == committed_values(logs)
    with pytest.raises(InvalidProducerEpochError):
        first.close()


def test_commit_waits_for_an_offline_partition(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """DUR-1: completed without it, its part of the transaction would be aborted later."""
    first = producer_of(logs)
    first.begin_transaction()
    for number in range(2):
        first.send("orders", b"%d" % number, partition=number)
    first.flush()
    decide_commit(logs, first)
    find = logs.log

    def found(topic: str, partition: int) -> Log:
        if (topic, partition) == ("orders", 1):
            raise LogOfflineError("its directory is away")
        return find(topic, partition)

    with monkeypatch.context() as patch:
        patch.setattr(logs, "log", found)
        patch.setattr(logs, "topics", lambda: {"orders": (0, 2), "__transaction_state": (0,)})
        next_process(logs)
        with pytest.raises(LogOfflineError):
            producer_of(logs)
    assert states_of(logs)[-1] is TransactionState.PREPARE_COMMIT
    next_process(logs)
    assert [b"0", b"1"] == committed_values(logs)


def test_marker_has_at_least_the_coordinator_epoch_of_the_log(logs: Logs) -> None:
    """A broker's coordinator may have had a larger one: the log would refuse the marker."""
    with producer_of(logs) as producer:
        with producer.transaction():
            producer.send("orders", b"0", partition=0)
        log = logs.log("orders", 0)
        (state,) = log.list_producers()
        marker = encode_marker(*state[:2], 9, logs.clock.now_ms(), is_abort=True)
        log.append_batches(marker, origin=AppendOrigin.COORDINATOR)
        with producer.transaction():
            producer.send("orders", b"1", partition=0)
    assert [b"0", b"1"] == committed_values(logs)


def test_transactions_have_their_own_epochs(logs: Logs) -> None:
    """A late batch has the epoch of an ended transaction."""
    with producer_of(logs) as producer:
        for number in range(3):
            with producer.transaction():
                producer.send("orders", b"%d" % number, partition=0)
    headers = [batch.header for batch in logs.log("orders", 0).batches()]
    assert [0, 1, 1, 2, 2, 3] == [each.producer_epoch for each in headers]
    assert [0, 0, 0] == [each.base_sequence for each in headers if not each.is_control]


def test_transactions_beyond_the_last_epoch_get_another_id(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch has 16 bits; callers do not see the change."""
    monkeypatch.setattr(transactions, "EPOCH_LAST", 3)
    with producer_of(logs) as producer:
        for number in range(10):
            with producer.transaction():
                producer.send("orders", b"%d" % number, partition=0)
    assert [b"%d" % number for number in range(10)] == committed_values(logs)
    headers = [batch.header for batch in logs.log("orders", 0).batches()]
    assert len({each.producer_id for each in headers}) == 4


def test_transactions_of_two_producers_are_independent(logs: Logs) -> None:
    """One aborts, the other commits, in the same partition."""
    clients = logs.clients()
    first, second = (clients.producer(transactional_id=name) for name in "ab")
    first.begin_transaction()
    second.begin_transaction()
    for number in range(3):
        first.send("orders", b"first %d" % number, partition=0)
        second.send("orders", b"second %d" % number, partition=0)
        first.flush()
        second.flush()
    first.abort_transaction()
    assert committed_values(logs) == []
    second.commit_transaction()
    assert [b"second %d" % number for number in range(3)] == committed_values(logs)
    for producer in (first, second):
        producer.close()


def test_position_of_an_open_transaction_does_not_block_others(logs: Logs) -> None:
    """A group's commit counts at once, even after an open transaction in the topic."""
    clients = logs.clients()
    with clients.producer(transactional_id="hangs") as hanging, clients.consumer(GROUP) as consumer:
        hanging.begin_transaction()
        hanging.send_offsets_to_transaction({TopicPartition("input", 1): 5}, "other")
        hanging.flush()
        consumer.commit(POSITION)
        assert consumer.committed(TopicPartition("input", 0)) is not None
        # The later of the two is used, though its transaction ends before the other is counted.
        hanging.send_offsets_to_transaction(
            {TopicPartition("input", 0): CommittedOffset(30, "note", 4)}, GROUP
        )
        hanging.flush()
        consumer.commit({TopicPartition("input", 0): 40})
        hanging.commit_transaction()
        found = consumer.committed(TopicPartition("input", 0))
        assert found is not None
        assert found.offset == 40


def test_transaction_decided_before_a_crash_is_completed(logs: Logs) -> None:
    """The next process writes the missing markers."""
    producer = producer_of(logs)
    producer.begin_transaction()
    producer.send("orders", b"v", partition=0)
    producer.send_offsets_to_transaction(POSITION, GROUP)
    producer.flush()
    decide_commit(logs, producer)
    with pytest.raises(InvalidTxnStateError, match="is decided"):
        producer.abort_transaction()
    next_process(logs)
    assert position_of(logs) == 17
    assert [b"v"] == committed_values(logs)
    assert states_of(logs)[-1] is TransactionState.COMPLETE_COMMIT


def test_transaction_undecided_at_a_crash_is_aborted(logs: Logs) -> None:
    """By the next process, before it reads anything."""
    first = producer_of(logs)
    first.begin_transaction()
    first.send("orders", b"v", partition=0)
    first.send_offsets_to_transaction(POSITION, GROUP)
    first.flush()
    next_process(logs)
    assert position_of(logs) is None
    assert committed_values(logs) == []
    assert logs.log("orders", 0).list_transactions() == []
    with pytest.raises(InvalidProducerEpochError, match="another producer"):
        first.commit_transaction()
    kinds = [
        record.type
        for batch in logs.log("orders", 0).batches()
        if batch.header.is_control
        for record in batch.control_records()
    ]
    assert kinds == [ControlType.ABORT]


def test_transaction_with_a_lost_state_record_is_aborted(logs: Logs) -> None:
    """A power cut may take ONGOING and leave a batch of a producer without an open transaction."""
    first = producer_of(logs)
    first.begin_transaction()
    first.send("orders", b"v", partition=0)
    first.flush()
    state = logs.log("__transaction_state", 0)
    state.truncate_to(state.log_end_offset - 1)
    clients = logs.clients()
    with clients.consumer(isolation_level="read_committed", auto_offset_reset="earliest") as reader:
        assert logs.log("orders", 0).list_transactions() != []
        reader.assign([("orders", 0)])
        assert reader.poll() == {}
    assert logs.log("orders", 0).list_transactions() == []


def test_transaction_of_an_unknown_producer_is_not_touched(logs: Logs) -> None:
    """It may belong to a caller that uses the log directly."""
    with producer_of(logs) as producer, producer.transaction():
        producer.send("orders", b"v", partition=0)
    stranger = producer_of(logs, "stranger")
    stranger.begin_transaction()
    stranger.send("orders", b"w", partition=0)
    stranger.flush()
    state = logs.log("__transaction_state", 0)
    state.append([Record(key=b"\0\0\0\x08stranger", value=None)])
    with logs.clients().consumer(isolation_level="read_committed") as reader:
        reader.assign([("orders", 0)])
    (open_transaction,) = logs.log("orders", 0).list_transactions()
    logs.log("orders", 0).abort_transaction(open_transaction.producer_id)


class WatchedTopics(Logs):
    """Topics of a manager that report a request, then wait for the request of another thread."""

    first_has_looked: threading.Event | None = None
    second_comes = threading.Event()

    def create_topic(
        self, topic: str, partition_count: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        if topic in super().topics():
            raise TopicExistsError(topic)
        super().create_topic(topic, partition_count, config)

    def topics(self) -> dict[str, tuple[int, ...]]:
        found = super().topics()
        if self.first_has_looked is not None and not self.first_has_looked.is_set():
            self.first_has_looked.set()
            assert self.second_comes.wait(30)
        return found


def test_first_positions_of_two_producers_create_the_topic_once(tmp_path: Path) -> None:
    """The second producer looks for the topic before the first has created it."""
    logs = WatchedTopics(tmp_path)
    clients = logs.clients()
    producers = [clients.producer(transactional_id=name) for name in ("first", "second")]
    for producer in producers:
        producer.begin_transaction()
    logs.first_has_looked = threading.Event()

    def send(number: int) -> None:
        if number:
            assert logs.first_has_looked is not None
            assert logs.first_has_looked.wait(30)
            logs.second_comes.set()
        producers[number].send_offsets_to_transaction({TopicPartition("input", number): 17}, GROUP)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(send, range(2)))
    for producer in producers:
        producer.commit_transaction()
    for producer in producers:
        producer.close()
    assert len(GroupOffsets(logs).committed(GROUP)) == 2
    logs.close()


def test_transactions_on_a_full_disk_complete_when_space_is_free() -> None:
    """Readers and other producers continue; the id itself waits."""
    disk = SimulatedDisk()
    disk.make_durable(Path("/data"))
    logs = Logs(Path("/data"), filesystem=disk)
    logs.create_topic("orders", 2)
    left = producer_of(logs)
    left.begin_transaction()
    left.send("orders", b"v", partition=0)
    left.flush()
    disk.capacity_bytes = 0
    clients = logs.clients()
    with clients.consumer(isolation_level="read_committed", auto_offset_reset="earliest") as reader:
        reader.assign([("orders", 0)])
        assert reader.poll() == {}
        with pytest.raises(DiskFullError):
            clients.producer(transactional_id="t")
        disk.capacity_bytes = None
        with clients.producer() as producer:
            producer.send("orders", b"w", partition=0)
        assert [b"w"] == [record.value for record in reader.poll()[TopicPartition("orders", 0)]]
    assert logs.log("orders", 0).list_transactions() == []
    logs.close()


def test_partition_that_could_not_be_added_is_added_later() -> None:
    """A broker that takes over must know the partitions of a transaction."""
    disk = SimulatedDisk()
    disk.make_durable(Path("/data"))
    logs = Logs(Path("/data"), filesystem=disk)
    logs.create_topic("orders", 1)
    with producer_of(logs) as producer:
        producer.begin_transaction()
        logs.log("orders", 0)
        disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite", "pwritev"}))
        with pytest.raises(DiskFullError):
            producer.send("orders", b"v")
        producer.send("orders", b"v")
        assert TransactionState.ONGOING is states_of(logs)[-1]
        producer.commit_transaction()
    assert [b"v"] == committed_values(logs)
    logs.close()
