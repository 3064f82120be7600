"""Engines of an ingestion service: each stores a group of requests, and syncs once.

A request is two lists, keys and values. Kafka's partitioner selects the partition of each record,
and a record has the next offset of its partition. `store` returns when the group is on the disk,
with the partition and offset of each request's records.

    kafkalog          a durable producer: a `group`, with one `send_many`; `split` returns the
                      records of each request
    kafkalog, ...     the same with a setting, or with one `send_many` for each request
    RocksDB           one batch, the write-ahead log synced
    LMDB              one transaction, synced
    SQLite            one transaction, a write-ahead log, `synchronous` FULL
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import lmdb
from rocksdict import DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

from kafkalog import LogManager, ManagerConfig
from kafkalog._core.murmur2 import partition_of

__all__ = ["CALLS", "ENGINES", "LINGER", "PEERS", "Engine", "Request", "properties_of"]

Request: TypeAlias = tuple[list[bytes], list[bytes]]

TOPIC: Final = "records"
LMDB_MAP_BYTES: Final = 32 << 30
# More than the time between two groups: a `flush` writes all records.
LONG_LINGER_MS: Final = 60_000

pack_place = struct.Struct(">HQ").pack


class Engine(Protocol):
    """A store that was just made, open."""

    def store(self, group: Sequence[Request]) -> list[Any]:
        """Put a group on the disk; return where the records of each request are."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...


class Kafkalog:
    """
    A topic of a manager.

    Args:
        path: the data directory.
        partition_count: number of partitions.
        properties: settings of the manager.
        linger_ms: that of the producer; 0 to write the records of a call at once.
    """

    def __init__(
        self,
        path: Path,
        partition_count: int,
        properties: dict[str, str] | None = None,
        linger_ms: int = 0,
    ) -> None:
        config = ManagerConfig.from_properties(dict(properties or {}))
        self._manager = LogManager([path], config)
        self._manager.create_topic(TOPIC, partition_count)
        self._producer = self._manager.producer(wait="durable", linger_ms=linger_ms)
        for partition in range(partition_count):
            self._producer.send(TOPIC, b"first", partition=partition)
        self._producer.flush()

    def store(self, group: Sequence[Request]) -> list[Any]:
        """Send all requests together, and deliver them."""
        keys = [key for request in group for key in request[0]]
        values = [value for request in group for value in request[1]]
        with self._producer.group():
            sent = self._producer.send_many(TOPIC, keys, values)
        return [each.result() for each in sent.split([len(values) for _keys, values in group])]

    def close(self) -> None:
        """Close the manager."""
        self._producer.close()
        self._manager.close()


class KafkalogCalls(Kafkalog):
    """The same with a call for each request, whose records wait in batches for the `flush`."""

    def store(self, group: Sequence[Request]) -> list[Any]:
        """Send each request, and deliver all."""
        send_many = self._producer.send_many
        sent = [send_many(TOPIC, keys, values) for keys, values in group]
        self._producer.flush()
        return [each.result() for each in sent]


class Offsets:
    """
    Next offset of each partition, for stores that have none.

    Args:
        partition_count: number of partitions.
    """

    def __init__(self, partition_count: int) -> None:
        self._next = [0] * partition_count

    def place(self, key: bytes) -> tuple[int, int]:
        """Return partition and offset of a record."""
        partition = partition_of(key, len(self._next))
        offset = self._next[partition]
        self._next[partition] = offset + 1
        return partition, offset


class RocksDB:
    """A database of raw bytes, without compression."""

    def __init__(self, path: Path, partition_count: int) -> None:
        chosen = Options(raw_mode=True)
        chosen.set_compression_type(DBCompressionType.none())
        self._database = Rdict(str(path), chosen)
        self._how = WriteOptions()
        self._how.sync = True
        self._offsets = Offsets(partition_count)

    def store(self, group: Sequence[Request]) -> list[Any]:
        """Write one batch."""
        batch, place, results = WriteBatch(raw_mode=True), self._offsets.place, []
        put = batch.put
        for keys, values in group:
            places = [place(key) for key in keys]
            for where, key, value in zip(places, keys, values, strict=True):
                put(pack_place(*where), key + value)
            results.append(places)
        self._database.write(batch, write_opt=self._how)
        return results

    def close(self) -> None:
        """Close the database."""
        self._database.close()


class Lmdb:
    """An environment whose data and roots are synced."""

    def __init__(self, path: Path, partition_count: int) -> None:
        self._environment = lmdb.open(str(path), map_size=LMDB_MAP_BYTES)
        self._offsets = Offsets(partition_count)

    def store(self, group: Sequence[Request]) -> list[Any]:
        """Write one transaction."""
        place, results = self._offsets.place, []
        with self._environment.begin(write=True) as transaction:
            put = transaction.put
            for keys, values in group:
                places = [place(key) for key in keys]
                for where, key, value in zip(places, keys, values, strict=True):
                    put(pack_place(*where), key + value)
                results.append(places)
        return results

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()


class SQLite:
    """A table with a write-ahead log."""

    def __init__(self, path: Path, partition_count: int) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(
            "CREATE TABLE records (part INTEGER, offset INTEGER, key BLOB, value BLOB, "
            "PRIMARY KEY (part, offset)) WITHOUT ROWID"
        )
        self._offsets = Offsets(partition_count)

    def store(self, group: Sequence[Request]) -> list[Any]:
        """Write one transaction."""
        place, results, rows = self._offsets.place, [], []
        for keys, values in group:
            places = [place(key) for key in keys]
            rows += [
                (*where, key, value) for where, key, value in zip(places, keys, values, strict=True)
            ]
            results.append(places)
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", rows)
        self._connection.execute("COMMIT")
        return results

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


CALLS: Final = "kafkalog, journal, a call a request"
LINGER: Final = "kafkalog, journal with a linger"
SETTINGS: Final[dict[str, dict[str, str]]] = {
    "kafkalog": {},
    "kafkalog, syncfs": {"kafkalog.commit.syncfs.logs": "8"},
    "kafkalog, journal": {"kafkalog.journal.enable": "true"},
    LINGER: {
        "kafkalog.journal.enable": "true",
        "kafkalog.journal.linger.ms": "200",
        "kafkalog.commit.syncfs.logs": "8",
    },
}
PEERS: Final[dict[str, Callable[[Path, int], Engine]]] = {
    "RocksDB": RocksDB,
    "LMDB": Lmdb,
    "SQLite": SQLite,
}


def properties_of(name: str) -> dict[str, str]:
    """Return the settings of a kafkalog engine; of a peer, none."""
    return SETTINGS.get(name, {})


def _kafkalog(name: str) -> Callable[[Path, int], Engine]:
    return lambda path, partition_count: Kafkalog(path, partition_count, SETTINGS[name])


ENGINES: Final[dict[str, Callable[[Path, int], Engine]]] = {
    **{name: _kafkalog(name) for name in SETTINGS},
    CALLS: lambda path, partition_count: KafkalogCalls(
        path, partition_count, SETTINGS["kafkalog, journal"], LONG_LINGER_MS
    ),
    **PEERS,
}
