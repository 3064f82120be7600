"""Text format and collector of Prometheus, read back by its own parser."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kafkalog.metrics
from kafkalog import HistogramValue, LogManager, MetricsSnapshot
from tests.support.metrics import RecordingManager

prometheus_client = pytest.importorskip(
    "prometheus_client",
    reason="prometheus_client is missing: pip install kafkalog[metrics]",
)

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> tuple[dict[str, tuple[str, str]], Samples]:
    """Return kind and help of each metric, and all samples, of a text that Prometheus reads."""
    from prometheus_client.parser import text_string_to_metric_families

    kinds: dict[str, tuple[str, str]] = {}
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        kinds[family.name] = family.type, family.documentation
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in samples
            samples[key] = sample.value
    return kinds, samples


def expected_of(snapshot: MetricsSnapshot) -> Samples:
    """Return the samples that Prometheus should read."""
    found: Samples = {}
    for family in snapshot:
        for sample in family.samples:
            labels = dict(zip(family.definition.labels, sample.labels, strict=True))
            if not isinstance(sample.value, HistogramValue):
                found[family.name, frozenset(labels.items())] = sample.value
                continue
            for bound, count in sample.value.buckets:
                le = "+Inf" if math.isinf(bound) else repr(bound)
                key = f"{family.name}_bucket", frozenset({**labels, "le": le}.items())
                found[key] = count
            found[f"{family.name}_sum", frozenset(labels.items())] = sample.value.sum
            found[f"{family.name}_count", frozenset(labels.items())] = sample.value.count
    return found


@pytest.mark.parametrize("partitions", [True, False])
def test_prometheus_text_has_all_samples(manager: LogManager, partitions: bool) -> None:
    """Labels with quotes and backslashes are escaped."""
    recording = RecordingManager(manager)
    text = kafkalog.metrics.prometheus_text(recording, partitions=partitions)
    (snapshot,) = recording.snapshots
    kinds, samples = parsed(text)
    assert expected_of(snapshot) == samples
    assert {
        each.name.removesuffix("_total"): (each.definition.kind, each.definition.help)
        for each in snapshot
    } == kinds
    lag = [key for key in samples if key[0] == "kafkalog_group_lag_records"]
    assert lag
    assert ("group", 'a "group"\\') in lag[0][1]


def test_prometheus_collector_equals_the_text(manager: LogManager) -> None:
    """A registration takes no snapshot; a scrape has its samples, as the text has them."""
    recording = RecordingManager(manager)
    registry = prometheus_client.CollectorRegistry()
    registry.register(kafkalog.metrics.prometheus(recording))
    assert [] == recording.snapshots
    kinds, samples = parsed(prometheus_client.generate_latest(registry).decode())
    (snapshot,) = recording.snapshots
    assert expected_of(snapshot) == samples
    assert parsed(kafkalog.metrics.prometheus_text(manager))[0] == kinds


def test_prometheus_collector_can_leave_partitions_and_groups_out(manager: LogManager) -> None:
    """A registry has the merged samples then."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(kafkalog.metrics.prometheus(manager, partitions=False, groups=False))
    value = registry.get_sample_value("kafkalog_log_appended_records_total", {"topic": "orders"})
    assert 3 == value
    assert "kafkalog_group_lag_records{" not in prometheus_client.generate_latest(registry).decode()


def test_prometheus_collector_of_closed_manager_is_empty(manager: LogManager) -> None:
    """A scrape does not fail at the end of a program."""
    collector = kafkalog.metrics.prometheus(manager)
    manager.close()
    assert [] == list(collector.collect())


def test_prometheus_is_imported_by_its_adapter_only() -> None:
    """A program without the extra can import the package, and use the text."""
    program = (
        "import sys; import kafkalog.metrics; "
        "assert not {'prometheus_client', 'opentelemetry'} & set(sys.modules); "
        "sys.modules['prometheus_client'] = None; sys.modules['opentelemetry.metrics'] = None\n"
        "for make in (kafkalog.metrics.prometheus, "
        "lambda manager: kafkalog.metrics.opentelemetry(manager, None)):\n"
        "    try: make(None)\n"
        "    except ImportError as error: assert 'kafkalog[metrics]' in str(error)\n"
        "    else: raise SystemExit('no error')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_prometheus_of_a_path_that_is_not_utf8_is_valid(tmp_path: Path) -> None:
    """Its odd bytes are escaped, in the text and in the registry."""
    directory = tmp_path / os.fsdecode(b"data-\xff")
    with LogManager([directory]) as manager:
        registry = prometheus_client.CollectorRegistry()
        registry.register(kafkalog.metrics.prometheus(manager))
        texts = [
            kafkalog.metrics.prometheus_text(manager).encode(),
            prometheus_client.generate_latest(registry),
        ]
    for text in texts:
        _kinds, samples = parsed(text.decode())
        (key,) = [key for key in samples if key[0] == "kafkalog_directory_online"]
        assert dict(key[1])["directory"].endswith("data-\\udcff")
