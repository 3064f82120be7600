"""What both sides of a relay have written, and what a reader must therefore see.

A kill loses nothing that was acknowledged, on either side: the page cache survives it. What was
asked for and not acknowledged may be there or not; nothing else may.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["TOPICS", "History", "Seen"]

# Topic -> number of partitions.
TOPICS = {"plain": 2, "latest": 1, "moved": 2}


@dataclass
class Seen:
    """
    What one side serves.

    Attributes:
        records: (topic, partition) -> [(offset, key, value)], for readers of uncommitted records.
        committed: the same for readers of committed ones.
        positions: (topic, partition) -> offset of the group, None where it has none.
    """

    records: dict[tuple[str, int], list[tuple[int, str, str]]] = field(default_factory=dict)
    committed: dict[tuple[str, int], list[tuple[int, str, str]]] = field(default_factory=dict)
    positions: dict[tuple[str, int], int | None] = field(default_factory=dict)


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
        stored: partition of `plain` -> offset -> value, acknowledged.
        tried: values that were sent and not acknowledged.
        starts: partition of `plain` -> its log start.
        latest: key -> values that may be its latest: the last acknowledged one and later ones; an
            empty one stands for none.
        transactions: by name.
        position: partition of `plain` -> the positions that the group may have.
    """

    stored: dict[int, dict[int, str]] = field(default_factory=lambda: {0: {}, 1: {}})
    tried: set[str] = field(default_factory=set)
    starts: dict[int, set[int]] = field(default_factory=lambda: {0: {0}, 1: {0}})
    latest: dict[str, list[str]] = field(default_factory=dict)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    position: dict[int, list[int]] = field(default_factory=dict)

    # ---- what is done ----

    def try_plain(self, values: list[str]) -> None:
        """Records are about to be appended to `plain`."""
        self.tried.update(values)

    def store_plain(self, partition: int, first_offset: int, values: list[str]) -> None:
        """They were acknowledged."""
        for number, value in enumerate(values):
            self.stored[partition][first_offset + number] = value

    def try_start(self, partition: int, offset: int) -> None:
        """Records of `plain` are about to be deleted."""
        self.starts[partition].add(offset)

    def store_start(self, partition: int, offset: int) -> None:
        """They are deleted."""
        self.starts[partition] = {offset}

    def try_latest(self, key: str, value: str) -> None:
        """A key is about to get a new value."""
        self.latest.setdefault(key, [""]).append(value)

    def store_latest(self, key: str, value: str) -> None:
        """It has it: earlier ones are over."""
        held = self.latest[key]
        self.latest[key] = held[held.index(value) :]

    def begin(self, name: str, values: dict[int, list[str]]) -> None:
        """A transaction is about to write to `moved`."""
        self.transactions[name] = Transaction(values)

    def decide(self, name: str, state: str) -> None:
        """A transaction is committing, committed or aborted."""
        self.transactions[name].state = state

    def try_position(self, partition: int, offset: int) -> None:
        """The group is about to commit a position."""
        self.position.setdefault(partition, []).append(offset)

    def store_position(self, partition: int, offset: int) -> None:
        """It is committed."""
        self.position[partition] = [offset]

    def adopt(self, seen: Seen) -> None:
        """What was not certain is what was seen; it must stay."""
        for partition in self.stored:
            rows = seen.records["plain", partition]
            self.stored[partition] = {offset: value for offset, _key, value in rows}
        for _offset, key, value in seen.records["latest", 0]:
            self.latest[key] = [value]
        served = {key for _offset, key, _value in seen.records["latest", 0]}
        self.latest = {key: held for key, held in self.latest.items() if key in served}
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
            if offset is not None and partition in self.position:
                self.position[partition] = [offset]

    # ---- what must hold ----

    def problems(self, seen: Seen) -> list[str]:
        """Return what a side serves wrongly, a line each."""
        found = self._plain_problems(seen) + self._latest_problems(seen)
        return found + self._transaction_problems(seen) + self._position_problems(seen)

    def _plain_problems(self, seen: Seen) -> list[str]:
        found = []
        for partition, stored in self.stored.items():
            served = {offset: value for offset, _key, value in seen.records["plain", partition]}
            start = max(self.starts[partition])
            lost = [each for each in stored if each >= start and served.get(each) != stored[each]]
            if lost:
                place = f"plain-{partition}, {sorted(lost)[:5]} of {len(lost)}"
                found.append(f"acknowledged records are lost or moved: {place}")
            least = min(self.starts[partition])
            back = [each for each in served if each < least]
            if back:
                found.append(f"deleted records are served: plain-{partition}, {sorted(back)[:5]}")
            foreign = set(served.values()) - set(stored.values()) - self.tried
            if foreign:
                found.append(f"nobody wrote: plain-{partition}, {sorted(foreign)[:5]}")
        return found

    def _latest_problems(self, seen: Seen) -> list[str]:
        served = {key: value for _offset, key, value in seen.records["latest", 0]}
        wrong = [key for key, may in self.latest.items() if served.get(key, "") not in may]
        if not wrong:
            return []
        sample = [(key, served.get(key), self.latest[key]) for key in sorted(wrong)[:3]]
        return [f"latest values of {len(wrong)} keys are wrong, such as {sample}"]

    def _transaction_problems(self, seen: Seen) -> list[str]:
        served = {
            partition: [value for _offset, _key, value in seen.committed["moved", partition]]
            for partition in range(TOPICS["moved"])
        }
        found = []
        known = set()
        for name, each in self.transactions.items():
            wanted = {(number, value) for number, values in each.values.items() for value in values}
            known |= wanted
            there = {(number, value) for number, value in wanted if value in served[number]}
            if each.state == "committed" and there != wanted:
                found.append(
                    f"committed transaction {name} is not whole: {len(there)} of {len(wanted)}"
                )
            if each.state in ("open", "aborted") and there:
                found.append(f"{each.state} transaction {name} is visible: {len(there)} records")
            if each.state == "committing" and there and there != wanted:
                found.append(f"transaction {name} is half visible: {len(there)} of {len(wanted)}")
        values = [value for partition in served.values() for value in partition]
        if len(values) != len(set(values)):
            found.append("a record of a transaction is served twice")
        if {(number, value) for number in served for value in served[number]} - known:
            found.append("a transaction that nobody began is visible")
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
