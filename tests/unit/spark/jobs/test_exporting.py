"""Files that a task of `export` writes, and those that a killed task has left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from kafkalog.spark.jobs.exporting import export_task, finish_files
from kafkalog.spark.jobs.job_arguments import ranges_as_json, read_options
from kafkalog.spark.jobs.ledger import JobLedger
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import LogSplit
from tests.support.logs import manual_log, numbered
from tests.support.spark_rows import planned


def begun(tmp_path: Path) -> tuple[JobLedger, dict[str, Any]]:
    """Return the ledger of a job with one log, and its only task."""
    with manual_log(tmp_path / "data" / "t-0", segment_bytes=500) as log:
        for first in range(0, 40, 5):
            log.append(numbered(first, 5))
    read = read_options(tmp_path / "data", None)
    arguments = {
        "read": read,
        "out": str(tmp_path / "out"),
        "codec": "zstd",
        "partition_by": ["date"],
    }
    ledger = JobLedger.begin(tmp_path / "jobs", "one", {**arguments, "headers": False})
    (split,) = planned(ReadOptions.parse(read))
    assert isinstance(split, LogSplit)
    return ledger, {"ranges": ranges_as_json(split, {("t", 0): 0})}


def test_repeated_task_writes_the_same_file(tmp_path: Path) -> None:
    """The name is the same; the end of the job removes only files of killed attempts."""
    ledger, task = begun(tmp_path)
    for _ in range(2):
        list(export_task(ledger, 0, task))
    files = ledger.done("export")[0]["files"]
    (path,) = [Path(each["path"]) for each in files]
    killed = path.with_name(f".{path.name}.{'0' * 32}")
    killed.write_bytes(b"half of it")
    other = path.with_name(".of-others.parquet.1")
    other.write_bytes(b"of somebody else")
    finish_files(tmp_path / "out", "one", [files])

    assert "t-0-00000000000000000000-00000000000000000040.parquet" == path.name
    assert [other.name, path.name] == sorted(each.name for each in path.parent.iterdir())
    assert list(range(40)) == pq.ParquetFile(path).read(["offset"])["offset"].to_pylist()
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_bytes())
    assert [(0, 39, 40)] == [
        (each["first_offset"], each["last_offset"], each["rows"]) for each in manifest["files"]
    ]
