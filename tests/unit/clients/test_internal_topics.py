"""Internal topics with a broker's partition count, and the move from a single partition (INT-2)."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

from kafkalog import KafkaLogError, LogManager, LogOfflineError, ManagerConfig, TopicPartition
from kafkalog.clients.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE, partition_for
from kafkalog.config import LogConfig
from tests.support.disk_faults import SYNCING
from tests.support.managers import manual_manager
from tests.support.simulated_disk import PowerCut, SimulatedDisk

DATA = Path("/data")
A, B = Path("/disks/a"), Path("/disks/b")
ORDERS = TopicPartition("orders", 0)
GROUPS = tuple(f"group {letter}" for letter in "abcdef")
LOG = LogConfig(segment_index_bytes=128)


def config_of(count: int) -> ManagerConfig:
    """Return settings with `count` partitions of both topics."""
    return ManagerConfig(
        log=LOG, offsets_topic_num_partitions=count, transaction_state_log_num_partitions=count
    )


def positions(manager: LogManager) -> dict[str, int]:
    """Return the position of each group."""
    found = {}
    for group in GROUPS:
        with manager.consumer(group) as consumer:
            position = consumer.committed(ORDERS)
            if position is not None:
                found[group] = position.offset
    return found


def values(manager: LogManager) -> list[bytes | None]:
    """Return the committed values."""
    log = manager.log(*ORDERS)
    return [record.value for record in log.records(isolation="read_committed")]


def write_with_one_partition(manager: LogManager) -> None:
    """Commit positions, remove one, and leave a transaction open."""
    manager.create_topic("orders")
    for number, group in enumerate(GROUPS, start=1):
        with manager.consumer(group) as consumer:
            consumer.commit({ORDERS: number})
    with manager.consumer(GROUPS[0]) as consumer:
        consumer.commit({ORDERS: None})
    with manager.producer(transactional_id="done") as done, done.transaction():
        done.send("orders", b"committed")
        done.send_offsets_to_transaction({ORDERS: 20}, GROUPS[1])
    open_one = manager.producer(transactional_id="open")
    open_one.begin_transaction()
    open_one.send("orders", b"open")
    open_one.send_offsets_to_transaction({ORDERS: 30}, GROUPS[2])
    open_one.flush()


EXPECTED = {GROUPS[1]: 20, GROUPS[2]: 3, GROUPS[3]: 4, GROUPS[4]: 5, GROUPS[5]: 6}


def check_moved(manager: LogManager, count: int) -> None:
    """Check the content, and that both topics have `count` partitions."""
    assert positions(manager) == EXPECTED
    for name in ("done", "open"):
        with manager.producer(transactional_id=name) as producer, producer.transaction():
            producer.send("orders", name.encode())
    assert values(manager) == [b"committed", b"done", b"open"]
    for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        assert manager.topics()[topic] == tuple(range(count))
    for group in EXPECTED:
        log = manager.log(CONSUMER_OFFSETS, partition_for(group, count))
        assert any(group.encode() in (record.key or b"") for record in log.records())
    log = manager.log(TRANSACTION_STATE, partition_for("done", count))
    assert any((record.key or b"").endswith(b"done") for record in log.records())


def test_internal_topics_have_50_partitions_by_default(tmp_path: Path) -> None:
    """INT-2: as a broker has without a setting."""
    with LogManager(tmp_path) as manager:
        manager.create_topic("orders")
        with manager.consumer("group") as consumer:
            consumer.commit({ORDERS: 1})
        with manager.producer(transactional_id="t") as producer, producer.transaction():
            producer.send("orders", b"v")
        counts = {topic: len(numbers) for topic, numbers in manager.topics().items()}
    assert counts == {"orders": 1, CONSUMER_OFFSETS: 50, TRANSACTION_STATE: 50}
    # "group".hashCode() is 98629247, "t".hashCode() is 116.
    assert (47, 16) == (partition_for("group", 50), partition_for("t", 50))
    held = {each.parent.name for each in tmp_path.glob("__*/*.log")}
    assert held == {"__consumer_offsets-47", "__transaction_state-16"}, "others have no files"


def test_topics_of_one_partition_move_to_the_partitions_of_a_broker(tmp_path: Path) -> None:
    """INT-2: an earlier version created them; positions and transactional ids are kept."""
    with LogManager(tmp_path, config_of(1)) as manager:
        write_with_one_partition(manager)
    for _ in range(2):
        with LogManager(tmp_path, config_of(50)) as manager:
            assert positions(manager) == EXPECTED
    with LogManager(tmp_path, config_of(50)) as manager:
        check_moved(manager, 50)


def test_position_removed_after_a_move_stays_removed(tmp_path: Path) -> None:
    """The old record in partition 0 does not restore it."""
    with LogManager(tmp_path, config_of(1)) as manager:
        write_with_one_partition(manager)
    with LogManager(tmp_path, config_of(3)) as manager:
        for group in EXPECTED:
            with manager.consumer(group) as consumer:
                consumer.commit({ORDERS: None})
        manager.compact(CONSUMER_OFFSETS, 0, include_active=True)
    with LogManager(tmp_path, config_of(3)) as manager:
        assert positions(manager) == {}


def test_topic_of_one_partition_made_by_a_broker_is_not_moved(tmp_path: Path) -> None:
    """The cluster sets its count; without a note the manager did not create it."""
    with LogManager(tmp_path, config_of(1)) as manager:
        write_with_one_partition(manager)
    for note in tmp_path.glob(".kafkalog_topics*"):
        note.unlink()
    with LogManager(tmp_path, config_of(50)) as manager:
        assert positions(manager) == EXPECTED
        assert manager.topics()[CONSUMER_OFFSETS] == (0,)


def moved_or_cut(disk: SimulatedDisk) -> bool:
    """Open the data, which moves it; return whether the move ended before the power cut."""
    manager: LogManager | None = None
    try:
        manager = manual_manager(DATA, config=config_of(3), filesystem=disk)
        positions(manager)
        manager.producer(transactional_id="done").close()
    except PowerCut:
        return False
    finally:
        if manager is not None:
            with contextlib.suppress(PowerCut, KafkaLogError):
                manager.close()
    return True


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_move_crashed_at_any_sync_is_completed(step: int) -> None:
    """INT-2: a power cut at any sync loses nothing and restores nothing that was removed."""
    before = SimulatedDisk()
    before.make_durable(DATA)
    manager = manual_manager(DATA, config=config_of(1), filesystem=before)
    write_with_one_partition(manager)
    before.make_durable()
    checked = 0
    for number in range(1, 2000, step):
        disk = before.crash()
        disk.crash_at(number, only=SYNCING)
        finished = moved_or_cut(disk)
        for _choice, left in disk.crash_states(2, seed=number):
            with contextlib.closing(
                manual_manager(DATA, config=config_of(3), filesystem=left)
            ) as found:
                check_moved(found, 3)
            checked += 1
        if finished:
            break
    assert checked > 10
    manager.close()


def test_positions_in_an_offline_directory_raise() -> None:
    """INT-2: a group whose partition may be offline does not count as a group without positions."""
    disk = SimulatedDisk()
    manager = manual_manager(A, B, config=config_of(4), filesystem=disk)
    manager.create_topic("orders")
    for group in GROUPS:
        with manager.consumer(group) as consumer:
            consumer.commit({ORDERS: 7})
    lying = {
        group: manager.directory_of(CONSUMER_OFFSETS, partition_for(group, 4)) for group in GROUPS
    }
    assert {A, B} == set(lying.values())
    manager.close()
    for away, near in ((A, B), (B, A)):
        disk.fail_at(1, errno.EIO, only=frozenset({"open"}), suffix=f"{away.name}/meta.properties")
        with contextlib.closing(
            manual_manager(A, B, config=config_of(4), filesystem=disk)
        ) as found:
            assert len(found.topics()[CONSUMER_OFFSETS]) == 2
            for group, where in lying.items():
                with found.consumer(group) as consumer:
                    if where == near:
                        # The last partition is in B: without it the count is not known.
                        with contextlib.suppress(LogOfflineError):
                            assert consumer.committed(ORDERS) is not None
                    else:
                        with pytest.raises(LogOfflineError):
                            consumer.committed(ORDERS)
            found.bring_online(away)
            assert positions(found) == dict.fromkeys(GROUPS, 7)
