"""Tests of calls whose records are written at once, without open batches, and of `group`."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Log, LogManager
from kafkalog._core.murmur2 import partition_of
from kafkalog.clients.many_records import SentMany, SentRange
from kafkalog.clients.producer import Producer
from kafkalog.errors import (
    DiskFullError,
    KafkaLogError,
    LogStorageError,
    RecordTooLargeError,
    RecordValidationError,
)
from kafkalog.model import AppendInfo
from tests.support.log_sources import Logs
from tests.support.simulated_disk import SimulatedDisk

KEYS: list[bytes | None] = [b"k%d" % number for number in range(60)]
VALUES: list[bytes | None] = [b"%d" % number * 9 for number in range(60)]


def producer_of(logs: Logs, *, wait: Any = "written", **settings: Any) -> Producer:
    """Return a producer on manual time that waits for no other call."""
    settings.setdefault("linger_ms", 0)
    return logs.clients().producer(wait=wait, **settings)


def values_in(logs: Logs, partition: int, topic: str = "orders") -> list[bytes | None]:
    """Return the values in a partition."""
    return [each.value for each in logs.log(topic, partition).records()]


def values_of(logs: Logs, sent: SentMany) -> list[bytes | None]:
    """Return the values in all delivered ranges."""
    found = []
    for place, first, count, _is_duplicate in sent.delivered:
        found += [each.value for each in logs.log("orders", place).records(first, first + count)]
    return found


def by_partition(keys: list[bytes | None], values: list[bytes | None]) -> list[bytes | None]:
    """Return the values of one partition of three after the other."""
    found: dict[int, list[bytes | None]] = {}
    for key, value in zip(keys, values, strict=True):
        found.setdefault(partition_of(key or b"", 3), []).append(value)
    return [value for each in found.values() for value in each]


def key_in(partition: int) -> bytes:
    """Return a key of a partition of three."""
    return next(key for key in KEYS if key is not None and partition_of(key, 3) == partition)


@pytest.mark.parametrize("is_numbered", [True, False])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 1100])
def test_bytes_equal_those_of_open_batches(
    tmp_path: Path, is_numbered: bool, segment_bytes: int
) -> None:
    """Several batches in each partition, numbered one after the other, over several segments."""
    files: list[list[tuple[str, bytes]]] = []
    for linger_ms in (0, 1000):
        logs = Logs(tmp_path / str(linger_ms))
        logs.create_topic("orders", 3, {"segment.bytes": str(segment_bytes)})
        settings: dict[str, Any] = {"batch_size": 300, "enable_idempotence": is_numbered}
        with producer_of(logs, linger_ms=linger_ms, **settings) as producer:
            sent = producer.send_many("orders", KEYS, VALUES)
            assert sent.done() == (linger_ms == 0)
            producer.flush()
            assert by_partition(KEYS, VALUES) == values_of(logs, sent)
            assert producer.pending_bytes == 0
        logs.close()
        found = sorted((tmp_path / str(linger_ms)).glob("orders-*/*.log"))
        assert len(found) == 3 or segment_bytes == 1100
        files.append(
            [(str(each.relative_to(each.parents[1])), each.read_bytes()) for each in found]
        )
    assert files[0] == files[1]


def test_ranges_of_a_partition_are_together(logs: Logs) -> None:
    """They are in several batches each, filled in turn."""
    producer = producer_of(logs, linger_ms=1000, batch_size=200)
    sent = producer.send_many("orders", KEYS, VALUES)
    producer.flush()
    partitions = [each.partition for each in sent.result(0)]
    assert len(partitions) > 3
    assert sorted(partitions, key=list(dict.fromkeys(partitions)).index) == partitions
    producer.close()


def test_records_follow_those_of_an_open_batch(logs: Logs) -> None:
    """A batch that was opened before is written before, in each partition."""
    producer = producer_of(logs, linger_ms=1000)
    single = producer.send("orders", b"first", partition=0)
    prepared = producer.prepare_many("orders", [key_in(0), key_in(1)], [b"second", b"other"])
    sent = producer.write_prepared(prepared, lambda: None)
    assert [SentRange(1, 0, 1)] == sent.delivered
    assert not sent.done()
    assert "2 records, pending" in repr(sent)
    producer.flush()
    assert single.result(0).offset == 0
    assert {SentRange(0, 1, 1), SentRange(1, 0, 1)} == set(sent.result(0))
    assert [b"first", b"second"] == values_in(logs, 0)
    producer.close()


def test_refused_records_are_named_and_the_others_stored(logs: Logs) -> None:
    """A record above `max.message.bytes` alone; all records without a key of a compacted topic."""
    logs.create_topic("small", 1, {"max.message.bytes": "200"})
    logs.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    with producer_of(logs) as producer:
        large = producer.send_many("small", [b"k"] * 3, [b"a", bytes(300), b"b"])
        keyless = producer.send_many("compacted", [b"k", None], [b"a", b"b"])
        after = producer.send_many("compacted", [b"k"], [b"c"])
        producer.flush()
        assert isinstance(large.exception(0), RecordTooLargeError)
        assert ([1], [1]) == (large.failed_rows, keyless.failed_rows)
        assert isinstance(keyless.exception(0), RecordValidationError)
        assert [SentRange(0, 0, 1), SentRange(0, 1, 1)] == large.delivered
        assert [SentRange(0, 1, 1)] == after.result(0)
        assert producer.pending_bytes == 0
    assert [b"a", b"b"] == values_in(logs, 0, "small")
    assert [b"a", b"c"] == values_in(logs, 0, "compacted")


@pytest.mark.parametrize("has_open_batch", [False, True])
def test_split_gives_each_group_its_own_records(logs: Logs, has_open_batch: bool) -> None:
    """Groups of any size; some partitions written at once, others in batches with other records."""
    producer = producer_of(logs, linger_ms=1000, batch_size=200)
    if has_open_batch:
        producer.send("orders", b"before", partition=1)
    prepared = producer.prepare_many("orders", KEYS, VALUES)
    whole = producer.write_prepared(prepared, lambda: None)
    counts = [7, 0, 1, 30, 22]
    parts = whole.split(counts)
    called: list[object] = []
    for each in parts:
        each.add_done_callback(called.append)
    producer.flush()
    assert set(parts) == wait(parts, 0).done == set(called)
    assert not any(each.failed_rows for each in parts)
    start = 0
    for part, count in zip(parts, counts, strict=True):
        keys, values = KEYS[start : start + count], VALUES[start : start + count]
        found = sorted(value or b"" for value in values_of(logs, part))
        assert sorted(value or b"" for value in values) == found
        assert {partition_of(key or b"", 3) for key in keys} == {
            each.partition for each in part.result(0)
        }
        start += count
    producer.close()


def test_split_names_refused_records_by_their_place_in_each_group(logs: Logs) -> None:
    """Counted from 0 in each of them, whether written at once or in a batch."""
    logs.create_topic("small", 3, {"max.message.bytes": "200"})
    producer = producer_of(logs)
    keys: list[bytes | None] = [key_in(0), key_in(1), key_in(0), key_in(1), key_in(0)]
    values: list[bytes | None] = [b"a", b"b", bytes(300), b"c", bytes(300)]
    whole = producer.send_many("small", keys, values)
    parts = whole.split([1, 2, 2])
    producer.flush()
    assert [2, 4] == whole.failed_rows
    assert [[], [1], [1]] == [each.failed_rows for each in parts]
    assert [SentRange(1, 1, 1)] == parts[2].delivered
    producer.close()


def test_full_disk_stores_records_once_when_space_is_free() -> None:
    """They wait in a batch with the numbers of the first try; later records wait for them."""
    disk = SimulatedDisk()
    disk.make_durable(Path("/data"))
    logs = Logs(Path("/data"), filesystem=disk)
    logs.create_topic("orders", 1)
    producer = producer_of(logs, retry_backoff_ms=100)
    raising = logs.clients().producer(on_full="raise", linger_ms=0)
    assert producer.send_many("orders", [b"k"], [b"0"]).done()
    disk.capacity_bytes = 0
    waiting = [producer.send_many("orders", [b"k"], [b"%d" % each * 600]) for each in (1, 2)]
    refused = raising.send_many("orders", [b"k"], [bytes(600)])
    raising.flush(0)
    assert not any(each.done() for each in waiting)
    assert isinstance(refused.exception(0), DiskFullError)
    disk.capacity_bytes = None
    logs.scheduler.advance(100)
    assert [[SentRange(0, 1, 1)], [SentRange(0, 2, 1)]] == [each.result(0) for each in waiting]
    assert [b"0", b"1" * 600, b"2" * 600] == values_in(logs, 0)
    assert 0 == producer.pending_bytes == raising.pending_bytes
    for each in (producer, raising):
        each.close()
    logs.close()


def test_failing_sync_of_one_log_fails_its_records_only(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and ranges are those of its records; later records are no duplicates of them."""
    producer = producer_of(logs, wait="durable")
    failing = logs.log("orders", 1)
    commit = logs.commit

    def fail_one(of: Collection[Log]) -> dict[Log, KafkaLogError]:
        errors = commit([each for each in of if each is not failing])
        return errors | {failing: LogStorageError("no sync")}

    keys: list[bytes | None] = [key_in(1), key_in(0), key_in(1), key_in(2)]
    with monkeypatch.context() as patch:
        patch.setattr(logs, "commit", fail_one)
        sent = producer.send_many("orders", keys, [b"0", b"1", b"2", b"3"])
        parts = sent.split([1, 3])
        producer.flush()
    assert [0, 2] == sent.failed_rows
    assert [[0], [1]] == [each.failed_rows for each in parts]
    assert isinstance(sent.exception(0), LogStorageError)
    assert [SentRange(0, 0, 1), SentRange(2, 0, 1)] == sent.delivered == parts[1].delivered
    later = producer.send_many("orders", keys[:1], [b"later"])
    producer.flush()
    assert [SentRange(1, 2, 1)] == later.result(0)
    assert producer.pending_bytes == 0
    producer.close()


@pytest.mark.parametrize("wait", ["written", "durable"])
def test_interrupted_append_lets_later_records_be_no_duplicates(
    logs: Logs, monkeypatch: pytest.MonkeyPatch, wait: str
) -> None:
    """The log has the batch, and the producer does not know: its numbers are not used again."""
    producer = producer_of(logs, wait=wait)
    append = Log.append_group

    def interrupted(*arguments: Any) -> AppendInfo | None:
        append(*arguments)
        raise KeyboardInterrupt

    keys: list[bytes | None] = [key_in(0), key_in(1)]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Log, "append_group", interrupted)
        producer.send_many("orders", keys, [b"lost", b"never"])
    assert producer.pending_bytes == 0
    later = producer.send_many("orders", keys, [b"a", b"b"])
    producer.flush()
    assert [SentRange(0, 1, 1), SentRange(1, 0, 1)] == later.result(0)
    assert producer.pending_bytes == 0
    producer.close()


@pytest.mark.parametrize("ends", ["flush", "close", "result"])
def test_waits_in_a_group_do_not_wait_for_its_end(tmp_path: Path, ends: str) -> None:
    """In the main thread, for which another thread commits: not after the block."""
    with LogManager(tmp_path) as manager:
        manager.create_topic("orders", 3)
        producer = manager.producer(wait="durable", linger_ms=0)
        with producer.group():
            sent = producer.send_many("orders", KEYS, VALUES)
            if ends == "flush":
                assert producer.flush(10_000) == 0
            elif ends == "close":
                producer.close(10_000)
            else:
                sent.result(20)
            assert sent.exception(0) is None
        producer.close()


def test_group_with_more_records_than_memory_frees_it_by_a_commit(tmp_path: Path) -> None:
    """A call that waits for memory lets the records before it be committed."""
    with LogManager(tmp_path) as manager:
        manager.create_topic("orders")
        limits: dict[str, Any] = {"buffer_memory": 2000, "batch_size": 1000, "max_block_ms": 5000}
        with manager.producer(wait="durable", linger_ms=0, **limits) as producer:
            with producer.group():
                sent = [producer.send_many("orders", [b"k"], [bytes(800)]) for _ in range(8)]
            assert list(range(8)) == [each.result()[0].first_offset for each in sent]
            assert producer.pending_bytes == 0
