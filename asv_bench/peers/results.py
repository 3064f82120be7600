"""Results of comparisons: lines of JSON, one for each ratio, and their file.

A line is a `Result`, or a text: a note. Numbers are the cost of one item in each round, ours and
the peer's of one round in pairs, so that the spread of a ratio can be computed. Less is always
better. Needs only the standard library, so that pages of results can be drawn without the peers.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

DIGITS = 4
ROWS_MAX = 40
THE_GOAL = "the goal"
LABEL = re.compile(r"(?:(?P<goal>[PKG]\d+b?) +)?(?P<what>.+?)(?: / (?P<peer>.+))?")


@dataclass(frozen=True, slots=True)
class Result:
    """
    One ratio.

    Attributes:
        goal: P1 to P23, K1 to K12, G1 to G14, or nothing.
        what: what both sides do.
        work: sizes of values and batches.
        unit: unit of the numbers.
        peer: the other side; THE_GOAL if the goal is an amount, which is in its place then.
        wanted: the ratio that the goal requests; 0 for none.
        ours: one number for each round.
        theirs: one number for each round.
    """

    goal: str
    what: str
    work: str
    unit: str
    peer: str
    wanted: float
    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @property
    def ours_median(self) -> float:
        return statistics.median(self.ours)

    @property
    def theirs_median(self) -> float:
        return statistics.median(self.theirs)

    @property
    def ratio(self) -> float:
        """Ratio of the medians, theirs to ours."""
        return self.theirs_median / self.ours_median

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest ratio of a round."""
        ratios = [theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True)]
        return min(ratios), max(ratios)

    @property
    def is_reached(self) -> bool:
        """True if the goal is reached, or there is none."""
        return self.ratio >= self.wanted


def in_order(results: Iterable[Result]) -> list[Result]:
    """Return results grouped by their goal and their operation."""
    listed = list(results)
    place: dict[tuple[str, ...], int] = {}
    for each in listed:
        for key in ((each.goal,), (each.goal, each.what), (each.goal, each.what, each.peer)):
            place.setdefault(key, len(place))
    return sorted(
        listed,
        key=lambda each: (
            place[each.goal,],
            place[each.goal, each.what],
            place[each.goal, each.what, each.peer],
        ),
    )


def first_size(results: Sequence[Result]) -> Sequence[Result]:
    """Return the results to show: where there are many, those with the first size of values."""
    if len(results) <= ROWS_MAX:
        return results
    first = results[0].work.partition(",")[0]
    return [each for each in results if each.work.partition(",")[0] == first]


def split_label(label: str) -> tuple[str, str, str]:
    """Return goal, what and peer of a label such as `P12 recovery / bare mapped read`."""
    match = LABEL.fullmatch(label.strip())
    if match is None:
        raise ValueError(f"{label!r} names nothing that is compared")
    return match["goal"] or "", match["what"], match["peer"] or ""


def to_json(line: Result | str) -> str:
    """Return a result or a note as a line of JSON."""
    if isinstance(line, str):
        return json.dumps({"note": line})
    fields = asdict(line)
    for name in ("ours", "theirs"):
        fields[name] = [float(f"{number:.{DIGITS}g}") for number in fields[name]]
    return json.dumps(fields)


def from_json(line: str) -> Result | str:
    """Return what `to_json` made a line of."""
    fields = json.loads(line)
    if "note" in fields:
        return str(fields["note"])
    fields["ours"], fields["theirs"] = tuple(fields["ours"]), tuple(fields["theirs"])
    return Result(**fields)


def write_line(path: Path, line: Result | str) -> None:
    """Add a result or a note to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(to_json(line) + "\n")


def read_lines(path: Path) -> Iterable[Result | str]:
    """Yield the results and notes of a file."""
    for line in path.read_text("utf-8").splitlines():
        yield from_json(line)
