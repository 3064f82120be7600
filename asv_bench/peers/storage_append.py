"""Goals P7 and P8: appending to a segment, in the page cache and on the disk.

P7 takes the thread's CPU time, system calls included: what writes back pages later is the kernel's
work on both sides. P8 takes the wall clock; it measures how often a store makes the disk wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import numpy as np

import kafkalog
from asv_bench.peers.common import BATCH_SIZES, Comparison, Goal, Records, make_records
from asv_bench.peers.stores import (
    Workspace,
    chunks,
    columns_of,
    lmdb_items,
    log_config,
    open_lmdb,
    put_each,
    put_lists,
)
from kafkalog._core.run_builder import RunBuilder
from kafkalog.log.log import partition_of

# Bytes that one write carries where records come one by one.
RUN_BYTES = 1 << 20
GROUP_RECORDS = 1000
SCRATCH_BYTES = 256 << 20

Case = Callable[[], object]


class Stores:
    """Store of the next case, made before each: only its filling is timed."""

    def __init__(self, workspace: Workspace, batch_size: int, *, sync: bool) -> None:
        self._workspace = workspace
        self._batch_size = batch_size
        self._sync = sync
        self._close: Callable[[], None] = lambda: None
        self.log: kafkalog.Log
        self.environment: lmdb.Environment
        self.descriptor = -1

    def prepare(self, name: str) -> None:
        """Make the store for a case: a plain file, an LMDB environment or a log."""
        self.close()
        path = self._workspace.fresh()
        self._warm_pages()
        if name.startswith("plain"):
            path.mkdir()
            self.descriptor = os.open(path / "file", os.O_RDWR | os.O_CREAT)
            self._close = self._close_plain
        elif name.startswith("lmdb"):
            self.environment = open_lmdb(path, sync=self._sync)
            self._close = self.environment.close
        else:
            # Only a log that syncs profits from a file whose size does not change.
            config = log_config(self._batch_size, preallocate=self._sync)
            self.log = kafkalog.open_log(path, config=config)
            self._close = self.log.close
        self._path = path

    def close(self) -> None:
        """Close the store of the case before, and remove it."""
        self._close()
        self._close = lambda: None
        self._workspace.remove_store(getattr(self, "_path", None))

    def _close_plain(self) -> None:
        os.close(self.descriptor)

    def _warm_pages(self) -> None:
        """Write and delete a scratch file: pages untouched for long cost several times as much."""
        if self._sync:
            return
        path = self._workspace.fresh()
        piece = bytes(1 << 20)
        with path.open("wb") as scratch:
            for _ in range(SCRATCH_BYTES >> 20):
                scratch.write(piece)
        path.unlink()


def append_each(stores: Stores, records: Records, batch_size: int) -> Case:
    """Return a case: records one by one, batches as they fill up, runs of them into the log."""
    limit = batch_size - len(records.keys[0]) - len(records.values[0]) - 21

    def case() -> None:
        append_run = partition_of(stores.log).appender.append
        builder = RunBuilder()
        append, close = builder.append, builder.close_batch
        size = 0
        for key, value, timestamp in zip(
            records.keys, records.values, records.timestamps, strict=True
        ):
            if append(key, value, timestamp) > limit:
                size += close()
                if size >= RUN_BYTES:
                    append_run(builder.finish(), "written")
                    builder.reset()
                    size = 0
        if builder.count:
            close()
        append_run(builder.finish(), "written")

    return case


def append_lists(stores: Stores, records: Records) -> Case:
    """Return a case: two lists at a time."""
    pieces = [(piece.keys, piece.values, np.array(piece.timestamps)) for piece in chunks(records)]

    def case() -> None:
        append = stores.log.append_columns
        for keys, values, timestamps in pieces:
            append(keys, values, timestamps=timestamps)

    return case


def append_columns(stores: Stores, records: Records) -> Case:
    """Return a case: two columns at a time."""
    pieces = [columns_of(piece) for piece in chunks(records)]

    def case() -> None:
        append = stores.log.append_columns
        for keys, values, timestamps in pieces:
            append(keys, values, timestamps=timestamps)

    return case


def write_plain(stores: Stores, records: Records) -> Case:
    """Return a case: each record with its sizes, joined to writes of a mebibyte or so."""
    pieces = [
        b"".join(
            len(part).to_bytes(4, "big") + part
            for pair in zip(piece.keys, piece.values, strict=True)
            for part in pair
        )
        for piece in chunks(records)
    ]

    def case() -> None:
        for piece in pieces:
            os.write(stores.descriptor, piece)

    return case


def appends(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield the comparisons of P7."""
    count = 100_000 if quick else 1_000_000
    records = make_records(count, 100)
    items = lmdb_items(records)
    for batch_size in BATCH_SIZES:
        stores = Stores(workspace, batch_size, sync=False)
        yield Comparison(
            f"100 B, {batch_size // 1024} KiB",
            count,
            {
                "lmdb": lambda stores=stores: put_each(stores.environment, items),
                "lmdb lists": lambda stores=stores: put_lists(stores.environment, items),
                "plain": write_plain(stores, records),
                "columns": append_columns(stores, records),
                "lists": append_lists(stores, records),
                "each": append_each(stores, records, batch_size),
            },
            [
                Goal("P7 append each / LMDB put", "each", "lmdb", 3.5),
                Goal("P7 append lists / LMDB put", "lists", "lmdb", 2.8),
                Goal("P7 append columns / LMDB put", "columns", "lmdb", 6),
                Goal("append lists / LMDB putmulti", "lists", "lmdb lists", 0),
                Goal("append columns / bare write", "columns", "plain", 0),
            ],
            prepare=stores.prepare,
        )
        stores.close()


def append_durable(stores: Stores, records: Records) -> Case:
    """Return a case: groups of lists, each on the disk before the next begins."""
    pieces = [
        (piece.keys, piece.values, np.array(piece.timestamps))
        for piece in chunks(records, GROUP_RECORDS)
    ]

    def case() -> None:
        for keys, values, timestamps in pieces:
            stores.log.append_columns(keys, values, timestamps=timestamps, wait="durable")

    return case


def write_and_sync(stores: Stores, data: list[bytes]) -> Case:
    """Return a case: one write and one sync for each group, in a file that grows."""

    def case() -> None:
        for piece in data:
            os.write(stores.descriptor, piece)
            os.fdatasync(stores.descriptor)

    return case


def put_durable(stores: Stores, items: list[tuple[bytes, bytes]]) -> Case:
    """Return a case: one synced transaction for each group."""

    def case() -> None:
        for start in range(0, len(items), GROUP_RECORDS):
            with stores.environment.begin(write=True) as transaction:
                transaction.cursor().putmulti(items[start : start + GROUP_RECORDS], append=True)

    return case


def durable_appends(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield the comparison of P8."""
    groups = 20 if quick else 50
    records = make_records(groups * GROUP_RECORDS, 100)
    batch_size = BATCH_SIZES[0]
    stores = Stores(workspace, batch_size, sync=True)
    group_bytes = segment_bytes(workspace.fresh(), records, batch_size) // groups
    yield Comparison(
        "100 B, 16 KiB, groups of 1000",
        len(records.keys),
        {
            "plain": write_and_sync(stores, [bytes(group_bytes)] * groups),
            "lmdb": put_durable(stores, lmdb_items(records)),
            "log": append_durable(stores, records),
        },
        [
            Goal("P8 durable append / LMDB, synced", "log", "lmdb", 2.5),
            Goal("P8 durable append / write + sync", "log", "plain", 0.7),
        ],
        clock=time.perf_counter,
        prepare=stores.prepare,
    )
    stores.close()


def segment_bytes(path: Path, records: Records, batch_size: int) -> int:
    """Return how many bytes the records take in a segment."""
    with kafkalog.open_log(path, config=log_config(batch_size)) as log:
        return log.append_columns(records.keys, records.values).size_bytes
