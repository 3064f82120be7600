"""Transactions of an open log: the last stable offset, and reads of committed records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog import AppendOrigin, InvalidTxnStateError, Log
from kafkalog.files.names import CLEAN_SHUTDOWN_MARKER, SegmentFiles
from kafkalog.indexes.transaction_index import ENTRY_SIZE, decode_entries
from kafkalog.log.log import partition_of
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import START_MS, ManualClock
from tests.support.producer_batches import Produced, encoded
from tests.support.producing import Client, committed_offsets, outcome_of

SMALL: dict[str, Any] = {"segment_bytes": 400, "index_interval_bytes": 100}


def check(log: Log) -> None:
    """Compare the log's stable offset and committed records with a slow read of its batches."""
    outcome = outcome_of(log)
    assert outcome.first_unstable_offset == partition_of(log).view.first_unstable_offset
    assert outcome.committed == committed_offsets(log)


def test_open_transaction_stops_read_committed(tmp_path: Path) -> None:
    """Other readers see all records; the commit releases the rest."""
    client = Client(7)
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 2))
        client.send(log, 2, transactional=True)
        log.append(numbered(2, 1))
        assert (2, 2, 5, 5) == (
            partition_of(log).view.first_unstable_offset,
            log.last_stable_offset,
            log.high_watermark,
            log.log_end_offset,
        )
        assert [0, 1] == committed_offsets(log)
        assert [0, 1, 2, 3, 4] == [record.offset for record in log.records()]
        client.end(log, "commit")
        assert (None, 6) == (partition_of(log).view.first_unstable_offset, log.last_stable_offset)
        assert [0, 1, 2, 3, 4] == committed_offsets(log)


def test_aborted_records_are_left_out_and_listed_in_a_fetch(tmp_path: Path) -> None:
    """A fetch still has their bytes, as a broker's."""
    first, second = Client(7), Client(8)
    with manual_log(tmp_path / "orders-0") as log:
        first.send(log, 2, transactional=True)
        second.send(log, 2, transactional=True)
        first.end(log, "abort")
        assert [] == committed_offsets(log)
        second.end(log, "commit")
        assert [2, 3] == committed_offsets(log)
        batches = log.batches(isolation="read_committed")
        assert [2, 4, 5] == [batch.base_offset for batch in batches]
        fetched = log.read(0, isolation="read_committed")
        assert fetched.aborted_transactions is not None
        assert [(7, 0, 4, 2)] == [tuple(each) for each in fetched.aborted_transactions]
        assert [0, 2, 4, 5] == [batch.base_offset for batch in fetched.batches()]
        assert [2, 3] == [record.offset for record in fetched.records()]
        assert log.read(0).aborted_transactions is None


def test_read_committed_fetch_ends_at_the_last_stable_offset(tmp_path: Path) -> None:
    """A fetch at that offset is empty."""
    client = Client(7)
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 2))
        client.send(log, transactional=True)
        fetched = log.read(0, isolation="read_committed")
        assert [0, 1] == [record.offset for record in fetched.records()]
        assert 0 == log.read(2, isolation="read_committed").size_bytes
        assert 0 == log.read(3, isolation="read_committed").size_bytes


def test_unknown_isolation_is_refused(tmp_path: Path) -> None:
    """A misspelt name must not become another isolation."""
    with manual_log(tmp_path / "orders-0") as log, pytest.raises(ValueError, match="isolation"):
        log.records(isolation="committed")  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["commit", "abort"])
def test_transaction_over_many_segments_survives_reopening(tmp_path: Path, how: str) -> None:
    """It begins in one session and ends in the next; its entry is in the segment of its marker."""
    directory = tmp_path / "orders-0"
    client, other = Client(7), Client(8)
    with manual_log(directory, **SMALL) as log:
        client.send(log, transactional=True)
        for number in range(8):
            log.append(numbered(number, 1))
            other.send(log, transactional=True)
            other.end(log, "abort" if number % 2 else "commit")
        check(log)
        assert [7] == [each.producer_id for each in log.list_transactions()]
    with manual_log(directory, **SMALL) as log:
        assert [(7, 0)] == [(e.producer_id, e.first_offset) for e in log.list_transactions()]
        check(log)
        marker = client.end(log, how).first_offset
        check(log)
        assert log.log_end_offset == log.last_stable_offset
        base = log.segments()[-1].base_offset
    if how == "abort":
        path = SegmentFiles(directory, base).transaction_index
        assert (7, 0, marker) == decode_entries(path.read_bytes(), base)[-1][:3]


@pytest.mark.parametrize("damage", ["missing", "cut", "torn", "bytes"])
def test_incomplete_transaction_index_is_rebuilt_from_batches(tmp_path: Path, damage: str) -> None:
    """A broker would serve aborted records; a read-only log writes nothing."""
    directory, client = tmp_path / "orders-0", Client(7)
    with manual_log(directory, **SMALL) as log:
        for number in range(6):
            client.send(log, transactional=True)
            client.end(log, "abort")
            log.append(numbered(number, 1))
        expected = committed_offsets(log)
        whole = {}
        for segment in log.segments():
            path = SegmentFiles(directory, segment.base_offset).transaction_index
            if path.exists():
                whole[path] = path.read_bytes()
    assert len(whole) > 1
    for path, data in whole.items():
        if damage == "missing":
            path.unlink()
        else:
            ends = {"cut": data[:-ENTRY_SIZE], "torn": data[:-1], "bytes": b"\xff" * len(data)}
            path.write_bytes(ends[damage])
    before = {path: path.read_bytes() for path in whole if path.exists()}
    with manual_log(directory, read_only=True, **SMALL) as log:
        assert expected == committed_offsets(log)
    assert before == {path: path.read_bytes() for path in whole if path.exists()}
    with manual_log(directory, **SMALL) as log:
        for offset in range(log.log_end_offset):
            within = [each for each in expected if offset <= each < offset + 2]
            assert within == committed_offsets(log, offset, offset + 2)
    assert whole == {path: path.read_bytes() for path in whole}


def test_index_entry_without_marker_hides_no_records(tmp_path: Path) -> None:
    """The entry may be from the index of another log."""
    directory, client = tmp_path / "orders-0", Client(7)
    with manual_log(directory) as log:
        client.send(log, transactional=True)
        client.end(log, "abort")
        client.send(log, transactional=True)
        client.end(log, "commit")
    path = SegmentFiles(directory, 0).transaction_index
    entry = bytearray(path.read_bytes())
    entry[18:26] = (3).to_bytes(8)
    path.write_bytes(entry)
    with manual_log(directory) as log:
        assert [2] == committed_offsets(log)


def test_hanging_transaction_is_listed_and_aborted(tmp_path: Path) -> None:
    """With the time since its last batch; afterwards the producer has no transaction."""
    clock, client = ManualClock(), Client(7)
    with manual_log(tmp_path / "orders-0", clock=clock) as log:
        client.send(log, transactional=True)
        clock.advance(60_000)
        (hanging,) = log.list_transactions()
        assert (7, 0, 0, START_MS, 60_000) == tuple(hanging)
        info = log.abort_transaction(7, wait="durable")
        assert (1, 1) == (info.first_offset, info.record_count)
        assert [] == log.list_transactions()
        assert (2, []) == (log.last_stable_offset, committed_offsets(log))
        with pytest.raises(InvalidTxnStateError, match="no open transaction"):
            log.abort_transaction(7)


def test_batch_outside_of_an_open_transaction_is_refused(tmp_path: Path) -> None:
    """During a transaction its producer may write transactional batches only."""
    client = Client(7)
    with manual_log(tmp_path / "orders-0") as log:
        client.send(log, transactional=True)
        with pytest.raises(InvalidTxnStateError):
            client.send(log)
        assert 1 == log.log_end_offset


def test_high_watermark_limits_readers_and_the_last_stable_offset(tmp_path: Path) -> None:
    """A marker above it does not count yet."""
    client = Client(7)
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 2))
        assert 2 == log.set_high_watermark(2)
        client.send(log, transactional=True)
        client.end(log, "commit")
        assert [0, 1] == [record.offset for record in log.records()]
        assert 3 == log.set_high_watermark(3)
        assert [0, 1, 2] == [record.offset for record in log.records()]
        assert (2, [0, 1]) == (log.last_stable_offset, committed_offsets(log))
        assert 4 == log.set_high_watermark(100)
        assert (4, [0, 1, 2]) == (log.last_stable_offset, committed_offsets(log))
        log.append(numbered(2, 1))
        assert (4, 5) == (log.high_watermark, log.log_end_offset)
        assert 5 == log.set_high_watermark(None)
        log.truncate_to(1)
        assert (1, 1) == (log.high_watermark, log.last_stable_offset)
        with pytest.raises(ValueError, match="offset must be >= 0"):
            log.set_high_watermark(-1)


def test_truncation_that_cuts_a_marker_reopens_its_transaction(tmp_path: Path) -> None:
    """A transaction that is cut as a whole is removed."""
    client = Client(7)
    with manual_log(tmp_path / "orders-0", **SMALL) as log:
        for number in range(6):
            log.append(numbered(number, 1))
            client.send(log, transactional=True)
            client.end(log, "abort")
        log.truncate_to(14)
        assert (13, 13) == (partition_of(log).view.first_unstable_offset, log.last_stable_offset)
        check(log)
        client.end(log, "commit")
        check(log)
        log.truncate_to(13)
        assert None is partition_of(log).view.first_unstable_offset
        check(log)


def test_reader_in_another_process_follows_the_last_stable_offset(tmp_path: Path) -> None:
    """It reads the offset from new batches."""
    directory, client = tmp_path / "orders-0", Client(7)
    with manual_log(directory, **SMALL) as log, manual_log(directory, read_only=True) as reader:
        for number in range(6):
            log.append(numbered(number, 1))
            client.send(log, transactional=True)
            assert committed_offsets(log) == committed_offsets(reader)
            assert (
                partition_of(log).view.first_unstable_offset
                == partition_of(reader).view.first_unstable_offset
            )
            client.end(log, "abort" if number % 2 else "commit")
            assert committed_offsets(log) == committed_offsets(reader)
        log.truncate_to(5)
        client.sequence = 2
        client.end(log, "commit")
        assert committed_offsets(log) == committed_offsets(reader)
        assert log.list_transactions() == reader.list_transactions()


def test_replicated_transactions_in_one_append_equal_single_ones(
    tmp_path: Path,
) -> None:
    """A follower appends whatever one fetch returns."""
    clients = [Client(7), Client(8)]
    with manual_log(tmp_path / "orders-0", **SMALL) as log:
        for number in range(5):
            for client in clients:
                client.send(log, transactional=True)
            clients[0].end(log, "abort")
            clients[1].end(log, "abort" if number % 2 else "commit")
        data = b"".join(bytes(batch.data) for batch in log.batches())
        expected = committed_offsets(log)
        with manual_log(tmp_path / "copy-0", **SMALL) as copy:
            copy.append_batches(data, origin=AppendOrigin.REPLICATION, assign_offsets=False)
            assert expected == committed_offsets(copy)
            check(copy)


def test_transactions_aborted_in_one_append_are_indexed_after_reopening(
    tmp_path: Path,
) -> None:
    """The index is compared with the batches, which have all the markers already."""
    parts = [
        Produced(2, count=4, transactional=True),
        Produced(3, count=4, transactional=True),
        Produced(2, ends="abort"),
        Produced(3, ends="abort"),
    ]
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 3))
    with manual_log(tmp_path / "orders-0") as log:
        log.append_batches(encoded(parts, 3), assign_offsets=False)
        assert [0, 1, 2] == committed_offsets(log)
        aborted = log.read(0, isolation="read_committed").aborted_transactions
        assert aborted is not None
        assert [(2, 3, 11), (3, 7, 12)] == [each[:3] for each in aborted]
        check(log)


@pytest.mark.parametrize("left", ["nothing", "too little", "too much"])
def test_recovery_leaves_transaction_indexes_right_for_a_broker(tmp_path: Path, left: str) -> None:
    """After a clean close no program rebuilds them: missing entries count as committed."""
    client = Client(7)
    with manual_log(tmp_path / "orders-0", **SMALL) as log:
        for how in ("abort", "abort", "commit"):
            client.send(log, 2, transactional=True)
            client.end(log, how)
            log.append(numbered(0, 1))
            log.roll()
        bases = [segment.base_offset for segment in log.segments()]
    paths = [SegmentFiles(tmp_path / "orders-0", base).transaction_index for base in bases]
    expected = [path.read_bytes() if path.exists() else b"" for path in paths]
    assert [1, 1, 0, 0] == [len(data) // ENTRY_SIZE for data in expected]
    (tmp_path / "orders-0" / CLEAN_SHUTDOWN_MARKER).unlink()
    for name in ("recovery-point-offset-checkpoint", ".kafkalog_syncs"):
        (tmp_path / "orders-0" / name).unlink(missing_ok=True)
    for path, data in zip(paths, expected, strict=True):
        if left == "too much":
            path.write_bytes(data or expected[0])
        elif left == "nothing" or path == paths[1]:
            path.unlink(missing_ok=True)
    with manual_log(tmp_path / "orders-0", **SMALL) as log:
        assert not log.recovery_report.clean
    assert expected == [path.read_bytes() if path.exists() else b"" for path in paths]
