"""Arrow columns built from hostile batches: filter and builder, in every binary type."""

from __future__ import annotations

from kafkalog._core.columns import RecordColumns, decode_columns
from kafkalog._core.row_builder import COLUMN_NAMES, RowBuilder
from kafkalog._core.row_filter import RowFilter
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from tests.fuzz.inputs import Choices
from tests.support import reference, reference_records
from tests.support.buffers import exact
from tests.support.record_cases import as_batch_header
from tests.support.reference_records import Refused
from tests.support.row_cases import built, expected_rows, rows_of, runs_of

__all__ = ["build_corrupt_rows", "build_rows", "builder_of", "names_of"]

BINARY_TYPES = ("binary", "large_binary", "binary_view")
POSITIONS = (
    "key_position",
    "key_size",
    "value_position",
    "value_size",
    "headers_position",
    "headers_size",
    "header_count",
)


def builder_of(choices: Choices, names: list[str], *, text_keys: bool) -> RowBuilder:
    """Return a builder of some columns, with limits of any size."""
    builder = RowBuilder(
        names,
        binary_type=choices.one_of(BINARY_TYPES),
        text_keys=text_keys,
        rows_max=choices.one_of([2**40, 1, 2, 3]),
        bytes_max=choices.one_of([2**30, 1, 100, 5000]),
    )
    builder.set_partition("t-\xe9", 7)
    return builder


def names_of(choices: Choices) -> list[str]:
    """Return names of columns, at least one."""
    chosen = choices.number(2)
    return [name for bit, name in enumerate(COLUMN_NAMES) if chosen >> bit & 1] or ["offset"]


def build_rows(data: bytes) -> None:
    """Accepted bytes become the reference's rows, and the filter keeps the same rows."""
    choices = Choices(data)
    text_keys, lasting, filters, strict = choices.flags(4)
    names = names_of(choices)
    is_text = text_keys and "headers" in names
    builder = builder_of(choices, names, text_keys=text_keys)
    key = choices.take(choices.byte() % 4)
    run = choices.rest
    walk = reference.scan_batches(run, check_crc=False, check_order=False, capacity=4)
    for start, header in walk.batches:
        if header.magic != 2 or header.attributes & 7:
            continue
        payload = run[start + 61 : start + header.size_bytes]
        try:
            expected = expected_rows(payload, header, names, text=is_text, strict=strict)
        except Refused:
            return
        except UnicodeDecodeError:
            expected = None
        buffer, native = exact(payload), as_batch_header(header)
        columns = RecordColumns(max(1, len(payload)))
        decode_columns(buffer, native, 0, len(payload), columns, strict=strict)
        runs = runs_of(native, len(columns))
        if filters:
            RowFilter(keys=[key, None]).apply(buffer, columns, runs, 0, 2**63 - 1)
            kept = [
                record.offset < 2**63 - 1 and record.offset >= 0 and record.entry.key in (key, None)
                for record in reference_records.decode(payload, header, strict=strict)
            ]
            assert sum(kept) == len(columns)
            if expected is not None:
                expected = [row for row, stays in zip(expected, kept, strict=True) if stays]
        try:
            found = built(buffer, columns, runs, builder, lasting=lasting)
        except InvalidRecordError:
            # Keys of headers that are not UTF-8; rows before the first of them are kept.
            assert expected is None
            return
        if expected is not None:
            assert expected == rows_of(found)
        else:
            # Header keys that are not UTF-8 were filtered out.
            assert filters


def build_corrupt_rows(data: bytes) -> None:
    """Any code can write to the columns: nothing outside the buffer is read."""
    choices = Choices(data)
    text_keys, lasting, filters = choices.flags(3)
    names = names_of(choices)
    builder = builder_of(choices, names, text_keys=text_keys)
    octets = choices.take(choices.byte())
    count = choices.byte() % 9
    columns = RecordColumns(count + 1)
    header = reference.Header(record_count=count, last_offset_delta=100)
    record = reference_records.encode_entry(reference_records.Entry(0))
    payload = b"".join([record] * count)
    decode_columns(payload, as_batch_header(header), 0, len(payload), columns, strict=False)
    for name in POSITIONS:
        column = getattr(columns, name)
        wide = column.dtype.itemsize
        for row in range(count):
            # Small numbers more often than not, so that some rows are sound.
            size = choices.one_of([1, 1, 1, wide])
            column[row] = choices.number(size)
    buffer = exact(octets)
    runs = runs_of(as_batch_header(header), count)
    try:
        if filters:
            RowFilter(keys=[octets[:2], b""]).apply(buffer, columns, runs, 0, 2**62)
        batches = built(buffer, columns, runs, builder, lasting=lasting)
    except (CorruptRecordError, InvalidRecordError):
        return
    for cells in batches:
        for name in ("key", "value"):
            for cell in cells.get(name, ()):
                assert cell is None or cell in octets
