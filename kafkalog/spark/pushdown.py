"""Pushdown of a query's filters into the reading.

Filters on topic, partition, offset and key are applied completely, and not returned to Spark. A
filter on times leaves out segments, batches and records where that is cheap, and is returned: the
log counts in milliseconds, and a record without a time appears as one before 1970, which no filter
of the engine finds. Everything else is returned.

Thread-safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import FilterSet

__all__ = ["push_filters"]

Term = tuple[str, str, Any]

_COMPARED: Final[dict[type[Filter], str]] = {
    EqualTo: "==",
    EqualNullSafe: "==",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
_INT64_MAX: Final = 2**63 - 2
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Columns that are never null, in any mode; times are null in rows of damage.
_NEVER_NULL: Final = ("topic", "partition", "offset")
_NULL_IN_DAMAGE: Final = ("timestamp", "timestampType")


def push_filters(filters: Sequence[Filter], options: ReadOptions) -> tuple[FilterSet, list[Filter]]:
    """Return the filters that are applied here, and those that Spark has to apply."""
    terms: list[Term] = []
    times: list[Term] = []
    rest: list[Filter] = []
    for each in filters:
        if _is_always_true(each, options):
            continue
        term = _term_of(each, options)
        if term is None:
            rest.append(each)
        elif term[0] == "timestamp":
            times.append(term)
            rest.append(each)
        else:
            terms.append(term)
    if any(_matches_every_time(term) for term in times):
        terms += times
    if any(name == "key" and value is not None for name, _, value in terms):
        # Spark adds it to every comparison, which leaves out null by itself.
        rest = [each for each in rest if not _is_key_not_null(each)]
    return FilterSet.of(terms), rest


def _is_key_not_null(each: Filter) -> bool:
    return isinstance(each, IsNotNull) and each.attribute == ("key",)


def _is_always_true(each: Filter, options: ReadOptions) -> bool:
    if not isinstance(each, IsNotNull) or options.view != "records":
        return False
    never: tuple[str, ...] = _NEVER_NULL
    if options.mode != "PERMISSIVE":
        never += _NULL_IN_DAMAGE
    return each.attribute in [(name,) for name in never]


def _term_of(each: Filter, options: ReadOptions) -> Term | None:
    """Return the engine's term for a filter, None if the engine has none."""
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    name = attribute[0] if len(attribute) == 1 else ""
    is_fit = _FIT.get(name)
    if is_fit is None or (options.view != "records" and name not in ("topic", "partition")):
        return None
    if name == "key" and _tests_null(each):
        return "key", "==", None
    value = getattr(each, "value", None)
    if isinstance(each, In):
        values = [cell for cell in _cells(value) if cell is not None]
        return (name, "in", values) if all(map(is_fit, values)) else None
    if name == "topic" and isinstance(each, StringStartsWith):
        return name, "startswith", value
    operator = _COMPARED.get(type(each))
    if operator is None or not is_fit(value) or (name in ("topic", "key") and operator != "=="):
        return None
    return name, operator, value


def _tests_null(each: Filter) -> bool:
    return isinstance(each, IsNull) or (isinstance(each, EqualNullSafe) and each.value is None)


def _cells(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _INT64_MAX


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


_FIT: Final[dict[str, Callable[[Any], bool]]] = {
    "topic": lambda value: isinstance(value, str),
    "partition": _is_number,
    "offset": _is_number,
    "timestamp": _is_time,
    "key": lambda value: isinstance(value, (bytes, bytearray)),
}


def _matches_every_time(term: Term) -> bool:
    """Return True if a filter of times matches records without a time."""
    _, operator, value = term
    if operator == "in":
        return all(each >= _EPOCH for each in value)
    return operator in ("==", ">", ">=") and value >= _EPOCH
