"""Tests of the compiled parts of a commit journal: bytes of a log, entries, durable offsets."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Lock

import pytest

from kafkalog import Log, LogConfig, LogOfflineError, Record, open_log
from kafkalog._engine.commit_source import CommitSource, CommitState, PendingCommit, UnsyncedNames
from kafkalog._engine.commit_table import CommitTable
from kafkalog._engine.durable_slots import DurableSlot, SlotImage
from kafkalog.log.log import partition_of
from tests.support.reference import crc32c

BYTES_MAX = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log on a real disk, with records that were synced."""
    with open_log(tmp_path / "orders-0", config=LogConfig(segment_bytes=4096)) as made:
        made.append([Record(value=b"first")])
        made.flush()
        yield made


def source_of(log: Log) -> CommitSource:
    """Return what a journal uses of a log."""
    return partition_of(log).flusher.source


def pending_of(log: Log, bytes_max: int = BYTES_MAX) -> PendingCommit:
    """Return the bytes that a log has to commit."""
    pending = source_of(log).begin(bytes_max)
    assert pending is not None
    return pending


def entry(number: int, pending: PendingCommit, start: int, before: bytes, data: bytes) -> bytes:
    """Return the entry of the text of the layout."""
    return struct.pack(
        ">BBHIIIqqqqI",
        2,
        len(before),
        0,
        number,
        len(data),
        crc32c(data),
        pending.base_offset,
        pending.position,
        start,
        pending.end_offset,
        crc32c(before),
    )


def test_bytes_since_the_last_commit_are_what_the_file_has(log: Log) -> None:
    """Each commit begins where the one before has ended; the entries have the layout."""
    random, position, offset = Random(3), pending_of(log).end, 1
    assert pending_of(log).position == position
    table, entries, written = CommitTable(), b"", b""
    for number in range(5):
        size = 2 if number == 3 else random.randrange(1, 300)
        log.append([Record(value=random.randbytes(size)) for _ in range(random.randrange(1, 4))])
        pending = pending_of(log)
        content = (log.directory / f"{0:020}.log").read_bytes()[: pending.end]
        before, data = content[max(position - 64, 0) : position], content[position:]
        assert (pending.start_offset, pending.position, pending.base_offset) == (
            offset,
            position,
            0,
        )
        assert table.read_data(number, pending)
        entries += entry(number, pending, offset, before, data)
        written += data
        source_of(log).finish(pending)
        assert log.durable_offset == log.log_end_offset == pending.end_offset
        assert partition_of(log).flusher.synced_offset == 1
        position, offset = pending.end, pending.end_offset
    assert (table.entries(), bytes(table.data()), table.entry_count) == (entries, written, 5)
    assert (table.table_bytes, table.data_bytes) == (len(entries), len(written))


def test_file_that_is_shorter_than_its_log_is_refused(log: Log) -> None:
    """Nothing is added: the sync of the log reports it."""
    log.append([Record(value=b"second")])
    pending = pending_of(log)
    with (log.directory / f"{0:020}.log").open("r+b") as file:
        file.truncate(pending.end - 1)
    table = CommitTable()
    with pytest.raises(ValueError, match=f"ends before {pending.end}"):
        table.read_data(0, pending)
    assert (table.entry_count, table.data_bytes, table.entries()) == (0, 0, b"")


def test_logs_that_a_journal_cannot_commit_sync_their_own_files(log: Log, tmp_path: Path) -> None:
    """Too many bytes, a new segment, a closed log; a new log has a name that no disk has."""
    with open_log(tmp_path / "orders-1") as fresh:
        fresh.append([Record(value=b"v")])
        assert source_of(fresh).begin(BYTES_MAX) is None
    assert source_of(fresh).begin(BYTES_MAX) is None
    log.append([Record(value=b"v" * 100)])
    size = pending_of(log).end - pending_of(log).position
    assert source_of(log).begin(size - 1) is None
    assert source_of(log).begin(size) is not None
    log.roll()
    assert source_of(log).begin(BYTES_MAX) is None


def test_truncation_between_the_steps_leaves_the_durable_offset(log: Log) -> None:
    """The end that was read may be gone, and other records may be there."""
    log.append([Record(value=b"a"), Record(value=b"b")])
    pending = pending_of(log)
    log.truncate_to(1)
    log.append([Record(value=b"c"), Record(value=b"d")])
    source_of(log).finish(pending)
    assert log.durable_offset == 1


def test_failed_sync_ends_the_commits(log: Log) -> None:
    """No offset becomes durable any more."""
    log.append([Record(value=b"a")])
    pending = pending_of(log)
    partition_of(log).flusher.refuse(OSError("the disk"))
    with pytest.raises(LogOfflineError):
        source_of(log).finish(pending)
    assert log.durable_offset == 1
    assert source_of(log).begin(BYTES_MAX) is None


def test_state_counts_and_bounds() -> None:
    """Offsets rise and fall in their order; a change counts once."""
    state = CommitState(5)
    assert (state.raise_durable(9), state.raise_durable(9), state.durable_offset) == (
        True,
        False,
        9,
    )
    state.raise_synced(7)
    state.raise_synced(6)
    assert (state.synced_offset, state.lower(8), state.synced_offset) == (7, True, 7)
    assert (state.lower(8), state.lower(3), state.synced_offset, state.durable_offset) == (
        False,
        True,
        3,
        3,
    )
    state.count_truncation()
    state.add_waiting(2)
    state.add_waiting(-1)
    state.fail(OSError("x"))
    assert (state.truncations, state.waiting, str(state.error)) == (1, 1, "x")
    names = UnsyncedNames([])
    names.add_change()
    assert (names.changes, names.synced) == (2, 0)
    names.mark_synced(2)
    assert names.synced == 2


def test_offset_of_a_slot_is_set_with_its_checksum() -> None:
    """The other bytes of the slot, and other slots, stay."""
    image = SlotImage(Lock())
    slots = image.content
    before = Random(5).randbytes(3 * 64)
    for number in range(3):
        image.set(number, before[64 * number : 64 * (number + 1)])
    image.set_offset(1, 2**40 + 7)
    content = before[64:80] + struct.pack(">q", 2**40 + 7) + before[88:124]
    assert before[:64] + content + struct.pack(">I", crc32c(content)) + before[128:] == slots
    for number in (-1, 3):
        with pytest.raises(IndexError):
            image.set_offset(number, 1)
    with pytest.raises(ValueError, match="slot must be"):
        image.set(4, bytes(64))


def test_slot_collects_offsets_of_the_thread_that_collects() -> None:
    """Not without a collection, nor of another thread, nor once it was removed."""
    image = SlotImage(Lock())
    image.set(0, bytes(64))
    image.set(1, bytes(64))
    slot = DurableSlot(image, 1)
    assert not slot.collect_offset(5)
    assert image.begin_collection()
    assert not image.begin_collection()
    assert slot.collect_offset(6)
    with ThreadPoolExecutor(1) as other:
        assert not other.submit(slot.collect_offset, 7).result()
        assert not other.submit(image.collect, 0).result()
    assert image.collect(0)
    slot.retire()
    assert not slot.collect_offset(8)
    assert image.content[64 + 16 : 64 + 24] == struct.pack(">q", 6)
    assert image.end_collection() == [0, 1]
    assert not image.collects
    image.clear()
    assert image.slot_count == 0
    assert not DurableSlot(image, 0).collect_offset(1)
