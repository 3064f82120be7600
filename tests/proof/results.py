"""Results of the newest whole run of each part, in one file: `tests/proof/results.json`."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.proof.harness import ROOT, Proof

__all__ = ["RESULTS", "Result", "commit_name", "read_results", "result_of", "write_results"]

RESULTS = ROOT / "tests" / "proof" / "results.json"


@dataclass(frozen=True)
class Result:
    """
    One run of one part.

    Attributes:
        part: its name.
        day: when it ended, in UTC.
        commit: which commit ran, with "+" where files were changed.
        machine: facts about the machine, by names to show.
        minutes: how long it took.
        seed: its seed.
        counts: its counters, in order.
        notes: sentences for the page.
        broken: each broken promise: title, details, evidence.
        skipped: why it was not run; empty where it was.
    """

    part: str
    day: str
    commit: str
    machine: dict[str, str]
    minutes: float
    seed: int
    counts: dict[str, int]
    notes: list[str]
    broken: list[dict[str, str]]
    skipped: str = ""


def result_of(proof: Proof, machine: dict[str, str], skipped: str, minutes: float) -> Result:
    """Return what a run found."""
    return Result(
        part=proof.part,
        day=time.strftime("%Y-%m-%d", time.gmtime()),
        commit=commit_name(ROOT),
        machine=machine,
        minutes=round(minutes, 1),
        seed=proof.seed,
        counts=dict(proof.counts),
        notes=list(proof.notes),
        broken=[asdict(each) for each in proof.found],
        skipped=skipped,
    )


def read_results(path: Path = RESULTS) -> dict[str, Result]:
    """Return the results of a file by part; none where there is no file."""
    if not path.exists():
        return {}
    return {each["part"]: Result(**each) for each in json.loads(path.read_text("utf-8"))}


def write_results(path: Path, results: dict[str, Result]) -> None:
    """Write results, ordered by part."""
    rows = [asdict(results[name]) for name in sorted(results)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def commit_name(folder: Path) -> str:
    """Return the commit that is checked out, with "+" after it where tracked files differ."""
    name = _git(folder, "rev-parse", "--short=10", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", "kafkalog")
    return f"{name or 'unknown'}{'+' if changed else ''}"


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=60
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
