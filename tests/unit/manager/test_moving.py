"""Moves of partitions between data directories: complete, and without losses (PAR-8)."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalog import (
    ConfigError,
    DiskFullError,
    Log,
    LogClosedError,
    LogManager,
    LogOfflineError,
    LogStorageError,
    ManagerConfig,
    Record,
    UnknownTopicOrPartitionError,
    open_log,
)
from kafkalog.files.names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    MOVE_NOTE,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkalog.log.cleaner_access import cleaner_access
from kafkalog.log.log import partition_of
from kafkalog.state.partition_metadata import read_partition_metadata
from tests.support.disk_faults import Fault
from tests.support.managers import (
    SMALL_LOG,
    append_texts,
    checkpointed,
    fail_directory,
    manual_manager,
    scheduler_of,
    values,
)
from tests.support.producing import Client
from tests.support.simulated_disk import PowerCut, SimulatedDisk

pytestmark = pytest.mark.usefixtures("_quiet")

A, B = Path("/disks/a"), Path("/disks/b")
TEXTS = [f"{number:100d}" for number in range(20)]


def names(disk: SimulatedDisk, directory: Path) -> list[str]:
    """Return the shortened names of extra directories and notes in a data directory."""
    found = [name for name in disk.list(directory) if name.startswith(("t-", MOVE_NOTE))]
    return sorted(name.split(".")[0] + name[name.rfind("-") :] for name in found if name != "t-0")


def filled(disk: SimulatedDisk) -> LogManager:
    """Return a manager with a partition in A that has several segments."""
    manager = manual_manager(A, B, filesystem=disk)
    manager.create_topic("t", directory=A)
    append_texts(manager, "t", 0, *TEXTS)
    return manager


def test_move_keeps_records_and_states(tmp_path: Path) -> None:
    """PAR-8: offsets, segments and their times, producers, topic id, checkpoints."""
    first, second = tmp_path / "a", tmp_path / "b"
    with manual_manager(first, second) as manager:
        manager.create_topic("t", directory=first)
        append_texts(manager, "t", 0, *TEXTS)
        log = manager.log("t")
        client = Client(7)
        client.send(log, transactional=True)
        log.delete_records(7)
        log.set_high_watermark(15)
        scheduler_of(manager).advance(40_000)
        bases = [segment.base_offset for segment in log.segments()]
        times = [segment.path.stat().st_mtime_ns // 10**6 for segment in log.segments()]
        epoch, identity = (
            log.leader_epoch,
            read_partition_metadata(partition_of(log).paths.filesystem, first / "t-0"),
        )
        manager.move_partition("t", 0, second)
        assert second == manager.directory_of("t", 0)
        moved = manager.log("t")
        assert moved is not log
        assert bases == [segment.base_offset for segment in moved.segments()]
        assert (
            times[:-1]
            == [segment.path.stat().st_mtime_ns // 10**6 for segment in moved.segments()][:-1]
        )
        assert (7, 21, epoch) == (moved.log_start_offset, moved.log_end_offset, moved.leader_epoch)
        assert TEXTS[7:] == values(manager, "t")[:13]
        assert [7] == [each.producer_id for each in moved.list_transactions()]
        assert moved.recovery_report.clean
        assert identity == read_partition_metadata(
            partition_of(moved).paths.filesystem, second / "t-0"
        )
        assert client.send(moved, transactional=True).first_offset == 21
        scheduler_of(manager).advance(40_000)
        for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
            assert "t-0" in checkpointed(second, name)
            assert "t-0" not in checkpointed(first, name)
    with manual_manager(first, second) as manager:
        assert second == manager.directory_of("t", 0)
        assert 7 == manager.log("t").log_start_offset
        assert TEXTS[7:] == values(manager, "t")[:13]
        assert manager.health().is_healthy


def test_move_keeps_high_watermark_and_cleaner_offset() -> None:
    """PAR-8: a broker starts with the first, the next cleaning with the second."""
    disk = SimulatedDisk()
    with filled(disk) as manager:
        log = manager.log("t")
        cleaner_access(log).checkpoint_cleaner_offset(5)
        log.set_high_watermark(15)
        scheduler_of(manager).advance(40_000)
        manager.move_partition("t", 0, B)
        assert {"t-0": 15} == checkpointed(B, HIGH_WATERMARK_CHECKPOINT, disk)
        assert {"t-0": 5} == checkpointed(B, CLEANER_OFFSET_CHECKPOINT, disk)
        assert {} == checkpointed(A, CLEANER_OFFSET_CHECKPOINT, disk)


def test_move_removes_the_old_copy_after_the_delay() -> None:
    """PAR-8: renamed to `-delete`, so that readers keep their bytes; no note is left."""
    disk = SimulatedDisk()
    with filled(disk) as manager:
        manager.move_partition("t", 0, B)
        assert ["t-0-delete"] == names(disk, A)
        assert [] == names(disk, B)
        scheduler_of(manager).advance(2_000)
        assert [] == names(disk, A)
        assert TEXTS == values(manager, "t")
        manager.move_partition("t", 0, A)
        scheduler_of(manager).advance(2_000)
        assert A == manager.directory_of("t", 0)
        assert TEXTS == values(manager, "t")
        assert [[], []] == [names(disk, A), names(disk, B)]


class BusyDisk(SimulatedDisk):
    """
    A disk on which others have a turn within certain writes.

    Attributes:
        turns: by the end of a file's path, the functions to call within its next writes, one each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.turns: dict[str, list[Callable[[], object]]] = {}

    def enter_call(self, name: str, path: Path | str) -> Fault | None:
        fault = super().enter_call(name, path)
        if name == "pwrite":
            for suffix, turns in self.turns.items():
                if turns and str(path).endswith(suffix):
                    turns.pop(0)()
                    break
        return fault


def append_segments(log: Log, *segments: Sequence[str]) -> None:
    """Append a segment for each sequence, with a batch for each text; the last one stays active."""
    for number, texts in enumerate(segments):
        if number:
            log.roll()
        for text in texts:
            log.append([Record(value=text.encode())])


def test_move_copies_appends_during_the_copy() -> None:
    """PAR-8: the log accepts all changes until the last part; also truncations."""
    disk = BusyDisk()
    # More than may be left for the time with the log closed: a second copy follows.
    large = "x" * (17 << 20)
    new = [f"new {number:100d}" for number in range(6)]
    expected = [*TEXTS[1:11], *new, "later"]
    config = ManagerConfig(
        log=replace(SMALL_LOG, segment_bytes=32 << 20, max_message_bytes=32 << 20)
    )
    with manual_manager(A, B, config=config, filesystem=disk) as manager:
        manager.create_topic("t", directory=A)
        log = manager.log("t")
        append_segments(log, [large], *(TEXTS[first : first + 3] for first in range(0, 20, 3)))
        bases = [segment.base_offset for segment in log.segments()]
        assert [0, 1, 4, 7, 10, 13, 16, 19] == bases
        was_closed: list[bool] = []

        def change() -> None:
            log.truncate_to(12)
            append_segments(log, new[:1], new[1:4], new[4:])
            log.delete_records(2)
            bases = [segment.base_offset for segment in log.segments()]
            assert [1, 4, 7, 10, 13, 16] == bases
            disk.turns[f"-future/{16:020d}.log"] = [
                lambda: append_segments(log, ["later"]),
                lambda: was_closed.append(log.is_closed),
            ]

        disk.turns[f"-future/{19:020d}.log"] = [change]
        manager.move_partition("t", 0, B)
        assert [True] == was_closed
        assert expected == values(manager, "t")
        assert not manager.log("t").corrupt_ranges()
    with manual_manager(A, B, filesystem=disk) as manager:
        assert expected == values(manager, "t")


def test_clients_and_slices_continue_after_a_move(tmp_path: Path) -> None:
    """PAR-8: producer and consumer open the log again; bytes that were read stay valid."""
    first, second = tmp_path / "a", tmp_path / "b"
    with manual_manager(first, second) as manager:
        manager.create_topic("t", directory=first)
        with manager.producer() as producer:
            consumer = manager.consumer(auto_offset_reset="earliest")
            consumer.subscribe(["t"])
            producer.send("t", b"one")
            producer.flush()
            held = manager.log("t")
            held_bytes = held.read(0).data
            reader = open_log(first / "t-0", read_only=True)
            manager.move_partition("t", 0, second)
            producer.send("t", b"two")
            producer.flush()
            found: list[bytes | None] = []
            for _poll in range(4):
                for records in consumer.poll().values():
                    found += [each.value for each in records]
            assert b"two" in found
            assert b"one" in bytes(held_bytes)
            assert b"one" == next(reader.records()).value
            reader.close()
            with pytest.raises(LogClosedError):
                held.append([Record(value=b"x")])


def test_move_to_the_same_directory_does_nothing() -> None:
    """PAR-8: the open log stays open."""
    disk = SimulatedDisk()
    with filled(disk) as manager:
        log = manager.log("t")
        manager.move_partition("t", 0, A)
        assert log is manager.log("t")


def test_move_of_unknown_partition_or_directory_is_refused() -> None:
    """PAR-8: with the errors of other calls; also to an offline directory."""
    disk = SimulatedDisk()
    with filled(disk) as manager:
        with pytest.raises(UnknownTopicOrPartitionError):
            manager.move_partition("t", 1, B)
        with pytest.raises(ConfigError):
            manager.move_partition("t", 0, Path("/disks/c"))
        manager.create_topic("other", directory=B)
        append_texts(manager, "other", 0, "lost")
        fail_directory(disk, manager, "other")
        with pytest.raises(LogOfflineError):
            manager.move_partition("t", 0, B)
        assert TEXTS == values(manager, "t")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize(
    ("operation", "suffix"),
    [
        ("pwrite", "-future/00000000000000000000.log"),
        ("sync", "-future/00000000000000000000.log"),
        ("rename", "-future"),
        ("make_directory", "-future"),
        ("sync_directory", "-future"),
        ("sync_directory", "/disks/b"),
    ],
)
def test_move_disk_error_leaves_the_partition_in_place(
    operation: str, suffix: str, number: int
) -> None:
    """PAR-8: after EIO it waits for `bring_online`; nothing is lost."""
    for call in range(1, 40):
        disk = SimulatedDisk()
        with filled(disk) as manager:
            disk.fail_at(call, number, only=frozenset({operation}), suffix=suffix)
            try:
                manager.move_partition("t", 0, B)
            except LogStorageError as error:
                assert isinstance(error, DiskFullError) == (number == errno.ENOSPC)
                disk.clear_faults()
                if number == errno.EIO:
                    # After a failure of the commit, the partition waits for this.
                    manager.bring_online(B)
                else:
                    assert A == manager.directory_of("t", 0)
                append_texts(manager, "t", 0, "more")
                expected = [*TEXTS, "more"]
            else:
                disk.clear_faults()
                expected = TEXTS
            assert expected == values(manager, "t")
        with manual_manager(A, B, filesystem=disk) as manager:
            assert expected == values(manager, "t")
            scheduler_of(manager).advance(2_000)
            assert [[], []] == [names(disk, A), names(disk, B)]
        if len(expected) == len(TEXTS):
            return
    raise AssertionError("the move does not end")


def test_concurrent_moves_run_one_after_another(tmp_path: Path) -> None:
    """PAR-8: the second finds the partition in its new directory."""
    first, second = tmp_path / "a", tmp_path / "b"
    with manual_manager(first, second) as manager:
        manager.create_topic("t", directory=first)
        append_texts(manager, "t", 0, *TEXTS)
        threads = [
            threading.Thread(target=manager.move_partition, args=("t", 0, second))
            for _number in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert second == manager.directory_of("t", 0)
        assert TEXTS == values(manager, "t")


def crashed_moves(limit: int) -> Iterator[tuple[int, SimulatedDisk]]:
    """Yield the disk after a power cut at each changing call of a move."""
    for number in range(1, 400):
        disk = SimulatedDisk()
        manager = filled(disk)
        manager.log("t").flush()
        disk.crash_at(number)
        is_done = False
        try:
            manager.move_partition("t", 0, B)
            is_done = True
        except PowerCut:
            pass
        for _choice, state in disk.crash_states(limit, seed=number):
            yield number, state
        disk.clear_faults()
        if is_done:
            manager.close()
            return
    raise AssertionError("the move does not end")


def test_move_crashed_at_any_call_leaves_one_complete_copy() -> None:
    """PAR-8: in one of the directories, without other files after the next start."""
    places: set[Path] = set()
    for number, disk in crashed_moves(2):
        for _again in range(2):
            with manual_manager(A, B, filesystem=disk) as manager:
                places.add(manager.directory_of("t", 0))
                assert TEXTS == values(manager, "t"), number
                assert manager.health().is_healthy, number
                scheduler_of(manager).advance(2_000)
                assert [[], []] == [names(disk, A), names(disk, B)], number
                assert 20 == manager.log("t").append([Record(value=b"n")]).first_offset
                manager.log("t").truncate_to(20)
    assert {A, B} == places


def test_move_crashed_with_new_directory_offline_serves_no_uncertain_copy() -> None:
    """PAR-8: with the new directory offline at the start the old copy refuses reads and writes."""
    found: set[str] = set()
    for number, disk in crashed_moves(1):
        disk.fail_at(1, errno.EIO, only=frozenset({"open"}), suffix="b/meta.properties")
        with manual_manager(A, B, filesystem=disk) as manager:
            disk.clear_faults()
            try:
                append_texts(manager, "t", 0, "new")
                expected = [*TEXTS, "new"]
                found.add("served")
            except LogStorageError:
                expected = TEXTS
                found.add("refused")
            except UnknownTopicOrPartitionError:
                expected = TEXTS
                found.add("unknown")
            manager.bring_online(B)
            assert expected == values(manager, "t"), number
            scheduler_of(manager).advance(2_000)
        with manual_manager(A, B, filesystem=disk) as manager:
            assert expected == values(manager, "t"), number
    assert {"served", "refused"} <= found
