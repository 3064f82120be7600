"""Accounts whose state is nothing but their events, with snapshots in a compacted topic.

The events are the truth: they are appended, never changed and never deleted, so the topic has no
retention. To replay all of them after every restart would take longer every day. So now and then
the balances that changed are put into a second topic, under the account as the key, together with
the offset up to which the events are in them; that topic is compacted and stays as small as there
are accounts. Both go in one transaction: a crash leaves a whole snapshot or none of it.

    python examples/event_sourcing.py [DIRECTORY]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from random import Random

from kafkalog import LogManager, Producer, Record, TopicPartition

EVENTS, SNAPSHOTS = "account-events", "account-snapshots"
# Key of the record with the end offset of the snapshot; no account has this name.
POSITION = b""
SNAPSHOT_EVERY = 40


class Accounts:
    """
    The state: balances, made by applying one event after the other.

    Attributes:
        balances: of each account.
        next_offset: of the first event that is not in them.
        changed: accounts that changed since the last snapshot.
    """

    def __init__(self) -> None:
        self.balances: dict[str, int] = {}
        self.next_offset = 0
        self.changed: set[str] = set()

    def apply(self, offset: int, account: str, event: dict[str, int]) -> None:
        """Apply an event; this must never fail or ask for permission: it has happened."""
        self.balances[account] = self.balances.get(account, 0) + event["amount"]
        self.next_offset = offset + 1
        self.changed.add(account)

    def take(self, record: Record) -> None:
        """Apply the event in a record."""
        self.apply(record.offset, (record.key or b"").decode(), json.loads(record.value or b""))

    def restore(self, key: bytes, value: bytes) -> None:
        """Apply a record of a snapshot."""
        if key == POSITION:
            self.next_offset = json.loads(value)
        else:
            self.balances[key.decode()] = json.loads(value)


class Bank:
    """
    Executes commands: refuses invalid ones, and makes an event of each other one.

    Attributes:
        accounts: the state.
        replayed: number of records of snapshot and events that were read at the start.
    """

    def __init__(self, manager: LogManager) -> None:
        self.accounts = Accounts()
        self.replayed = (0, 0)
        self._manager = manager
        self._load()
        self._events: Producer = manager.producer(wait="durable", linger_ms=0)
        self._snapshots: Producer = manager.producer(transactional_id="snapshots")

    def book(self, account: str, amount: int) -> bool:
        """Pay something in or out; False if the account has too little."""
        if self.accounts.balances.get(account, 0) + amount < 0:
            return False
        event = {"amount": amount}
        sent = self._events.send(EVENTS, json.dumps(event).encode(), key=account.encode())
        self._events.flush()
        self.accounts.apply(sent.result().offset, account, event)
        if self.accounts.next_offset % SNAPSHOT_EVERY == 0:
            self._take_snapshot()
        return True

    def _take_snapshot(self) -> None:
        state = self.accounts
        with self._snapshots.transaction():
            for account in sorted(state.changed):
                balance = json.dumps(state.balances[account]).encode()
                self._snapshots.send(SNAPSHOTS, balance, key=account.encode())
            position = json.dumps(state.next_offset).encode()
            self._snapshots.send(SNAPSHOTS, position, key=POSITION)
        state.changed.clear()

    def _load(self) -> None:
        """Read the latest snapshot, then the events after it."""
        state = self.accounts
        snapshot_count = event_count = 0
        with self._manager.consumer(
            auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.subscribe(SNAPSHOTS)
            for _, record in consumer.records(timeout_ms=0):
                state.restore(record.key or b"", record.value or b"")
                snapshot_count += 1
            events = TopicPartition(EVENTS, 0)
            consumer.assign([events])
            consumer.seek(events, state.next_offset)
            for _, record in consumer.records(timeout_ms=0):
                state.take(record)
                event_count += 1
        self.replayed = snapshot_count, event_count


def replay_all(manager: LogManager) -> dict[str, int]:
    """Return the balances that all events make, from the first one on, to compare with."""
    state = Accounts()
    with manager.consumer(auto_offset_reset="earliest") as consumer:
        consumer.subscribe(EVENTS)
        for _, record in consumer.records(timeout_ms=0):
            state.apply(
                record.offset, (record.key or b"").decode(), json.loads(record.value or b"")
            )
    return state.balances


def first_run(directory: Path, count: int) -> None:
    """Open the bank and book."""
    with LogManager([directory]) as manager:
        manager.create_topic(EVENTS, 1, {"retention.ms": "-1"})
        manager.create_topic(SNAPSHOTS, 1, {"cleanup.policy": "compact"})
        bank, random = Bank(manager), Random(11)
        booked = sum(
            bank.book(f"account {random.randrange(12)}", random.randrange(-80, 100))
            for _ in range(count)
        )
        print(f"{booked} of {count} bookings were made, the others refused")


def second_run(directory: Path) -> bool:
    """Open the bank again; return True if its state is that of all events."""
    with LogManager([directory]) as manager:
        # The manager does this by itself now and then; here it is called for the example.
        manager.compact(SNAPSHOTS, 0, include_active=True)
        bank = Bank(manager)
        snapshot_count, event_count = bank.replayed
        print(f"after the restart {snapshot_count} snapshots and {event_count} events were read")
        return replay_all(manager) == bank.accounts.balances


def main(arguments: list[str]) -> int:
    """Run both lives of the bank in a directory, or in a temporary one."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(arguments[0] if arguments else scratch)
        first_run(directory, 250)
        is_same = second_run(directory)
    print("the balances are those of a full replay" if is_same else "the balances are WRONG")
    return int(not is_same)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
