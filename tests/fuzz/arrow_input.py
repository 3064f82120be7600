"""Arrow's C interface as input, with any numbers in its buffers: refused, or read as its rows.

The interface does not check sizes of buffers. The buffers here have exactly the size that length
and offsets of their array require; all other numbers may be wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kafkalog._core.arrow_source import ArrowSource
from kafkalog._core.builder import BatchBuilder
from kafkalog.errors import KafkaLogError
from tests.fuzz.inputs import Choices
from tests.support.arrow_c import Array, Exported, forget_released
from tests.support.arrow_c import struct as structure

__all__ = ["append_arrow"]

Cell = bytes | None
LAYOUTS = (b"z", b"Z", b"u", b"vz", b"w:3", b"w:0", b"n", b"U", b"vu")
# Milliseconds in a unit; negative: units in a millisecond.
TIME_UNITS = {b"l": 1, b"tsm:UTC": 1, b"tss:": 1000, b"tsu:": -1000, b"tsn:": -1_000_000}
DATA_BYTES_MAX = 1 << 16
INT64_MAX = 2**63 - 1


class CorruptInputError(Exception):
    """The buffers contradict each other."""


@dataclass
class Column:
    """
    An array and the model that reads it.

    Attributes:
        check: raises CorruptInputError for an impossible column, for the number of cells to read.
        cell: returns the cell at a place, or raises CorruptInputError.
    """

    array: Array
    check: Callable[[int], None]
    cell: Callable[[int], Any]


@dataclass
class Row:
    """A record as read by the model."""

    key: Cell = None
    value: Cell = None
    timestamp: int = -1
    headers: tuple[tuple[str, Cell], ...] = ()


def append_arrow(data: bytes) -> None:
    """Keys, values, times and headers in any layout; the batch equals that of single records."""
    choices = Choices(data)
    count, shared, own = choices.byte() % 6, choices.byte() % 3, choices.byte() % 3
    has_key, has_value, has_time, has_headers = choices.flags(4)
    total = own + shared + count
    places = range(own + shared, total)
    rows = [Row() for _ in places]
    arrays: list[Array] = []
    is_sound = has_key or has_value

    def read(name: str, column: Column) -> bool:
        """Read a column; return False if the model refuses it."""
        arrays.append(column.array)
        try:
            column.check(count)
            for row, place in zip(rows, places, strict=True):
                setattr(row, name, column.cell(place))
        except CorruptInputError:
            return False
        return True

    if has_key:
        is_sound &= read("key", _column(choices, total, own, b"key"))
    if has_value:
        is_sound &= read("value", _column(choices, total, own, b"value"))
    if has_time:
        is_sound &= read("timestamp", _times(choices, total, own))
    if has_headers:
        is_sound &= read("headers", _headers(choices, total, own, shared))
    expected = _one_by_one(rows) if is_sound else None
    try:
        found = _from_arrow(structure(arrays, length=count, offset=shared))
    except (KafkaLogError, ValueError):
        assert expected is None
    else:
        assert expected == found
    finally:
        forget_released()


def _from_arrow(table: Array) -> bytes | None:
    builder = BatchBuilder()
    for rows in ArrowSource(Exported(table)):
        times = -1 if rows.timestamps is None else rows.timestamps
        if len(rows):
            builder.extend_columns(rows.keys, rows.values, times, headers=rows.headers)
    return bytes(builder.finish()) if builder.count else None


def _one_by_one(rows: list[Row]) -> bytes | None:
    """Return the batch built by the slow path; None if it refuses a record."""
    builder = BatchBuilder()
    try:
        for row in rows:
            builder.append(row.key, row.value, row.timestamp, row.headers)
    except (KafkaLogError, ValueError):
        return None
    return bytes(builder.finish()) if rows else None


# ---- columns, and the model that reads their cells


@dataclass
class Nulls:
    """Count and bitmap of the nulls."""

    count: int
    bitmap: bytes | None
    length: int

    def check(self, row_count: int) -> None:
        """Raise CorruptInputError if the count is impossible or the bitmap is missing."""
        if not -1 <= self.count <= self.length:
            raise CorruptInputError
        if row_count and self.count > 0 and self.bitmap is None:
            raise CorruptInputError

    def at(self, place: int) -> bool:
        """Return whether the cell at a place is null."""
        if not self.count or self.bitmap is None:
            return False
        return not self.bitmap[place >> 3] >> (place & 7) & 1


def _nulls(choices: Choices, total: int, own: int) -> Nulls:
    has_bitmap, counts, is_corrupt = choices.flags(3)
    bitmap = choices.take((total + 7) // 8) if has_bitmap else None
    count = choices.number(1) if is_corrupt else (total - own if counts else 0)
    return Nulls(count, bitmap, total - own)


def _offsets(choices: Choices, total: int, wide: bool) -> list[int]:
    """Return one more number than cells, rising or not."""
    rises, is_corrupt = choices.flags(2)
    size = (8 if wide else 4) if is_corrupt else 1
    numbers = [choices.number(size) for _ in range(total + 1)]
    if not rises:
        return numbers
    ends, end = [], 0
    for number in numbers:
        end = min(end + abs(number), DATA_BYTES_MAX)
        ends.append(end)
    return ends


def _column(choices: Choices, total: int, own: int, name: bytes | None) -> Column:
    """Return a column of byte strings."""
    layout = choices.one_of(LAYOUTS)
    nulls = _nulls(choices, total, own)
    last = 0
    read: Callable[[int], Cell]
    buffers: list[bytes | None] = [nulls.bitmap]
    if layout == b"n":
        buffers, nulls = [], replace(nulls, bitmap=b"" if nulls.count > 0 else None)
        read = _null_cell
    elif layout in (b"vz", b"vu"):
        more, read = _view_cells(choices, total)
        buffers += more
    elif layout[:1] == b"w":
        more, read = _fixed_cells(choices, total, int(layout[2:]))
        buffers += more
    else:
        last, more, read = _offset_cells(choices, total, wide=layout in (b"Z", b"U"))
        buffers += more

    def check(row_count: int) -> None:
        nulls.check(row_count)
        if row_count and last < 0:
            raise CorruptInputError

    def cell(place: int) -> Cell:
        return None if layout != b"n" and nulls.at(place) else read(place)

    made = Array(layout, total - own, buffers, name=name, null_count=nulls.count, offset=own)
    return Column(made, check, cell)


Cells = tuple[list[bytes | None], Callable[[int], Cell]]


def _null_cell(_place: int) -> Cell:
    return None


def _fixed_cells(choices: Choices, total: int, width: int) -> Cells:
    octets = choices.take(width * total)
    return [octets], lambda place: octets[width * place : width * place + width]


def _offset_cells(
    choices: Choices, total: int, *, wide: bool
) -> tuple[int, list[bytes | None], Callable[[int], Cell]]:
    """Return the last offset, the buffers, and a function that reads a cell that is not null."""
    ends = _offsets(choices, total, wide)
    # The last offset is not checked, so the buffer must have this size.
    last = ends[total] = min(ends[total], DATA_BYTES_MAX)
    octets = choices.take(max(0, last))

    def cell(place: int) -> Cell:
        start, end = ends[place], ends[place + 1]
        if not 0 <= start <= end <= last:
            raise CorruptInputError
        return octets[start:end]

    offsets = struct.pack(f"={total + 1}{'q' if wide else 'i'}", *ends)
    return last, [offsets, octets], cell


def _view_cells(choices: Choices, total: int) -> Cells:
    parts = [choices.take(choices.byte() % 40) for _ in range(choices.byte() % 3)]
    views: list[bytes] = []
    for _ in range(total):
        (hostile,) = choices.flags(1)
        size = choices.number(4) if hostile else choices.byte() % 40
        rest = choices.take(12)
        if size > 12 and not hostile:
            rest = rest[:4] + struct.pack("=ii", rest[4] % 3, rest[8] % 30)
        views.append(struct.pack("=i", size) + rest)
    sizes = [len(part) for part in parts]

    def cell(place: int) -> Cell:
        view = views[place]
        size, buffer, start = struct.unpack("=i4xii", view)
        if 0 <= size <= 12:
            return view[4 : 4 + int(size)]
        if size < 0 or not 0 <= buffer < len(parts):
            raise CorruptInputError
        if start < 0 or size > len(parts[buffer]) - start:
            raise CorruptInputError
        return parts[int(buffer)][start : start + size]

    return [b"".join(views), *parts, struct.pack(f"={len(sizes)}q", *sizes)], cell


def _times(choices: Choices, total: int, own: int) -> Column:
    """Return a column of timestamps in any unit; timestamps without a zone are refused."""
    kind = choices.one_of(list(TIME_UNITS))
    unit = TIME_UNITS[kind]
    has_zone = not kind.endswith(b":") or total % 2 == 0
    if kind.endswith(b":") and has_zone:
        kind += b"UTC"
    nulls = _nulls(choices, total, own)
    size = choices.one_of([2, 8])
    values = [choices.number(size) for _ in range(total)]

    def check(row_count: int) -> None:
        nulls.check(row_count)
        if not has_zone:
            raise CorruptInputError

    def cell(place: int) -> int:
        value = values[place]
        if nulls.at(place):
            return -1
        if unit > 1 and abs(value) > INT64_MAX // unit:
            raise CorruptInputError
        return value * unit if unit > 0 else value // -unit

    made = Array(
        kind,
        total - own,
        [nulls.bitmap, struct.pack(f"={total}q", *values)],
        name=b"timestamp",
        null_count=nulls.count,
        offset=own,
    )
    return Column(made, check, cell)


def _headers(choices: Choices, total: int, own: int, shared: int) -> Column:
    """Return a list of structures: the headers of each record."""
    (wide,) = choices.flags(1)
    nulls = _nulls(choices, total, own)
    count, late = choices.byte() % 6, choices.byte() % 2
    ends = _offsets(choices, total, wide)
    keys, values = (_column(choices, late + count, 0, None) for _ in range(2))

    def check(row_count: int) -> None:
        nulls.check(row_count)
        if row_count:
            if not 0 <= ends[own + shared] <= ends[total] <= count:
                raise CorruptInputError
            keys.check(count)
            values.check(count)

    def cell(place: int) -> tuple[tuple[str, Cell], ...]:
        if nulls.at(place):
            return ()
        start, end = ends[place], ends[place + 1]
        if not 0 <= start <= end <= count:
            raise CorruptInputError
        pairs = []
        for entry in range(late + start, late + end):
            key, value = keys.cell(entry), values.cell(entry)
            if key is None:
                raise CorruptInputError
            pairs.append((key.decode("utf-8", "surrogateescape"), value))
        return tuple(pairs)

    made = Array(
        b"+L" if wide else b"+l",
        total - own,
        [nulls.bitmap, struct.pack(f"={total + 1}{'q' if wide else 'i'}", *ends)],
        [structure([keys.array, values.array], length=count, offset=late)],
        name=b"headers",
        null_count=nulls.count,
        offset=own,
    )
    return Column(made, check, cell)
