"""Conditions of a scan: filters of a caller, and the ranges and sets that follow from them.

A filter is (column, operator, value), and a record has to match all of them. Each narrows a range
or a set, which can be tested for a whole log, for a segment, for the header of a batch, and only
then for a record.

Thread-safety: everything here is immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from kafkalog._core.row_filter import RowFilter

__all__ = ["ANYTHING", "Conditions", "Filter", "Integers", "conditions_of"]

# (column, operator, value)
Filter: TypeAlias = tuple[str, str, Any]

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Integers:
    """
    Requested integers.

    Attributes:
        first, last: range, both inclusive.
        listed: members of the range, None for all.
    """

    first: int = INT64_MIN
    last: int = INT64_MAX
    listed: frozenset[int] | None = None

    def __contains__(self, number: int) -> bool:
        inside = self.first <= number <= self.last
        return inside and (self.listed is None or number in self.listed)

    @property
    def is_all(self) -> bool:
        """True if every integer is requested."""
        return (self.first, self.last, self.listed) == (INT64_MIN, INT64_MAX, None)

    def between(self, first: int = INT64_MIN, last: int = INT64_MAX) -> Integers:
        """Return the part of them in a range."""
        return replace(self, first=max(self.first, first), last=min(self.last, last))

    def among(self, numbers: Iterable[int]) -> Integers:
        """Return the part of them that is listed."""
        kept = frozenset(number for number in numbers if number in self)
        first, last = (min(kept), max(kept)) if kept else (INT64_MAX, INT64_MIN)
        return Integers(max(self.first, first), min(self.last, last), kept)


@dataclass(frozen=True, slots=True)
class Conditions:
    """
    Conditions of a record.

    Attributes:
        offsets, timestamps, partitions: accepted numbers; timestamps in ms.
        topics, keys: accepted values, None for any; a null key is None.
    """

    offsets: Integers = Integers()
    timestamps: Integers = Integers()
    partitions: Integers = Integers()
    topics: frozenset[str] | None = None
    keys: frozenset[bytes | None] | None = None

    def matches_partition(self, topic: str, partition: int) -> bool:
        """Return whether a record of a partition may match."""
        return partition in self.partitions and (self.topics is None or topic in self.topics)

    def row_filter(self) -> RowFilter:
        """Return the filter of offset, timestamp and key of each record."""
        times = self.timestamps
        return RowFilter(
            timestamps=None if times.is_all else (times.first, times.last),
            listed_timestamps=times.listed,
            keys=self.keys,
            offsets=self.offsets.listed,
        )


ANYTHING: Final = Conditions()


def conditions_of(filters: Iterable[Filter]) -> Conditions:
    """
    Return the conditions of filters.

    Args:
        filters: (column, operator, value): `offset`, `timestamp` and `partition` with ==, <, <=, >,
            >= and in; `key` and `topic` with == and in. A timestamp is an int of ms or an aware
            datetime; a key is bytes, or None for null.

    Raises:
        ValueError: a column or an operator that filters do not have, or a value out of range.
        TypeError: a value of another type.
    """
    found = ANYTHING
    for column, operator, value in filters:
        narrow = _NARROWED.get(column)
        if narrow is None:
            names = ", ".join(_NARROWED)
            raise ValueError(f"column of a filter must be one of {names}, got {column!r}")
        found = narrow(found, operator, value)
    return found


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"value of a filter must be an int, got {value!r}")
    number: int = value.__index__()
    if not INT64_MIN < number < INT64_MAX:
        raise ValueError(f"value of a filter must fit 64 bits, got {number}")
    return number


def _narrowed(integers: Integers, operator: str, value: Any, column: str) -> Integers:
    if operator == "in":
        return integers.among([_integer(each) for each in value])
    number = _integer(value)
    match operator:
        case "==":
            return integers.between(number, number)
        case "<":
            return integers.between(last=number - 1)
        case "<=":
            return integers.between(last=number)
        case ">":
            return integers.between(first=number + 1)
        case ">=":
            return integers.between(first=number)
        case _:
            raise ValueError(
                f"operator on {column} must be one of ==, <, <=, >, >= and in, got {operator!r}"
            )


def _by_offset(found: Conditions, operator: str, value: Any) -> Conditions:
    return replace(found, offsets=_narrowed(found.offsets, operator, value, "offset"))


def _by_partition(found: Conditions, operator: str, value: Any) -> Conditions:
    return replace(found, partitions=_narrowed(found.partitions, operator, value, "partition"))


def _by_timestamp(found: Conditions, operator: str, value: Any) -> Conditions:
    times = found.timestamps
    if operator == "in":
        whole = [_milliseconds(each) for each in value]
        return replace(found, timestamps=times.among([ms for ms, rest in whole if not rest]))
    # No record is between two milliseconds.
    ms, rest = _milliseconds(value)
    if rest and operator == "==":
        return replace(found, timestamps=times.among(()))
    if rest and operator in ("<", ">="):
        ms += 1
    return replace(found, timestamps=_narrowed(times, operator, ms, "timestamp"))


def _milliseconds(value: Any) -> tuple[int, int]:
    """Return whole milliseconds since the epoch, and the remaining microseconds."""
    if not isinstance(value, datetime):
        return _integer(value), 0
    if value.tzinfo is None:
        raise ValueError(f"time must have a time zone, got {value!r}")
    return divmod((value - _EPOCH) // _MICROSECOND, 1000)


def _by_key(found: Conditions, operator: str, value: Any) -> Conditions:
    keys = frozenset(_key(each) for each in _listed(operator, value, "key"))
    return replace(found, keys=keys if found.keys is None else found.keys & keys)


def _key(value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"a key must be bytes or None, got {value!r}")
    return bytes(value)


def _by_topic(found: Conditions, operator: str, value: Any) -> Conditions:
    topics: frozenset[str] = frozenset(_listed(operator, value, "topic"))
    for topic in topics:
        if not isinstance(topic, str):
            raise TypeError(f"a topic must be a str, got {topic!r}")
    return replace(found, topics=topics if found.topics is None else found.topics & topics)


def _listed(operator: str, value: Any, column: str) -> list[Any]:
    if operator == "==":
        return [value]
    if operator == "in":
        if isinstance(value, (str, bytes)):
            raise TypeError(
                f"the operand of `in` must be several values of {column}, got {value!r}"
            )
        return list(value)
    raise ValueError(f"operator on {column} must be == or in, got {operator!r}")


_NARROWED: Final[dict[str, Callable[[Conditions, str, Any], Conditions]]] = {
    "offset": _by_offset,
    "timestamp": _by_timestamp,
    "key": _by_key,
    "topic": _by_topic,
    "partition": _by_partition,
}
