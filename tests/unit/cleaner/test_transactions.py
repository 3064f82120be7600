"""Tests of decisions about markers and aborted batches, in order of transactions."""

from __future__ import annotations

import pytest

from kafkalog._core.builder import BatchBuilder
from kafkalog.cleaner.keys import KeyCollector
from kafkalog.cleaner.transactions import TransactionTracker
from kafkalog.errors import CorruptRecordError
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.records.control import ControlType
from kafkalog.records.conversion.conversion_units import FileRecords
from tests.support.cleaning import offset_map_of

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def tracker(*aborted: tuple[int, int, int]) -> TransactionTracker:
    """Return a tracker that knows of (producer, first offset, marker) aborted."""
    transactions = TransactionTracker()
    transactions.add_aborted(AbortedTransaction(*each, each[2] + 1) for each in aborted)
    return transactions


def test_aborted_transaction_with_records_keeps_its_marker_and_entry() -> None:
    """One cleaning removes the records, the next the marker."""
    transactions = tracker((1, 10, 20))
    assert transactions.is_aborted(1, 12)
    assert not transactions.may_drop_marker(1, 20, ABORT)
    assert [AbortedTransaction(1, 10, 20, 21)] == transactions.pop_kept()
    # Here starts another transaction.
    assert not transactions.is_aborted(1, 25)


def test_aborted_transaction_without_records_loses_its_marker_and_entry() -> None:
    """Nothing refers to it any more."""
    transactions = tracker((1, 10, 20))
    assert transactions.may_drop_marker(1, 20, ABORT)
    assert [] == transactions.pop_kept()


def test_aborted_transactions_are_requested_once_and_only_if_needed() -> None:
    """The request may read the index of every segment."""
    requests: list[AbortedTransaction] = []

    def find_aborted() -> list[AbortedTransaction]:
        requests.append(AbortedTransaction(1, 10, 20, 21))
        return requests

    transactions = TransactionTracker(find_aborted)
    offset_map = offset_map_of(1)
    builder = BatchBuilder()
    builder.append(b"key", b"value", 1)
    run = FileRecords(memoryview(builder.finish(base_offset=0)))
    assert KeyCollector(offset_map, transactions).add(run)
    assert [] == requests
    assert [True, False] == [transactions.is_aborted(1, 12), transactions.is_aborted(2, 13)]
    assert 1 == len(requests)


def test_abort_marker_of_an_unknown_transaction_is_removable() -> None:
    """It had no records, or lost them and its entry before."""
    assert tracker().may_drop_marker(1, 20, ABORT)


def test_commit_marker_is_retained_with_its_records() -> None:
    """Records count for the next marker of their producer only."""
    transactions = tracker()
    assert not transactions.is_aborted(1, 5)
    assert transactions.may_drop_marker(2, 6, COMMIT)
    assert not transactions.may_drop_marker(1, 7, COMMIT)
    assert transactions.may_drop_marker(1, 8, COMMIT)


def test_transactions_of_one_producer_are_separate() -> None:
    """Aborted, committed, aborted: each batch belongs to the transaction around it."""
    transactions = tracker((1, 30, 40), (1, 10, 20))
    verdicts = [transactions.is_aborted(1, 15)]
    transactions.may_drop_marker(1, 20, ABORT)
    verdicts += [transactions.is_aborted(1, 25)]
    transactions.may_drop_marker(1, 28, COMMIT)
    verdicts += [transactions.is_aborted(1, 30), transactions.is_aborted(2, 31)]
    assert not transactions.may_drop_marker(1, 40, ABORT)
    assert [True, False, True, False] == verdicts
    assert [10, 30] == [transaction.first_offset for transaction in transactions.pop_kept()]


@pytest.mark.parametrize("kind", set(ControlType) - {ABORT, COMMIT})
def test_other_control_records_are_retained(kind: ControlType) -> None:
    """Records of a quorum are not judged; an emptied control batch is removed."""
    assert not tracker().may_drop_marker(-1, 3, kind)
    assert tracker().may_drop_marker(-1, 3, None)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_control_record_with_damaged_key_raises(key: bytes | None) -> None:
    """With its offset and position."""
    builder = BatchBuilder()
    builder.append(key, b"")
    data = builder.finish(
        base_offset=7, producer_id=1, producer_epoch=0, transactional=True, control=True
    )
    run = FileRecords(memoryview(bytes(data)), "segment", 500)
    with pytest.raises(CorruptRecordError, match="control record at offset 7") as raised:
        KeyCollector(offset_map_of(1), TransactionTracker()).add(run)
    assert ("segment", 500, 7) == (
        raised.value.path,
        raised.value.position,
        raised.value.base_offset,
    )


def test_control_record_of_an_unknown_type_is_retained() -> None:
    """Later versions may write some."""
    builder = BatchBuilder()
    builder.append(b"\0\0\0\x63", b"")
    data = builder.finish(producer_id=1, producer_epoch=0, transactional=True, control=True)
    offset_map = offset_map_of(1)
    collector = KeyCollector(offset_map, TransactionTracker())
    assert collector.add(FileRecords(memoryview(bytes(data))))
    assert (0, 0, 1) == (len(offset_map), offset_map.latest_offset, collector.records_read)
