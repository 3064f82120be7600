"""Fuzzing under AddressSanitizer: every entry that takes bytes, with inputs changed by a new seed.

The extensions are built with the sanitizers in a copy of the sources, as `ci/asan.py` does for the
tests; each target of `tests.fuzz` then runs for an equal share of the time. The gate runs the same
within its step of the sanitizers, which has the build.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz.__main__ import names
from tests.proof.harness import ROOT, Proof

__all__ = ["run"]

_COUNTED = re.compile(r"^([\w-]+): \d+ inputs, seed \d+, (\d+) run$", re.MULTILINE)
SHORTEST_SECONDS = 1


def run(proof: Proof) -> None:
    """Build once, then run every target until the time is over, which the build does not count."""
    folder = proof.folder / "sources"
    folder.mkdir()
    environment = runpy.run_path(str(ROOT / "ci" / "asan.py"))["build"](folder)
    if environment is None:
        proof.skip("the sanitizers' build failed, or the compiler has none")
    targets = names()
    proof.count("targets", len(targets))
    end = time.monotonic() + proof.seconds
    while (left := end - time.monotonic()) > SHORTEST_SECONDS:
        share = max(SHORTEST_SECONDS, min(60, int(left / len(targets))))
        for name in targets:
            _run_target(proof, name, share, folder, environment)
    if not proof.counts["inputs"]:
        proof.broken("no input was run", f"in {proof.seconds} s over {len(targets)} targets")


def _run_target(
    proof: Proof, name: str, seconds: int, folder: Path, environment: dict[str, str]
) -> None:
    seed = proof.random.getrandbits(32)
    options = ["--blind", "--seconds", str(seconds), "--seed", str(seed), "--found", str(folder)]
    command = [sys.executable, "-m", "tests.fuzz", name, *options]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    for target, count in _COUNTED.findall(done.stdout):
        proof.count("inputs", int(count))
        proof.count(f"inputs of {target}", int(count))
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-3500:]
        proof.broken(f"the fuzz target {name} fails", f"seed {seed}\n{said}")
