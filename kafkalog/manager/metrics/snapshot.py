"""Snapshot of the metrics of a manager: families of samples, as monitoring systems have them.

Thread-safety: immutable values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "HistogramValue",
    "MetricDefinition",
    "MetricFamily",
    "MetricSample",
    "MetricsSnapshot",
]

Kind = Literal["counter", "gauge", "histogram"]
Merge = Literal["sum", "max", "drop"]


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """
    Definition of a metric; the names are those of Prometheus.

    Attributes:
        name: its name, with the unit; a counter's ends in `_total`.
        kind: "counter" never decreases while the manager is open; "gauge" is the present value;
            "histogram" counts values by bucket.
        labels: names of its labels.
        help: its meaning, one sentence.
        merge: value of several partitions together, where partitions have no labels: the "sum",
            the "max", or "drop" for none.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    merge: Merge = "sum"


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """
    Value of a histogram.

    Attributes:
        buckets: upper bound of each bucket, and the number of values up to it; the last bound is
            infinity.
        sum: sum of all values.
    """

    buckets: tuple[tuple[float, int], ...]
    sum: float

    @property
    def count(self) -> int:
        """Number of all values."""
        return self.buckets[-1][1]

    def quantile(self, share: float) -> float:
        """
        Return the bound of the bucket that has the value above a share of all values.

        Args:
            share: between 0 and 1, as 0.99.

        Returns:
            An upper bound of that value; 0 without values.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share must be between 0 and 1, got {share}")
        if not self.count:
            return 0.0
        rank = share * self.count
        return next(bound for bound, count in self.buckets if count >= rank and count)


@dataclass(frozen=True, slots=True)
class MetricSample:
    """
    Value of a metric for one set of labels.

    Attributes:
        labels: values of the labels, in the order of the definition.
        value: a number, or the histogram.
    """

    labels: tuple[str, ...]
    value: float | HistogramValue


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """
    A metric with all of its samples.

    Attributes:
        definition: name, kind, labels and meaning.
        samples: by labels.
    """

    definition: MetricDefinition
    samples: tuple[MetricSample, ...]

    @property
    def name(self) -> str:
        """Name of the metric."""
        return self.definition.name

    def matching(self, labels: Mapping[str, str]) -> Iterator[MetricSample]:
        """Yield the samples with these labels, among others."""
        names = self.definition.labels
        for label in labels:
            if label not in names:
                raise ValueError(f"label of {self.name} must be one of {names}, got {label!r}")
        for sample in self.samples:
            found = dict(zip(names, sample.labels, strict=True))
            if all(found[label] == value for label, value in labels.items()):
                yield sample


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """
    Result of `LogManager.metrics`.

    Attributes:
        at_ms: its time, by the clock of the manager.
        families: all metrics, by name.
    """

    at_ms: int
    families: tuple[MetricFamily, ...]
    _by_name: dict[str, MetricFamily] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {each.name: each for each in self.families})

    def __iter__(self) -> Iterator[MetricFamily]:
        return iter(self.families)

    def family(self, name: str) -> MetricFamily:
        """Return a metric; KeyError for an unknown name."""
        return self._by_name[name]

    def value(self, name: str, **labels: str) -> float:
        """
        Return the sum of the samples with these labels, among others; 0 without samples.

        Raises:
            KeyError: the metric does not exist.
            ValueError: it has no such label, or is a histogram.
        """
        if self.family(name).definition.kind == "histogram":
            raise ValueError(f"{name} is a histogram: use histogram()")
        total = 0.0
        for sample in self.family(name).matching(labels):
            if not isinstance(sample.value, HistogramValue):
                total += sample.value
        return total

    def has(self, name: str, **labels: str) -> bool:
        """Return whether a metric has a sample with these labels; KeyError, ValueError as above."""
        return next(self.family(name).matching(labels), None) is not None

    def histogram(self, name: str, **labels: str) -> HistogramValue:
        """
        Return a histogram: the sum of the samples with these labels.

        Raises:
            KeyError, ValueError: as for `value`, and for a metric that is no histogram.
        """
        family = self.family(name)
        found = [each.value for each in family.matching(labels)]
        histograms = [each for each in found if isinstance(each, HistogramValue)]
        if family.definition.kind != "histogram":
            raise ValueError(f"{name} is a {family.definition.kind}: use value()")
        if not histograms:
            return HistogramValue(((float("inf"), 0),), 0.0)
        buckets = tuple(
            (bound, sum(each.buckets[row][1] for each in histograms))
            for row, (bound, _count) in enumerate(histograms[0].buckets)
        )
        return HistogramValue(buckets, sum(each.sum for each in histograms))
