"""The file of results: for each group when, where and how it was measured, and what was found.

Lines of JSON. A line with `group` opens one, the results and notes of `asv_bench.peers.results`
follow. A group that could not be measured has a reason instead. Groups are replaced one by one, so
that one can be measured again while the others stay.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from asv_bench.peers.results import Result, from_json, to_json


@dataclass(frozen=True, slots=True)
class Measured:
    """
    One group's results.

    Attributes:
        group: its name.
        day: when, as YYYY-MM-DD.
        quick: whether it was a run with less work.
        load: the machine's load averages before the run began.
        others: how many cores other programs kept busy meanwhile, on the mean.
        machine: what it was measured on; see `machine.describe`.
        absent: why there are no results; empty where there are.
        lines: results and notes.
    """

    group: str
    day: str
    quick: bool
    load: tuple[float, float, float]
    others: float
    machine: Mapping[str, str]
    absent: str = ""
    lines: tuple[Result | str, ...] = field(default=())

    @property
    def results(self) -> list[Result]:
        return [line for line in self.lines if isinstance(line, Result)]

    @property
    def notes(self) -> list[str]:
        return [line for line in self.lines if isinstance(line, str)]


def read_measured(path: Path) -> dict[str, Measured]:
    """Return what a file holds, by group; nothing where there is no file."""
    if not path.exists():
        return {}
    heads: dict[str, dict[str, Any]] = {}
    lines: dict[str, list[Result | str]] = {}
    name = ""
    for text in path.read_text("utf-8").splitlines():
        fields = json.loads(text)
        if "group" in fields:
            name = fields["group"]
            heads[name], lines[name] = fields, []
        else:
            lines[name].append(from_json(text))
    return {name: _measured(head, lines[name]) for name, head in heads.items()}


def _measured(head: dict[str, Any], lines: Iterable[Result | str]) -> Measured:
    one, five, fifteen = head.pop("load")
    return Measured(load=(one, five, fifteen), lines=tuple(lines), **head)


def write_measured(path: Path, groups: Iterable[Measured]) -> None:
    """Replace a file; concurrent readers keep the old one."""
    texts = []
    for each in groups:
        head = asdict(each)
        del head["lines"]
        texts += [json.dumps(head), *map(to_json, each.lines)]
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    scratch.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    scratch.replace(path)
