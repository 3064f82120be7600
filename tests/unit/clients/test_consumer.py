"""Tests of `Consumer`: first positions, reading, lost records, waiting and wake-ups."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from kafkalog import CorruptRecordError, LogConfig, Record, TopicPartition
from kafkalog.clients.consumer import Consumer, LostRecords
from kafkalog.clients.group_offsets import GroupOffsets
from kafkalog.clients.offset_records import CommittedOffset, decode_key, decode_value
from kafkalog.errors import (
    ClientClosedError,
    ConfigError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from kafkalog.log.log import partition_of
from tests.support import golden
from tests.support.log_sources import Logs
from tests.support.logs import numbered
from tests.support.manual_time import START_MS

FIRST = TopicPartition("orders", 0)
SECOND = TopicPartition("orders", 1)


def consumer_of(logs: Logs, group: str = "", **settings: Any) -> Consumer:
    """Return a consumer that begins at the start by default."""
    settings.setdefault("auto_offset_reset", "earliest")
    return logs.clients().consumer(group, **settings)


def offsets_of(found: dict[TopicPartition, list[Record]]) -> dict[TopicPartition, list[int]]:
    """Return the offsets of what a poll returned."""
    return {where: [record.offset for record in records] for where, records in found.items()}


def fill(logs: Logs, partition: int, count: int) -> None:
    """Append records."""
    log = logs.log("orders", partition)
    log.append(numbered(log.log_end_offset, count))


def test_poll_returns_available_then_appended_records(logs: Logs) -> None:
    """From all partitions of a topic, each record once."""
    fill(logs, 0, 3)
    fill(logs, 2, 2)
    with consumer_of(logs) as consumer:
        consumer.subscribe("orders")
        assert {FIRST: [0, 1, 2], TopicPartition("orders", 2): [0, 1]} == offsets_of(
            consumer.poll()
        )
        assert consumer.poll() == {}
        fill(logs, 0, 2)
        assert {FIRST: [3, 4]} == offsets_of(consumer.poll())
        assert consumer.position(FIRST) == 5
        assert consumer.lag(FIRST) == 0


def test_consumer_of_another_loop_is_notified_and_hands_out(logs: Logs) -> None:
    """After an append, `wakeup` and `close`; records not handed out are polled again."""
    fill(logs, 0, 3)
    consumer = consumer_of(logs, auto_offset_reset="earliest")
    calls: list[int] = []
    consumer.notify_with(lambda: calls.append(1))
    consumer.assign([FIRST])
    assert consumer.look_interval_ms is None
    handed_out = consumer.hand_out(consumer.poll())
    assert [0, 1] == [next(handed_out).record.offset for _ in range(2)]
    assert consumer.position(FIRST) == 2
    handed_out.close()
    assert {FIRST: [2]} == offsets_of(consumer.poll())
    fill(logs, 0, 1)
    assert len(calls) == 1
    consumer.wakeup()
    consumer.subscribe("orders")
    assert consumer.look_interval_ms == consumer.config.poll_interval_ms
    consumer.close()
    assert len(calls) == 3


def test_poll_respects_max_records_and_rotates_partitions(logs: Logs) -> None:
    """A partition that was read waits until the others were."""
    for partition in (0, 1):
        fill(logs, partition, 5)
    with consumer_of(logs, max_poll_records=3) as consumer:
        consumer.assign([FIRST, SECOND])
        assert {FIRST: [0, 1, 2]} == offsets_of(consumer.poll())
        assert {SECOND: [0, 1, 2]} == offsets_of(consumer.poll())
        assert consumer.lag(SECOND) == 2
        assert {FIRST: [3, 4], SECOND: [3]} == offsets_of(consumer.poll())
        assert {SECOND: [4]} == offsets_of(consumer.poll(max_records=100))


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 0), ("latest", 4)])
def test_consumer_without_position_uses_auto_offset_reset(
    logs: Logs, reset: str, expected: int
) -> None:
    """`latest` is the end at the time of the request."""
    fill(logs, 0, 4)
    with consumer_of(logs, "group", auto_offset_reset=reset) as consumer:
        consumer.assign([FIRST])
        assert expected == consumer.position(FIRST)
        fill(logs, 0, 1)
        found = consumer.poll()
        assert list(range(expected, 5)) == offsets_of(found)[FIRST]


def test_consumer_without_position_and_reset_none_raises(logs: Logs) -> None:
    """With `none` a position must be committed or set by a seek."""
    with consumer_of(logs, "group", auto_offset_reset="none") as consumer:
        consumer.assign([FIRST])
        with pytest.raises(NoOffsetForPartitionError, match="'group' has no position in orders-0"):
            consumer.poll()
        consumer.seek(FIRST, 0)
        assert consumer.poll() == {}


def test_committed_positions_are_read_by_the_next_consumer(logs: Logs) -> None:
    """Another consumer of the group resumes there, in another process too."""
    fill(logs, 0, 5)
    with consumer_of(logs, "group", max_poll_records=3) as consumer:
        consumer.subscribe("orders")
        assert consumer.committed(FIRST) is None
        consumer.poll()
        consumer.commit(wait="durable")
        expected = CommittedOffset(3, "", None, START_MS)
        assert expected == consumer.committed(FIRST)
    logs.close()
    with consumer_of(logs, "group") as consumer:
        consumer.subscribe("orders")
        assert {FIRST: [3, 4]} == offsets_of(consumer.poll())
    with consumer_of(logs, "other") as consumer:
        consumer.subscribe("orders")
        assert {FIRST: [0, 1, 2, 3, 4]} == offsets_of(consumer.poll())


def test_commit_of_given_positions_keeps_metadata_and_epoch(logs: Logs) -> None:
    """All that Kafka keeps with a position; other partitions keep theirs."""
    with consumer_of(logs, "group") as consumer:
        consumer.commit({FIRST: 7, SECOND: CommittedOffset(9, "by hand", 3, 77)})
        consumer.commit({FIRST: 8})
        first, second = consumer.committed(FIRST), consumer.committed(SECOND)
    assert first == CommittedOffset(8, "", None, START_MS)
    assert second == CommittedOffset(9, "by hand", 3, 77)


def test_commit_without_group_or_with_negative_offset_raises(logs: Logs) -> None:
    """Positions are kept under the name of a group."""
    with consumer_of(logs) as consumer:
        consumer.assign([FIRST])
        with pytest.raises(ValueError, match="without a group"):
            consumer.commit()
        with pytest.raises(ValueError, match="without a group"):
            consumer.committed(FIRST)
    with consumer_of(logs, "group") as consumer:
        with pytest.raises(ValueError, match="offset must be >= 0, got -1"):
            consumer.commit({FIRST: -1})
        with pytest.raises(ValueError, match="offset must be >= 0, got -1"):
            consumer.seek(FIRST, -1)


def test_seek_sets_the_position(logs: Logs) -> None:
    """By offset, to both ends, and by time."""
    fill(logs, 0, 10)
    with consumer_of(logs) as consumer:
        consumer.assign([FIRST, SECOND])
        consumer.seek(FIRST, 8)
        assert {FIRST: [8, 9]} == offsets_of(consumer.poll())
        consumer.seek_to_beginning()
        assert consumer.position(FIRST) == 0
        consumer.seek_to_end(FIRST)
        assert consumer.poll() == {}
        consumer.seek_to_time(START_MS + 6, FIRST)
        assert {FIRST: [6, 7, 8, 9]} == offsets_of(consumer.poll())
        consumer.seek_to_time(START_MS + 1000)
        assert consumer.position(FIRST) == 10
        with pytest.raises(ValueError, match="orders-2 is not assigned"):
            consumer.seek(TopicPartition("orders", 2), 0)


def test_paused_partition_is_not_polled(logs: Logs) -> None:
    """It keeps its position until it is resumed."""
    fill(logs, 0, 2)
    fill(logs, 1, 2)
    with consumer_of(logs) as consumer:
        consumer.assign([FIRST, SECOND])
        consumer.pause(FIRST)
        assert {SECOND: [0, 1]} == offsets_of(consumer.poll())
        consumer.resume()
        assert {FIRST: [0, 1]} == offsets_of(consumer.poll())


def test_records_lost_to_retention_are_reported(logs: Logs) -> None:
    """By a callback, in `lost`, or as an error."""
    fill(logs, 0, 10)
    losses: list[LostRecords] = []
    consumer = logs.clients().consumer(on_lost=losses.append, auto_offset_reset="earliest")
    consumer.assign([FIRST])
    consumer.seek(FIRST, 2)
    logs.log("orders", 0).delete_records(6)
    assert {FIRST: [6, 7, 8, 9]} == offsets_of(consumer.poll())
    assert losses == consumer.lost == [LostRecords(FIRST, 2, 6)]
    consumer.close()
    with consumer_of(logs, auto_offset_reset="none") as strict:
        strict.assign([FIRST])
        strict.seek(FIRST, 2)
        with pytest.raises(OffsetOutOfRangeError):
            strict.poll()


def test_log_truncated_below_the_position_is_reported(logs: Logs) -> None:
    """The consumer resumes by `auto.offset.reset`."""
    fill(logs, 0, 10)
    with consumer_of(logs, auto_offset_reset="latest") as consumer:
        consumer.assign([FIRST])
        consumer.seek(FIRST, 9)
        logs.log("orders", 0).truncate_fully_and_start_at(0)
        assert consumer.poll() == {}
        assert consumer.lost == [LostRecords(FIRST, 9, 0)]
        fill(logs, 0, 1)
        assert {FIRST: [0]} == offsets_of(consumer.poll())


def test_consumer_read_committed_skips_markers_and_aborted_records(logs: Logs) -> None:
    """It stops before an open transaction."""
    with consumer_of(logs, isolation_level="read_committed") as consumer:
        consumer.assign([FIRST])
        with logs.clients().producer(transactional_id="t") as producer:
            producer.begin_transaction()
            producer.send("orders", b"aborted", partition=0)
            producer.flush()
            assert consumer.poll() == {}
            assert consumer.position(FIRST) == 0
            producer.abort_transaction()
            assert consumer.poll() == {}
            assert consumer.position(FIRST) == 2
            with producer.transaction():
                producer.send("orders", b"committed", partition=0)
        assert {FIRST: [2]} == offsets_of(consumer.poll())
        assert consumer.poll() == {}
        assert consumer.position(FIRST) == 4


def test_consumer_at_corrupt_range_raises_after_earlier_records(logs: Logs) -> None:
    """The caller seeks past the range, or `on_corrupt` skips it."""
    for _ in range(3):
        fill(logs, 0, 1)
    logs.close()
    path = logs.directory / "orders-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with consumer_of(logs) as consumer:
        consumer.assign([FIRST])
        assert {FIRST: [0]} == offsets_of(consumer.poll())
        for _ in range(2):
            with pytest.raises(CorruptRecordError):
                consumer.poll()
        consumer.seek(FIRST, 2)
        assert {FIRST: [2]} == offsets_of(consumer.poll())
    with consumer_of(logs, on_corrupt="skip") as consumer:
        consumer.assign([FIRST])
        assert {FIRST: [0, 2]} == offsets_of(consumer.poll())


def test_records_advances_the_position_with_each_record(logs: Logs) -> None:
    """A commit in the loop covers the yielded records; the others are read again."""
    fill(logs, 0, 5)
    fill(logs, 1, 2)
    with consumer_of(logs, "group") as consumer:
        consumer.assign([FIRST, SECOND])
        seen = []
        for where, record in consumer.records(timeout_ms=0):
            seen.append((where, record.offset))
            assert consumer.position(where) == record.offset + 1
            if record.offset == 2:
                consumer.commit()
                break
        assert seen == [(FIRST, 0), (FIRST, 1), (FIRST, 2)]
        assert GroupOffsets(logs).committed("group")[FIRST].offset == 3
        rest = [(each.partition, each.record.offset) for each in consumer.records(timeout_ms=0)]
    assert sorted(rest) == [(FIRST, 3), (FIRST, 4), (SECOND, 0), (SECOND, 1)]


def test_records_after_a_seek_in_the_loop_resume_there(logs: Logs) -> None:
    """Records fetched before the seek are dropped."""
    fill(logs, 0, 4)
    with consumer_of(logs) as consumer:
        consumer.assign([FIRST])
        seen = []
        for _where, record in consumer.records(timeout_ms=0):
            seen.append(record.offset)
            if len(seen) == 2:
                consumer.seek(FIRST, 0)
    assert seen == [0, 1, 0, 1, 2, 3]


def test_poll_waiting_is_woken_by_an_append(logs: Logs) -> None:
    """In the same process, at once, for any partition."""
    consumer = Consumer(logs, "")
    consumer.assign([FIRST, SECOND])
    consumer.seek_to_beginning()
    found: list[dict[TopicPartition, list[Record]]] = []
    thread = threading.Thread(target=lambda: found.append(consumer.poll(600_000)))
    thread.start()
    fill(logs, 1, 1)
    thread.join(60)
    assert not thread.is_alive()
    assert {SECOND: [0]} == offsets_of(found[0])
    consumer.close()


def test_iteration_ends_on_wakeup(logs: Logs) -> None:
    """From another thread; commits stay, and a later poll reads on."""
    fill(logs, 0, 2)
    consumer = Consumer(logs, "")
    consumer.assign([FIRST])
    consumer.seek_to_beginning()
    seen: list[int] = []
    reached = threading.Event()

    def read() -> None:
        for _where, record in consumer:
            seen.append(record.offset)
            if len(seen) == 2:
                reached.set()

    thread = threading.Thread(target=read)
    thread.start()
    reached.wait()
    consumer.wakeup()
    thread.join(60)
    assert not thread.is_alive()
    assert seen == [0, 1]
    fill(logs, 0, 1)
    assert {FIRST: [2]} == offsets_of(consumer.poll())
    consumer.close()


def test_async_iteration_is_woken_by_an_append(logs: Logs) -> None:
    """Other tasks run during the wait, and the task that appends wakes it."""
    fill(logs, 0, 1)
    consumer = Consumer(logs, "")
    consumer.assign([FIRST])
    consumer.seek_to_beginning()

    async def read() -> list[int]:
        seen: list[int] = []
        async for _where, record in consumer:
            seen.append(record.offset)
            if len(seen) == 3:
                break
        return seen

    async def both() -> list[int]:
        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        await asyncio.to_thread(fill, logs, 0, 1)
        await asyncio.to_thread(fill, logs, 0, 1)
        return await asyncio.wait_for(reading, 60)

    assert [0, 1, 2] == asyncio.run(both())
    consumer.close()


def test_consumer_polls_a_log_of_another_process(tmp_path: Path) -> None:
    """A log that is open read-only is refreshed repeatedly."""
    writer = Logs(tmp_path)
    writer.create_topic("orders", 1)
    fill(writer, 0, 2)
    reader = Logs(tmp_path, read_only=True)
    reader.take("orders", 0)
    consumer = Consumer(reader, "")
    consumer.assign([FIRST])
    consumer.seek_to_beginning()
    assert {FIRST: [0, 1]} == offsets_of(consumer.poll())
    found: list[dict[TopicPartition, list[Record]]] = []
    thread = threading.Thread(target=lambda: found.append(consumer.poll(600_000)))
    thread.start()
    fill(writer, 0, 1)
    thread.join(60)
    assert {FIRST: [2]} == offsets_of(found[0])
    consumer.close()
    for logs in (reader, writer):
        logs.close()


def test_subscription_finds_partitions_created_later(logs: Logs) -> None:
    """At the next refresh, after `kafkalog.poll.interval.ms`."""
    with consumer_of(logs, poll_interval_ms=100) as consumer:
        consumer.subscribe("orders", "later")
        assert len(consumer.assignment()) == 3
        logs.create_topic("later", 1)
        logs.log("later", 0).append([Record(value=b"v")])
        assert consumer.poll() == {}
        logs.clock.advance(100)
        assert {TopicPartition("later", 0): [0]} == offsets_of(consumer.poll())


def test_reopened_log_is_read_on(logs: Logs) -> None:
    """After a directory was closed and opened, another object has the records."""
    fill(logs, 0, 3)
    with consumer_of(logs, max_poll_records=2) as consumer:
        consumer.assign([FIRST])
        assert {FIRST: [0, 1]} == offsets_of(consumer.poll())
        logs.close()
        assert {FIRST: [2]} == offsets_of(consumer.poll())


def test_auto_commit_covers_records_of_earlier_polls(logs: Logs) -> None:
    """At intervals in a poll, and at close."""
    fill(logs, 0, 6)
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 1000, "max_poll_records": 2}
    offsets = GroupOffsets(logs, partition_count=1)
    with consumer_of(logs, "group", **settings) as consumer:
        consumer.assign([FIRST])
        consumer.poll()
        assert offsets.committed("group") == {}
        logs.clock.advance(1000)
        consumer.poll()
        assert offsets.committed("group")[FIRST].offset == 2
        consumer.poll()
        assert offsets.committed("group")[FIRST].offset == 2
    assert offsets.committed("group")[FIRST].offset == 6


def test_consumer_after_close_raises(logs: Logs) -> None:
    """Closing twice is fine, reading is not; its logs are no longer watched."""
    consumer = consumer_of(logs)
    consumer.assign([FIRST])
    consumer.close()
    consumer.close()
    for action in (consumer.poll, consumer.commit, lambda: consumer.subscribe("orders")):
        with pytest.raises(ClientClosedError):
            action()
    assert list(consumer) == []
    assert "closed" in repr(consumer)
    assert partition_of(logs.log("orders", 0)).appender.watcher_count == 0


def test_consumer_invalid_settings_raise(logs: Logs) -> None:
    """Unknown names and values out of range."""
    with pytest.raises(ConfigError, match="did you mean auto_offset_reset"):
        logs.clients().consumer("group", offset_reset="latest")
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset = 'begin'"):
        logs.clients().consumer("group", auto_offset_reset="begin")
    with (
        consumer_of(logs) as consumer,
        pytest.raises(ValueError, match="topics must be at least one name, got none"),
    ):
        consumer.subscribe()


def test_positions_of_a_brokers_groups_are_read() -> None:
    """A process that takes over a broker's directory resumes at its positions."""
    logs = Logs(golden.data_directory(golden.CLEAN), read_only=True, config=LogConfig())
    logs.take("__consumer_offsets", 0, 1)
    expected: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for number in (0, 1):
        log = logs.log("__consumer_offsets", number)
        for record in log.records(isolation="read_committed"):
            where = decode_key(record.key)
            if where is None:
                continue
            positions = expected.setdefault(where.group, {})
            positions.pop(TopicPartition(where.topic, where.partition), None)
            if record.value is not None:
                positions[TopicPartition(where.topic, where.partition)] = decode_value(record.value)
    offsets = GroupOffsets(logs, partition_count=1)
    assert {"txn-group", "group-classic", "group-consumer"} <= set(expected)
    for group, positions in expected.items():
        assert positions == offsets.committed(group)
    logs.close()


def test_corrupt_positions_are_skipped(logs: Logs) -> None:
    """The position before counts again, and the group reads some records twice."""
    offsets = GroupOffsets(logs, partition_count=1)
    for offset in (3, 5):
        offsets.commit("group", {FIRST: CommittedOffset(offset)}, now_ms=0, wait="written")
    logs.close()
    path = logs.directory / "__consumer_offsets-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 0xFF
    path.write_bytes(data)
    assert GroupOffsets(logs).committed("group")[FIRST].offset == 3
