"""Logs and peer stores in a temporary directory, filled with the same records.

LMDB holds a record under its offset (8 bytes, big-endian), key and value together, as a log would
be kept in it; Arrow IPC has one column for keys and one for values, in record batches of a mebibyte
or so. Neither keeps a checksum.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import lmdb
import numpy as np
import pyarrow as pa

import kafkalog
from asv_bench.peers.common import Comparison, Records, parse_options, run_all
from kafkalog import BytesColumn

# Records of one append: about a mebibyte, which stays in the second-level cache.
CHUNK_RECORDS = 8192
# Records of one LMDB transaction: more do not make it faster.
TRANSACTION_RECORDS = 10_000
LMDB_MAP_BYTES = 8 << 30

pack_offset = struct.Struct(">Q").pack


class Workspace:
    """A directory for files of one run, on the disk that holds temporary files."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="kafkalog-peers-"))
        self._count = 0

    def fresh(self) -> Path:
        """Return a path that nothing has yet."""
        self._count += 1
        return self._root / f"store{self._count}-0"

    def remove_store(self, path: Path | None) -> None:
        """Remove one store, if there is one, with the files that have its name and more."""
        for each in [] if path is None else path.parent.glob(f"{path.name}*"):
            if each.is_dir():
                shutil.rmtree(each, ignore_errors=True)
            else:
                each.unlink()

    def remove(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._root, ignore_errors=True)


def run_in_workspace(
    arguments: Sequence[str], comparisons: Callable[..., Iterable[Comparison]]
) -> int:
    """
    Print one table whose comparisons need files; return the exit code as `run_all` does.

    Args:
        arguments: the command line.
        comparisons: makes them; takes a workspace and the keyword `quick`.
    """
    options = parse_options(arguments)
    workspace = Workspace()
    try:
        return run_all(comparisons(workspace, quick=options.quick), peer="peer", options=options)
    finally:
        workspace.remove()


def log_config(batch_size: int, **settings: int | bool) -> kafkalog.LogConfig:
    """Return settings for batches of `batch_size` bytes; records may have any age."""
    return kafkalog.LogConfig(batch_bytes=batch_size, **settings)


def chunks(records: Records, size: int = CHUNK_RECORDS) -> list[Records]:
    """Return the records in pieces of `size`."""
    return [
        Records(
            records.keys[start : start + size],
            records.values[start : start + size],
            records.timestamps[start : start + size],
        )
        for start in range(0, len(records.keys), size)
    ]


def columns_of(records: Records) -> tuple[BytesColumn, BytesColumn, np.ndarray]:
    """Return keys, values and timestamps as columns."""
    keys, values = (
        BytesColumn(b"".join(column), np.cumsum([0, *map(len, column)], dtype=np.int32))
        for column in (records.keys, records.values)
    )
    return keys, values, np.array(records.timestamps)


def fill_log(path: Path, records: Records, batch_size: int, **settings: int) -> kafkalog.Log:
    """Return an open log that holds the records in its only segment."""
    log = kafkalog.open_log(path, config=log_config(batch_size, **settings))
    for chunk in chunks(records):
        log.append_columns(chunk.keys, chunk.values, timestamps=np.array(chunk.timestamps))
    return log


def lmdb_items(records: Records) -> list[tuple[bytes, bytes]]:
    """Return what LMDB stores: offset, and key and value together."""
    pairs = zip(records.keys, records.values, strict=True)
    return [(pack_offset(offset), key + value) for offset, (key, value) in enumerate(pairs)]


def open_lmdb(path: Path, *, sync: bool) -> lmdb.Environment:
    """Return an empty LMDB environment."""
    return lmdb.open(str(path), map_size=LMDB_MAP_BYTES, sync=sync, metasync=sync)


def put_each(environment: lmdb.Environment, items: list[tuple[bytes, bytes]]) -> None:
    """Put items one by one, in large transactions."""
    for start in range(0, len(items), TRANSACTION_RECORDS):
        with environment.begin(write=True) as transaction:
            put = transaction.put
            for key, value in items[start : start + TRANSACTION_RECORDS]:
                put(key, value, append=True)


def put_lists(environment: lmdb.Environment, items: list[tuple[bytes, bytes]]) -> None:
    """Put lists of items, one for each transaction: its fastest call."""
    for start in range(0, len(items), TRANSACTION_RECORDS):
        with environment.begin(write=True) as transaction:
            transaction.cursor().putmulti(items[start : start + TRANSACTION_RECORDS], append=True)


def fill_arrow(path: Path, records: Records) -> None:
    """Write the records as an Arrow IPC stream."""
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for chunk in chunks(records):
            writer.write_batch(
                pa.record_batch([pa.array(chunk.keys), pa.array(chunk.values)], schema)
            )
