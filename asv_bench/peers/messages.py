"""Messages of magic 0 and 1, plain and in wrappers, against aiokafka's compiled codec.

    python -m asv_bench.peers.messages [--quick]

Both sides read the same bytes, check or compute the CRC-32 of every message and wrapper, and
decompress. The peer decodes to objects, which is all it can. A plain message is a batch to both
sides. Wrappers are compressed with lz4 in v1 and with snappy in v0, whose lz4 the peer cannot read;
their values are text, those of plain messages are noise.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from asv_bench.peers.codecs import Case, Times
from asv_bench.peers.codecs import decode_to_columns as decode_each_to_columns
from asv_bench.peers.common import (
    BATCH_SIZES,
    VALUE_SIZES,
    Comparison,
    Goal,
    Records,
    make_records,
    run_table,
)
from asv_bench.peers.records import (
    append_columns,
    append_each,
    append_lists,
    decode_to_columns,
    peer_encode,
    peer_iterate,
)
from asv_bench.peers.texts import make_texts
from kafkalog._core.header import parse_header
from kafkalog._core.message import decode_run_lists, decode_run_records, decode_run_tuples
from kafkalog._core.message_builder import MessageSetBuilder
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec, compress

CODEC_OF_MAGIC = {0: Codec.SNAPPY, 1: Codec.LZ4}


def encode(records: Records, times: Times, batch_size: int, magic: int, codec: Codec) -> bytes:
    """Return the records as plain messages, or as wrappers of at most `batch_size` uncompressed."""
    builder = MessageSetBuilder(magic)
    parts = []
    done = 0
    while done < len(records.keys):
        added = builder.extend_lists(records.keys, records.values, times, done, batch_size)
        if codec is Codec.NONE:
            parts.append(bytes(builder.finish_plain(done)))
        else:
            payload = compress(codec, builder.payload(done), magic=magic)
            parts.append(bytes(builder.wrap(codec, payload, base_offset=done)))
        builder.reset()
        done += added
    return b"".join(parts)


def wrappers(data: bytes) -> Iterator[BatchView]:
    """Yield each wrapper, its CRC checked."""
    view = memoryview(data)
    position = 0
    while position < len(view):
        end = parse_header(view, position).end_position
        batch = BatchView(view[position:end], position=position)
        batch.check()
        yield batch
        position = end


def run_objects(data: bytes) -> Case:
    def case() -> None:
        for record in decode_run_records(data)[0]:
            record.key
            record.value

    return case


def run_tuples(data: bytes) -> Case:
    def case() -> None:
        for _key, _value in decode_run_tuples(data)[0]:
            pass

    return case


def run_lists(data: bytes) -> Case:
    def case() -> None:
        for _key, _value in zip(*decode_run_lists(data)[:2], strict=True):
            pass

    return case


def unwrap_objects(data: bytes) -> Case:
    def case() -> None:
        for batch in wrappers(data):
            for record in batch.records():
                record.key
                record.value

    return case


def unwrap_tuples(data: bytes) -> Case:
    def case() -> None:
        for batch in wrappers(data):
            for _key, _value in batch.tuples():
                pass

    return case


def unwrap_lists(data: bytes) -> Case:
    def case() -> None:
        for batch in wrappers(data):
            for _key, _value in zip(*batch.lists(), strict=True):
                pass

    return case


def goals(label: str, *names: str) -> list[Goal]:
    """Return a row for each case; the old formats have no goals of their own."""
    return [Goal(f"{label} {name}", name, "peer", 0) for name in names]


def plain(records: Records, work: str, magic: int, batch_size: int) -> Iterator[Comparison]:
    """Yield decoding and encoding of messages that stand alone."""
    count = len(records.keys)
    times = np.array(records.timestamps)
    data = encode(records, times, batch_size, magic, Codec.NONE)
    yield Comparison(
        work,
        count,
        {
            "peer": peer_iterate(data),
            "columns": decode_to_columns(data),
            "objects": run_objects(data),
            "tuples": run_tuples(data),
            "lists": run_lists(data),
        },
        goals(f"v{magic} plain, decode to", "columns", "objects", "tuples", "lists"),
    )
    builder = MessageSetBuilder(magic)
    yield Comparison(
        work,
        count,
        {
            "peer": peer_encode(lambda: LegacyRecordBatchBuilder(magic, 0, batch_size), records),
            "columns": append_columns(records, batch_size, builder),
            "lists": append_lists(records, batch_size, builder),
            "each": append_each(records, batch_size, builder),
        },
        goals(f"v{magic} plain, encode", "columns", "lists", "each"),
    )


def wrapped(records: Records, work: str, magic: int, batch_size: int) -> Iterator[Comparison]:
    """Yield decoding and encoding of wrappers."""
    count = len(records.keys)
    codec = CODEC_OF_MAGIC[magic]
    times = np.array(records.timestamps)
    data = encode(records, times, batch_size, magic, codec)
    label = f"v{magic} {codec.kafka_name}"
    yield Comparison(
        work,
        count,
        {
            "peer": peer_iterate(data),
            "columns": decode_each_to_columns(data),
            "objects": unwrap_objects(data),
            "tuples": unwrap_tuples(data),
            "lists": unwrap_lists(data),
        },
        goals(f"{label}, decode to", "columns", "objects", "tuples", "lists"),
    )
    yield Comparison(
        work,
        count,
        {
            "peer": peer_encode(
                lambda: LegacyRecordBatchBuilder(magic, codec, batch_size), records
            ),
            "lists": lambda: encode(records, times, batch_size, magic, codec),
        },
        goals(f"{label}, encode", "lists"),
    )


def comparisons(*, quick: bool) -> Iterator[Comparison]:
    """Yield comparisons of each magic, value size and set size."""
    for value_size in VALUE_SIZES:
        count = (20_000 if quick else 100_000) // (1 if value_size == VALUE_SIZES[0] else 4)
        noise = make_records(count, value_size)
        texts = make_texts(count, value_size)
        for magic in (0, 1):
            for batch_size in BATCH_SIZES:
                work = f"{value_size} B, {batch_size // 1024} KiB"
                yield from plain(noise, work, magic, batch_size)
                yield from wrapped(texts, work, magic, batch_size)


if __name__ == "__main__":
    sys.exit(run_table(sys.argv[1:], comparisons, peer="aiokafka"))
