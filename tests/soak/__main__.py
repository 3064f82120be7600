"""Run the soak, keep what it found, draw the page: `python3 ci/soak.py`.

    python3 ci/soak.py [--minutes N] [--seed S] [--directory D]   60 minutes where none are named
    python3 ci/soak.py --gate                                     the short form; keeps nothing
    python3 ci/soak.py --render                                   draw the page from what was kept

Exit status 1: an acknowledged record is lost, an answer is wrong, or something grows.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from asv_bench.suite.machine import describe
from tests.proof import needs
from tests.soak.conductor import Run, conduct
from tests.soak.page import write_page
from tests.soak.results import current_commit, keep, read_kept
from tests.soak.stage import Pace

GATE_SECONDS = 60
FACTS = ("CPU", "memory", "kernel", "Python")
# Retention must be busy within a minute.
GATE_PACE = Pace(
    volume_bytes=96 << 20,
    clients=4,
    pause=0.1,
    between=0.2,
    hold=2.0,
    sample=1.0,
    segment_bytes=32 << 10,
    retention_bytes=512 << 10,
    retention_ms=12_000,
    buffer_bytes=256 << 10,
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="soak.py", description="Judge services by an hour of load and bad input."
    )
    parser.add_argument("--minutes", type=float, default=60, help="duration of the run (60)")
    parser.add_argument("--seed", type=int, help="a fresh one is drawn where none is given")
    parser.add_argument("--directory", type=Path, help="an empty folder (a temporary one)")
    parser.add_argument("--gate", action="store_true", help="the short form; keeps no results")
    parser.add_argument("--no-results", action="store_true", help="keep no results")
    parser.add_argument("--render", action="store_true", help="draw the page, run nothing")
    return parser.parse_args(arguments)


def _show(text: str) -> None:
    print(text, flush=True)


def run_in(folder: Path, parsed: argparse.Namespace) -> Run:
    """Run in a folder, and print what was found."""
    seed = secrets.randbits(32) if parsed.seed is None else parsed.seed
    seconds = GATE_SECONDS if parsed.gate else parsed.minutes * 60
    reason = needs.linux() or needs.loop_devices()
    print(f"=== soak (seed {seed}, {seconds:g} s)", flush=True)
    if reason:
        print(
            f"!!! A LIMIT OF FILE SIZES REPLACES THE FULL AND THE READ-ONLY DISK: {reason}",
            file=sys.stderr,
            flush=True,
        )
    pace = GATE_PACE if parsed.gate else Pace()
    run = asyncio.run(conduct(folder, pace, seed, seconds, is_bounded=not reason, show=_show))
    for name, count in run.counts.items():
        print(f"    {count:>12,} {name}")
    for name, verdict in run.verdicts.items():
        print(f"    {verdict.second:>14,.0f} -> {verdict.last:>14,.0f} {name}")
    for problem in run.problems:
        print(f"!!! {problem}")
    print(f"soak: {len(run.problems)} problems in {run.seconds:.0f} s, seed {seed}", flush=True)
    return run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and keep the results; return the exit status."""
    parsed = parse(sys.argv[1:] if arguments is None else arguments)
    if parsed.render:
        write_page(read_kept())
        return 0
    commit = current_commit()
    machine = {name: text for name, text in describe().items() if name in FACTS}
    # A run that is ended must end its processes, and unmount its volumes: `asyncio.run` cancels it
    # at SIGINT, which a shell lets a program in the background ignore.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    if parsed.directory is not None:
        parsed.directory.mkdir(parents=True, exist_ok=True)
        run = run_in(parsed.directory.resolve(), parsed)
    else:
        with tempfile.TemporaryDirectory(
            prefix="kafkalog-soak-", ignore_cleanup_errors=True
        ) as name:
            run = run_in(Path(name), parsed)
    if not (parsed.gate or parsed.no_results):
        kept = keep(run, machine, commit)
        write_page(kept)
    return 1 if run.problems else 0


if __name__ == "__main__":
    sys.exit(main())
