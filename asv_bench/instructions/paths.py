"""The hot paths, each on a fixed input: what is counted, and how many records it takes.

`python -m asv_bench.instructions.paths MARKS FOLDER NAME...` is what runs below valgrind: MARKS is
the library that starts and stops the counting. Each path runs twice before it is counted, so that
what is loaded, allocated or specialized once is not.

Records are the standard ones, 16-byte keys and 100-byte values; batches have 16 KiB. Counts include
what Python does around a kernel; for paths of one call that is shared by all records of the input.
"""

from __future__ import annotations

import ctypes
import gc
import json
import random
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import kafkalog
from asv_bench.peers.common import TIMESTAMP_MS, make_records
from asv_bench.peers.stores import columns_of
from kafkalog import LogConfig, LogManager, ManagerConfig, Producer
from kafkalog._core import crc32, crc32c, key_hash
from kafkalog._core.batch import parse_header
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.compressed_decode import PayloadMemory, decode_compressed_run
from kafkalog._core.index import OffsetIndexView
from kafkalog._core.offset_map import OffsetMap
from kafkalog._core.record import Record, decode_lists, decode_records, decode_tuples
from kafkalog.cleaner.keys import KeyCollector
from kafkalog.cleaner.record_filter import CleaningRules, RecordFilter
from kafkalog.cleaner.transactions import TransactionTracker
from kafkalog.log.scanner import scan_segment
from kafkalog.records.codecs import Codec, compress
from kafkalog.records.conversion.conversion_units import FileRecords

RECORDS = 4096
VALUE_BYTES = 100
BATCH_BYTES = 16 * 1024
# Records of one call, as of a request to a service.
GROUP = 10
HEADER_BYTES = 61
SECRET = bytes(range(16))
# Offsets of point reads, spread over the log.
POINTS = 512
READY_BATCHES = 64

Case = Callable[[], object]
# Directories of paths are made below this one.
Make = Callable[[Path], tuple[int, Case]]

PATHS: dict[str, Make] = {}


def path(name: str) -> Callable[[Make], Make]:
    """Enter a path under its name."""

    def enter(make: Make) -> Make:
        PATHS[name] = make
        return make

    return enter


def standard() -> Any:
    """Return the standard records."""
    return make_records(RECORDS, VALUE_BYTES)


def run_of_batches() -> bytes:
    """Return the standard records in batches of 16 KiB."""
    made, builder, run = standard(), BatchBuilder(), []
    keys, values, times = columns_of(made)
    start = 0
    while start < RECORDS:
        taken = builder.extend_columns(keys, values, times, start, None, BATCH_BYTES)
        run.append(bytes(builder.finish(base_offset=start)))
        builder.reset()
        start += taken
    return b"".join(run)


def open_log(folder: Path, **settings: Any) -> kafkalog.Log:
    """Return an empty log."""
    return kafkalog.open_log(folder, config=kafkalog.LogConfig(batch_bytes=BATCH_BYTES, **settings))


def filled_log(folder: Path, codec: str = "uncompressed") -> kafkalog.Log:
    """Return a log of the standard records."""
    made, log = standard(), open_log(folder, compression_type=codec)
    log.append_columns(made.keys, made.values, timestamps=np.array(made.timestamps))
    return log


# ---- kernels


@path("encode columns")
def encode_columns(_folder: Path) -> tuple[int, Case]:
    """Batches out of columns, CRC and all."""
    keys, values, times = columns_of(standard())
    builder = BatchBuilder()

    def case() -> None:
        start = 0
        while start < RECORDS:
            start += builder.extend_columns(keys, values, times, start, None, BATCH_BYTES)
            builder.finish()
            builder.reset()

    return RECORDS, case


@path("encode lists")
def encode_lists(_folder: Path) -> tuple[int, Case]:
    """Batches out of two lists."""
    made, builder = standard(), BatchBuilder()

    def case() -> None:
        start = 0
        while start < RECORDS:
            start += builder.extend_lists(made.keys, made.values, 0, start, BATCH_BYTES)
            builder.finish()
            builder.reset()

    return RECORDS, case


@path("encode one by one")
def encode_one(_folder: Path) -> tuple[int, Case]:
    """A call for each record."""
    made, builder = standard(), BatchBuilder()

    def case() -> None:
        append = builder.append
        for key, value in zip(made.keys, made.values, strict=True):
            append(key, value)
        builder.finish()
        builder.reset()

    return RECORDS, case


@path("decode columns")
def decode_into_columns(_folder: Path) -> tuple[int, Case]:
    """CRC checked, into columns that are there."""
    data, columns = run_of_batches(), RecordColumns(RECORDS)

    def case() -> None:
        columns.clear()
        decode_run(data, 0, columns)

    return RECORDS, case


@path("decode columns, lz4")
def decode_compressed(_folder: Path) -> tuple[int, Case]:
    """The same of compressed batches, into memory that is there."""
    made, builder, data = standard(), BatchBuilder(), b""
    start = 0
    while start < RECORDS:
        taken = builder.extend_lists(made.keys, made.values, 0, start, BATCH_BYTES)
        payload = compress(Codec.LZ4, builder.payload())
        data += builder.finish(base_offset=start, codec=Codec.LZ4, payload=payload)
        builder.reset()
        start += taken
    columns, memory = RecordColumns(RECORDS), PayloadMemory()

    def case() -> None:
        position = 0
        while position < len(data):
            _, _, position, _ = decode_compressed_run(data, position, columns, memory)

    return RECORDS, case


def _decoding(decode: Callable[..., object]) -> Make:
    def make(_folder: Path) -> tuple[int, Case]:
        data = run_of_batches()
        header = parse_header(data)
        batch = data[: header.size_bytes]
        return header.record_count, lambda: decode(batch, header, HEADER_BYTES, len(batch))

    return make


PATHS["decode objects"] = _decoding(decode_records)
PATHS["decode tuples"] = _decoding(decode_tuples)
PATHS["decode lists"] = _decoding(decode_lists)


@path("CRC-32C of 16 KiB")
def checksum(_folder: Path) -> tuple[int, Case]:
    """Instructions a KiB, not a record."""
    data = random.Random(1).randbytes(BATCH_BYTES)
    return BATCH_BYTES // 1024, lambda: crc32c.value(data)


@path("index look-up")
def look_up(_folder: Path) -> tuple[int, Case]:
    """One offset a call."""
    entries = np.arange(1, 100_001, dtype=">i4").repeat(2) * 7
    view = OffsetIndexView(entries.tobytes(), 0)
    offsets = random.Random(1).choices(range(700_000), k=POINTS)

    def case() -> None:
        look = view.lookup
        for offset in offsets:
            look(offset)

    return POINTS, case


@path("index look-up of many")
def look_up_many(_folder: Path) -> tuple[int, Case]:
    """All offsets in a call."""
    entries = np.arange(1, 100_001, dtype=">i4").repeat(2) * 7
    view = OffsetIndexView(entries.tobytes(), 0)
    offsets = np.array(random.Random(1).choices(range(700_000), k=RECORDS), np.int64)
    positions = np.empty_like(offsets)
    return RECORDS, lambda: view.lookup_many(offsets, positions)


# ---- cleaning


def _cleaning_run() -> tuple[FileRecords, OffsetMap]:
    """Return a run, and a map in which nine of ten keys have a later offset."""
    data = run_of_batches()
    offset_map = OffsetMap(bytearray(2 * RECORDS * 24), secret=SECRET)
    keys = b"".join(standard().keys)
    offsets = np.arange(RECORDS, dtype=np.int64)
    offset_map.put_run(
        keys,
        offsets * 16,
        np.full(RECORDS, 16, np.int32),
        np.where(offsets % 10 < 9, offsets + RECORDS, offsets),
    )
    return FileRecords(memoryview(data)), offset_map


@path("compaction: keys into the map")
def collect_keys(_folder: Path) -> tuple[int, Case]:
    """The first pass."""
    data, _ = _cleaning_run()
    offset_map = OffsetMap(bytearray(2 * RECORDS * 24), secret=SECRET)

    def case() -> None:
        offset_map.clear(secret=SECRET)
        KeyCollector(offset_map, TransactionTracker()).add(data)

    return RECORDS, case


@path("compaction: what stays")
def filter_run(_folder: Path) -> tuple[int, Case]:
    """The second pass, in which one record of ten stays."""
    data, offset_map = _cleaning_run()
    rules = CleaningRules(0, 0, 2 * RECORDS, {}, 1 << 20)

    def case() -> None:
        RecordFilter(offset_map, rules, TransactionTracker()).filter(data, old_tombstones_stay=True)

    return RECORDS, case


@path("recovery scan")
def recover(folder: Path) -> tuple[int, Case]:
    """Every batch with its CRC, and the entries of both indexes."""
    data = memoryview(run_of_batches())
    return RECORDS, lambda: scan_segment(data, folder, base_offset=0, interval=4096)


# ---- a log


def _scanning(codec: str = "uncompressed", **how: Any) -> Make:
    def make(folder: Path) -> tuple[int, Case]:
        log = filled_log(folder, codec)

        def case() -> None:
            for _batch in log.scan(columns=("offset", "timestamp", "key", "value"), **how):
                pass

        return RECORDS, case

    return make


PATHS["scan to Arrow"] = _scanning()
PATHS["scan to Arrow views"] = _scanning(binary_type="binary_view")
PATHS["scan to Arrow, lz4"] = _scanning("lz4")
PATHS["scan to Arrow, snappy"] = _scanning("snappy")


@path("records of a log")
def read_records(folder: Path) -> tuple[int, Case]:
    """Objects, each asked for its value."""
    log = filled_log(folder)

    def case() -> None:
        for record in log.records():
            record.value

    return RECORDS, case


@path("append columns")
def append_columns(folder: Path) -> tuple[int, Case]:
    """Arrays to a log's file."""
    log, (keys, values, times) = open_log(folder), columns_of(standard())
    return RECORDS, lambda: log.append_columns(keys, values, timestamps=times)


@path("append lists")
def append_lists(folder: Path) -> tuple[int, Case]:
    """Two lists to a log's file."""
    log, made = open_log(folder), standard()
    return RECORDS, lambda: log.append_lists(made.keys, made.values)


@path("append one by one")
def append_one(folder: Path) -> tuple[int, Case]:
    """An appender, which writes once in a mebibyte."""
    log, made = open_log(folder), standard()

    def case() -> None:
        with log.appender() as appender:
            append = appender.append
            for key, value in zip(made.keys, made.values, strict=True):
                append(key, value)

    return RECORDS, case


@path("append a record")
def append_record(folder: Path) -> tuple[int, Case]:
    """A call, and a write, for each record."""
    log, made = open_log(folder), standard()
    records = [
        Record(key=key, value=value) for key, value in zip(made.keys, made.values, strict=True)
    ][:POINTS]

    def case() -> None:
        for record in records:
            log.append([record])

    return POINTS, case


def new_producer(folder: Path) -> Producer:
    """Return a producer for a topic with four partitions."""
    limits = LogConfig(message_timestamp_before_max_ms=2**63 - 1)
    manager = LogManager([folder], ManagerConfig(log=limits))
    manager.create_topic("records", 4)
    return manager.producer(batch_size=BATCH_BYTES, linger_ms=3_600_000)


@path("send a record")
def send_record(folder: Path) -> tuple[int, Case]:
    """A future for each, from a producer that selects one of four partitions by the key."""
    producer, made = new_producer(folder), standard()

    def case() -> None:
        send = producer.send
        for key, value in zip(made.keys, made.values, strict=True):
            send("records", value, key=key, timestamp_ms=TIMESTAMP_MS)

    return RECORDS, case


@path("send ten records at once")
def send_many(folder: Path) -> tuple[int, Case]:
    """The same records with a future for each ten, which go to several of the partitions."""
    producer, made = new_producer(folder), standard()
    groups = [
        (made.keys[start : start + GROUP], made.values[start : start + GROUP])
        for start in range(0, RECORDS, GROUP)
    ]

    def case() -> None:
        for keys, values in groups:
            producer.send_many("records", keys, values)

    return RECORDS, case


@path("append a ready batch")
def append_batch(folder: Path) -> tuple[int, Case]:
    """A call, and a write, for each batch, which keeps its offsets."""
    log, made = open_log(folder), standard()
    keys, values, times = columns_of(made)
    builder = BatchBuilder()
    builder.extend_columns(keys, values, times, 0, None, BATCH_BYTES)
    # Enough for the two runs before the counted one.
    numbers = range(3 * READY_BATCHES)
    batches = iter(
        [
            bytes(builder.finish(base_offset=builder.count * n, partition_leader_epoch=0))
            for n in numbers
        ]
    )

    def case() -> None:
        for batch in islice(batches, READY_BATCHES):
            log.append_batches(batch, assign_offsets=False)

    return READY_BATCHES, case


@path("append a batch and assign offsets")
def append_batch_to_be_stamped(folder: Path) -> tuple[int, Case]:
    """The same of batches that get their offsets: every record is read."""
    log, (keys, values, times) = open_log(folder), columns_of(standard())
    builder = BatchBuilder()
    builder.extend_columns(keys, values, times, 0, None, BATCH_BYTES)
    batch = bytes(builder.finish())

    def case() -> None:
        for _number in range(READY_BATCHES):
            log.append_batches(batch)

    return READY_BATCHES, case


@path("get")
def get(folder: Path) -> tuple[int, Case]:
    """One record a call, anywhere."""
    log = filled_log(folder)
    offsets = random.Random(1).choices(range(RECORDS), k=POINTS)

    def case() -> None:
        for offset in offsets:
            log.get(offset)

    return POINTS, case


@path("get many")
def get_many(folder: Path) -> tuple[int, Case]:
    """The same in one call."""
    log = filled_log(folder)
    offsets = np.array(random.Random(1).choices(range(RECORDS), k=POINTS), np.int64)
    return POINTS, lambda: log.get_many(offsets)


@path("read a slice")
def read_slice(folder: Path) -> tuple[int, Case]:
    """One batch a call, anywhere, and its bytes."""
    log = filled_log(folder)
    offsets = random.Random(1).choices(range(RECORDS), k=POINTS)

    def case() -> None:
        for offset in offsets:
            log.read(offset, 1).data

    return POINTS, case


def _times() -> list[int]:
    """Return times of records anywhere."""
    times = standard().timestamps
    return [times[offset] for offset in random.Random(1).choices(range(RECORDS), k=POINTS)]


@path("find a time")
def find_time(folder: Path) -> tuple[int, Case]:
    """One time a call, anywhere."""
    log, times = filled_log(folder), _times()

    def case() -> None:
        for time in times:
            log.offset_for_timestamp(time)

    return POINTS, case


@path("find many times")
def find_times(folder: Path) -> tuple[int, Case]:
    """The same in one call."""
    log, times = filled_log(folder), np.array(_times(), np.int64)
    return POINTS, lambda: log.offsets_for_timestamps(times)


# ---- below valgrind


def kernels() -> dict[str, str]:
    """Return which of the kernels that depend on the processor run here."""
    return {
        "crc32c": crc32c.implementation(),
        "crc32": crc32.implementation(),
        "md5": key_hash.md5_implementations()[0],
    }


def main(arguments: list[str]) -> int:
    """Run paths between marks, and report the records of each."""
    marks = ctypes.CDLL(arguments[0])
    # Looked up here: the first look-up takes 15,000 instructions, which the first path would pay.
    begin_counting, end_counting = marks.begin_counting, marks.end_counting
    folder = Path(arguments[1])
    counts = {}
    for number, name in enumerate(arguments[2:]):
        counts[name], case = PATHS[name](folder / f"path{number}-0")
        case()
        case()
        gc.collect()
        gc.disable()
        begin_counting()
        case()
        end_counting(name.encode())
        gc.enable()
    sys.stdout.write(json.dumps({"records": counts, "kernels": kernels()}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
