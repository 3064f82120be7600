"""Imports of `kafkalog` and of Spark's planning processes: they load few modules.

They load no optional package and no module of the command line. The package loads the module of a
name at the first use of the name. Planning and reading for Spark load no module that writes logs.
"""

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

ENGINE = (
    "numpy",
    *(f"kafkalog.{package}" for package in ("_core", "files", "log", "records", "state")),
)
# Modules that only open, write, convert, clean or manage logs.
WRITING = (
    *("log.log", "log.opening", "log.local_log", "log.segment", "log.loader", "log.appender"),
    *("records.packing", "records.validation", "records.conversion"),
    *("state.producer_state_manager", "scheduler", "cleaner", "clients", "doctor", "manager"),
    *("spark.jobs", "spark.sink", "spark.stream", "spark.txn"),
)
OF_PLANNING = tuple(name for name in UNWANTED if name not in ("pyarrow", "pyspark"))

LIST_UNWANTED = """
import importlib, sys
importlib.import_module(sys.argv[1])
print(",".join(sorted(set(sys.argv[2:]) & set(sys.modules))))
"""


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("kafkalog", (*UNWANTED, *ENGINE)),
        ("kafkalog.errors", UNWANTED),
        ("kafkalog.spark.source", (*OF_PLANNING, *(f"kafkalog.{name}" for name in WRITING))),
    ],
)
def test_import_loads_no_unneeded_module(module: str, unwanted: tuple[str, ...]) -> None:
    """In a new interpreter, with all optional packages installed."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LIST_UNWANTED, module, *unwanted],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert result.stdout.strip() == ""
