"""Tests of `Producer`: partitions, batches, timestamps, memory, futures, and disk errors."""

from __future__ import annotations

import asyncio
import base64
import errno
import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkalog import LogManager
from kafkalog._core.murmur2 import partition_of
from kafkalog.clients.config import ProducerConfig
from kafkalog.clients.producer import DeliveryRules, Producer
from kafkalog.errors import (
    BufferExhaustedError,
    ClientClosedError,
    ConfigError,
    DeliveryTimeoutError,
    DiskFullError,
    InvalidRecordError,
    InvalidTxnStateError,
    LogStorageError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    RecordValidationError,
    TransactionAbortedError,
    UnsupportedForMessageFormatError,
)
from kafkalog.log.record_appender import Wait
from tests.support import golden
from tests.support.log_sources import Logs
from tests.support.loops import eventually
from tests.support.manual_time import START_MS
from tests.support.simulated_disk import SimulatedDisk

# More than fits into the sector that was written last.
FIRST = b"first" + bytes(600)
TRANSACTIONAL = {"transactional_id": "t"}


def producer_of(logs: Logs, *, wait: Any = "written", **settings: Any) -> Producer:
    """Return a producer on manual time."""
    return logs.clients().producer(wait=wait, **settings)


def values_of(logs: Logs, partition: int, topic: str = "orders") -> list[bytes | None]:
    """Return the values in a partition."""
    return [record.value for record in logs.log(topic, partition).records()]


def test_send_with_a_key_uses_kafkas_partitioner(logs: Logs) -> None:
    """For every key of Kafka's list."""
    logs.create_topic("dozen", 12)
    with producer_of(logs) as producer:
        cases = golden.vectors("murmur2")["keys"]
        sent = [producer.send("dozen", b"", key=base64.b64decode(each["key"])) for each in cases]
        producer.flush()
    assert [each["partition"]["12"] for each in cases] == [each.result().partition for each in sent]


def test_send_without_a_key_keeps_a_partition_for_a_batch(logs: Logs) -> None:
    """After a batch another partition is drawn; all get a share."""
    with producer_of(logs, batch_size=1000) as producer:
        sent = [producer.send("orders", bytes(92)) for _ in range(300)]
        producer.flush()
    partitions = [each.result().partition for each in sent]
    assert all(len(set(partitions[start : start + 10])) == 1 for start in range(0, 300, 10))
    assert {0, 1, 2} == set(partitions)


def test_producer_syncs_where_no_thread_starts(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the interpreter, when `atexit` closes a manager."""
    producer = logs.clients(scheduler=None).producer(wait="durable", linger_ms=60_000)
    sent = producer.send("orders", b"v", partition=0)

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        producer.close()
    assert sent.result(0).offset == 0
    assert logs.log("orders", 0).durable_offset == 1
    assert producer.pending_bytes == 0


def test_send_counts_the_bytes_of_header_names(logs: Logs) -> None:
    """Not their characters: a batch that is too large would be refused, with all its records."""
    logs.create_topic("small", 1, {"max.message.bytes": "2000"})
    with producer_of(logs, linger_ms=1000) as producer:
        headers = [("\u65e5" * 30, b"")] * 3
        sent = [producer.send("small", b"v", headers=headers) for _ in range(40)]
        producer.flush()
    assert list(range(40)) == [each.result(0).offset for each in sent]


def test_send_to_a_given_partition_ignores_the_key(logs: Logs) -> None:
    """The key is only stored."""
    with producer_of(logs, partitioner_ignore_keys=True) as producer:
        sent = [producer.send("orders", b"v", key=b"k", partition=number) for number in (2, 0, 1)]
        producer.send("orders", b"w", key=b"k")
        producer.flush()
    assert [2, 0, 1] == [each.result().partition for each in sent]


@pytest.mark.parametrize("partition", [-1, 3, 1000])
def test_send_to_a_missing_partition_raises(logs: Logs, partition: int) -> None:
    """The error of the log source is passed on."""
    with producer_of(logs) as producer:
        with pytest.raises(LookupError):
            producer.send("orders", b"v", partition=partition)
        with pytest.raises(LookupError):
            producer.send("nothing", b"v")


def test_send_keeps_key_value_headers_and_timestamp(logs: Logs) -> None:
    """Records without a timestamp get that of the clock."""
    with producer_of(logs) as producer:
        producer.send("orders", None, key=b"", headers=[("a", b"1"), ("b", None)], partition=0)
        producer.send("orders", b"v", timestamp_ms=17, partition=0)
    first, second = logs.log("orders", 0).records()
    assert (b"", None, (("a", b"1"), ("b", None)), START_MS) == (
        first.key,
        first.value,
        first.headers,
        first.timestamp_ms,
    )
    assert second.timestamp_ms == 17


def test_send_with_linger_writes_one_batch(logs: Logs) -> None:
    """Nothing is written before `linger.ms`; then all records, as one batch."""
    producer = producer_of(logs, linger_ms=20)
    sent = [producer.send("orders", b"%d" % number, partition=0) for number in range(5)]
    logs.scheduler.advance(19)
    assert logs.log("orders", 0).log_end_offset == 0
    logs.scheduler.advance(1)
    assert [0, 1, 2, 3, 4] == [each.result(0).offset for each in sent]
    assert len(list(logs.log("orders", 0).batches())) == 1
    later = producer.send("orders", b"later", partition=0)
    logs.scheduler.advance(20)
    assert later.result(0).offset == 5
    producer.close()


def test_write_batches_writes_before_linger_is_over(logs: Logs) -> None:
    """The open batch of each partition, once; later batches keep their time."""
    producer = producer_of(logs, linger_ms=20)
    sent = [producer.send("orders", b"v", partition=number % 3) for number in range(6)]
    calls: list[int] = []
    producer.write_batches(lambda: calls.append(1))
    assert ([True] * 6, 3) == ([each.done() for each in sent], len(calls))
    producer.write_batches()
    logs.scheduler.advance(10)
    later = producer.send("orders", b"later", partition=0)
    logs.scheduler.advance(19)
    assert not later.done()
    logs.scheduler.advance(1)
    assert later.result(0).offset == 2
    producer.close()


def test_send_filling_a_batch_writes_at_once(logs: Logs) -> None:
    """In the sending thread; no batch is above `batch.size`."""
    producer = producer_of(logs, linger_ms=1000, batch_size=1000)
    sent = [producer.send("orders", bytes(100), partition=0) for _ in range(25)]
    assert sent[0].done()
    assert not sent[-1].done()
    assert producer.flush() == 0
    sizes = [batch.header.size_bytes for batch in logs.log("orders", 0).batches()]
    assert sum(batch.header.record_count for batch in logs.log("orders", 0).batches()) == 25
    assert max(sizes) <= 1000
    assert min(sizes[:-1]) > 800
    producer.close()


def test_send_of_a_large_record_has_its_own_batch(logs: Logs) -> None:
    """It fails alone if the log refuses it."""
    logs.create_topic("small", 1, {"max.message.bytes": "3000"})
    with producer_of(logs, batch_size=2000, linger_ms=50) as producer:
        first = producer.send("small", b"first")
        large = producer.send("small", bytes(2500))
        refused = producer.send("small", bytes(5000))
        last = producer.send("small", b"last")
    assert [0, 1, 2] == [each.result().offset for each in (first, large, last)]
    with pytest.raises(RecordTooLargeError):
        refused.result()
    assert [1, 1, 1] == [each.header.record_count for each in logs.log("small", 0).batches()]


def test_send_of_an_invalid_record_raises_at_once(logs: Logs) -> None:
    """The batch continues without it."""
    with producer_of(logs) as producer:
        sent = [producer.send("orders", b"a", partition=0)]
        with pytest.raises(TypeError):
            producer.send("orders", "text", partition=0)  # type: ignore[arg-type]
        with pytest.raises(InvalidRecordError):
            producer.send("orders", b"v", timestamp_ms=-2, partition=0)
        with pytest.raises(InvalidRecordError):
            producer.send("orders", b"v", timestamp_ms=-2, partition=1)
        sent.append(producer.send("orders", b"b", partition=0))
    assert [0, 1] == [each.result().offset for each in sent]
    assert producer.pending_bytes == 0


def test_send_of_refused_records_keeps_the_others(logs: Logs) -> None:
    """In a compacted topic each record without a key has its error, the others are written."""
    logs.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    with producer_of(logs) as producer:
        sent = [
            producer.send("compacted", b"%d" % number, key=None if number % 3 == 1 else b"k")
            for number in range(10)
        ]
        called: list[object] = []
        sent[9].add_done_callback(called.append)
    refused = [number for number, each in enumerate(sent) if each.exception() is not None]
    assert refused == [1, 4, 7]
    for number in refused:
        with pytest.raises(RecordValidationError, match="compacted-0: "):
            sent[number].result()
    kept = [each for number, each in enumerate(sent) if number not in refused]
    assert list(range(7)) == [each.result().offset for each in kept]
    assert [b"0", b"2", b"3", b"5", b"6", b"8", b"9"] == values_of(logs, 0, "compacted")
    assert called == [sent[9]]


def test_send_of_refused_records_only_writes_nothing(logs: Logs) -> None:
    """All of them have an error, and the sequence numbers are not used."""
    logs.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    with producer_of(logs) as producer:
        sent = [producer.send("compacted", b"v") for _ in range(3)]
        producer.flush()
        good = producer.send("compacted", b"v", key=b"k")
    assert all(isinstance(each.exception(), RecordValidationError) for each in sent)
    assert good.result().offset == 0


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_send_with_compression_uses_the_codec_of_the_producer(logs: Logs, codec: str) -> None:
    """If the topic does not set another one."""
    with producer_of(logs, compression_type=codec) as producer:
        for _ in range(50):
            producer.send("orders", b"the same again ", partition=0)
    (batch,) = logs.log("orders", 0).batches()
    assert codec == batch.codec.kafka_name
    assert [b"the same again "] * 50 == values_of(logs, 0)


def test_send_numbers_batches_for_each_partition(logs: Logs) -> None:
    """Idempotent by default: a producer id, and sequences without a gap."""
    with producer_of(logs) as producer:
        for number in range(12):
            producer.send("orders", b"v", partition=number % 2)
            if number % 4 == 3:
                producer.flush()
    for partition in (0, 1):
        headers = [batch.header for batch in logs.log("orders", partition).batches()]
        assert [0, 2, 4] == [each.base_sequence for each in headers]
        assert len({each.producer_id for each in headers}) == 1
        assert headers[0].producer_id >= 0


def test_send_without_idempotence_has_no_sequences(logs: Logs) -> None:
    """Logs of old formats accept nothing else."""
    logs.create_topic("old", 1, {"message.format.version": "0.10.0"})
    with producer_of(logs) as producer:
        refused = producer.send("old", b"v")
    with pytest.raises(UnsupportedForMessageFormatError):
        refused.result()
    with producer_of(logs, enable_idempotence=False) as producer:
        taken = producer.send("old", b"v")
        plain = producer.send("orders", b"v", partition=0)
    assert taken.result().offset == 0
    assert plain.result().offset == 0
    (batch,) = logs.log("orders", 0).batches()
    assert batch.header.producer_id == -1


def test_send_after_truncation_resumes_with_another_id(logs: Logs) -> None:
    """The truncated log does not know the last batches; nothing is refused."""
    with producer_of(logs) as producer:
        for _ in range(3):
            producer.send("orders", b"v", partition=0)
            producer.flush()
        logs.log("orders", 0).truncate_to(1)
        sent = producer.send("orders", b"w", partition=0)
        producer.flush()
    assert sent.result().offset == 1
    first, second = [batch.header for batch in logs.log("orders", 0).batches()]
    assert first.producer_id != second.producer_id
    assert second.base_sequence == 0


def test_send_durable_syncs_once_for_all_batches(tmp_path: Path) -> None:
    """Futures complete after the sync of all written batches."""
    disk = SimulatedDisk()
    disk.make_durable(Path("/data"))
    logs = Logs(Path("/data"), filesystem=disk)
    logs.create_topic("orders", 1)
    producer = producer_of(logs, wait="durable", batch_size=500)
    sent = [producer.send("orders", bytes(100)) for _ in range(20)]
    log = logs.log("orders", 0)
    assert log.log_end_offset > 10
    assert not any(each.done() for each in sent)
    logs.scheduler.run_due()
    done = [each for each in sent if each.done()]
    assert len(done) == log.durable_offset == log.log_end_offset
    assert producer.flush() == 0
    assert log.durable_offset == 20
    producer.close()
    logs.close()


def test_send_to_a_full_disk_resumes_when_space_is_free() -> None:
    """The batches wait; then they are written in order, once."""
    disk = SimulatedDisk()
    disk.make_durable(Path("/data"))
    logs = Logs(Path("/data"), filesystem=disk)
    logs.create_topic("orders", 1)
    producer = producer_of(logs, retry_backoff_ms=100)
    producer.send("orders", b"before")
    assert producer.flush(0) == 0
    disk.capacity_bytes = 0
    sent = [producer.send("orders", FIRST)]
    assert producer.flush(0) == 1
    sent.append(producer.send("orders", b"second"))
    logs.scheduler.advance(1000)
    assert [False, False] == [each.done() for each in sent]
    disk.capacity_bytes = None
    logs.scheduler.advance(100)
    assert [1, 2] == [each.result(0).offset for each in sent]
    producer.close()
    assert [b"before", FIRST, b"second"] == values_of(logs, 0)
    logs.close()


def test_send_to_a_full_disk_with_raise_fails_at_once() -> None:
    """SRV-5: nothing waits, no number is used up, and the next record is written."""
    disk = SimulatedDisk()
    disk.make_durable(Path("/data"))
    logs = Logs(Path("/data"), filesystem=disk)
    logs.create_topic("orders", 1)
    producer = logs.clients().producer(on_full="raise", linger_ms=0)
    producer.send("orders", b"before")
    assert producer.flush(0) == 0
    disk.capacity_bytes = 0
    sent = [producer.send("orders", FIRST), producer.send("orders", FIRST)]
    assert producer.flush(0) == 0
    for each in sent:
        assert isinstance(each.exception(0), DiskFullError)
    assert producer.pending_bytes == 0
    disk.capacity_bytes = None
    later = producer.send("orders", b"later")
    assert producer.flush(0) == 0
    assert later.result(0).offset == 1
    producer.close()
    assert values_of(logs, 0) == [b"before", b"later"]
    (stored,) = logs.log("orders", 0).list_producers()
    assert stored.last_sequence == 1
    logs.close()


def test_producer_with_an_unknown_on_full_raises(logs: Logs) -> None:
    """The message has the choices."""
    with pytest.raises(ValueError, match='on_full must be "wait" or "raise", got \'drop\''):
        logs.clients().producer(on_full="drop")  # type: ignore[arg-type]


def test_send_to_a_disk_that_stays_full_fails() -> None:
    """After `delivery.timeout.ms`, with the disk's error; later records are written."""
    disk = SimulatedDisk()
    disk.make_durable(Path("/data"))
    logs = Logs(Path("/data"), filesystem=disk)
    logs.create_topic("orders", 1)
    producer = producer_of(logs, delivery_timeout_ms=500)
    logs.log("orders", 0)
    disk.capacity_bytes = 0
    sent = producer.send("orders", b"first")
    logs.scheduler.advance(1000)
    with pytest.raises(DeliveryTimeoutError, match=r"delivery\.timeout\.ms = 500") as caught:
        sent.result(0)
    assert isinstance(caught.value.__cause__, DiskFullError)
    disk.capacity_bytes = None
    later = producer.send("orders", b"later")
    producer.close()
    assert later.result().offset == 0
    logs.close()


def test_send_with_full_memory_raises(tmp_path: Path) -> None:
    """No record above the limit is accepted; with free memory sending works again."""
    disk = SimulatedDisk()
    disk.make_durable(Path("/data"))
    logs = Logs(Path("/data"), filesystem=disk)
    logs.create_topic("orders", 1)
    producer = producer_of(logs, batch_size=1000, buffer_memory=2500, max_block_ms=0)
    logs.log("orders", 0)
    disk.capacity_bytes = 0
    sent = []
    with pytest.raises(BufferExhaustedError, match=r"buffer\.memory = 2500 was full for"):
        for _ in range(100):
            sent.append(producer.send("orders", bytes(400)))  # noqa: PERF401
    assert len(sent) == 4
    disk.capacity_bytes = None
    sent.append(producer.send("orders", bytes(400)))
    producer.close()
    assert list(range(5)) == [each.result().offset for each in sent]
    logs.close()


def test_send_waiting_for_memory_is_woken(logs: Logs) -> None:
    """A delivered batch of another thread frees memory."""
    producer = producer_of(logs, wait="durable", batch_size=1000, buffer_memory=1000)
    first = producer.send("orders", bytes(900), partition=0)
    begun = threading.Event()
    sent: list[Any] = []

    def send() -> None:
        begun.set()
        sent.append(producer.send("orders", bytes(900), partition=1))

    thread = threading.Thread(target=send)
    thread.start()
    begun.wait()
    while thread.is_alive():
        logs.scheduler.run_due()
        thread.join(0.001)
    producer.close()
    assert first.result().offset == 0
    assert sent[0].result().offset == 0


def test_send_by_many_threads_loses_nothing(logs: Logs) -> None:
    """The records of each thread are all there, in its order."""
    producer = producer_of(logs, batch_size=700)

    def send(thread: int) -> None:
        for number in range(200):
            producer.send("orders", b"%d %d" % (thread, number), key=b"%d" % (number % 7))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.close()
    found = [[value or b"" for value in values_of(logs, number)] for number in range(3)]
    sent = sorted(b"%d %d" % (t, n) for t in range(4) for n in range(200))
    assert sent == sorted(value for values in found for value in values)
    for values in found:
        for mine in range(4):
            order = [int(each.split()[1]) for each in values if each.startswith(b"%d " % mine)]
            assert order == sorted(order)
    assert producer.pending_bytes == 0


def test_send_from_a_callback_is_accepted(logs: Logs) -> None:
    """Callbacks run without any lock."""
    with producer_of(logs) as producer:
        more: list[Any] = []
        first = producer.send("orders", b"v", partition=0)
        first.add_done_callback(
            lambda _done: more.append(producer.send("orders", b"w", partition=0))
        )
        producer.flush()
    assert more[0].result().offset == 1


def test_send_after_close_raises(logs: Logs) -> None:
    """Closing twice is fine, sending is not."""
    producer = producer_of(logs)
    producer.close()
    producer.close()
    with pytest.raises(ClientClosedError):
        producer.send("orders", b"v")
    assert "closed" in repr(producer)


def test_close_drops_undelivered_batches_after_its_timeout() -> None:
    """No thread waits for ever."""
    disk = SimulatedDisk()
    disk.make_durable(Path("/data"))
    logs = Logs(Path("/data"), filesystem=disk)
    logs.create_topic("orders", 1)
    producer = producer_of(logs)
    logs.log("orders", 0)
    disk.capacity_bytes = 0
    sent = producer.send("orders", b"v")
    producer.close(0)
    with pytest.raises(ClientClosedError, match="was not delivered"):
        sent.result(0)
    disk.capacity_bytes = None
    logs.close()


def test_failed_sync_is_reported_and_sequences_are_not_reused() -> None:
    """The batches may or may not be on the disk."""
    disk = SimulatedDisk()
    disk.make_durable(Path("/data"))
    logs = Logs(Path("/data"), filesystem=disk)
    logs.create_topic("orders", 1)
    producer = producer_of(logs, wait="durable")
    producer.send("orders", b"before")
    producer.flush()
    disk.fail_at(1, errno.EIO, only=frozenset({"sync"}))
    lost = producer.send("orders", b"in doubt")
    producer.flush()
    with pytest.raises(LogStorageError):
        lost.result(0)
    disk.clear_faults()
    logs.close()
    again = producer.send("orders", b"again")
    producer.flush()
    offset = again.result(0).offset
    assert values_of(logs, 0)[offset] == b"again"
    producer.close()
    logs.close()


def test_producer_invalid_settings_raise(logs: Logs) -> None:
    """Unknown names, values out of range, and contradictory settings."""
    with pytest.raises(ConfigError, match="did you mean linger_ms"):
        producer_of(logs, linger=3)
    with pytest.raises(ConfigError, match=r"batch\.size = 0"):
        producer_of(logs, batch_size=0)
    with pytest.raises(ConfigError, match=r"must not be above buffer\.memory"):
        producer_of(logs, batch_size=1000, buffer_memory=999)
    with pytest.raises(ConfigError, match="needs idempotence"):
        producer_of(logs, enable_idempotence=False, **TRANSACTIONAL)
    with pytest.raises(ValueError, match='wait must be "written" or "durable"'):
        producer_of(logs, wait="soon")
    assert ProducerConfig(linger_ms=3) == ProducerConfig().replace(linger_ms=3)


def test_producer_without_a_transactional_id_has_no_transactions(logs: Logs) -> None:
    """Neither begin nor end."""
    with producer_of(logs) as producer:
        actions: list[Callable[[], object]] = [
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
        ]
        for action in actions:
            with pytest.raises(InvalidTxnStateError, match=r"without a transactional\.id"):
                action()


def test_producer_finds_added_partitions(logs: Logs) -> None:
    """By number at once; for keys after `metadata.max.age.ms`."""
    with producer_of(logs, metadata_max_age_ms=1000) as producer:
        key = next(b"%d" % n for n in range(100) if partition_of(b"%d" % n, 5) == 4)
        before = producer.send("orders", b"v", key=key)
        logs.take("orders", 3, 4)
        same = producer.send("orders", b"v", key=key)
        producer.flush()
        assert before.result().partition == same.result().partition == partition_of(key, 3)
        logs.clock.advance(1000)
        producer.send("orders", b"v", partition=0)
        producer.flush()
        moved = producer.send("orders", b"v", key=key)
        producer.flush()
        assert moved.result().partition == 4
        assert producer.partitions_for("orders") == (0, 1, 2, 3, 4)
        logs.take("orders", 5)
        named = producer.send("orders", b"v", partition=5)
        producer.flush()
        assert named.result().partition == 5


def test_producer_with_its_own_thread_delivers(logs: Logs) -> None:
    """Without a scheduler, a thread writes lingering batches and syncs."""
    rules = DeliveryRules(wait="durable")
    with Producer(logs, ProducerConfig(linger_ms=1), rules=rules, random=Random(1)) as producer:
        assert producer.send("orders", b"v", partition=0).result(60).offset == 0
        assert producer.partitions_for("orders") == (0, 1, 2)
    assert [b"v"] == values_of(logs, 0)


def test_batch_of_a_transaction_in_a_truncated_log_is_refused(logs: Logs) -> None:
    """The other batches of the transaction are gone."""
    with producer_of(logs, **TRANSACTIONAL) as producer:
        producer.begin_transaction()
        producer.send("orders", b"v", partition=0)
        producer.send("orders", b"v", partition=1)
        producer.flush()
        producer.send("orders", b"v", partition=0)
        producer.flush()
        logs.log("orders", 0).truncate_to(1)
        lost = producer.send("orders", b"w", partition=0)
        with pytest.raises(TransactionAbortedError):
            producer.commit_transaction()
        assert isinstance(lost.exception(0), OutOfOrderSequenceError)
        producer.abort_transaction()


@pytest.mark.parametrize("wait", ["written", "durable"])
def test_dropped_producer_ends_its_threads(tmp_path: Path, wait: Wait) -> None:
    """Without `close`; what was sent is stored, and the timers end with the producer."""
    with LogManager([tmp_path]) as manager:
        manager.create_topic("t", 1)
        before = {*threading.enumerate()}
        producer = manager.producer(wait=wait, linger_ms=1)
        sent = producer.send("t", b"v")
        timers = [
            each
            for each in threading.enumerate()
            if each not in before and each.name == "kafkalog-scheduler"
        ]
        assert timers
        assert 0 == sent.result(60).offset
        reference = weakref.ref(producer)
        del producer, sent

        async def main() -> None:
            def is_dropped() -> bool:
                # The thread may still have the task that delivered the record.
                gc.collect()
                return reference() is None

            await eventually(is_dropped)
            await eventually(lambda: not any(each.is_alive() for each in timers))

        asyncio.run(main())
        assert [b"v"] == [record.value for record in manager.log("t").records()]
