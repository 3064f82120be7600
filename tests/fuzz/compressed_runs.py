"""Runs of compressed batches decoded in one call: to Arrow columns, and to columns of positions.

These kernels leave some batches to the slow path. They return the reference's rows up to such a
batch, and a batch left to the slow path is not a plain one.
"""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import NamedTuple

from kafkalog._core.arrow_decode import ArrowBatchRun
from kafkalog._core.columns import RecordColumns
from kafkalog._core.compressed_decode import PayloadMemory, decode_compressed_run
from kafkalog._core.row_builder import RowBuilder
from kafkalog._core.status import STATUS_CODES, status_name
from kafkalog.errors import KafkaLogError
from kafkalog.records.codecs import Codec, decompress
from kafkalog.records.decompressed_batches import DecompressedBatches
from tests.fuzz.inputs import Choices, mended
from tests.fuzz.rows import builder_of, names_of
from tests.support import reference, reference_records
from tests.support import reference_codecs as codecs
from tests.support.arrow_consumer import cells_of
from tests.support.buffers import exact
from tests.support.column_rows import RECORD_COLUMNS, rows_of_columns
from tests.support.reference import Header
from tests.support.reference_records import Refused
from tests.support.row_cases import expected_rows, rows_of

__all__ = ["build_compressed_runs", "decode_compressed_runs"]

INT64_MAX = 2**63 - 1
OURS = (Codec.SNAPPY, Codec.LZ4)
LIMITS = (1 << 20, 0, 60, 150, 1000)
LZ4_BLOCK_CHECKSUM = 0x10

# Records by the position of their batch, if the caller decompressed them.
Payloads = dict[int, bytes]


def _run_of(choices: Choices) -> bytes:
    """
    Return a run of batches, by choice compressed by a codec decoded here, and damaged.

    A mutation rarely makes a valid stream, so plain batches are compressed here.
    """
    packs, mends, damages = choices.flags(3)
    codec_bytes = choices.take(4) if packs else b""
    flips = [(choices.number(2), choices.byte()) for _ in range(choices.byte() % 3)]
    run = choices.rest
    if packs:
        run = _packed(run, codec_bytes)
    if damages and run:
        damaged = bytearray(run)
        for position, bits in flips:
            damaged[position % len(damaged)] ^= bits
        run = bytes(damaged)
    return mended(run) if mends else run


def _packed(run: bytes, codec_bytes: bytes) -> bytes:
    """Return a run whose plain batches are compressed, each by a codec chosen by a byte."""
    walk = reference.scan_batches(run, check_crc=False, check_order=False, capacity=16)
    parts = []
    for number, (start, header) in enumerate(walk.batches):
        batch = run[start : start + header.size_bytes]
        codec = codec_bytes[number % len(codec_bytes)] % 5
        if header.magic == 2 and not header.attributes & 7 and codec:
            fields = {**vars(header), "attributes": header.attributes | codec}
            batch = reference.encode_batch(Header(**fields), codecs.compress(codec, batch[61:]))
        parts.append(batch)
    return b"".join(parts) + run[walk.position :]


def _records_of(batch: bytes, codec: int, limit_bytes: int) -> bytes | None:
    """Return the records of a batch by the reference; None if it refuses them or their size."""
    try:
        payload = codecs.decompress(codec, batch[61:])
    except codecs.Damaged:
        return None
    return payload if len(payload) <= limit_bytes else None


def _goes_alone(batch: bytes, codec: int, limit_bytes: int) -> bool:
    """Return whether a batch may be left to the slow path although the reference reads it."""
    try:
        decompress(codec, batch[61:], limit_bytes=limit_bytes)
    except KafkaLogError:
        # For fields that the slow codecs ignore, such as checksums.
        return True
    return codec == Codec.LZ4 and bool(batch[65] & LZ4_BLOCK_CHECKSUM)


# ---- to Arrow columns -----------------------------------------------------------------------


def build_compressed_runs(data: bytes) -> None:
    """Compressed batches become the reference's rows; libraries decompress some codecs."""
    choices = Choices(data)
    check_crc, has_start, has_end, has_corruption = choices.flags(4)
    names = names_of(choices)
    builder = builder_of(choices, names, text_keys=False)
    start = choices.number(2) if has_start else 0
    end = choices.number(2) if has_end else INT64_MAX
    limit_bytes, bytes_max = choices.one_of(LIMITS), choices.one_of([1 << 20, 1, 200])
    corruption = choices.take(choices.byte()) if has_corruption else None
    octets = _run_of(choices)
    if not builder.can_add_runs:
        return
    run = ArrowBatchRun(
        exact(octets), 0, len(octets), check_crc=check_crc, offset_min=start, offset_end=end,
        compressed=True, limit_bytes=limit_bytes,
    )  # fmt: skip
    payloads: Payloads = {}
    status, batches = _rows_of_run(
        run, builder, octets, limit_bytes, bytes_max, corruption, payloads
    )
    rows, count, position = [], 0, 0
    while position < len(octets):
        verdict, header = reference.whole_batch(octets[position:])
        if verdict != "OK" or header is None:
            verdict = "ELSEWHERE"
            break
        batch = octets[position : position + header.size_bytes]
        codec = header.attributes & 7
        outside = header.base_offset < start or header.last_offset >= end
        payload = payloads.get(position)
        if codec in OURS:
            payload = _records_of(batch, codec, limit_bytes)
        verdict, more = ("ELSEWHERE", []) if outside else _taken(header, names, payload)
        if check_crc and verdict != "ELSEWHERE" and reference.check_batch(batch) != "OK":
            verdict = "CRC"
        if verdict != "OK":
            break
        if count == run.batch_count:
            assert has_corruption or _goes_alone(batch, codec, limit_bytes)
            verdict = "LEFT"
            break
        rows += more
        count += 1
        start = max(start, header.last_offset + 1)
        position += header.size_bytes
    else:
        verdict = "OK"
    assert (rows, count) == (rows_of(batches), run.batch_count)
    assert (verdict == "OK") == (status == STATUS_CODES["OK"])
    if status == STATUS_CODES["CRC"]:
        assert verdict == "CRC"


def _rows_of_run(
    run: ArrowBatchRun, builder: RowBuilder, octets: bytes, limit_bytes: int, bytes_max: int,
    corruption: bytes | None, payloads: Payloads,
) -> tuple[int, list[dict[str, list[object]]]]:  # fmt: skip
    """Return the last status and the batches of a run; record the decompressed batches."""
    decompressed, batches = DecompressedBatches(), []
    while True:
        status = builder.add_run(run)
        if status == STATUS_CODES["FULL"]:
            batches.append(cells_of(builder.finish()))
            continue
        if status != STATUS_CODES["COMPRESSED"]:
            break
        before = len(payloads)
        if corruption is None:
            _give_records(run, octets, limit_bytes, bytes_max, decompressed, payloads)
        elif not before:
            _give_corrupt(run, bytes_max, corruption, payloads)
        if len(payloads) == before:
            break
    if len(builder):
        batches.append(cells_of(builder.finish()))
    return status, batches


def _give_records(
    run: ArrowBatchRun, octets: bytes, limit_bytes: int, bytes_max: int,
    decompressed: DecompressedBatches, payloads: Payloads,
) -> None:  # fmt: skip
    """Pass the next batches, decompressed by the slow codecs."""
    parts = run.list_compressed(bytes_max)
    count = decompressed.fill(memoryview(octets), parts, limit_bytes)
    if not count:
        return
    bounds = [0, *decompressed.ends]
    for (codec, start, end), (first, stop) in zip(parts, pairwise(bounds), strict=False):
        records = bytes(decompressed.memory[first:stop])
        expected = _records_of(octets[start - 61 : end], codec, limit_bytes)
        if expected is None and codec == Codec.GZIP:
            # The library of the extra `gzip` reads some streams that zlib refuses, like Java.
            assert zlib.crc32(records).to_bytes(4, "little") in octets[start:end]
        else:
            assert expected == records
        payloads[start - 61] = records
    run.add_decompressed(parts, decompressed.memory, decompressed.ends)


def _give_corrupt(
    run: ArrowBatchRun, bytes_max: int, corruption: bytes, payloads: Payloads
) -> None:
    """Pass wrong bytes, with arbitrary ends."""
    parts = run.list_compressed(bytes_max)
    said = Choices(corruption)
    ends, end = [], 0
    for _ in range(said.byte() % 5):
        end += said.number(said.one_of([1, 1, 1, 8]))
        ends.append(min(max(end, -INT64_MAX), INT64_MAX))
    memory = said.rest
    try:
        run.add_decompressed(parts, exact(memory), ends)
    except (ValueError, IndexError):
        whole = all(first <= stop <= len(memory) for first, stop in pairwise([0, *ends]))
        assert len(ends) > len(parts) or not whole
        return
    for (_, start, _), (first, stop) in zip(parts, pairwise([0, *ends]), strict=False):
        payloads[start - 61] = memory[first:stop]


def _taken(
    header: Header, names: list[str], payload: bytes | None
) -> tuple[str, list[tuple[object, ...]]]:
    """Return whether the reference accepts a batch with these records, and its rows."""
    if header.magic != 2 or not 0 < header.attributes & 7 <= Codec.ZSTD:
        return "ELSEWHERE", []
    if payload is None:
        return "REFUSED", []
    try:
        return "OK", list(expected_rows(payload, header, names))
    except Refused:
        return "REFUSED", []


# ---- to columns of positions ----------------------------------------------------------------


Row = tuple[int, int, bytes | None, bytes | None, int]


def decode_compressed_runs(data: bytes) -> None:
    """Batches decompressed by kernels to one memory: the reference's rows, batch by batch."""
    choices = Choices(data)
    check_crc, strict = choices.flags(2)
    limit_bytes = choices.one_of(LIMITS)
    columns = RecordColumns(choices.one_of([1000, 1, 3, 9]))
    octets = _run_of(choices)
    reference_of = _Decoder(columns.capacity, limit_bytes, check_crc, strict)
    _assert_decoded(octets, columns, reference_of)


class _Decoder(NamedTuple):
    """Decoding of a batch by the reference, with the options of the kernel."""

    capacity: int
    limit_bytes: int
    check_crc: bool
    strict: bool

    def decode(self, batch: bytes, header: Header) -> tuple[str, list[Row]]:
        """Return the verdict on one batch and its rows."""
        codec = header.attributes & 7
        if header.magic != 2 or codec not in OURS:
            return "COMPRESSED", []
        if self.check_crc and reference.check_batch(batch) != "OK":
            return "CRC", []
        payload = _records_of(batch, codec, self.limit_bytes)
        if header.record_count > self.capacity or payload is None:
            return "COMPRESSED", []
        try:
            records = reference_records.decode(payload, header, strict=self.strict)
        except Refused:
            return "COMPRESSED", []
        return "OK", [
            (r.offset, r.timestamp, r.entry.key, r.entry.value, len(r.entry.headers))
            for r in records
        ]


def _assert_decoded(octets: bytes, columns: RecordColumns, expected: _Decoder) -> None:
    """Decode a run to its end, or to a batch for the slow path."""
    memory = PayloadMemory(expected.limit_bytes)
    position, status = 0, STATUS_CODES["FULL"]
    while status == STATUS_CODES["FULL"]:
        rows, count, end, status = decode_compressed_run(
            exact(octets), position, columns, memory,
            check_crc=expected.check_crc, strict=expected.strict,
        )  # fmt: skip
        assert rows == len(columns)
        # A batch too large for the columns is left to the slow path: FULL needs earlier rows.
        assert count or status != STATUS_CODES["FULL"]
        rows_of_batches: list[Row] = []
        for _ in range(count):
            verdict, header = reference.whole_batch(octets[position:])
            assert verdict == "OK" and header is not None
            verdict, more = expected.decode(octets[position : position + header.size_bytes], header)
            assert verdict == "OK"
            rows_of_batches += more
            position += header.size_bytes
        assert (position, rows_of_batches) == (end, _rows_in(memory, columns))
    _assert_left(octets[position:], status_name(status), expected)


def _rows_in(memory: PayloadMemory, columns: RecordColumns) -> list[Row]:
    """Return the rows of columns, with bytes instead of positions and sizes."""
    rows = []
    with memoryview(memory) as view:
        for row in rows_of_columns(columns, RECORD_COLUMNS):
            offset, timestamp, key_at, key_size, value_at, value_size, _, _, header_count = row
            key = None if key_size < 0 else bytes(view[key_at : key_at + key_size])
            value = None if value_size < 0 else bytes(view[value_at : value_at + value_size])
            rows.append((offset, timestamp, key, value, header_count))
    return rows


def _assert_left(rest: bytes, status: str, expected: _Decoder) -> None:
    """Assert that a run ended for the reason of the reference, or at a batch for the slow path."""
    if not rest:
        assert status == "OK"
        return
    verdict, header = reference.whole_batch(rest)
    if verdict == "OK" and header is not None:
        batch = rest[: header.size_bytes]
        verdict, _ = expected.decode(batch, header)
        codec = header.attributes & 7
        if verdict == "OK" and _goes_alone(batch, codec, expected.limit_bytes):
            verdict = "COMPRESSED"
    assert verdict == status
