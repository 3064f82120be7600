"""Goals P1 to P5: encoding and decoding of v2 batches, against aiokafka and kafka-python.

    python -m asv_bench.peers.records [--quick]

Both sides check or compute the CRC of every batch. The peer decodes to objects, which is all it
can; P1 compares that with our columns. Iterating our objects touches key and value of each.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBatchBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from asv_bench.peers.common import (
    BATCH_SIZES,
    VALUE_SIZES,
    Comparison,
    Goal,
    Records,
    make_records,
    run_table,
)
from kafkalog._core.batch import check_batch
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.bytes_column import BytesColumn
from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.message_builder import MessageSetBuilder
from kafkalog._core.record import decode_lists
from kafkalog._engine.iteration import RecordIterator

COLUMN_ROWS = 16 * 1024
PLAIN = (0, False, -1, -1, -1)  # codec, transaction, producer id, epoch, sequence
RECORD_OVERHEAD_MAX = 34  # that of a message of v1; records of v2 have 21 bytes at most


def build_run(records: Records, batch_size: int) -> bytes:
    """Return the records as batches of at most `batch_size` bytes, back to back."""
    builder = BatchBuilder()
    timestamps = np.array(records.timestamps)
    parts = []
    done = 0
    while done < len(records.keys):
        added = builder.extend_lists(records.keys, records.values, timestamps, done, batch_size)
        parts.append(bytes(builder.finish(base_offset=done)))
        builder.reset()
        done += added
    return b"".join(parts)


# ---- the peer


def peer_iterate(data: bytes, memory_records: type = MemoryRecords) -> Callable[[], int]:
    """Return a case: check every batch and touch key and value of every record."""

    def case() -> int:
        count = 0
        memory = memory_records(data)
        while memory.has_next():
            batch = memory.next_batch()
            assert batch.validate_crc()
            for record in batch:
                record.key
                record.value
                count += 1
        return count

    return case


def peer_encode(builder_of: Callable[[], Any], records: Records) -> Callable[[], int]:
    """Return a case: append record by record, build each full batch; aiokafka or kafka-python."""

    def case() -> int:
        size = 0
        builder = builder_of()
        append = builder.append
        offset = 0
        for key, value, timestamp in zip(
            records.keys, records.values, records.timestamps, strict=True
        ):
            if append(offset, timestamp, key, value, []) is None:
                size += len(builder.build())
                builder = builder_of()
                append = builder.append
                append(0, timestamp, key, value, [])
                offset = 0
            offset += 1
        return size + len(builder.build())

    return case


# ---- ours


def walk(data: bytes | bytearray) -> Iterator[tuple[BatchHeader, int, int]]:
    """Yield (header, start, end) of the records of each batch or message, its CRC checked."""
    position = 0
    while position < len(data):
        assert check_batch(data, position) == 0
        header = parse_header(data, position)
        end = header.end_position
        yield header, position + (61 if header.magic == 2 else 0), end
        position = end


def split(data: bytes | bytearray) -> list[bytes]:
    """Return the batches of a run."""
    view = memoryview(data)
    return [bytes(view[header.position : header.end_position]) for header, _, _ in walk(data)]


def iterate_objects(data: bytes) -> Callable[[], None]:
    def case() -> None:
        for header, start, end in walk(data):
            for record in RecordIterator(data, header, start, end):
                record.key
                record.value

    return case


def iterate_tuples(data: bytes) -> Callable[[], None]:
    def case() -> None:
        for header, start, end in walk(data):
            for _key, _value in RecordIterator(data, header, start, end, pairs=True):
                pass

    return case


def iterate_lists(data: bytes) -> Callable[[], None]:
    def case() -> None:
        for header, start, end in walk(data):
            keys, values = decode_lists(data, header, start, end)
            for _key, _value in zip(keys, values, strict=True):
                pass

    return case


def decode_to_columns(data: bytes) -> Callable[[], None]:
    columns = RecordColumns(COLUMN_ROWS)

    def case() -> None:
        position = 0
        while position < len(data):
            columns.clear()
            rows, _, position, _ = decode_run(data, position, columns)
            assert rows

    return case


def close(builder: BatchBuilder | MessageSetBuilder) -> int:
    """Close the batch under construction, begin another, and return its size."""
    if builder.count == 0:
        return 0
    made = builder.finish() if isinstance(builder, BatchBuilder) else builder.finish_plain()
    size = len(made)
    del made  # else the next batch would need other memory
    builder.reset()
    return size


def append_each(
    records: Records, batch_size: int, builder: BatchBuilder | MessageSetBuilder
) -> Callable[[], int]:
    limit = batch_size - len(records.keys[0]) - len(records.values[0]) - RECORD_OVERHEAD_MAX

    def case() -> int:
        size = 0
        append = builder.append
        for key, value, timestamp in zip(
            records.keys, records.values, records.timestamps, strict=True
        ):
            if append(key, value, timestamp) > limit:
                size += close(builder)
        return size + close(builder)

    return case


def append_lists(
    records: Records, batch_size: int, builder: BatchBuilder | MessageSetBuilder
) -> Callable[[], int]:
    timestamps = np.array(records.timestamps)

    def case() -> int:
        size = done = 0
        while done < len(records.keys):
            done += builder.extend_lists(records.keys, records.values, timestamps, done, batch_size)
            size += close(builder)
        return size

    return case


def append_columns(
    records: Records, batch_size: int, builder: BatchBuilder | MessageSetBuilder
) -> Callable[[], int]:
    count = len(records.keys)
    timestamps = np.array(records.timestamps)
    offsets = [
        np.cumsum([0, *map(len, column)], dtype=np.int32)
        for column in (records.keys, records.values)
    ]
    keys = BytesColumn(b"".join(records.keys), offsets[0])
    values = BytesColumn(b"".join(records.values), offsets[1])

    def case() -> int:
        size = done = 0
        while done < count:
            done += builder.extend_columns(keys, values, timestamps, done, None, batch_size)
            size += close(builder)
        return size

    return case


def comparisons(*, quick: bool) -> Iterator[Comparison]:
    """Yield one comparison for each value size and batch size."""
    for value_size in VALUE_SIZES:
        count = (50_000 if quick else 200_000) // (1 if value_size == VALUE_SIZES[0] else 4)
        records = make_records(count, value_size)
        small = value_size == VALUE_SIZES[0]
        for batch_size in BATCH_SIZES:
            data = build_run(records, batch_size)
            work = f"{value_size} B, {batch_size // 1024} KiB"
            yield Comparison(
                work,
                count,
                {
                    "aiokafka": peer_iterate(data),
                    "kafka-python": peer_iterate(data, KafkaPythonRecords),
                    "columns": decode_to_columns(data),
                    "objects": iterate_objects(data),
                    "tuples": iterate_tuples(data),
                    "lists": iterate_lists(data),
                },
                [
                    Goal("P1 decode to columns, CRC", "columns", "aiokafka", 20),
                    Goal("P5 iterate objects", "objects", "aiokafka", 2.4),
                    Goal("P5 iterate (key, value) tuples", "tuples", "aiokafka", 3),
                    Goal("P5 iterate two lists", "lists", "aiokafka", 3.5),
                    Goal("iterate objects / kafka-python", "objects", "kafka-python", 0),
                    Goal("decode to columns, CRC / kafka-python", "columns", "kafka-python", 0),
                ],
            )
            yield Comparison(
                work,
                count,
                {
                    "aiokafka": peer_encode(
                        functools.partial(DefaultRecordBatchBuilder, 2, *PLAIN, batch_size),
                        records,
                    ),
                    "kafka-python": peer_encode(
                        functools.partial(KafkaPythonBatchBuilder, 2, *PLAIN, batch_size),
                        records,
                    ),
                    "columns": append_columns(records, batch_size, BatchBuilder()),
                    "lists": append_lists(records, batch_size, BatchBuilder()),
                    "each": append_each(records, batch_size, BatchBuilder()),
                },
                [
                    Goal("P2 encode columns, CRC", "columns", "aiokafka", 12 if small else 9),
                    Goal("P3 append() one record, CRC", "each", "aiokafka", 3),
                    Goal("P4 append two lists, CRC", "lists", "aiokafka", 6),
                    Goal("append() one record, CRC / kafka-python", "each", "kafka-python", 0),
                    Goal("encode columns, CRC / kafka-python", "columns", "kafka-python", 0),
                ],
            )


if __name__ == "__main__":
    sys.exit(run_table(sys.argv[1:], comparisons, peer="aiokafka"))
