"""Check of rules of form that no other tool checks: `python ci/check_tidy.py`.

Every file: ASCII, at most 100 columns, no absolute paths of a machine. Python and Cython: a module
docstring; functions of at most 60 lines (70 in Cython); no `TODO` without the number of an issue.
Cython: none of `DEF`, `IF`, `include`; a stub for every module. Tests: a docstring on every test.
Below `kafkalog`: no import of the package itself, which imports every package.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PACKAGE = ROOT / "kafkalog"
CLI = PACKAGE / "cli"

COLUMNS = 100
FUNCTION_LINES = {".py": 60, ".pyx": 70}
SUFFIXES = {".py", ".pyx", ".pxd", ".pyi", ".c", ".h", ".md", ".toml", ".yaml", ".java"}
# Tables and lists of versions cannot be wrapped.
UNWRAPPED = {".md", ".toml"}

PRIVATE_PATH = re.compile(r"/(?:home|root|Users)/\w|/tmp/\w+/\w")
TODO = re.compile(r"\b(?:TODO|FIXME|XXX)\b(?!\(#\d+\))")
BANNED = re.compile(r"^\s*(?:DEF\s+\w+\s*=|IF\s+.+:$|include\s+[\"'])")
# Packages import names from the modules that define them: the top module imports every package.
UPWARD = re.compile(r"^\s*(?:from kafkalog import|import kafkalog$)")
CYTHON_FUNCTION = re.compile(r"^(\s*)(?:def|cdef|cpdef)\b(?!\s+class\b)[^=]*\(")


def sources() -> list[Path]:
    """Return the files that the repository holds or is about to hold."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    paths = (ROOT / name for name in listed.stdout.splitlines() if "tests/golden/" not in name)
    return sorted(path for path in paths if path.suffix in SUFFIXES and path.exists())


def line_problems(path: Path, lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield (line number, problem) of what a single line shows."""
    for number, line in enumerate(lines, start=1):
        if not line.isascii():
            yield number, "not ASCII"
        if len(line) > COLUMNS and path.suffix not in UNWRAPPED:
            yield number, f"{len(line)} columns, {COLUMNS} are allowed"
        if PRIVATE_PATH.search(line) and path != Path(__file__).resolve():
            yield number, "a path of somebody's machine"
        if TODO.search(line) and path != Path(__file__).resolve() and path.suffix != ".md":
            yield number, "TODO without the number of an issue"
        if path.suffix in {".pyx", ".pxd"} and BANNED.match(line):
            yield number, "DEF, IF and include are not used"
        if PACKAGE in path.parents and CLI not in path.parents and UPWARD.match(line):
            yield number, "an import of the whole package from within it"


def python_problems(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield what the syntax tree of a Python file shows."""
    tree = ast.parse(text, str(path))
    if tree.body and ast.get_docstring(tree) is None:
        yield 1, "no module docstring"
    is_test = path.name.startswith("test_") and "tests" in path.parts
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        count = (node.end_lineno or node.lineno) - node.lineno + 1
        if count > FUNCTION_LINES[".py"]:
            yield node.lineno, f"{node.name} has {count} lines"
        if is_test and node.name.startswith("test_") and ast.get_docstring(node) is None:
            yield node.lineno, f"{node.name} has no docstring"


def cython_problems(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield what the indentation of a Cython file shows: there is no syntax tree to ask."""
    if not lines or not lines[0].startswith(('"""', "#")):
        yield 1, "no module docstring"
    begun, indent, last = 0, 0, 0
    for number, line in enumerate([*lines, "end"], start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        depth = len(line) - len(line.lstrip())
        is_signature_end = line.lstrip().startswith((")", "]"))
        if begun and depth <= indent and not is_signature_end:
            count = last - begun + 1
            if count > FUNCTION_LINES[".pyx"]:
                yield begun, f"a function of {count} lines"
            begun = 0
        match = CYTHON_FUNCTION.match(line)
        if match and not begun:
            begun, indent = number, len(match[1])
        last = number


def problems(path: Path) -> list[str]:
    """Return one line for each broken rule of a file."""
    text = path.read_text("utf-8")
    lines = text.splitlines()
    found = list(line_problems(path, lines))
    if path.suffix == ".py":
        found += python_problems(path, text)
    elif path.suffix == ".pyx":
        found += cython_problems(lines)
        if not path.with_suffix(".pyi").exists():
            found.append((1, "no stub (.pyi) beside it"))
    name = path.relative_to(ROOT)
    return [f"{name}:{number}: {problem}" for number, problem in sorted(found)]


def main() -> int:
    """Check every source and print what is wrong."""
    paths = sources()
    found = [problem for path in paths for problem in problems(path)]
    for problem in found:
        print(problem)
    print(f"{len(paths)} files, {len(found)} problems of form")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
