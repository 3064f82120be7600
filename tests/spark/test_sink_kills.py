"""A query that writes is killed again and again, and every row is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkalog import LogManager
from tests.support.sink_query import TOPIC
from tests.support.spark_session import ROOT, environment, why_not

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

# Kills of one run, at every moment at least one; 50 in the nightly one.
KILLS = int(os.environ.get("KAFKALOG_SINK_KILLS", "3"))
BATCHES = KILLS + 3
ROWS = 3_000


def start(directory: Path) -> subprocess.Popen[bytes]:
    """Start the query, as the leader of a process group."""
    with (directory / "query.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.support.sink_query", str(directory)],
            cwd=ROOT,
            env={**os.environ, **environment()},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole group: driver, JVM and Python workers at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=60)


def wait_for(
    process: subprocess.Popen[bytes], directory: Path, pattern: str, files: set[Path]
) -> None:
    """Wait until a file matches that was not there before, or the query has ended."""
    while process.poll() is None:
        if set(directory.glob(pattern)) - files:
            return
        # Spark is what is waited for.
        with_timeout(process)


def with_timeout(process: subprocess.Popen[bytes]) -> None:
    """Wait a moment, or for the end of the query."""
    try:
        process.wait(timeout=0.02)
    except subprocess.TimeoutExpired:
        return


def test_stream_write_killed_repeatedly_has_every_row_once(tmp_path: Path) -> None:
    """Killed at different moments of its batches, some between intent and ledger."""
    reason = why_not()
    if reason is not None:
        pytest.skip(f"NOT TESTED with Spark: {reason}")
    (tmp_path / "in").mkdir()
    for batch in range(BATCHES):
        rows = pa.table({"value": pa.array(range(batch * ROWS, batch * ROWS + ROWS), pa.int64())})
        pq.write_table(rows, tmp_path / "in" / f"{batch:04}.parquet")
    # Last action of the query before it is killed: planned, staged, committed a batch.
    moments = [
        "checkpoint/offsets/[0-9]*",
        "data/.kafkalog-sink-staging/*/*.log",
        "checkpoint/commits/[0-9]*",
    ]
    killed = 0
    for number in range(KILLS):
        moment = moments[number % len(moments)]
        files = set(tmp_path.glob(moment))
        process = start(tmp_path)
        try:
            wait_for(process, tmp_path, moment, files)
        finally:
            if process.poll() is None:
                kill(process)
                killed += 1
    last = start(tmp_path)
    try:
        assert 0 == last.wait(timeout=300), (tmp_path / "query.log").read_text()[-3000:]
    finally:
        if last.poll() is None:
            kill(last)
    assert killed == KILLS
    with LogManager([tmp_path / "data"]) as manager:
        found: Counter[int] = Counter()
        for number in (0, 1):
            log = manager.log(TOPIC, number)
            records = list(log.records())
            assert list(range(log.log_end_offset)) == [record.offset for record in records]
            found.update(int(record.value or b"") for record in records)
    assert Counter(range(BATCHES * ROWS)) == found
