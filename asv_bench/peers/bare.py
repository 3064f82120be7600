"""Limits of the machine: checksums, copies, decoding and writes against bare calls of the system.

    python -m asv_bench.peers.bare [--quick]

CRC-32C against the `crc32c` package and against a copy (`memcpy`, by NumPy) of the same warm bytes;
decoding to columns against that copy; ready batches appended to a log against `os.write` of the
same bytes into a file. KiB by the thread's CPU clock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import crc32c
import numpy as np

from asv_bench.peers.common import Comparison, Goal, make_records
from asv_bench.peers.fresh import Fresh, PlainFile
from asv_bench.peers.records import build_run, decode_to_columns, split
from asv_bench.peers.stores import Workspace, run_in_workspace
from kafkalog._core.crc32c import value as our_crc32c

SUM_SIZES = (1024, 16 * 1024, 1024 * 1024)
WRITE_SIZES = (4 * 1024, 16 * 1024, 1024 * 1024)

Case = Callable[[], object]


def repeat(call: Callable[[bytes], object], data: bytes, times: int) -> Case:
    """Return a case: a call on the same bytes again and again."""

    def case() -> None:
        for _ in range(times):
            call(data)

    return case


def copy_of(size: int) -> Callable[[np.ndarray], object]:
    """Return what copies bytes to memory that is warm."""
    target = np.empty(size, np.uint8)

    def copy(source: np.ndarray) -> None:
        np.copyto(target, source)

    return copy


def sums(*, quick: bool) -> Iterator[Comparison]:
    """Yield checksums against those of the package and against copies."""
    total = (64 if quick else 512) << 20
    for size in SUM_SIZES:
        data = np.random.default_rng(1).bytes(size)
        times = total // size
        yield Comparison(
            f"{size // 1024} KiB at a time",
            total >> 10,
            {
                "package": repeat(crc32c.crc32c, data, times),
                "memcpy": repeat(copy_of(size), np.frombuffer(data, np.uint8), times),
                "ours": repeat(our_crc32c, data, times),
            },
            [
                Goal("CRC-32C / the crc32c package", "ours", "package", 0),
                Goal("CRC-32C / memcpy", "ours", "memcpy", 0),
            ],
            unit="KiB",
        )


def decodings(*, quick: bool) -> Iterator[Comparison]:
    """Yield decoding against a copy of the same bytes."""
    for value_size in (100, 1024):
        records = make_records((10 if quick else 100) * (1 << 20) // value_size, value_size)
        data = build_run(records, 1 << 20)
        yield Comparison(
            f"{value_size} B, 1 MiB",
            len(data) >> 10,
            {
                "memcpy": repeat(copy_of(len(data)), np.frombuffer(data, np.uint8), 1),
                "columns": decode_to_columns(data),
            },
            [Goal("decode to columns, CRC / memcpy", "columns", "memcpy", 0)],
            unit="KiB",
        )


def writes(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield ready batches against bare writes of the same bytes."""
    records = make_records(100_000 if quick else 1_000_000, 100)
    for size in WRITE_SIZES:
        batches = split(build_run(records, size))
        fresh = Fresh(workspace, size, {"write": PlainFile}, warm=True)
        yield Comparison(
            f"100 B, {size // 1024} KiB",
            sum(map(len, batches)) >> 10,
            {
                "write": lambda fresh=fresh, batches=batches: fresh.store.write(batches),
                "log": append_batches(fresh, batches),
            },
            [Goal("append a ready batch / write", "log", "write", 0)],
            prepare=fresh.prepare,
            unit="KiB",
        )
        fresh.close()


def append_batches(fresh: Fresh, batches: list[bytes]) -> Case:
    """Return a case: ready batches one by one, as a follower appends them."""

    def case() -> None:
        append = fresh.log.append_batches
        for batch in batches:
            append(batch, assign_offsets=False)

    return case


def comparisons(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield all comparisons."""
    yield from sums(quick=quick)
    yield from decodings(quick=quick)
    yield from writes(workspace, quick=quick)


if __name__ == "__main__":
    sys.exit(run_in_workspace(sys.argv[1:], comparisons))
