"""Appends and scans against SQLite, RocksDB and Arrow IPC; durable appends too.

    python -m asv_bench.peers.engines [--quick]

Every store has key and value under the offset, in transactions of 10,000. SQLite has a table with
a write-ahead log and its syncs are set (OFF; FULL for durable appends); RocksDB takes batches into
its log and its memory, without compression; an Arrow IPC stream has a column for keys and one for
values. The clock is the CPU time of the process, because RocksDB has separate threads; durable
appends are by the wall clock.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from rocksdict import DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

from asv_bench.peers.common import (
    BATCH_SIZES,
    Comparison,
    Goal,
    Records,
    make_records,
)
from asv_bench.peers.fresh import Fresh
from asv_bench.peers.storage_append import append_durable, append_lists
from asv_bench.peers.storage_read import scan_columns, scan_objects
from asv_bench.peers.stores import (
    TRANSACTION_RECORDS,
    Workspace,
    fill_arrow,
    fill_log,
    pack_offset,
    run_in_workspace,
)

GROUP_RECORDS = 1000

Case = Callable[[], object]


class Store(Protocol):
    """A store that was just made, open."""

    path: Path

    def append(self, records: Records, group: int = TRANSACTION_RECORDS) -> None: ...
    def scan(self) -> None: ...
    def settle(self) -> None: ...
    def close(self) -> None: ...


class SQLite:
    """A table with a write-ahead log."""

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self.path = path
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if sync else 'OFF'}")
        self._connection.execute(
            "CREATE TABLE records (offset INTEGER PRIMARY KEY, key BLOB, value BLOB)"
        )

    def append(self, records: Records, group: int = TRANSACTION_RECORDS) -> None:
        """Insert the records, a transaction for each group."""
        execute, executemany = self._connection.execute, self._connection.executemany
        for start in range(0, len(records.keys), group):
            end = start + group
            rows = zip(
                range(start, end), records.keys[start:end], records.values[start:end], strict=False
            )
            execute("BEGIN")
            executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
            execute("COMMIT")

    def scan(self) -> None:
        """Take every row."""
        query = "SELECT offset, key, value FROM records ORDER BY offset"
        for _offset, _key, _value in self._connection.execute(query):
            pass

    def settle(self) -> None:
        """Bring everything to the table's file, and close."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class RocksDB:
    """A database of raw bytes without compression."""

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self.path = path
        chosen = Options(raw_mode=True)
        chosen.set_compression_type(DBCompressionType.none())
        self._database = Rdict(str(path), chosen)
        self._how = WriteOptions()
        self._how.sync = sync

    def append(self, records: Records, group: int = TRANSACTION_RECORDS) -> None:
        """Write the records, a batch for each group."""
        for start in range(0, len(records.keys), group):
            end = min(start + group, len(records.keys))
            batch = WriteBatch(raw_mode=True)
            for offset in range(start, end):
                batch.put(pack_offset(offset), records.keys[offset] + records.values[offset])
            self._database.write(batch, write_opt=self._how)

    def scan(self) -> None:
        """Take every pair."""
        for _offset, _record in self._database.items():
            pass

    def settle(self) -> None:
        """Bring everything to one level of sorted files, and close."""
        self._database.flush()
        self._database.compact_range(None, None)
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._database.close()


class ArrowStream:
    """A file of record batches."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, records: Records, group: int = TRANSACTION_RECORDS) -> None:
        """Write the records."""
        fill_arrow(self.path, records)

    def scan(self) -> None:
        """Take every key and value."""
        with pa.memory_map(str(self.path)) as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                keys, values = (column.to_pylist() for column in batch.columns)
                for _key, _value in zip(keys, values, strict=True):
                    pass

    def settle(self) -> None:
        """Nothing is left to do."""

    def close(self) -> None:
        """Nothing is open."""


PEERS: dict[str, Callable[[Path], Store]] = {
    "SQLite": SQLite,
    "RocksDB": RocksDB,
    "Arrow IPC": ArrowStream,
}
SYNCED_PEERS: dict[str, Callable[[Path], Store]] = {
    "SQLite": lambda path: SQLite(path, sync=True),
    "RocksDB": lambda path: RocksDB(path, sync=True),
}


def appends(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield appending without a sync."""
    count = 100_000 if quick else 1_000_000
    records = make_records(count, 100)
    for batch_size in BATCH_SIZES:
        fresh = Fresh(workspace, batch_size, PEERS)
        cases: dict[str, Case] = {
            name: lambda fresh=fresh: fresh.store.append(records) for name in PEERS
        }
        yield Comparison(
            f"100 B, {batch_size // 1024} KiB",
            count,
            {**cases, "lists": append_lists(fresh, records)},
            [Goal(f"append lists / {name}", "lists", name, 0) for name in PEERS],
            clock=time.process_time,
            prepare=fresh.prepare,
        )
        fresh.close()


def durable_appends(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield durable appends in groups."""
    records = make_records((20 if quick else 50) * GROUP_RECORDS, 100)
    fresh = Fresh(workspace, BATCH_SIZES[0], SYNCED_PEERS, preallocate=True)
    cases: dict[str, Case] = {
        name: lambda: fresh.store.append(records, GROUP_RECORDS) for name in SYNCED_PEERS
    }
    yield Comparison(
        "100 B, 16 KiB, groups of 1000",
        len(records.keys),
        {**cases, "lists": append_durable(fresh, records)},
        [Goal(f"durable append / {name}, synced", "lists", name, 0) for name in SYNCED_PEERS],
        clock=time.perf_counter,
        prepare=fresh.prepare,
    )
    fresh.close()


def scans(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield scanning from the page cache."""
    count = 100_000 if quick else 1_000_000
    records = make_records(count, 100)
    stores = {name: make(workspace.fresh()) for name, make in PEERS.items()}
    for store in stores.values():
        store.append(records)
    for batch_size in BATCH_SIZES:
        with fill_log(workspace.fresh(), records, batch_size) as log:
            yield Comparison(
                f"100 B, {batch_size // 1024} KiB",
                count,
                {
                    **{name: store.scan for name, store in stores.items()},
                    "columns": scan_columns(log),
                    "objects": scan_objects(log),
                },
                [
                    Goal(f"scan {ours} / {name}", ours, name, 0)
                    for ours in ("columns", "objects")
                    for name in PEERS
                ],
                clock=time.process_time,
            )
    for store in stores.values():
        store.close()


def comparisons(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield all comparisons."""
    yield from appends(workspace, quick=quick)
    yield from durable_appends(workspace, quick=quick)
    yield from scans(workspace, quick=quick)


if __name__ == "__main__":
    sys.exit(run_in_workspace(sys.argv[1:], comparisons))
