"""Collector for `prometheus_client`: each scrape takes one snapshot of a manager.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kafkalog.errors import LogClosedError
from kafkalog.manager.metrics.definitions import DEFINITIONS
from kafkalog.manager.metrics.snapshot import HistogramValue, MetricDefinition, MetricFamily
from kafkalog.metrics.source import MetricsSource, label_text

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["PrometheusCollector", "prometheus"]


def prometheus(
    manager: MetricsSource, *, partitions: bool = True, groups: bool = True
) -> PrometheusCollector:
    """
    Return a collector of the metrics of a manager, for a registry of `prometheus_client`.

    >>> prometheus_client.REGISTRY.register(kafkalog.metrics.prometheus(manager))

    A closed manager has no metrics; unregister the collector when it is closed.

    Args:
        manager: the manager.
        partitions, groups: as for `LogManager.metrics`.

    Raises:
        ImportError: `prometheus_client` is not installed (`kafkalog[metrics]`).
    """
    try:
        from prometheus_client import core
    except ImportError as error:
        raise ImportError(
            "prometheus_client is not installed: pip install 'kafkalog[metrics]'"
        ) from error
    return PrometheusCollector(manager, core, partitions=partitions, groups=groups)


class PrometheusCollector:
    """
    Collector of one manager; made by `prometheus`.

    Args:
        manager: the manager.
        core: the module `prometheus_client.core`.
        partitions, groups: as for `LogManager.metrics`.
    """

    def __init__(
        self, manager: MetricsSource, core: Any, *, partitions: bool, groups: bool
    ) -> None:
        self._manager = manager
        self._core = core
        self._partitions = partitions
        self._groups = groups

    def describe(self) -> Iterator[Metric]:
        """Yield all metrics without samples, so that a registration takes no snapshot."""
        for definition in DEFINITIONS.values():
            yield self._new(definition)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; none if the manager is closed."""
        if self._manager.is_closed:
            return
        try:
            snapshot = self._manager.metrics(partitions=self._partitions, groups=self._groups)
        except LogClosedError:
            # Closed since the check.
            return
        for family in snapshot:
            yield self._metric(family)

    def _metric(self, family: MetricFamily) -> Any:
        made: Any = self._new(family.definition)
        for sample in family.samples:
            value = sample.value
            labels = [label_text(each) for each in sample.labels]
            if isinstance(value, HistogramValue):
                buckets = [(self._bound(bound), count) for bound, count in value.buckets]
                made.add_metric(labels, buckets=buckets, sum_value=value.sum)
            else:
                made.add_metric(labels, value)
        return made

    def _new(self, definition: MetricDefinition) -> Any:
        kinds = {
            "counter": self._core.CounterMetricFamily,
            "gauge": self._core.GaugeMetricFamily,
            "histogram": self._core.HistogramMetricFamily,
        }
        return kinds[definition.kind](definition.name, definition.help, labels=definition.labels)

    def _bound(self, bound: float) -> str:
        return "+Inf" if bound == float("inf") else repr(bound)
