"""Losses without a damaged byte: each in the recovery report, in `health()` and in `doctor`."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog import (
    CorruptStateError,
    LogConfig,
    LogManager,
    ManagerConfig,
    RepairedIndex,
    TopicPartition,
    examine_directories,
    open_log,
)
from kafkalog.doctor.findings import Finding, Severity
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.log import partition_of
from tests.support import golden
from tests.support.damage import batch_positions, flip, log_file, truncate
from tests.support.logs import numbered
from tests.support.managers import manual_manager, scheduler_of
from tests.support.producing import Client, committed_offsets

ORDERS = TopicPartition("orders", 0)
MARKER = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
# Of an entry of a transaction index, the last byte of its first offset.
FIRST_OFFSET = 17
# Segments of `filled`.
BASES = (0, 12, 24)


def filled(data: Path) -> Path:
    """Make a partition of three segments, each with eleven records, two of them aborted."""
    with manual_manager(data, config=ManagerConfig()) as manager:
        manager.create_topic("orders")
        log = manager.log("orders")
        for number, base in enumerate(BASES):
            assert base == log.log_end_offset
            for offset in range(8):
                log.append(numbered(offset, 1))
            client = Client(7 + number)
            client.send(log, 2, transactional=True)
            client.end(log, "abort")
            log.append(numbered(9, 1))
            if base != BASES[-1]:
                log.roll()
    return data / "orders-0"


def index_of(partition: Path, base: int) -> Path:
    """Return the path of a segment's transaction index."""
    return log_file(partition, base).with_suffix(".txnindex")


def garble(partition: Path, base: int) -> Path:
    """Flip a bit of the first offset of an aborted transaction."""
    path = index_of(partition, base)
    flip(path, FIRST_OFFSET)
    return path


def take_segment(partition: Path) -> None:
    """Remove the files of the segment in the middle."""
    for path in partition.glob(f"{BASES[1]:020d}.*"):
        path.unlink()


def cut_sealed(partition: Path) -> None:
    """Cut the segment in the middle at the boundary of a batch."""
    path = log_file(partition, BASES[1])
    truncate(path, batch_positions(path)[4])


def cut_last(partition: Path) -> None:
    """Cut the last segment at the boundary of a batch."""
    path = log_file(partition, BASES[2])
    truncate(path, batch_positions(path)[4])


def damage_start(partition: Path) -> None:
    """Overwrite the checkpoint of the log starts."""
    (partition.parent / "log-start-offset-checkpoint").write_text("garbage")


def garble_last(partition: Path) -> None:
    """Garble the index of the last segment, which every recovery scans."""
    garble(partition, BASES[2])


def worst(data: Path) -> list[Finding]:
    """Return the doctor's errors of directories, without those of the machine."""
    found = examine_directories([data]).findings
    areas = ("logs.", "indexes.", "checkpoints.", "files.")
    return [e for e in found if e.severity is Severity.ERROR and e.check.startswith(areas)]


LOSSES = [
    pytest.param(take_segment, (12, 24), "logs.holes", id="hole"),
    pytest.param(cut_sealed, (16, 24), "logs.holes", id="sealed segment cut"),
    pytest.param(cut_last, (28, 36), "checkpoints.recovery_point", id="end below recovery point"),
]


@pytest.mark.parametrize(("lose", "lost", "check"), LOSSES)
@pytest.mark.parametrize("read_only", [True, False])
def test_missing_offsets_after_a_crash_are_in_report_health_and_doctor(
    tmp_path: Path, lose: Callable[[Path], None], lost: tuple[int, int], check: str, read_only: bool
) -> None:
    """DUR-4: in a log that recovery scans; no other range is reported."""
    partition = filled(tmp_path)
    lose(partition)
    (tmp_path / MARKER).unlink()
    if lose is not cut_last:
        (tmp_path / RECOVERY_POINTS).unlink()
    assert [check] == [each.check for each in worst(tmp_path)]
    with open_log(partition, read_only=read_only) as log:
        corrupt_ranges = log.recovery_report.corrupt_ranges
        assert [(*lost, 0)] == [
            (e.first_offset, e.next_offset, e.size_bytes) for e in corrupt_ranges
        ]
    if read_only:
        with manual_manager(tmp_path) as manager:
            manager.log("orders")
            health = manager.health()
            assert {ORDERS: corrupt_ranges} == health.damage
            assert corrupt_ranges == health.recoveries[ORDERS].corrupt_ranges
            assert not health.is_healthy


@pytest.mark.parametrize(("lose", "lost", "check"), LOSSES)
def test_missing_offsets_after_a_clean_stop_are_found_by_the_doctor(
    tmp_path: Path, lose: Callable[[Path], None], lost: tuple[int, int], check: str
) -> None:
    """DUR-4: an opening does not check the ends of sealed segments then, and no reader has."""
    partition = filled(tmp_path)
    lose(partition)
    (finding,) = worst(tmp_path)
    assert check == finding.check
    if check == "logs.holes":
        assert f"offsets {lost[0]} to {lost[1] - 1}" in finding.seen
        assert finding.matters
        assert finding.remedy
    assert [check] == [each.check for each in worst(partition)]


@pytest.mark.parametrize(("lose", "lost", "check"), LOSSES[:2])
def test_missing_offsets_after_a_clean_stop_are_in_health(
    tmp_path: Path, lose: Callable[[Path], None], lost: tuple[int, int], check: str
) -> None:
    """DUR-4: after a run of retention, without a reader; an idle log stays idle."""
    partition = filled(tmp_path)
    lose(partition)
    with manual_manager(
        tmp_path, config=ManagerConfig(log_retention_check_interval_ms=1)
    ) as manager:
        scheduler_of(manager).advance(30_000)
        log = manager.log("orders")
        (corrupt_range,) = manager.health().damage[ORDERS]
        assert (*lost, 0) == (
            corrupt_range.first_offset,
            corrupt_range.next_offset,
            corrupt_range.size_bytes,
        )
        assert not manager.health().is_healthy
        assert partition_of(log).idle_files.try_release()
        scheduler_of(manager).advance(30_000)
        assert partition_of(log).idle_files.is_released
        assert (corrupt_range,) == log.corrupt_ranges()


@pytest.mark.parametrize("read_only", [True, False])
def test_look_for_holes_reports_missing_offsets(tmp_path: Path, read_only: bool) -> None:
    """DUR-4: without a manager, in any open log."""
    partition = filled(tmp_path)
    cut_sealed(partition)
    with open_log(partition, read_only=read_only) as log:
        assert () == log.corrupt_ranges()
        for _again in range(2):
            log.find_holes()
            (corrupt_range,) = log.corrupt_ranges()
            assert (16, 24) == (corrupt_range.first_offset, corrupt_range.next_offset)


def test_damaged_log_start_checkpoint_is_reported_everywhere(tmp_path: Path) -> None:
    """PAR-3: the log does not open, its directory is offline, and the doctor names the file."""
    data_directories = tmp_path / "one", tmp_path / "two"
    partition = filled(data_directories[0])
    with manual_manager(*data_directories):
        pass
    damage_start(partition)
    for read_only in (True, False):
        with pytest.raises(CorruptStateError, match="log-start-offset-checkpoint"):
            open_log(partition, read_only=read_only)
    with manual_manager(*data_directories) as manager:
        health = manager.health()
        assert [False, True] == [each.is_online for each in health.directories]
        assert isinstance(health.directories[0].error, CorruptStateError)
        assert not health.is_healthy
    assert ["files.damaged"] == [each.check for each in worst(data_directories[0])]


@pytest.mark.parametrize("read_only", [True, False])
def test_contradicted_index_scanned_is_in_the_recovery_report(
    tmp_path: Path, read_only: bool
) -> None:
    """HOST-15: in a scanned segment, for an entry that was on the disk before."""
    partition = filled(tmp_path)
    garble_last(partition)
    (tmp_path / MARKER).unlink()
    with open_log(partition, read_only=read_only) as log:
        report = log.recovery_report
        (repaired,) = report.repaired
        assert (index_of(partition, BASES[2]), not read_only) == (
            repaired.path,
            repaired.is_written,
        )
        assert 1 == repaired.added
        assert report.found_damage
        assert f"repaired {repaired.path.name}: {repaired.reason}" in report.summary()
        assert report.repaired == log.repaired_indexes()
        assert 32 not in committed_offsets(log)
    with open_log(partition) as log:
        assert read_only == bool(log.recovery_report.repaired)


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("base", BASES)
def test_contradicted_index_after_a_clean_stop_is_reported_by_its_reader(
    tmp_path: Path, base: int, read_only: bool
) -> None:
    """HOST-15: by the first reader of committed records that needs the index."""
    partition = filled(tmp_path)
    path = garble(partition, base)
    with open_log(partition, read_only=read_only) as log:
        assert () == log.repaired_indexes()
        expected = [base + n for base in BASES for n in (*range(8), 11)]
        assert expected == committed_offsets(log)
        (repaired,) = log.repaired_indexes()
        assert (path, not read_only, 1) == (repaired.path, repaired.is_written, repaired.added)
        assert repaired.reason
    with open_log(partition) as log:
        committed_offsets(log)
        assert read_only == bool(log.repaired_indexes())


def test_contradicted_index_is_in_health(tmp_path: Path) -> None:
    """HOST-15: in an open log; the manager is healthy if the index is repaired on the disk."""
    partition = filled(tmp_path)
    garble(partition, BASES[0])
    garble_last(partition)
    (tmp_path / MARKER).unlink()
    with manual_manager(tmp_path) as manager:
        log = manager.log("orders")
        assert [index_of(partition, BASES[2])] == repaired_paths(manager)
        assert log.recovery_report == manager.health().recoveries[ORDERS]
        committed_offsets(log)
        assert [index_of(partition, base) for base in (0, 24)] == repaired_paths(manager)
        health = manager.health()
        assert health.is_healthy
        (first, _) = health.repaired[ORDERS]
        unwritten = dataclasses.replace(first, is_written=False)
        assert not dataclasses.replace(health, repaired={ORDERS: (unwritten,)}).is_healthy
    with manual_manager(tmp_path) as manager:
        committed_offsets(manager.log("orders"))
        assert not manager.health().repaired


def repaired_paths(manager: LogManager) -> list[Path]:
    """Return the indexes that a manager names."""
    return [each.path for each in manager.health().repaired.get(ORDERS, ())]


@pytest.mark.parametrize("is_clean", [True, False])
def test_contradicted_index_is_found_by_the_doctor(tmp_path: Path, is_clean: bool) -> None:
    """HOST-15: in every segment; no file is changed."""
    partition = filled(tmp_path)
    paths = tuple(garble(partition, base) for base in BASES)
    if not is_clean:
        (tmp_path / MARKER).unlink()
    for _again in range(2):
        (finding,) = worst(tmp_path)
        assert ("indexes.contradicted", paths) == (finding.check, finding.paths)
        assert finding.remedy


def lack(path: Path) -> None:
    """Remove an index."""
    path.unlink()


def lack_entry(path: Path) -> None:
    """Remove the last entry of an index, as a crash before its sync does."""
    truncate(path, 0)


def go_too_far(path: Path) -> None:
    """Add a part of an entry, the rest of which a crash removed."""
    path.write_bytes(path.read_bytes() + bytes(20))


def keep_taken(path: Path) -> None:
    """Add an entry whose marker a crash removed."""
    entry = bytearray(path.read_bytes())
    entry[24:26] = entry[32:34] = (100).to_bytes(2, "big")
    path.write_bytes(path.read_bytes() + entry)


@pytest.mark.parametrize("left", [lack_entry, go_too_far, keep_taken])
@pytest.mark.parametrize("read_only", [True, False])
def test_stale_index_after_a_crash_is_not_a_loss(
    tmp_path: Path, left: Callable[[Path], None], read_only: bool
) -> None:
    """HOST-15: bytes above the recovery point need not be on the disk."""
    partition = filled(tmp_path)
    left(index_of(partition, BASES[2]))
    (tmp_path / MARKER).unlink()
    for line in (1, 0):
        (tmp_path / RECOVERY_POINTS).write_text(f"0\n{line}\n" + "orders 0 24\n" * line)
        assert not worst(tmp_path)
        with open_log(partition, read_only=True) as log:
            assert () == log.recovery_report.repaired
    with open_log(partition, read_only=read_only) as log:
        assert not log.recovery_report.found_damage
        assert 32 not in committed_offsets(log)
        assert () == log.repaired_indexes()


@pytest.mark.parametrize("left", [lack_entry, go_too_far, keep_taken])
def test_stale_index_after_a_clean_stop_is_reported(
    tmp_path: Path, left: Callable[[Path], None]
) -> None:
    """HOST-15: an orderly close has synced the whole index."""
    partition = filled(tmp_path)
    left(index_of(partition, BASES[2]))
    if left is not keep_taken:
        # A reader concurrent with a writer may not have read a marker after the end yet.
        assert ["indexes.contradicted"] == [each.check for each in worst(tmp_path)]
    with open_log(partition) as log:
        committed_offsets(log)
        assert 1 == len(log.repaired_indexes())


def test_missing_index_is_not_a_loss(tmp_path: Path) -> None:
    """HOST-15: indexes may be removed while no writer runs."""
    partition = filled(tmp_path)
    for base in BASES:
        lack(index_of(partition, base))
    assert not worst(tmp_path)
    with open_log(partition) as log:
        assert 32 not in committed_offsets(log)
        assert () == log.repaired_indexes()


def test_hole_of_a_compacted_log_is_not_reported_by_the_doctor(tmp_path: Path) -> None:
    """DUR-4: compaction by the topic, changed defaults, a cleaner checkpoint, or the caller."""
    data = tmp_path / "data"
    take_segment(filled(data))
    data_directories = [tmp_path / name for name in ("topic", "defaults", "cleaner")]
    for directory in data_directories:
        shutil.copytree(data, directory)
        assert ["logs.holes"] == [each.check for each in worst(directory)]
    with manual_manager(data_directories[0]) as manager:
        manager.reconfigure("orders", {"cleanup.policy": "compact,delete"})
    with manual_manager(data_directories[1]) as manager:
        manager.reconfigure_defaults({"log.cleanup.policy": "compact"})
    (data_directories[2] / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 12\n")
    for directory in data_directories:
        assert not worst(directory)
    config = LogConfig(cleanup_policy=("compact", "delete"))
    found = examine_directories([data], config=config).findings
    assert "logs.holes" not in [each.check for each in found]


def test_hole_below_the_log_start_is_not_reported_by_the_doctor(tmp_path: Path) -> None:
    """DUR-4: deleted records are not missing."""
    partition = filled(tmp_path)
    with manual_manager(tmp_path) as manager:
        manager.log("orders").delete_records(5)
    take_segment(partition)
    assert ["logs.holes"] == [each.check for each in worst(tmp_path)]
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 26\n")
    assert not worst(tmp_path)


def test_damaged_end_of_a_closed_log_is_found_by_the_doctor(tmp_path: Path) -> None:
    """DUR-4: its bytes were on the disk; the end of a log not closed is left to recovery."""
    partition = filled(tmp_path)
    path = log_file(partition, BASES[2])
    flip(path, path.stat().st_size - 1)
    assert ["logs.damaged"] == [each.check for each in worst(tmp_path)]
    (tmp_path / MARKER).unlink()
    assert "logs.damaged" not in [each.check for each in worst(tmp_path)]


class LockedDisk(PosixFileSystem):
    """A disk on which another process has every lock."""

    def lock_holder(self, path: Path) -> int | None:
        """Return some process."""
        return 42


def test_doctor_skips_logs_with_a_writer(tmp_path: Path) -> None:
    """DUR-4: between two renames of a replacement, offsets are missing for a moment."""
    take_segment(filled(tmp_path))
    diagnosis = examine_directories([tmp_path], filesystem=LockedDisk())
    assert "lock" in [each.check for each in diagnosis.findings]
    assert "logs.holes" not in [each.check for each in diagnosis.findings]
    assert f"the batches of {tmp_path}, which a process has locked" in diagnosis.unseen


@pytest.mark.parametrize("name", golden.DATA_SETS)
def test_doctor_directories_of_brokers_have_no_loss(name: str) -> None:
    """DUR-4, HOST-15: compacted logs, aborted transactions and deleted records among them."""
    found = examine_directories([golden.data_directory(name)]).findings
    assert not [e.seen for e in found if e.check.startswith(("logs.", "indexes.contradicted"))]


def test_repaired_index_has_its_reason(tmp_path: Path) -> None:
    """HOST-15: an entry without its marker is removed, and the right entry is added."""
    partition = filled(tmp_path)
    # 20 becomes 21: the first record of the transaction would be served.
    flip(index_of(partition, BASES[1]), FIRST_OFFSET)
    with open_log(partition) as log:
        committed_offsets(log)
        assert (
            RepairedIndex(
                index_of(partition, BASES[1]),
                "entries that contradict the batches: 1; aborted transactions that lack one: 1",
                1,
                1,
                True,
            ),
        ) == log.repaired_indexes()
