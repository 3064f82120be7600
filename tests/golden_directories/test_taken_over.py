"""Clients of a manager on a broker's directory: groups continue, open transactions end."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import LogManager, TopicPartition
from kafkalog.clients.transaction_records import TransactionState, decode_key, decode_value
from tests.support import golden
from tests.support.manual_time import ManualClock, ManualScheduler

# Topics with a transaction that the brokers left open, and how many partitions they have.
OPEN = {golden.CLEAN: ("transactions", 2), golden.UNCLEAN: ("u-txn", 1)}


def manager_of(directory: Path) -> LogManager:
    """Return a manager on manual time."""
    clock = ManualClock(now_ms=2_000_000_000_000)
    return LogManager([directory], clock=clock, scheduler=ManualScheduler(clock))


def committed_values(manager: LogManager, topic: str, count: int) -> list[bytes | None]:
    """Return the values that readers of committed records see of a topic."""
    return [
        record.value
        for number in range(count)
        for record in manager.log(topic, number).records(isolation="read_committed")
    ]


@pytest.mark.parametrize("data_set", OPEN)
def test_clients_open_transaction_of_a_broker_is_aborted(data_set: str, tmp_path: Path) -> None:
    """Readers of committed records then pass the transaction and see none of its records."""
    topic, count = OPEN[data_set]
    with manager_of(golden.copy_data_directory(data_set, tmp_path / "data")) as manager:
        logs = [manager.log(topic, number) for number in range(count)]
        before = committed_values(manager, topic, count)
        still_open = sum(len(log.list_transactions()) for log in logs)
        assert still_open
        with manager.consumer() as consumer:
            consumer.subscribe(topic)
        assert [[] for _ in logs] == [log.list_transactions() for log in logs]
        assert all(log.last_stable_offset == log.log_end_offset for log in logs)
        after = committed_values(manager, topic, count)
        assert set(before) <= set(after)
        states = {}
        for number in manager.topics()["__transaction_state"]:
            for record in manager.log("__transaction_state", number).records():
                assert record.value is not None
                states[decode_key(record.key)] = decode_value(record.value).state
        assert not [each for each in states.values() if each.is_unfinished]
        assert TransactionState.COMPLETE_ABORT in states.values()


def test_clients_group_of_a_broker_continues_at_its_offset(tmp_path: Path) -> None:
    """The hash of the group's name gives its partition among those that the broker made."""
    with manager_of(golden.copy_data_directory(golden.CLEAN, tmp_path / "data")) as manager:
        with manager.consumer("group-classic", max_poll_records=5) as consumer:
            where = TopicPartition("lz4", 0)
            consumer.assign([where])
            committed = consumer.committed(where)
            assert committed is not None
            assert committed.offset > 0
            found = consumer.poll().get(where, [])
            assert [record.offset for record in found] == [
                record.offset for record in manager.log("lz4").records(committed.offset)
            ][:5]
            consumer.commit({where: committed.offset + 1})
        assert manager.topics()["__consumer_offsets"] == (0, 1)
        with manager.consumer("group-classic") as consumer:
            again = consumer.committed(where)
        assert again is not None
        assert again.offset == committed.offset + 1
