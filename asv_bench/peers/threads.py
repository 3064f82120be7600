"""Goal P16: two reader threads against one, over the kernels that run without the GIL.

    python -m asv_bench.peers.threads [--quick]

Each case does the same work twice, over separate data: one thread does both halves in sequence, or
two threads do one each. The ratio is the speed-up of two threads by the wall clock, at most 2. It
needs two idle cores. Besides them the parts that need the GIL, and memory, which the cores share,
keep it below 2.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

import kafkalog
from asv_bench.peers.common import Comparison, Goal, make_records
from asv_bench.peers.stores import Workspace, fill_log, run_in_workspace
from kafkalog._core import crc32c
from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.offset_map import OffsetMap
from kafkalog.cleaner.keys import KeyCollector
from kafkalog.cleaner.record_filter import CleaningRules, RecordFilter
from kafkalog.cleaner.transactions import TransactionTracker
from kafkalog.records.codecs import Codec
from kafkalog.records.conversion.conversion_units import FileRecords

RECORDS, RECORDS_QUICK = 400_000, 100_000
VALUE_BYTES = 100
BATCH_BYTES = 16 * 1024
# The default of producers that batch well; codecs work on one batch at a time.
LARGE_BATCH_BYTES = 128 * 1024
CRC_BYTES = 1 << 20
GOAL = 1.8
COLUMNS = ("offset", "timestamp", "key", "value")

Case = Callable[[], object]


def halves(first: Case, second: Case) -> dict[str, Case]:
    """Return both halves done by one thread, and by one each."""

    def one() -> None:
        first()
        second()

    def two() -> None:
        other = threading.Thread(target=second)
        other.start()
        first()
        other.join()

    return {"one": one, "two": two}


def scan_half(log: kafkalog.Log) -> Case:
    """Return a half: a log into Arrow's columns."""

    def half() -> None:
        for _batch in log.scan(columns=COLUMNS):
            pass

    return half


def decode_half(log: kafkalog.Log) -> Case:
    """Return a half: a segment's bytes into columns, as much at a time as fits."""
    (data,) = [segment.file.whole() for segment in log.segments()]
    columns = RecordColumns(8192)

    def half() -> None:
        position = 0
        while position < len(data):
            columns.clear()
            _, _, position, _ = decode_run(data, position, columns)

    return half


def crc_half(seed: int, rounds: int) -> Case:
    """Return a half: CRC-32C of a mebibyte, again and again."""
    data = random.Random(seed).randbytes(CRC_BYTES)

    def half() -> None:
        for _ in range(rounds):
            crc32c.value(data)

    return half


def clean_half(log: kafkalog.Log, count: int) -> Case:
    """Return a half: both passes of a compaction, in memory; one record of ten stays."""
    (data,) = [FileRecords(segment.file.whole()) for segment in log.segments()]
    # Large enough that no map grows in the run.
    memory = np.zeros(2 * count * 24, np.uint8)
    secret = bytes(16)
    rules = CleaningRules(0, 0, 2 * count, {}, 1 << 20)

    def half() -> None:
        keys = OffsetMap(memory, secret=secret)
        KeyCollector(keys, TransactionTracker()).add(data)
        RecordFilter(keys, rules, TransactionTracker()).filter(data, old_tombstones_stay=True)

    return half


def comparisons(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield the comparison for each kind of work."""
    count = RECORDS_QUICK if quick else RECORDS
    records = make_records(count, VALUE_BYTES)

    def logs(codec: str = "uncompressed") -> list[kafkalog.Log]:
        size = BATCH_BYTES if codec == "uncompressed" else LARGE_BATCH_BYTES
        return [
            fill_log(workspace.fresh(), records, size, compression_type=codec) for _ in range(2)
        ]

    def compared(what: str, halves_of: list[Case], items: int, unit: str) -> Comparison:
        return Comparison(
            what,
            items,
            halves(*halves_of),
            [Goal("P16 two threads / one thread", "two", "one", GOAL)],
            clock=time.perf_counter,
            unit=unit,
        )

    rounds = 200 if quick else 1000
    yield compared("CRC-32C", [crc_half(seed, rounds) for seed in (1, 2)], 2 * rounds, "MiB")
    plain = logs()
    yield compared("decoding to columns", [decode_half(log) for log in plain], 2 * count, "record")
    yield compared("scan to Arrow", [scan_half(log) for log in plain], 2 * count, "record")
    yield compared(
        "compaction in memory", [clean_half(log, count) for log in plain], 2 * count, "record"
    )
    yield compared(
        "scan beside compaction",
        [clean_half(plain[0], count), scan_half(plain[1])],
        2 * count,
        "record",
    )
    for codec in Codec:
        if codec is not Codec.NONE:
            name = codec.kafka_name
            yield compared(
                f"scan, {name}", [scan_half(log) for log in logs(name)], 2 * count, "record"
            )


if __name__ == "__main__":
    sys.exit(run_in_workspace(sys.argv[1:], comparisons))
