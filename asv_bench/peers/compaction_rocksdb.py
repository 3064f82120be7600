"""Goal P13, the other peer: compaction of a log on disk against RocksDB's `compact_range`.

    python -m asv_bench.peers.compaction_rocksdb [--quick]

Every key has ten records. RocksDB has them in ten sorted files, as ten flushes left them, without a
log, compression or earlier compactions; it merges them into one level. Ours is the log of
`cleaning`, cleaned from its segments to new ones. Both sides work on fresh copies in the page cache
and sync their result; opening and closing are not counted. The clock is the CPU time of the
process, all threads: RocksDB compacts in its own.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

from rocksdict import DBCompressionType, Options, Rdict

import kafkalog
from asv_bench.peers.cleaning import (
    MEMORY_BYTES,
    RECORDS_PER_KEY,
    VALUE_BYTES,
    config_of,
    make_log,
)
from asv_bench.peers.common import Comparison, Goal, make_records, run_table
from asv_bench.peers.stopwatch import Seconds, Stopwatch
from asv_bench.peers.stores import Workspace


def options() -> Options:
    """Return the settings of the database: no compression, and no background work."""
    chosen = Options(raw_mode=True)
    chosen.set_disable_auto_compactions(True)
    chosen.set_compression_type(DBCompressionType.none())
    chosen.set_write_buffer_size(1 << 30)
    return chosen


def make_database(directory: Path, count: int) -> None:
    """Make a closed database of RECORDS_PER_KEY sorted files, each with all keys."""
    made = make_records(count // RECORDS_PER_KEY, VALUE_BYTES)
    database = Rdict(str(directory), options())
    for _ in range(RECORDS_PER_KEY):
        for key, value in zip(made.keys, made.values, strict=True):
            database[key] = value
        database.flush()
    database.close()


def ours(directory: Path) -> Seconds:
    """Clean a log."""
    with kafkalog.open_log(directory, config=config_of("uncompressed")) as log:
        begun = process_time()
        kafkalog.compact_log(log, memory_bytes=MEMORY_BYTES)
        taken = process_time() - begun
    return Seconds(taken, taken)


def theirs(directory: Path) -> Seconds:
    """Compact a database."""
    database = Rdict(str(directory), options())
    begun = process_time()
    database.compact_range(None, None)
    taken = process_time() - begun
    database.close()
    return Seconds(taken, taken)


class Copies:
    """Copies of a directory, one at a time."""

    def __init__(self, workspace: Workspace, source: Path) -> None:
        self._workspace = workspace
        self._source = source
        self._directory: Path | None = None

    def prepare(self) -> None:
        """Put a fresh copy there."""
        self._workspace.remove_store(self._directory)
        self._directory = self._workspace.fresh()
        shutil.copytree(self._source, self._directory)

    def clean(self, clean: Callable[[Path], Seconds]) -> Callable[[], Seconds]:
        """Return what cleans the copy that is there then."""

        def action() -> Seconds:
            assert self._directory is not None
            return clean(self._directory)

        return action


def comparisons(*, quick: bool) -> Iterator[Comparison]:
    """Yield the comparison."""
    count = 1_000_000 if quick else 3_000_000
    workspace = Workspace()
    log, database = workspace.fresh(), workspace.fresh()
    make_log(log, "uncompressed", count)
    make_database(database, count)
    copies = {"ours": Copies(workspace, log), "rocksdb": Copies(workspace, database)}
    stopwatch = Stopwatch(by_wall=False)
    try:
        yield Comparison(
            f"{VALUE_BYTES} B, on disk",
            count,
            {
                "ours": stopwatch.time(copies["ours"].clean(ours)),
                "rocksdb": stopwatch.time(copies["rocksdb"].clean(theirs)),
            },
            [Goal("P13 compact a log on disk / RocksDB compact_range", "ours", "rocksdb", 2.5)],
            clock=stopwatch.read,
            prepare=lambda name: copies[name].prepare(),
        )
    finally:
        workspace.remove()


if __name__ == "__main__":
    sys.exit(run_table(sys.argv[1:], comparisons, peer="rocksdb"))
