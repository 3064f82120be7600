"""Rules of names, as Prometheus' own lint has them, and the docs with all metrics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkalog import LogManager, MetricDefinition
from kafkalog.manager.metrics.definitions import DEFINITIONS

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
# Base units; others, as milliseconds, are refused.
UNITS = {"seconds", "bytes", "ratio"}
OTHER_UNITS = re.compile(
    r"_(ms|milliseconds|microseconds|nanoseconds|minutes|hours|kb|kib|mb|kilobytes|percent)(_|$)"
)
RESERVED_ENDS = ("_bucket", "_sum", "_count", "_info", "_created")
ROW = re.compile(r"^\| `(kafkalog_\w+)` \| (\w+) \| ([^|]*) \| (.*) \|$", re.MULTILINE)
ALL = list(DEFINITIONS.values())


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_metric_follows_the_conventions_of_prometheus(metric: MetricDefinition) -> None:
    """Names, units, `_total` of counters and of nothing else, help."""
    assert re.fullmatch(r"kafkalog_[a-z][a-z0-9_]*[a-z0-9]", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not metric.name.endswith(RESERVED_ENDS)
    assert not OTHER_UNITS.search(metric.name)
    assert metric.kind not in metric.name.split("_")
    bare = metric.name.removesuffix("_total")
    for unit in UNITS:
        if unit in bare.split("_"):
            assert bare.endswith(f"_{unit}")
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in metric.labels)
    assert not {"le", "quantile", "job", "instance"} & set(metric.labels)
    assert metric.help.endswith(".")
    assert metric.help[0].isupper() or metric.help.startswith(("1 if", "buffer.memory"))


def test_metrics_are_all_in_the_docs_with_their_meaning() -> None:
    """The tables of the page are those of the code."""
    rows = ROW.findall(PAGE.read_text())
    expected = [
        (
            each.name,
            each.kind,
            ", ".join(f"`{label}`" for label in each.labels) or "none",
            each.help,
        )
        for each in ALL
    ]
    assert sorted(expected) == sorted(rows)


def test_snapshot_has_each_metric_once_and_in_order(manager: LogManager) -> None:
    """Metrics without samples, too; samples have the labels of their definition."""
    for partitions in (True, False):
        snapshot = manager.metrics(partitions=partitions)
        assert list(DEFINITIONS) == [each.name for each in snapshot]
        for family in snapshot:
            labels = [each.labels for each in family.samples]
            assert len(set(labels)) == len(labels)
            assert {len(family.definition.labels)} >= set(map(len, labels))
            assert partitions or "partition" not in family.definition.labels


def test_snapshot_refuses_wrong_questions(manager: LogManager) -> None:
    """Unknown names and labels, and a value of a histogram."""
    snapshot = manager.metrics()
    with pytest.raises(KeyError):
        snapshot.value("kafkalog_nothing")
    with pytest.raises(ValueError, match="label of kafkalog_log_end_offset"):
        snapshot.value("kafkalog_log_end_offset", group="g")
    with pytest.raises(ValueError, match="is a histogram"):
        snapshot.value("kafkalog_sync_seconds")
    with pytest.raises(ValueError, match="is a gauge"):
        snapshot.histogram("kafkalog_log_end_offset")
    with pytest.raises(ValueError, match="share"):
        snapshot.histogram("kafkalog_sync_seconds").quantile(2)


def test_histogram_quantile_is_a_bound_above_the_value(manager: LogManager) -> None:
    """Callers of each sync: one; no value is 0."""
    callers = manager.metrics().histogram("kafkalog_sync_callers")
    assert (1, 1.0, 1.0) == (callers.count, callers.quantile(0), callers.quantile(1))
    empty = manager.metrics().histogram("kafkalog_sync_callers", directory="/elsewhere")
    assert (0, 0.0) == (empty.count, empty.quantile(0.5))
