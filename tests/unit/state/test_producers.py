"""Producer state: sequences, epochs, duplicates, transactions, what is stable, expiry."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from kafkalog.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from kafkalog.state.producer_entry import (
    ProducedBatch,
    ProducerEntry,
    sequence_after,
    sequence_before,
)
from kafkalog.state.producers import (
    CompletedTransaction,
    OpenTransaction,
    ProducerAppend,
    ProducerChecks,
    ProducerStates,
)
from kafkalog.state.verification import NO_GUARD

NONE, EPOCHS, SEQUENCES = ProducerChecks
MAX = 2**31 - 1
P, Q, R = 7, 8, 9


@pytest.fixture(name="states")
def fixture_states() -> ProducerStates:
    """Return the state of an empty log."""
    return ProducerStates("/data/orders-0")


def produce(
    states: ProducerStates,
    producer_id: int = P,
    *,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 1,
    txn: bool = False,
    checks: ProducerChecks = SEQUENCES,
    guard: int = NO_GUARD,
    verifies: bool = False,
    timestamp_ms: int = 1000,
) -> ProducerAppend:
    """Append one batch at the end of the log, unless it is a duplicate; return the append."""
    append = states.begin_append(checks, verify_transactions=verifies, guard=guard)
    first = states.end_offset
    append.add_data(producer_id, epoch, sequence, first, first + count - 1, timestamp_ms, txn)
    if not append.duplicates:
        append.commit()
        states.advance_to(first + count)
    return append


verified = partial(produce, verifies=True)


def end(
    states: ProducerStates,
    producer_id: int = P,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    abort: bool = False,
    checks: ProducerChecks = EPOCHS,
) -> list[CompletedTransaction]:
    """Append a marker; return what it completed."""
    append = states.begin_append(checks)
    append.add_marker(
        producer_id, epoch, coordinator_epoch, states.end_offset, 2000, is_abort=abort
    )
    completed = append.commit()
    states.advance_to(states.end_offset + 1)
    return completed


@pytest.mark.parametrize(
    ("sequence", "count", "after"),
    [(0, 0, 0), (MAX - 1, 3, 1), (MAX, 1, 0), (5, 10, 15), (MAX, MAX, MAX - 1)],
)
def test_sequence_after_the_largest_is_0(sequence: int, count: int, after: int) -> None:
    """The specification's examples, in both directions."""
    assert after == sequence_after(sequence, count)
    assert sequence == sequence_before(after, count)


def test_add_data_in_sequence_keeps_five_batches(states: ProducerStates) -> None:
    """The window has the last five, the oldest first."""
    for number in range(8):
        produce(states, sequence=10 * number, count=10)
    entry = states.entries[P]
    assert (0, 79, 79, 1000) == (
        entry.producer_epoch,
        entry.last_sequence,
        entry.last_offset,
        entry.last_timestamp_ms,
    )
    assert [(30, 30), (40, 40), (50, 50), (60, 60), (70, 70)] == [
        (batch.first_sequence, batch.first_offset) for batch in entry.batches
    ]


@pytest.mark.parametrize("back", [1, 2, 3, 4, 5])
def test_add_data_duplicate_has_its_original_offsets(states: ProducerStates, back: int) -> None:
    """It is no error, and nothing of the state changes."""
    for number in range(8):
        produce(states, sequence=10 * number, count=10)
    before = dict(states.entries)
    append = produce(states, sequence=80 - 10 * back, count=10)
    (batch,) = append.duplicates
    assert (80 - 10 * back, 89 - 10 * back) == (batch.first_offset, batch.last_offset)
    assert before == states.entries


@pytest.mark.parametrize(
    ("sequence", "count", "code"),
    [
        (20, 10, 46),
        (70, 9, 46),
        (70, 11, 45),
        (71, 9, 46),
        (79, 1, 46),
        (81, 1, 45),
        (0, 80, 46),
        (79 + 2**30, 1, 45),
        (80 + 2**30, 1, 46),
    ],
)
def test_add_data_neither_next_nor_duplicate_is_refused(
    states: ProducerStates, sequence: int, count: int, code: int
) -> None:
    """
    Six back, a part of the last one, one too far: batches are missing or wrong.

    What ends before the next one, by less than half of all numbers, was there before.
    """
    for number in range(8):
        produce(states, sequence=10 * number, count=10)
    before = dict(states.entries)
    with pytest.raises(OutOfOrderSequenceError, match="next one must be 80") as caught:
        produce(states, sequence=sequence, count=count)
    assert (P, "/data/orders-0", code) == (
        caught.value.producer_id,
        caught.value.path,
        caught.value.kafka_code,
    )
    assert f"/data/orders-0: producer 7: sequence {sequence} after 79" in str(caught.value)
    assert before == states.entries


def test_add_data_after_the_largest_sequence_continues_at_0(states: ProducerStates) -> None:
    """Within a batch and between two; a duplicate of the batch that wraps is found."""
    produce(states, sequence=MAX - 4, count=8)
    assert 2 == states.entries[P].last_sequence
    produce(states, sequence=3, count=1)
    (batch,) = produce(states, sequence=MAX - 4, count=8).duplicates
    assert (MAX - 4, 0) == (batch.first_sequence, batch.first_offset)
    produce(states, Q, sequence=MAX)
    with pytest.raises(OutOfOrderSequenceError, match="next one must be 0"):
        produce(states, Q, sequence=1)
    produce(states, Q, sequence=0)


def test_add_data_unknown_producer_begins_at_any_sequence(states: ProducerStates) -> None:
    """Its batches may have gone with their segments, or it may have been silent for long."""
    produce(states, sequence=500, epoch=3)
    assert (3, 500) == (states.entries[P].producer_epoch, states.entries[P].last_sequence)


def test_add_data_new_epoch_begins_with_0_and_clears_the_window(states: ProducerStates) -> None:
    """Not the same sequence numbers of another epoch are duplicates, but those of this one."""
    produce(states, sequence=0)
    produce(states, sequence=1)
    with pytest.raises(OutOfOrderSequenceError, match="epoch 1 must begin with 0"):
        produce(states, sequence=2, epoch=1)
    assert not produce(states, sequence=0, epoch=1).duplicates
    assert 1 == len(states.entries[P].batches)
    with pytest.raises(InvalidProducerEpochError, match="epoch 0 after epoch 1") as caught:
        produce(states, sequence=0, epoch=0)
    assert 47 == caught.value.kafka_code


def test_add_data_batches_of_one_append_are_chained(states: ProducerStates) -> None:
    """They have no effect if the append is dropped."""
    append = states.begin_append(SEQUENCES)
    append.add_data(P, 0, 0, 0, 4, 1, False)
    append.add_data(P, 0, 5, 5, 9, 1, False)
    append.add_data(Q, 0, 0, 10, 10, 1, False)
    with pytest.raises(OutOfOrderSequenceError):
        append.add_data(P, 0, 11, 11, 11, 1, False)
    assert {} == states.entries
    append.add_data(P, 1, 0, 11, 11, 1, False)
    append.commit()
    assert ProducerEntry(P, 1, -1, 1, None, (ProducedBatch(0, 11, 0, 1),)) == states.entries[P]
    assert [P, Q] == list(states.entries)


def test_append_of_duplicates_only_reports_all_of_them(states: ProducerStates) -> None:
    """An append that is tried once more as a whole."""
    produce(states, sequence=0)
    produce(states, sequence=1)
    append = states.begin_append(SEQUENCES)
    append.add_data(P, 0, 0, 2, 2, 1, False)
    append.add_data(P, 0, 1, 3, 3, 1, False)
    assert [0, 1] == [batch.last_offset for batch in append.duplicates]


@pytest.mark.parametrize("sequences", [[0, 1], [1, 0]])
def test_append_partly_duplicate_is_refused(states: ProducerStates, sequences: list[int]) -> None:
    """To answer with the old offsets would lose the new batch."""
    produce(states, sequence=0)
    append = states.begin_append(SEQUENCES)
    with pytest.raises(OutOfOrderSequenceError, match="others are not"):
        for number, sequence in enumerate(sequences):
            append.add_data(P, 0, sequence, 1 + number, 1 + number, 1, False)


def test_append_of_coordinator_checks_only_epochs(states: ProducerStates) -> None:
    """Group coordinators write offsets within transactions of producers."""
    produce(states, epoch=2, sequence=-1, checks=EPOCHS)
    produce(states, epoch=2, sequence=-1, checks=EPOCHS)
    assert (-1, 1) == (states.entries[P].last_sequence, states.entries[P].last_offset)
    with pytest.raises(InvalidProducerEpochError):
        produce(states, epoch=1, sequence=-1, checks=EPOCHS)
    with pytest.raises(OutOfOrderSequenceError):
        produce(states, epoch=2, sequence=-1)


def test_append_of_replication_logs_contradictions(
    states: ProducerStates, caplog: pytest.LogCaptureFixture
) -> None:
    """Batches that the leader has accepted are valid, also their epoch."""
    caplog.set_level(logging.WARNING)
    produce(states, epoch=5, sequence=100, txn=True, checks=NONE)
    produce(states, epoch=5, sequence=7, checks=NONE)
    produce(states, epoch=4, sequence=-1, txn=True, checks=NONE)
    end(states, epoch=3, coordinator_epoch=9, checks=NONE)
    end(states, epoch=3, coordinator_epoch=8, checks=NONE)
    entry = states.entries[P]
    assert (3, 8, None) == (
        entry.producer_epoch,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )
    messages = [record.message for record in caplog.records]
    assert ["/data/orders-0: producer 7: a batch outside of its open transaction"] == messages[:1]
    assert "marker of coordinator epoch 8 after epoch 9" in messages[-1]


def test_transaction_begins_with_first_batch_and_ends_with_marker(
    states: ProducerStates,
) -> None:
    """The entry, the list, and the timestamp of the earliest open transaction."""
    assert ([], -1, None) == (
        states.open_transactions(),
        states.oldest_transaction_timestamp_ms,
        states.first_unstable_offset,
    )
    produce(states, Q)
    produce(states, P, txn=True, timestamp_ms=1500)
    produce(states, P, sequence=1, txn=True, timestamp_ms=1600)
    produce(states, Q, epoch=1, txn=True, timestamp_ms=1700)
    assert [OpenTransaction(P, 0, 1, 1600), OpenTransaction(Q, 1, 3, 1700)] == (
        states.open_transactions()
    )
    assert (1600, 1) == (states.oldest_transaction_timestamp_ms, states.first_unstable_offset)
    assert [CompletedTransaction(P, 1, 4, True, 3)] == end(states, P, abort=True)
    assert [CompletedTransaction(Q, 3, 5, False, 6)] == end(states, Q, epoch=1)
    assert [] == states.open_transactions()
    assert 2 == states.entries[P].last_offset


def test_add_marker_without_transaction_changes_only_epochs(states: ProducerStates) -> None:
    """It may end a transaction without records in this log."""
    assert [] == end(states, epoch=2, coordinator_epoch=3)
    assert ProducerEntry(P, 2, 3, 2000) == states.entries[P]
    produce(states, epoch=2, sequence=0)
    with pytest.raises(OutOfOrderSequenceError):
        produce(states, epoch=2, sequence=0, count=2)


@pytest.mark.parametrize(("epoch", "kept"), [(0, 1), (1, 0)])
def test_add_marker_of_new_epoch_clears_the_window(
    states: ProducerStates, epoch: int, kept: int
) -> None:
    """With transaction version 2 every marker begins an epoch; before, the sequences continue."""
    produce(states, txn=True)
    end(states, epoch=epoch)
    assert kept == len(states.entries[P].batches)
    produce(states, epoch=epoch, sequence=kept, txn=True)


def test_add_marker_of_old_epoch_is_refused(states: ProducerStates) -> None:
    """Of a fenced producer, and of a fenced coordinator; the transaction stays open."""
    produce(states, epoch=4, txn=True)
    end(states, epoch=4, coordinator_epoch=6)
    end(states, epoch=4, coordinator_epoch=6)
    produce(states, epoch=4, sequence=1, txn=True)
    with pytest.raises(InvalidProducerEpochError):
        end(states, epoch=3, coordinator_epoch=6)
    with pytest.raises(TransactionCoordinatorFencedError, match="5 after epoch 6") as caught:
        end(states, epoch=4, coordinator_epoch=5)
    assert 52 == caught.value.kafka_code
    assert 1 == len(states.open_transactions())


def test_add_data_outside_of_open_transaction_is_refused(states: ProducerStates) -> None:
    """A transactional producer writes nothing else."""
    produce(states, txn=True)
    with pytest.raises(InvalidTxnStateError, match="outside of its open transaction") as caught:
        produce(states, sequence=1)
    assert 48 == caught.value.kafka_code


def test_first_unstable_offset_waits_for_the_high_watermark(states: ProducerStates) -> None:
    """A marker that a crash of the leader may take back makes nothing stable yet."""
    produce(states, P, txn=True)
    produce(states, Q, txn=True)
    end(states, Q)
    end(states, P)
    produce(states, R, txn=True)
    assert (0, 0) == (states.first_unstable_offset, states.last_stable_offset(5))
    assert not states.advance_high_watermark(2)
    assert states.advance_high_watermark(3)
    assert (0, 0) == (states.first_unstable_offset, states.last_stable_offset(3))
    assert states.advance_high_watermark(4)
    assert (4, 4) == (states.first_unstable_offset, states.last_stable_offset(5))
    assert 2 == states.last_stable_offset(2)
    end(states, R)
    states.raise_start(6)
    assert (None, 6) == (states.first_unstable_offset, states.last_stable_offset(6))


def test_commit_later_transaction_does_not_change_stable_offset(
    states: ProducerStates,
) -> None:
    """Also where one append brings both; brokers that follow another one count it."""
    append = states.begin_append(NONE)
    append.add_data(P, 0, 0, 0, 0, 1, True)
    append.add_marker(P, 0, 0, 1, 1, is_abort=True)
    append.add_data(R, 0, 0, 2, 4, 1, False)
    append.add_data(Q, 0, 0, 5, 5, 1, True)
    append.add_data(P, 0, 1, 6, 6, 1, True)
    append.add_marker(P, 0, 0, 7, 1, is_abort=True)
    assert [2, 5] == [each.last_stable_offset for each in append.commit()]
    assert [OpenTransaction(Q, 0, 5, 1)] == states.open_transactions()


def test_advance_to_smaller_offset_is_refused(states: ProducerStates) -> None:
    """The end is the name of a snapshot."""
    states.advance_to(10)
    states.raise_start(5)
    assert 10 == states.end_offset
    states.raise_start(15)
    with pytest.raises(ValueError, match="end offset must be >= 15, got 14"):
        states.advance_to(14)
    assert "below 15: 0 producers, 0 open" in repr(states)


def test_load_of_snapshot_restores_all_but_the_window(states: ProducerStates) -> None:
    """Duplicates are found one batch deep after a restart, as with a broker."""
    for number in range(3):
        produce(states, sequence=number)
    produce(states, Q, txn=True)
    produce(states, R, txn=True)
    end(states, R, epoch=1)
    entries = list(states.snapshot_entries())
    loaded = ProducerStates(end_offset=99)
    loaded.load(entries, states.end_offset)
    assert states.end_offset == loaded.end_offset
    assert states.open_transactions() == loaded.open_transactions()
    assert entries == list(loaded.snapshot_entries())
    assert states.entries[P].batches[-1:] == loaded.entries[P].batches
    assert produce(loaded, sequence=2).duplicates
    with pytest.raises(OutOfOrderSequenceError):
        produce(loaded, sequence=1)
    assert [CompletedTransaction(Q, 3, 6, True, 7)] == end(loaded, Q, abort=True)
    loaded.clear(4)
    assert (0, 4, None) == (len(loaded), loaded.end_offset, loaded.first_unstable_offset)


def test_load_of_snapshot_orders_transactions_by_offset() -> None:
    """Its entries come in any order."""
    states = ProducerStates()
    for producer_id in (R, P, Q):
        produce(states, producer_id, txn=True)
    loaded = ProducerStates()
    loaded.load(sorted(states.snapshot_entries()), 3)
    assert [R, P, Q] == [each.producer_id for each in loaded.open_transactions()]
    assert 0 == loaded.first_unstable_offset


def test_remove_expired_keeps_open_transactions(states: ProducerStates) -> None:
    """By the time of their last batch; verifications by the time they were begun."""
    produce(states, P, timestamp_ms=1000)
    produce(states, Q, timestamp_ms=1001)
    produce(states, R, timestamp_ms=1000, txn=True)
    states.begin_verification(P, 0, 1, 1000)
    states.begin_verification(Q, 0, 1, 1001)
    assert 0 == states.remove_expired(1099, 100)
    assert 1 == states.remove_expired(1100, 100)
    assert [Q, R] == list(states.entries)
    assert [Q] == list(states.verification.pending)


class TestVerification:
    """Transactions that the coordinator has to have confirmed."""

    def test_verification_wrong_guard_is_refused(self, states: ProducerStates) -> None:
        """No guard, that of another producer, an old one; batches outside of any need none."""
        verified(states, P)
        guard = states.begin_verification(P, 0, 1, 0)
        other = states.begin_verification(Q, 0, 0, 0)
        for wrong in (NO_GUARD, other, guard + 100):
            with pytest.raises(InvalidTxnStateError, match="was not verified"):
                verified(states, P, sequence=1, txn=True, guard=wrong)
        verified(states, P, sequence=1, txn=True, guard=guard)
        verified(states, P, sequence=2, txn=True)
        assert NO_GUARD == states.begin_verification(P, 0, 3, 0)
        end(states, P)
        with pytest.raises(InvalidTxnStateError, match="was not verified"):
            verified(states, P, sequence=3, txn=True, guard=guard)

    def test_verification_marker_in_between_invalidates_the_guard(
        self, states: ProducerStates
    ) -> None:
        """The transaction that was verified is over; also where the marker ends another epoch's."""
        verified(states, P, txn=True, checks=NONE)
        guard = states.begin_verification(P, 1, 0, 0)
        assert NO_GUARD < guard == states.begin_verification(P, 1, 0, 0)
        end(states, P)
        with pytest.raises(InvalidTxnStateError):
            verified(states, P, epoch=1, txn=True, guard=guard)
        assert guard < states.begin_verification(P, 1, 0, 0)

    def test_verification_marker_without_transaction_invalidates_the_guard(
        self, states: ProducerStates
    ) -> None:
        """The transaction was ended before its first batch came."""
        guard = states.begin_verification(P, 0, 0, 0)
        end(states, P, abort=True)
        with pytest.raises(InvalidTxnStateError):
            verified(states, P, txn=True, guard=guard)

    def test_verification_dropped_append_keeps_the_guard(self, states: ProducerStates) -> None:
        """A disk that was full costs no second verification."""
        guard = states.begin_verification(P, 0, 0, 0)
        states.begin_append(SEQUENCES, verify_transactions=True, guard=guard).add_data(
            P, 0, 0, 0, 0, 1, True
        )
        verified(states, P, txn=True, guard=guard)

    def test_verification_lowest_sequence_must_be_first(self, states: ProducerStates) -> None:
        """For the same epoch; a larger epoch replaces the value, a smaller one is ignored."""
        for sequence, epoch in ((5, 1), (3, 1), (4, 1), (9, 0)):
            guard = states.begin_verification(P, epoch, sequence, 0)
        with pytest.raises(OutOfOrderSequenceError, match="3 must be appended first"):
            verified(states, P, epoch=1, sequence=5, txn=True, guard=guard)
        states.begin_verification(P, 2, 8, 0)
        verified(states, P, epoch=2, sequence=8, txn=True, guard=guard)

    def test_verification_transaction_version_2_begins_with_0(self, states: ProducerStates) -> None:
        """For an unknown producer; known batches decide otherwise."""
        guard = states.begin_verification(P, 0, 4, 0, supports_epoch_bump=True)
        with pytest.raises(OutOfOrderSequenceError, match="must be 0"):
            verified(states, P, sequence=4, txn=True, guard=guard)
        states.begin_verification(P, 0, 0, 0)
        verified(states, P, sequence=0, txn=True, guard=guard)
        end(states, P)
        guard = states.begin_verification(P, 0, 1, 0, supports_epoch_bump=True)
        verified(states, P, sequence=1, txn=True, guard=guard)

    def test_verification_is_not_required_for_replication(self, states: ProducerStates) -> None:
        """The leader has done that."""
        verified(states, P, txn=True, checks=NONE)
        assert 1 == len(states.open_transactions())
