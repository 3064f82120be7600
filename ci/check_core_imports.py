"""Fail if a source of `_core` or `_engine` imports a forbidden module or declares a system call.

import-linter reads Python files only, not the compiled packages. `_core` may import itself,
`kafkalog.errors`, the C library, CPython's C API, Cython, and NumPy (as Python objects, never its C
API), and declares no function of `unistd.h` or `time.h`; `_engine` may also import `_core` and
`kafkalog.model`. Usage: `python ci/check_core_imports.py`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("_core", "_engine")

# crc32c is the portable fallback of the checksum kernel, imported on first use, as datetime is.
ALLOWED_IMPORTS = {"__future__", "crc32c", "cython", "datetime", "numpy", "sys", "typing"}
ALLOWED_CIMPORTS = {"cython", "cpython", "libc"}
ALLOWED_OWN = {
    "_core": ("kafkalog._core", "kafkalog.errors"),
    "_engine": ("kafkalog._core", "kafkalog._engine", "kafkalog.errors", "kafkalog.model"),
}
# Processes, clocks and files belong to `_engine`.
SYSTEM_HEADERS = re.compile(r"^\s*cdef extern from \"<?(?:unistd|time|sys/time|fcntl)\.h>?\"")

STATEMENT = re.compile(
    r"^\s*(?:from\s+(?P<origin>[\w.]+)\s+(?P<kind>c?import)\s+(?P<names>.+)"
    r"|(?P<plain>c?import)\s+(?P<modules>.+))$"
)


def problems_of(path: Path, lines: list[str]) -> list[str]:
    """Return one line for each forbidden import and each header of system calls."""
    found = []
    for number, line in enumerate(lines, start=1):
        if path.parent.name == "_core" and SYSTEM_HEADERS.match(line):
            found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
        match = STATEMENT.match(line.split("#", 1)[0].rstrip())
        if match is None:
            continue
        kind = match["kind"] or match["plain"]
        place = f"{path.relative_to(ROOT)}:{number}"
        own = ALLOWED_OWN[path.parent.name]
        refused = [module for module in _modules(match) if not _is_allowed(module, kind, own)]
        found += [f"{place}: {kind} of {module}" for module in refused]
    return found


def _modules(match: re.Match[str]) -> list[str]:
    if match["origin"] is None:
        return [part.split(" as ")[0].strip() for part in match["modules"].split(",")]
    if match["origin"] == "kafkalog":
        names = match["names"].strip("() ").split(",")
        return [f"kafkalog.{name.split(' as ')[0].strip()}" for name in names if name.strip()]
    return [match["origin"]]


def _is_allowed(module: str, kind: str, own: tuple[str, ...]) -> bool:
    if module in own or module.startswith((*(f"{each}." for each in own), ".")):
        return True
    if kind == "cimport":
        return module.split(".")[0] in ALLOWED_CIMPORTS
    return module in ALLOWED_IMPORTS or module.split(".")[0] in {"numpy", "collections"}


def main() -> int:
    """Check every source of the compiled packages and print what is wrong."""
    sources = sorted(
        path
        for package in PACKAGES
        for path in (ROOT / "kafkalog" / package).iterdir()
        if path.suffix in {".pyx", ".pxd", ".py"}
    )
    found = [
        problem
        for path in sources
        for problem in problems_of(path, path.read_text("utf-8").splitlines())
    ]
    for problem in found:
        print(problem)
    print(f"{len(sources)} sources, {len(found)} forbidden imports")
    return 1 if found or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
