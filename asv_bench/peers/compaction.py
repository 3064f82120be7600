"""Goal P13: compaction in memory where one record of ten survives, against aiokafka and a dict.

    python -m asv_bench.peers.compaction [--quick]

Every key has ten records, in random order. Both sides go over the batches twice: once to learn the
latest offset of each key, once to write the batches that stay. The peer does it as a program of a
few lines would: aiokafka decodes and encodes, a dict has the keys themselves. Ours has 24 bytes for
each, in a map that is filled to the usual load: their SipHash with a secret, which is the default,
or their MD5, as a broker has. Both sides check the CRC of every batch in both passes, and sum up
those of new batches.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator

import numpy as np
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from asv_bench.peers.common import (
    BATCH_SIZES,
    VALUE_SIZES,
    Comparison,
    Goal,
    Records,
    make_records,
    run_table,
)
from asv_bench.peers.records import build_run
from kafkalog._core.offset_map import OffsetMap
from kafkalog.cleaner.keys import KeyCollector
from kafkalog.cleaner.record_filter import CleaningRules, RecordFilter
from kafkalog.cleaner.transactions import TransactionTracker
from kafkalog.records.conversion.conversion_units import FileRecords

RECORDS_PER_KEY = 10
LOAD_FACTOR = 0.9
SECRET = bytes(range(16))


def make_updates(count: int, value_size: int) -> Records:
    """Return records whose keys come RECORDS_PER_KEY times each, in random order."""
    records = make_records(count, value_size)
    keys = records.keys[: count // RECORDS_PER_KEY] * RECORDS_PER_KEY
    random.Random(2).shuffle(keys)
    return Records(keys, records.values[: len(keys)], records.timestamps[: len(keys)])


def ours(data: bytes, count: int, key_count: int, *, identity: str) -> Callable[[], list[bytes]]:
    """Return a case: both passes over the run."""
    memory = np.zeros(int(key_count / LOAD_FACTOR + 1) * 24, np.uint8)
    offset_map = OffsetMap(memory, load_factor=LOAD_FACTOR, identity=identity, secret=SECRET)
    rules = CleaningRules(0, 0, count, {}, 1 << 20)
    run = FileRecords(memoryview(data))
    marks = bytearray(count // 8 + 1)

    def case() -> list[bytes]:
        offset_map.clear(secret=SECRET)
        if hasattr(offset_map, "mark"):
            offset_map.mark(marks, 0)
        assert KeyCollector(offset_map, TransactionTracker()).add(run)
        record_filter = RecordFilter(offset_map, rules, TransactionTracker())
        return record_filter.filter(run, old_tombstones_stay=True)

    return case


def peer(data: bytes) -> Callable[[], list[bytes]]:
    """Return a case: the same with aiokafka and a dict."""

    def case() -> list[bytes]:
        latest = {}
        for batch in batches(data):
            for record in batch:
                latest[record.key] = record.offset
        parts = []
        for batch in batches(data):
            builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 2**31 - 1)
            kept = 0
            for record in batch:
                if latest[record.key] == record.offset:
                    offset = record.offset - batch.base_offset
                    builder.append(offset, record.timestamp, record.key, record.value, [])
                    kept += 1
            if kept:
                parts.append(bytes(builder.build()))
        return parts

    return case


def batches(data: bytes) -> Iterator:
    """Yield the peer's batches, each checked."""
    memory = MemoryRecords(data)
    while memory.has_next():
        batch = memory.next_batch()
        assert batch.validate_crc()
        yield batch


def comparisons(*, quick: bool) -> Iterator[Comparison]:
    """Yield a comparison for each size of values and batches."""
    for value_size in VALUE_SIZES:
        count = (200_000 if quick else 1_000_000) // (1 if value_size == VALUE_SIZES[0] else 5)
        records = make_updates(count, value_size)
        for batch_size in BATCH_SIZES:
            data = build_run(records, batch_size)
            key_count = count // RECORDS_PER_KEY
            yield Comparison(
                f"{value_size} B, {batch_size // 1024} KiB",
                count,
                {
                    "siphash": ours(data, count, key_count, identity="siphash"),
                    "md5": ours(data, count, key_count, identity="md5"),
                    "peer": peer(data),
                },
                [
                    Goal("P13 compact, SipHash", "siphash", "peer", 8.0),
                    Goal("P13 compact, MD5", "md5", "peer", 8.0),
                ],
            )


if __name__ == "__main__":
    sys.exit(run_table(sys.argv[1:], comparisons, peer="aiokafka"))
