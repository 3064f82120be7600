"""Every power cut of sequences of transactions: atomic whatever was not synced (DUR-1).

The files of all logs, those of `__transaction_state` and `__consumer_offsets` among them, each keep
any number of whole batches above the synced ones, independently of each other. In each state of the
next process: readers of committed records see whole transactions, each of them requested to commit,
and all acknowledged ones; a group has the position of the last of them; no transaction stays open;
and the same transactional ids work.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest

from kafkalog import AppendOrigin, LogConfig, Record, TopicPartition
from kafkalog._core.builder import BatchBuilder
from kafkalog.clients import transactions
from kafkalog.clients.clients import Clients
from kafkalog.clients.group_offsets import GroupOffsets
from kafkalog.clients.internal_topics import partition_for
from kafkalog.clients.producer import Producer
from kafkalog.clients.transaction_records import (
    TransactionRecord,
    TransactionState,
    encode_key,
    encode_value,
)
from kafkalog.errors import KafkaLogError
from kafkalog.records.control import encode_marker
from tests.support.log_cuts import LogCuts, Moment
from tests.support.log_sources import Logs

INPUT = TopicPartition("input", 0)
CONFIG = LogConfig(segment_index_bytes=128, message_timestamp_after_max_ms=2**63 - 1)
TOPICS = {"orders": 2, "__consumer_offsets": 1, "__transaction_state": 2}
POSITION = 2
BOTH = (TopicPartition("orders", 0), TopicPartition("orders", 1))


@dataclass(frozen=True)
class TransactionFacts:
    """State of transactions for callers: requested to commit, and committed."""

    requests: frozenset[str] = frozenset()
    acknowledged: frozenset[str] = frozenset()


class Story:
    """
    Transactions of a few transactional ids, and their writes.

    Attributes:
        places: transaction -> its targets: partitions of `orders`, or POSITION.
    """

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.logs = opened(directory, fresh=True)
        for topic, numbers in self.logs.topics().items():
            for number in numbers:
                self.logs.log(topic, number)
        self.cuts = LogCuts(directory, patch, TransactionFacts())
        self.clients = self.logs.clients()
        self.producers: dict[str, Producer] = {}
        self.places: dict[str, tuple[int, ...]] = {}

    def session(self, name: str) -> None:
        """Begin a session under a transactional id; the session before it is fenced."""
        self.producers[name] = self.clients.producer(transactional_id=name)
        self.cuts.note()

    def write(self, name: str, transaction: str, *places: int) -> None:
        """Begin a transaction, and write to places."""
        self.places[transaction] = places
        producer = self.producers[name]
        producer.begin_transaction()
        for place in places:
            if place == POSITION:
                offset = {INPUT: self.offset_of(transaction)}
                producer.send_offsets_to_transaction(offset, "group")
            else:
                producer.send("orders", transaction.encode(), partition=place)
            producer.flush()
        self.cuts.note()

    def commit(self, name: str, transaction: str) -> None:
        """Commit the open transaction."""
        facts = self.cuts.facts
        self.cuts.facts = replace(facts, requests=facts.requests | {transaction})
        self.producers[name].commit_transaction()
        facts = self.cuts.facts
        self.cuts.facts = replace(facts, acknowledged=facts.acknowledged | {transaction})
        self.cuts.note()

    def abort(self, name: str) -> None:
        """Abort the open transaction."""
        self.producers[name].abort_transaction()
        self.cuts.note()

    def commits(self, name: str, transaction: str, *places: int) -> None:
        """Write and commit."""
        self.write(name, transaction, *places)
        self.commit(name, transaction)

    def aborts(self, name: str, transaction: str, *places: int) -> None:
        """Write and abort."""
        self.write(name, transaction, *places)
        self.abort(name)

    def sync(self, topic: str, partition: int) -> None:
        """Flush a log, as another producer, a roll or `flush.ms` may at any time."""
        self.logs.log(topic, partition).flush()
        self.cuts.note()

    def offset_of(self, transaction: str) -> int:
        """Return the position that a transaction puts: its number."""
        return list(self.places).index(transaction) + 1


def opened(directory: Path, *, fresh: bool = False) -> Logs:
    """Return the logs of a directory."""
    logs = Logs(directory, config=CONFIG)
    for topic, count in TOPICS.items():
        if fresh:
            logs.create_topic(topic, count)
        else:
            logs.take(topic, *range(count))
    return logs


def values(logs: Logs) -> list[list[str]]:
    """Return the committed values of each partition."""
    return [
        [
            (record.value or b"").decode()
            for record in logs.log("orders", number).records(isolation="read_committed")
        ]
        for number in range(2)
    ]


def recovered(directory: Path, places: dict[str, tuple[int, ...]], names: list[str]) -> set[str]:
    """Continue as the next process; return the transactions that are whole."""
    logs = opened(directory)
    with contextlib.closing(logs):
        # Other producer ids than in the process before.
        clients: Clients = logs.clients(random=Random(6))
        with clients.consumer("group") as consumer:
            consumer.assign([("orders", 0), ("orders", 1), ("__consumer_offsets", 0)])
        seen = values(logs)
        shown = {transaction for partition in seen for transaction in partition}
        position = GroupOffsets(logs).committed("group").get(INPUT)
        numbered = dict(enumerate(places, start=1))
        if position is not None:
            shown.add(numbered[position.offset])
        for number in range(2):
            expected = [each for each, where in places.items() if each in shown and number in where]
            assert sorted(expected) == sorted(seen[number]), "a transaction is halved"
        moved = [n for n, each in numbered.items() if each in shown and POSITION in places[each]]
        assert (moved[-1] if moved else None) == (None if position is None else position.offset)
        for topic, count in {"orders": 2, "__consumer_offsets": 1}.items():
            for number in range(count):
                log = logs.log(topic, number)
                assert log.last_stable_offset == log.log_end_offset, f"{topic}-{number} is stuck"
        for name in names:
            with clients.producer(transactional_id=name) as producer, producer.transaction():
                for number in range(2):
                    producer.send("orders", f"later {name}".encode(), partition=number)
        later = [f"later {name}" for name in names]
        assert values(logs) == [each + later for each in seen]
    return shown


def check(
    shown: set[str],
    moments: list[Moment[TransactionFacts]],
    lengths: tuple[int, ...],
    total: set[str],
) -> None:
    """Compare the transactions seen with each moment that may leave this state."""
    for moment in moments:
        facts = moment.facts
        assert facts.acknowledged <= shown <= facts.requests, (lengths, facts, shown)
    assert shown <= total


def one_after_the_other(story: Story) -> None:
    """Commit after commit, over different partitions; the last transaction stays open."""
    story.session("a")
    story.commits("a", "T1", 0, POSITION)
    story.commits("a", "T2", 0, 1)
    story.write("a", "T3", 1, 0, POSITION)
    story.sync("orders", 0)
    story.sync("orders", 1)


def commit_after_aborts(story: Story) -> None:
    """Aborts, whose markers are not synced, before and after a commit."""
    story.session("a")
    story.aborts("a", "T1", 0, 1)
    story.commits("a", "T2", 1)
    story.aborts("a", "T3", 0)
    story.commits("a", "T4", 0, POSITION)


def two_names(story: Story) -> None:
    """Two producers in the same partitions; one commits, the other aborts and continues."""
    story.session("a")
    story.session("b")
    story.write("a", "A1", 0)
    story.write("b", "B1", 0, 1)
    story.commit("a", "A1")
    story.abort("b")
    story.write("a", "A2", 0, 1)
    story.commits("b", "B2", 0)


def last_epochs(story: Story) -> None:
    """Transactions for which a producer id has no more epochs."""
    story.session("a")
    for number in range(4):
        story.commits("a", f"T{number}", number % 2, POSITION)
    story.aborts("a", "T4", 0, 1)
    story.aborts("a", "T5", 0, 1)
    story.write("a", "T6", 0, 1)


def fenced_sessions(story: Story) -> None:
    """A session has the transactional id of another one whose transaction is open."""
    story.session("a")
    story.commits("a", "T1", 0)
    story.write("a", "T2", 0, 1)
    story.session("a")
    story.commits("a", "T3", 1, POSITION)
    story.write("a", "T4", 0)
    story.session("a")
    story.write("a", "T5", 1)


@dataclass(frozen=True)
class Broker:
    """
    Transactions as a broker writes them.

    Attributes:
        epochs: of the first one's data, of its decision and markers, of the second one's data.
        ids: producer ids of the first one, and of the second.
        has_tags: whether values are of version 1, with a tag for transactions of version 2.
    """

    epochs: tuple[int, int, int]
    ids: tuple[int, int]
    has_tags: bool

    def value(self, state: TransactionState, number: int, now_ms: int) -> bytes:
        """Return a value of `__transaction_state`, of the first or the second transaction."""
        decided = state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
        epoch = self.epochs[1] if decided else self.epochs[2 * number]
        producer_id, previous, following = self.ids[number], -1, -1
        if self.ids[0] != self.ids[1]:
            if state is TransactionState.PREPARE_COMMIT:
                following = self.ids[1]
            elif state is TransactionState.COMPLETE_COMMIT:
                producer_id, previous, epoch = self.ids[1], self.ids[0], 0
        partitions = () if state is TransactionState.COMPLETE_COMMIT else BOTH
        plain = TransactionRecord(producer_id, epoch, 60_000, state, partitions, now_ms, now_ms - 5)
        if not self.has_tags:
            return encode_value(plain)
        topics = b"\x01"
        if partitions:
            topics = b"\x02\x07orders\x03\0\0\0\0\0\0\0\x01\0"
        tags = [b"\x00\x08" + previous.to_bytes(8, signed=True)] if previous >= 0 else []
        tags += [b"\x01\x08" + following.to_bytes(8, signed=True)] if following >= 0 else []
        tags.append(b"\x02\x02\x00\x02")
        return b"".join(
            [
                struct.pack(">hqhib", 1, producer_id, epoch, 60_000, state),
                topics,
                struct.pack(">qqB", now_ms, now_ms - 5, len(tags)),
                *tags,
            ]
        )


BROKERS = {
    "transaction version 1": Broker((5, 5, 5), (7, 7), has_tags=False),
    "transaction version 2": Broker((5, 6, 6), (7, 7), has_tags=True),
    "transaction version 2 at the last epoch": Broker((32766, 32767, 0), (7, 8), has_tags=True),
}


def as_a_broker(broker: Broker, logs: Logs, cuts: LogCuts[TransactionFacts]) -> None:
    """Write one transaction up to its decision, which is synced; its rest, and another, are not."""
    state_log = logs.log("__transaction_state", partition_for("a", 2))
    orders = [logs.log("orders", number) for number in range(2)]

    def note(state: TransactionState, number: int) -> None:
        logs.scheduler.advance(10)
        value = broker.value(state, number, logs.clock.now_ms())
        state_log.append([Record(key=encode_key("a"), value=value)])

    def write(number: int) -> None:
        note(TransactionState.ONGOING, number)
        for log in orders:
            builder = BatchBuilder()
            builder.append(None, f"T{number + 1}".encode(), logs.clock.now_ms())
            batch = builder.finish(
                producer_id=broker.ids[number],
                producer_epoch=broker.epochs[2 * number],
                base_sequence=0 if broker.epochs[2 * number] != broker.epochs[0] else number,
                transactional=True,
            )
            log.append_batches(bytes(batch))

    for log in orders:
        # The marker of an earlier transaction is not evidence for the first one here.
        marker = encode_marker(7, broker.epochs[0], 0, logs.clock.now_ms(), is_abort=True)
        log.append_batches(marker, origin=AppendOrigin.COORDINATOR)
    write(0)
    note(TransactionState.PREPARE_COMMIT, 0)
    for log in (*orders, state_log):
        log.flush()
    cuts.note()
    logs.scheduler.advance(10)
    for log in orders:
        marker = encode_marker(7, broker.epochs[1], 0, logs.clock.now_ms(), is_abort=False)
        log.append_batches(marker, origin=AppendOrigin.COORDINATOR)
    note(TransactionState.COMPLETE_COMMIT, 0)
    write(1)
    cuts.note()


@pytest.mark.parametrize("kind", BROKERS)
def test_transactions_of_a_broker_power_cut_anywhere_are_whole(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUR-1: a broker's decision counts for its transaction, and not for the next one."""
    with monkeypatch.context() as patch:
        logs = opened(tmp_path / "data", fresh=True)
        for topic, numbers in logs.topics().items():
            for number in numbers:
                logs.log(topic, number)
        cuts = LogCuts(tmp_path / "data", patch, TransactionFacts())
        as_a_broker(BROKERS[kind], logs, cuts)
    states = [lengths for lengths, moments in cuts.states() if cuts.moments[-1] in moments]
    # Markers, COMPLETE, ONGOING and data after the decision: (2 + 1) * (2 + 1) * (2 + 1).
    assert len(states) == 27
    for lengths in states:
        cuts.make(tmp_path / "cut", lengths)
        try:
            shown = recovered(tmp_path / "cut", {"T1": (0, 1), "T2": (0, 1)}, ["a"])
            assert shown == {"T1"}
        except (AssertionError, KafkaLogError) as error:
            raise AssertionError(f"lengths {lengths}: {error}") from error
    logs.close()


STORIES = [one_after_the_other, commit_after_aborts, two_names, last_epochs, fenced_sessions]


def explore(
    tell: Callable[[Story], None], directory: Path, patch: pytest.MonkeyPatch, step: int
) -> None:
    """Check every `step`-th state."""
    patch.setattr(transactions, "EPOCH_LAST", 3)
    with patch.context() as inner:
        story = Story(directory / "data", inner)
        tell(story)
    outcomes = set()
    states = list(story.cuts.states())
    for lengths, moments in states[::step]:
        story.cuts.make(directory / "cut", lengths)
        try:
            shown = recovered(directory / "cut", story.places, sorted(story.producers))
            check(shown, moments, lengths, set(story.places))
        except (AssertionError, KafkaLogError) as error:
            raise AssertionError(f"lengths {lengths}: {error}") from error
        outcomes.add(frozenset(shown))
    assert len(outcomes) > 1
    story.logs.close()


@pytest.mark.parametrize("tell", STORIES, ids=lambda each: each.__name__)
def test_transactions_power_cut_at_some_moments_are_whole(
    tell: Callable[[Story], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUR-1: each log file keeps any batches above its sync; no transaction is halved."""
    explore(tell, tmp_path, monkeypatch, 5)


@pytest.mark.slow
@pytest.mark.parametrize("tell", STORIES, ids=lambda each: each.__name__)
def test_transactions_power_cut_anywhere_are_whole(
    tell: Callable[[Story], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUR-1: the same in every state."""
    explore(tell, tmp_path, monkeypatch, 1)
