"""The real cleaner in a manager: the records on the disk and the view of clients."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalog import (
    CleanerConfig,
    CorruptRecordError,
    DiskFullError,
    LogManager,
    Record,
    TopicPartition,
    compact_log,
)
from kafkalog.cleaner.cleaning import CleaningProgress
from kafkalog.clients.group_offsets import GroupOffsets
from kafkalog.clients.internal_topics import partition_for
from tests.support.managers import append_texts, scheduler_of
from tests.support.manual_time import START_MS
from tests.unit.manager.cleaning.test_background import (
    BACKOFF_MS,
    COMPACTED,
    first_round,
    noted,
    one_manager,
)

DAY_MS = 86_400_000


def put(manager: LogManager, *pairs: tuple[str, str | None]) -> None:
    """Append keys with values, None for a tombstone; a few records fill a segment."""
    for key, value in pairs:
        record = Record(
            key=key.encode(),
            value=None if value is None else value.encode().ljust(150),
            timestamp_ms=START_MS,
        )
        manager.log("table").append([record])


def content(manager: LogManager, topic: str = "table") -> list[tuple[int, str, str | None]]:
    """Return offset, key and value of each record."""
    return [
        (
            record.offset,
            (record.key or b"").decode(),
            None if record.value is None else record.value.decode().strip(),
        )
        for record in manager.log(topic).records()
    ]


PAIRS = [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", "2"), ("a", "3"), ("d", "1")]


def test_background_cleaning_keeps_the_latest_record_of_each_key() -> None:
    """The active segment is not cleaned."""
    disk, manager = one_manager()
    manager.create_topic("table", 1, COMPACTED)
    put(manager, *PAIRS)
    first_round(manager)
    (end,) = noted(disk).values()
    active = manager.log("table").segments()[-1].base_offset
    assert active == end > 3
    latest = {key: offset for offset, (key, _value) in enumerate(PAIRS) if offset < active}
    kept = [offset for offset, _, _ in content(manager) if offset < active]
    assert sorted(latest.values()) == kept
    assert 1 == manager.health().cleaner.cleaning_count
    (cleaning,) = manager.health().cleaner.last_cleanings.values()
    assert (0, end) == (cleaning.first_dirty, cleaning.end_offset)
    assert 0 < manager.health().cleaner.recopy_percent < 100
    manager.close()


def test_compact_include_active_cleans_the_active_segment() -> None:
    """The callback receives both stages."""
    disk, manager = one_manager()
    manager.create_topic("table", 1, COMPACTED)
    put(manager, *PAIRS)
    stages: list[str] = []
    cleaning = manager.compact(
        "table", include_active=True, on_progress=lambda progress: stages.append(progress.stage)
    )
    assert [(3, "c", "1"), (4, "b", "2"), (5, "a", "3"), (6, "d", "1")] == content(manager)
    assert 7 == cleaning.end_offset
    assert {"table-0": 7} == noted(disk)
    assert {"reading keys", "writing"} == set(stages)
    # Nothing is dirty now.
    assert 0 == manager.compact("table").map_records
    manager.close()


def test_compact_log_of_a_managers_log_pauses_background_cleaning() -> None:
    """The checkpoint of the manager has the end of the cleaning."""
    disk, manager = one_manager()
    manager.create_topic("table", 1, COMPACTED)
    put(manager, *PAIRS)
    seen: list[tuple[int, float]] = []

    def look(_progress: CleaningProgress) -> None:
        first_round(manager)
        health = manager.health().cleaner
        seen.append((health.cleaning_count, health.max_dirty_percent))

    compact_log(
        manager.log("table"),
        include_active=True,
        config=CleanerConfig(dedupe_buffer_size=2 << 20),
        on_progress=look,
    )
    # The rounds of the cleaner did not even look at it.
    assert {(0, 0.0)} == set(seen)
    assert {"table-0": 7} == noted(disk)
    first_round(manager)
    assert 0 == manager.health().cleaner.cleaning_count
    # The pause is over: what is dirty now is cleaned.
    put(manager, *PAIRS)
    first_round(manager)
    assert 1 == manager.health().cleaner.cleaning_count
    manager.close()


def test_tombstone_is_removed_after_delete_retention() -> None:
    """The first cleaning that reads a tombstone starts the time."""
    _disk, manager = one_manager(CleanerConfig(enable=False))
    manager.create_topic("table", 1, {**COMPACTED, "delete.retention.ms": "60000"})
    put(manager, ("a", "1"), ("b", "1"), ("a", None))
    manager.compact("table", include_active=True)
    assert [(1, "b", "1"), (2, "a", None)] == content(manager)
    scheduler_of(manager).clock.advance(60_001)
    put(manager, ("c", "1"))
    manager.compact("table", include_active=True)
    assert [(1, "b", "1"), (3, "c", "1")] == content(manager)
    manager.close()


def test_compact_on_a_full_disk_leaves_the_log_unchanged() -> None:
    """Appends succeed; the fault of the partition ends with the next success."""
    disk, manager = one_manager()
    manager.create_topic("table", 1, COMPACTED)
    put(manager, *PAIRS)
    before = content(manager)
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite"}), suffix=".cleaned")
    with pytest.raises(DiskFullError):
        manager.compact("table")
    assert before == content(manager)
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite"}), suffix=".cleaned")
    first_round(manager)
    assert ["kafka-log-cleaner"] == [fault.task for fault in manager.health().faults]
    put(manager, ("e", "1"))
    assert before == content(manager)[:-1]
    scheduler_of(manager).advance(2 * BACKOFF_MS)
    assert () == manager.health().faults
    assert len(before) > len(content(manager))
    assert [] == [name for name in disk.list(manager.log("table").directory) if "clean" in name]
    manager.close()


def test_compact_damaged_batch_raises_and_changes_no_file(tmp_path: Path) -> None:
    """The error has the path of the damaged segment."""
    config = one_manager()[1].config
    with LogManager([tmp_path], config) as manager:
        manager.create_topic("table", 1, COMPACTED)
        put(manager, *PAIRS)
        manager.log("table").roll()
        before = content(manager)
        path = manager.log("table").segments()[1].path
        data = bytearray(path.read_bytes())
        data[70] ^= 0xFF
        path.write_bytes(data)
        files = {each: each.read_bytes() for each in path.parent.glob("*.log*")}
        with pytest.raises(CorruptRecordError) as caught:
            manager.compact("table")
        assert str(path) == str(caught.value.path)
        assert files == {each: each.read_bytes() for each in path.parent.glob("*.log*")}
        data[70] ^= 0xFF
        path.write_bytes(data)
    # An open log keeps its corrupt ranges, so the repaired file needs a new manager.
    with LogManager([tmp_path], config) as manager:
        assert before == content(manager)


def test_truncation_below_the_cleaned_offset_makes_new_records_dirty() -> None:
    """The next compaction reads the new records at the old offsets."""
    disk, manager = one_manager()
    manager.create_topic("table", 1, COMPACTED)
    put(manager, *PAIRS)
    manager.compact("table", include_active=True)
    manager.log("table").truncate_to(5)
    assert noted(disk)["table-0"] <= 5
    put(manager, ("b", "new"), ("c", "new"), ("b", "newer"))
    manager.compact("table", include_active=True)
    assert [(6, "c", "new"), (7, "b", "newer")] == content(manager)
    manager.close()


def test_group_positions_survive_the_compaction_of_their_topic() -> None:
    """For old and new readers; a removed position stays removed."""
    _disk, manager = one_manager(CleanerConfig(enable=False))
    manager.create_topic("orders")
    append_texts(manager, "orders", 0, *"abcdef")
    offsets = GroupOffsets(manager, clock=scheduler_of(manager).clock, partition_count=1)
    where = TopicPartition("orders", 0)

    def commit(group: str, offset: int | None) -> None:
        now_ms = scheduler_of(manager).clock.now_ms()
        offsets.commit(group, {where: offset}, now_ms=now_ms, wait="written")

    def positions(group: str, reader: GroupOffsets) -> list[int]:
        return [position.offset for position in reader.committed(group).values()]

    commit("leaves", 1)
    for offset in range(5):
        commit("stays", offset)
    assert ([1], [4]) == (positions("leaves", offsets), positions("stays", offsets))
    commit("leaves", None)
    manager.compact("__consumer_offsets", include_active=True)
    scheduler_of(manager).clock.advance(DAY_MS + 1)
    commit("stays", 5)
    cleaning = manager.compact("__consumer_offsets", include_active=True)
    assert 1 == cleaning.statistics.tombstones_expired
    assert 1 == sum(1 for _ in manager.log("__consumer_offsets").records())
    for reader in (offsets, GroupOffsets(manager)):
        assert ([], [5]) == (positions("leaves", reader), positions("stays", reader))
    manager.close()


def test_transactions_continue_after_the_compaction_of_their_topic() -> None:
    """The latest record of a transactional id has its state."""
    _disk, manager = one_manager(CleanerConfig(enable=False))
    manager.create_topic("orders")
    number = partition_for("payments", 50)
    with manager.producer(transactional_id="payments") as producer:
        for payment in range(4):
            producer.begin_transaction()
            producer.send("orders", value=b"%d" % payment)
            producer.commit_transaction()
            manager.compact("__transaction_state", number, include_active=True)
        producer.begin_transaction()
        producer.send("orders", value=b"open")
        producer.flush()
        manager.compact("__transaction_state", number, include_active=True)
        producer.abort_transaction()
    manager.compact("__transaction_state", number, include_active=True)
    assert 1 == sum(1 for _ in manager.log("__transaction_state", number).records())
    with manager.producer(transactional_id="payments") as producer:
        producer.begin_transaction()
        producer.send("orders", value=b"4")
        producer.commit_transaction()
    committed = manager.log("orders").records(isolation="read_committed")
    assert [b"0", b"1", b"2", b"3", b"4"] == [record.value for record in committed]
    manager.close()
