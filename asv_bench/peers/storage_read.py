"""Goals P9 to P12: scanning a segment, reading single records, index look-ups, recovery."""

from __future__ import annotations

import bisect
import mmap
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import kafkalog
from asv_bench.peers.common import BATCH_SIZES, Comparison, Goal, make_records
from asv_bench.peers.stores import (
    Workspace,
    fill_arrow,
    fill_log,
    lmdb_items,
    log_config,
    open_lmdb,
    pack_offset,
    put_lists,
)
from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.index import OffsetIndexView

SLICE_BYTES = 1 << 20
COLUMN_ROWS = 16 * 1024
GETS = 20_000
GET_BATCH_SIZES = (4 * 1024, 16 * 1024)
INDEX_ENTRIES = 1_300_000
LOOKUPS = 100_000
SEED = 7

Case = Callable[[], object]


def scan_columns(log: kafkalog.Log) -> Case:
    """Return a case: every record's positions and sizes, CRC checked."""
    columns = RecordColumns(COLUMN_ROWS)

    def case() -> None:
        offset, end = 0, log.log_end_offset
        while offset < end:
            data = log.read(offset, max_bytes=SLICE_BYTES).data
            columns.clear()
            rows, _, _, _ = decode_run(data, 0, columns)
            offset += rows

    return case


def scan_objects(log: kafkalog.Log) -> Case:
    """Return a case: touch key and value of every record, CRC checked."""

    def case() -> None:
        for record in log.records():
            record.key
            record.value

    return case


def scan_lmdb(path: Path) -> Case:
    environment = open_lmdb(path, sync=False)

    def case() -> None:
        with environment.begin() as transaction:
            for _key, _value in transaction.cursor():
                pass

    return case


def scan_arrow(path: Path) -> Case:
    def case() -> None:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                keys, values = (column.to_pylist() for column in batch.columns)
                for _key, _value in zip(keys, values, strict=True):
                    pass

    return case


def scans(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield the comparisons of P9."""
    count = 100_000 if quick else 1_000_000
    records = make_records(count, 100)
    lmdb_path, arrow_path = workspace.fresh(), workspace.fresh()
    with open_lmdb(lmdb_path, sync=False) as environment:
        put_lists(environment, lmdb_items(records))
    fill_arrow(arrow_path, records)
    lmdb_case, arrow_case = scan_lmdb(lmdb_path), scan_arrow(arrow_path)
    for batch_size in BATCH_SIZES:
        with fill_log(workspace.fresh(), records, batch_size) as log:
            yield Comparison(
                f"100 B, {batch_size // 1024} KiB",
                count,
                {
                    "lmdb": lmdb_case,
                    "arrow": arrow_case,
                    "columns": scan_columns(log),
                    "objects": scan_objects(log),
                },
                [
                    Goal("P9 scan columns / LMDB cursor", "columns", "lmdb", 15),
                    Goal("P9 scan columns / Arrow IPC lists", "columns", "arrow", 5.5),
                    Goal("P9 scan objects / LMDB cursor", "objects", "lmdb", 2),
                    Goal("P9 scan objects / Arrow IPC lists", "objects", "arrow", 1),
                ],
            )


def random_reads(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield the comparisons of P10."""
    count = 200_000 if quick else 1_000_000
    records = make_records(count, 100)
    path = workspace.fresh()
    with open_lmdb(path, sync=False) as environment:
        put_lists(environment, lmdb_items(records))
    environment = open_lmdb(path, sync=False)
    source = random.Random(SEED)
    offsets = [source.randrange(count) for _ in range(GETS)]
    keys = [pack_offset(offset) for offset in offsets]

    def get_lmdb() -> None:
        with environment.begin() as transaction:
            get = transaction.get
            for key in keys:
                get(key)

    for batch_size, goal in zip(GET_BATCH_SIZES, (1.3, 1.0), strict=True):
        with fill_log(workspace.fresh(), records, batch_size, index_interval_bytes=1) as log:

            def get_log(log: kafkalog.Log = log) -> None:
                get = log.get
                for offset in offsets:
                    get(offset).value

            def get_unsummed(log: kafkalog.Log = log) -> None:
                get = log.get
                for offset in offsets:
                    get(offset, check_crcs=False).value

            yield Comparison(
                f"100 B, {batch_size // 1024} KiB",
                GETS,
                {"lmdb": get_lmdb, "log": get_log, "unsummed": get_unsummed},
                [
                    Goal("P10 get by offset / LMDB get", "log", "lmdb", goal),
                    Goal("P10 get by offset, without the sum / LMDB get", "unsummed", "lmdb", 0),
                ],
            )


def lookups(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield the comparison of P11."""
    step = 1600
    entries = np.empty((INDEX_ENTRIES, 2), dtype=">i4")
    entries[:, 0] = np.arange(1, INDEX_ENTRIES + 1) * step
    entries[:, 1] = np.arange(1, INDEX_ENTRIES + 1) * step
    view = OffsetIndexView(entries.reshape(-1).view(np.uint8), 0)
    native = entries[:, 0].astype(np.int64)
    as_list = native.tolist()
    positions = entries[:, 1].astype(np.int64)
    targets = np.random.default_rng(SEED).integers(step, INDEX_ENTRIES * step, LOOKUPS)
    each = targets.tolist()
    out = np.empty(LOOKUPS, dtype=np.int64)

    def look_up_each() -> None:
        lookup = view.lookup
        for target in each:
            lookup(target)

    def bisect_each() -> None:
        bisect_right = bisect.bisect_right
        for target in each:
            bisect_right(as_list, target)

    def search_sorted() -> None:
        positions[np.searchsorted(native, targets, side="right") - 1]

    yield Comparison(
        "1.3 M entries",
        LOOKUPS,
        {
            "bisect": bisect_each,
            "searchsorted": search_sorted,
            "each": look_up_each,
            "many": lambda: view.lookup_many(targets, out),
        },
        goals=[
            Goal("P11 one look-up / bisect on a list", "each", "bisect", 2.2),
            Goal("P11 many / np.searchsorted", "many", "searchsorted", 3.5),
        ],
        unit="look-up",
    )


def state_files(path: Path) -> dict[str, tuple[bytes, int]]:
    """Return contents and times of the files of a partition that decide on its recovery."""
    data = (".log", ".index", ".timeindex")
    return {
        each.name: (each.read_bytes(), each.stat().st_mtime_ns)
        for each in path.iterdir()
        if each.suffix not in (*data, ".tmp")
    }


def put_back(path: Path, files: dict[str, tuple[bytes, int]]) -> None:
    """Make those files of a partition what they were, their times too, which the note knows."""
    for name in state_files(path):
        if name not in files:
            (path / name).unlink(missing_ok=True)  # another program may replace it just now
    for name, (content, modified_ns) in files.items():
        (path / name).write_bytes(content)
        os.utime(path / name, ns=(modified_ns, modified_ns))


def make_killed_log(path: Path, size_target: int) -> dict[str, tuple[bytes, int]]:
    """Make a log of one segment; return its state files as a kill before a sync leaves them."""
    with fill_log(path, make_records(250_000, 100), BATCH_SIZES[0]) as log:
        while log.segments()[-1].size_bytes < size_target * 31 // 32:
            data = log.read(0, max_bytes=SLICE_BYTES * 8)
            log.append_batches(b"".join(batch.data for batch in data.batches()))
        return state_files(path)


def recoveries(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """
    Yield the comparison of P12.

    Recovery is the whole opening of a log whose writer was killed before its first sync, every
    batch checked, indexes rebuilt. The bare read is the fastest that NumPy has, the largest of all
    64-bit words, over a new mapping.
    """
    path = workspace.fresh()
    left_by_a_kill = make_killed_log(path, (256 << 20) if quick else (1 << 30))
    segment = max(path.glob("*.log"))
    size = segment.stat().st_size
    reopened: list[kafkalog.Log] = []

    def make_unclean(_name: str) -> None:
        while reopened:
            reopened.pop().close()
        put_back(path, left_by_a_kill)

    def recover() -> None:
        log = kafkalog.open_log(path, config=log_config(BATCH_SIZES[0]))
        reopened.append(log)
        assert log.recovery_report.scanned_bytes == size
        assert log.recovery_report.rewritten_bytes == 0

    def read() -> None:
        with segment.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        np.frombuffer(mapping, np.uint64, size // 8).max()

    yield Comparison(
        f"{size >> 20} MiB",
        size >> 10,
        {"read": read, "recovery": recover},
        [Goal("P12 recovery / bare mapped read", "recovery", "read", 0.85)],
        prepare=make_unclean,
        unit="KiB",
    )
    make_unclean("")
