"""The directory of compiled Python files for programs that tests and benchmarks start.

An environment may forbid writing next to the sources. Each program would then compile all its
imports again, which takes more than half of the time of a short program, and of the start of a
worker of Spark.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["kept_bytecode"]

ROOT = Path(__file__).parents[2]


def kept_bytecode() -> dict[str, str]:
    """Return the variables with which a Python keeps its bytecode in `build`."""
    return {
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "pycache"),
    }
