"""Goal P17: bytes on the disk for a record of 116 bytes, against every store that finds by a key.

    python -m asv_bench.peers.sizes [--quick]

Every store has the records under their offsets, closed in order, without compression and without a
write-ahead log: the used part of LMDB's file, RocksDB's sorted files after a compaction, SQLite's
file, our segment with both indexes. Ours has a timestamp for each record and
checksums; of the others RocksDB and SQLite store neither here, LMDB has none to store.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from asv_bench.peers.common import (
    BATCH_SIZES,
    KEY_SIZE,
    VALUE_SIZES,
    Records,
    make_records,
    parse_options,
    report,
)
from asv_bench.peers.engines import RocksDB, SQLite, Store
from asv_bench.peers.results import Result
from asv_bench.peers.stores import Workspace, fill_log, lmdb_items, open_lmdb, put_lists

DATA_SUFFIXES = (".log", ".index", ".timeindex")


def size_of_log(path: Path, records: Records, batch_size: int) -> int:
    """Return the bytes of a segment with its indexes."""
    fill_log(path, records, batch_size).close()
    return sum(each.stat().st_size for each in path.iterdir() if each.suffix in DATA_SUFFIXES)


def size_of_lmdb(path: Path, records: Records) -> int:
    """Return the bytes of the pages that are used."""
    with open_lmdb(path, sync=False) as environment:
        put_lists(environment, lmdb_items(records))
        return (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]


def size_of_store(store: Store, records: Records) -> int:
    """Return the bytes of the files that a store leaves."""
    store.append(records)
    store.settle()
    path = store.path
    files = [path] if path.is_file() else [each for each in path.iterdir() if each.suffix == ".sst"]
    return sum(each.stat().st_size for each in files)


def results(workspace: Workspace, *, quick: bool) -> Iterator[Result]:
    """Yield a result for each peer, value size and batch size."""
    for value_size in VALUE_SIZES:
        count = (100_000 if quick else 1_000_000) // (1 if value_size == VALUE_SIZES[0] else 5)
        records = make_records(count, value_size)
        peers: dict[str, Callable[[], int]] = {
            "LMDB": lambda records=records: size_of_lmdb(workspace.fresh(), records),
            "RocksDB": lambda records=records: size_of_store(RocksDB(workspace.fresh()), records),
            "SQLite": lambda records=records: size_of_store(SQLite(workspace.fresh()), records),
        }
        theirs = {name: size() / count for name, size in peers.items()}
        for batch_size in BATCH_SIZES:
            ours = size_of_log(workspace.fresh(), records, batch_size) / count
            for name, size in theirs.items():
                yield Result(
                    goal="P17",
                    what="bytes on the disk",
                    work=f"{KEY_SIZE + value_size} B, {batch_size // 1024} KiB",
                    unit="B a record",
                    peer=name,
                    wanted=1.0,
                    ours=(ours,),
                    theirs=(size,),
                )


def main(arguments: Sequence[str]) -> int:
    """Print the table; exit code 1 if a goal was missed."""
    options = parse_options(arguments)
    workspace = Workspace()
    try:
        return report(results(workspace, quick=options.quick), options)
    finally:
        workspace.remove()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
