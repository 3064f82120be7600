"""Copies of logs: the files that tasks of the job write, without Spark."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kafkalog import LogConfig, LogManager, Record, open_log
from kafkalog.files.posix import PosixFileSystem
from kafkalog.spark.errors import KafkaLogSparkError
from kafkalog.spark.group_progress import GroupProgress
from kafkalog.spark.jobs.copying import copy_task, finish_copy, plan_copy
from kafkalog.spark.jobs.job_arguments import JobReport, read_options
from kafkalog.spark.jobs.ledger import JobLedger

CONFIG = LogConfig(segment_bytes=3_000)


def made(root: Path) -> Path:
    """Create a topic of two partitions, some of whose records were deleted."""
    data = root / "data"
    with LogManager([data]) as manager:
        manager.create_topic("orders", 2, {"segment.bytes": "3000"})
        for number in (0, 1):
            log = manager.log("orders", number)
            for first in range(0, 120, 4):
                log.append([Record(key=b"k", value=b"%d" % (first + at)) for at in range(4)] * 3)
        manager.log("orders", 0).delete_records(150)
    return data


def planned(data: Path, out: Path, task_bytes: int = 5_000) -> JobLedger:
    """Plan a copy."""
    arguments = {"job": "copy", "read": read_options(data, None), "out": str(out)}
    ledger = JobLedger.begin(out.with_name("jobs"), "one", arguments)
    plan_copy(ledger, out, task_bytes)
    return ledger


def run(ledger: JobLedger, numbers: list[int] | None = None) -> None:
    """Run the tasks of these numbers, or all."""
    for number, task in enumerate(ledger.tasks("copy")):
        if numbers is None or number in numbers:
            list(copy_task(ledger, number, task))


def finished(ledger: JobLedger, out: Path) -> JobReport:
    """End a job whose tasks have run."""
    return finish_copy(ledger, out, ledger.done("copy"), time.monotonic())


def logs(directory: Path) -> dict[str, bytes]:
    """Return the content of all log files."""
    found = directory.glob("*/*.log")
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def test_copy_equals_the_segments_and_bounds_of_the_logs(tmp_path: Path) -> None:
    """Also topic ids and log starts; a manager opens it and appends at the end."""
    data, out = made(tmp_path), tmp_path / "out"
    ledger = planned(data, out)
    run(ledger)
    report = finished(ledger, out)

    assert ("done", 2) == (report.status, report.totals["copied"])
    assert logs(data) == logs(out)
    assert sum(map(len, logs(data).values())) == report.totals["bytes"]
    for path in data.glob("*/*.log"):
        copy = out / path.relative_to(data)
        assert path.stat().st_mtime_ns // 10**6 == copy.stat().st_mtime_ns // 10**6
    ids = [(at / "orders-0" / "partition.metadata").read_bytes() for at in (data, out)]
    assert ids[0] == ids[1]
    assert not list(out.glob("*/*.tmp"))
    with LogManager([out]) as manager:
        log = manager.log("orders", 0)
        assert (150, 360) == (log.log_start_offset, log.log_end_offset)
        assert 360 == log.append([Record(value=b"more")]).first_offset
        assert list(range(150, 361)) == [record.offset for record in log.records()]


def test_copy_includes_internal_topics(tmp_path: Path) -> None:
    """Queries leave them out; a backup needs the positions of groups."""
    data, out = made(tmp_path), tmp_path / "out"
    GroupProgress((str(data),), "etl").publish({"orders": {"0": 170, "1": 7}})
    ledger = planned(data, out)
    run(ledger)
    assert "done" == finished(ledger, out).status
    assert any(name.startswith("__consumer_offsets-") for name in logs(out))
    assert logs(data) == logs(out)


def test_copy_of_a_growing_log_ends_at_the_planned_end(tmp_path: Path) -> None:
    """Later appends are not copied, nor half a batch."""
    data, out = made(tmp_path), tmp_path / "out"
    ledger = planned(data, out)
    with open_log(data / "orders-1", config=CONFIG) as log:
        for _more in range(20):
            log.append([Record(value=b"later" * 20)])
    run(ledger)

    assert "done" == finished(ledger, out).status
    with open_log(out / "orders-1", read_only=True) as log:
        assert 360 == log.log_end_offset
        assert [] == list(log.recovery_report.cut)


def test_copy_of_a_changed_partition_is_removed_and_reported(tmp_path: Path) -> None:
    """The other partition is copied."""
    data, out = made(tmp_path), tmp_path / "out"
    ledger = planned(data, out)
    second = sorted((data / "orders-0").glob("*.log"))[1]
    second.write_bytes(second.read_bytes()[:-1])
    run(ledger)
    report = finished(ledger, out)

    assert "incomplete" == report.status
    assert ["changed", "copied"] == [each["status"] for each in report.partitions]
    assert f"{second} is gone, or is shorter" in str(report)
    assert ["orders-1"] == [path.name for path in out.iterdir() if path.is_dir()]


def test_repeated_copy_copies_only_missing_segments(tmp_path: Path) -> None:
    """Complete segments stay; a temporary file is written again."""
    data, out = made(tmp_path), tmp_path / "out"
    ledger = planned(data, out)
    run(ledger, [0])
    done = {path: path.stat().st_ino for path in out.glob("*/*.log")}
    waiting = next(
        path for path in data.glob("*/*.log") if not (out / path.relative_to(data)).exists()
    )
    torn = out / waiting.relative_to(data)
    torn.parent.mkdir(exist_ok=True)
    torn.with_name(torn.name + ".tmp").write_bytes(b"x" * 10_000)
    run(ledger)

    assert done
    assert "done" == finished(ledger, out).status
    assert logs(data) == logs(out)
    assert done == {path: path.stat().st_ino for path in done}


def test_copy_to_an_existing_partition_is_refused(tmp_path: Path) -> None:
    """No file is overwritten."""
    data, out = made(tmp_path), tmp_path / "out"
    with open_log(out / "orders-1") as log:
        log.append([Record(value=b"mine")])
    with pytest.raises(KafkaLogSparkError, match=r"OPTION_CONFLICT.*orders-1 exists already"):
        planned(data, out)

    assert PosixFileSystem().stat(out / "orders-0") is None
