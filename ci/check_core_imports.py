"""Fail if a source of `_core` or `_engine` imports a forbidden module or declares a system call.

import-linter reads Python files only, not the compiled packages. `_core` may import itself,
`kafkalog.errors`, some modules of the C library and of CPython's C API, Cython, and NumPy (as
Python objects, never its C API). It may declare functions of the C sources in it and of `Python.h`,
and the memory functions of `stdlib.h`. `_engine` may also import `_core` and `kafkalog.model`, and
declare functions of `unistd.h` and `time.h`.

Whole statements are read: over several lines, several on one line, indented, relative ones, and
`cimport`. An import that is no statement (`__import__`, `importlib`) is refused. Usage:
`python ci/check_core_imports.py`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("_core", "_engine")

# crc32c is the portable fallback of the checksum kernel, imported on first use, as datetime is.
ALLOWED_IMPORTS = {
    *("__future__", "collections", "crc32c", "cython", "datetime", "numpy", "sys", "typing"),
}
ALLOWED_CIMPORTS = {
    "cython",
    *(f"libc.{name}" for name in ("errno", "stdint", "stdlib", "string")),
    *("cpython.buffer", "cpython.bytearray", "cpython.bytes", "cpython.exc", "cpython.list"),
    *("cpython.long", "cpython.mem", "cpython.object", "cpython.pycapsule", "cpython.ref"),
    *("cpython.sequence", "cpython.tuple"),
}
# Of `stdlib.h`, which has processes and their environment, too.
ALLOWED_STDLIB = {"calloc", "free", "malloc", "realloc"}
ALLOWED_OWN = {
    "_core": ("kafkalog._core", "kafkalog.errors"),
    "_engine": ("kafkalog._core", "kafkalog._engine", "kafkalog.errors", "kafkalog.model"),
}
CORE_HEADERS = {
    *("Python.h", "stddef.h", "stdlib.h"),
    *("crc32_hw.h", "crc32c_hw.h", "key_hash_hw.h", "mapping_guard.h"),
}
# Processes, clocks and files belong to `_engine`.
ALLOWED_HEADERS = {"_core": CORE_HEADERS, "_engine": CORE_HEADERS | {"time.h", "unistd.h"}}

HEADER = re.compile(
    r"cdef\s+extern\s+from\s+[\"']<?([\w./]+)>?[\"']|^[ \t]*#\s*include\s*[<\"]([\w./]+)"
)
# Texts and comments; code of C in them is no statement, but for its `#include`.
NO_CODE = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|'
    r"'''(?:[^\\]|\\.)*?'''|"
    r'"(?:[^"\\\n]|\\.)*"|'
    r"'(?:[^'\\\n]|\\.)*'|"
    r"#[^\n]*",
    re.DOTALL,
)
STATEMENT = re.compile(
    r"(?:^|[;:])\s*(?:from\s*(?P<origin>\.*[\w.]*)\s+(?P<kind>c?import)\b(?P<names>[^;]+)"
    r"|(?P<plain>c?import)\s+(?P<modules>[^;]+))"
)
DYNAMIC = re.compile(r"\b(__import__|import_module|importlib|exec|eval)\s*\(|\b(sys\.modules)\b")


def problems_of(path: Path, lines: list[str]) -> list[str]:
    """Return one line for each forbidden import and each forbidden header."""
    package = path.parent.name
    where = path.relative_to(ROOT)
    found = []
    for number, line in enumerate(lines, start=1):
        for match in HEADER.finditer(line):
            header = match[1] or match[2]
            if header not in ALLOWED_HEADERS[package]:
                found.append(f"{where}:{number}: functions of {header}")
    for number, statement in statements("\n".join(lines)):
        refused = dict.fromkeys(_refused(statement, path, package))
        found += [f"{where}:{number}: {each}" for each in refused]
    return found


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield first line and text of each statement, without texts and comments."""
    text = NO_CODE.sub(lambda match: "\n" * match[0].count("\n") + " ", text)
    text = text.replace("\\\n", " \x00")
    number, start, depth, pending = 1, 1, 0, ""
    for line in text.split("\n"):
        if not pending:
            start = number
        number += 1 + line.count("\x00")
        depth += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
        pending += " " + line.replace("\x00", "")
        if depth <= 0:
            yield start, pending.strip()
            depth, pending = 0, ""
    if pending:
        yield start, pending.strip()


def _refused(statement: str, path: Path, package: str) -> Iterator[str]:
    for match in DYNAMIC.finditer(statement):
        yield f"{match[1] or match[2]} imports what no statement shows"
    for match in STATEMENT.finditer(statement):
        kind = match["kind"] or match["plain"]
        for module, name in _imported(match, path):
            if not _is_allowed(module, name, kind, ALLOWED_OWN[package]):
                yield f"{kind} of {module}" + (f".{name}" if module == "libc.stdlib" else "")


def _imported(match: re.Match[str], path: Path) -> Iterator[tuple[str, str]]:
    """Yield the absolute modules of a statement, each with the name that is imported of it."""
    if match["plain"] is not None:
        yield from ((each, "") for each in _names(match["modules"]))
        return
    name = match["origin"].lstrip(".")
    level = len(match["origin"]) - len(name)
    above = path.relative_to(ROOT).parts[:-1]
    base = above[: len(above) - level + 1] if level else ()
    origin = ".".join([*base, *([name] if name else [])])
    for each in _names(match["names"]):
        # All names of a package that defines nothing are modules.
        is_package = origin in {"", "kafkalog", "libc", "cpython"}
        yield (f"{origin}.{each}", "") if is_package else (origin, each)


def _names(text: str) -> list[str]:
    parts = (part.split(" as ")[0].strip() for part in text.strip().strip("()").split(","))
    return [each for each in parts if each]


def _is_allowed(module: str, name: str, kind: str, own: tuple[str, ...]) -> bool:
    if module in own or module.startswith(tuple(f"{each}." for each in own)):
        return True
    if kind == "cimport":
        is_safe = module != "libc.stdlib" or name in ALLOWED_STDLIB
        return is_safe and module in ALLOWED_CIMPORTS
    return module in ALLOWED_IMPORTS or module.split(".")[0] in {"numpy", "collections"}


def main() -> int:
    """Check every source of the compiled packages and print what is wrong."""
    sources = sorted(
        path
        for package in PACKAGES
        for path in (ROOT / "kafkalog" / package).iterdir()
        if path.suffix in {".pyx", ".pxd", ".pxi", ".py"}
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
