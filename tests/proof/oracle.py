"""Oracle of requested and acknowledged operations, which judges the content that is found.

Shares no code with the engine. It replays the writer's events: what was acknowledged before the
power was cut is evidence, what came later was only requested. After a check what
was seen is the content: recovery has called it durable. What was lost may then never come back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.proof.contents import Spec, content
from tests.proof.shared_events import Event

__all__ = ["Observed", "Oracle", "Problem", "Seen", "Stream", "View"]

Identity = tuple[int, int]
FOREVER = 1 << 62


@dataclass(frozen=True)
class Problem:
    """A broken promise: which, and how it was seen."""

    title: str
    details: str


@dataclass(frozen=True, slots=True)
class Seen:
    """
    One record that is served.

    Attributes:
        stream, operation, index: which it is.
        outcome: of its transaction: "committed", "aborted", "open"; "" where it has none.
    """

    stream: int
    operation: int
    index: int
    outcome: str


@dataclass
class Observed:
    """
    Records of one partition by offset, where it begins and ends, and what is durable.

    `reported` has the ranges of offsets that the log reports as missing, (first, next).
    """

    start: int
    end: int
    records: dict[int, Seen]
    durable: int
    foreign: list[str] = field(default_factory=list)
    torn_count: int = 0
    reported: tuple[tuple[int, int], ...] = ()

    def reports(self, offset: int) -> bool:
        """Return whether the log reports an offset as missing."""
        return any(first <= offset < following for first, following in self.reported)


@dataclass
class View:
    """
    Everything that was found after a start.

    Attributes:
        partitions: by directory.
        topics: partition counts of topics, None where the workload has no manager.
        positions: of groups, by (group, partition).
        rows: how often each row of the sink is there.
    """

    partitions: dict[str, Observed]
    topics: dict[str, int] | None = None
    positions: dict[tuple[str, str], int] = field(default_factory=dict)
    rows: dict[str, int] | None = None


@dataclass
class Operation:
    """
    An append.

    Attributes:
        count: how many records.
        first: its first offset, once that is known.
        transaction: the transaction it belongs to, or -1.
        left: which of its records the last check saw; None where that is all.
        produced: producer id and first sequence, where it has them.
        cleanings: how many compactions had ended when it was asked for.
    """

    count: int
    first: int | None = None
    transaction: int = -1
    left: set[int] | None = None
    produced: tuple[int, int] | None = None
    cleanings: int = 0


@dataclass
class Stream:
    """Knowledge of one partition in one incarnation."""

    number: int
    spec: Spec
    operations: dict[int, Operation] = field(default_factory=dict)
    must: dict[int, Identity] = field(default_factory=dict)
    pending: dict[int, Identity] = field(default_factory=dict)
    truncating_now: dict[int, Identity] = field(default_factory=dict)
    dead: set[Identity] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    # The highest offset of each key that a truncation took after a compaction may have read it.
    outlived: dict[bytes | None, int] = field(default_factory=dict)
    deleted_below: int = 0
    may_delete_below: int = 0
    durable: int = 0

    def acknowledged(self, number: int, first: int, *, durable: bool) -> None:
        """Note the offset of an append."""
        operation = self.operations[number]
        operation.first = first
        for index in range(operation.count):
            offset = first + index
            if durable or offset < self.durable:
                self.must[offset] = (number, index)
                self.pending.pop(offset, None)
            else:
                self.pending[offset] = (number, index)

    def flushed(self, offset: int) -> None:
        """Note that everything below an offset is durable."""
        self.durable = max(self.durable, offset)
        for each in [each for each in self.pending if each < offset]:
            self.must[each] = self.pending.pop(each)

    def truncating(self, offset: int, cleanings: int) -> None:
        """
        Note that a truncation began: nothing from there on has to be there.

        Nor what a compaction has left out for a record that goes now.

        Args:
            offset: where the log is to end.
            cleanings: how many compactions have begun, 0 where none can have been here.
        """
        for number, operation in self.operations.items():
            if operation.cleanings >= cleanings:
                continue
            for index in range(operation.count):
                # The offset of an append without an answer is not known.
                at = FOREVER if operation.first is None else operation.first + index
                if at >= offset:
                    key = content(self.spec, self.number, number, index).key
                    self.outlived[key] = max(at, self.outlived.get(key, -1))
        self.durable = min(self.durable, offset)
        self.deleted_below = min(self.deleted_below, offset)
        for records in (self.must, self.pending):
            for each in [each for each in records if each >= offset]:
                self.truncating_now[each] = records.pop(each)

    def truncated(self, offset: int) -> None:
        """Note that it ended: nothing from there on may be there; below it a batch may be cut."""
        self.dead |= {each for at, each in self.truncating_now.items() if at >= offset}
        self.truncating_now = {}

    def ended(self) -> None:
        """Note that the power was cut: what was written only may be gone, and its offsets free."""
        self.pending = {}

    def rebased(self, observed: Observed) -> None:
        """Take what is there for all there is."""
        left: dict[int, set[int]] = defaultdict(set)
        for offset, seen in observed.records.items():
            left[seen.operation].add(seen.index)
            operation = self.operations.get(seen.operation)
            if operation is not None:
                operation.first = offset - seen.index
        self.gone |= set(self.operations) - set(left)
        self.operations = {key: each for key, each in self.operations.items() if key in left}
        for number, indexes in left.items():
            if number in self.operations:
                self.operations[number].left = indexes
        there = {at: (each.operation, each.index) for at, each in observed.records.items()}
        self.must = {at: each for at, each in there.items() if at < observed.durable}
        self.pending = {at: each for at, each in there.items() if at >= observed.durable}
        self.truncating_now, self.dead, self.outlived = {}, set(), {}
        self.deleted_below = self.may_delete_below = observed.start
        self.durable = observed.durable


@dataclass
class Transaction:
    """The requested end of a transaction, its appends since the last check, its positions."""

    ending: str = ""
    acknowledged: bool = False
    appends: list[tuple[int, int]] = field(default_factory=list)
    positions: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass
class Topic:
    """
    A topic.

    Attributes:
        state: "asked", "there", "deleting" or "gone".
        streams: numbers of its partitions.
        former: those of the topic of this name before it, as long as its deletion was not
            acknowledged: either of the two may be there.
    """

    state: str
    streams: list[int]
    former: list[int] = field(default_factory=list)


class Oracle:
    """
    All that is known of a workload.

    Args:
        exact: a kill loses nothing that was written, so every acknowledgement counts as durable.
        seed: what the workload draws its logs and topics from.
    """

    def __init__(self, *, exact: bool, seed: int = 0) -> None:
        self.exact = exact
        self.seed = seed
        self.streams: dict[int, Stream] = {}
        self.transactions: dict[int, Transaction] = {}
        self.topics: dict[str, Topic] = {}
        self.positions: dict[tuple[str, str], list[int]] = {}
        self.least: dict[tuple[str, str], int] = {}
        self.sinks: dict[int, tuple[list[tuple[int, int]], bool]] = {}
        self.wrong: list[Problem] = []
        self.kinds: dict[str, int] = defaultdict(int)
        self._cleanings_begun = self._cleanings_ended = 0

    # ------------------------------------------------------------------------------------ events

    def apply(self, events: Iterable[Event], *, evidence: bool) -> None:
        """Take in events; without evidence acknowledgements count for nothing."""
        for event in events:
            getattr(self, f"_on_{event[0]}")(evidence, *event[1:])

    def ended(self) -> None:
        """Note that the process has ended, and with it what was only written."""
        for stream in self.streams.values():
            stream.ended()
        self._cleanings_ended = self._cleanings_begun

    def _on_kind(self, evidence: bool, name: str) -> None:
        pass  # counted by `tally`

    def _on_begin(self, evidence: bool, name: str) -> None:
        self._cleanings_begun += name == "compact"

    def _on_end(self, evidence: bool, name: str) -> None:
        self._cleanings_ended += name == "compact"

    def _on_form(self, evidence: bool, form: str, magic: int, codec: str) -> None:
        pass

    def _on_wrong(self, evidence: bool, title: str, details: str) -> None:
        # Errors that a writer sees while its disk is being cut are no fault.
        if evidence:
            self.wrong.append(Problem(title, details))

    def _on_stream(self, evidence: bool, number: int, fields: dict[str, object]) -> None:
        self.streams[number] = Stream(number, Spec(**fields))  # type: ignore[arg-type]

    def _on_ask(
        self, evidence: bool, stream: int, number: int, count: int, transaction: int = -1
    ) -> None:
        operation = Operation(count, None, transaction, cleanings=self._cleanings_ended)
        self.streams[stream].operations[number] = operation
        if transaction >= 0:
            self.transactions[transaction].appends.append((stream, number))

    def _on_ack(self, evidence: bool, stream: int, number: int, first: int, durable: bool) -> None:
        found = self.streams.get(stream)
        if found is None or number not in found.operations:
            return
        if evidence:
            found.acknowledged(number, first, durable=durable or self.exact)
        else:
            found.operations[number].first = first

    def _on_flush(self, evidence: bool, stream: int, offset: int) -> None:
        if evidence and stream in self.streams:
            self.streams[stream].flushed(offset)

    def _on_truncate(self, evidence: bool, stream: int, offset: int) -> None:
        found = self.streams[stream]
        begun = FOREVER if found.spec.topic else self._cleanings_begun
        found.truncating(offset, begun if found.spec.compact else 0)

    def _on_truncated(self, evidence: bool, stream: int, offset: int) -> None:
        if evidence:
            self.streams[stream].truncated(offset)

    def _on_delete(self, evidence: bool, stream: int, offset: int) -> None:
        found = self.streams[stream]
        found.may_delete_below = max(found.may_delete_below, offset)

    def _on_deleted(self, evidence: bool, stream: int, offset: int) -> None:
        if evidence:
            found = self.streams[stream]
            found.deleted_below = max(found.deleted_below, offset)

    def _on_topic(self, evidence: bool, name: str, state: str, streams: list[int]) -> None:
        if state in ("there", "gone") and not evidence:
            return
        previous = self.topics.get(name)
        former: list[int] = []
        if previous is not None and state == "asked":
            former = previous.former + previous.streams
            if previous.state == "gone":
                self._drop(former)
                former = []
        elif previous is not None:
            streams, former = previous.streams, previous.former
            if state == "gone":
                self._drop(former)
                former = []
        self.topics[name] = Topic(state, list(streams), former)
        if state == "asked":
            self._drop_unasked(name, {*streams, *former})

    def _drop_unasked(self, topic: str, numbers: set[int]) -> None:
        """Drop the streams of a topic that a kill has kept from being asked for."""
        ours = [number for number, each in self.streams.items() if each.spec.topic == topic]
        self._drop(set(ours) - numbers)

    def _drop(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.streams.pop(number, None)

    def undecided_topics(self) -> list[str]:
        """Return the names of topics of which either of two incarnations may be there."""
        return [name for name, topic in self.topics.items() if topic.former]

    def decide_topic(self, name: str, found: set[int]) -> None:
        """
        Settle which incarnation of a topic is there.

        Args:
            name: of the topic.
            found: numbers of the streams of which it holds records.
        """
        topic = self.topics[name]
        if found & set(topic.former) and not found & set(topic.streams):
            self._drop(topic.streams)
            self.topics[name] = Topic("deleting", topic.former)
        else:
            self._drop(topic.former)
            self.topics[name] = Topic(topic.state, topic.streams)

    def _on_settled(self, evidence: bool, stream: int, start: int) -> None:
        if evidence:
            found = self.streams[stream]
            found.deleted_below = max(found.deleted_below, start)
            found.may_delete_below = start

    def _on_produced(
        self, evidence: bool, stream: int, number: int, producer: int, sequence: int
    ) -> None:
        self.streams[stream].operations[number].produced = (producer, sequence)

    def _on_transaction(self, evidence: bool, number: int) -> None:
        self.transactions[number] = Transaction()

    def _on_commit(self, evidence: bool, number: int, done: bool) -> None:
        transaction = self.transactions[number]
        transaction.ending = "commit"
        if not (done and evidence):
            return
        transaction.acknowledged = True
        for stream, append in transaction.appends:
            operation = self.streams[stream].operations.get(append)
            if operation is not None and operation.first is not None:
                self.streams[stream].acknowledged(append, operation.first, durable=True)
        for key, position in transaction.positions.items():
            self.least[key] = position

    def _on_abort(self, evidence: bool, number: int, done: bool) -> None:
        self.transactions[number].ending = "abort"

    def _on_position(
        self, evidence: bool, group: str, where: str, position: int, transaction: int = -1
    ) -> None:
        if transaction >= 0:
            self.transactions[transaction].positions[group, where] = position
        self.positions.setdefault((group, where), []).append(position)

    def _on_positioned(
        self, evidence: bool, group: str, where: str, position: int, durable: bool
    ) -> None:
        if evidence and (durable or self.exact):
            self.least[group, where] = position

    def _on_sink(
        self, evidence: bool, version: int, parts: list[tuple[int, int]], done: bool
    ) -> None:
        before = self.sinks.get(version, ([], False))[1]
        self.sinks[version] = (list(parts), before or (done and evidence))

    # ------------------------------------------------------------------------------------ judging

    def check(self, view: View) -> list[Problem]:
        """Return the problems of the content that was found, and continue from it."""
        problems, self.wrong = self.wrong, []
        problems += self._check_topics(view)
        seen: dict[int, Observed] = {}
        for stream in self.streams.values():
            observed = view.partitions.get(stream.spec.directory)
            if observed is None:
                if not stream.spec.topic and (stream.must or stream.durable):
                    problems.append(Problem("a log is gone", stream.spec.directory))
                continue
            seen[stream.number] = observed
            if observed.torn_count:
                self.kinds["logs with a torn batch before whole ones, reported"] += 1
        for number, observed in seen.items():
            problems += self._check_stream(self.streams[number], observed)
        problems += self._check_transactions(seen, view)
        outcomes = self._outcomes(seen)
        problems += self._check_positions(view, outcomes)
        problems += self._check_rows(view)
        self._rebase(view, seen, outcomes)
        return problems

    def _outcomes(self, seen: dict[int, Observed]) -> dict[int, set[str]]:
        """Return the fate of the records of each transaction."""
        outcomes: dict[int, set[str]] = defaultdict(set)
        for number, observed in seen.items():
            operations = self.streams[number].operations
            for each in observed.records.values():
                operation = operations.get(each.operation)
                if operation is not None and operation.transaction >= 0:
                    outcomes[operation.transaction].add(each.outcome)
        return outcomes

    def _check_topics(self, view: View) -> Iterator[Problem]:
        if view.topics is None:
            return
        for name, topic in self.topics.items():
            found = view.topics.get(name)
            if found is None:
                if topic.state == "there":
                    yield Problem("a topic is gone", name)
            elif topic.state == "gone":
                yield Problem("a deleted topic is back", f"{name}, {found} partitions")
            elif found != len(topic.streams):
                want = len(topic.streams)
                yield Problem("a topic lacks partitions", f"{name}: {found} of {want}")
            if found is None or topic.state == "gone":
                for number in topic.streams:
                    self.streams.pop(number, None)

    def _check_stream(self, stream: Stream, observed: Observed) -> Iterator[Problem]:
        where = f"{stream.spec.directory} [{observed.start}, {observed.end})"
        for text in observed.foreign[:3]:
            yield Problem("a record that nobody wrote", f"{where}: {text}")
        if observed.start < stream.deleted_below:
            yield Problem(
                "deleted records are back", f"{where}: deleted below {stream.deleted_below}"
            )
        if observed.end < stream.durable:
            yield Problem("a durable end is gone", f"{where}: durable was {stream.durable}")
        yield from self._check_must(stream, observed, where)
        yield from self._check_seen(stream, observed, where)

    def _check_must(self, stream: Stream, observed: Observed, where: str) -> Iterator[Problem]:
        latest = self._latest(stream, observed) if stream.spec.compact else None
        limit = FOREVER if stream.spec.trims else stream.may_delete_below
        lost: list[int] = []
        for offset, (number, index) in stream.must.items():
            found = observed.records.get(offset)
            if found is not None:
                if (found.operation, found.index) != (number, index):
                    yield Problem(
                        "an acknowledged offset has other content",
                        f"{where}: {offset} was {(number, index)}, is {found}",
                    )
            elif offset < observed.start and offset < limit:
                continue
            elif latest is None or not self._superseded(stream, latest, offset, number, index):
                lost.append(offset)
        if lost:
            lost.sort()
            what = [(at, stream.must[at]) for at in lost[:5]]
            yield Problem(
                "acknowledged records are lost",
                f"{where}: {len(lost)} from {lost[0]} to {lost[-1]}: {what}; may be deleted below"
                f" {limit}, durable {stream.durable}",
            )

    def _check_seen(self, stream: Stream, observed: Observed, where: str) -> Iterator[Problem]:
        firsts: dict[int, int] = {}
        indexes: dict[int, set[int]] = defaultdict(set)
        for offset, seen in observed.records.items():
            number, index = seen.operation, seen.index
            operation = stream.operations.get(number)
            if seen.stream != stream.number or operation is None or index >= operation.count:
                title = "a record that nobody wrote here"
                if number in stream.gone:
                    title = "a record that was lost is back"
                yield Problem(title, f"{where}: {offset}: {seen}, this is {stream.number}")
                continue
            if (number, index) in stream.dead:
                yield Problem("a truncated record is back", f"{where}: {offset}: {seen}")
            if operation.left is not None and index not in operation.left:
                yield Problem("a record that was lost is back", f"{where}: {offset}: {seen}")
            first = firsts.setdefault(number, offset - index)
            if first != offset - index or operation.first not in (None, first):
                yield Problem(
                    "a record has moved, or is there twice",
                    f"{where}: {offset}: {seen}, acknowledged at {operation.first}, else {first}",
                )
            indexes[number].add(index)
        if stream.spec.compact:
            return
        for number, there in indexes.items():
            begin = max(0, observed.start - firsts[number])
            missing = set(range(begin, max(there))) - there
            if any(not observed.reports(firsts[number] + each) for each in missing):
                yield Problem(
                    "an append is there in part, and not its beginning",
                    f"{where}: {number}: {sorted(there)}",
                )
            elif missing:
                self.kinds["appends of old messages in part, and their loss reported"] += 1

    def _latest(self, stream: Stream, observed: Observed) -> dict[bytes | None, int]:
        """Return the highest offset at which each key has a record that counts."""
        latest: dict[bytes | None, int] = {}
        for offset, seen in observed.records.items():
            if seen.outcome in ("", "committed"):
                key = content(stream.spec, stream.number, seen.operation, seen.index).key
                latest[key] = max(offset, latest.get(key, -1))
        for number, operation in stream.operations.items():
            if not self._may_count(operation):
                continue
            for index in range(operation.count):
                each = content(stream.spec, stream.number, number, index)
                if each.value is None:
                    # The offset of an append without an answer is not known; it may be gone.
                    offset = FOREVER if operation.first is None else operation.first + index
                    latest[each.key] = max(offset, latest.get(each.key, -1))
        return latest

    def _may_count(self, operation: Operation) -> bool:
        if operation.transaction < 0:
            return True
        return self.transactions[operation.transaction].ending == "commit"

    def _superseded(
        self, stream: Stream, latest: dict[bytes | None, int], offset: int, number: int, index: int
    ) -> bool:
        operation = stream.operations.get(number)
        if operation is not None and operation.transaction >= 0:
            transaction = self.transactions[operation.transaction]
            if not transaction.acknowledged:
                # Aborted, or not known to be committed; whether it is whole is asked elsewhere.
                return True
        each = content(stream.spec, stream.number, number, index)
        newest = max(latest.get(each.key, -1), stream.outlived.get(each.key, -1))
        return newest > offset or (each.value is None and offset in stream.must)

    # ------------------------------------------------------------------------------- transactions

    def _check_transactions(self, seen: dict[int, Observed], view: View) -> Iterator[Problem]:
        visible: dict[int, set[tuple[int, int, int]]] = defaultdict(set)
        hidden: dict[int, set[tuple[int, int, int]]] = defaultdict(set)
        for number, observed in seen.items():
            operations = self.streams[number].operations
            for each in observed.records.values():
                operation = operations.get(each.operation)
                if operation is None or operation.transaction < 0:
                    continue
                kind = visible if each.outcome == "committed" else hidden
                kind[operation.transaction].add((number, each.operation, each.index))
                if each.outcome == "open":
                    yield Problem("a transaction stays open", f"{each}")
                elif not each.outcome:
                    yield Problem("a record has left its transaction", f"{each}")
        for number, transaction in self.transactions.items():
            shown, kept = visible.get(number, set()), hidden.get(number, set())
            what = f"transaction {number}, asked to {transaction.ending or 'nothing'}"
            what += f" (acknowledged: {transaction.acknowledged}), visible {sorted(shown)[:6]}"
            what += f", hidden {sorted(kept)[:6]}, appends {transaction.appends}"
            if shown and transaction.ending != "commit":
                yield Problem("a transaction that nobody committed is visible", what)
            elif transaction.acknowledged and kept:
                yield Problem("a committed transaction is not visible", what)
            elif shown and kept:
                yield Problem("half a transaction is visible", what)
            elif shown or transaction.acknowledged or _is_positioned(transaction, view):
                missing = sorted(self._missing(transaction, shown, seen))
                if missing:
                    yield Problem("half a transaction is visible", f"{what}; missing {missing[:6]}")

    def _missing(
        self,
        transaction: Transaction,
        shown: set[tuple[int, int, int]],
        seen: dict[int, Observed],
    ) -> Iterator[tuple[int, int, int]]:
        """Yield the records of a visible transaction that should be there and are not."""
        for number, append in transaction.appends:
            stream = self.streams.get(number)
            observed = seen.get(number)
            if stream is None or observed is None:
                continue
            operation = stream.operations[append]
            latest = self._latest(stream, observed) if stream.spec.compact else {}
            for index in range(operation.count):
                if (number, append, index) in shown:
                    continue
                offset = -1 if operation.first is None else operation.first + index
                limit = FOREVER if stream.spec.trims else stream.may_delete_below
                if offset < observed.start and offset < limit and (offset >= 0 or limit > 0):
                    continue
                key = content(stream.spec, number, append, index)
                if stream.spec.compact and (key.value is None or latest.get(key.key, -1) > offset):
                    continue
                yield number, append, index

    # ---------------------------------------------------------------------------- groups, the sink

    def _check_positions(self, view: View, outcomes: dict[int, set[str]]) -> Iterator[Problem]:
        if view.topics is None:
            return
        undone = {
            (key, position)
            for number, each in self.transactions.items()
            if each.ending != "commit" or outcomes.get(number) == {"aborted"}
            for key, position in each.positions.items()
        }
        for number, each in self.transactions.items():
            for key, position in each.positions.items():
                if (
                    "committed" in outcomes.get(number, ())
                    and view.positions.get(key, 0) < position
                ):
                    text = f"{key}: {view.positions.get(key, 0)} of {position}, {number}"
                    yield Problem("a committed transaction lacks its position", text)
        for key, offsets in self.positions.items():
            found = view.positions.get(key, 0)
            if found < self.least.get(key, 0):
                yield Problem(
                    "a group's position is lost", f"{key}: {found}, was {self.least[key]}"
                )
            elif found and found not in offsets:
                yield Problem("a group's position that nobody put", f"{key}: {found}, of {offsets}")
            elif (key, found) in undone:
                yield Problem("a position of a transaction that is not committed", f"{key} {found}")

    def _check_rows(self, view: View) -> Iterator[Problem]:
        if view.rows is None:
            return
        left = dict(view.rows)
        for version, (parts, done) in self.sinks.items():
            texts = [
                f"sink.{version}.{number}.{row}" for number, count in parts for row in range(count)
            ]
            counts = [left.pop(text, 0) for text in texts]
            if any(count > 1 for count in counts):
                yield Problem("a row of the sink is there twice", f"version {version}: {counts}")
            elif done and not all(counts):
                yield Problem("rows of the sink are lost", f"version {version}: {counts}")
            elif any(counts) and not all(counts):
                yield Problem("a transaction of the sink is there in part", f"{version}: {counts}")
        if left:
            yield Problem("rows of the sink that nobody wrote", f"{sorted(left.items())[:5]}")

    def _rebase(self, view: View, seen: dict[int, Observed], outcomes: dict[int, set[str]]) -> None:
        for number, transaction in self.transactions.items():
            if transaction.ending == "commit" and (
                "committed" in outcomes.get(number, ()) or _is_positioned(transaction, view)
            ):
                transaction.acknowledged = True
            elif not transaction.acknowledged and transaction.appends:
                transaction.ending = "abort"
            transaction.appends = []
        for name, topic in self.topics.items():
            present = (view.topics or {}).get(name) is not None
            topic.state = "there" if present else "gone"
        for number, observed in seen.items():
            stream = self.streams[number]
            if stream.spec.trims and observed.start > stream.deleted_below:
                self.kinds["logs found after retention in the background"] += 1
            stream.rebased(observed)
        for key in self.positions:
            found = view.positions.get(key, 0)
            self.positions[key] = [found]
            self.least[key] = found
        if view.rows is not None:
            for version, (parts, done) in list(self.sinks.items()):
                there = any(view.rows.get(f"sink.{version}.{number}.0", 0) for number, _ in parts)
                self.sinks[version] = (parts, True)
                if not there and not done:
                    del self.sinks[version]


def _is_positioned(transaction: Transaction, view: View) -> bool:
    """Return whether a position that only this transaction has put is there: it was committed."""
    return any(view.positions.get(key) == put for key, put in transaction.positions.items())
