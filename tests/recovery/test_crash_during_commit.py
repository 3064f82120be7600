"""Power cuts while a transaction commits records and a group's position.

In every crash state readers of committed records see both records and the position, or none of the
three; all of them once `commit_transaction` has returned; and the next process can continue.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import KafkaLogError, LogConfig, TopicPartition
from kafkalog.clients.clients import Clients
from kafkalog.clients.group_offsets import GroupOffsets
from tests.support.crash_rig import MANY_STATES
from tests.support.disk_faults import MUTATING, SYNCING
from tests.support.log_sources import Logs
from tests.support.simulated_disk import PowerCut, SimulatedDisk

DATA = Path("/data")
INPUT = TopicPartition("input", 0)
CONFIG = LogConfig(segment_index_bytes=128, message_timestamp_after_max_ms=2**63 - 1)
TOPICS = {"orders": 2, "__consumer_offsets": 1, "__transaction_state": 1}


class Scene:
    """
    Two topics' logs on a simulated disk, the first transaction committed.

    The disk has only the bytes of it that the commit has synced, which are without its COMPLETE
    (DUR-1).
    """

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_durable(DATA)
        self.logs = Logs(DATA, filesystem=self.disk, config=CONFIG)
        self.logs.create_topic("orders", 2)
        for topic, count in TOPICS.items():
            self.logs.take(topic, *range(count))
            for number in range(count):
                self.logs.log(topic, number)
        self.disk.make_durable()
        self.producer = self.logs.clients().producer(transactional_id="t")
        self.step(b"first", 5)

    def step(self, value: bytes, offset: int) -> None:
        """Commit a record in each partition, and a position."""
        self.producer.begin_transaction()
        for partition in (0, 1):
            self.producer.send("orders", value, partition=partition)
        self.producer.send_offsets_to_transaction({INPUT: offset}, "group")
        # Without a time-out, because no other thread advances the clock or frees space.
        self.producer.commit_transaction(timeout_ms=0)

    def release(self) -> None:
        """Close in any state."""
        self.disk.clear_faults()
        with contextlib.suppress(PowerCut, KafkaLogError):
            self.producer.close(0)
        for log in self.logs.opened():
            with contextlib.suppress(PowerCut, KafkaLogError):
                log.close()


def found_on(disk: SimulatedDisk) -> Logs:
    """Return the logs that the next process finds."""
    logs = Logs(DATA, filesystem=disk, config=CONFIG)
    for topic, count in TOPICS.items():
        logs.take(topic, *range(count))
    return logs


def seen(logs: Logs) -> tuple[list[bytes | None], list[bytes | None], int]:
    """Return the committed values of both partitions, and the position."""
    # A power cut may leave a hole before records that were not synced either.
    first, second = (
        [
            record.value
            for record in logs.log("orders", number).records(
                isolation="read_committed", on_corrupt="skip"
            )
        ]
        for number in (0, 1)
    )
    return first, second, GroupOffsets(logs).committed("group")[INPUT].offset


def crashed(limit: int, only: frozenset[str]) -> Iterator[tuple[str, bool, SimulatedDisk]]:
    """Crash the second step at each call; yield the moment, if the step had returned, the disk."""
    for number in range(1, 1000):
        scene = Scene()
        scene.disk.crash_at(number, only=only)
        finished = False
        with contextlib.suppress(PowerCut):
            scene.step(b"second", 17)
            finished = True
        for choice, disk in scene.disk.crash_states(limit, seed=number):
            yield f"crash at call {number}, {choice}", finished, disk
        scene.release()
        if finished:
            return
    raise AssertionError("the commit does not end")


def check(moment: str, finished: bool, disk: SimulatedDisk) -> bool:
    """Check a crash state against the guarantees; return whether the step had happened."""
    logs = found_on(disk)
    with contextlib.closing(logs):
        clients: Clients = logs.clients()
        with clients.consumer("group") as consumer:
            consumer.assign([("orders", 0), ("orders", 1)])
            first, second, offset = seen(logs)
            happened = offset == 17
            expected = [b"first", b"second"] if happened else [b"first"]
            assert (expected, expected, 17 if happened else 5) == (first, second, offset), moment
            assert happened or not finished, moment
        with clients.producer(transactional_id="t") as producer, producer.transaction():
            producer.send("orders", b"third", partition=0)
            producer.send_offsets_to_transaction({INPUT: 30}, "group")
        assert ([*expected, b"third"], expected, 30) == seen(logs), moment
        for partition in (0, 1):
            assert logs.log("orders", partition).list_transactions() == [], moment
    return happened


def explore(limit: int, only: frozenset[str]) -> set[bool]:
    """Check every state of every crash; return the set of outcomes."""
    return {check(*each) for each in crashed(limit, only)}


def test_commit_power_cut_at_any_sync_is_atomic() -> None:
    """Nothing is committed before the decision is on the disk, and all of it afterwards."""
    assert explore(3, SYNCING) == {False, True}


@pytest.mark.slow
def test_commit_power_cut_at_any_call_is_atomic() -> None:
    """The same at every changing call, with more crash states."""
    assert explore(MANY_STATES, MUTATING) == {False, True}


def test_commit_recovery_power_cut_at_any_sync_is_atomic() -> None:
    """The next process crashes too, while it finishes the decided transaction."""
    decided = [disk for _m, finished, disk in crashed(1, SYNCING) if not finished][-1]
    for number in range(1, 200):
        disk = decided.crash()
        disk.crash_at(number, only=SYNCING)
        finished = False
        logs = found_on(disk)
        with contextlib.suppress(PowerCut):
            logs.clients().consumer("group").close()
            finished = True
        for choice, left in disk.crash_states(2, seed=number):
            check(f"crash at call {number} of recovery, {choice}", False, left)
        disk.clear_faults()
        for log in logs.opened():
            with contextlib.suppress(PowerCut, KafkaLogError):
                log.close()
        if finished:
            break
    assert finished


def test_commit_killed_at_any_call_is_atomic() -> None:
    """All bytes written before the kill survive it."""
    outcomes = set()
    for number in range(1, 1000):
        scene = Scene()
        scene.disk.crash_at(number)
        finished = False
        with contextlib.suppress(PowerCut):
            scene.step(b"second", 17)
            finished = True
        outcomes.add(check(f"killed at call {number}", finished, scene.disk.killed()))
        scene.release()
        if finished:
            break
    assert outcomes == {False, True}


@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
def test_commit_failing_call_is_atomic(error_number: int) -> None:
    """A typed error, and then all or nothing: in this process and in the next."""
    outcomes = set()
    for number in range(1, 1000):
        scene = Scene()
        scene.disk.fail_at(number, error_number, only=MUTATING)
        finished = False
        with contextlib.suppress(KafkaLogError):
            scene.step(b"second", 17)
            finished = True
        untouched = scene.disk.faults_waiting > 0
        scene.release()
        outcomes.add(check(f"call {number} failed", finished, scene.disk))
        if untouched:
            break
    assert outcomes == {False, True}
