"""Tests of the records of one log that wait for their append: lists, offsets, durable offset."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kafkalog import Record
from kafkalog._core.record_groups import whole_group
from kafkalog.log.log import partition_of
from tests.support.delayed_logs import JOURNAL, DelayedLogs
from tests.support.manual_time import START_MS

BYTES_MAX = 1 << 20


def size_of(keys: list[bytes | None], values: list[bytes | None]) -> int:
    """Return the size of records that a log accounts for."""
    return whole_group(keys, values).size_bytes


def check_size(logs: DelayedLogs) -> None:
    """The size is that of the records that wait."""
    for each in logs.records:
        keys, values, timestamps = each.fields()
        assert len(keys) == len(values) == len(timestamps) == len(each)
        assert each.size_bytes == size_of(list(keys), list(values))


def test_records_without_offsets_are_empty() -> None:
    """A log that has not taken any."""
    logs = DelayedLogs(1)
    (records,) = logs.records
    assert (len(records), records.next_offset, records.recorded_offset) == (0, -1, -1)
    assert (records.first_sequence, records.last_sequence, records.size_bytes) == (-1, -1, 0)
    assert (records.has_failed, records.fields()) == (False, ([], [], []))
    records.cover()
    records.drop_first(3)
    assert not partition_of(logs.logs[0]).gate.state.has_delayed
    with pytest.raises(TypeError):
        copy.copy(records)
    logs.close()


def test_first_records_are_dropped() -> None:
    """No record, some, all, more than there are; the offsets stay."""
    logs = DelayedLogs(1)
    (records,) = logs.records
    logs.send(*"abcdef")
    for dropped, first, left in ((0, 0, 6), (2, 2, 4), (-1, 2, 4), (1, 3, 3)):
        records.drop_first(dropped)
        assert (records.first_offset, len(records), records.next_offset) == (first, left, 6)
        check_size(logs)
    fields = records.fields()
    records.drop_first(4)
    assert (records.first_offset, len(records), records.next_offset) == (6, 0, 6)
    assert records.size_bytes == 0
    # The lists that the caller has stay.
    assert fields[1] == [b"d", b"e", b"f"]
    records.release()
    logs.close()


@pytest.mark.parametrize(
    ("offset", "left", "next_offset"),
    [(9, 4, 6), (6, 4, 6), (5, 3, 5), (3, 1, 3), (2, 0, 2), (1, 0, 2), (0, 0, 2)],
)
def test_last_records_are_dropped(offset: int, left: int, next_offset: int) -> None:
    """From an offset on; the next offset is never below the log end."""
    logs = DelayedLogs(1)
    (records,) = logs.records
    logs.send(*"ab")
    logs.appends(0).append_due()
    logs.send(*"cdef")
    records.drop_after(offset)
    assert (len(records), records.next_offset) == (left, next_offset)
    assert records.first_offset == 2
    check_size(logs)
    logs.appends(0).append_all()
    assert logs.values() == list("abcdef")[:next_offset]
    logs.close()


def test_release_gives_up_the_offsets() -> None:
    """The next ones are those after the log end, whatever appends in between."""
    logs = DelayedLogs(1)
    (records,) = logs.records
    state = partition_of(logs.logs[0]).gate.state
    logs.send("a")
    assert state.has_delayed
    assert logs.appends(0).append_due()
    assert (state.has_delayed, records.next_offset) == (True, 1)
    assert not logs.appends(0).append_due()
    assert (state.has_delayed, records.next_offset) == (False, -1)
    logs.logs[0].append([Record(value=b"b")])
    logs.logs[0].flush()
    assert logs.send("c").first_offset(0) == 2
    logs.appends(0).append_all()
    assert (state.has_delayed, records.next_offset, logs.values()) == (False, -1, ["a", "b", "c"])
    logs.close()


def test_blocked_records_take_no_more() -> None:
    """Until it is lifted."""
    logs = DelayedLogs(1)
    (records,) = logs.records
    records.record_outcome(has_failed=True)
    assert records.has_failed
    assert not records.can_take_more(START_MS, START_MS, 10)
    records.record_outcome(has_failed=False)
    assert records.can_take_more(START_MS, START_MS, 10)
    logs.close()


def test_log_that_is_not_durable_takes_none() -> None:
    """An acknowledgement is one of the records before it, too; offsets that are reserved stay."""
    logs = DelayedLogs(1)
    (records,) = logs.records
    logs.logs[0].append([Record(value=b"a")])
    assert not records.can_take_more(START_MS, START_MS, 10)
    logs.logs[0].flush()
    assert records.can_take_more(START_MS, START_MS, 10)
    logs.send("b")
    logs.appends(0).append_due()
    assert logs.logs[0].durable_offset < logs.logs[0].log_end_offset
    assert records.can_take_more(START_MS, START_MS, 10)
    logs.close()


@pytest.mark.parametrize("limit", ["max_message_bytes", "segment_bytes"])
def test_size_is_that_of_a_batch(limit: str) -> None:
    """A batch has 61 bytes more than its records."""
    settings: dict[str, Any] = {limit: 1000}
    logs = DelayedLogs(1, **settings)
    (records,) = logs.records
    assert records.can_take_more(START_MS, START_MS, 1000 - 61)
    assert not records.can_take_more(START_MS, START_MS, 1000 - 60)
    logs.close()


def test_recorded_commits_count_until_they_are_forgotten() -> None:
    """First and last sequence, and the highest offset."""
    logs = DelayedLogs(1)
    (records,) = logs.records
    sent = [logs.send(*texts) for texts in ("ab", "c", "de")]
    for sequence, each in enumerate(sent, 7):
        each.record([0], sequence)
    assert (records.recorded_offset, records.first_sequence, records.last_sequence) == (5, 7, 9)
    records.forget(8)
    assert (records.recorded_offset, records.first_sequence, records.last_sequence) == (5, 8, 9)
    records.forget()
    assert (records.recorded_offset, records.first_sequence) == (-1, -1)
    logs.send("f").record([0], 12)
    assert (records.recorded_offset, records.first_sequence, records.last_sequence) == (6, 12, 12)
    logs.close()


def test_records_for_a_commit_are_claimed_before_it_ends() -> None:
    """It may be on the disk even if it fails; an end that was claimed never falls."""
    logs = DelayedLogs(1)
    (records,) = logs.records
    first, second = logs.send("a", "b"), logs.send("c")
    assert records.claimed_offset == -1
    for sent, end_offset in ((first, 2), (second, 3), (first, 3)):
        sent.places_in(JOURNAL)
        assert (records.claimed_offset, records.recorded_offset) == (end_offset, -1)
    first.places_in("another journal")
    assert records.claimed_offset == 3
    logs.close()


@pytest.mark.parametrize("state", ["none", "reserved", "claimed", "recorded"])
def test_log_is_synced_before_another_segment_if_a_journal_may_have_its_records(state: str) -> None:
    """Without them the scheduler syncs it later."""
    logs = DelayedLogs(1)
    (log,) = logs.logs
    if state == "none":
        log.append([Record(value=b"a")])
    else:
        sent = logs.send("a")
        if state != "reserved":
            sent.places_in(JOURNAL)
        if state == "recorded":
            sent.record([0], 1)
        logs.appends(0).append_due()
    if state == "reserved":
        # A large batch of delayed records begins a segment; a roll would give up the offsets.
        partition_of(log).delayed.sync_recorded()
    else:
        log.roll()
    assert partition_of(log).flusher.synced_offset == (0 if state == "none" else 1)
    logs.close()


def test_durable_offset_is_that_of_the_journal_and_the_log() -> None:
    """Neither appended records without a commit, nor the opposite."""
    logs = DelayedLogs(1)
    (log,) = logs.logs
    first, second = logs.send("a", "b"), logs.send("c")
    first.record([0], 1)
    assert (log.log_end_offset, log.durable_offset) == (0, 0)
    logs.appends(0).append_due()
    assert (log.log_end_offset, log.durable_offset) == (3, 2)
    # The log has the records before the commit is on the disk.
    second.record([0], 2)
    assert log.durable_offset == 3
    assert partition_of(log).flusher.synced_offset == 0
    logs.close()


def test_bytes_of_recorded_records_are_not_committed_again() -> None:
    """The log syncs its own file for later ones: their position depends on those before."""
    logs = DelayedLogs(1)
    (log,) = logs.logs
    source = partition_of(log).flusher.source
    logs.send("a").record([0], 1)
    logs.appends(0).append_all()
    pending = source.begin(BYTES_MAX)
    assert pending is not None
    assert (pending.end - pending.position, pending.end_offset) == (0, 1)
    log.append([Record(value=b"b")])
    assert source.begin(BYTES_MAX) is None
    log.flush()
    log.append([Record(value=b"c")])
    pending = source.begin(BYTES_MAX)
    assert pending is not None
    assert (pending.start_offset, pending.end_offset) == (2, 3)
    assert pending.end > pending.position
    logs.close()


def test_appended_records_without_a_commit_are_committed_as_bytes() -> None:
    """All of them, if the journal has only the first ones as records."""
    logs = DelayedLogs(1)
    (log,) = logs.logs
    source = partition_of(log).flusher.source
    logs.send("a")
    logs.appends(0).append_all()
    pending = source.begin(BYTES_MAX)
    assert pending is not None
    assert (pending.position, pending.start_offset, pending.end_offset) == (0, 0, 1)
    assert pending.end > 0
    logs.close()


def test_truncated_records_are_not_durable_by_a_later_end_of_their_commit() -> None:
    """Others may have their offsets then."""
    logs = DelayedLogs(1)
    (log,) = logs.logs
    (records,) = logs.records
    sent = logs.send("a", "b")
    log.truncate_to(1)
    log.append([Record(value=b"c")])
    sent.record([0], 1)
    records.cover()
    assert (log.log_end_offset, log.durable_offset) == (2, 0)
    # The same with offsets that are reserved again.
    log.flush()
    again = logs.send("d")
    sent.record([0], 2)
    logs.appends(0).append_due()
    assert (log.log_end_offset, log.durable_offset) == (3, 2)
    again.record([0], 3)
    assert log.durable_offset == 3
    logs.close()


def test_commit_that_ends_after_other_appends_covers_its_records_alone() -> None:
    """The durable offset of later appends is that of their own commits."""
    logs = DelayedLogs(1)
    (log,) = logs.logs
    (records,) = logs.records
    sent = logs.send("a")
    log.append([Record(value=b"other")])
    records.cover()
    assert (log.log_end_offset, log.durable_offset) == (2, 0)
    sent.record([0], 1)
    assert (log.log_end_offset, log.durable_offset) == (2, 1)
    records.cover()
    assert log.durable_offset == 1
    log.flush()
    logs.close()


def test_interrupted_append_gives_no_offset_away() -> None:
    """Records that wait are first, also after that."""
    logs = DelayedLogs(1)
    (log,) = logs.logs
    (records,) = logs.records
    logs.send("a", "b", "c")

    def interrupt() -> None:
        assert not partition_of(log).gate.state.has_delayed
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        records.append_by(interrupt)
    assert partition_of(log).gate.state.has_delayed
    assert (len(records), records.first_offset) == (3, 0)
    log.append([Record(value=b"later")])
    assert [record.value for record in log.records()] == [b"a", b"b", b"c", b"later"]
    logs.close()


def test_failed_sync_ends_what_a_journal_makes_durable() -> None:
    """As for bytes of a log."""
    logs = DelayedLogs(1)
    (log,) = logs.logs
    sent = logs.send("a")
    logs.appends(0).append_due()
    partition_of(log).flusher.refuse(OSError("the disk"))
    sent.record([0], 1)
    assert log.durable_offset == 0
