"""Goal P14: a log as Arrow columns, against aiokafka's records gathered by pyarrow, and Arrow IPC.

    python -m asv_bench.peers.columns [--quick]

Every case ends with record batches of offset, timestamp, key and value that pyarrow holds, one at a
time. aiokafka's side reads the same segment from memory, checks the CRC of every batch, and gives
lists to pyarrow. Arrow IPC has neither CRC nor batches to take apart: it reads the columns from its
file into memory, which is what our values are copied to. Files lie in the page cache.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from aiokafka.record.memory_records import MemoryRecords

import kafkalog
from asv_bench.peers.common import (
    BATCH_SIZES,
    VALUE_SIZES,
    Comparison,
    Goal,
    Records,
    make_records,
)
from asv_bench.peers.stores import Workspace, fill_log, run_in_workspace

COLUMNS = ("offset", "timestamp", "key", "value")
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)
# Records of the peer that make a batch of about a mebibyte of 100-byte values: twice as many as
# ours, since each costs it some time.
BATCH_ROWS = 8192

Case = Callable[[], object]


def scan_case(log: kafkalog.Log, **how: object) -> Case:
    """Return a case: the whole log, batch by batch."""

    def case() -> None:
        scan = log.scan(columns=COLUMNS, **how)
        for _batch in pa.RecordBatchReader.from_stream(scan):
            pass

    return case


def peer_case(log: kafkalog.Log) -> Case:
    """Return a case: aiokafka's records of the log's segments, in lists, as columns."""
    data = [bytes(segment.file.whole()) for segment in log.segments()]

    def case() -> None:
        for each in data:
            memory = MemoryRecords(each)
            rows: list[list[object]] = [[], [], [], []]
            offsets, timestamps, keys, values = (cells.append for cells in rows)
            while memory.has_next():
                batch = memory.next_batch()
                assert batch.validate_crc()
                for record in batch:
                    offsets(record.offset)
                    timestamps(record.timestamp)
                    keys(record.key)
                    values(record.value)
                if len(rows[0]) >= BATCH_ROWS:
                    pa.record_batch(rows, schema=SCHEMA)
                    for cells in rows:
                        cells.clear()
            pa.record_batch(rows, schema=SCHEMA)

    return case


def write_ipc(path: Path, log: kafkalog.Log) -> None:
    """Write the log's columns as an Arrow IPC stream."""
    with pa.ipc.new_stream(str(path), SCHEMA) as target:
        for batch in pa.RecordBatchReader.from_stream(log.scan(columns=COLUMNS)):
            target.write_batch(batch.cast(SCHEMA))


def ipc_case(path: Path) -> Case:
    """Return a case: read the stream of columns from its file."""

    def case() -> None:
        with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
            for _batch in reader:
                pass

    return case


def comparisons(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield the comparison for each size of value and of batch."""
    for value_size, goal in zip(VALUE_SIZES, (18, 10), strict=True):
        count = (10_000_000 if quick else 100_000_000) // (value_size + 16)
        records: Records = make_records(count, value_size)
        for batch_size in BATCH_SIZES:
            with fill_log(workspace.fresh(), records, batch_size) as log:
                path = workspace.fresh()
                write_ipc(path, log)
                yield Comparison(
                    f"{value_size} B, {batch_size // 1024} KiB",
                    count,
                    {
                        "aiokafka": peer_case(log),
                        "ipc": ipc_case(path),
                        "scan": scan_case(log),
                        "views": scan_case(log, binary_type="binary_view"),
                    },
                    [
                        Goal("P14 scan / aiokafka to pyarrow", "scan", "aiokafka", goal),
                        Goal("P14 views / aiokafka to pyarrow", "views", "aiokafka", goal),
                        Goal("scan / Arrow IPC from its file", "scan", "ipc", 0),
                    ],
                )


if __name__ == "__main__":
    sys.exit(run_in_workspace(sys.argv[1:], comparisons))
