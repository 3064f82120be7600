"""Tests of `Producer.send_many`: partitions, one future, all or none, memory, refusals, disks."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import weakref
from collections import Counter
from concurrent.futures import Future, as_completed, wait
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkalog._core.murmur2 import partition_of
from kafkalog.clients.accumulator import Accumulator
from kafkalog.clients.many_records import SentMany, SentRange
from kafkalog.clients.producer import Producer
from kafkalog.clients.producer_batch import ProducerBatch
from kafkalog.errors import (
    BufferExhaustedError,
    ClientClosedError,
    DiskFullError,
    ForkedLogError,
    InvalidRecordError,
    InvalidTxnStateError,
    RecordTooLargeError,
    RecordValidationError,
)
from tests.support.log_sources import Logs
from tests.support.simulated_disk import SimulatedDisk


def producer_of(logs: Logs, *, wait: Any = "written", **settings: Any) -> Producer:
    """Return a producer on manual time."""
    return logs.clients().producer(wait=wait, **settings)


def stored(logs: Logs, partition: int, topic: str = "orders") -> list[tuple[Any, Any]]:
    """Return keys and values in a partition."""
    return [(each.key, each.value) for each in logs.log(topic, partition).records()]


def assert_ranges(logs: Logs, sent: SentMany, values: list[bytes]) -> None:
    """Compare the records in the ranges of a result with what was sent."""
    found = []
    for partition, first, count, _is_duplicate in sent.result(0):
        records = list(logs.log("orders", partition).records(first, first + count))
        found += [each.value for each in records]
    assert sorted(values) == sorted(each or b"" for each in found)


def simulated() -> tuple[SimulatedDisk, Logs]:
    """Return a simulated disk, and logs on it with one partition of `orders`."""
    disk = SimulatedDisk()
    disk.make_durable(Path("/data"))
    logs = Logs(Path("/data"), filesystem=disk)
    logs.create_topic("orders", 1)
    return disk, logs


def test_send_many_with_keys_equals_single_sends(logs: Logs) -> None:
    """The partition of each key, the order within a partition, ranges that name the records."""
    keys: list[bytes | None] = [b"k%d" % (number % 17) for number in range(100)]
    values = [b"%d" % number for number in range(100)]
    with producer_of(logs) as producer:
        sent = producer.send_many("orders", keys, values)
        producer.flush()
    for partition in range(3):
        expected = [
            (key, value)
            for key, value in zip(keys, values, strict=True)
            if partition_of(key or b"", 3) == partition
        ]
        assert expected == stored(logs, partition)
    assert Counter(partition_of(key or b"", 3) for key in keys) == {
        each.partition: each.record_count for each in sent.result(0)
    }
    assert_ranges(logs, sent, values)
    assert [] == sent.failed_rows
    assert sent.result() == sent.delivered


def test_send_many_without_keys_goes_to_one_partition(logs: Logs) -> None:
    """With a list of no keys as well; records with keys among them keep theirs."""
    with producer_of(logs) as producer:
        plain = producer.send_many("orders", None, [b"a", b"b"])
        empty = producer.send_many("orders", [None, None], [b"c", b"d"])
        mixed = producer.send_many("orders", [None, b"k", None], [b"e", b"f", b"g"])
        producer.flush()
    for sent in (plain, empty):
        (only,) = sent.result(0)
        assert only.record_count == 2
    of_key = partition_of(b"k", 3)
    assert (b"k", b"f") in stored(logs, of_key)
    assert sum(each.record_count for each in mixed.result(0)) == 3


def test_send_many_to_a_given_partition_ignores_keys(logs: Logs) -> None:
    """The keys are stored; headers and timestamps of each record as well."""
    with producer_of(logs) as producer:
        sent = producer.send_many(
            "orders",
            [b"x", b"y"],
            [b"v", None],
            partition=2,
            timestamps=[5, 6],
            headers=[None, [("h", b"1"), ("n", None)]],
        )
        spread = producer.send_many(
            "orders",
            [b"k%d" % number for number in range(9)],
            [b"%d" % number for number in range(9)],
            timestamps=[100 + number for number in range(9)],
            headers=[[("n", b"%d" % number)] for number in range(9)],
        )
        producer.flush()
    assert [SentRange(2, 0, 2)] == sent.result(0)
    first, second, *_others = logs.log("orders", 2).records()
    assert (b"x", b"v", 5, ()) == (first.key, first.value, first.timestamp_ms, first.headers)
    assert (("h", b"1"), ("n", None)) == second.headers
    assert second.timestamp_ms == 6
    assert sum(each.record_count for each in spread.result(0)) == 9
    for partition in range(3):
        for record in logs.log("orders", partition).records(2 if partition == 2 else 0):
            number = int(record.value or b"")
            assert (100 + number, (("n", b"%d" % number),)) == (record.timestamp_ms, record.headers)


def test_send_many_of_nothing_is_done(logs: Logs) -> None:
    """No partition is opened, nothing is reserved."""
    with producer_of(logs) as producer:
        assert [] == producer.send_many("orders", [], []).result(0)
        assert producer.pending_bytes == 0


def test_send_many_of_arrow_arrays_equals_lists(logs: Logs) -> None:
    """Binary arrays with nulls."""
    keys, values = [b"a", None, b"c"], [b"1", b"2", None]
    with producer_of(logs) as producer:
        producer.send_many("orders", pa.array(keys), pa.array(values), partition=0)
    assert list(zip(keys, values, strict=True)) == stored(logs, 0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"values": [b"v", "text"]}, TypeError, r"values\[1\] must be bytes or None, got str"),
        ({"keys": [3, b""]}, TypeError, r"keys\[0\] must be bytes or None, got int"),
        ({"keys": [b"k"]}, ValueError, "keys must be as many as values, 2, got 1"),
        ({"headers": [[]]}, ValueError, "headers must be as many as values, 2, got 1"),
        ({"timestamps": [1]}, ValueError, "timestamps must be one per record, 2, got 1"),
        ({"timestamps": [1, 2, 3]}, ValueError, "timestamps must be one per record, 2, got 3"),
        ({"headers": [[("h", b"")], [("h", 3)]]}, TypeError, "header"),
        ({"timestamps": [1]}, ValueError, "timestamps"),
        ({"timestamps": [1, -2]}, InvalidRecordError, "timestamp"),
        ({"partition": 3}, LookupError, "orders"),
        ({"partition": 2**40}, LookupError, "orders"),
        ({"partition": -1}, LookupError, "orders"),
        ({"topic": "nothing"}, LookupError, "nothing"),
    ],
)
def test_send_many_of_invalid_records_accepts_none(
    logs: Logs, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    """A mistake in the last record keeps the first out as well."""
    producer = producer_of(logs)
    call = {"topic": "orders", "keys": [b"a", b"b"], "values": [b"1", b"2"], **arguments}
    with pytest.raises(error, match=message):
        producer.send_many(**call)
    assert producer.pending_bytes == 0
    assert producer.flush() == 0
    assert [] == [each for partition in range(3) for each in stored(logs, partition)]
    producer.close()


def test_send_many_larger_than_a_batch_makes_several(logs: Logs) -> None:
    """Ranges follow each other; a record above `batch.size` has a separate batch."""
    values = [bytes([number]) * 150 for number in range(20)] + [bytes(3000)] + [b"last"]
    with producer_of(logs, batch_size=1000) as producer:
        before = producer.send("orders", b"before", partition=0)
        sent = producer.send_many("orders", None, values, partition=0)
        after = producer.send("orders", b"after", partition=0)
        producer.flush()
        ranges = sent.result(0)
    assert [b"before", *values, b"after"] == [value for _key, value in stored(logs, 0)]
    assert (0, 23) == (before.result().offset, after.result().offset)
    assert len(ranges) > 4
    ends = [each.first_offset + each.record_count for each in ranges]
    assert [1, *ends[:-1]] == [each.first_offset for each in ranges]
    sizes = [each.header.size_bytes for each in logs.log("orders", 0).batches()]
    assert len([each for each in sizes if each > 1000]) == 1


def test_send_many_numbers_batches_without_a_gap(logs: Logs) -> None:
    """The sequences count records, with single sends between."""
    with producer_of(logs) as producer:
        for _ in range(3):
            producer.send_many("orders", None, [b"v"] * 5, partition=0)
            producer.send("orders", b"w", partition=0)
            producer.flush()
    headers = [each.header for each in logs.log("orders", 0).batches()]
    assert [0, 6, 12] == [each.base_sequence for each in headers]


def test_send_many_with_refused_records_fails_these_parts_only(logs: Logs) -> None:
    """Records of a call in one batch are refused together; other calls in it are written."""
    logs.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    with producer_of(logs) as producer:
        single = producer.send("compacted", b"0", key=b"k")
        good = producer.send_many("compacted", [b"a", b"b"], [b"1", b"2"])
        bad = producer.send_many("compacted", [b"c", None], [b"3", b"4"], partition=0)
        later = producer.send_many("compacted", [b"d"], [b"5"])
        producer.flush()
    assert single.result(0).offset == 0
    assert [SentRange(0, 1, 2)] == good.result(0)
    assert [SentRange(0, 3, 1)] == later.result(0)
    with pytest.raises(RecordValidationError, match="compacted-0: "):
        bad.result(0)
    assert ([0, 1], []) == (bad.failed_rows, bad.delivered)
    assert [b"0", b"1", b"2", b"5"] == [value for _key, value in stored(logs, 0, "compacted")]


def test_send_many_delivered_in_part_names_the_rows(logs: Logs) -> None:
    """A record too large for the log fails with its batch; the other batches are written."""
    logs.create_topic("small", 1, {"max.message.bytes": "2000"})
    values = [b"first" * 50, bytes(5000), b"last"]
    with producer_of(logs, batch_size=300) as producer:
        sent = producer.send_many("small", None, values)
        producer.flush()
    with pytest.raises(RecordTooLargeError):
        sent.result(0)
    assert [1] == sent.failed_rows
    assert [SentRange(0, 0, 1), SentRange(0, 1, 1)] == sent.delivered


def test_send_many_reserves_memory_for_all_records_at_once() -> None:
    """With full memory none is accepted; what was reserved is free after the delivery."""
    disk, logs = simulated()
    producer = producer_of(logs, batch_size=1000, buffer_memory=6000, max_block_ms=0)
    logs.log("orders", 0)
    assert producer.available_bytes == 6000
    disk.capacity_bytes = 0
    first = producer.send_many("orders", None, [bytes(400)] * 10)
    assert 4000 < producer.pending_bytes <= 6000
    assert producer.available_bytes == 6000 - producer.pending_bytes
    held_bytes = producer.pending_bytes
    with pytest.raises(BufferExhaustedError, match=r"buffer\.memory = 6000 was full"):
        producer.send_many("orders", None, [bytes(400)] * 10)
    assert held_bytes == producer.pending_bytes
    disk.capacity_bytes = None
    second = producer.send_many("orders", None, [bytes(400)] * 10)
    producer.close()
    assert (10, 10) == tuple(
        sum(each.record_count for each in sent.result(0)) for sent in (first, second)
    )
    assert producer.pending_bytes == 0
    logs.close()


def test_send_many_keeps_the_records_that_it_was_given() -> None:
    """The caller changes its lists while the call waits for memory."""
    disk, logs = simulated()
    producer = producer_of(logs, batch_size=1000, buffer_memory=3000)
    logs.log("orders", 0)
    disk.capacity_bytes = 0
    producer.send_many("orders", None, [bytes(400)] * 6)
    keys: list[Any] = [b"k%d" % number for number in range(40)]
    values: list[Any] = [bytes([number]) * 40 for number in range(40)]
    times = np.arange(40)
    field = bytearray(b"h")
    headers: list[Any] = [[["n", field]] for _ in range(40)]
    expected = list(zip(keys, values, strict=True))
    sent: list[SentMany] = []
    sender = threading.Thread(
        target=lambda: sent.append(
            producer.send_many(
                "orders", keys, values, timestamps=times, headers=headers, partition=0
            )
        )
    )
    sender.start()
    while not producer._memory._waiting_count:
        time.sleep(0.001)
    del values[10:]
    keys[:] = [7]
    times[:] = -5
    field[:] = bytes(5000)
    disk.capacity_bytes = None
    logs.scheduler.advance(1000)
    sender.join()
    assert producer.flush() == 0
    assert sum(each.record_count for each in sent[0].result(0)) == 40
    records = list(logs.log("orders", 0).records())[6:]
    assert expected == [(each.key, each.value) for each in records]
    assert list(range(40)) == [each.timestamp_ms for each in records]
    assert {(("n", b"h"),)} == {each.headers for each in records}
    assert producer.pending_bytes == 0
    producer.close()
    logs.close()


def test_send_many_waits_for_no_batch_that_is_opened_meanwhile(logs: Logs) -> None:
    """It would wait for `linger.ms`, or give up, with nothing but open batches in memory."""
    producer = producer_of(
        logs, wait="durable", batch_size=1000, buffer_memory=3000, linger_ms=60_000
    )
    first = producer.send_many("orders", None, [bytes(500)] * 3, partition=0)
    sent: list[SentMany] = []
    sender = threading.Thread(
        target=lambda: sent.append(
            producer.send_many("orders", None, [bytes(500)] * 5, partition=0)
        )
    )
    sender.start()
    while not producer._memory._waiting_count:
        time.sleep(0.001)
    producer.send("orders", b"small", partition=1)
    deadline = time.monotonic() + 30
    while not sent and time.monotonic() < deadline:
        logs.scheduler.advance(0)
        time.sleep(0.001)
    sender.join()
    producer.flush()
    assert 8 == sum(each.record_count for one in (first, *sent) for each in one.result(0))
    assert producer.pending_bytes == 0
    producer.close()


@pytest.mark.parametrize("name", ["send", "send_many"])
def test_close_refuses_a_call_that_waits_for_memory(name: str) -> None:
    """No thread would deliver its records."""
    disk, logs = simulated()
    producer = producer_of(logs, batch_size=1000, buffer_memory=3000)
    logs.log("orders", 0)
    disk.capacity_bytes = 0
    producer.send_many("orders", None, [bytes(400)] * 6)
    errors: list[BaseException] = []

    def call() -> None:
        try:
            if name == "send":
                producer.send("orders", bytes(900))
            else:
                producer.send_many("orders", None, [bytes(100)] * 10)
        except ClientClosedError as error:
            errors.append(error)

    sender = threading.Thread(target=call)
    sender.start()
    while not producer._memory._waiting_count:
        time.sleep(0.001)
    producer.close(0)
    sender.join()
    assert len(errors) == 1
    assert producer.pending_bytes == 0
    disk.capacity_bytes = None
    logs.close()


def test_send_many_is_done_when_a_flush_returns(logs: Logs) -> None:
    """Though another thread still calls callbacks of futures in the same batch."""
    producer = logs.clients(scheduler=None).producer(wait="durable", linger_ms=60_000)
    may_go = threading.Event()
    called: list[object] = []
    one = producer.send("orders", b"a", partition=0)
    one.add_done_callback(lambda _sent: may_go.wait(30))
    many = producer.send_many("orders", None, [b"b", b"c"], partition=0)
    many.add_done_callback(called.append)
    assert producer.flush() == 0
    try:
        assert [SentRange(0, 1, 2)] == many.result(0)
    finally:
        may_go.set()
    producer.close()
    assert [many] == called


@pytest.mark.parametrize("wait", ["written", "durable"])
def test_send_during_a_close_is_refused(
    logs: Logs, monkeypatch: pytest.MonkeyPatch, wait: str
) -> None:
    """The close ends between the check of a call and its first record."""
    append, extend = Accumulator.append, Accumulator.extend
    producer = producer_of(logs, wait=wait)

    def append_late(*arguments: Any) -> Any:
        producer.close()
        return append(*arguments)

    def extend_late(*arguments: Any) -> Any:
        producer.close()
        return extend(*arguments)

    monkeypatch.setattr(Accumulator, "append", append_late)
    monkeypatch.setattr(Accumulator, "extend", extend_late)
    with pytest.raises(ClientClosedError):
        producer.send("orders", b"late")
    assert producer.pending_bytes == 0
    producer = producer_of(logs, wait=wait)
    with pytest.raises(ClientClosedError):
        producer.send_many("orders", None, [b"late"])
    assert producer.pending_bytes == 0
    assert [] == stored(logs, 0)


def test_send_many_in_a_forked_child_has_an_error(logs: Logs) -> None:
    """At once, as futures of single records have."""
    producer = producer_of(logs)
    called: list[object] = []
    sent = producer.send_many("orders", [b"a", b"b", b"c"], [b"1", b"2", b"3"])
    sent.add_done_callback(called.append)
    child = os.fork()
    if child == 0:
        is_right = isinstance(sent.exception(0), ForkedLogError)
        os._exit(0 if is_right and sent.failed_rows == [0, 1, 2] and not called else 1)
    assert os.waitpid(child, 0)[1] == 0
    producer.close()
    assert sum(each.record_count for each in sent.result(0)) == 3
    assert [sent] == called


@pytest.mark.parametrize("wait", ["written", "durable"])
def test_send_by_a_callback_has_the_memory_of_its_batch(logs: Logs, wait: str) -> None:
    """The thread that completes a future would wait for itself."""
    producer = producer_of(logs, wait=wait, batch_size=1000, buffer_memory=1100, max_block_ms=0)
    later: list[SentMany] = []
    first = producer.send_many("orders", None, [bytes(1000)])
    first.add_done_callback(
        lambda _sent: later.append(producer.send_many("orders", None, [bytes(1000)]))
    )
    producer.flush()
    producer.flush()
    assert len(first.result(0)) == len(later[0].result(0)) == 1
    assert producer.pending_bytes == 0
    producer.close()


def test_send_many_that_is_interrupted_frees_its_memory(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a partition: what was not accepted reserves nothing."""
    producer = producer_of(logs, batch_size=1000)
    extend, calls = ProducerBatch.extend, iter(range(10))

    def interrupted(*arguments: Any) -> Any:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return extend(*arguments)

    monkeypatch.setattr(ProducerBatch, "extend", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.send_many("orders", None, [bytes(400)] * 20)
    assert producer.flush() == 0
    assert producer.pending_bytes == 0
    producer.close()


@pytest.mark.parametrize("name", ["send", "send_many"])
def test_interrupted_call_leaves_the_offsets_of_later_records_right(
    logs: Logs, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Records that were encoded and have no future yet are taken out of the batch."""
    producer = producer_of(logs, linger_ms=1000)
    producer.send("orders", b"before", partition=0)

    def interrupt(*_arguments: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if name == "send":
            patch.setattr("kafkalog.clients.accumulator.Delivery", interrupt)
            producer.send("orders", b"no", partition=0)
        else:
            patch.setattr("kafkalog.clients.producer_batch.BatchPart", interrupt)
            producer.send_many("orders", None, [b"no", b"no"], partition=0)
    after = producer.send("orders", b"after", partition=0)
    producer.flush()
    assert after.result(0).offset == 1
    assert [(None, b"before"), (None, b"after")] == stored(logs, 0)
    assert producer.pending_bytes == 0
    producer.close()


def test_send_of_few_records_reserves_little_memory(logs: Logs) -> None:
    """SRV-2: thousands of open batches with a few records each fit; a batch that fills grows."""
    logs.create_topic("wide", 64)
    producer = producer_of(logs, linger_ms=1000, batch_size=16384, buffer_memory=1 << 20)
    for partition in range(64):
        producer.send("wide", bytes(100), partition=partition)
    assert producer.pending_bytes <= 64 * 2048
    for _ in range(140):
        producer.send("wide", bytes(100), partition=0)
    assert len(list(logs.log("wide", 0).batches())) == 0
    assert 14_000 < producer.pending_bytes - 63 * 2048 <= 16_384
    assert producer.flush() == 0
    (batch,) = logs.log("wide", 0).batches()
    assert batch.header.record_count == 141
    assert producer.pending_bytes == 0
    producer.close()


def test_send_many_on_a_full_disk_waits_or_raises() -> None:
    """SRV-5: with `on_full="raise"` at once, else it is written when space is free."""
    disk, logs = simulated()
    waiting = producer_of(logs, retry_backoff_ms=100)
    raising = logs.clients().producer(on_full="raise", linger_ms=0)
    logs.log("orders", 0)
    disk.capacity_bytes = 0
    sent = waiting.send_many("orders", None, [bytes(600)] * 2)
    assert waiting.flush(0) == 2
    refused = raising.send_many("orders", None, [bytes(600)] * 2)
    raising.flush(0)
    assert isinstance(refused.exception(0), DiskFullError)
    assert [0, 1] == refused.failed_rows
    disk.capacity_bytes = None
    logs.scheduler.advance(100)
    assert [SentRange(0, 0, 2)] == sent.result(0)
    for each in (waiting, raising):
        each.close()
    logs.close()


def test_send_many_durable_is_done_after_the_sync() -> None:
    """Not before; then the whole call at once."""
    _disk, logs = simulated()
    producer = producer_of(logs, wait="durable", batch_size=500)
    sent = producer.send_many("orders", None, [bytes(100)] * 20)
    assert not sent.done()
    producer.flush()
    assert sum(each.record_count for each in sent.result(0)) == 20
    assert logs.log("orders", 0).durable_offset == 20
    producer.close()
    logs.close()


def test_send_many_in_a_transaction_is_committed_whole(logs: Logs) -> None:
    """Outside of one it is refused."""
    with producer_of(logs, transactional_id="t") as producer:
        with pytest.raises(InvalidTxnStateError):
            producer.send_many("orders", None, [b"v"])
        with producer.transaction():
            producer.send_many("orders", [b"%d" % each for each in range(9)], [b"v"] * 9)
    shown = [
        list(logs.log("orders", each).records(isolation="read_committed")) for each in range(3)
    ]
    assert sum(map(len, shown)) == 9


def test_send_many_cannot_be_cancelled_and_can_be_awaited(logs: Logs) -> None:
    """`asyncio.wrap_future`, a callback, `cancel`."""
    producer = producer_of(logs)
    called: list[object] = []

    async def work() -> list[SentRange]:
        sent = producer.send_many("orders", None, [b"v"], partition=1)
        assert not sent.cancel()
        sent.add_done_callback(called.append)
        awaited = asyncio.wrap_future(sent)
        producer.flush()
        return await awaited

    assert [SentRange(1, 0, 1)] == asyncio.run(work())
    assert len(called) == 1
    producer.close()
    with pytest.raises(ClientClosedError):
        producer.send_many("orders", None, [b"v"])


def test_send_many_is_waited_for_by_the_functions_of_futures() -> None:
    """`wait`, `as_completed`, a timeout, callbacks at each time, also a failing one."""
    disk, logs = simulated()
    producer = producer_of(logs, batch_size=500)
    logs.log("orders", 0)
    disk.capacity_bytes = 0
    sent = [producer.send_many("orders", None, [bytes(300)] * 4) for _ in range(3)]
    assert ([], sent) == (sent[0].delivered, [each for each in sent if each.running()])
    for ask in (sent[0].result, sent[0].exception):
        with pytest.raises(TimeoutError):
            ask(0)
    assert set(sent) == wait(sent, 0).not_done
    called: list[object] = []
    futures: list[Future[list[SentRange]]] = list(sent)
    sent[1].add_done_callback(lambda _sent: 1 / 0)
    for _ in range(2):
        sent[1].add_done_callback(called.append)
    disk.capacity_bytes = None
    threads = [
        threading.Thread(target=lambda: called.append(len(wait(sent).done))),
        threading.Thread(target=lambda: called.append(sorted(map(id, as_completed(futures))))),
        threading.Thread(target=lambda: called.append(len(sent[2].result()))),
    ]
    for thread in threads:
        thread.start()
    producer.flush()
    for thread in threads:
        thread.join()
    sent[1].add_done_callback(called.append)
    assert called.count(sent[1]) == 3
    assert 3 in called
    assert sorted(map(id, sent)) in called
    assert "4 records, done" in repr(sent[0])
    producer.close()
    logs.close()


def test_send_many_of_which_a_call_was_refused_notifies_its_callbacks(logs: Logs) -> None:
    """A watched part moves to another outcome, and is notified of that."""
    logs.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    producer = producer_of(logs, linger_ms=1000)
    bad = producer.send_many("compacted", [None, b"c"], [b"1", b"2"], partition=0)
    good = producer.send_many("compacted", [b"a"], [b"3"])
    called: list[object] = []
    for each in (bad, good):
        each.add_done_callback(called.append)
    producer.flush()
    assert {bad, good} == set(called)
    assert isinstance(bad.exception(), RecordValidationError)
    assert [SentRange(0, 0, 1)] == good.result()
    producer.close()


def test_send_many_releases_its_records(logs: Logs) -> None:
    """No cycle of references keeps a future, also one with a callback."""
    producer = producer_of(logs)
    gc.disable()
    try:
        sent = producer.send_many("orders", [b"a", b"b"], [b"1", b"2"])
        sent.add_done_callback(lambda _sent: None)
        producer.flush()
        gone = weakref.ref(sent)
        del sent
        assert gone() is None
    finally:
        gc.enable()
    producer.close()


def test_send_many_by_many_threads_loses_nothing(logs: Logs) -> None:
    """Each call is done once, with its own records, in the order of its thread."""
    producer = producer_of(logs, wait="durable", batch_size=700, buffer_memory=20_000)
    sent: dict[int, list[tuple[SentMany, list[bytes]]]] = {thread: [] for thread in range(4)}

    def send(thread: int) -> None:
        random = Random(thread)
        for number in range(60):
            values = [b"%d %d %d" % (thread, number, each) for each in range(random.randrange(12))]
            keys: list[bytes | None] = [b"%d" % random.randrange(9) for _ in values]
            sent[thread].append((producer.send_many("orders", keys, list(values)), values))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        logs.scheduler.run_due()
    producer.close()
    for calls in sent.values():
        for each, values in calls:
            assert_ranges(logs, each, values)
    assert producer.pending_bytes == 0
    total = sum(len(values) for calls in sent.values() for _each, values in calls)
    assert total == sum(len(stored(logs, partition)) for partition in range(3))


def test_close_fails_calls_that_were_not_delivered() -> None:
    """Records on a full disk get the error of the closed producer, and the rows are named."""
    disk, logs = simulated()
    producer = producer_of(logs)
    logs.log("orders", 0)
    disk.capacity_bytes = 0
    sent = producer.send_many("orders", None, [bytes(600)] * 3)
    producer.close(0)
    assert isinstance(sent.exception(0), ClientClosedError)
    assert [0, 1, 2] == sent.failed_rows
    assert producer.pending_bytes == 0
    disk.capacity_bytes = None
    logs.close()
