"""Observable instruments of an OpenTelemetry meter for the metrics of a manager.

OpenTelemetry has no observable histogram. A histogram becomes three counters, as in the text format
of Prometheus: `..._bucket` with the label `le`, `..._count` and `..._sum`.

All instruments of one collection read one snapshot: it is taken when an instrument is read that has
read the present one already.

Thread-safety: the callbacks from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import LogClosedError
from kafkalog.manager.metrics.definitions import DEFINITIONS
from kafkalog.manager.metrics.snapshot import HistogramValue, MetricFamily, MetricsSnapshot
from kafkalog.metrics.source import MetricsSource, label_text

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

__all__ = ["opentelemetry"]

# Age from which a snapshot is not used for another instrument.
_OLD_SECONDS: Final = 10.0
_UNITS: Final = {"seconds": "s", "bytes": "By"}

_Pair = tuple[float, dict[str, str]]


def opentelemetry(
    manager: MetricsSource, meter: Meter, *, partitions: bool = True, groups: bool = True
) -> None:
    """
    Register the metrics of a manager as observable instruments of a meter.

    The instruments have the names of Prometheus, without `_total`. They report nothing once the
    manager is closed.

    Args:
        manager: the manager.
        meter: a meter of the OpenTelemetry API.
        partitions, groups: as for `LogManager.metrics`.

    Raises:
        ImportError: `opentelemetry-api` is not installed (`kafkalog[metrics]`).
    """
    try:
        from opentelemetry.metrics import Observation
    except ImportError as error:
        raise ImportError(
            "opentelemetry-api is not installed: pip install 'kafkalog[metrics]'"
        ) from error
    snapshots = _Snapshots(manager, partitions=partitions, groups=groups)
    for definition in DEFINITIONS.values():
        name, unit = definition.name, _unit(definition.name)
        if definition.kind == "histogram":
            for suffix, kind, pairs in (
                ("_bucket", "1", _buckets),
                ("_count", "1", _counts),
                ("_sum", unit, _sums),
            ):
                callback = _callback(Observation, snapshots, name, suffix, pairs)
                meter.create_observable_counter(
                    name + suffix, callbacks=[callback], unit=kind, description=definition.help
                )
            continue
        create = (
            meter.create_observable_counter
            if definition.kind == "counter"
            else meter.create_observable_gauge
        )
        callback = _callback(Observation, snapshots, name, "", _values)
        create(
            name.removesuffix("_total"),
            callbacks=[callback],
            unit=unit,
            description=definition.help,
        )


class _Snapshots:
    """The snapshot that instruments read, each once."""

    def __init__(self, manager: MetricsSource, *, partitions: bool, groups: bool) -> None:
        self._manager = manager
        self._partitions = partitions
        self._groups = groups
        self._lock = threading.Lock()
        self._snapshot: MetricsSnapshot | None = None
        self._taken = 0.0
        self._readers: set[str] = set()

    def family(self, name: str, reader: str) -> MetricFamily | None:
        """Return a metric for an instrument, None if the manager is closed."""
        with self._lock:
            snapshot = self._snapshot
            is_old = monotonic() - self._taken > _OLD_SECONDS
            if snapshot is None or is_old or reader in self._readers:
                snapshot = self._take()
            if snapshot is None:
                return None
            self._readers.add(reader)
            return snapshot.family(name)

    def _take(self) -> MetricsSnapshot | None:
        self._readers.clear()
        self._snapshot = None
        if self._manager.is_closed:
            return None
        try:
            self._snapshot = self._manager.metrics(partitions=self._partitions, groups=self._groups)
        except LogClosedError:
            # Closed since the check.
            return None
        self._taken = monotonic()
        return self._snapshot


def _callback(
    observation: Any,
    snapshots: _Snapshots,
    name: str,
    suffix: str,
    pairs: Callable[[MetricFamily], Iterator[_Pair]],
) -> Callable[[CallbackOptions], Sequence[Observation]]:
    def observe(_options: CallbackOptions) -> Sequence[Observation]:
        family = snapshots.family(name, name + suffix)
        if family is None:
            return []
        return [observation(value, labels) for value, labels in pairs(family)]

    return observe


def _unit(name: str) -> str:
    for word, unit in _UNITS.items():
        if name.removesuffix("_total").endswith(f"_{word}"):
            return unit
    return "1"


def _values(family: MetricFamily) -> Iterator[_Pair]:
    for sample in family.samples:
        if not isinstance(sample.value, HistogramValue):
            yield sample.value, _labels(family, sample.labels)


def _buckets(family: MetricFamily) -> Iterator[_Pair]:
    for sample in family.samples:
        if isinstance(sample.value, HistogramValue):
            labels = _labels(family, sample.labels)
            for bound, count in sample.value.buckets:
                yield count, labels | {"le": "+Inf" if bound == float("inf") else repr(bound)}


def _counts(family: MetricFamily) -> Iterator[_Pair]:
    for sample in family.samples:
        if isinstance(sample.value, HistogramValue):
            yield sample.value.count, _labels(family, sample.labels)


def _sums(family: MetricFamily) -> Iterator[_Pair]:
    for sample in family.samples:
        if isinstance(sample.value, HistogramValue):
            yield sample.value.sum, _labels(family, sample.labels)


def _labels(family: MetricFamily, values: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(family.definition.labels, map(label_text, values), strict=True))
