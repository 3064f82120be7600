"""Records of one `send_many`, measured and cut into parts.

A part is small enough to be checked, grouped by partition and encoded within about a millisecond,
because this keeps the interpreter from the thread of the event loop. Calls of few records, which
are the common case, are one part, and are measured by the loop itself.

Thread-safety: values belong to one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from types import NoneType
from typing import Any, Final, NamedTuple

import numpy as np

from kafkalog._core.record_groups import RECORD_OVERHEAD_BYTES, check_fields, whole_group
from kafkalog.clients.many_records import BATCH_OVERHEAD, header_bytes
from kafkalog.model import Header
from kafkalog.pace import Pace
from kafkalog.records.packing import TimestampsLike

__all__ = ["RecordsPart", "RecordsToSend", "record_bytes"]

# Largest number of records of a part, and about the largest size of one with several records.
PART_RECORDS: Final = 1000
PART_BYTES: Final = 1 << 20
# Rows of a column that are made objects at once: that takes Arrow a microsecond for each.
COLUMN_ROWS: Final = 200

_OVERHEAD: Final = RECORD_OVERHEAD_BYTES + BATCH_OVERHEAD
_LISTS: Final = (list, NoneType)

RecordHeaders = Sequence[Iterable[Header] | None]


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header] | None) -> int:
    """Return an upper bound of the memory that a record takes in a batch."""
    size = _OVERHEAD + len(key or b"") + len(value or b"")
    return size if not headers else size + header_bytes(headers)


class RecordsPart(NamedTuple):
    """
    Consecutive records of a call.

    Attributes:
        first_row: number of the first in the call.
        keys, values, timestamps, headers: as for `Producer.send_many`.
    """

    first_row: int
    keys: list[bytes | None] | None
    values: list[bytes | None]
    timestamps: TimestampsLike | None
    headers: RecordHeaders | None


class RecordsToSend:
    """
    Records of one call.

    Args:
        keys, values, timestamps, headers: as for `Producer.send_many`.

    Raises:
        TypeError: keys or values are no columns.
        ValueError: the columns differ in length.

    Attributes:
        record_count: number of records.
        parts: the records, once they are measured.
        size_bytes: an upper bound of the memory that they take in batches.
    """

    def __init__(
        self,
        keys: Any,
        values: Any,
        timestamps: TimestampsLike | None,
        headers: RecordHeaders | None,
    ) -> None:
        self._keys = None if keys is None else _sliceable(keys, "keys")
        self._values = _sliceable(values, "values")
        self._timestamps = timestamps
        self._headers = headers
        self.record_count = len(self._values)
        self.parts: list[RecordsPart] = []
        self.size_bytes = 0
        _check_lengths(self.record_count, keys=self._keys, headers=headers)
        if timestamps is not None and not isinstance(timestamps, int | datetime | np.generic):
            _check_lengths(len(self._values), timestamps=timestamps)

    @property
    def is_small(self) -> bool:
        """True if the loop may measure the records itself."""
        is_listed = type(self._values) is list and type(self._keys) in _LISTS
        return self.record_count <= (PART_RECORDS if is_listed else COLUMN_ROWS)

    def measure(self) -> None:
        """
        Copy, check and measure the records.

        Raises:
            TypeError: a key or value is not bytes or None.
        """
        count = self.record_count
        if self.is_small:
            # On the loop, which must not sleep.
            if not self._take_plain():
                self.parts += self._read(0, count, None)
        else:
            pace = Pace()
            for start in range(0, count, PART_RECORDS):
                self.parts += self._read(start, min(start + PART_RECORDS, count), pace)
                pace.step()
        # The columns of the caller are not needed any more.
        self._keys, self._values, self._headers = None, self._values[:0], None

    def _take_plain(self) -> bool:
        """Copy, check and measure lists without headers as one part; return whether they are it."""
        keys, values = self._keys, self._values
        if self._headers is not None or type(values) is not list or type(keys) not in _LISTS:
            return False
        size = whole_group(keys, values).size_bytes + BATCH_OVERHEAD * len(values)
        if size > PART_BYTES:
            return False
        copied = None if keys is None else keys.copy()
        times = _slice_of(self._timestamps, slice(None))
        self.parts.append(RecordsPart(0, copied, values.copy(), times, None))
        self.size_bytes = size
        return True

    def _read(self, start: int, stop: int, pace: Pace | None) -> Iterator[RecordsPart]:
        """Yield the records of some rows, in more than one part if they are large."""
        keys = None if self._keys is None else _listed(self._keys[start:stop], pace)
        values = _listed(self._values[start:stop], pace)
        headers = None if self._headers is None else _header_tuples(self._headers[start:stop])
        check_fields(values, "values")
        if keys is not None:
            check_fields(keys, "keys")
        sizes = _sizes(keys, values, headers)
        total = sum(sizes)
        self.size_bytes += total
        first = 0
        for last in _ends(sizes) if total > PART_BYTES else (len(values),):
            rows, whole = slice(first, last), slice(start + first, start + last)
            yield RecordsPart(
                start + first,
                None if keys is None else keys[rows],
                values[rows],
                _slice_of(self._timestamps, whole),
                None if headers is None else headers[rows],
            )
            first = last


def _sliceable(fields: Any, name: str) -> Any:
    if type(fields) is list:
        return fields
    if isinstance(fields, bytes | bytearray | memoryview | str):
        raise TypeError(f"{name} must be a list of bytes or None, got {type(fields).__name__}")
    has_slices = isinstance(fields, list | tuple) or hasattr(fields, "to_pylist")
    # An array of NumPy is cut before it is converted as well.
    return fields if has_slices or hasattr(fields, "dtype") else list(fields)


def _listed(fields: Any, pace: Pace | None) -> list[bytes | None]:
    """Return a part of a column as a new list, which is no object of the caller."""
    if type(fields) is list:
        return fields
    listed: list[bytes | None] = []
    for start in range(0, len(fields), COLUMN_ROWS):
        rows = fields[start : start + COLUMN_ROWS]
        if hasattr(rows, "dtype"):
            # Of a number, `bytes` would make zeros.
            listed += [bytes(each) if isinstance(each, bytes) else each for each in rows.tolist()]
        else:
            listed += rows.to_pylist() if hasattr(rows, "to_pylist") else rows
        if pace is not None:
            pace.step()
    return listed


def _header_tuples(headers: RecordHeaders) -> list[tuple[Header, ...] | None]:
    return [None if each is None else tuple(each) for each in headers]


def _slice_of(timestamps: TimestampsLike | None, rows: slice) -> TimestampsLike | None:
    """Return the timestamps of a part: the caller of a cancelled call may change its own."""
    if timestamps is None or isinstance(timestamps, int | datetime | np.generic):
        return timestamps
    part = timestamps[rows]
    # A part of an array of NumPy is a view.
    return part.copy() if isinstance(part, np.ndarray) else part


def _sizes(
    keys: list[bytes | None] | None,
    values: list[bytes | None],
    headers: list[tuple[Header, ...] | None] | None,
) -> list[int]:
    sizes = [_OVERHEAD if value is None else _OVERHEAD + len(value) for value in values]
    if keys is not None:
        sizes = [
            size if key is None else size + len(key) for size, key in zip(sizes, keys, strict=True)
        ]
    if headers is not None:
        sizes = [
            size + header_bytes(found) if found else size
            for size, found in zip(sizes, headers, strict=True)
        ]
    return sizes


def _ends(sizes: list[int]) -> Iterator[int]:
    """Yield the ends of parts of about `PART_BYTES` or of one record."""
    size = 0
    for row, each in enumerate(sizes):
        if size and size + each > PART_BYTES:
            yield row
            size = 0
        size += each
    yield len(sizes)


def _check_lengths(count: int, **columns: Any) -> None:
    for name, column in columns.items():
        if column is not None and len(column) != count:
            raise ValueError(f"{name} must be as many as values ({count}), got {len(column)}")
