"""A table's changes flow to a cache, which is rebuilt from the compacted log after a restart.

Every change of a row is a record under the row's key, a deletion one without a value (a tombstone).
The topic is compacted: changes that a later change of the same row replaced are removed, the latest
change of each row stays for ever. So a reader of the whole log gets the present table, however long
ago a row was changed, and reads about as many records as there are rows.

    python examples/change_subscription.py [DIRECTORY]
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TypeAlias

from kafkalog import Consumer, LogManager, Producer

TOPIC = "products"
# Makes the example have more than one segment; your own topics do not need this setting.
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "16384"}
Row: TypeAlias = dict[str, int]


class Table:
    """The table of an application, which appends its changes to a log."""

    def __init__(self, producer: Producer) -> None:
        self.rows: dict[str, Row] = {}
        self._producer = producer

    def put(self, key: str, row: Row) -> None:
        """Insert or update a row."""
        self.rows[key] = row
        self._producer.send(TOPIC, json.dumps(row).encode(), key=key.encode())

    def delete(self, key: str) -> None:
        """Delete a row: its record is a tombstone."""
        del self.rows[key]
        self._producer.send(TOPIC, None, key=key.encode())


class Cache:
    """
    A copy of the table, made only from its log.

    Attributes:
        rows: the copy.
        records_read: number of changes that were read for it.
    """

    def __init__(self, manager: LogManager) -> None:
        self.rows: dict[str, Row] = {}
        self.records_read = 0
        # No group: a cache stores nothing, so it begins at the start of the log.
        self._consumer: Consumer = manager.consumer(auto_offset_reset="earliest")
        self._consumer.subscribe(TOPIC)

    def catch_up(self) -> None:
        """Apply the changes that are there."""
        for _partition, record in self._consumer.records(timeout_ms=0):
            self.records_read += 1
            key = (record.key or b"").decode()
            if record.value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = json.loads(record.value)


def changes(count: int) -> Iterator[tuple[str, Row | None]]:
    """Yield changes of prices and stocks; now and then a product is deleted."""
    random = Random(7)
    for _ in range(count):
        key = f"product {random.randrange(40)}"
        gone = random.random() < 0.05
        yield key, None if gone else {"price": random.randrange(100), "stock": random.randrange(9)}


def first_run(directory: Path, count: int) -> dict[str, Row]:
    """Change the table, with a cache that follows; return the rows at the end."""
    with LogManager([directory]) as manager:
        manager.create_topic(TOPIC, 1, SETTINGS)
        cache = Cache(manager)
        with manager.producer() as producer:
            table = Table(producer)
            for number, (key, row) in enumerate(changes(count)):
                if row is not None:
                    table.put(key, row)
                elif key in table.rows:
                    table.delete(key)
                if number % 100 == 99:
                    producer.flush()
                    cache.catch_up()
        cache.catch_up()
        assert cache.rows == table.rows
        print(f"{cache.records_read} changes reached the cache, which has {len(cache.rows)} rows")
        return table.rows


def second_run(directory: Path) -> dict[str, Row]:
    """Start again: the cache is empty, the log is compacted; return what the cache becomes."""
    with LogManager([directory]) as manager:
        # The manager does this by itself now and then; here it is called for the example.
        manager.compact(TOPIC, 0, include_active=True)
        cache = Cache(manager)
        cache.catch_up()
        print(f"after the restart {cache.records_read} records made {len(cache.rows)} rows")
        return cache.rows


def main(arguments: list[str]) -> int:
    """Run both lives of the application in a directory, or in a temporary one."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(arguments[0] if arguments else scratch)
        rows = first_run(directory, 3000)
        rebuilt = second_run(directory)
    print("the cache is the table" if rows == rebuilt else "the cache is NOT the table")
    return int(rows != rebuilt)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
