"""Measure groups of comparisons, keep the results, draw the page: `python3 ci/bench.py`.

    python3 ci/bench.py [--quick] [GROUP ...]     measure, all groups where none is named
    python3 ci/bench.py --render                  draw the page again from what was measured
    python3 ci/bench.py --list                    the groups

Results are kept in `asv_bench/results.jsonl`, the page is `docs/benchmarks.md`. Only the named
groups are measured. Exit status 1 means that a group ended in an error and keeps its old results; a
missed goal is not an error, it is on the page.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from asv_bench.suite import machine
from asv_bench.suite.groups import Group, read_goals, read_groups
from asv_bench.suite.measured import Measured, read_measured, write_measured
from asv_bench.suite.measuring import ROOT, GroupError, measure
from asv_bench.suite.page import write_page
from asv_bench.suite.plots import write_plots

RESULTS = ROOT / "asv_bench" / "results.jsonl"
DOCS = ROOT / "docs"


def parse(arguments: Sequence[str], groups: dict[str, Group]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="bench.py", description="Compare with other programs, and draw docs/benchmarks.md."
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="all where none is named")
    parser.add_argument("--quick", action="store_true", help="less work and fewer rounds")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of each comparison")
    parser.add_argument(
        "--render",
        nargs="?",
        type=Path,
        const=Path(),
        metavar="FILE",
        help="measure nothing, draw the page from the results kept, or from those of a file",
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="put results and page there")
    parser.add_argument(
        "--rehearse", action="store_true", help="one round of less work, of which nothing is kept"
    )
    parser.add_argument("--list", action="store_true", help="name the groups")
    parsed = parser.parse_args(arguments)
    unknown = sorted(set(parsed.groups) - set(groups))
    if unknown:
        parser.error(f"no group {', '.join(unknown)}; there are {', '.join(groups)}")
    return parsed


def measure_all(
    chosen: Sequence[Group], kept: dict[str, Measured], path: Path, parsed: argparse.Namespace
) -> list[str]:
    """Measure groups, keep each as soon as it is done; return the names of those that failed."""
    load = machine.load_average()
    order = list(read_groups())
    failed = []
    for group in chosen:
        print(f"\n=== {group.name}: {group.title}", flush=True)
        begun = time.monotonic()
        try:
            kept[group.name] = measure(group, quick=parsed.quick, rounds=parsed.rounds, load=load)
        except GroupError as error:
            print(f"!!! {group.name}: {error}", file=sys.stderr, flush=True)
            failed.append(group.name)
            continue
        if kept[group.name].absent:
            reason = kept[group.name].absent
            print(f"!!! {group.name} IS NOT MEASURED: {reason}", file=sys.stderr, flush=True)
        write_measured(path, (kept[name] for name in order if name in kept))
        print(f"    {time.monotonic() - begun:.0f} s", flush=True)
    return failed


def main(arguments: Sequence[str]) -> int:
    """Run the command line."""
    groups = read_groups()
    parsed = parse(arguments, groups)
    if parsed.list:
        for group in groups.values():
            print(f"{group.name:<12} {group.title}")
        return 0
    if parsed.rehearse:
        parsed.quick, parsed.rounds = True, 1
        with tempfile.TemporaryDirectory(prefix="kafkalog-bench-") as output:
            parsed.output = Path(output)
            return measure_and_draw(parsed, groups)
    return measure_and_draw(parsed, groups)


def measure_and_draw(parsed: argparse.Namespace, groups: dict[str, Group]) -> int:
    """Measure what is to be measured, and draw the page; return the exit status."""
    folder: Path = parsed.output or DOCS
    folder.mkdir(parents=True, exist_ok=True)
    path = parsed.output / RESULTS.name if parsed.output else RESULTS
    if parsed.render is not None:
        kept, failed = read_measured(parsed.render if parsed.render.name else path), []
    else:
        kept = read_measured(path)
        chosen = [groups[name] for name in parsed.groups or groups]
        failed = measure_all(chosen, kept, path, parsed)
    kept = {name: kept[name] for name in groups if name in kept}
    write_plots(folder / "images", groups, kept)
    write_page(folder / "benchmarks.md", groups, read_goals(), kept)
    print(f"drawn: {folder / 'benchmarks.md'}")
    if failed:
        print(f"!!! failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
