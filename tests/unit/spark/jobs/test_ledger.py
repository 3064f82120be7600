"""Files of a job, which a run after a kill reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kafkalog.clock import SystemClock
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.jobs.ledger import JobLedger
from tests.support.manual_time import ManualClock
from tests.support.simulated_disk import PowerCut, SimulatedDisk

WORK = Path("/jobs")
ARGUMENTS = {"job": "test", "read": {"path": "/data"}}


def test_ledger_keeps_its_content_for_the_next_run(tmp_path: Path) -> None:
    """Tasks, results, facts and the report of the job."""
    ledger = JobLedger.begin(tmp_path, "one", ARGUMENTS)
    ledger.plan("keys", [{"n": 0}, {"n": 1}])
    ledger.record_done("keys", 1, {"rows": 5})
    ledger.finish("marks", {"chunks": [[0, 1, "a.bits", 0, 9]]})
    again = JobLedger.begin(tmp_path, "one", ARGUMENTS)
    again.plan("keys", [])

    assert ARGUMENTS == again.arguments
    assert [{"n": 0}, {"n": 1}] == again.tasks("keys")
    assert {1: {"rows": 5}} == again.done("keys")
    assert {"chunks": [[0, 1, "a.bits", 0, 9]]} == again.facts("marks")
    assert again.facts("clean") is None
    assert again.report() is None
    again.end({"status": "done"})
    assert {"status": "done"} == JobLedger(tmp_path / "one").report()


def test_ledger_with_other_arguments_is_refused(tmp_path: Path) -> None:
    """The error has the argument that differs."""
    JobLedger.begin(tmp_path, "one", ARGUMENTS)
    with pytest.raises(KafkaLogSparkError, match="other arguments: read") as caught:
        JobLedger.begin(tmp_path, "one", {"job": "test", "read": {"path": "/other"}})

    assert ErrorCode.OPTION_CONFLICT == caught.value.code


@pytest.mark.parametrize("job_id", ["", "..", ".hidden", "a/b", "../../etc", "a b", "x" * 201])
def test_invalid_job_id_is_refused(tmp_path: Path, job_id: str) -> None:
    """Before any write, because it is the name of a directory."""
    with pytest.raises(KafkaLogSparkError, match=r"OPTION_INVALID\] job_id"):
        JobLedger.begin(tmp_path, job_id, ARGUMENTS)
    assert [] == list(tmp_path.iterdir())


def test_ledger_with_invalid_json_raises(tmp_path: Path) -> None:
    """The error has the path."""
    ledger = JobLedger.begin(tmp_path, "one", ARGUMENTS)
    (tmp_path / "one" / "job.json").write_bytes(b"{")
    with pytest.raises(KafkaLogSparkError, match=r"JOB_FAILED.*job\.json") as caught:
        _ = ledger.arguments

    assert str(tmp_path / "one" / "job.json") == caught.value.path


def test_discard_removes_a_folder_with_its_files(tmp_path: Path) -> None:
    """A missing folder is not an error."""
    ledger = JobLedger.begin(tmp_path, "one", ARGUMENTS)
    folder = ledger.folder("staged/3")
    (folder / "file").write_bytes(b"x")
    ledger.discard("staged")
    ledger.discard("staged")

    assert not folder.exists()
    assert ARGUMENTS == ledger.arguments


def later(days: float) -> ManualClock:
    """Return a clock that is `days` ahead."""
    return ManualClock(SystemClock().now_ms() + int(days * 86_400_000))


def test_new_job_removes_expired_ledgers(tmp_path: Path) -> None:
    """A week after the end, or a month after the last change; no other files."""
    (tmp_path / "notes.txt").write_text("not a job")
    (tmp_path / "notes").mkdir()
    for name in ("ended", "given-up", "frame"):
        JobLedger.begin(tmp_path, name, ARGUMENTS).plan("keys", [{"n": 0}])
    JobLedger(tmp_path / "ended").end({"status": "done"})

    def left_after(days: float, name: str) -> set[str]:
        JobLedger.begin(tmp_path, name, ARGUMENTS, clock=later(days))
        return {path.name for path in tmp_path.iterdir() if (path / "job.json").exists()}

    assert {"ended", "given-up", "frame", "a"} == left_after(6.9, "a")
    assert {"given-up", "frame", "a", "b"} == left_after(7.1, "b")
    # A job that is continued stays.
    JobLedger.begin(tmp_path, "frame", ARGUMENTS, clock=later(29))
    assert {"frame", "a", "b", "c"} == left_after(30.1, "c")
    assert (tmp_path / "notes.txt").exists()
    assert (tmp_path / "notes").exists()


def test_power_cut_during_removal_leaves_a_ledger_or_none() -> None:
    """The next job removes the rest; other ledgers are not changed."""

    def old_and_new(disk: SimulatedDisk, number: int | None) -> None:
        old = JobLedger.begin(WORK, "old", ARGUMENTS, disk)
        old.record_done("clean", 0, {})
        old.end({"status": "done"})
        JobLedger.begin(WORK, "young", ARGUMENTS, disk, clock=later(8)).end({"status": "done"})
        if number is not None:
            disk.crash_at(number)
        JobLedger.begin(WORK, "new", ARGUMENTS, disk, clock=later(8.1))

    def names(disk: SimulatedDisk) -> list[str]:
        return disk.list(WORK)

    whole = SimulatedDisk()
    old_and_new(whole, None)
    assert ["new", "young"] == names(whole)
    number = 1
    while True:
        disk = SimulatedDisk()
        try:
            old_and_new(disk, number)
        except PowerCut:
            for _choice, left in disk.crash_states(4, seed=number):
                JobLedger.begin(WORK, "last", ARGUMENTS, left, clock=later(45))
                assert {"status": "done"} == JobLedger(WORK / "young", left).report() or (
                    "young" not in names(left)
                )
                assert "old" not in names(left)
            number += 1
            continue
        break
    assert number > 4


def _steps(disk: SimulatedDisk) -> list[tuple[str, object]]:
    """Use a ledger; return the steps completed before the power cut."""
    done: list[tuple[str, object]] = []
    try:
        ledger = JobLedger.begin(WORK, "one", ARGUMENTS, disk)
        done.append(("arguments", ARGUMENTS))
        ledger.plan("clean", [{"n": 0}])
        done.append(("tasks", [{"n": 0}]))
        ledger.record_done("clean", 0, {"status": "staged"})
        done.append(("done", {0: {"status": "staged"}}))
        ledger.finish("clean", {})
        done.append(("facts", {}))
        ledger.end({"status": "done"})
        done.append(("report", {"status": "done"}))
    except PowerCut:
        pass
    return done


def test_power_cut_at_any_call_keeps_all_completed_steps() -> None:
    """Each file is complete or absent; the next run continues."""
    whole = SimulatedDisk()
    _steps(whole)
    assert whole.mutation_count > 20
    for number in range(1, whole.mutation_count + 1):
        disk = SimulatedDisk()
        disk.crash_at(number)
        done = _steps(disk)
        for _choice, left in disk.crash_states(6, seed=number):
            ledger = JobLedger.begin(WORK, "one", ARGUMENTS, left)
            found: dict[str, Callable[[], object]] = {
                "arguments": partial(getattr, ledger, "arguments"),
                "tasks": partial(ledger.tasks, "clean"),
                "done": partial(ledger.done, "clean"),
                "facts": partial(ledger.facts, "clean"),
                "report": ledger.report,
            }

            assert [value for _, value in done] == [found[name]() for name, _ in done]
