"""History of both sides of a relay, and the records that a reader must therefore see.

A kill loses nothing that was acknowledged, on either side: the page cache survives it. What was
asked for and not acknowledged may be there or not; nothing else may. What was once seen not to be
there does not come back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["COMPACTED", "STORED", "TOPICS", "History", "PartitionKey", "Seen", "Side", "text_of"]

# Topic -> number of partitions.
TOPICS = {"plain": 2, "latest": 1, "moved": 2, "old": 1, "oldest": 1, "cut": 1, "gone": 2}
# Topics of which every record is known by its offset, and those of which the latest values are.
STORED = ("plain", "old", "cut", "gone")
COMPACTED = ("latest", "oldest")

# Values above this size stand as digests in the manifests of old logs, and so they do here.
MOST_BYTES = 256

Side = Literal["library", "broker"]
PartitionKey = tuple[str, int]


def text_of(data: bytes | None, digest: str | None = None) -> str:
    """Return a key or a value as a text for JSON, a large one as its digest."""
    if data is None:
        return digest or ""
    return data.decode("latin-1") if len(data) <= MOST_BYTES else hashlib.sha256(data).hexdigest()


@dataclass
class Seen:
    """
    Records and positions that one side serves.

    Attributes:
        records: (topic, partition) -> [(offset, key, value)], for readers of uncommitted records;
            keys of `old` begin with the time of the record. Partitions that are not there have no
            entry.
        committed: the same for readers of committed ones, of `moved`.
        positions: (topic, partition) -> offset of the group, None where it has none.
    """

    records: dict[PartitionKey, list[tuple[int, str, str]]] = field(default_factory=dict)
    committed: dict[PartitionKey, list[tuple[int, str, str]]] = field(default_factory=dict)
    positions: dict[PartitionKey, int | None] = field(default_factory=dict)


@dataclass
class Transaction:
    """Values by partition, and how far it came: open, committing, committed, aborted."""

    values: dict[int, list[str]]
    state: str = "open"


@dataclass
class History:
    """
    The log of everything that was tried, and what was answered.

    Attributes:
        stored: (topic, partition) of STORED -> offset -> value, acknowledged.
        keys: the same -> offset -> key, where that is known.
        tried: values that were sent and not acknowledged.
        starts: (topic, partition) of STORED -> offsets that may be its log start.
        cuts: (topic, partition) -> the first offset that a truncation may have removed, which was
            begun and not acknowledged.
        removing: side that began to delete `gone` without an answer: "library", "broker" or "".
        removed: (topic, partition) of `gone` -> records of topics that a broker has acknowledged
            to be deleted; their directories may be there until the next start of a broker.
        latest: topic of COMPACTED -> key -> values that may be its latest: the last acknowledged
            one and later ones; an empty one means none.
        transactions: by name.
        position: partition of `plain` -> the positions that the group may have; None for none.
    """

    stored: dict[PartitionKey, dict[int, str]] = field(
        default_factory=lambda: {
            (topic, partition): {} for topic in STORED for partition in range(TOPICS[topic])
        }
    )
    keys: dict[PartitionKey, dict[int, str]] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    starts: dict[PartitionKey, set[int]] = field(default_factory=dict)
    cuts: dict[PartitionKey, int] = field(default_factory=dict)
    removing: Side | Literal[""] = ""
    removed: dict[PartitionKey, list[dict[int, str]]] = field(default_factory=dict)
    latest: dict[str, dict[str, list[str]]] = field(
        default_factory=lambda: {topic: {} for topic in COMPACTED}
    )
    transactions: dict[str, Transaction] = field(default_factory=dict)
    position: dict[int, list[int | None]] = field(default_factory=dict)

    @property
    def is_in_doubt(self) -> bool:
        """True if only a broker knows which of the topics `gone` are deleted."""
        return self.removing == "broker" or bool(self.removed)

    # ---- operations ----

    def try_append(self, values: list[str]) -> None:
        """Records are about to be appended."""
        self.tried.update(values)

    def append(self, topic: str, partition: int, first_offset: int, values: list[str]) -> None:
        """They were acknowledged."""
        if topic == "gone":
            # It was made again, and what was there before is renamed.
            self.removed.clear()
        for number, value in enumerate(values):
            self.stored[topic, partition][first_offset + number] = value

    def try_start(self, topic: str, partition: int, offset: int) -> None:
        """Records are about to be deleted."""
        self.starts.setdefault((topic, partition), {0}).add(offset)

    def store_start(self, topic: str, partition: int, offset: int) -> None:
        """They are deleted."""
        self.starts[topic, partition] = {offset}
        self._keep(topic, partition, lambda each: each >= offset)

    def try_cut(self, topic: str, partition: int, _offset: int, kept_offset: int) -> None:
        """Batches are about to be cut off, the first of which begins at `kept_offset`."""
        self.cuts[topic, partition] = kept_offset

    def store_cut(self, topic: str, partition: int) -> None:
        """They are cut off."""
        kept_offset = self.cuts.pop((topic, partition))
        self._keep(topic, partition, lambda each: each < kept_offset)

    def try_restart(self, topic: str, partition: int, offset: int) -> None:
        """Everything is about to be cut off, and the log to begin again at an offset."""
        self.try_start(topic, partition, offset)
        self.cuts[topic, partition] = 0

    def store_restart(self, topic: str, partition: int, offset: int) -> None:
        """It is."""
        self.store_cut(topic, partition)
        self.store_start(topic, partition, offset)

    def try_remove(self, side: Side) -> None:
        """The topic `gone` is about to be deleted."""
        self.removing = side

    def remove(self, side: Side) -> None:
        """It is deleted."""
        self.removing = ""
        for place in self.stored:
            if place[0] == "gone":
                if side == "broker":
                    self.removed.setdefault(place, []).append(self.stored[place])
                self.stored[place] = {}

    def try_renew(self, topic: str, key: str, value: str) -> None:
        """A key is about to get a new value."""
        self.latest[topic].setdefault(key, [""]).append(value)

    def renew(self, topic: str, key: str, value: str) -> None:
        """It has it: earlier ones are over."""
        held = self.latest[topic][key]
        self.latest[topic][key] = held[held.index(value) :]

    def begin(self, name: str, values: dict[int, list[str]]) -> None:
        """A transaction is about to write to `moved`."""
        self.transactions[name] = Transaction(values)

    def decide(self, name: str, state: str) -> None:
        """A transaction is committing, committed or aborted."""
        self.transactions[name].state = state

    def try_position(self, partition: int, offset: int) -> None:
        """The group is about to commit a position."""
        self.position.setdefault(partition, [None]).append(offset)

    def store_position(self, partition: int, offset: int) -> None:
        """It is committed."""
        self.position[partition] = [offset]

    def confirm(self, seen: Seen, side: Side) -> None:
        """Take what was seen for what was not certain; it must stay."""
        self._confirm_stored(seen, side)
        for topic in COMPACTED:
            rows = seen.records.get((topic, 0), [])
            held: dict[str, list[str]] = {key: [""] for key in self.latest[topic]}
            self.latest[topic] = held | {key: [value] for _offset, key, value in rows}
        visible = {
            value
            for (topic, _partition), rows in seen.committed.items()
            for _offset, _key, value in rows
            if topic == "moved"
        }
        for each in self.transactions.values():
            if each.state == "committing":
                is_there = any(value in visible for part in each.values.values() for value in part)
                each.state = "committed" if is_there else "aborted"
            elif each.state == "open":
                each.state = "aborted"
        for (_topic, partition), offset in seen.positions.items():
            if partition in self.position:
                self.position[partition] = [offset]

    def _confirm_stored(self, seen: Seen, side: Side) -> None:
        is_left = side == "library" and self.is_in_doubt
        for place in self.stored:
            if place[0] == "gone" and is_left:
                continue
            rows = seen.records.get(place, [])
            self.stored[place] = {offset: value for offset, _key, value in rows}
            if rows and place in self.starts:
                may = [offset for offset in self.starts[place] if offset <= rows[0][0]]
                self.starts[place] = {max(may, default=rows[0][0])}
        self.cuts.clear()
        if not is_left:
            self.tried.clear()
            self.removing = ""
            self.removed.clear()

    def _keep(self, topic: str, partition: int, is_kept: Callable[[int], bool]) -> None:
        for records in (self.stored, self.keys):
            held = records.get((topic, partition), {})
            records[topic, partition] = {
                offset: text for offset, text in held.items() if is_kept(offset)
            }

    # ---- invariants ----

    def problems(self, seen: Seen, side: Side) -> list[str]:
        """Return what a side serves wrongly, a line each."""
        found = self._stored_problems(seen, side) + self._latest_problems(seen)
        return found + self._transaction_problems(seen) + self._position_problems(seen)

    def _stored_problems(self, seen: Seen, side: Side) -> list[str]:
        found = []
        for place in self.stored:
            rows = seen.records.get(place, [])
            each = [self._stored_problem(place, rows, held) for held in self._may_hold(place, side)]
            if all(each):
                found.append(each[0])
            keys = self.keys.get(place, {})
            wrong = [offset for offset, key, _value in rows if keys.get(offset, key) != key]
            if wrong:
                found.append(f"keys or times are wrong: {_name(place)}, {wrong[:5]}")
        return found

    def _may_hold(self, place: PartitionKey, side: Side) -> list[dict[int, str]]:
        """Return what a partition may have, besides what was tried."""
        may = [self.stored[place]]
        if place[0] == "gone" and self.removing:
            may.append({})
        if side == "library" and not self.stored[place]:
            may += self.removed.get(place, [])
        return may

    def _stored_problem(
        self, place: PartitionKey, rows: list[tuple[int, str, str]], held: dict[int, str]
    ) -> str:
        served = {offset: value for offset, _key, value in rows}
        starts = self.starts.get(place, {0})
        cut = self.cuts.get(place, max(held, default=0) + 1)
        lost = [
            offset
            for offset, value in held.items()
            if max(starts) <= offset < cut and served.get(offset) != value
        ]
        if lost:
            return f"acknowledged records are lost or moved: {_sample(place, lost)}"
        back = [offset for offset in served if offset < min(starts)]
        if back:
            return f"deleted records are served: {_sample(place, back)}"
        foreign = [
            offset
            for offset, value in served.items()
            if held.get(offset) != value and value not in self.tried
        ]
        if foreign:
            return f"never written, or gone before: {_sample(place, foreign)}"
        return ""

    def _latest_problems(self, seen: Seen) -> list[str]:
        found = []
        for topic, held in self.latest.items():
            served = {key: value for _offset, key, value in seen.records.get((topic, 0), [])}
            wrong = [key for key, may in held.items() if served.get(key, "") not in may]
            if wrong:
                sample = [(key, served.get(key), held[key]) for key in sorted(wrong)[:3]]
                found.append(f"latest values are wrong: {len(wrong)} of {topic}, such as {sample}")
            if foreign := sorted(served.keys() - held.keys()):
                found.append(f"keys were never written: {topic}, {foreign[:5]}")
        return found

    def _transaction_problems(self, seen: Seen) -> list[str]:
        served = {
            partition: [value for _offset, _key, value in seen.committed["moved", partition]]
            for partition in range(TOPICS["moved"])
        }
        found = []
        writes = set()
        for name, each in self.transactions.items():
            pairs = {(number, value) for number, values in each.values.items() for value in values}
            writes |= pairs
            there = {(number, value) for number, value in pairs if value in served[number]}
            if each.state == "committed" and there != pairs:
                found.append(
                    f"committed transaction {name} is not whole: {len(there)} of {len(pairs)}"
                )
            if each.state in ("open", "aborted") and there:
                found.append(f"{each.state} transaction {name} is visible: {len(there)} records")
            if each.state == "committing" and there and there != pairs:
                found.append(f"transaction {name} is half visible: {len(there)} of {len(pairs)}")
        values = [value for partition in served.values() for value in partition]
        if len(values) != len(set(values)):
            found.append("a record of a transaction is served twice")
        if {(number, value) for number in served for value in served[number]} - writes:
            found.append("a transaction that was never begun is visible")
        return found

    def _position_problems(self, seen: Seen) -> list[str]:
        found = []
        for partition, may in self.position.items():
            position = seen.positions.get(("plain", partition))
            if position not in may:
                found.append(
                    f"a position is wrong: plain-{partition} at {position}, not one of {may[-5:]}"
                )
        return found


def _name(place: PartitionKey) -> str:
    return f"{place[0]}-{place[1]}"


def _sample(place: PartitionKey, offsets: list[int]) -> str:
    return f"{_name(place)}, {sorted(offsets)[:5]} of {len(offsets)}"
