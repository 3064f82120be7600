"""Picture for each group: the ratio to each peer, with the goals.

The same results give the same file, byte for byte: no dates, no random identifiers, text as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from asv_bench.peers.results import Result, first_size, in_order
from asv_bench.suite.groups import Group
from asv_bench.suite.measured import Measured

WIDTH_INCHES = 9.0
ROW_INCHES = 0.2
MARGIN_INCHES = 0.9
REACHED, MISSED, FREE = "#2a7f62", "#c8553d", "#5b7db1"
SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kafkalog",
    "font.size": 8,
    "font.family": "sans-serif",
    "path.simplify": True,
}


def write_plots(folder: Path, groups: Mapping[str, Group], kept: Mapping[str, Measured]) -> None:
    """Write `benchmarks-NAME.svg` for each group that has results."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, measured in kept.items():
        path = folder / f"benchmarks-{name}.svg"
        if measured.results:
            write_plot(path, groups[name].title, measured.results)
        else:
            path.unlink(missing_ok=True)


def label(result: Result) -> str:
    """Return the name of a bar."""
    goal = f"{result.goal} " if result.goal else ""
    return f"{goal}{result.what} / {result.peer} ({result.work})"


def colour(result: Result) -> str:
    """Return the colour of a bar."""
    if not result.wanted:
        return FREE
    return REACHED if result.is_reached else MISSED


def write_plot(path: Path, title: str, results: Sequence[Result]) -> None:
    """Draw the ratios of one group."""
    drawn = in_order(first_size(results))[::-1]
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH_INCHES, MARGIN_INCHES + ROW_INCHES * len(drawn)))
        axes = figure.add_subplot()
        places = range(len(drawn))
        ratios = [each.ratio for each in drawn]
        spreads = [each.spread for each in drawn]
        axes.barh(
            places,
            [ratio - 1 for ratio in ratios],
            left=1,
            height=0.6,
            color=[colour(each) for each in drawn],
        )
        axes.hlines(
            places,
            [low for low, _ in spreads],
            [high for _, high in spreads],
            colors="black",
            linewidth=0.8,
        )
        marks = [(place, each.wanted) for place, each in enumerate(drawn) if each.wanted]
        if marks:
            goals = axes.scatter(
                [ratio for _, ratio in marks],
                [place for place, _ in marks],
                marker="|",
                s=60,
                color="black",
                zorder=3,
            )
            axes.legend([goals], ["goal"], loc="lower right", frameon=False)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _place: f"{value:g}x")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks(places, [label(each) for each in drawn])
        axes.margins(y=0.5 / max(1, len(drawn)))
        axes.set_title(f"{title}: the other side's cost over ours", loc="left")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        figure.savefig(
            path,
            format="svg",
            bbox_inches="tight",
            metadata={"Date": None, "Creator": None},
        )
