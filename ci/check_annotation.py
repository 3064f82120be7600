"""Check that no compiled kernel or leaf calls the Python C-API: `python ci/check_annotation.py`.

What `cython -a` shows in yellow, as an exit status. Checked is the generated C of every function
that is declared `noexcept nogil`, in a .pyx or as an inline leaf in a .pxd, wherever it was
expanded; a function named `*_kernel` that is not declared so is a problem too. The C is generated
next to the sources if it is older than they are. `ci/annotate.py FILE` shows the lines.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kafkalog"

FUNCTION = re.compile(
    r"^ *cdef [^=(\n]*?\b(?P<name>\w+)"
    r"\([^()]*(?:\([^()]*\)[^()]*)*\)"
    r"(?P<tail>[^\n]*):$",
    re.MULTILINE,
)
# Calls that Cython scores above 0; reference counting of nothing and line tracing do not count.
CALL = re.compile(
    r"\b(__Pyx_(?!RefNanny|X?GOTREF|X?GIVEREF|Trace)[A-Z]\w*|__pyx_convert_\w+|__PYX_ERR"
    r"|Py[A-Z][a-z]+_\w+|PyGILState_\w+|PyErr_\w+)\s*\("
)


def generate() -> list[Path]:
    """Bring the generated C up to date, as setup.py would, and return its files."""
    os.chdir(ROOT)
    with mock.patch("setuptools.setup"):
        runpy.run_path("setup.py")
    return sorted(PACKAGE.glob("*/*.pyx"))


def declared(sources: list[Path]) -> tuple[dict[str, str], list[str]]:
    """Return (mangled C name -> place in the sources) of all nogil functions, and problems."""
    functions = {}
    problems = []
    for path in sources:
        text = path.read_text("utf-8")
        for match in FUNCTION.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            place = f"{path.relative_to(ROOT)}:{line}: {match['name']}"
            if match["tail"].split() == ["noexcept", "nogil"]:
                modules = ("kafkalog", path.parent.name, path.stem)
                mangled = "_".join(["__pyx_f", *(f"{len(each)}{each}" for each in modules)])
                functions[f"{mangled}_{match['name']}"] = place
            elif match["name"].endswith("_kernel"):
                problems.append(f"{place} is a kernel and not `noexcept nogil`")
    return functions, problems


def bodies(text: str) -> Iterator[tuple[str, str]]:
    """Yield (mangled name, body) of every function that a generated C file defines."""
    for match in re.finditer(r"^static [^;{}]*?\b(__pyx_f_\w+)\([^;{}]*\) \{$", text, re.MULTILINE):
        body = text[match.end() : text.index("\n}\n", match.end())]
        yield match[1], re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)


def main() -> int:
    """Print each problem; the exit status is 1 if there is one."""
    modules = generate()
    functions, problems = declared([*modules, *sorted(PACKAGE.glob("*/*.pxd"))])
    seen = set()
    for module in modules:
        for mangled, body in bodies(module.with_suffix(".c").read_text("utf-8")):
            if mangled in functions:
                seen.add(mangled)
                calls = sorted(set(CALL.findall(body)))
                if calls:
                    problems.append(f"{functions[mangled]} calls {', '.join(calls)}")
    # Cython leaves an unused leaf out; a missing kernel would be an error of this check.
    problems += [
        f"{place} was not found in the generated C"
        for mangled, place in functions.items()
        if mangled not in seen and place.split(":")[0].endswith(".pyx")
    ]
    for problem in sorted(set(problems)):
        print(problem)
    print(f"{len(seen)} kernels and leaves, {len(set(problems))} problems")
    return 1 if problems or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
