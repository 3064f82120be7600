"""Tests of the doctor's checks of leftovers, unknown files, owners, file times and names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kafkalog import TopicPartition
from kafkalog.doctor.examine import examine_directories
from kafkalog.doctor.findings import Severity
from kafkalog.doctor.handover import HandOver
from kafkalog.files.machine import Ownership
from kafkalog.files.names import MOVE_NOTE
from kafkalog.files.posix import PosixFileSystem
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.move_notes import MoveNote, write_note
from tests.support.doctor_fixtures import checks, examined, healthy_directory, made_unclean, only
from tests.support.machines import MadeUpMachine
from tests.support.managers import manual_manager
from tests.support.manual_time import START_MS

ID = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"orders-0/{0:020d}.log.cleaned", "removes it"),
        (f"orders-0/{0:020d}.log.swap", "completes that"),
        (f"orders-0/{0:020d}.timeindex.deleted", "removes them"),
        (f"orders-0/{0:020d}.snapshot.tmp", "removes this"),
        ("orders-0/leader-epoch-checkpoint.tmp", "removes this"),
        ("recovery-point-offset-checkpoint.tmp", "removes this"),
        ("meta.properties.tmp", "removes this"),
    ],
)
def test_leftover_of_unfinished_work_is_noted(data: Path, name: str, expected: str) -> None:
    """With the action of the next opening."""
    (data / name).write_bytes(b"")
    finding = only(examined(data), "files.unfinished")
    assert Severity.NOTE is finding.severity
    assert expected in finding.matters
    assert (data / name,) == finding.paths


def test_bytes_removed_by_a_recovery_are_found(data: Path) -> None:
    """With their size and the command that shows them."""
    path = data / "orders-0" / f"{8:020d}.log.240.broken"
    path.write_bytes(bytes(2048))
    finding = only(examined(data), "files.broken")
    assert Severity.WARNING is finding.severity
    assert "1 files .broken with 2.0 KiB" in finding.seen
    assert f"kafkalog dump {path}" in finding.remedy


@pytest.mark.parametrize(
    ("state", "severity"),
    [("delete", Severity.NOTE), ("stray", Severity.WARNING), ("future", Severity.NOTE)],
)
def test_directory_without_a_live_log_is_found_with_its_size(
    data: Path, state: str, severity: Severity
) -> None:
    """Also if it is deleted automatically."""
    shutil.copytree(data / "orders-0", data / f"orders-1.{ID}-{state}")
    diagnosis = examined(data)
    finding = only(diagnosis, f"partitions-{state}")
    assert severity is finding.severity
    assert "(orders-1)" in finding.seen
    assert "1.2 KiB" in finding.matters
    assert 1 == diagnosis.partition_count


def test_topics_with_colliding_metric_names_are_found(tmp_path: Path) -> None:
    """In any directory; a topic does not collide with itself."""
    one = healthy_directory(tmp_path / "one", "a.b_c-0", "a_b-0")
    other = healthy_directory(tmp_path / "other", "a.b.c-0", "a_b-1")
    finding = only(examined(one, other), "topics.collision")
    assert Severity.WARNING is finding.severity
    assert "the topics a.b.c and a.b_c differ by '.' and '_' only" == finding.seen


def test_directory_that_is_not_a_partition_is_found(data: Path) -> None:
    """A broker fails on it."""
    (data / "backup of orders").mkdir()
    finding = only(examined(data), "files.unknown")
    assert Severity.WARNING is finding.severity
    assert "data/backup of orders" in finding.seen
    assert f"mv '{data}/backup of orders' to another place" == finding.remedy


def test_directory_of_the_file_system_suggests_a_subdirectory(data: Path) -> None:
    """lost+found cannot be moved, and must not be read."""
    (data / "lost+found").mkdir()
    machine = MadeUpMachine(owners={data / "lost+found": Ownership(0, 0o700, False)})
    finding = only(examined(data, machine=machine), "files.unknown")
    assert f"give the logs a directory below {data}" in finding.remedy


def test_unknown_files_are_noted(data: Path) -> None:
    """In the data directory and in partitions; files of a broker are known."""
    broker_files = (
        "bootstrap.checkpoint",
        "orders-0/.kafkalog_syncs",
        f"orders-0/{8:020d}.snapshot",
    )
    unknown = ("README", "orders-0/notes.log", "orders-0/meta.properties")
    for name in (*broker_files, *unknown):
        (data / name).write_bytes(b"")
    finding = only(examined(data), "files.unknown")
    assert Severity.NOTE is finding.severity
    assert {data / name for name in unknown} == set(finding.paths)


@pytest.mark.parametrize("name", ["00000000.log", "09223372036854775807.log", "00000008.log.swap"])
def test_file_named_like_a_segment_is_found(data: Path, name: str) -> None:
    """HOST-8: its records are not served."""
    (data / "orders-0" / name).write_bytes(b"")
    finding = only(examined(data), "files.misnamed")
    assert Severity.WARNING is finding.severity
    assert (data / "orders-0" / name,) == finding.paths
    assert finding.remedy


def test_metadata_log_of_a_controller_is_ignored(data: Path) -> None:
    """Its files are not judged, and it needs no topic id."""
    log = data / "__cluster_metadata-0"
    log.mkdir()
    for name in (f"{0:020d}.log", "quorum-state", f"{5:020d}-{1:010d}.checkpoint"):
        (log / name).write_bytes(b"")
    assert [] == checks(examined(data))


def test_standalone_partition_may_hold_its_checkpoints(data: Path, tmp_path: Path) -> None:
    """In a data directory they are one level above."""
    alone = tmp_path / "orders-0"
    shutil.copytree(data / "orders-0", alone)
    for name in ("recovery-point-offset-checkpoint", ".kafka_cleanshutdown", ".lock"):
        shutil.copy(data / name, alone)
    assert [] == checks(examined(alone))


def test_missing_indexes_are_noted(data: Path) -> None:
    """An empty segment needs none."""
    partition = data / "orders-0"
    (partition / f"{0:020d}.index").unlink()
    (partition / f"{8:020d}.timeindex").unlink()
    (partition / f"{10:020d}.log").write_bytes(b"")
    finding = only(examined(data), "indexes.missing")
    assert Severity.NOTE is finding.severity
    expected = {partition / f"{0:020d}.index", partition / f"{8:020d}.timeindex"}
    assert expected == set(finding.paths)


def test_files_without_permissions_are_an_error(data: Path) -> None:
    """The count and some names, and all of them as paths."""
    paths = (data / ".lock", data / "orders-0" / f"{0:020d}.log")
    machine = MadeUpMachine(owners=dict.fromkeys(paths, Ownership(1000, 0o600, False)))
    finding = only(examined(data, machine=machine), "files.permissions")
    assert Severity.ERROR is finding.severity
    assert "2 of 15 files" in finding.seen
    assert set(paths) == set(finding.paths)


def test_files_of_another_user_are_found(data: Path) -> None:
    """A process of root has written here."""
    path = data / "orders-0" / f"{8:020d}.index"
    machine = MadeUpMachine(owners={path: Ownership(0, 0o644, True)})
    finding = only(examined(data, machine=machine), "files.owner")
    assert Severity.WARNING is finding.severity
    assert (path,) == finding.paths
    assert f"chown -R 1000 {data}" == finding.remedy


def test_files_writable_by_everyone_are_found(data: Path) -> None:
    """The lock does not stop a process that does not acquire it."""
    machine = MadeUpMachine(owners={data: Ownership(1000, 0o777, True)})
    finding = only(examined(data, machine=machine), "files.world_writable")
    assert Severity.WARNING is finding.severity
    assert (data,) == finding.paths


def test_owner_that_cannot_be_read_is_reported_as_not_examined(data: Path) -> None:
    """A file removed by then is not reported."""
    machine = MadeUpMachine(
        owners={
            data / ".lock": PermissionError(13, "Permission denied"),
            data / "meta.properties": FileNotFoundError(2, "No such file or directory"),
        }
    )
    diagnosis = examined(data, machine=machine)
    assert [] == checks(diagnosis)
    assert (f"the owner of {data / '.lock'}: Permission denied",) == diagnosis.unseen


def test_files_with_future_times_are_found(data: Path) -> None:
    """Clocks may differ by a minute."""
    partition = data / "orders-0"
    for path in data.rglob("*"):
        os.utime(path, (0, START_MS / 1000))
    late = partition / f"{0:020d}.log"
    os.utime(late, (0, START_MS / 1000 + 60))
    assert [] == checks(examined(data, age_files=False))
    os.utime(late, (0, START_MS / 1000 + 61))
    finding = only(examined(data, age_files=False), "clock.future_files")
    assert Severity.WARNING is finding.severity
    assert "the latest by 61 s" in finding.seen
    assert (late,) == finding.paths


def test_clock_that_was_never_set_is_an_error(data: Path) -> None:
    """The file times are worthless then."""
    finding = only(examined(data, now_ms=12_345), "clock.now")
    assert Severity.ERROR is finding.severity
    assert "12345 ms" in finding.seen


def test_worst_findings_come_first(data: Path) -> None:
    """In any order of the checks."""
    made_unclean(data)
    (data / "README").write_bytes(b"")
    machine = MadeUpMachine(settings={"dirty_writeback_centisecs": 0})
    diagnosis = examined(data, machine=machine)
    assert ["vm.dirty_writeback", "shutdown.unclean", "files.unknown"] == checks(diagnosis)
    assert [1, 1, 1] == [diagnosis.count(severity) for severity in Severity]
    assert not diagnosis.is_well


def test_interrupted_move_is_found(tmp_path: Path) -> None:
    """PAR-8: until a manager has opened all directories; for a broker it is an error."""
    both = [healthy_directory(tmp_path / "one"), tmp_path / "two"]
    both[1].mkdir()
    shutil.copy(both[0] / "meta.properties", both[1])
    text = (both[1] / "meta.properties").read_text().splitlines()
    kept = [line for line in text if not line.startswith("directory.id")]
    (both[1] / "meta.properties").write_text("\n".join(kept) + "\n")
    with manual_manager(*both):
        pass
    directories = [DataDirectory(path, PosixFileSystem()) for path in both]
    for own, other in (directories, directories[::-1]):
        keys = frozenset({str(other.path)})
        note = MoveNote(ID, TopicPartition("orders", 0), own is directories[1], keys)
        write_note(own, note)
    paths = tuple(path / f"{MOVE_NOTE}{ID}" for path in both)
    finding = only(examined(*both), "moves.unfinished")
    assert (Severity.WARNING, paths) == (finding.severity, finding.paths)
    assert "orders-0" in finding.seen
    handed = examine_directories(both, machine=MadeUpMachine(), handover=HandOver())
    (finding,) = [each for each in handed.findings if each.check == "handover.moves"]
    assert (Severity.ERROR, paths) == (finding.severity, finding.paths)
    with manual_manager(*both):
        pass
    assert [] == checks(examined(*both))


def test_torn_note_of_a_move_is_ignored(data: Path) -> None:
    """It counts as absent: no move was begun, and the next start removes it."""
    (data / f"{MOVE_NOTE}{ID}").write_bytes(b"kafkalog mo")
    assert [] == checks(examined(data))
