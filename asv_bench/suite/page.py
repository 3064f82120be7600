"""The page of results in Markdown: machine, one table of all goals, what is missed, each group.

The same results and texts give the same page, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from asv_bench.peers.results import Result, first_size, in_order
from asv_bench.suite.groups import Goal, Group
from asv_bench.suite.measured import Measured

Groups = Mapping[str, Group]
Goals = Mapping[str, Goal]
Kept = Mapping[str, Measured]

HEAD = """# Benchmarks

kafkalog against other programs on the same work. Drawn by `python3 ci/bench.py` from what
it measured (`asv_bench/results.jsonl`); see [performance](performance.md) for what costs what, and
[how to repeat it](performance.md#comparison-with-other-programs).

Cases of a comparison take turns in one process, round by round, and a ratio is that of their
medians; its spread are the lowest and the highest ratio of a round. So both sides had the same
machine. Absolute times of shared machines move by 40 % from run to run, ratios by 10 to 15 %, those
with large writes in them by more. CPU-bound cases are timed by the thread's CPU clock, system
calls included, those that wait for a disk or for other processes by the wall clock. Keys have 16
bytes; the work is given as size of values and of batches. Times are for one of what the column "for
a" names. Where a goal is an amount and no ratio, "the goal" is the other side.
"""

TABLE = """
| goal | what | work | for a | kafkalog | the other side | | ratio | spread | goal |
|---|---|---|---|---|---|---|---|---|---|
"""

SCALES = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


def write_page(path: Path, groups: Groups, goals: Goals, kept: Kept) -> None:
    """Write the page; its pictures are in `images` next to it."""
    path.write_text(page(groups, goals, kept), "utf-8")


def page(groups: Groups, goals: Goals, kept: Kept) -> str:
    """Return the text of the page."""
    parts = [
        HEAD,
        "\n## The machine\n",
        *machines(groups, kept),
        "\n## Every goal\n",
        *goal_table(groups, goals, kept),
        "\n## What is missed, and why\n\n",
        *missed(goals, kept),
    ]
    for name, group in groups.items():
        if name in kept:
            parts += group_part(group, kept[name])
    return "".join(parts)


def machines(groups: Groups, kept: Kept) -> Iterator[str]:
    """Yield a table of facts for each machine, and one of when each group was measured."""
    described: list[Mapping[str, str]] = []
    for each in kept.values():
        if each.machine not in described:
            described.append(each.machine)
    for number, facts in enumerate(described):
        if len(described) > 1:
            yield f"\nMachine {number + 1}:\n"
        yield "\n| | |\n|---|---|\n"
        yield from (f"| {name} | {text} |\n" for name, text in facts.items())
    yield "\nBefore a run other work may keep the machine busy, and does so during it: the load\n"
    yield "averages of 1, 5 and 15 minutes before, and the cores that other work used during it.\n"
    yield "\n| group | measured | work | machine | load before | cores busy with other work |\n"
    yield "|---|---|---|---|---|---|\n"
    for name in groups:
        if name not in kept:
            yield f"| {name} | never | | | | |\n"
            continue
        each = kept[name]
        work = "not measured" if each.absent else "quick" if each.quick else "full"
        load = ", ".join(f"{part:.1f}" for part in each.load)
        number = described.index(each.machine) + 1
        yield f"| {name} | {each.day} | {work} | {number} | {load} | {each.others:.1f} |\n"


def rows_of(goal: Goal, kept: Kept) -> list[Result]:
    """Return the results that belong to a goal, whatever group they are of."""
    every = (each for one in kept.values() for each in one.results)
    return in_order(each for each in every if each.goal == goal.name)


def goal_table(groups: Groups, goals: Goals, kept: Kept) -> Iterator[str]:
    """Yield how many goals are reached, and the table of all their rows."""
    # Rows without a goal are shown with the others, and count only without others.
    verdicts: dict[str, list[bool]] = {}
    for name, goal in goals.items():
        rows = rows_of(goal, kept)
        asking = [row for row in rows if row.wanted]
        verdicts[name] = [row.is_reached for row in asking or rows]
    measured = {name: rows for name, rows in verdicts.items() if rows}
    whole = [name for name, rows in measured.items() if all(rows)]
    partly = [name for name, rows in measured.items() if any(rows) and not all(rows)]
    none = [name for name, rows in measured.items() if not any(rows)]
    tested = [name for name, goal in goals.items() if not goal.group]
    absent = [name for name in goals if name not in (*measured, *tested)]
    yield f"\nOf {len(goals)} goals {len(whole)} are reached in every row: {listed(whole)}. "
    yield f"{len(partly)} in some: {listed(partly)}. {len(none)} in none: {listed(none)}. "
    yield f"{len(absent)} are not measured: {listed(absent)}. "
    if tested:
        yield f"{len(tested)} are shown by tests: {listed(tested)}. "
    yield "Ratios below their goal are bold.\n"
    yield TABLE
    for goal in goals.values():
        rows = rows_of(goal, kept)
        yield from map(row, rows)
        if goal.shown:
            yield f"| {goal.name} | {goal.what} | shown by {listed(links(goal.shown))}"
            yield " | | | | | | | |\n"
        elif not rows:
            reason = kept[goal.group].absent if goal.group in kept else ""
            yield f"| {goal.name} | {goal.what} | not measured{reason and ': '}{reason}"
            yield " | | | | | | | |\n"


def links(files: Iterable[str]) -> list[str]:
    """Return links to files of the project, from the page."""
    return [f"[{name.rpartition('/')[2]}](../{name})" for name in files]


def listed(names: list[str]) -> str:
    """Return names in a row."""
    return ", ".join(names) if names else "none"


def row(result: Result) -> str:
    """Return the line of one result."""
    unit, _, item = result.unit.partition(" a ")
    lowest, highest = result.spread
    ratio = times(result.ratio)
    if not result.is_reached:
        ratio = f"**{ratio}**"
    ours, theirs = amount(result.ours_median, unit), amount(result.theirs_median, unit)
    goal = f"{result.wanted:g}x" if result.wanted else ""
    return (
        f"| {result.goal} | {result.what} | {result.work} | {item} | {ours} | {theirs} "
        f"| {result.peer} | {ratio} | {times(lowest)} to {times(highest)} | {goal} |\n"
    )


def times(ratio: float) -> str:
    """Return a ratio in three digits or so."""
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.1f}x" if ratio < 100 else f"{ratio:.0f}x"


def amount(number: float, unit: str) -> str:
    """Return a number with its unit; nanoseconds in what is short to read."""
    if unit == "ns":
        for scale, name in SCALES:
            if number >= scale:
                return f"{number / scale:.3g} {name}"
        return f"{number:.3g} ns"
    return f"{number:.4g} {unit}"


def missed(goals: Goals, kept: Kept) -> Iterator[str]:
    """Yield what was tried and what bounds each goal that is missed."""
    for goal in goals.values():
        rows = [each for each in rows_of(goal, kept) if each.wanted]
        below = sum(not each.is_reached for each in rows)
        if below:
            where = f"{below} of {len(rows)} rows" if len(rows) > 1 else "its row"
            reason = goal.missed or "Not explained."
            yield f"- **{goal.name}**, {goal.what}: {where} below. {reason}\n"


def group_part(group: Group, measured: Measured) -> Iterator[str]:
    """Yield the part of one group: what was done, the picture, rows without a goal, notes."""
    yield f"\n## {group.title}\n\n{group.about}\n"
    if measured.absent:
        yield f"\nNot measured: {measured.absent}.\n"
        return
    yield f"\n![Ratios of the group {group.name}](images/benchmarks-{group.name}.svg)\n"
    others = [each for each in measured.results if not each.goal]
    if others:
        shown = first_size(others)
        yield TABLE + "".join(map(row, in_order(shown)))
        if len(shown) < len(others):
            left = len(others) - len(shown)
            yield f"\n{left} more rows, of other sizes, are in `asv_bench/results.jsonl`.\n"
    if measured.notes:
        yield "\n"
        yield from (f"- {note}\n" for note in measured.notes)
