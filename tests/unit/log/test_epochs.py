"""Leader epochs of an open log: assigned, checkpointed, and raised after a crash."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kafkalog._core.assign_offsets import assign_offsets
from kafkalog.errors import LogStorageError
from kafkalog.files.names import LEADER_EPOCH_CHECKPOINT
from kafkalog.log.epochs import LogEpochs
from kafkalog.state.leader_epochs import UNKNOWN_EPOCH_END, EpochEnd
from tests.support.logs import manual_log, numbered
from tests.support.old_logs import chapter
from tests.support.producer_batches import Produced, encoded
from tests.support.simulated_disk import CrashChoice, PowerCut, SimulatedDisk

DIRECTORY = Path("/data-of-one/orders-0")


def epoch_lines(directory: Path) -> list[str]:
    """Return the entries of the checkpoint file."""
    return (directory / LEADER_EPOCH_CHECKPOINT).read_text().splitlines()[2:]


def test_first_append_writes_epoch_0_to_the_checkpoint(tmp_path: Path) -> None:
    """The opening does not write it, and no later append changes it."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        assert UNKNOWN_EPOCH_END == log.end_offset_for_epoch(0)
        assert not (directory / LEADER_EPOCH_CHECKPOINT).exists()
        log.append(numbered(0, 2))
        assert ["0 0"] == epoch_lines(directory)
        log.append(numbered(2, 1))
        assert (0, EpochEnd(0, 3)) == (log.leader_epoch, log.end_offset_for_epoch(0))
    with manual_log(directory) as log:
        assert 0 == log.leader_epoch


def without_its_last_batch() -> SimulatedDisk:
    """Return the disk after a power cut of a log whose last batch no sync covered."""
    disk = SimulatedDisk()
    disk.make_durable(DIRECTORY.parent)
    log = manual_log(DIRECTORY, filesystem=disk)
    log.append(numbered(0, 3), wait="durable")
    log.append(numbered(3, 1))
    return disk.crash(CrashChoice("nothing"))


def test_epoch_rises_after_an_unclean_stop() -> None:
    """The first append writes the higher epoch: before it there are no records of it."""
    left = without_its_last_batch()
    with manual_log(DIRECTORY, filesystem=left) as again:
        assert (1, EpochEnd(0, 3)) == (again.leader_epoch, again.end_offset_for_epoch(0))
        again.append(numbered(3, 1))
        assert [0, 1] == [b.header.partition_leader_epoch for b in again.batches()]
        assert EpochEnd(0, 3) == again.end_offset_for_epoch(0)
        assert EpochEnd(1, 4) == again.end_offset_for_epoch(1)


def test_epoch_of_lost_records_is_not_used_again() -> None:
    """Its entry was on the disk before its records."""
    disk = SimulatedDisk()
    disk.make_durable(DIRECTORY.parent)
    log = manual_log(DIRECTORY, filesystem=disk)
    log.append(numbered(0, 3), wait="durable")
    second = disk.crash(CrashChoice("nothing"))
    log = manual_log(DIRECTORY, filesystem=second)
    assert 1 == log.leader_epoch
    log.append(numbered(3, 1))
    third = second.crash(CrashChoice("nothing"))
    with manual_log(DIRECTORY, filesystem=third) as again:
        assert (3, 2) == (again.log_end_offset, again.leader_epoch)
        again.append(numbered(3, 1))
        assert [0, 2] == [b.header.partition_leader_epoch for b in again.batches()]


def test_truncation_removes_epochs_at_both_ends(tmp_path: Path) -> None:
    """At the log end by a truncation, at the log start by deleted records."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        for offset, epoch in ((0, 2), (1, 4), (2, 9)):
            log.append_batches(_with_epoch(offset, epoch), assign_offsets=False)
        assert (9, ["2 0", "4 1", "9 2"]) == (log.leader_epoch, epoch_lines(directory))
        log.truncate_to(2)
        assert EpochEnd(4, 2) == log.end_offset_for_epoch(4)
        log.append(numbered(2, 1))
        assert ["2 0", "4 1", "10 2"] == epoch_lines(directory)
        log.delete_records(1)
        assert EpochEnd(2, 1) == log.end_offset_for_epoch(2)
        log.truncate_fully_and_start_at(50)
        assert UNKNOWN_EPOCH_END == log.end_offset_for_epoch(10)
        log.append(numbered(50, 1))
    assert ["10 50"] == epoch_lines(directory)


@pytest.mark.parametrize("offset", [0, 3, 5])
def test_truncation_raises_the_epoch(tmp_path: Path, offset: int) -> None:
    """Copies of the cut records differ in epoch from new records at the same offsets."""
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 3))
        log.append(numbered(3, 3))
        log.truncate_to(offset)
        assert 1 == log.leader_epoch
        log.append(numbered(9, 2))
        assert EpochEnd(0, offset) == log.end_offset_for_epoch(0)
        assert [1] == [b.header.partition_leader_epoch for b in log.batches(offset)]
        log.truncate_to(log.log_end_offset)
        assert 1 == log.leader_epoch


@pytest.mark.parametrize("offset", [2, 9])
def test_full_truncation_raises_the_epoch_if_offsets_repeat(tmp_path: Path, offset: int) -> None:
    """Above the old end no offset is assigned twice."""
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 5))
        log.truncate_fully_and_start_at(offset)
        assert int(offset < 5) == log.leader_epoch


def test_raised_epoch_survives_a_session_without_appends() -> None:
    """After a crash and after a truncation: the close writes it to the checkpoint."""
    disk = SimulatedDisk()
    disk.make_durable(DIRECTORY.parent)
    log = manual_log(DIRECTORY, filesystem=disk)
    log.append(numbered(0, 3), wait="durable")
    left = disk.crash(CrashChoice("nothing"))
    with manual_log(DIRECTORY, filesystem=left):
        pass
    with manual_log(DIRECTORY, filesystem=left) as log:
        assert (True, 1) == (log.recovery_report.clean, log.leader_epoch)
        log.truncate_to(1)
    with manual_log(DIRECTORY, filesystem=left) as log:
        assert 2 == log.leader_epoch
        log.append(numbered(1, 1))
        assert [2] == [b.header.partition_leader_epoch for b in log.batches()]


def test_raised_epoch_survives_replicated_lower_epochs_and_a_crash() -> None:
    """The checkpoint gets the epochs of the copies and the epoch of the log's own appends."""
    disk = SimulatedDisk()
    disk.make_durable(DIRECTORY.parent)
    log = manual_log(DIRECTORY, filesystem=disk)
    log.append(numbered(0, 3))
    log.truncate_to(0)
    log.append(numbered(0, 2))
    log.truncate_to(0)
    log.append_batches(_with_epoch(0, 0), assign_offsets=False)
    assert 2 == log.leader_epoch
    left = disk.crash(CrashChoice("all"))
    with manual_log(DIRECTORY, filesystem=left) as again:
        assert (3, EpochEnd(0, 1)) == (again.leader_epoch, again.end_offset_for_epoch(0))


def test_damaged_epoch_checkpoint_is_rebuilt_from_batches(tmp_path: Path) -> None:
    """Also after a clean stop, where nothing is scanned."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        for offset, epoch in ((0, 2), (1, 4)):
            log.append_batches(_with_epoch(offset, epoch), assign_offsets=False)
    (directory / LEADER_EPOCH_CHECKPOINT).write_text("0\n1\nnonsense\n")
    with manual_log(directory) as log:
        assert (4, EpochEnd(2, 1)) == (log.leader_epoch, log.end_offset_for_epoch(2))
    assert ["2 0", "4 1"] == epoch_lines(directory)


@pytest.mark.parametrize("release", ["0.9.0", "0.10.2"])
def test_append_of_old_format_clears_the_epochs(
    tmp_path: Path, release: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Old messages have no epoch. The next v2 batch starts a list with the same epoch."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        log.append_batches(_with_epoch(0, 4), assign_offsets=False)
    with manual_log(directory, message_format_version=release) as log:
        assert (4, EpochEnd(4, 1)) == (log.leader_epoch, log.end_offset_for_epoch(4))
        log.append(numbered(1, 2))
        assert [] == epoch_lines(directory)
        assert UNKNOWN_EPOCH_END == log.end_offset_for_epoch(4)
        log.append(numbered(3, 1))
        assert 1 == caplog.text.count("forgets its leader epochs")
    with manual_log(directory) as log:
        assert 4 == log.leader_epoch
        log.append(numbered(4, 1))
        assert ["4 4"] == epoch_lines(directory)


@pytest.mark.parametrize("plain", [False, True])
def test_replicated_old_messages_clear_the_epochs_before_them(
    tmp_path: Path, *, plain: bool
) -> None:
    """Also epochs of the same append; those after the messages count."""
    directory = tmp_path / "orders-0"
    old = chapter(1, 0, [2]) if plain else chapter(1, 1, [2])
    with manual_log(directory) as log:
        log.append_batches(_with_epoch(0, 2), assign_offsets=False)
        log.append_batches(_with_epoch(1, 3) + old.data + _with_epoch(3, 3), assign_offsets=False)
        assert (3, ["3 3"]) == (log.leader_epoch, epoch_lines(directory))
        run = b"".join(chapter(0, 0, [offset]).data for offset in range(4, 40))
        log.append_batches(run, assign_offsets=False)
        assert (3, []) == (log.leader_epoch, epoch_lines(directory))


@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.parametrize("behind", [False, True])
def test_epochs_before_old_messages_stay_cleared_after_unclean_stop(
    tmp_path: Path, *, is_damaged: bool, behind: bool
) -> None:
    """Rebuilt from scanned or from all batches; later appends get a higher epoch."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        log.append_batches(_with_epoch(0, 4), assign_offsets=False)
        log.append_batches(chapter(1, 0, [1]).data, assign_offsets=False)
        if behind:
            log.append_batches(_with_epoch(2, 4), assign_offsets=False)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (directory / name).unlink()
    # Neither content is a list that ends with an epoch without records.
    content = "0\n1\nnonsense\n" if is_damaged else "0\n0\n"
    (directory / LEADER_EPOCH_CHECKPOINT).write_text(content)
    with manual_log(directory) as log:
        epoch_end = EpochEnd(4, 3) if behind else UNKNOWN_EPOCH_END
        assert (5, epoch_end) == (log.leader_epoch, log.end_offset_for_epoch(4))
        end = log.log_end_offset
        log.append(numbered(end, 1))
        assert [*(["4 2"] if behind else []), f"5 {end}"] == epoch_lines(directory)


def test_crash_during_epoch_clearing_leaves_no_old_message_with_epoch() -> None:
    """At each call of the first append of an old format, with each set of surviving writes."""
    for number in range(1, 30):
        disk = SimulatedDisk()
        disk.make_durable(DIRECTORY.parent)
        with manual_log(DIRECTORY, filesystem=disk) as log:
            log.append_batches(_with_epoch(0, 4), assign_offsets=False)
        log = manual_log(DIRECTORY, filesystem=disk, message_format_version="0.10.2")
        disk.crash_at(number)
        try:
            log.append(numbered(1, 2), wait="durable")
        except PowerCut:
            ended = False
        else:
            ended = True
        for _choice, left in disk.crash_states(8, seed=number):
            with manual_log(DIRECTORY, filesystem=left) as again:
                end = again.log_end_offset
                assert end in ((3,) if ended else (1, 2, 3))
                expected = EpochEnd(4, 1) if end == 1 else UNKNOWN_EPOCH_END
                assert (5, expected) == (again.leader_epoch, again.end_offset_for_epoch(4))
        if ended:
            return
    pytest.fail("the append makes more calls than were tried")


def test_replicated_batches_without_epoch_leave_the_checkpoint(tmp_path: Path) -> None:
    """As older leaders send them: in a log without epochs, and after batches with an epoch."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log, pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogEpochs, "assign_run", None)
        log.append_batches(_with_epoch(0, -1), assign_offsets=False)
        assert not (directory / LEADER_EPOCH_CHECKPOINT).exists()
        patch.undo()
        log.append_batches(_with_epoch(1, 4), assign_offsets=False)
        patch.setattr(LogEpochs, "assign_run", None)
        log.append_batches(_with_epoch(2, -1), assign_offsets=False)
        assert ["4 1"] == epoch_lines(directory)
        assert (4, 3) == (log.leader_epoch, log.log_end_offset)


def test_append_of_old_format_to_old_log_writes_no_epochs(tmp_path: Path) -> None:
    """There are no epochs to clear."""
    directory = tmp_path / "orders-0"
    with manual_log(directory, message_format_version="0.10.2") as log:
        log.append(numbered(0, 2))
    assert not (directory / LEADER_EPOCH_CHECKPOINT).exists()


def _with_epoch(offset: int, epoch: int) -> bytes:
    data = bytearray(encoded([Produced(-1)]))
    assign_offsets(data, base_offset=offset, partition_leader_epoch=epoch)
    return bytes(data)


def test_killed_writer_keeps_the_epoch() -> None:
    """INT-3: no record is lost, so no offset gets a second record, however often it happens."""
    disk = SimulatedDisk()
    disk.make_durable(DIRECTORY.parent)
    for number in range(8):
        log = manual_log(DIRECTORY, filesystem=disk)
        assert (0, number) == (log.leader_epoch, log.log_end_offset)
        log.append(numbered(number, 1))
        disk = disk.killed()
    assert [0] * 8 == [
        b.header.partition_leader_epoch for b in manual_log(DIRECTORY, filesystem=disk).batches()
    ]


def test_power_cut_that_loses_whole_batches_raises_the_epoch() -> None:
    """INT-3: the log ends with a whole batch and nothing was cut, but the page cache is new."""
    left = without_its_last_batch()
    again = manual_log(DIRECTORY, filesystem=left)
    assert (3, 1, ()) == (again.log_end_offset, again.leader_epoch, again.recovery_report.cut)
    # A kill before the higher epoch is in the file does not bring the lower one back.
    killed = left.killed()
    again = manual_log(DIRECTORY, filesystem=killed)
    assert 1 == again.leader_epoch
    again.append(numbered(3, 1))
    assert 1 == manual_log(DIRECTORY, filesystem=killed.killed()).leader_epoch


def test_kill_with_unknown_page_cache_raises_the_epoch() -> None:
    """INT-3: without an id of the cache the end may be incomplete."""
    disk = SimulatedDisk()
    disk.cache = b""
    disk.make_durable(DIRECTORY.parent)
    manual_log(DIRECTORY, filesystem=disk).append(numbered(0, 3))
    assert 1 == manual_log(DIRECTORY, filesystem=disk.killed()).leader_epoch


@pytest.mark.parametrize("name", [".kafkalog_syncs", None])
def test_kill_with_missing_or_copied_sync_journal_raises_the_epoch(name: str | None) -> None:
    """INT-3: a copy has another inode, and may be older."""
    disk = SimulatedDisk()
    disk.make_durable(DIRECTORY.parent)
    manual_log(DIRECTORY, filesystem=disk).append(numbered(0, 3))
    disk = disk.killed()
    path = DIRECTORY / ".kafkalog_syncs"
    content = disk.snapshot()[str(path)]
    disk.unlink(path)
    if name is None:
        assert content is not None
        disk.create_new(DIRECTORY / "between")
        disk.open(path, create=True).pwrite(content, 0)
        disk.unlink(DIRECTORY / "between")
    assert 1 == manual_log(DIRECTORY, filesystem=disk).leader_epoch


def test_torn_end_raises_the_epoch_once() -> None:
    """INT-3: a part of a batch shows that more was written; the next kill shows nothing."""
    disk = SimulatedDisk()
    disk.make_durable(DIRECTORY.parent)
    log = manual_log(DIRECTORY, filesystem=disk)
    log.append(numbered(0, 3))
    log.append(numbered(3, 1))
    disk = disk.killed()
    segment = DIRECTORY / "00000000000000000000.log"
    handle = disk.open(segment, write=True)
    handle.truncate(handle.size() - 1)
    log = manual_log(DIRECTORY, filesystem=disk)
    assert (3, 1) == (log.log_end_offset, log.leader_epoch)
    # A kill before the first append, and one after it.
    disk = disk.killed()
    log = manual_log(DIRECTORY, filesystem=disk)
    assert 1 == log.leader_epoch
    log.append(numbered(3, 1))
    assert 1 == manual_log(DIRECTORY, filesystem=disk.killed()).leader_epoch


def test_kill_at_any_call_of_a_cutting_recovery_keeps_the_raised_epoch() -> None:
    """INT-3: the first opening cuts the bytes, and the second one still has to raise the epoch."""
    for number in range(1, 60):
        disk = SimulatedDisk()
        disk.make_durable(DIRECTORY.parent)
        log = manual_log(DIRECTORY, filesystem=disk)
        log.append(numbered(0, 3))
        log.append(numbered(3, 1))
        disk = disk.killed()
        handle = disk.open(DIRECTORY / "00000000000000000000.log", write=True)
        handle.truncate(handle.size() - 1)
        disk.crash_at(number)
        try:
            manual_log(DIRECTORY, filesystem=disk)
        except PowerCut:
            ended = False
        else:
            ended = True
        disk = disk.killed()
        assert 1 == manual_log(DIRECTORY, filesystem=disk).leader_epoch, number
        if ended:
            return
    pytest.fail("the opening makes more calls than were tried")


@pytest.mark.parametrize("offset", [1, 3])
def test_kill_at_any_call_of_a_truncation_repeats_no_offset(offset: int) -> None:
    """INT-3: if anything was cut, the next epoch is higher, checkpointed or not."""
    for number in range(1, 80):
        disk = SimulatedDisk()
        disk.make_durable(DIRECTORY.parent)
        log = manual_log(DIRECTORY, filesystem=disk)
        log.append(numbered(0, 3))
        log.append(numbered(3, 2))
        disk.crash_at(number)
        try:
            log.truncate_to(offset)
            log.append(numbered(offset, 1))
        except PowerCut:
            ended = False
        else:
            ended = True
        again = manual_log(DIRECTORY, filesystem=disk.killed())
        kept = again.log_end_offset == 5
        assert kept or 1 <= again.leader_epoch, number
        if ended:
            assert 1 == again.leader_epoch
            return
    pytest.fail("the truncation makes more calls than were tried")


def test_preallocated_zeros_after_a_kill_keep_the_epoch() -> None:
    """INT-3: the zeros are space for later batches, not lost records."""
    disk = SimulatedDisk()
    disk.make_durable(DIRECTORY.parent)
    settings: dict[str, Any] = {"preallocate": True, "segment_bytes": 4096}
    settings["preallocate_zero_bytes"] = 1024
    for number in range(4):
        log = manual_log(DIRECTORY, filesystem=disk, **settings)
        assert (0, number) == (log.leader_epoch, log.log_end_offset)
        log.append(numbered(number, 1))
        disk = disk.killed()


def test_failed_sync_raises_the_epoch_of_the_next_opening() -> None:
    """INT-3: unsynced bytes may have become zeros, which look like preallocated space."""
    disk = SimulatedDisk()
    disk.make_durable(DIRECTORY.parent)
    log = manual_log(DIRECTORY, filesystem=disk)
    log.append(numbered(0, 3))
    disk.fail_at(1, only=frozenset({"sync"}), suffix=".log")
    with pytest.raises(LogStorageError):
        log.flush()
    assert 1 == manual_log(DIRECTORY, filesystem=disk.killed()).leader_epoch


def test_lower_leader_epochs_changes_batches_and_checkpoint(tmp_path: Path) -> None:
    """INT-3: two epochs become one; the batches keep CRCs, content and age."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        for offset, epoch in ((0, 1), (1, 4), (2, 9)):
            log.append_batches(_with_epoch(offset, epoch), assign_offsets=False)
        path = directory / "00000000000000000000.log"
        os.utime(path, ns=(1, 1_500_000_000_000_000_000))
        before = [record.value for record in log.records()]
        assert 2 == log.lower_leader_epochs(2)
        assert (2, ["1 0", "2 1"]) == (log.leader_epoch, epoch_lines(directory))
        assert [1, 2, 2] == [b.header.partition_leader_epoch for b in log.batches()]
        assert before == [record.value for record in log.records()]
        assert 1_500_000_000 == int(path.stat().st_mtime)
        assert 0 == log.lower_leader_epochs(2)
        with pytest.raises(ValueError, match="must be 0 or more, got -1"):
            log.lower_leader_epochs(-1)
        assert 3 == log.lower_leader_epochs(0)
        log.append(numbered(3, 1))
    with manual_log(directory) as log:
        assert (True, 0, ["0 0"]) == (
            log.recovery_report.clean,
            log.leader_epoch,
            epoch_lines(directory),
        )
        assert [0] * 4 == [b.header.partition_leader_epoch for b in log.batches()]


def test_crash_during_lowering_loses_nothing_and_may_be_repeated() -> None:
    """INT-3: at each call, with each set of surviving writes; the second run does the rest."""
    for number in range(1, 60):
        disk = SimulatedDisk()
        disk.make_durable(DIRECTORY.parent)
        with manual_log(DIRECTORY, filesystem=disk, segment_bytes=200) as log:
            for offset in range(4):
                log.append_batches(_with_epoch(offset, offset + 3), assign_offsets=False)
        log = manual_log(DIRECTORY, filesystem=disk, segment_bytes=200)
        disk.crash_at(number)
        try:
            log.lower_leader_epochs(1)
        except PowerCut:
            ended = False
        else:
            ended = True
        for _choice, left in disk.crash_states(6, seed=number):
            with manual_log(DIRECTORY, filesystem=left, segment_bytes=200) as again:
                assert ([], [0, 1, 2, 3]) == (
                    list(again.recovery_report.corrupt_ranges),
                    [record.offset for record in again.records()],
                )
                again.lower_leader_epochs(1)
                assert {1} == {b.header.partition_leader_epoch for b in again.batches()}
                assert (1, EpochEnd(1, 4)) == (again.leader_epoch, again.end_offset_for_epoch(1))
        if ended:
            return
    pytest.fail("lowering makes more calls than were tried")
