"""Count instructions a record, and report growth: `python -m asv_bench.instructions [NAME...]`.

    --update       make the counts the tracked numbers (`instructions.json`)
    --list         list the paths
    --if-valgrind  without valgrind print a warning and exit with 0

Counting is done by valgrind's callgrind, on a fixed input, from a mark before a path to a mark
after it (`paths.py`). The numbers are the same in each run to a fraction of a percent, also on a
busy machine; they depend on the code, the compiler and Python. Exit status 1 means that a path
exceeds its limit over the tracked number, 2 that nothing could be counted.

Valgrind's processor has AVX2, SSE4.2 and PCLMULQDQ, and neither AVX-512 nor VPCLMULQDQ, whatever
the real one has: the kernels that are chosen at run time are those of such a processor, the same
everywhere, and are named in the file. Numbers of other kernels, of another Python or compiler are
shown, and nothing is concluded from them. The file may have a smaller limit for a path.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TRACKED = Path(__file__).with_name("instructions.json")
GROWTH_MAX_PERCENT = 5
# Small ones move by a call more or less.
SLACK = 2.0

# Requests to valgrind are sequences of machine code, which only its header has.
MARKS = """
#include <valgrind/callgrind.h>
void begin_counting(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end_counting(const char *name)
{ CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }
"""
NAMED = re.compile(r"^desc: Trigger: Client Request: (.*)$", re.MULTILINE)
TOTAL = re.compile(r"^totals: (\d+)", re.MULTILINE)


class CannotCountError(Exception):
    """Valgrind is missing, or does not work."""


def build_marks(folder: Path) -> Path:
    """Return a library with the requests to start and to stop counting."""
    source, library = folder / "marks.c", folder / "marks.so"
    source.write_text(MARKS)
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise CannotCountError(f"valgrind/callgrind.h or a compiler not found: {result.stderr}")
    return library


def count(names: Sequence[str]) -> dict[str, Any]:
    """Return instructions a record of each path, and what they depend on."""
    if shutil.which("valgrind") is None:
        raise CannotCountError("valgrind not found")
    with tempfile.TemporaryDirectory(prefix="kafkalog-instructions-") as below:
        folder = Path(below)
        marks = build_marks(folder)
        command = [
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={folder}/counted",
            sys.executable,
            *("-m", "asv_bench.instructions.paths", str(marks), str(folder), *names),
        ]
        # Hashed objects have one order, and no module is compiled during the count.
        variables = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
        result = subprocess.run(
            command, capture_output=True, text=True, check=False, env=variables, cwd=ROOT
        )
        if result.returncode:
            raise CannotCountError(result.stderr[-4000:])
        report = json.loads(result.stdout)
        counted = {}
        for dump in folder.glob("counted.*"):
            text = dump.read_text("utf-8", "replace")
            named, total = NAMED.search(text), TOTAL.search(text)
            if named and total:
                counted[named[1]] = int(total[1])
    if set(counted) != set(names):
        raise CannotCountError(f"callgrind has counted {sorted(counted)}, not {sorted(names)}")
    per_record = {name: round(counted[name] / report["records"][name], 1) for name in names}
    return {"built with": toolchain(), "kernels": report["kernels"], "a record": per_record}


def toolchain() -> dict[str, str]:
    """Return what numbers depend on besides the code."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    import numpy

    return {
        "python": ".".join(map(str, sys.version_info[:2])),
        "cython": importlib.metadata.version("cython"),
        "numpy": numpy.__version__,
        "compiler": (version.stdout.splitlines() or ["?"])[0],
    }


def compare(tracked: dict[str, Any], found: dict[str, Any]) -> int:
    """Print each path with its tracked number; return how many grew beyond the limit."""
    comparable = all(tracked.get(part) == found[part] for part in ("built with", "kernels"))
    if not comparable:
        print("!!! counted with other kernels or another toolchain: shown, and not compared !!!")
        for part in ("built with", "kernels"):
            print(f"    {part}: {found[part]}, tracked: {tracked.get(part)}")
    grown, limits = 0, tracked.get("limit, %", {})
    for name, value in found["a record"].items():
        before = tracked.get("a record", {}).get(name)
        if before is None:
            print(f"{name:<32} {value:>10.1f}   not tracked yet: --update")
            continue
        limit = 1 + limits.get(name, GROWTH_MAX_PERCENT) / 100
        grew = value > before * limit + SLACK
        grown += grew and comparable
        verdict = "GREW" if grew else "shrank: --update" if value * limit < before else ""
        print(f"{name:<32} {value:>10.1f} {before:>10.1f} {value / before - 1:>+7.1%}  {verdict}")
    return grown


def main(arguments: list[str]) -> int:
    """Parse the command line, count, compare or update."""
    parser = argparse.ArgumentParser(prog="python -m asv_bench.instructions")
    parser.add_argument("names", nargs="*", metavar="NAME", help="paths; all if none is named")
    parser.add_argument("--update", action="store_true", help="track what is counted")
    parser.add_argument("--list", action="store_true", help="list the paths")
    parser.add_argument(
        "--if-valgrind", action="store_true", help="without valgrind print a warning, exit with 0"
    )
    chosen = parser.parse_args(arguments)
    from asv_bench.instructions.paths import PATHS

    if chosen.list:
        print("\n".join(PATHS))
        return 0
    unknown = sorted(set(chosen.names) - set(PATHS))
    if unknown:
        parser.error(f"no path {', '.join(unknown)}; --list says which there are")
    try:
        found = count(chosen.names or list(PATHS))
    except CannotCountError as error:
        print(f"!!! INSTRUCTIONS WERE NOT COUNTED: {error} !!!")
        return 0 if chosen.if_valgrind and shutil.which("valgrind") is None else 2
    tracked = json.loads(TRACKED.read_text()) if TRACKED.exists() else {}
    grown = compare(tracked, found)
    if chosen.update:
        found["a record"] = {**tracked.get("a record", {}), **found["a record"]}
        found["limit, %"] = tracked.get("limit, %", {})
        TRACKED.write_text(json.dumps(found, indent=2) + "\n")
        return 0
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
