"""Replay of batches into producer state: fast and slow path are equal; unusual markers."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch import BatchColumns, parse_header, scan_batches
from kafkalog._core.crc32c import value as crc32c
from kafkalog.errors import OutOfOrderSequenceError
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.log.producer_replay import aborted_of, add_batch, replay_batches
from kafkalog.records.batch_view import BatchView
from kafkalog.state.producers import CompletedTransaction, ProducerChecks, ProducerStates
from tests.support.producer_batches import Produced, encoded

P, Q = 7, 8


def scanned(data: bytes) -> BatchColumns:
    """Return the headers of all batches."""
    columns = BatchColumns(300)
    scan_batches(data, columns=columns)
    return columns


def replay(states: ProducerStates, data: bytes) -> list[CompletedTransaction]:
    """Replay a run of batches on the fast path."""
    return replay_batches(states, memoryview(data), scanned(data))


def replay_one_by_one(states: ProducerStates, data: bytes) -> list[CompletedTransaction]:
    """Replay a run of batches on the slow path: one at a time."""
    completed = []
    position = 0
    while position < len(data):
        header = parse_header(data, position)
        append = states.begin_append(ProducerChecks.NONE)
        add_batch(append, BatchView(data[position : header.end_position]))
        completed += append.commit()
        states.advance_to(header.next_offset)
        position = header.end_position
    return completed


def test_replay_completes_transactions_of_two_producers_in_order() -> None:
    """Commit, abort, a batch without producer, and a transaction that stays open."""
    data = encoded(
        [
            Produced(-1, -1, 0, count=3),
            Produced(P, transactional=True, count=2),
            Produced(Q, transactional=True),
            Produced(P, ends="abort", coordinator_epoch=4),
            Produced(P, sequence=2, transactional=True),
            Produced(Q, ends="commit"),
        ]
    )
    states = ProducerStates()
    completed = replay(states, data)
    assert [
        CompletedTransaction(P, 3, 6, True, 5),
        CompletedTransaction(Q, 5, 8, False, 7),
    ] == completed
    assert [AbortedTransaction(P, 3, 6, 5)] == aborted_of(completed)
    assert (9, 7) == (states.end_offset, states.open_transactions()[0].first_offset)
    assert 4 == states.entries[P].coordinator_epoch


def test_replay_skips_batches_that_the_state_covers() -> None:
    """A snapshot may end within a segment; a batch that it covers in part is replayed whole."""
    data = encoded([Produced(P, sequence=10 * each, count=10) for each in range(4)])
    states = ProducerStates(end_offset=15)
    replay(states, data)
    assert [19, 29, 39] == [batch.last_offset for batch in states.entries[P].batches]
    replay(states, data)
    assert 3 == len(states.entries[P].batches)
    assert [] == replay_batches(states, memoryview(data), scanned(data), 0)


def test_replay_stops_after_the_given_number_of_batches() -> None:
    """Later batches do not change the state."""
    data = encoded([Produced(P, sequence=each) for each in range(4)])
    states = ProducerStates()
    replay_batches(states, memoryview(data), scanned(data), 2)
    assert (2, 1) == (states.end_offset, states.entries[P].last_sequence)


def test_replay_undecodable_marker_leaves_its_transaction_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A warning names the place; readers do not see records that may be aborted."""
    caplog.set_level(logging.WARNING)
    data = encoded([Produced(P, transactional=True), Produced(P, ends="bad")])
    states = ProducerStates()
    completed = replay_batches(states, memoryview(data), scanned(data), path="a.log", position=100)
    assert [] == completed
    assert 1 == len(states.open_transactions())
    assert f"a.log:{100 + parse_header(data).size_bytes}" in caplog.text


def emptied(data: bytes) -> bytes:
    """Return the last batch of `data` without records, as compaction leaves it."""
    header = parse_header(data)
    end = header.end_position
    tail = bytearray(data[end : end + 61])
    tail[8:12] = (61 - 12).to_bytes(4, "big")
    tail[57:61] = bytes(4)
    tail[17:21] = crc32c(tail[21:]).to_bytes(4, "big")
    return data[:end] + bytes(tail)


@pytest.mark.parametrize("way", [replay, replay_one_by_one])
def test_replay_ignores_emptied_and_other_control_batches(way: object) -> None:
    """Compaction empties markers of removed transactions; KRaft's have no producer."""
    data = emptied(encoded([Produced(P, epoch=3, transactional=True), Produced(P, ends="commit")]))
    states = ProducerStates()
    assert callable(way)
    assert [] == way(states, data)
    assert (3, 1) == (states.entries[P].producer_epoch, len(states.open_transactions()))
    assert 2 == states.end_offset


def test_append_checks_sequences_with_the_offsets_in_the_batch() -> None:
    """Appends use `add_batch` too, with the checks of their origin."""
    data = encoded([Produced(P, sequence=0, count=5), Produced(P, sequence=7)])
    first = parse_header(data).end_position
    states = ProducerStates()
    append = states.begin_append(ProducerChecks.SEQUENCES)
    add_batch(append, BatchView(data[:first]))
    with pytest.raises(OutOfOrderSequenceError, match="next one must be 5"):
        add_batch(append, BatchView(data[first:]))
    append.commit()
    assert 4 == states.entries[P].last_offset


BATCHES = st.builds(
    Produced,
    producer_id=st.sampled_from([-1, 1, 2, 3]),
    epoch=st.sampled_from([0, 0, 0, 1, 2]),
    sequence=st.integers(0, 100) | st.just(2**31 - 2),
    count=st.integers(1, 3),
    transactional=st.booleans(),
    ends=st.sampled_from([None, None, None, None, "commit", "abort"]),
    coordinator_epoch=st.integers(0, 2),
    timestamp_ms=st.integers(0, 5),
).map(lambda batch: batch if batch.producer_id >= 0 else Produced(-1, -1, count=batch.count))


@settings(max_examples=200)
@given(st.lists(st.lists(BATCHES, max_size=40), max_size=4))
def test_replay_fast_path_equals_slow_path(runs: list[list[Produced]]) -> None:
    """Any batches in any order, in several runs; a log may have batches that no producer sends."""
    short, long = ProducerStates(), ProducerStates()
    for run in runs:
        data = encoded(run, short.end_offset)
        assert replay_one_by_one(long, data) == replay(short, data)
        assert long.entries == short.entries
        assert long.open_transactions() == short.open_transactions()
        assert long.first_unstable_offset == short.first_unstable_offset
        assert long.end_offset == short.end_offset
