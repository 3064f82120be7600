"""Runner of every check, with its setup: `python3 ci/test.py [--quick] [STEP ...]`.

Steps, in the order of the table: lint, layers, types, checks, tests, asan, bench, proof, wheel.
Without a name all run; `--quick` leaves out what is slow and what needs a real Kafka. A failed
step does not stop the later ones; the exit status is 1 if any failed. What keeps one core busy
comes first, in lanes of which two run side by side, the longest before the others; each of these
steps is shown when it ends. The tests follow, which have two cores to themselves and stream their
output, then a table of all steps, and the last line is pytest's own summary.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import environment

ROOT = environment.ROOT
COUNTED = re.compile(r"\b\d+ (?:passed|failed|skipped|errors?|deselected)\b.* in [\d.]+s")
LANES_AT_ONCE = 2
# Longest time for which the children of an ended step may continue to write.
EXIT_WAIT_SECONDS = 20
GROUPS = ("lint", "layers", "types", "checks", "tests", "asan", "bench", "proof", "wheel")


@dataclass(frozen=True)
class Step:
    """
    One command.

    Attributes:
        group: its name on the command line.
        lane: steps of different lanes run at the same time, those of one lane in sequence; None
            runs it alone, after all others.
    """

    group: str
    title: str
    command: Sequence[str | Path]
    folder: Path = ROOT
    slow: bool = False
    lane: int | None = None


@dataclass(frozen=True)
class Outcome:
    """Result of a step; `counted` is its last line that counts tests, if there is one."""

    step: Step
    status: int
    seconds: float
    counted: str


def steps(python: Path, *, quick: bool) -> list[Step]:
    """Return every step there is, in order."""
    tool = python.parent
    compiled = sorted(
        f"kafkalog.{path.parent.name}.{path.stem}" for path in (ROOT / "kafkalog").glob("*/*.pyx")
    )
    every = [
        *_asan(python),
        Step("lint", "ruff check", [tool / "ruff", "check", "."], lane=1),
        Step("lint", "ruff format", [tool / "ruff", "format", "--check", "."], lane=1),
        Step("lint", "cython-lint", [tool / "cython-lint", "kafkalog"], lane=1),
        Step("lint", "codespell", [tool / "codespell"], lane=1),
        Step("layers", "import-linter", [tool / "lint-imports"], lane=1),
        Step("types", "mypy", [tool / "mypy"], lane=1),
        Step("types", "stubtest", [*_stubtest(python), *compiled], lane=1),
        *_check_scripts(python),
        *_bench(python),
        Step("proof", "proof", [python, "-m", "tests.proof", "--gate"], slow=True, lane=4),
        Step("proof", "soak", [python, "-m", "tests.soak", "--gate"], slow=True, lane=4),
        Step("wheel", "wheel", [python, "ci/check_wheel.py"], slow=True, lane=5),
        Step("tests", "pytest", _pytest(python, quick=quick)),
    ]
    return [step for step in every if not (quick and step.slow)]


def _stubtest(python: Path) -> list[str | Path]:
    settings = ["--mypy-config-file", "pyproject.toml", "--allowlist", "ci/stubtest-allowlist.txt"]
    return [python, "-m", "mypy.stubtest", *settings]


def _check_scripts(python: Path) -> list[Step]:
    """Every quick `ci/check_*.py`; the wheel check is a separate step."""
    names = sorted(path.name for path in (ROOT / "ci").glob("check_*.py"))
    names.remove("check_wheel.py")
    return [
        Step("checks", name.removesuffix(".py"), [python, f"ci/{name}"], lane=1) for name in names
    ]


def _pytest(python: Path, *, quick: bool) -> list[str | Path]:
    workers = ["-n", str(min(2, os.cpu_count() or 1)), "--dist", "loadgroup"]
    # Of some slow tests a sample is run where they are not.
    chosen = "not slow and not interop" if quick else "not sample"
    return [python, "-m", "pytest", "-q", "--durations=30", *workers, "-m", chosen]


def _asan(python: Path) -> list[Step]:
    if not (ROOT / "ci" / "asan.py").exists():
        return []
    return [Step("asan", "asan", [python, "ci/asan.py"], slow=True, lane=0)]


def _bench(python: Path) -> list[Step]:
    folder = ROOT / "asv_bench"
    asv: list[str | Path] = [python, "-m", "asv"]
    suite: list[str | Path] = [python, "-m", "asv_bench.suite", "--rehearse", "records"]
    instructions: list[str | Path] = [python, "-m", "asv_bench.instructions", "--if-valgrind"]
    return [
        Step("bench", "asv check", [*asv, "check", "-E", "existing"], folder, lane=2),
        Step("bench", "benchmarks once", [python, "ci/bench_once.py"], slow=True, lane=2),
        Step("bench", "suite once", suite, slow=True, lane=2),
        Step("bench", "instructions", instructions, slow=True, lane=3),
    ]


def perform_all(plan: Sequence[Step]) -> list[Outcome]:
    """Run the lanes, two side by side, then the steps without one in order."""
    outcomes: list[Outcome] = []
    lanes = [
        [step for step in plan if step.lane == lane]
        for lane in sorted({step.lane for step in plan if step.lane is not None})
    ]
    aside = len(lanes) > 1
    with ThreadPoolExecutor(LANES_AT_ONCE) as pool:
        for ended in pool.map(lambda lane: [perform(step, aside=aside) for step in lane], lanes):
            outcomes += ended
    return outcomes + [perform(step) for step in plan if step.lane is None]


def perform(step: Step, *, aside: bool = False) -> Outcome:
    """Run one step, show its output (at its end if other steps run), and return its result."""
    words = [str(word) for word in step.command]
    shown = [f"\n=== {step.group}: {step.title}\n\n"]
    if not aside:
        print(shown[0], end="", flush=True)
    begun = time.monotonic()
    # Some tools start others by name (cython-lint: pycodestyle), so theirs must be found first.
    path = f"{environment.PYTHON.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    variables = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}
    counted = ""
    with subprocess.Popen(
        words,
        cwd=step.folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        ended = threading.Event()
        threading.Thread(target=_kill_remaining, args=(process, ended), daemon=True).start()
        try:
            for line in process.stdout:
                shown.append(line)
                if not aside:
                    print(line, end="", flush=True)
                if COUNTED.search(line):
                    counted = line.strip()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            ended.set()
    if aside:
        # In one call: another lane may print as well.
        print("".join(shown), end="", flush=True)
    return Outcome(step, process.returncode, time.monotonic() - begun, counted)


def _kill_remaining(process: subprocess.Popen[str], ended: threading.Event) -> None:
    """End what a step has left running, which would hold its output open for ever."""
    process.wait()
    if not ended.wait(EXIT_WAIT_SECONDS):
        print(f"ending what process {process.pid} has left running", flush=True)
        os.killpg(process.pid, signal.SIGKILL)


def show(outcomes: Sequence[Outcome], seconds: float, *, say: Callable[[str], None]) -> None:
    """Print the table of steps, and at the very end the output of pytest."""
    say("")
    width = max(len(outcome.step.title) for outcome in outcomes)
    for outcome in outcomes:
        verdict = "ok" if outcome.status == 0 else f"FAILED ({outcome.status})"
        step = outcome.step
        say(f"  {step.group:<7} {step.title:<{width}} {outcome.seconds:7.1f} s  {verdict}")
    failed = [outcome.step.title for outcome in outcomes if outcome.status != 0]
    verdict = f"FAILED: {', '.join(failed)}" if failed else "all steps ok"
    say(f"\n{len(outcomes)} steps in {seconds:.0f} s: {verdict}")
    for outcome in outcomes:
        if outcome.step.title == "pytest":
            say(f"pytest: {outcome.counted or 'no summary: see above'}")


def main() -> int:
    """Parse the command line, prepare, run the steps, report."""
    parser = argparse.ArgumentParser(description="Run every check of the project, or some.")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--quick", action="store_true", help="leave out slow and interop tests")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.steps) - set(GROUPS))
    if unknown:
        parser.error(f"no step {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    begun = time.monotonic()
    try:
        python = environment.ensure("dev")
    except environment.SetupError as error:
        print(f"test: {error}", file=sys.stderr)
        return 1
    chosen = set(arguments.steps or GROUPS)
    plan = [step for step in steps(python, quick=arguments.quick) if step.group in chosen]
    outcomes = perform_all(plan)
    show(outcomes, time.monotonic() - begun, say=print)
    return 1 if any(outcome.status != 0 for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
