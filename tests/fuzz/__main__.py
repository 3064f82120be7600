"""Run a fuzz target: `python -m tests.fuzz TARGET [--seconds N] [--asan] [LIBFUZZER ARGUMENTS]`.

Without a target it lists the targets; `all --asan` runs each. Inputs found by libFuzzer are written
to the folder `.fuzz/TARGET`, never committed; a failing input is kept in `.fuzz/` and printed. The
kernels are not instrumented, since any C compiler builds them: the instrumented slow reference in
Python guides the fuzzer, because it has a branch for each case of a kernel.

With `--asan` the target runs in a copy of the sources that is built with AddressSanitizer and
UBSan, like the tests of the core (`ci/asan.py`): with all inputs found so far and with random
changes of them, because the fuzzer has no counters there (`mutations.py`).
"""

from __future__ import annotations

import argparse
import importlib
import logging
import secrets
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The oracles: their branches guide the search.
INSTRUMENTED = (
    "tests.support.reference",
    "tests.support.reference_records",
    "tests.support.reference_messages",
    "tests.support.reference_codecs",
    "tests.support.reference_conversion",
    "tests.support.row_cases",
    "tests.support.slow_staging",
    "tests.fuzz.appends",
    "tests.fuzz.arrow_input",
    "tests.fuzz.cleaning",
    "tests.fuzz.compressed_runs",
    "tests.fuzz.indexes",
    "tests.fuzz.inputs",
    "tests.fuzz.replies",
    "tests.fuzz.runs",
    "tests.fuzz.state_files",
)
INPUT_BYTES_MAX = 2048


def names() -> list[str]:
    """Return the targets' names."""
    return sorted(path.name for path in (ROOT / "tests" / "fuzz" / "corpus").iterdir())


def fuzz(name: str, seconds: int, found: Path, arguments: list[str]) -> int:
    """Run a target until it fails or the time is over; new inputs are written to `found`."""
    import atheris

    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        targets = importlib.import_module("tests.fuzz.targets")
    (found / name).mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-artifact_prefix={found}/{name}-",
        "-timeout=20",
        "-print_final_stats=1",
        *arguments,
    ]
    folders = [str(found / name), str(targets.CORPUS / name)]
    atheris.Setup(["fuzz", *options, *folders], targets.TARGETS[name])
    atheris.Fuzz()
    return 0


def change(name: str, seconds: float, found: Path, seed: int) -> int:
    """Run a target without a fuzzer, with the inputs found so far and changes of them."""
    # Skipped bytes are logged, and most bytes are skipped.
    logging.disable()
    targets = importlib.import_module("tests.fuzz.targets")
    mutations = importlib.import_module("tests.fuzz.mutations")
    paths = [*targets.corpus_of(name), *sorted((found / name).glob("*"))]
    inputs = [path.read_bytes() for path in paths]
    target = targets.TARGETS[name]
    made = f"{name}: {len(inputs)} inputs, seed {seed}"
    sys.stdout.write(f"{made}\n")
    sys.stdout.flush()
    count = mutations.run_mutations(
        target, inputs, seconds=seconds, size_max=INPUT_BYTES_MAX, seed=seed
    )
    sys.stdout.write(f"{made}, {count} run\n")
    return 0


def main(arguments: list[str]) -> int:
    """Parse the command line and fuzz."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Run a fuzz target.")
    parser.add_argument("target", nargs="?", help="its name; without one all names are shown")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--seed", type=int, help="of blind changes; a fresh one if not given")
    parser.add_argument("--asan", action="store_true", help="with the sanitizers of ci/asan.py")
    parser.add_argument("--blind", action="store_true", help="changes at random, no fuzzer")
    parser.add_argument("--found", type=Path, default=ROOT / ".fuzz", help="where finds go")
    options, rest = parser.parse_known_args(arguments)
    if options.target is None:
        sys.stdout.write("\n".join(names()) + "\n")
        return 0
    seed = secrets.randbits(32) if options.seed is None else options.seed
    if options.asan:
        import runpy

        asan = runpy.run_path(str(ROOT / "ci" / "asan.py"))
        where = ["--seconds", str(options.seconds), "--found", str(options.found.resolve())]
        where += ["--seed", str(seed)]
        chosen = names() if options.target == "all" else [options.target]
        runs = [["-m", "tests.fuzz", name, "--blind", *where] for name in chosen]
        return int(asan["run_python"](*runs))
    if options.blind:
        chosen = names() if options.target == "all" else [options.target]
        return max(change(name, options.seconds, options.found, seed) for name in chosen)
    return fuzz(options.target, options.seconds, options.found, rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
