"""Pushed-down filters of a query, and their effect on topics, partitions and segments.

Filters on topics, partitions and offsets are applied while planning, by partitions and ranges that
are never read; filters on times by segments that are not read; the rest is for the scan.

Thread-safety: immutable plain data; it pickles.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kafkalog.log.scan.conditions import ANYTHING, Conditions, Filter, Integers, conditions_of

__all__ = ["EVERYTHING", "FilterSet"]

_STARTS_WITH: Final = "startswith"
# A task reads ranges of single partitions, so the plan has applied these two filters.
_OF_PARTITIONS: Final = ("topic", "partition")


@dataclass(frozen=True, slots=True)
class FilterSet:
    """
    Filters, all of which have to hold.

    Attributes:
        terms: (column, operator, value) as `Log.scan` accepts them.
        topic_prefixes: each has to begin the name of the topic.
        conditions: the conditions of the terms.
    """

    terms: tuple[Filter, ...] = ()
    topic_prefixes: tuple[str, ...] = ()
    conditions: Conditions = ANYTHING

    @classmethod
    def of(cls, terms: Iterable[tuple[str, str, Any]]) -> FilterSet:
        """
        Return the filters of terms.

        Args:
            terms: filters of `Log.scan`, and ("topic", "startswith", text).

        Raises:
            ValueError, TypeError: a term names an unknown column, operator or type.
        """
        listed = list(terms)
        prefixes = [value for column, operator, value in listed if _is_prefix(column, operator)]
        rest = [term for term in listed if not _is_prefix(term[0], term[1])]
        return cls(tuple(rest), tuple(prefixes), conditions_of(rest))

    def intersect(self, other: FilterSet) -> FilterSet:
        """Return the conjunction of both."""
        terms = self.terms + other.terms
        prefixes = self.topic_prefixes + other.topic_prefixes
        return FilterSet(terms, prefixes, conditions_of(terms))

    @property
    def offsets(self) -> Integers:
        """The offsets that match."""
        return self.conditions.offsets

    @property
    def timestamps(self) -> Integers:
        """The times that match, in ms."""
        return self.conditions.timestamps

    def matches_partition(self, topic: str, partition: int) -> bool:
        """Return True if a record of a partition may match."""
        begins = all(topic.startswith(prefix) for prefix in self.topic_prefixes)
        return begins and self.conditions.matches_partition(topic, partition)

    def scan_filters(self) -> list[Filter]:
        """Return the filters that `Log.scan` still has to apply to the records of a partition."""
        return [term for term in self.terms if term[0] not in _OF_PARTITIONS]


def _is_prefix(column: str, operator: str) -> bool:
    return column == "topic" and operator == _STARTS_WITH


EVERYTHING: Final = FilterSet()
