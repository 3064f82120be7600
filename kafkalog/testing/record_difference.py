"""Difference of two lists of records, as text: missing, additional and moved records.

Thread-safety: pure functions, and immutable values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Final, NamedTuple, TypeAlias

from kafkalog._core.record import Record
from kafkalog.model import Header

__all__ = ["ExpectedRecords", "RecordFields", "describe_difference", "expected_fields"]

# Values; (key, value) of each record; or whole records.
ExpectedRecords: TypeAlias = (
    Sequence[bytes | None] | Sequence[tuple[bytes | None, bytes | None]] | Sequence[Record]
)

LINES_MAX: Final = 10
VALUE_MAX: Final = 60
# Fields of an expected record without a timestamp or an offset.
_UNKNOWN: Final = -1


class RecordFields(NamedTuple):
    """
    Fields of a record that an assertion compares; a field that is not compared is None.

    Attributes:
        value, key: `(bytes,)`, or `(None,)` for null.
        headers: pairs of key and value.
        timestamp_ms: timestamp.
        offset: offset.
    """

    value: tuple[bytes | None]
    key: tuple[bytes | None] | None = None
    headers: tuple[Header, ...] | None = None
    timestamp_ms: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        parts = [] if self.key is None else [f"key={_short(self.key[0])}"]
        parts.append(f"value={_short(self.value[0])}")
        if self.headers:
            parts.append(f"headers={self.headers!r}")
        if self.timestamp_ms is not None:
            parts.append(f"timestamp={self.timestamp_ms}")
        if self.offset is not None:
            parts.append(f"offset={self.offset}")
        return " ".join(parts)

    def fields_of(self, record: Record) -> RecordFields:
        """Return the fields of a record that are compared in this one."""
        return RecordFields(
            (record.value,),
            None if self.key is None else (record.key,),
            None if self.headers is None else record.headers,
            None if self.timestamp_ms is None else record.timestamp_ms,
            None if self.offset is None else record.offset,
        )


def expected_fields(expected: ExpectedRecords) -> list[RecordFields]:
    """
    Return the compared fields of expected records.

    Timestamps and offsets are compared if each expected record has one.

    Raises:
        TypeError: the expected records are of several kinds, or of another kind.
    """
    kinds = {type(each) for each in expected} - {type(None)}
    if kinds <= {bytes}:
        return [RecordFields((each,)) for each in expected if not isinstance(each, tuple | Record)]
    if kinds == {tuple} and None not in expected:
        pairs = [each for each in expected if isinstance(each, tuple)]
        return [RecordFields((value,), (key,)) for key, value in pairs]
    if kinds != {Record} or None in expected:
        names = ", ".join(sorted(each.__name__ for each in kinds))
        raise TypeError(
            f"expected records must be all values, all (key, value) or all Record, got {names}"
        )
    records = [each for each in expected if isinstance(each, Record)]
    has_times = all(each.timestamp_ms != _UNKNOWN for each in records)
    has_offsets = all(each.offset != _UNKNOWN for each in records)
    return [
        RecordFields(
            (each.value,),
            (each.key,),
            each.headers,
            each.timestamp_ms if has_times else None,
            each.offset if has_offsets else None,
        )
        for each in records
    ]


def describe_difference(
    expected: Sequence[RecordFields], found: Sequence[RecordFields], offsets: Sequence[object]
) -> list[str]:
    """
    Return lines that describe each difference, empty if there is none.

    Args:
        expected, found: the records.
        offsets: place of each record that was found, in messages.
    """
    missing, additional = list[int](), list[int]()
    # Equal records at both ends are left out: the time for many equal records is quadratic.
    same = _equal_count(expected, found)
    rest, other_rest = expected[same:], found[same:]
    same_end = _equal_count(rest[::-1], other_rest[::-1])
    rest, other_rest = rest[: len(rest) - same_end], other_rest[: len(other_rest) - same_end]
    for kind, start, end, other_start, other_end in SequenceMatcher(
        None, rest, other_rest, autojunk=False
    ).get_opcodes():
        if kind != "equal":
            missing += range(same + start, same + end)
            additional += range(same + other_start, same + other_end)
    moved = Counter(expected[each] for each in missing) & Counter(
        found[each] for each in additional
    )
    lines, left = list[str](), moved.copy()
    for each in missing:
        if left[expected[each]]:
            left[expected[each]] -= 1
        else:
            lines.append(f"missing:      record {each} of the expected, {expected[each]}")
    for each in additional:
        label = "additional:  "
        if moved[found[each]]:
            moved[found[each]] -= 1
            label = "out of order:"
        lines.append(f"{label} {offsets[each]}, {found[each]}")
    return _limited(lines)


def _equal_count(first: Sequence[RecordFields], second: Sequence[RecordFields]) -> int:
    """Return the number of records at the begin that are equal."""
    pairs = enumerate(zip(first, second, strict=False))
    differing = (number for number, (one, other) in pairs if one != other)
    return next(differing, min(len(first), len(second)))


def _limited(lines: list[str]) -> list[str]:
    rest = len(lines) - LINES_MAX
    return lines if rest <= 0 else [*lines[:LINES_MAX], f"... and {rest} other differences"]


def _short(value: bytes | None) -> str:
    """Return a key or a value, cut if it is long."""
    if value is None:
        return "null"
    if len(value) <= VALUE_MAX:
        return repr(value)
    return f"{value[:VALUE_MAX]!r}... ({len(value)} bytes)"
