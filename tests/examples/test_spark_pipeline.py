"""Example of a pipeline through Spark: it ends, and its sums equal those of pandas."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark_session import ROOT, environment, why_not

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_spark_pipeline_counts_every_flight_once(tmp_path: Path) -> None:
    """Two runs from one checkpoint, a compaction, an export; pandas has the same sums."""
    reason = why_not()
    if reason is not None:
        pytest.skip(f"NOT TESTED with Spark: {reason}")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "examples/spark_pipeline.py", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, **environment()},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert 0 == done.returncode, done.stderr[-3000:]
    lines = done.stdout.splitlines()[-4:]
    assert 4 == len(lines), done.stdout
    appended = [int(re.findall(r"\d+", line)[0]) for line in lines[:2]]
    written, left = (int(each) for each in re.findall(r"\d+", lines[2]))
    assert 12_126 == sum(appended)
    assert left < written
    assert f"all {left} sums are those of pandas" == lines[3]
