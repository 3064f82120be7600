"""Write permission: forked children, second writers, closed logs, unwritable directories."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalog
from kafkalog import Record
from kafkalog.errors import (
    ForkedLogError,
    LogClosedError,
    LogLockedError,
    LogPermissionError,
    ReadOnlyLogError,
)
from tests.support.crash_rig import ALONE, Rig

WRITES: dict[str, Callable[[kafkalog.Log], object]] = {
    "append": lambda log: log.append([Record(value=b"v")]),
    "flush": lambda log: log.flush(),
    "roll": lambda log: log.roll(),
    "truncate_to": lambda log: log.truncate_to(0),
    "truncate_fully_and_start_at": lambda log: log.truncate_fully_and_start_at(5),
    "delete_records": lambda log: log.delete_records(1),
}


def in_child(task: Callable[[], None]) -> None:
    """Run `task` in a forked child; an error there is an error here."""
    child = os.fork()
    if not child:
        status = 1
        try:
            task()
            status = 0
        except BaseException:  # noqa: BLE001 - the child reports it by its exit code
            traceback.print_exc()
        finally:
            os._exit(status)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_forked_child_reads_and_every_write_raises(tmp_path: Path) -> None:
    """The child's handle and its close change nothing; the parent continues."""
    with kafkalog.open_log(tmp_path / "orders-0") as log:
        log.append([Record(value=b"one"), Record(value=b"two")], wait="durable")

        def child() -> None:
            assert [b"one", b"two"] == [record.value for record in log.records()]
            for write in WRITES.values():
                with pytest.raises(ForkedLogError):
                    write(log)
            with pytest.raises(LogLockedError):
                kafkalog.open_log(tmp_path / "orders-0")
            log.close()

        in_child(child)
        log.append([Record(value=b"three")])
        with pytest.raises(LogLockedError):
            kafkalog.open_log(tmp_path / "orders-0")
    with kafkalog.open_log(tmp_path / "orders-0") as log:
        assert log.recovery_report.clean
        assert [b"one", b"two", b"three"] == [record.value for record in log.records()]


def test_forked_child_writes_another_log_and_reads_this_one(tmp_path: Path) -> None:
    """The child owns the logs that it opens."""
    with kafkalog.open_log(tmp_path / "orders-0") as log:
        log.append([Record(value=b"parent")])

        def child() -> None:
            with kafkalog.open_log(tmp_path / "orders-0", read_only=True) as reader:
                assert 1 == reader.log_end_offset
            with kafkalog.open_log(tmp_path / "orders-1") as other:
                other.append([Record(value=b"child")], wait="durable")

        in_child(child)
    with kafkalog.open_log(tmp_path / "orders-1") as other:
        assert [b"child"] == [record.value for record in other.records()]


def test_open_log_second_writer_in_this_process_raises(tmp_path: Path) -> None:
    """The error names the process that has the log open; after close the directory is free."""
    with kafkalog.open_log(tmp_path / "orders-0"):
        with pytest.raises(LogLockedError, match="this process") as caught:
            kafkalog.open_log(tmp_path / "orders-0")
        assert caught.value.retriable
    kafkalog.open_log(tmp_path / "orders-0").close()


def test_open_log_second_writer_in_another_process_raises(tmp_path: Path) -> None:
    """Locks hold between processes that share nothing but the disk."""
    program = (
        "import sys, kafkalog\n"
        "try:\n    kafkalog.open_log(sys.argv[1])\n"
        "except kafkalog.LogLockedError as error:\n    print(error)\n"
    )
    with kafkalog.open_log(tmp_path / "orders-0"):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "orders-0")],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    assert f"held by process {os.getpid()}" in done.stdout


@pytest.mark.parametrize("name", WRITES)
def test_closed_log_every_write_raises(name: str, tmp_path: Path) -> None:
    """Use after close raises `LogClosedError`; another close does nothing."""
    log = kafkalog.open_log(tmp_path / "orders-0")
    log.append([Record(value=b"v")])
    log.close()
    log.close()
    with pytest.raises(LogClosedError):
        WRITES[name](log)
    with pytest.raises(LogClosedError):
        list(log.records())
    with pytest.raises(LogClosedError):
        log.read(0)


@pytest.mark.parametrize("name", WRITES)
def test_read_only_log_every_write_raises(name: str, tmp_path: Path) -> None:
    """Each of them raises `ReadOnlyLogError`."""
    kafkalog.open_log(tmp_path / "orders-0").close()
    with (
        kafkalog.open_log(tmp_path / "orders-0", read_only=True) as log,
        pytest.raises(ReadOnlyLogError),
    ):
        WRITES[name](log)


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 13, 21])
def test_open_log_failing_permission_raises_permission_error(number: int, read_only: bool) -> None:
    """Any call may fail; files opened before are released, and with permission the log opens."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(3)
    rig.close()
    rig.disk.fail_at(number, errno.EACCES)
    try:
        rig.open(read_only=read_only).close()
    except LogPermissionError as error:
        assert errno.EACCES == error.errno
        assert error.path is not None
    rig.disk.clear_faults()
    with rig.open() as log:
        assert 3 == log.log_end_offset


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may do anything")
def test_open_log_directory_without_permission_raises_permission_error(tmp_path: Path) -> None:
    """The same from a real disk."""
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(LogPermissionError):
            kafkalog.open_log(tmp_path / "orders-0")
    finally:
        tmp_path.chmod(0o700)
