"""Tests of batches that a caller numbers: duplicates, gaps, epochs, refusals, disks, threads."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

from kafkalog import (
    AppendOrigin,
    Log,
    LogManager,
    ManagerConfig,
    ProducerSequence,
    SentRange,
)
from kafkalog.clients.producer import Producer
from kafkalog.clients.producer_sequence import draw_producer_id
from kafkalog.errors import (
    ClientClosedError,
    DiskFullError,
    DuplicateSequenceError,
    ForkedLogError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    LogOfflineError,
    LogStorageError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    RecordValidationError,
    UnknownTopicOrPartitionError,
)
from kafkalog.testing import ManagerFactory
from tests.support.log_sources import Logs
from tests.support.producing import Client

FIRST = ProducerSequence(7, 0, 0)
DAY_MS = 86_400_000


def producer_of(logs: Logs, *, wait: Any = "written", **settings: Any) -> Producer:
    """Return a producer on manual time."""
    return logs.clients().producer(wait=wait, **settings)


def send(producer: Producer, number: ProducerSequence, *values: bytes) -> SentRange:
    """Send records to partition 0, and return where they are."""
    sent = producer.send_many("orders", None, values, partition=0, number=number)
    producer.flush()
    (found,) = sent.result(0)
    return found


def failed(producer: Producer, number: ProducerSequence, *values: bytes) -> BaseException | None:
    """Send records to partition 0, and return their error."""
    sent = producer.send_many("orders", None, values, partition=0, number=number)
    producer.flush()
    return sent.exception(0)


def stored(log: Log) -> list[bytes | None]:
    """Return the values of a log."""
    return [each.value for each in log.records()]


@pytest.fixture
def managers(tmp_path: Path) -> Iterator[ManagerFactory]:
    """A factory of managers on a disk with faults."""
    with ManagerFactory(tmp_path) as made:
        yield made


def opened(managers: ManagerFactory, **config: str) -> LogManager:
    """Return a manager with `orders`, of one partition."""
    manager = managers.open()
    manager.create_topic("orders", 1, config)
    return manager


# ------------------------------------------------------------------------------------- numbers


def test_repeated_number_returns_the_first_offsets(logs: Logs) -> None:
    """The last five batches of a producer are answered; other records do not matter."""
    with producer_of(logs) as producer:
        numbers = [FIRST.after(2 * batch) for batch in range(5)]
        first = [send(producer, number, b"a", b"b") for number in numbers]
        producer.send("orders", b"other", partition=0)
        again = [send(producer, number, b"x", b"y") for number in numbers]
    assert [SentRange(0, 2 * batch, 2) for batch in range(5)] == first
    assert [each._replace(is_duplicate=True) for each in first] == again
    assert [b"a", b"b"] * 5 + [b"other"] == stored(logs.log("orders", 0))


def test_number_before_the_last_five_batches_is_a_duplicate_without_offsets(logs: Logs) -> None:
    """The error has Kafka's code of a duplicate: a Kafka client takes it for a success."""
    with producer_of(logs) as producer:
        for batch in range(6):
            send(producer, FIRST.after(2 * batch), b"a", b"b")
        old = failed(producer, FIRST, b"a", b"b")
        other_end = failed(producer, FIRST.after(1), b"a")
    assert [DuplicateSequenceError] * 2 == [type(old), type(other_end)]
    assert isinstance(old, DuplicateSequenceError)
    assert (46, 7) == (old.kafka_code, old.producer_id)
    assert 12 == logs.log("orders", 0).log_end_offset


def test_number_with_a_gap_or_an_overlap_is_out_of_order(logs: Logs) -> None:
    """Nothing of it is stored, and the next number is accepted."""
    with producer_of(logs) as producer:
        send(producer, FIRST, b"a", b"b")
        gap = failed(producer, FIRST.after(3), b"d")
        overlap = failed(producer, FIRST.after(1), b"b", b"c")
        assert [OutOfOrderSequenceError] * 2 == [type(gap), type(overlap)]
        assert SentRange(0, 2, 1) == send(producer, FIRST.after(2), b"c")
    assert [b"a", b"b", b"c"] == stored(logs.log("orders", 0))


def test_larger_epoch_fences_the_smaller_one(logs: Logs) -> None:
    """A client that begins again with the next epoch begins with sequence 0."""
    with producer_of(logs) as producer:
        send(producer, FIRST, b"a")
        late = failed(producer, ProducerSequence(7, 1, 1), b"b")
        assert SentRange(0, 1, 1) == send(producer, ProducerSequence(7, 1, 0), b"b")
        fenced = failed(producer, FIRST.after(1), b"c")
    assert isinstance(late, OutOfOrderSequenceError)
    assert isinstance(fenced, InvalidProducerEpochError)


def test_sequences_continue_at_0_after_the_largest(logs: Logs) -> None:
    """Also within a batch, and duplicates of it are found."""
    number = ProducerSequence(7, 0, 2**31 - 2)
    assert ProducerSequence(7, 0, 1) == number.after(3)
    with producer_of(logs) as producer:
        send(producer, number, b"a", b"b", b"c")
        send(producer, number.after(3), b"d")
        assert SentRange(0, 0, 3, True) == send(producer, number, b"a", b"b", b"c")
        assert SentRange(0, 3, 1, True) == send(producer, number.after(3), b"d")
        old = failed(producer, ProducerSequence(7, 0, 2**31 - 1), b"b")
    assert isinstance(old, DuplicateSequenceError)
    assert [b"a", b"b", b"c", b"d"] == stored(logs.log("orders", 0))


def test_numbered_batches_keep_their_place_among_other_records(logs: Logs) -> None:
    """A record before them is in an earlier batch; the partition's own numbers have no gap."""
    with producer_of(logs, linger_ms=1000) as producer:
        producer.send("orders", b"1", partition=0)
        producer.send_many("orders", None, [b"2", b"3"], partition=0, number=FIRST)
        producer.send("orders", b"4", partition=0)
        producer.send_many("orders", None, [b"2", b"3"], partition=0, number=FIRST)
        producer.send_many("orders", None, [b"5"], partition=0)
        producer.flush()
    log = logs.log("orders", 0)
    assert [b"1", b"2", b"3", b"4", b"5"] == stored(log)
    assert [3, 2] == sorted(each.last_sequence + 1 for each in log.list_producers())[::-1]


def test_numbered_records_are_one_batch(logs: Logs) -> None:
    """Also if they are larger than `batch.size`, and with keys of several partitions."""
    values = [b"v" * 100] * 50
    with producer_of(logs, batch_size=200, compression_type="zstd") as producer:
        keys: list[bytes | None] = [b"%d" % each for each in range(50)]
        sent = producer.send_many("orders", keys, values, partition=2, number=FIRST)
        producer.flush()
        assert [SentRange(2, 0, 50)] == sent.result(0)
        assert 0 == producer.pending_bytes
    assert [50] == [len(each.records()) for each in logs.log("orders", 2).batches()]


def test_numbers_count_for_each_partition(logs: Logs) -> None:
    """The same number in another partition is another batch."""
    with producer_of(logs) as producer:
        sent = [
            producer.send_many("orders", None, [b"v"], partition=each, number=FIRST)
            for each in (0, 1)
        ]
        producer.flush()
    assert [[SentRange(0, 0, 1)], [SentRange(1, 0, 1)]] == [each.result(0) for each in sent]


# ------------------------------------------------------------------------------------ refusals


def test_number_without_partition_is_refused(logs: Logs) -> None:
    """Sequences count in one partition; a key may select another one once there are more."""
    with producer_of(logs) as producer:
        with pytest.raises(ValueError, match="partition must be given"):
            producer.send_many("orders", [b"k"], [b"v"], number=FIRST)
        with pytest.raises(LookupError):
            producer.send_many("orders", None, [b"v"], partition=9, number=FIRST)
        assert [] == producer.send_many("orders", None, [], partition=0, number=FIRST).result(0)
        assert 0 == producer.pending_bytes


def test_number_in_a_transaction_is_refused(logs: Logs) -> None:
    """The transaction numbers its batches; the open one stays as it is."""
    with producer_of(logs, transactional_id="t") as producer, producer.transaction():
        with pytest.raises(ValueError, match=r"transactional\.id, got one for 't'"):
            producer.send_many("orders", None, [b"v"], partition=0, number=FIRST)
        producer.send("orders", b"w", partition=0)
    assert [b"w"] == stored(logs.log("orders", 0))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ((-1, 0, 0), "producer_id must be between 0 and 9223372036854775807, got -1"),
        ((2**63, 0, 0), "producer_id must be between"),
        ((0, 2**15, 0), "producer_epoch must be between 0 and 32767, got 32768"),
        ((0, 0, 2**31), "sequence must be between 0 and 2147483647, got 2147483648"),
    ],
)
def test_number_out_of_range_is_refused(fields: tuple[int, int, int], error: str) -> None:
    """By its constructor."""
    with pytest.raises(ValueError, match=error):
        ProducerSequence(*fields)


@pytest.mark.parametrize("field", [None, "1", 1.0])
def test_number_of_another_type_is_refused(field: Any) -> None:
    """By its constructor."""
    with pytest.raises(TypeError):
        ProducerSequence(7, 0, field)


def test_refused_records_leave_their_number_free(logs: Logs) -> None:
    """A corrected request may have the same number."""
    logs.create_topic("orders", 1, {"cleanup.policy": "compact", "max.message.bytes": "1000"})
    with producer_of(logs) as producer:
        no_key = failed(producer, FIRST, b"a", b"b")
        assert isinstance(no_key, RecordValidationError)
        sent = producer.send_many("orders", [b"k"], [b"v" * 2000], partition=0, number=FIRST)
        assert isinstance(sent.exception(0), RecordTooLargeError)
        assert [0] == sent.failed_rows
        sent = producer.send_many("orders", [b"k"], [b"v"], partition=0, number=FIRST)
        assert [SentRange(0, 0, 1)] == sent.result(0)
        assert 0 == producer.pending_bytes


def test_records_of_another_type_free_their_memory(logs: Logs) -> None:
    """A record that cannot be encoded ends the call."""
    broken: list[Any] = [b"a", 1]
    with producer_of(logs) as producer:
        with pytest.raises(TypeError):
            producer.send_many("orders", None, broken, partition=0, number=FIRST)
        assert 0 == producer.pending_bytes
        assert SentRange(0, 0, 1) == send(producer, FIRST, b"a")


def test_closed_producer_takes_no_numbered_records(logs: Logs) -> None:
    """As no others."""
    producer = producer_of(logs)
    send(producer, FIRST, b"a")
    producer.close()
    with pytest.raises(ClientClosedError):
        producer.send_many("orders", None, [b"a"], partition=0, number=FIRST)


def test_number_of_a_producer_with_an_open_transaction_is_refused(logs: Logs) -> None:
    """The transaction stays open, for its coordinator."""
    client, log = Client(7), logs.log("orders", 0)
    client.send(log, transactional=True)
    with producer_of(logs) as producer:
        assert isinstance(failed(producer, FIRST.after(1), b"v"), InvalidTxnStateError)
        assert SentRange(0, 1, 1) == send(producer, ProducerSequence(8, 0, 0), b"w")
    client.end(log, "commit")
    assert [0, 1] == [each.offset for each in log.records(isolation="read_committed")]


def test_number_equals_that_of_an_encoded_batch(logs: Logs) -> None:
    """A server that appends a client's batch and a program that sends it have one state."""
    client, log = Client(7), logs.log("orders", 0)
    batch = client.batch(2)
    log.append_batches(batch, origin=AppendOrigin.CLIENT)
    with producer_of(logs) as producer:
        assert SentRange(0, 0, 2, True) == send(producer, FIRST, b"a", b"b")
        send(producer, FIRST.after(2), b"c")
    info = client.send(log)
    assert (True, 2) == (info.is_duplicate, info.first_offset)


# ------------------------------------------------------------------------------------ durability


def test_durable_duplicate_of_an_unsynced_batch_survives_a_power_cut(
    managers: ManagerFactory,
) -> None:
    """The first answer promised "written", that to the duplicate promises more."""
    manager = opened(managers)
    with manager.producer() as first:
        send(first, FIRST, b"a")
    log = manager.log("orders")
    assert 0 == log.durable_offset
    with manager.producer(wait="durable") as second:
        assert SentRange(0, 0, 1, True) == send(second, FIRST, b"a")
    assert 1 == log.durable_offset
    managers.cut_power()
    assert [b"a"] == stored(managers.reopen(manager).log("orders"))


def test_durable_duplicate_of_an_unsynced_encoded_batch_survives_a_power_cut(
    managers: ManagerFactory,
) -> None:
    """The same of an append to a log."""
    manager = opened(managers)
    batch = Client(7).batch()
    manager.log("orders").append_batches(batch, origin=AppendOrigin.CLIENT)
    info = manager.log("orders").append_batches(batch, origin=AppendOrigin.CLIENT, wait="durable")
    assert info.is_duplicate
    managers.cut_power()
    assert 1 == managers.reopen(manager).log("orders").log_end_offset


def test_batch_that_a_power_cut_took_is_stored_when_it_is_sent_again(
    managers: ManagerFactory,
) -> None:
    """It was "written" alone; a later number is a gap, which shows the client the loss."""
    manager = opened(managers)
    with manager.producer(wait="durable") as producer:
        send(producer, FIRST, b"a")
    with manager.producer() as producer:
        send(producer, FIRST.after(1), b"b")
        managers.cut_power()
    manager = managers.reopen(manager)
    with manager.producer() as producer:
        assert isinstance(failed(producer, FIRST.after(2), b"c"), OutOfOrderSequenceError)
        assert SentRange(0, 1, 1) == send(producer, FIRST.after(1), b"b")


def test_durable_batch_of_a_failed_sync_is_not_stored_twice(managers: ManagerFactory) -> None:
    """The client has an error, and its retry after the recovery has the offsets."""
    manager = opened(managers)
    with manager.producer(wait="durable") as producer:
        send(producer, FIRST, b"a")
        managers.faults.fail_next_sync("orders")
        assert isinstance(failed(producer, FIRST.after(1), b"b"), LogStorageError)
        retry = failed(producer, FIRST.after(1), b"b")
        assert retry is None or isinstance(retry, LogOfflineError)
    manager = managers.reopen(manager)
    with manager.producer(wait="durable") as producer:
        assert SentRange(0, 1, 1, True) == send(producer, FIRST.after(1), b"b")
    assert [b"a", b"b"] == stored(manager.log("orders"))


@pytest.mark.parametrize("end", ["close", "kill", "cut"])
@pytest.mark.parametrize("left_bytes", [0, 1000, 3000])
def test_number_is_recognized_after_a_restart(
    managers: ManagerFactory, end: str, left_bytes: int
) -> None:
    """The last batch of each producer is, after segments were deleted with it as well."""
    config = {"segment.bytes": "1000", "retention.bytes": str(left_bytes)}
    manager = opened(managers, **config)
    with manager.producer(wait="durable") as producer:
        send(producer, FIRST, b"a", b"b")
        for other in range(40):
            send(producer, ProducerSequence(8, 0, other), b"x" * 100)
    manager.log("orders").apply_retention()
    # The flush after a roll, which syncs the state of the producers.
    managers.time.advance(0)
    if end == "kill":
        managers.kill(manager)
    elif end == "cut":
        managers.cut_power()
    manager = managers.reopen(manager)
    assert manager.log("orders").log_start_offset >= 2
    with manager.producer() as producer:
        assert SentRange(0, 0, 2, True) == send(producer, FIRST, b"a", b"b")
        assert SentRange(0, 42, 1) == send(producer, FIRST.after(2), b"c")


def test_older_number_after_a_restart_is_never_stored_again(managers: ManagerFactory) -> None:
    """Its offsets may be unknown: the files have the last batch of each producer alone."""
    manager = opened(managers)
    with manager.producer() as producer:
        for batch in range(5):
            send(producer, FIRST.after(batch), b"%d" % batch)
    manager = managers.reopen(manager)
    with manager.producer() as producer:
        for batch in range(4):
            assert isinstance(failed(producer, FIRST.after(batch), b"x"), DuplicateSequenceError)
        assert SentRange(0, 4, 1, True) == send(producer, FIRST.after(4), b"4")
    assert 5 == manager.log("orders").log_end_offset


def test_numbers_wait_for_space_on_a_full_disk_in_order(managers: ManagerFactory) -> None:
    """A retry in the meantime waits after the first, and has its offsets."""
    manager = opened(managers)
    manager.log("orders")
    with manager.producer(wait="durable", retry_backoff_ms=10) as producer:
        with managers.faults.full_disk():
            sent = [
                producer.send_many("orders", None, [b"v"], partition=0, number=number)
                for number in (FIRST, FIRST.after(1), FIRST)
            ]
            assert not any(each.done() for each in sent)
        managers.time.advance(100)
        producer.flush()
        expected = [SentRange(0, 0, 1), SentRange(0, 1, 1), SentRange(0, 0, 1, True)]
        assert expected == [each.result(0)[0] for each in sent]
        assert 0 == producer.pending_bytes


def test_number_that_does_not_fit_the_disk_stays_free(managers: ManagerFactory) -> None:
    """With on_full="raise" the next number is a gap, until the first is sent again."""
    manager = opened(managers)
    manager.log("orders")
    with manager.producer(on_full="raise") as producer:
        with managers.faults.full_disk():
            assert isinstance(failed(producer, FIRST, b"a"), DiskFullError)
        assert SentRange(0, 0, 1) == send(producer, FIRST, b"a")


# ------------------------------------------------------------------------- changes of the log


def test_number_of_a_truncated_batch_is_stored_again(logs: Logs) -> None:
    """The state of the producer goes back with the log."""
    with producer_of(logs) as producer:
        for batch in range(4):
            send(producer, FIRST.after(batch), b"%d" % batch)
        logs.log("orders", 0).truncate_to(2)
        assert SentRange(0, 1, 1, True) == send(producer, FIRST.after(1), b"1")
        assert isinstance(failed(producer, FIRST.after(3), b"3"), OutOfOrderSequenceError)
        assert SentRange(0, 2, 1) == send(producer, FIRST.after(2), b"2")


def test_number_of_a_compacted_batch_is_recognized(managers: ManagerFactory) -> None:
    """Also after a kill: the header of the last batch of a producer stays in the log."""
    manager = opened(managers, **{"cleanup.policy": "compact"})
    with manager.producer() as producer:
        producer.send_many("orders", [b"k"], [b"old"], partition=0, number=FIRST)
        producer.send("orders", b"new", key=b"k", partition=0)
        producer.flush()
    result = manager.compact("orders", include_active=True)
    assert result.is_complete
    assert [b"new"] == stored(manager.log("orders"))
    managers.kill(manager)
    manager = managers.reopen(manager)
    with manager.producer() as producer:
        sent = producer.send_many("orders", [b"k"], [b"old"], partition=0, number=FIRST)
        producer.flush()
        assert [SentRange(0, 0, 1, True)] == sent.result(0)
    assert [b"new"] == stored(manager.log("orders"))


def test_number_of_an_expired_producer_is_stored_again(tmp_path: Path) -> None:
    """`producer.id.expiration.ms` after the last record of the producer its state is removed."""
    config = ManagerConfig.from_properties({"producer.id.expiration.ms": str(2 * DAY_MS)})
    with ManagerFactory(tmp_path, config=config) as managers:
        manager = opened(managers)
        with manager.producer() as producer:
            send(producer, FIRST, b"a")
            managers.time.advance(DAY_MS)
            assert send(producer, FIRST, b"a").is_duplicate
            managers.time.advance(DAY_MS + 600_000)
            assert SentRange(0, 1, 1) == send(producer, FIRST, b"a")


# ------------------------------------------------------------------- interruptions and threads


def interrupt_at(number: int) -> Callable[[], bool]:
    """Raise KeyboardInterrupt at a call within `add_numbered`, as a signal; return what ends it."""
    left, is_within = number, False

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal left, is_within
        if frame.f_code.co_name == "add_numbered" and event in ("call", "return"):
            is_within = event == "call"
        elif is_within and event in ("call", "c_return"):
            left -= 1
            if left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def end() -> bool:
        sys.setprofile(None)
        return left <= 0

    sys.setprofile(profile)
    return end


def test_interrupted_call_is_stored_once_after_its_retry(logs: Logs) -> None:
    """Wherever a signal may arrive; no memory stays reserved, and `flush` does not wait."""
    producer, is_interrupted, calls = producer_of(logs), True, 0
    while is_interrupted:
        calls += 1
        number = ProducerSequence(7, 0, 2 * calls)
        end = interrupt_at(calls)
        with suppress(KeyboardInterrupt):
            producer.send_many("orders", None, [b"a", b"b"], partition=0, number=number)
        is_interrupted = end()
        assert 2 * calls - 2 == send(producer, number, b"a", b"b").first_offset
        assert 0 == producer.pending_bytes
    assert 10 < calls < 200
    assert 2 * calls == logs.log("orders", 0).log_end_offset
    producer.close()


def test_forked_child_refuses_numbered_records(logs: Logs) -> None:
    """Its parent delivers them, once."""
    producer = producer_of(logs, linger_ms=1000)
    sent = producer.send_many("orders", None, [b"a"], partition=0, number=FIRST)
    child = os.fork()
    if not child:
        try:
            producer.send_many("orders", None, [b"a"], partition=0, number=FIRST)
        except ForkedLogError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert [SentRange(0, 0, 1)] == sent.result(0)
    producer.close()


@pytest.mark.parametrize("wait", ["written", "durable"])
def test_requests_of_many_threads_are_stored_once(tmp_path: Path, wait: Any) -> None:
    """Each request is sent by two threads at the same time; both have the same offsets."""
    with LogManager([tmp_path]) as manager:
        manager.create_topic("orders", 2)
        with manager.producer(wait=wait, linger_ms=0) as producer:

            def work(client: int) -> list[SentRange]:
                number, found = ProducerSequence.of_name(f"client {client}"), []
                for request in range(30):
                    values = [b"%d %d %d" % (client, request, record) for record in range(3)]
                    both = threading.Barrier(2)

                    def once(number: ProducerSequence = number) -> SentRange:
                        both.wait()  # noqa: B023 - both run before the next request
                        sent = producer.send_many(
                            "orders",
                            None,
                            values,  # noqa: B023
                            partition=client % 2,
                            number=number,
                        )
                        return sent.result(60)[0]

                    first, second = [each.result() for each in [twins.submit(once) for _ in "12"]]
                    assert {False, True} == {first.is_duplicate, second.is_duplicate}
                    assert first[:3] == second[:3]
                    found.append(first)
                    number = number.after(3)
                return found

            with ThreadPoolExecutor(12) as twins, ThreadPoolExecutor(6) as clients:
                ranges = list(clients.map(work, range(6)))
        for client, found in enumerate(ranges):
            log = manager.log("orders", client % 2)
            for request, each in enumerate(found):
                values = [b"%d %d %d" % (client, request, record) for record in range(3)]
                start = each.first_offset
                assert values == [one.value for one in log.records(start, start + 3)]
        assert 6 * 30 * 3 == sum(manager.log("orders", each).log_end_offset for each in (0, 1))


# ------------------------------------------------------------------------------------------ ids


def test_id_of_a_name_is_the_same_in_every_process() -> None:
    """A fixed function of the name, below the ids that kafkalog draws."""
    number = ProducerSequence.of_name("client 7", producer_epoch=2, sequence=5)
    assert ProducerSequence(number.producer_id, 2, 5) == number
    assert 460352137286099800 == ProducerSequence.of_name("client 7").producer_id
    ids = {ProducerSequence.of_name(f"client {each}").producer_id for each in range(1000)}
    assert len(ids) == 1000
    assert max(ids) < 2**60


def test_drawn_ids_are_above_those_of_callers(tmp_path: Path) -> None:
    """All ids: of a manager for clients, of its producers, and of transactions."""
    assert all(2**61 <= draw_producer_id(Random(seed)) < 2**62 for seed in range(100))
    with LogManager([tmp_path]) as manager:
        manager.create_topic("orders")
        drawn = {manager.new_producer_id() for _ in range(100)}
        with manager.producer() as producer:
            producer.send("orders", b"v")
        with manager.producer(transactional_id="t") as producer, producer.transaction():
            producer.send("orders", b"v")
        drawn |= {each.producer_id for each in manager.log("orders").list_producers()}
    assert len(drawn) == 102
    assert all(2**61 <= each < 2**62 for each in drawn)


def test_unknown_topic_is_refused(tmp_path: Path) -> None:
    """As for records without a number."""
    with LogManager([tmp_path]) as manager, manager.producer() as producer:
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.send_many("none", None, [b"v"], partition=0, number=FIRST)
        assert 0 == producer.pending_bytes
