"""Check that every benchmark runs once: `python ci/bench_once.py [asv's -b patterns]`.

A benchmark that skips itself because "this version has no ..." counts as failed: it may do so in an
old version, not in the one it lives in. Nothing is measured here: a shared machine has no figures
worth keeping, and the largest sizes of some benchmarks are left out (`common.sizes`). asv writes a
description of the machine to the directory of the user; it gets a temporary one, so that a run
leaves no files.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "asv_bench"
FAILED = re.compile(r"\bfailed\b|\btimeout\b|^\s*Traceback|this version has no")


def asv(arguments: Sequence[str], home: str) -> list[str]:
    """Run asv with its output on ours and return its lines."""
    # The present checkout is measured: the first name reaches benchmarks, the second those that
    # start an interpreter of their own.
    search = {"ASV_PYTHONPATH": str(ROOT), "PYTHONPATH": str(ROOT)}
    variables = {**os.environ, "HOME": home, "KAFKALOG_BENCH_ONCE": "1", **search}
    lines = []
    command = [sys.executable, "-m", "asv", *arguments]
    with subprocess.Popen(
        command,
        cwd=BENCHMARKS,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode != 0:
        sys.exit(f"asv {arguments[0]}: exit status {process.returncode}")
    return lines


def main() -> int:
    """Run the benchmarks and count the failures."""
    chosen = [word for pattern in sys.argv[1:] for word in ("-b", pattern)]
    with tempfile.TemporaryDirectory(prefix="kafkalog-asv-") as home:
        asv(["machine", "--yes"], home)
        # Forked from one process, which has imported what all of them need.
        method = ["--launch-method", "forkserver"]
        options = ["-E", "existing", "--quick", "--dry-run", "--show-stderr", *method]
        lines = asv(["run", *options, *chosen], home)
    failures = [line for line in lines if FAILED.search(line)]
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
