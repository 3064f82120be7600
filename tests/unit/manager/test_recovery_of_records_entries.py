"""Records that only the commit journal has: appended, equal, refused, and kept for later."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path
from uuid import UUID

import pytest

from kafkalog import LogConfig, LogManager, ManagerConfig, Record
from kafkalog.state.commit_journal import PartitionName
from tests.support.journaled_records import (
    CONFIG,
    Journal,
    journal_names,
    record,
    rows,
    rows_of,
    texts_of,
    unclean_disk,
)
from tests.support.managers import manual_manager
from tests.support.simulated_disk import SimulatedDisk

A = Path("/disks/a")
FIRST = f"{A}/t-0/00000000000000000000.log"


def opened(disk: SimulatedDisk, config: ManagerConfig = CONFIG) -> LogManager:
    """Return a manager of a disk."""
    return manual_manager(A, config=config, filesystem=disk)


def refused(disk: SimulatedDisk, *texts: str, reason: str, partition: int = 0) -> None:
    """Assert that a start leaves a log as it is, reports it, and keeps the journal."""
    with contextlib.closing(opened(disk)) as manager:
        found = [(value or b"").decode() for *_fields, value in rows(manager, partition)]
        assert list(texts) == found
        faults = [each for each in manager.health().faults if each.task == "commit-journal"]
        assert [A / f"t-{partition}"] == [each.subject for each in faults]
        message = str(faults[0].error)
        for part in (f"{A}/t-{partition}: offsets", "at position", ".kafkalog_journal.1", reason):
            assert part in message
        # It takes appends.
        manager.log("t", partition).append([Record(value=b"new")])
    assert [".kafkalog_journal.1.unapplied"] == journal_names(disk)


def test_a_log_gets_all_records_that_it_lacks() -> None:
    """Of several commits, with their times; durable, and in one batch."""
    disk = unclean_disk().crash()
    journal = Journal(disk)
    journal.add(1, "a", "b")
    journal.add(3, "c")
    with contextlib.closing(opened(disk)) as manager:
        assert rows_of(["kept", "a", "b", "c"]) == rows(manager)
        assert len(list(manager.log("t").batches())) == 2
        assert manager.log("t").durable_offset == 4
        assert not manager.health().faults
        # At once, without the close.
        assert texts_of(disk.crash()) == ["kept", "a", "b", "c"]
    assert texts_of(disk) == ["kept", "a", "b", "c"]


def test_an_empty_log_gets_records() -> None:
    """From offset 0 on."""
    disk = unclean_disk(synced=()).crash()
    Journal(disk).add(0, "a", "b")
    assert texts_of(disk) == ["a", "b"]


def test_null_fields_are_restored() -> None:
    """Records without a key, a value, a time."""
    disk = unclean_disk(synced=()).crash()
    journal = Journal(disk)
    journal.add_rows(0, [(-1, None, b"a"), (5, b"k", None), (2**62, b"", b"")])
    with contextlib.closing(opened(disk)) as manager:
        assert [(0, -1, None, b"a"), (1, 5, b"k", None), (2, 2**62, b"", b"")] == rows(manager)


def test_a_log_gets_the_records_above_its_end() -> None:
    """It has a part of them, in a batch of another form."""
    disk = unclean_disk("a", "b")
    journal = Journal(disk)
    journal.add(1, "a")
    journal.add(2, "b", "c", "d")
    assert texts_of(disk.killed()) == ["kept", "a", "b", "c", "d"]


def test_a_log_that_has_the_records_is_not_changed() -> None:
    """A log with more is not changed either."""
    disk = unclean_disk("a", "b", "c")
    journal = Journal(disk)
    journal.add(1, "a")
    journal.add(2, "b")
    before = disk.snapshot()[FIRST]
    left = disk.killed()
    assert texts_of(left) == ["kept", "a", "b", "c"]
    assert left.snapshot()[FIRST] == before


def test_a_torn_tail_is_replaced_by_the_records() -> None:
    """The recovery of the log cuts it before."""
    for cut in (1, 9, 40, 69, 70, 71, 110, 139, 140):
        disk = unclean_disk("a", "b")
        journal = Journal(disk)
        journal.add(1, "a", "b")
        handle = disk.open(Path(FIRST), write=True)
        handle.truncate(handle.size() - cut)
        handle.close()
        assert texts_of(disk.killed()) == ["kept", "a", "b"]


def test_a_log_without_a_segment_gets_records() -> None:
    """The name of its first one was not on the disk."""
    disk = unclean_disk(synced=()).crash()
    for name in disk.list(A / "t-0"):
        if name != "partition.metadata":
            disk.unlink(A / "t-0" / name)
    Journal(disk).add(0, "a", "b")
    assert texts_of(disk) == ["a", "b"]


def test_bytes_above_a_cut_are_kept() -> None:
    """Of the segment that is cut, and of those after it."""
    texts = [letter * 600 for letter in "abcdefgh"]
    disk = unclean_disk(*texts)
    journal = Journal(disk)
    for offset, text in enumerate(texts[:3], 1):
        journal.add(offset, text)
    handle = disk.open(Path(FIRST), write=True)
    handle.pwrite(bytes(20), 800)
    handle.close()
    before = disk.snapshot()
    left = disk.killed()
    assert texts_of(left) == ["kept", *texts[:3]]
    after = left.snapshot()
    assert after[f"{FIRST}.744.broken"] == (before[FIRST] or b"")[744:]
    second = f"{A}/t-0/00000000000000000006.log"
    assert after[f"{second}.0.broken"] == before[second]


def test_batches_that_a_power_cut_took_are_restored() -> None:
    """Whatever survives of the later ones; those that no commit has may be lost."""
    texts = [letter * 600 for letter in "abcdef"]
    disk = unclean_disk(*texts)
    journal = Journal(disk)
    for offset, text in enumerate(texts[:4], 1):
        journal.add(offset, text)
    holes = 0
    for choice, left in disk.crash_states(60, seed=3):
        found = texts_of(left)
        assert found[:5] == ["kept", *texts[:4]], choice
        assert set(found[5:]) <= set(texts[4:])
        holes += len(found) > 5
    assert holes


def test_a_cut_before_records_of_the_journal_is_refused() -> None:
    """Records below them are damaged, which were durable: nothing is truncated."""
    texts = [letter * 600 for letter in "abcd"]
    disk = unclean_disk(*texts)
    Journal(disk).add(3, texts[2])
    left = disk.killed()
    handle = left.open(Path(FIRST), write=True)
    handle.pwrite(bytes(900), 800)
    handle.close()
    refused(left, "kept", texts[0], texts[3], reason="the log is damaged from offset 2 on")


@pytest.mark.parametrize(
    ("unsynced", "reason"),
    [
        (["other"], "the log has another record at offset 1"),
        (["a", "other"], "the log has another record at offset 2"),
        (["a", "b", "other"], "the log has another record at offset 3"),
    ],
)
def test_records_of_another_program_are_not_changed(unsynced: list[str], reason: str) -> None:
    """Nothing is appended after them."""
    disk = unclean_disk(*unsynced)
    journal = Journal(disk)
    journal.add(1, "a")
    journal.add(2, "b", "c")
    journal.add(4, "d")
    refused(disk.killed(), "kept", *unsynced, reason=reason)


@pytest.mark.parametrize(
    "other",
    [
        Record(key=b"other", value=b"a", timestamp_ms=1001),
        Record(key=b"1", value=b"a", timestamp_ms=1000),
        Record(key=b"1", value=None, timestamp_ms=1001),
        Record(key=b"1", value=b"a", timestamp_ms=1001, headers=[("h", b"")]),
    ],
)
def test_a_record_with_another_field_is_of_another_program(other: Record) -> None:
    """Key, time, value, headers."""
    disk = unclean_disk().killed()
    with contextlib.closing(opened(disk, CONFIG.replace(journal_enable=False))) as manager:
        manager.log("t").append([other])
    disk.unlink(A / ".kafka_cleanshutdown")
    Journal(disk).add(1, "a")
    with contextlib.closing(opened(disk)) as manager:
        (fault,) = manager.health().faults
        assert "another record at offset 1" in str(fault.error)


def test_a_marker_in_the_place_of_a_record_is_of_another_program() -> None:
    """Readers get no record of it."""
    disk = unclean_disk().killed()
    with contextlib.closing(opened(disk, CONFIG.replace(journal_enable=False))) as manager:
        with manager.producer(transactional_id="x") as producer, producer.transaction():
            producer.send("t", b"in it", partition=0)
        end = manager.log("t").log_end_offset
    disk.unlink(A / ".kafka_cleanshutdown")
    Journal(disk).add(end - 1, "a")
    refused(disk, "kept", "in it", reason=f"a transaction marker at offset {end - 1}")


def test_a_gap_before_the_records_is_refused() -> None:
    """Something before them is missing."""
    disk = unclean_disk().crash()
    journal = Journal(disk)
    journal.add(1, "a")
    journal.add(4, "d")
    refused(disk, "kept", "a", reason="the log ends at offset 2")


def test_records_below_the_log_start_count_as_applied() -> None:
    """Records above it are compared."""
    disk = unclean_disk("a", "b", "c").killed()
    with contextlib.closing(opened(disk, CONFIG.replace(journal_enable=False))) as manager:
        manager.log("t").delete_records(3)
    disk.unlink(A / ".kafka_cleanshutdown")
    Journal(disk).add(1, "gone", "gone", "c", "d")
    assert texts_of(disk) == ["c", "d"]


def test_records_that_a_compaction_removed_count_as_applied() -> None:
    """Of another program: a compaction of this library cancels the entries."""
    disk = unclean_disk().killed()
    without = CONFIG.replace(journal_enable=False)
    with contextlib.closing(opened(disk, without)) as manager:
        manager.reconfigure("t", {"cleanup.policy": "compact"})
        for text in ("a", "b"):
            manager.log("t").append([Record(key=b"1", value=text.encode(), timestamp_ms=1001)])
        manager.log("t").roll()
        manager.log("t").append([record(3, "c")])
        manager.compact("t")
        assert [0, 2, 3] == [row[0] for row in rows(manager)]
    disk.unlink(A / ".kafka_cleanshutdown")
    journal = Journal(disk)
    journal.add(1, "a")
    journal.add(3, "c", "d")
    with contextlib.closing(opened(disk)) as manager:
        assert [0, 2, 3, 4] == [row[0] for row in rows(manager)]
        assert not manager.health().faults


def test_a_void_entry_cancels_records_before_it() -> None:
    """A truncation; later ones count."""
    disk = unclean_disk("a")
    journal = Journal(disk)
    journal.add(1, "x", "y", "z")
    journal.add_void()
    journal.add(1, "a", "b")
    assert texts_of(disk.killed()) == ["kept", "a", "b"]


def test_records_of_another_topic_id_are_refused() -> None:
    """A topic was created again with the name."""
    disk = unclean_disk().crash()
    Journal(disk).add(1, "a", name=PartitionName("t-0", UUID(int=9)))
    with contextlib.closing(opened(disk)) as manager:
        assert rows_of(["kept"]) == rows(manager)
        (fault,) = manager.health().faults
        assert "the topic has another id now" in str(fault.error)
    assert [".kafkalog_journal.1.unapplied"] == journal_names(disk)


def test_records_of_a_missing_partition_are_kept() -> None:
    """In the file, which gets another name; the other partition gets its records."""
    disk = unclean_disk(count=2).crash()
    journal = Journal(disk)
    journal.add(1, "a", name=PartitionName("gone-0", UUID(int=9)))
    journal.add(1, "b", partition=1)
    with contextlib.closing(opened(disk)) as manager:
        assert rows_of(["kept", "b"]) == rows(manager, 1)
        (fault,) = manager.health().faults
        assert f"{A}/gone-0 is missing" in str(fault.error)
    assert [".kafkalog_journal.1.unapplied"] == journal_names(disk)


def test_damaged_data_of_records_is_refused() -> None:
    """The checksum of the entry holds, but not the number of its records."""
    disk = unclean_disk().crash()
    journal = Journal(disk)
    journal.add(1, "a")
    journal.add_undecodable(2, 3)
    refused(disk, "kept", "a", reason="the journal has no whole records of them any more")


def test_data_that_is_refused_keeps_records_from_the_log() -> None:
    """Another program has written to the log: nothing is added to it."""
    disk = unclean_disk().crash()
    journal = Journal(disk)
    journal.add(1, "a")
    journal.add_data(50, 2, b"other bytes", b"no batch")
    with contextlib.closing(opened(disk)) as manager:
        assert rows_of(["kept"]) == rows(manager)
        assert len(manager.health().faults) == 1
    assert [".kafkalog_journal.1.unapplied"] == journal_names(disk)


def test_data_and_records_are_applied_together() -> None:
    """The bytes of a batch first, then the records after it."""
    disk = unclean_disk("a")
    content = disk.snapshot()[FIRST] or b""
    left = disk.crash()
    size = len(left.snapshot()[FIRST] or b"")
    journal = Journal(left)
    journal.add(1, "a")
    journal.add_data(size, 1, content[size - 20 : size], content[size:])
    journal.add(2, "b")
    assert texts_of(left) == ["kept", "a", "b"]


def refuse_to_open(disk: SimulatedDisk) -> None:
    """Let the next opening of the segment of partition 0 be denied."""
    suffix = "t-0/00000000000000000000.log"
    disk.fail_at(1, errno.EACCES, only=frozenset({"open"}), suffix=suffix)


def test_partition_that_cannot_be_opened_keeps_its_records() -> None:
    """Over two starts and a power cut; the copy is in a file that takes records."""
    disk = unclean_disk(count=2).crash()
    journal = Journal(disk)
    journal.add(1, "a", "b")
    journal.add(1, "x", partition=1)
    for _ in range(2):
        refuse_to_open(disk)
        manager = opened(disk)
        assert rows_of(["kept", "x"]) == rows(manager, 1)
        assert len(journal_names(disk)) == 1
        disk = disk.crash()
    refuse_to_open(disk)
    manager = opened(disk)
    # A recovery in this process.
    assert rows_of(["kept", "a", "b"]) == rows(manager, 0)
    manager.log("t", 0).append([Record(value=b"c")])
    manager.flush()
    with contextlib.closing(opened(disk.crash())) as again:
        assert [b"kept", b"a", b"b", b"c"] == [row[3] for row in rows(again, 0)]
        assert not again.health().faults
    manager.close()
    assert not journal_names(disk)


def test_recovery_in_this_process_restores_what_a_power_cut_took() -> None:
    """The truncation does not cancel the records in the journal that it needs."""
    texts = [letter * 600 for letter in "abcd"]
    disk = unclean_disk(*texts)
    journal = Journal(disk)
    for offset, text in enumerate(texts[:3], 1):
        journal.add(offset, text)
    left = disk.killed()
    handle = left.open(Path(FIRST), write=True)
    handle.pwrite(bytes(600), 1000)
    handle.sync()
    handle.close()
    refuse_to_open(left)
    manager = opened(left)
    assert ["kept", *texts[:3]] == [(row[3] or b"").decode() for row in rows(manager)]
    with contextlib.closing(opened(left.crash())) as again:
        assert ["kept", *texts[:3]] == [(row[3] or b"").decode() for row in rows(again)]
    manager.close()


def test_disk_that_refuses_the_append_is_tried_again() -> None:
    """The partition has a fault until then, and keeps its records."""
    disk = unclean_disk().crash()
    Journal(disk).add(1, "a" * 100, "b")
    disk.fail_at(2, errno.ENOSPC, only=frozenset({"pwrite"}), suffix="00.log")
    manager = opened(disk)
    assert not disk.faults_waiting
    assert ["open"] == [each.task for each in manager.health().faults]
    assert rows_of(["kept", "a" * 100, "b"]) == rows(manager)
    assert not manager.health().faults
    manager.close()
    assert not journal_names(disk)


@pytest.mark.parametrize(
    "log",
    [
        LogConfig(max_message_bytes=70, batch_bytes=70),
        LogConfig(cleanup_policy=("compact",)),
        LogConfig(message_timestamp_before_max_ms=1, message_timestamp_after_max_ms=1),
        LogConfig(message_timestamp_type="LogAppendTime", compression_type="gzip"),
        LogConfig(segment_bytes=200),
        LogConfig(message_format_version="0.10.2"),
    ],
)
def test_settings_of_today_refuse_no_record(log: LogConfig) -> None:
    """They were accepted by those of then."""
    disk = unclean_disk().crash()
    Journal(disk).add_rows(1, [(5, None, b"a" * 300), (2**62, None, b"b"), (-1, b"k", None)])
    with contextlib.closing(opened(disk, CONFIG.replace(log=log))) as manager:
        assert [
            (1, 5, None, b"a" * 300),
            (2, 2**62, None, b"b"),
            (3, -1, b"k", None),
        ] == rows(manager)[1:]
        assert not manager.health().faults


def close_in_order(disk: SimulatedDisk) -> None:
    """Let another program have closed the directory since."""
    disk.create_new(A / ".kafka_cleanshutdown").close()


def test_journal_of_a_directory_that_was_closed_since_is_removed() -> None:
    """The logs have all of it."""
    disk = unclean_disk("a", "b").killed()
    Journal(disk).add(1, "a", "b")
    close_in_order(disk)
    assert texts_of(disk) == ["kept", "a", "b"]


@pytest.mark.parametrize(
    ("unsynced", "reason"),
    [
        (["a"], "another program has closed the directory in order"),
        ([], "another program has closed the directory in order"),
        (["other"], "the log has another record at offset 1"),
    ],
)
def test_journal_of_a_directory_that_was_closed_since_is_not_applied(
    unsynced: list[str], reason: str
) -> None:
    """The log lacks some of it, or has other records."""
    disk = unclean_disk(*unsynced).killed()
    Journal(disk).add(1, "a", "b")
    close_in_order(disk)
    refused(disk, "kept", *unsynced, reason=reason)
