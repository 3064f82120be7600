"""Several producers and their transactions, against a model that keeps every batch.

The model keeps a list of all that was appended and answers each question by walking over it. The
machine appends as producers, coordinators and replicas do, goes back by truncation, loads
snapshots, moves the high watermark, and compares the stable offset and the open transactions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkalog.errors import (
    DuplicateSequenceError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    ProducerStateError,
)
from kafkalog.indexes.transaction_index import TransactionIndex
from kafkalog.log.producer_replay import aborted_of
from kafkalog.state.producers import CompletedTransaction, ProducerChecks, ProducerStates
from tests.support.simulated_disk import SimulatedDisk

PRODUCERS = st.integers(1, 2) | st.integers(1, 4)
SIZE = 2**31


@dataclass(frozen=True)
class Entry:
    """A batch or a marker in the model's log."""

    producer_id: int
    epoch: int
    first_sequence: int
    first_offset: int
    last_offset: int
    transactional: bool
    marker: str | None = None
    timestamp_ms: int = 0

    @property
    def last_sequence(self) -> int:
        """Sequence of its last record."""
        return (self.first_sequence + self.last_offset - self.first_offset) % SIZE


class Model:
    """The log as a list; every answer comes from a walk over it."""

    def __init__(self) -> None:
        self.log: list[Entry] = []

    @property
    def end(self) -> int:
        """The next offset."""
        return self.log[-1].last_offset + 1 if self.log else 0

    def of(self, producer_id: int) -> list[Entry]:
        """Return all that a producer wrote, or that was written about it."""
        return [entry for entry in self.log if entry.producer_id == producer_id]

    def epoch(self, producer_id: int) -> int:
        """Return the epoch that counts."""
        return self.of(producer_id)[-1].epoch if self.of(producer_id) else -1

    def window(self, producer_id: int) -> list[Entry]:
        """Return the batches since the epoch began, at most five."""
        found: list[Entry] = []
        epoch = None
        for entry in self.of(producer_id):
            if entry.epoch != epoch:
                found, epoch = [], entry.epoch
            if entry.marker is None:
                found.append(entry)
        return found[-5:]

    def transactions(self) -> list[CompletedTransaction]:
        """Return every transaction: open ones end at -1."""
        found = []
        for number, entry in enumerate(self.log):
            if entry.marker is not None or not entry.transactional:
                continue
            before = [each for each in self.log[:number] if each.producer_id == entry.producer_id]
            if before and before[-1].marker is None and before[-1].transactional:
                continue
            markers = [
                each
                for each in self.log[number:]
                if each.producer_id == entry.producer_id and each.marker
            ]
            last = markers[0].first_offset if markers else -1
            aborted = bool(markers) and markers[0].marker == "abort"
            found.append(CompletedTransaction(entry.producer_id, entry.first_offset, last, aborted))
        return found

    def is_aborted(self, entry: Entry) -> bool:
        """Return whether the next marker of the entry's producer takes it back."""
        markers = [each for each in self.of(entry.producer_id) if each.marker]
        later = [each.marker for each in markers if each.first_offset > entry.first_offset]
        return later[:1] == ["abort"]

    def open(self) -> list[tuple[int, int]]:
        """Return (producer, first offset) of the open transactions, the earliest first."""
        return [(each[0], each[1]) for each in self.transactions() if each.last_offset < 0]

    def first_unstable(self, high_watermark: int) -> int | None:
        """Return the first offset of what is open, or ended at the high watermark or above."""
        found = [
            each.first_offset
            for each in self.transactions()
            if each.last_offset < 0 or each.last_offset >= high_watermark
        ]
        return min(found, default=None)


class ProducerMachine(RuleBasedStateMachine):
    """The state and its model, step by step."""

    @initialize()
    def begin(self) -> None:
        """Start with an empty log."""
        self.model = Model()
        self.states = ProducerStates()
        self.high_watermark = 0
        disk = SimulatedDisk()
        disk.make_durable("/data")
        self.index = TransactionIndex(disk, Path("/data/00000000000000000000.txnindex"), 0)
        # Start of the window of each producer: a snapshot keeps one batch of it.
        self.window_from: dict[int, int] = {}
        # Entries of a snapshot at the log end, by its offset.
        self.snapshots: dict[int, object] = {}

    def known_window(self, producer_id: int) -> list[Entry]:
        """Return the part of the model's window that the state can know."""
        start = self.window_from.get(producer_id, 0)
        return [each for each in self.model.window(producer_id) if each.first_offset >= start]

    def verdict(self, producer_id: int, epoch: int, sequence: int, count: int, txn: bool) -> object:
        """Return the model's answer to a producer's batch: "ok", an error, or the duplicate."""
        current_epoch = self.model.epoch(producer_id)
        window = self.known_window(producer_id)
        last = (sequence + count - 1) % SIZE
        if epoch == current_epoch:
            for entry in window:
                if (entry.first_sequence, entry.last_sequence) == (sequence, last):
                    return (entry.first_offset, entry.last_offset)
        if epoch < current_epoch:
            return InvalidProducerEpochError
        if current_epoch >= 0:
            expected = 0
            if epoch == current_epoch and window:
                expected = (window[-1].last_sequence + 1) % SIZE
            if sequence != expected:
                if epoch == current_epoch and window:
                    newest = window[-1].last_sequence
                    back = [(newest - each) % SIZE for each in (last, sequence)]
                    if back[0] <= back[1] < SIZE // 2:
                        return DuplicateSequenceError
                return OutOfOrderSequenceError
        if not txn and producer_id in dict(self.model.open()):
            return InvalidTxnStateError
        return "ok"

    def add(self, entry: Entry) -> None:
        """Append to the model's log."""
        self.model.log.append(entry)

    @rule(
        producer_id=PRODUCERS,
        epoch_step=st.sampled_from([0, 0, 0, 0, 1, -1]),
        back=st.integers(0, 6),
        shift=st.sampled_from([0, 0, 0, 0, 1, SIZE - 1]),
        count=st.integers(1, 3),
        txn=st.booleans(),
        timestamp_ms=st.integers(0, 9),
    )
    def produce(
        self,
        producer_id: int,
        epoch_step: int,
        back: int,
        shift: int,
        count: int,
        txn: bool,
        timestamp_ms: int,
    ) -> None:
        """Send one of the last batches again, or a wrong one, or by chance the next."""
        current_epoch = self.model.epoch(producer_id)
        window = self.model.window(producer_id)
        epoch = max(0, current_epoch + epoch_step)
        sequence = (window[-1].last_sequence + 1) % SIZE if window and epoch == current_epoch else 0
        if not window and current_epoch < 0:
            sequence = SIZE - 2
        if 0 < back <= len(window):
            again = window[-back]
            sequence, count = again.first_sequence, again.last_offset - again.first_offset + 1
        sequence = (sequence + shift) % SIZE
        expected = self.verdict(producer_id, epoch, sequence, count, txn)
        first = self.model.end
        append = self.states.begin_append(ProducerChecks.SEQUENCES)
        found: object = "ok"
        try:
            append.add_data(
                producer_id, epoch, sequence, first, first + count - 1, timestamp_ms, txn
            )
        except ProducerStateError as error:
            found = type(error)
        if append.duplicates:
            (batch,) = append.duplicates
            found = (batch.first_offset, batch.last_offset)
        assert expected == found
        if found == "ok":
            assert [] == append.commit()
            last = first + count - 1
            self.add(Entry(producer_id, epoch, sequence, first, last, txn, None, timestamp_ms))
            self.states.advance_to(self.model.end)

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3), timestamp_ms=st.integers(0, 9))
    def produce_next(self, producer_id: int, count: int, timestamp_ms: int) -> None:
        """Send what the producer would send next, within a transaction."""
        self.produce(producer_id, 0, 0, 0, count, True, timestamp_ms)

    @precondition(lambda self: self.model.open())
    @rule(data=st.data(), raised=st.integers(0, 1), abort=st.booleans())
    def end_one(self, data: st.DataObject, raised: int, abort: bool) -> None:
        """End a transaction that is open."""
        producer_id, _ = data.draw(st.sampled_from(self.model.open()))
        self.end(producer_id, raised, abort, 0)

    @rule(
        producer_id=PRODUCERS,
        epoch_step=st.sampled_from([1, 0, -1]),
        abort=st.booleans(),
        timestamp_ms=st.integers(0, 9),
    )
    def end(self, producer_id: int, epoch_step: int, abort: bool, timestamp_ms: int) -> None:
        """End a transaction, of the same epoch or a higher one, or without an open transaction."""
        current_epoch = self.model.epoch(producer_id)
        epoch = max(0, current_epoch + epoch_step)
        offset = self.model.end
        append = self.states.begin_append(ProducerChecks.EPOCHS)
        try:
            append.add_marker(producer_id, epoch, 0, offset, timestamp_ms, is_abort=abort)
        except InvalidProducerEpochError:
            assert epoch < current_epoch
            return
        assert epoch >= current_epoch
        first = dict(self.model.open()).get(producer_id)
        others = [each for other, each in self.model.open() if other != producer_id]
        expected = []
        if first is not None:
            stable = min(others, default=offset + 1)
            expected = [CompletedTransaction(producer_id, first, offset, abort, stable)]
        completed = append.commit()
        assert expected == completed
        for entry in aborted_of(completed):
            self.index.append(entry)
        kind = "abort" if abort else "commit"
        self.add(Entry(producer_id, epoch, -1, offset, offset, False, kind, timestamp_ms))
        self.states.advance_to(self.model.end)

    @rule(producer_id=PRODUCERS, txn=st.booleans())
    def refuse_and_drop(self, producer_id: int, txn: bool) -> None:
        """An append that is never committed leaves nothing."""
        append = self.states.begin_append(ProducerChecks.NONE)
        append.add_data(producer_id, 9, 5, self.model.end, self.model.end, 0, txn)
        append.add_marker(producer_id, 9, 0, self.model.end + 1, 0, is_abort=True)

    @rule(step=st.sampled_from([0, 1, 2, 3, 100]))
    def raise_high_watermark(self, step: int) -> None:
        """Replication continues."""
        self.high_watermark = min(self.high_watermark + step, self.model.end)
        self.states.advance_high_watermark(self.high_watermark)

    @rule()
    def take_snapshot(self) -> None:
        """Keep the entries of a snapshot at the log end."""
        self.snapshots[self.model.end] = tuple(self.states.snapshot_entries())

    @precondition(lambda self: self.snapshots and len(self.model.log) >= 20)
    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        """Cut the log at a snapshot, and load that."""
        offset = data.draw(st.sampled_from(sorted(self.snapshots)))
        entries = self.snapshots[offset]
        assert isinstance(entries, tuple)
        self.model.log = [each for each in self.model.log if each.last_offset < offset]
        self.snapshots = {key: each for key, each in self.snapshots.items() if key <= offset}
        self.high_watermark = offset
        self.index.truncate_to(offset)
        self.states.load(entries, offset)
        for producer_id in range(1, 5):
            window = self.model.window(producer_id)
            self.window_from[producer_id] = window[-1].first_offset if window else offset

    def teardown(self) -> None:
        """Abort open transactions, and check every range: only aborted records are hidden."""
        for producer_id, _ in self.model.open():
            self.end(producer_id, 0, True, 0)
        self.states.advance_high_watermark(self.model.end)
        stable = self.states.last_stable_offset(self.model.end)
        assert self.model.end == stable
        for start in range(stable):
            for end in range(start + 1, stable + 1):
                self.check_range(start, end)

    def check_range(self, start: int, end: int) -> None:
        """Hold the answer of the index against the model's log."""
        found = [(each[0], each[1], each[2]) for each in self.index.collect(start, end)[0]]
        for entry in self.model.log:
            if entry.last_offset < start or entry.first_offset >= end or not entry.transactional:
                continue
            hidden = any(
                producer_id == entry.producer_id and first <= entry.first_offset < last
                for producer_id, first, last in found
            )
            assert self.model.is_aborted(entry) == hidden

    @invariant()
    def the_same_is_open_and_stable(self) -> None:
        """After every step."""
        found = [(each.producer_id, each.first_offset) for each in self.states.open_transactions()]
        assert self.model.open() == found
        # A reload drops what was not replicated: a truncation ends at the high watermark.
        unstable = self.model.first_unstable(self.high_watermark)
        assert unstable == self.states.first_unstable_offset
        stable = self.high_watermark if unstable is None else min(unstable, self.high_watermark)
        assert stable == self.states.last_stable_offset(self.high_watermark)

    @invariant()
    def the_same_producers_are_known(self) -> None:
        """Epochs, windows and times."""
        for producer_id in range(1, 5):
            written = self.model.of(producer_id)
            entry = self.states.entries.get(producer_id)
            assert bool(written) == (entry is not None)
            if entry is None:
                continue
            window = self.known_window(producer_id)
            assert written[-1].epoch == entry.producer_epoch
            assert written[-1].timestamp_ms == entry.last_timestamp_ms
            assert [
                (each.first_sequence, each.first_offset, each.last_offset) for each in window
            ] == [
                (batch.first_sequence, batch.first_offset, batch.last_offset)
                for batch in entry.batches
            ]


TestProducerMachine = ProducerMachine.TestCase
TestProducerMachine.settings = settings(max_examples=100, stateful_step_count=60)
