"""The page of the proof in Markdown: the same results give the same page, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.proof.harness import Part
from tests.proof.results import Result

__all__ = ["page", "write_page"]

# Number of counters of the same name that makes columns of what is before their colon.
_MUCH = 5

HEAD = """# Proof

Failures that test programs caused in kafkalog, and the results of their checks. Drawn by
`python3 ci/proof.py` from its results (`tests/proof/results.json`). Every part writes down what the
library acknowledged, does something hostile to it, and then judges the files with separate code.

```text
python3 ci/proof.py                          # every part, ten minutes each, with fresh seeds
python3 ci/proof.py kills --minutes 60       # one part for an hour
python3 ci/proof.py kills --seed 7           # the same choices as an earlier run
python3 ci/proof.py --gate                   # the short forms, as the gate runs them
```

A broken promise makes the exit status 1 and leaves its evidence below `.proof/evidence`: the files,
what was acknowledged, and the seed. What happens when is a matter of the machine, so the same seed
repeats the choices and not the moment.

The [soak](soak.md) is an hour of services under load and bad input.
"""


def write_page(path: Path, parts: Sequence[Part], results: Mapping[str, Result]) -> None:
    """Write the page."""
    path.write_text(page(parts, results), "utf-8")


def page(parts: Sequence[Part], results: Mapping[str, Result]) -> str:
    """Return the text of the page."""
    lines = [HEAD, *_summary(parts, results), *_inputs(parts, results), *_machines(parts, results)]
    for part in parts:
        lines += _part(part, results.get(part.name))
    return "".join(lines)


def _summary(parts: Sequence[Part], results: Mapping[str, Result]) -> Iterator[str]:
    yield "\n## Every part\n\n| part | day | commit | minutes | seed | broken |\n"
    yield "|---|---|---|---|---|---|\n"
    for part in parts:
        result = results.get(part.name)
        link = f"[{part.name}](#{_anchor(part.title)})"
        if result is None:
            yield f"| {link} | not run | | | | |\n"
        elif result.skipped:
            yield f"| {link} | {result.day} | `{result.commit}` | not run: {result.skipped} | | |\n"
        else:
            verdict = f"**{len(result.broken)}**" if result.broken else "0"
            yield (
                f"| {link} | {result.day} | `{result.commit}` | {result.minutes:g} "
                f"| {result.seed} | {verdict} |\n"
            )


def _inputs(parts: Sequence[Part], results: Mapping[str, Result]) -> Iterator[str]:
    """Yield a sentence with the sum of all changed inputs, where a part has run that counts any."""
    found: list[tuple[str, int]] = []
    for part in parts:
        result = results.get(part.name)
        if result is not None and not result.skipped:
            found += [(name, result.counts[name]) for name in part.inputs if name in result.counts]
    if found:
        terms = " and ".join(f"{number:,} {name}" for name, number in found)
        total = sum(number for _, number in found)
        yield f"\nMutated inputs in all: **{total:,}** ({terms}).\n"


def _machines(parts: Sequence[Part], results: Mapping[str, Result]) -> Iterator[str]:
    seen: list[dict[str, str]] = []
    for part in parts:
        result = results.get(part.name)
        if result is not None and result.machine not in seen:
            seen.append(result.machine)
    for number, facts in enumerate(seen, start=1):
        yield "\n## The machine\n" if number == 1 else f"\nMachine {number}:\n"
        yield "\n| | |\n|---|---|\n"
        yield from (f"| {name} | {text} |\n" for name, text in facts.items())


def _part(part: Part, result: Result | None) -> Iterator[str]:
    yield f"\n## {part.title}\n\n{part.about}\n"
    if result is None:
        yield "\nNot run yet.\n"
        return
    if result.skipped:
        yield f"\nNot run: {result.skipped}.\n"
        return
    yield from _counted(result.counts)
    if result.notes:
        yield "\n"
        yield from (f"- {note}\n" for note in result.notes)
    if result.broken:
        yield "\nBroken:\n\n"
        for each in result.broken:
            first = each["details"].strip().splitlines()[:1]
            yield f"- {each['title']}: {''.join(first)[:200]}\n"


def _counted(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield one table of what was counted once, and one with a column for each kind of runs."""
    columns = _columns(counts)
    alone = {
        name: number for name, number in counts.items() if name.partition(": ")[0] not in columns
    }
    if alone:
        yield "\n| counted | |\n|---|---|\n"
        yield from (f"| {name} | {number:,} |\n" for name, number in alone.items())
    if columns:
        yield f"\n| counted | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}\n"
    names = {rest for name in counts for kind, _, rest in [name.partition(": ")] if kind in columns}
    for rest in sorted(names, key=lambda each: (not each.startswith(("cuts", "kills")), each)):
        numbers = (counts.get(f"{column}: {rest}") for column in columns)
        cells = ("" if number is None else f"{number:,}" for number in numbers)
        yield f"| {rest} | {' | '.join(cells)} |\n"


def _columns(counts: Mapping[str, int]) -> list[str]:
    """Return what is before the colon of counters, where two or more have much in common."""
    found: dict[str, set[str]] = {}
    for name in counts:
        kind, colon, rest = name.partition(": ")
        if colon and kind != "broken":
            found.setdefault(kind, set()).add(rest)
    shared = [
        kind
        for kind, rests in found.items()
        if any(len(rests & others) >= _MUCH for other, others in found.items() if other != kind)
    ]
    return sorted(shared)


def _anchor(title: str) -> str:
    """Return what a heading is linked by."""
    kept = [letter for letter in title.lower() if letter.isalnum() or letter in " -"]
    return "".join(kept).replace(" ", "-")
