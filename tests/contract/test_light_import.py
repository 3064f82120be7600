"""`import kafkalog` stays light: nothing optional, nothing that only the command line needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNWANTED = (
    *("pyarrow", "pyspark", "pandas", "typer", "rich", "click"),
    *("cramjam", "isal", "lz4", "zstandard"),
)

LIST_UNWANTED = """
import importlib, sys
importlib.import_module(sys.argv[1])
print(",".join(sorted(set(sys.argv[2:]) & set(sys.modules))))
"""


@pytest.mark.parametrize("module", ["kafkalog", "kafkalog.errors"])
def test_import_loads_nothing_optional(module: str) -> None:
    """In a fresh interpreter, with all of the optional packages installed."""
    result = subprocess.run(
        [sys.executable, "-c", LIST_UNWANTED, module, *UNWANTED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert result.stdout.strip() == ""
