"""What a process that Spark has forked does for itself, and no other."""

from __future__ import annotations

import subprocess
import sys

# As the daemon of Spark: the module that the process runs says who it is.
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


def test_collector_is_spared_once_and_only_in_a_worker() -> None:
    """Another process, for the collector of this one is the test run's."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=False, capture_output=True, text=True, timeout=120
    )
    assert ("", 0) == (done.stderr, done.returncode)
