"""The dashboard: its queries name metrics that exist, and its picture is drawn from them."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kafkalog.manager.metrics.definitions import DEFINITIONS

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "examples" / "metrics" / "grafana.json").read_text())
TARGETS = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]


def load(name: str) -> ModuleType:
    """Return a script of the checks as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


promql = load("promql")
key = frozenset


def samples_of(scrapes: list[dict[str, dict[frozenset[tuple[str, str]], float]]]) -> list[object]:
    """Return scrapes that are ten seconds apart."""
    return [promql.Scrape(10.0 * row, samples) for row, samples in enumerate(scrapes)]


def test_dashboard_queries_name_metrics_that_exist() -> None:
    """Histograms by their three parts, everything else by its name; all kinds are used."""
    names = {name for name, each in DEFINITIONS.items() if each.kind != "histogram"}
    names |= {
        f"{name}_{part}"
        for name, each in DEFINITIONS.items()
        if each.kind == "histogram"
        for part in ("bucket", "sum", "count")
    }
    used = set()
    for target in TARGETS:
        found = promql.metric_names(target["expr"])
        assert found
        assert found <= names, target["expr"]
        used |= found
    assert 30 <= len(used)


def test_dashboard_labels_exist() -> None:
    """Labels of `by`, of matchers and of legends are those of the metrics."""
    labels = {label for each in DEFINITIONS.values() for label in each.labels} | {"le"}
    for target in TARGETS:
        for text in promql.re.findall(r"by \(([^)]*)\)|\{(\w+)=", target["expr"]):
            assert set(filter(None, text)) <= labels
        legends = promql.re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
        assert set(legends) <= labels


def test_dashboard_panels_do_not_overlap() -> None:
    """Each has its place, unit and description."""
    places = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        places.add((place["x"], place["y"]))
        assert place["x"] + place["w"] <= 24
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
    assert len(DASHBOARD["panels"]) == len(places)
    assert len(places) == len({each["id"] for each in DASHBOARD["panels"]})


def test_promql_rate_and_sums() -> None:
    """A rate is that of the window; a counter that was reset counts as 0."""
    a, b = key({("topic", "a"), ("x", "1")}), key({("topic", "a"), ("x", "2")})
    window = samples_of([{"n": {a: 10.0, b: 50.0}}, {"n": {a: 30.0, b: 10.0}}])
    assert {a: 2.0, b: 0.0} == promql.evaluate("rate(n[5m])", window)
    assert {key({("topic", "a")}): 2.0} == promql.evaluate("sum by (topic) (rate(n[5m]))", window)
    assert {key(): 30.0} == promql.evaluate("max(n)", window)
    assert {a: 30.0} == promql.evaluate('n{x="1"}', window)
    assert {a: 30.0, b: 10.0} == promql.evaluate('n{topic=~"$topic"}', window)


def test_promql_arithmetic_matches_labels() -> None:
    """A number without labels goes with each sample; a division by 0 is no number."""
    a = key({("d", "a")})
    window = samples_of([{"n": {a: 6.0}, "m": {a: 3.0}, "z": {a: 0.0}}])
    assert {a: 2.0} == promql.evaluate("n / m", window)
    assert {a: 9.0} == promql.evaluate("n + m", window)
    assert {a: -5.0} == promql.evaluate("1 - n", window)
    assert {a: 12.0} == promql.evaluate("(n - m) * 4", window)
    assert math.isnan(promql.evaluate("n / z", window)[a])
    assert {} == promql.evaluate("n / nothing", window)


def test_promql_quantile_is_interpolated() -> None:
    """Within its bucket; above the last bound it is that bound."""
    buckets = {
        key({("le", "1.0")}): 10.0,
        key({("le", "2.0")}): 20.0,
        key({("le", "+Inf")}): 21.0,
    }
    window = samples_of([{"h_bucket": buckets}])
    assert {key(): 1.05} == promql.evaluate("histogram_quantile(0.5, h_bucket)", window)
    assert {key(): 2.0} == promql.evaluate("histogram_quantile(0.99, h_bucket)", window)
    assert {} == promql.evaluate("histogram_quantile(0.5, nothing)", window)


@pytest.mark.parametrize("query", ["n +", "n n", "sum by topic (n)", "n{x!=1}", "^"])
def test_promql_refuses_what_it_cannot_evaluate(query: str) -> None:
    """A panel is never drawn from half a query."""
    with pytest.raises((ValueError, IndexError)):
        promql.evaluate(query, samples_of([{"n": {key(): 1.0}}]))


def test_dashboard_is_drawn_from_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each query has values in a short run, but for those of a cleaning or selection."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install it")
    monkeypatch.syspath_prepend(str(ROOT / "ci"))
    dashboard = load("dashboard")
    scrapes = dashboard.run(2.5)
    assert 2 <= len(scrapes)
    empty = [each["expr"] for each in TARGETS if not dashboard.curves(each, scrapes)]
    assert ['max by (topic) (kafkalog_cleaner_dirty_ratio{topic=~"$topic"})'] == empty or not empty
    dashboard.draw(DASHBOARD, scrapes, tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text()
    for panel in DASHBOARD["panels"]:
        assert panel["title"] in text
