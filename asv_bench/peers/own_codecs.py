"""End-to-end gain of each codec, checksum and key hash in `_core`, compared with a package.

    python -m asv_bench.peers.own_codecs [--quick]

Our side is a scan of a log into Arrow columns, or an append of lists. The other side is the same
with the package instead. For a codec it scans the same batches, labelled as gzip, for which Python
is called; the package's decompressor replaces gzip's. For a checksum it is our side, plus
the package's call for each batch or message, minus our own call for all of them. For MD5 our side
is both passes of a cleaning over one run of batches, which hash each key.

The figures are in `docs/performance.md` and in the modules that they justify.
"""

from __future__ import annotations

import hashlib
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from unittest import mock

import cramjam
import crc32c
import lz4.frame
import numpy as np
import zstandard

import kafkalog
from asv_bench.peers.common import BATCH_SIZES, VALUE_SIZES, Comparison, Goal, Records
from asv_bench.peers.stopwatch import Seconds, Stopwatch
from asv_bench.peers.stores import Workspace, fill_log, run_in_workspace
from asv_bench.peers.texts import make_texts
from kafkalog._core.crc32 import value as own_crc32
from kafkalog._core.crc32c import value as own_crc32c
from kafkalog._core.key_hash import hash_cells
from kafkalog._core.offset_map import ENTRY_BYTES, OffsetMap
from kafkalog.cleaner.keys import KeyCollector
from kafkalog.cleaner.record_filter import CleaningRules, RecordFilter
from kafkalog.cleaner.transactions import TransactionTracker
from kafkalog.layout import CODEC_MASK, LOG_OVERHEAD
from kafkalog.records import gzip_members
from kafkalog.records.codecs import DEFAULT_LIMIT_BYTES, Codec
from kafkalog.records.conversion.conversion_units import FileRecords
from kafkalog.records.entry_columns import scan_entries

COLUMNS = ("offset", "timestamp", "key", "value")
RECORD_BYTES, RECORD_BYTES_QUICK = 20_000_000, 4_000_000
# Of a batch, and of a message of the old formats: first byte that its checksum covers.
BATCH_CRC_START, MESSAGE_CRC_START = 21, 16
SNAPPY_HEADER_BYTES = 16
# Values of one run of a cleaning.
CLEANED_BYTES = 2_000_000

Case = Callable[[], object]
Decoder = Callable[[memoryview], object]


def scan_of(log: kafkalog.Log) -> Case:
    """Return a case: a log into Arrow columns."""

    def case() -> None:
        for _batch in log.scan(columns=COLUMNS):
            pass

    return case


def bytes_of(log: kafkalog.Log) -> memoryview:
    """Return the only segment of a log."""
    (data,) = [segment.file.whole() for segment in log.segments()]
    return memoryview(data)


def batches_of(log: kafkalog.Log, start: int) -> list[memoryview]:
    """Return each batch, or message of an old format, from byte `start` of it on."""
    data = bytes_of(log)
    positions = scan_entries(data, check_crc=False).position.tolist()
    ends = [*positions[1:], len(data)]
    return [data[first + start : end] for first, end in zip(positions, ends, strict=True)]


def decode_snappy(data: memoryview) -> bytes:
    """Decode each block of the framing."""
    position, blocks = SNAPPY_HEADER_BYTES, []
    while position < len(data):
        end = position + 4 + int.from_bytes(data[position : position + 4], "big")
        blocks.append(cramjam.snappy.decompress_raw(data[position + 4 : end]))
        position = end
    return bytes(blocks[0]) if len(blocks) == 1 else b"".join(blocks)


def decode_zstd(data: memoryview) -> bytes:
    """Decode a frame that may hold as much as the limit: it declares nothing."""
    content: bytes = _ZSTD.decompress(data, max_output_size=DEFAULT_LIMIT_BYTES)
    return content


_ZSTD = zstandard.ZstdDecompressor()
DECODERS: dict[str, tuple[str, Decoder]] = {
    "lz4": ("lz4.frame", lz4.frame.decompress),
    "snappy": ("cramjam", decode_snappy),
    "zstd": ("zstandard alone", decode_zstd),
}


def labelled_gzip(workspace: Workspace, log: kafkalog.Log) -> kafkalog.Log:
    """Return a log with the same batches, each with the codec gzip in its header."""
    data = bytearray(bytes_of(log))
    position = 0
    while position < len(data):
        end = position + LOG_OVERHEAD + int.from_bytes(data[position + 8 : position + 12], "big")
        attributes = position + BATCH_CRC_START + 1
        data[attributes] = data[attributes] & ~CODEC_MASK | Codec.GZIP
        crc = own_crc32c(memoryview(data)[position + BATCH_CRC_START : end])
        data[position + 17 : position + 21] = crc.to_bytes(4, "big")
        position = end
    path = workspace.fresh()
    path.mkdir()
    (path / f"{0:020}.log").write_bytes(data)
    return kafkalog.open_log(path, config=log.config)


def with_package(log: kafkalog.Log, decode: Decoder) -> Case:
    """Return a case: a scan that decodes gzip by this function."""
    scan = scan_of(log)

    def case() -> None:
        with mock.patch.object(gzip_members, "decompress", lambda data, *_, **__: decode(data)):
            scan()

    return case


def timed(case: Case) -> Callable[[], Seconds]:
    """Return an action that measures a case."""

    def action() -> Seconds:
        start = time.thread_time()
        case()
        return Seconds(0.0, time.thread_time() - start)

    return action


def exchanged(case: Case, own: Case, package: Case) -> Callable[[], Seconds]:
    """Return an action that measures a case with the package's checksums instead of ours."""

    def action() -> Seconds:
        seconds = [timed(each)().cpu for each in (case, own, package)]
        return Seconds(0.0, seconds[0] - seconds[1] + seconds[2])

    return action


def decoding(
    workspace: Workspace, codec: str, records: Records, work: str, size: int
) -> Comparison:
    """Return the comparison of a codec."""
    log = fill_log(workspace.fresh(), records, size, compression_type=codec)
    package, decode = DECODERS[codec]
    return Comparison(
        work,
        len(records.keys),
        {
            "ours": scan_of(log),
            "package": with_package(labelled_gzip(workspace, log), decode),
        },
        [Goal(f"scan {codec} / {package}", "ours", "package", 0)],
    )


def checksum(
    work: str, label: str, items: int, case: Case, parts: list[memoryview], package: Decoder
) -> Comparison:
    """Return the comparison of a checksum."""
    own = own_crc32 if package is zlib.crc32 else own_crc32c
    whole = b"".join(parts)
    clock = Stopwatch(by_wall=False)
    instead = exchanged(case, lambda: own(whole), lambda: [package(part) for part in parts])
    return Comparison(
        work,
        items,
        {"ours": clock.time(timed(case)), "package": clock.time(instead)},
        [Goal(label, "ours", "package", 0)],
        clock=clock.read,
    )


def append_of(log: kafkalog.Log, records: Records) -> Case:
    """Return a case: two lists in one call."""
    times = np.array(records.timestamps)
    return lambda: log.append_columns(records.keys, records.values, timestamps=times)


def key_hash_of_cleaning(
    workspace: Workspace, records: Records, work: str, size: int
) -> Comparison:
    """Return the comparison of MD5 with that of `hashlib`, for as many records as one run has."""
    count = CLEANED_BYTES // len(records.values[0])
    keys, times = records.keys[:count], records.timestamps[:count]
    part = Records(keys, records.values[:count], times)
    run = FileRecords(bytes_of(fill_log(workspace.fresh(), part, size)))
    cells = b"".join(keys)
    ends = np.cumsum([0, *map(len, keys)], dtype=np.int32)
    offset_map = OffsetMap(bytearray(2 * count * ENTRY_BYTES), identity="md5", secret=bytes(16))
    rules = CleaningRules(0, 0, count, {}, 2 * CLEANED_BYTES)

    def case() -> None:
        offset_map.clear(secret=bytes(16))
        KeyCollector(offset_map, TransactionTracker()).add(run)
        tracker = TransactionTracker()
        RecordFilter(offset_map, rules, tracker).filter(run, old_tombstones_stay=True)

    own = exchanged_hashes(lambda: hash_cells(cells, ends))
    package = exchanged_hashes(lambda: [hashlib.md5(key).digest() for key in keys])
    clock = Stopwatch(by_wall=False)
    return Comparison(
        work,
        count,
        {"ours": clock.time(timed(case)), "package": clock.time(exchanged(case, own, package))},
        [Goal("cleaning, MD5 / hashlib", "ours", "package", 0)],
        clock=clock.read,
    )


def exchanged_hashes(hashes: Case) -> Case:
    """Return a case with the hashes of both passes."""
    return lambda: (hashes(), hashes())


def comparisons(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield the comparisons for each value size and batch size."""
    total = RECORD_BYTES_QUICK if quick else RECORD_BYTES
    for value_size in VALUE_SIZES:
        records = make_texts(total // value_size, value_size)
        count = len(records.keys)
        for size in BATCH_SIZES:
            work = f"{value_size} B, {size // 1024} KiB"
            for codec in DECODERS:
                yield decoding(workspace, codec, records, work, size)
        for size in (1, *BATCH_SIZES):
            work = f"{value_size} B, " + (f"{size // 1024} KiB" if size > 1 else "1 record")
            plain = fill_log(workspace.fresh(), records, size)
            parts = batches_of(plain, BATCH_CRC_START)
            label = "CRC-32C / crc32c"
            scan = scan_of(plain)
            yield checksum(work, f"scan, {label}", count, scan, parts, crc32c.crc32c)
            target = kafkalog.open_log(workspace.fresh(), config=plain.config)
            append = append_of(target, records)
            yield checksum(work, f"append, {label}", count, append, parts, crc32c.crc32c)
        old = fill_log(workspace.fresh(), records, BATCH_SIZES[0], message_format_version="0.10.0")
        parts = batches_of(old, MESSAGE_CRC_START)
        label = "scan of v1, CRC-32 / zlib"
        yield checksum(f"{value_size} B", label, count, scan_of(old), parts, zlib.crc32)
        for size in BATCH_SIZES:
            work = f"{value_size} B, {size // 1024} KiB"
            yield key_hash_of_cleaning(workspace, records, work, size)


if __name__ == "__main__":
    sys.exit(run_in_workspace(sys.argv[1:], comparisons))
