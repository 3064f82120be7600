"""Goals P6 and P6b: compressed v2 batches, against aiokafka, kafka-python and the bare codecs.

    python -m asv_bench.peers.codecs [--quick]

Values are text that compresses to a third to a seventh. Both sides read the same bytes, check the
CRC of every batch and decompress it; the peer makes objects, ours columns. Levels are the same on
both sides: 0 and 9 both mean the fast compressor of lz4, zstd has level 3. "Bare" is the library's
own call over the same payloads, with neither records nor CRC.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import lz4.frame
import numpy as np
import numpy.typing as npt
import zstandard
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.default_records import (
    DefaultRecordBatchBuilder as KafkaPythonBatchBuilder,
)

from asv_bench.peers.common import (
    BATCH_SIZES,
    VALUE_SIZES,
    Comparison,
    Goal,
    Records,
    run_table,
)
from asv_bench.peers.records import peer_encode, peer_iterate
from asv_bench.peers.texts import make_texts
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.columns import RecordColumns
from kafkalog._core.compressed_decode import PayloadMemory, decode_compressed_run
from kafkalog._core.header import parse_header
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec, compress

COLUMN_ROWS = 32 * 1024
DECODE_GOALS = {Codec.LZ4: 5.5, Codec.ZSTD: 2.5, Codec.GZIP: 3.5, Codec.SNAPPY: 2.0}
ZSTD_LEVEL = 3

Case = Callable[[], object]
Times = npt.NDArray[np.int64]


def payloads_of(records: Records, batch_size: int) -> list[bytes]:
    """Return the plain payload of each batch."""
    builder = BatchBuilder()
    timestamps = np.array(records.timestamps)
    payloads = []
    done = 0
    while done < len(records.keys):
        done += builder.extend_lists(records.keys, records.values, timestamps, done, batch_size)
        payloads.append(bytes(builder.payload()))
        builder.reset()
    return payloads


def encode(
    records: Records, times: Times, batch_size: int, codec: Codec, level: int | None = None
) -> bytes:
    """Return the records as compressed batches, back to back: what an append does."""
    builder = BatchBuilder()
    parts = []
    done = 0
    while done < len(records.keys):
        added = builder.extend_lists(records.keys, records.values, times, done, batch_size)
        payload = compress(codec, builder.payload(), level)
        parts.append(bytes(builder.finish(base_offset=done, codec=codec, payload=payload)))
        builder.reset()
        done += added
    return b"".join(parts)


def decode_to_columns(data: bytes) -> Case:
    """
    Return a case: check, decompress and decode every batch.

    Many in a call where kernels undo the codec, else one after the other.
    """
    columns, memory = RecordColumns(COLUMN_ROWS), PayloadMemory()
    view = memoryview(data)

    def case() -> None:
        position = 0
        while position < len(view):
            _, count, position, _ = decode_compressed_run(view, position, columns, memory)
            if count:
                continue
            end = parse_header(view, position).end_position
            batch = BatchView(view[position:end], position=position)
            batch.check()
            columns.clear()
            batch.columns(columns)
            position = end

    return case


def bare_lz4(payloads: list[bytes]) -> Case:
    def case() -> None:
        for payload in payloads:
            lz4.frame.compress(payload, compression_level=0, block_linked=False, store_size=False)

    return case


def bare_zstd(payloads: list[bytes]) -> Case:
    compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_content_size=False)

    def case() -> None:
        for payload in payloads:
            compressor.compress(payload)

    return case


def decodings(records: Records, work: str, batch_size: int) -> Iterator[Comparison]:
    """Yield a comparison for each codec."""
    times = np.array(records.timestamps)
    for codec, goal in DECODE_GOALS.items():
        data = encode(records, times, batch_size, codec)
        yield Comparison(
            work,
            len(records.keys),
            {"peer": peer_iterate(data), "columns": decode_to_columns(data)},
            [Goal(f"P6 decode {codec.kafka_name} to columns / aiokafka", "columns", "peer", goal)],
        )


def encodings(records: Records, work: str, batch_size: int) -> Iterator[Comparison]:
    """Yield a comparison for lz4 and one for zstd."""
    payloads = payloads_of(records, batch_size)
    # A caller with lists of fields has an array of times: its conversion from a list takes as long
    # as the encoding of the records.
    times = np.array(records.timestamps)

    def kafka_python() -> object:
        return KafkaPythonBatchBuilder(2, Codec.LZ4, False, -1, -1, -1, batch_size)

    def aiokafka() -> object:
        return DefaultRecordBatchBuilder(2, Codec.ZSTD, 0, -1, -1, -1, batch_size)

    yield Comparison(
        work,
        len(records.keys),
        {
            "peer": peer_encode(kafka_python, records),
            "bare": bare_lz4(payloads),
            "ours": lambda: encode(records, times, batch_size, Codec.LZ4),
        },
        [
            Goal("P6b encode lz4 / kafka-python", "ours", "peer", 10),
            Goal("P6b encode lz4 / the bare codec", "ours", "bare", 0.9),
        ],
    )
    yield Comparison(
        work,
        len(records.keys),
        {
            "peer": peer_encode(aiokafka, records),
            "bare": bare_zstd(payloads),
            "ours": lambda: encode(records, times, batch_size, Codec.ZSTD, ZSTD_LEVEL),
        },
        [
            Goal("P6b encode zstd 3 / aiokafka", "ours", "peer", 1.6),
            Goal("P6b encode zstd 3 / the bare codec", "ours", "bare", 0.9),
        ],
    )


def comparisons(*, quick: bool) -> Iterator[Comparison]:
    """Yield the comparisons for each value size and batch size."""
    for value_size in VALUE_SIZES:
        small = value_size == VALUE_SIZES[0]
        records = make_texts((20_000 if quick else 200_000) // (1 if small else 4), value_size)
        for batch_size in BATCH_SIZES:
            work = f"{value_size} B, {batch_size // 1024} KiB"
            yield from decodings(records, work, batch_size)
            yield from encodings(records, work, batch_size)


if __name__ == "__main__":
    sys.exit(run_table(sys.argv[1:], comparisons, peer="peer"))
