"""Where programs that tests and benchmarks start keep what Python has compiled.

An environment may say that nothing is to be written beside the sources. Each program would compile
all it imports anew then, which is more than half of what a short one takes, and of what a worker of
Spark takes until it has something to do.
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
