"""Adapters of `LogManager.metrics` for monitoring systems.

    prometheus(manager)              collector for a registry of prometheus_client
    prometheus_text(manager)         the text format of Prometheus; needs no library
    opentelemetry(manager, meter)    observable instruments of an OpenTelemetry meter

The libraries are extras (`kafkalog[metrics]`), imported when an adapter is made.

>>> print(kafkalog.metrics.prometheus_text(manager).splitlines()[0])
# HELP kafkalog_append_seconds Time of one append of 16, with the wait for the log's lock, ...

Thread-safety: every function and adapter from any thread.
"""

from __future__ import annotations

from kafkalog.metrics.opentelemetry import opentelemetry
from kafkalog.metrics.prometheus import PrometheusCollector, prometheus
from kafkalog.metrics.source import MetricsSource
from kafkalog.metrics.text import prometheus_text

__all__ = [
    "MetricsSource",
    "PrometheusCollector",
    "opentelemetry",
    "prometheus",
    "prometheus_text",
]
