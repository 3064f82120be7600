"""Text format of Prometheus, version 0.0.4, without its library.

Thread-safety: no state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kafkalog.manager.metrics.snapshot import HistogramValue, MetricFamily
from kafkalog.metrics.source import MetricsSource, label_text

__all__ = ["prometheus_text"]


def prometheus_text(manager: MetricsSource, *, partitions: bool = True, groups: bool = True) -> str:
    """
    Return the metrics of a manager in the text format of Prometheus.

    Its content type is `text/plain; version=0.0.4; charset=utf-8`.

    Args:
        manager: the manager.
        partitions, groups: as for `LogManager.metrics`.

    Raises:
        LogClosedError: the manager is closed.
    """
    lines: list[str] = []
    for family in manager.metrics(partitions=partitions, groups=groups):
        lines += _lines(family)
    return "\n".join(lines) + "\n"


def _lines(family: MetricFamily) -> Iterator[str]:
    definition = family.definition
    yield f"# HELP {family.name} {_escaped_help(definition.help)}"
    yield f"# TYPE {family.name} {definition.kind}"
    for sample in family.samples:
        if not isinstance(sample.value, HistogramValue):
            labels = _labels(definition.labels, sample.labels)
            yield f"{family.name}{labels} {_number(sample.value)}"
            continue
        for bound, count in sample.value.buckets:
            labels = _labels((*definition.labels, "le"), (*sample.labels, _number(bound)))
            yield f"{family.name}_bucket{labels} {count}"
        labels = _labels(definition.labels, sample.labels)
        yield f"{family.name}_sum{labels} {_number(sample.value.sum)}"
        yield f"{family.name}_count{labels} {sample.value.count}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = zip(names, values, strict=True)
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs) + "}"


def _escaped(text: str) -> str:
    return label_text(text).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    # All digits of a count: offsets have more than six.
    return repr(value)
