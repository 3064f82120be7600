"""Results of the last kept run: `results.json`, and `samples.jsonl` with a line for each time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.proof.results import commit_name
from tests.soak.conductor import Run, Sample

__all__ = ["Kept", "keep", "read_kept"]

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results.json")
SAMPLES = Path(__file__).with_name("samples.jsonl")


@dataclass(frozen=True)
class Kept:
    """
    A run as it is kept.

    Attributes:
        day, commit, machine: when, of which commit (with "+" if files were changed), and where.
        seed, seconds, is_bounded, counts, problems, verdicts: as of `Run`.
        faults: by kind, its number, its times, its answers, the longest wait in seconds, and its
            metrics with the smallest and the largest figure.
        samples: as of `Run`.
        notes: sentences of a person about the run, which are written into the file.
    """

    day: str
    commit: str
    machine: dict[str, str]
    seed: int
    seconds: float
    is_bounded: bool
    counts: dict[str, int]
    problems: list[str]
    verdicts: dict[str, dict[str, Any]]
    faults: dict[str, dict[str, Any]]
    samples: list[Sample]
    notes: list[str] = field(default_factory=list)


def keep(run: Run, machine: Mapping[str, str], commit: str) -> Kept:
    """Write the results of a run; return them as they are read again."""
    kept = Kept(
        day=datetime.now(UTC).strftime("%Y-%m-%d"),
        commit=commit,
        machine=dict(machine),
        seed=run.seed,
        seconds=round(run.seconds),
        is_bounded=run.is_bounded,
        counts=run.counts,
        problems=run.problems,
        verdicts={name: asdict(verdict) for name, verdict in run.verdicts.items()},
        faults=_faults(run),
        samples=run.samples,
    )
    facts = asdict(kept)
    lines = [json.dumps(sample) + "\n" for sample in facts.pop("samples")]
    SAMPLES.write_text("".join(lines), "utf-8")
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    return read_kept()


def read_kept() -> Kept:
    """Return the results of the last kept run; OSError without one."""
    samples = [json.loads(line) for line in SAMPLES.read_text("utf-8").splitlines()]
    return Kept(**json.loads(RESULTS.read_text("utf-8")), samples=samples)


def current_commit() -> str:
    """Return the name of the commit that is checked out."""
    return commit_name(ROOT)


def _faults(run: Run) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for outcome in run.outcomes:
        fault = found.setdefault(
            outcome.fault,
            {"count": 0, "at": [], "answers": {}, "longest": 0.0, "metrics": {}},
        )
        fault["count"] += 1
        fault["at"].append(round(outcome.at))
        for text, count in outcome.answers.items():
            fault["answers"][text] = fault["answers"].get(text, 0) + count
        fault["longest"] = round(max(fault["longest"], outcome.longest), 3)
        for name, value in outcome.metrics.items():
            known = fault["metrics"].setdefault(name, [value, value])
            if value is not None:
                fault["metrics"][name] = [min(known[0], value), max(known[1], value)]
    return found
