"""Runs of batches of every format: the scan, look-ups, decoders of records, columns and codecs."""

from __future__ import annotations

from kafkalog._core.batch import find_batch, find_offset, find_timestamp
from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.status import status_name
from kafkalog.errors import CorruptRecordError, KafkaLogError
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import decompress
from tests.fuzz.inputs import Choices, mended
from tests.support import message_cases, record_laws, reference, reference_records
from tests.support import reference_codecs as codecs
from tests.support import reference_messages as messages
from tests.support.buffers import exact
from tests.support.column_rows import assert_scan_equals_reference, reference_run
from tests.support.reference import Header
from tests.support.reference_records import Refused

__all__ = ["decode_batches", "decode_compressed", "scan_batches"]

LIMIT_BYTES = 1 << 20


def scan_batches(data: bytes) -> None:
    """Headers alone: the scan into columns, and the functions that find a batch."""
    choices = Choices(data)
    mends, check_crc, check_order = choices.flags(3)
    target = choices.number(8)
    run = mended(choices.rest) if mends else choices.rest
    assert_scan_equals_reference(run, check_crc=check_crc, check_order=check_order, capacity=7)
    for field, find in (("last_offset", find_offset), ("max_timestamp", find_timestamp)):
        expected, verdict = reference.find(run, field, target)
        position, status = find(exact(run), target)
        assert (expected, verdict) == (position, status_name(status))
    if target >= 0 and run:
        expected = reference.find_batch(run, 1, 0, target)
        assert expected == find_batch(exact(run), 1, offset_min=0, offset_max=target)


def decode_batches(data: bytes) -> None:
    """Records of uncompressed batches, single and as columns of a whole run."""
    choices = Choices(data)
    mends, check_crc, strict = choices.flags(3)
    run = mended(choices.rest) if mends else choices.rest
    columns = RecordColumns(max(1, len(run)))
    rows, batches, position, status = decode_run(
        exact(run), 0, columns, check_crc=check_crc, strict=strict
    )
    assert rows == len(columns)
    expected = reference_run(run, check_crc=check_crc, strict=strict)
    assert expected == (rows, batches, position, status_name(status))
    walk = reference.scan_batches(run, check_crc=False, check_order=False)
    for start, header in walk.batches:
        batch = run[start : start + header.size_bytes]
        if header.attributes & 7:
            continue
        if header.magic == 2:
            record_laws.assert_like_reference(batch[61:], header, strict=strict)
        else:
            message_cases.assert_like_reference(batch, header, strict=strict)


Row = tuple[int, int, bytes | None, bytes | None]


def decode_compressed(data: bytes) -> None:
    """One batch or wrapper in any codec: its stream, and its records."""
    choices = Choices(data)
    mends, strict = choices.flags(2)
    run = mended(choices.rest) if mends else choices.rest
    verdict, header = reference.whole_batch(run)
    if verdict != "OK" or header is None:
        return
    batch = run[: header.size_bytes]
    expected = _reference_rows(batch, header, strict=strict)
    try:
        view = BatchView(exact(batch))
        found = view.records(strict=strict, limit_bytes=LIMIT_BYTES)
    except KafkaLogError:
        # A stream may be refused for fields that the slow codecs ignore, such as checksums.
        return
    if expected is None and _is_refused_by_zlib(batch, header, strict=strict):
        return
    assert expected == [(r.offset, r.timestamp_ms, r.key, r.value) for r in found]
    pairs = [row[2:] for row in expected]
    assert pairs == view.tuples(strict=strict, limit_bytes=LIMIT_BYTES)


def _is_refused_by_zlib(batch: bytes, header: Header, *, strict: bool) -> bool:
    """Return whether this is gzip that only the faster library reads; no writer stores it."""
    if header.attributes & 7 != codecs.GZIP:
        return False
    start, end = 61, len(batch)
    if header.magic < 2:
        start, end = messages.wrapper_value(batch, strict=strict)
    try:
        decompress(codecs.GZIP, batch[start:end], limit_bytes=LIMIT_BYTES, exact=True)
    except CorruptRecordError:
        return True
    return False


def _reference_rows(batch: bytes, header: Header, *, strict: bool) -> list[Row] | None:
    """Return the records of a batch by the reference, None if it refuses them."""
    try:
        if header.magic < 2:
            return [
                (r.offset, r.timestamp, r.key, r.value)
                for r in messages.decode_entry(batch, header, strict=strict)
            ]
        codec = header.attributes & 7
        if codec > codecs.ZSTD:
            return None
        payload = codecs.decompress(codec, batch[61:])
        return [
            (r.offset, r.timestamp, r.entry.key, r.entry.value)
            for r in reference_records.decode(payload, header, strict=strict)
        ]
    except (Refused, codecs.Damaged):
        return None
