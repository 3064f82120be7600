"""Results of `verify` tasks, which are written and returned again for a repeated task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafkalog.spark.jobs.job_arguments import ranges_as_json, read_options
from kafkalog.spark.jobs.ledger import JobLedger
from kafkalog.spark.jobs.maintenance import verify_task
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import LogSplit
from tests.support.damage import flip, log_file
from tests.support.logs import manual_log, numbered
from tests.support.spark_rows import planned


def begun(work: Path, job_id: str, data: Path) -> JobLedger:
    """Return the ledger of a job that also checks the records."""
    read = read_options(data, None, view="verify")
    arguments = {"job": "verify", "read": read, "deep": True, "sample": None}
    ledger = JobLedger.begin(work, job_id, arguments)
    splits = [each for each in planned(ReadOptions.parse(read)) if isinstance(each, LogSplit)]
    numbers = {(each.topic, each.partition): 0 for split in splits for each in split.ranges}
    ledger.plan("verify", [{"ranges": ranges_as_json(split, numbers)} for split in splits])
    return ledger


def rows_of(ledger: JobLedger) -> list[dict[str, Any]]:
    """Return the rows of the only task of a job."""
    (task,) = ledger.tasks("verify")
    return [row for batch in verify_task(ledger, 0, task) for row in batch.to_pylist()]


def test_repeated_task_returns_its_first_result(tmp_path: Path) -> None:
    """Although the log has changed; another job checks again, and so does an unfinished task."""
    with manual_log(tmp_path / "data" / "t-0", segment_bytes=500) as log:
        for first in range(0, 40, 5):
            log.append(numbered(first, 5))
    flip(log_file(tmp_path / "data" / "t-0"), 100)
    ledger = begun(tmp_path / "jobs", "one", tmp_path / "data")
    (task,) = ledger.tasks("verify")
    cut_short = verify_task(ledger, 0, task)
    next(cut_short)
    cut_short.close()  # type: ignore[attr-defined]
    assert [] == ledger.numbers_done("verify")
    found = rows_of(ledger)
    assert [1, 0] == [found[0]["bad"], found[1]["bad"]]
    assert "CORRUPT_BATCH" in found[0]["error"]
    assert found[1]["error"] is None
    flip(log_file(tmp_path / "data" / "t-0"), 100)

    assert found == rows_of(JobLedger(tmp_path / "jobs" / "one"))
    assert 0 == rows_of(begun(tmp_path / "jobs", "two", tmp_path / "data"))[0]["bad"]
