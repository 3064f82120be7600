"""Draw the dashboard of `examples/metrics/grafana.json` from a run.

python ci/dashboard.py [--seconds N]      run for so long, and write docs/images/metrics.svg

A manager is used by producers, a consumer, syncs, retention and compaction for a minute. Its
metrics are scraped every second as a Prometheus server would, and the queries of the panels are
evaluated by `ci/promql.py`. Grafana itself is not needed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "ci"))

from promql import Scrape, evaluate  # noqa: E402

from kafkalog import (  # noqa: E402
    HistogramValue,
    LogConfig,
    LogManager,
    ManagerConfig,
    MetricsSnapshot,
)
from tests.support.pictures import SETTINGS  # noqa: E402

DASHBOARD = ROOT / "examples" / "metrics" / "grafana.json"
PICTURE = ROOT / "docs" / "images" / "metrics.svg"
SCRAPE_SECONDS = 1.0
# Scrapes in the window of a rate.
WINDOW = 5
COLUMNS = 3
LIVELY = LogConfig(
    segment_bytes=1 << 20, retention_bytes=24 << 20, retention_ms=20_000, file_delete_delay_ms=3_000
)


def scrape(snapshot: MetricsSnapshot, at: float) -> Scrape:
    """Return a snapshot as the samples of a scrape."""
    samples: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in snapshot:
        for sample in family.samples:
            labels = frozenset(zip(family.definition.labels, sample.labels, strict=True))
            if not isinstance(sample.value, HistogramValue):
                samples.setdefault(family.name, {})[labels] = sample.value
                continue
            for bound, count in sample.value.buckets:
                le = ("le", "+Inf" if math.isinf(bound) else repr(bound))
                samples.setdefault(f"{family.name}_bucket", {})[labels | {le}] = count
            samples.setdefault(f"{family.name}_sum", {})[labels] = sample.value.sum
            samples.setdefault(f"{family.name}_count", {})[labels] = sample.value.count
    return Scrape(at, samples)


def load(manager: LogManager, stop: threading.Event) -> Sequence[Callable[[], None]]:
    """Return the work of the run: writers, a reader that falls back, and the background."""
    manager.create_topic("orders", 4)
    manager.create_topic("clicks", 2)
    manager.create_topic("accounts", 2, {"cleanup.policy": "compact"})

    def produce(topic: str, size: int, pause: float, keys: int, wait: Any) -> None:
        generator = random.Random(topic)
        with manager.producer(wait=wait) as producer:
            while not stop.wait(pause * generator.uniform(0.3, 1.7)):
                for _ in range(generator.randrange(20, 200)):
                    key = b"%d" % generator.randrange(keys)
                    producer.send(topic, generator.randbytes(size), key=key)

    def append() -> None:
        while not stop.wait(0.004):
            manager.log("orders", 0).append_lists(None, [b"x" * 300] * 3, wait="durable")

    def consume() -> None:
        with manager.consumer("billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders", "clicks"])
            while not stop.wait(0.02):
                consumer.poll(100)
                consumer.commit()

    return (
        lambda: produce("orders", 400, 0.05, 1000, "durable"),
        lambda: produce("clicks", 150, 0.02, 100_000, "written"),
        lambda: produce("accounts", 200, 0.1, 500, "written"),
        append,
        consume,
    )


def run(seconds: float) -> list[Scrape]:
    """Return the scrapes of a run."""
    scrapes: list[Scrape] = []
    with tempfile.TemporaryDirectory(prefix="kafkalog-dashboard-") as below:
        config = ManagerConfig(
            log=LIVELY,
            log_initial_task_delay_ms=1_000,
            log_retention_check_interval_ms=5_000,
            offsets_topic_num_partitions=4,
        )
        config = config.replace(cleaner=config.cleaner.replace(backoff_ms=2_000))
        with LogManager([Path(below) / "data"], config) as manager:
            stop = threading.Event()
            threads = [threading.Thread(target=each) for each in load(manager, stop)]
            for thread in threads:
                thread.start()
            began = time.monotonic()
            while time.monotonic() - began < seconds:
                at = time.monotonic() - began
                scrapes.append(scrape(manager.metrics(partitions=True), at))
                time.sleep(SCRAPE_SECONDS)
            stop.set()
            for thread in threads:
                thread.join()
    return scrapes


def curves(
    target: Mapping[str, str], scrapes: Sequence[Scrape]
) -> dict[str, tuple[list[float], list[float]]]:
    """Return the curves of a query by their legends: times and values."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for end in range(2, len(scrapes) + 1):
        window = scrapes[max(end - WINDOW, 0) : end]
        for labels, value in evaluate(target["expr"], window).items():
            legend = target["legendFormat"]
            for name, text in labels:
                text = "data" if name == "directory" else text
                legend = legend.replace("{{" + name + "}}", text)
            times, values = found.setdefault(legend, ([], []))
            times.append(window[-1].at)
            values.append(value)
    return found


def draw(dashboard: Mapping[str, Any], scrapes: Sequence[Scrape], path: Path) -> None:
    """Draw all panels."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, PercentFormatter

    panels = dashboard["panels"]
    rows = math.ceil(len(panels) / COLUMNS)
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(11, 1.75 * rows), layout="constrained")
        axes = figure.subplots(rows, COLUMNS)
        for number, panel in enumerate(panels):
            axis = axes[number // COLUMNS][number % COLUMNS]
            axis.set_title(panel["title"], loc="left", fontweight="bold")
            for target in panel["targets"]:
                for legend, (times, values) in sorted(curves(target, scrapes).items()):
                    axis.plot(times, values, linewidth=0.9, label=f" {legend}")
            unit = panel["fieldConfig"]["defaults"]["unit"]
            if unit == "percentunit":
                axis.yaxis.set_major_formatter(PercentFormatter(1.0))
            else:
                suffix = {"bytes": "B", "Bps": "B/s", "s": "s"}.get(unit, "")
                axis.yaxis.set_major_formatter(EngFormatter(suffix, sep=" " if suffix else ""))
            if axis.get_lines():
                # Space for the legend above the curves.
                axis.set_ylim(0, 1.6 * axis.get_ylim()[1] or 1)
                axis.legend(loc="upper left", frameon=False, fontsize=5.5, ncols=2)
        figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Run, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    draw(json.loads(DASHBOARD.read_text()), run(options.seconds), PICTURE)
    print(f"{PICTURE.relative_to(ROOT)} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
