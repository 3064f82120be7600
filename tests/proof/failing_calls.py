"""The n-th system call of an operation fails, for every n, through a preloaded library.

Each operation runs in a separate process (`failing_operations.py`) with `failing_calls.c`
preloaded. The gate takes a sample of calls that its seed chooses; without a limit of time every
call of every operation fails with every error.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.proof.harness import Proof
from tests.proof.needs import gcc

__all__ = ["build", "run"]

SOURCE = Path(__file__).with_name("failing_calls.c")
ROOT = SOURCE.parents[2]
OPERATIONS = (
    "append",
    "append_over_segments",
    "roll",
    "flush",
    "truncate",
    "restart",
    "delete",
    "retain",
    "close",
    "open_clean",
    "open_torn",
    "compact",
    "convert",
    "convert-in-place",
    "create-topics",
    "delete-topics",
    "checkpoints",
    "close-and-start",
    "transactions",
)
WAYS = (
    "EIO",
    "EIO-from-then-on",
    "ENOSPC-after-half",
    "ENOSPC",
    "EDQUOT-from-then-on",
    "EINTR",
    "short",
)
# A process without output for so long hangs.
SILENT_SECONDS = 90


def build(folder: Path) -> Path:
    """Build the library that is preloaded; return its path."""
    target = folder / "failing_calls.so"
    compiler = shutil.which("gcc") or shutil.which("cc") or "gcc"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o", target, SOURCE, "-ldl"],
        check=True,
        timeout=120,
    )
    return target


def run(proof: Proof) -> None:
    """Let calls fail, operation by operation."""
    if reason := gcc():
        proof.skip(reason)
    library = build(proof.folder)
    jobs = [",".join(pair) + ",1,1,1000000" for pair in itertools.product(OPERATIONS, WAYS)]
    if proof.gate:
        # Of each pair some calls: one soon, and one or two further on.
        jobs = [
            f"{operation},{way},{proof.random.randint(1, 12)},{proof.random.choice((11, 23, 47))},3"
            for operation, way in itertools.product(OPERATIONS, WAYS)
        ]
    proof.random.shuffle(jobs)
    waiting = list(jobs)
    while waiting and proof.seconds_left() > 0:
        waiting = _run_jobs(proof, library, waiting)
    if waiting:
        proof.note(
            f"The time ended after {len(jobs) - len(waiting)} of {len(jobs)} pairs of operation and"
            " error."
        )


def _run_jobs(proof: Proof, library: Path, jobs: list[str]) -> list[str]:
    """Do jobs in one process; return those that it did not do to their end."""
    folder = proof.folder / "calls"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    environment = dict(os.environ, LD_PRELOAD=str(library), PYTHONHASHSEED="0")
    seconds = proof.seconds_left()
    command = [sys.executable, "-m", "tests.proof.failing_operations", str(folder), f"{seconds}"]
    try:
        done = subprocess.run(
            [*command, *jobs],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds + SILENT_SECONDS,
            check=False,
        )
        output, said, status = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as expired:
        output = (expired.stdout or b"").decode(errors="replace")
        said, status = "it hangs", -1
    finished: set[str] = set()
    running, is_done = jobs[0], False
    for line in output.splitlines():
        report = json.loads(line)
        is_done = is_done or "done" in report
        running = report.get("job", running)
        if "broken" in report:
            details = f"{report['job']}, call {report['number']}: {report['broken']}"
            operation = running.split(",")[0]
            title = f"an operation ({operation}) with a call that fails keeps its promises"
            proof.broken(title, details, [report["folder"]])
        if "count" in report:
            proof.count("calls that failed", report["count"])
            proof.count("operations to the end", int(report["ended"]))
            finished.add(report["job"])
    if not is_done:
        last = output.splitlines()[-1:]
        details = f"{running}\nlast: {last}\nstatus {status}\n{said[-3000:]}"
        proof.broken("a call that fails neither kills nor hangs a process", details, [folder])
        finished.add(running)
    return [job for job in jobs if job not in finished]
