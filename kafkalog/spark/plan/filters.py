"""Filters that came down from a query, and what they leave of topics, partitions and segments.

What a filter says of topics, partitions and offsets is heeded while planning, by partitions and
ranges that are never read; of times, by segments that are not; the rest is for the scan.

Thread-safety: immutable plain data; it pickles.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kafkalog.log.scan.conditions import ANYTHING, Conditions, Filter, Integers, conditions_of

__all__ = ["EVERYTHING", "FilterSet"]

_STARTS_WITH: Final = "startswith"
# A task reads ranges of single partitions, so these two have been heeded before it starts.
_OF_PARTITIONS: Final = ("topic", "partition")


@dataclass(frozen=True, slots=True)
class FilterSet:
    """
    Filters that all have to hold.

    Attributes:
        terms: (column, operator, value) as `Log.scan` takes them.
        topic_prefixes: each has to begin the name of the topic.
        conditions: what the terms come to.
    """

    terms: tuple[Filter, ...] = ()
    topic_prefixes: tuple[str, ...] = ()
    conditions: Conditions = ANYTHING

    @classmethod
    def of(cls, terms: Iterable[tuple[str, str, Any]]) -> FilterSet:
        """
        Return the filters that terms stand for.

        Args:
            terms: as `Log.scan` takes filters, and ("topic", "startswith", text).

        Raises:
            ValueError, TypeError: a term says what there is not.
        """
        listed = list(terms)
        prefixes = [value for column, operator, value in listed if _is_prefix(column, operator)]
        rest = [term for term in listed if not _is_prefix(term[0], term[1])]
        return cls(tuple(rest), tuple(prefixes), conditions_of(rest))

    def intersect(self, other: FilterSet) -> FilterSet:
        """Return what holds where both hold."""
        terms = self.terms + other.terms
        prefixes = self.topic_prefixes + other.topic_prefixes
        return FilterSet(terms, prefixes, conditions_of(terms))

    @property
    def offsets(self) -> Integers:
        """The offsets that are wanted."""
        return self.conditions.offsets

    @property
    def timestamps(self) -> Integers:
        """The times that are wanted, in ms."""
        return self.conditions.timestamps

    def matches_partition(self, topic: str, partition: int) -> bool:
        """Return whether any record of a partition may be wanted."""
        begins = all(topic.startswith(prefix) for prefix in self.topic_prefixes)
        return begins and self.conditions.matches_partition(topic, partition)

    def scan_filters(self) -> list[Filter]:
        """Return what `Log.scan` still has to ask of the records of a partition."""
        return [term for term in self.terms if term[0] not in _OF_PARTITIONS]


def _is_prefix(column: str, operator: str) -> bool:
    return column == "topic" and operator == _STARTS_WITH


EVERYTHING: Final = FilterSet()
