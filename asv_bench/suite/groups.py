"""Groups of comparisons and goals, read from `groups.toml` and `goals.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Group:
    """
    Comparisons that are measured and drawn together.

    Attributes:
        name: by which it is chosen on the command line.
        title: heading of its part of the page.
        about: what the sides do, in Markdown.
        commands: modules of `asv_bench.peers` with their arguments.
        needs: what must be there, of what `needs` knows.
    """

    name: str
    title: str
    about: str
    commands: tuple[tuple[str, ...], ...]
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Goal:
    """
    A goal.

    Attributes:
        name: P1 to P23, K1 to K12, G1 to G14; P6b belongs to P6.
        what: the goal, in words.
        group: group that measures it; nothing if only tests show it.
        missed: attempts and limits, if it is missed; or nothing.
        shown: files of tests that show it, if a measurement does not, or not alone.
    """

    name: str
    what: str
    group: str
    missed: str
    shown: tuple[str, ...] = ()


def _read(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with (FOLDER / name).open("rb") as file:
        yield from tomllib.load(file).items()


def read_groups() -> dict[str, Group]:
    """Return the groups by name, in the order of the page."""
    return {
        name: Group(
            name=name,
            title=fields["title"],
            about=fields["about"].strip(),
            commands=tuple(tuple(command.split()) for command in fields["commands"]),
            needs=tuple(fields.get("needs", ())),
        )
        for name, fields in _read("groups.toml")
    }


def read_goals() -> dict[str, Goal]:
    """Return the goals by name, in the order of the page."""
    return {
        name: Goal(
            name,
            fields["what"],
            fields.get("group", ""),
            " ".join(fields.get("missed", "").split()),
            tuple(fields.get("shown", ())),
        )
        for name, fields in _read("goals.toml")
    }
