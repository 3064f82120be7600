"""Garbage collection in processes forked by Spark, and in no others."""

from __future__ import annotations

import subprocess
import sys

# As the daemon of Spark, which is recognised by the main module of the process.
SCRIPT = """
import gc, sys
from importlib.machinery import ModuleSpec
from kafkalog.spark.workers import disable_gc

disable_gc()
assert gc.get_freeze_count() == 0
sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)
disable_gc()
frozen = gc.get_freeze_count()
assert frozen > 1000
kept = [[] for _ in range(10)]
disable_gc()
assert gc.get_freeze_count() == frozen
"""


def test_disable_gc_freezes_once_and_only_in_a_worker() -> None:
    """In another process, because it changes the collector."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=False, capture_output=True, text=True, timeout=120
    )
    assert ("", 0) == (done.stderr, done.returncode)
