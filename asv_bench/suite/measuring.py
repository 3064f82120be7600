"""Measurement of a group: each of its modules in a separate process, in sequence.

A module that ends in an error leaves its group as it was before. What a group needs and this
machine has not is found out before anything is started.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from asv_bench.peers.results import read_lines
from asv_bench.suite import machine, needs
from asv_bench.suite.groups import Group
from asv_bench.suite.measured import Measured
from tests.support import spark_session

ROOT = Path(__file__).resolve().parents[2]


class GroupError(Exception):
    """A module of a group ended in an error."""


def measure(
    group: Group,
    *,
    quick: bool,
    rounds: int | None,
    load: tuple[float, float, float],
) -> Measured:
    """Run a group's modules, with their output on ours, and return what they found."""
    options = ["--quick"] if quick else []
    if rounds:
        options += ["--rounds", str(rounds)]
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    facts = machine.describe()
    try:
        options += needs.fetch_all(group.needs)
    except needs.MissingError as error:
        return Measured(group.name, day, quick, load, 0.0, facts, absent=str(error))
    meter = machine.OthersMeter()
    with tempfile.TemporaryDirectory(prefix="kafkalog-bench-") as folder:
        found = Path(folder) / "results.jsonl"
        found.touch()
        for module, *arguments in group.commands:
            run_module(module, [*arguments, *options, "--results", str(found)])
        lines = tuple(read_lines(found))
    return Measured(group.name, day, quick, load, meter.cores(), facts, lines=lines)


def run_module(module: str, arguments: Sequence[str]) -> None:
    """Run one module of `asv_bench.peers`."""
    command = [sys.executable, "-m", f"asv_bench.peers.{module}", *arguments]
    print(f"-- {module} {' '.join(arguments)}", flush=True)
    # Spark's workers are of this Python, whatever comes first on the path.
    variables = {**os.environ, **spark_session.environment(quick_start=False)}
    ended = subprocess.run(command, cwd=ROOT, env=variables, check=False)
    if ended.returncode != 0:
        raise GroupError(f"{module} ended with status {ended.returncode}")
