"""`import kafkalog` stays light, and so does what Spark's planning processes import.

Nothing optional, nothing that only the command line needs; the package itself loads what a name
stands for when that is asked for, and who plans or reads for Spark never loads what writes a log.
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

ENGINE = ("numpy", *(f"kafkalog.{room}" for room in ("_core", "files", "log", "records", "state")))
# What only who opens, writes, converts, cleans or manages logs needs.
WRITING = (
    *("log.log", "log.opening", "log.local_log", "log.segment", "log.loader", "log.writable"),
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
def test_import_loads_nothing_that_it_can_do_without(
    module: str, unwanted: tuple[str, ...]
) -> None:
    """In a fresh interpreter, with all of the optional packages installed."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LIST_UNWANTED, module, *unwanted],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert result.stdout.strip() == ""
