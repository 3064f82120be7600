"""Instruments of OpenTelemetry, read by a reader in memory."""

from __future__ import annotations

from typing import Any

import pytest

import kafkalog.metrics
from kafkalog import HistogramValue, LogManager, MetricsSnapshot
from tests.support.managers import append_texts
from tests.support.metrics import RecordingManager

sdk = pytest.importorskip(
    "opentelemetry.sdk.metrics", reason="opentelemetry-sdk is not installed: pip install it"
)

Points = dict[tuple[str, frozenset[tuple[str, str]]], float]


def collected(reader: Any) -> tuple[dict[str, str], Points]:
    """Return the unit of each instrument, and all points."""
    data = reader.get_metrics_data()
    units: dict[str, str] = {}
    points: Points = {}
    for resource in () if data is None else data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                units[metric.name] = metric.unit
                for point in metric.data.data_points:
                    points[metric.name, frozenset(point.attributes.items())] = point.value
    return units, points


def expected_of(snapshot: MetricsSnapshot) -> Points:
    """Return the points that a reader should get, without buckets."""
    found: Points = {}
    for family in snapshot:
        name = family.name.removesuffix("_total")
        for sample in family.samples:
            key = frozenset(zip(family.definition.labels, sample.labels, strict=True))
            if isinstance(sample.value, HistogramValue):
                found[f"{name}_sum", key] = sample.value.sum
                found[f"{name}_count", key] = sample.value.count
            else:
                found[name, key] = sample.value
    return found


def test_opentelemetry_reports_each_metric_of_one_snapshot(manager: LogManager) -> None:
    """Each collection takes one snapshot, and sees the records of that moment."""
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = sdk.MeterProvider(metric_readers=[reader])
    recording = RecordingManager(manager)
    kafkalog.metrics.opentelemetry(recording, provider.get_meter("test"))
    units, points = collected(reader)
    (snapshot,) = recording.snapshots
    expected = expected_of(snapshot)
    assert expected == {key: value for key, value in points.items() if "_bucket" not in key[0]}
    assert ("By", "s", "1") == (
        units["kafkalog_log_appended_bytes"],
        units["kafkalog_sync_seconds_sum"],
        units["kafkalog_log_appended_records"],
    )
    bound = ("le", "+Inf")
    assert 1 == sum(
        value for key, value in points.items()
        if key[0] == "kafkalog_sync_seconds_bucket" and bound in key[1]
    )  # fmt: skip
    append_texts(manager, "orders", 1, "four")
    name = "kafkalog_log_appended_records"
    key = name, frozenset({("topic", "orders"), ("partition", "1")})
    assert points[key] + 1 == collected(reader)[1][key]
    assert 2 == len(recording.snapshots)
    provider.shutdown()


def test_opentelemetry_of_closed_manager_reports_nothing(manager: LogManager) -> None:
    """The instruments outlive the manager."""
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = sdk.MeterProvider(metric_readers=[reader])
    kafkalog.metrics.opentelemetry(manager, provider.get_meter("test"), partitions=False)
    assert collected(reader)[1]
    manager.close()
    assert {} == collected(reader)[1]
    provider.shutdown()
