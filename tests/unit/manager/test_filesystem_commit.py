"""Commits of many logs by one sync of the file system: failures, power cuts, changes during it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog import (
    KafkaLogError,
    Log,
    LogClosedError,
    LogManager,
    LogOfflineError,
    LogStorageError,
    ManagerConfig,
    Record,
)
from kafkalog.files.filesystem import FileHandle, FilesystemSync
from kafkalog.manager.group_commit import CommitRequest, GroupCommitter
from tests.support.disk_faults import MUTATING, PowerCut
from tests.support.logs import manual_log
from tests.support.managers import SMALL_LOG, append_texts, values
from tests.support.simulated_disk import SimulatedDisk
from tests.support.syncs import WAIT_SECONDS

A, B = Path("/disks/a"), Path("/disks/b")
ALL_SYNCS = frozenset({"sync_filesystem"})


def nothing() -> None:
    """Do nothing."""


class HookedSync:
    """
    Syncs of a simulated disk that call a function before the disk has everything, and after.

    Attributes:
        before, after: the functions.
        covered: whether directories are in the file system.
    """

    def __init__(self, inner: FilesystemSync) -> None:
        self._inner = inner
        self.before: Callable[[], object] = nothing
        self.after: Callable[[], object] = nothing
        self.covered = True

    def covers(self, directory: Path) -> bool:
        return self.covered and self._inner.covers(directory)

    def sync(self) -> None:
        self.before()
        self._inner.sync()
        self.after()

    def close(self) -> None:
        self._inner.close()


class HookedDisk(SimulatedDisk):
    """
    A disk that keeps the syncs of all that it has opened, by directory.

    Attributes:
        before_creation: called once, before the next creation of a file.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before_creation: Callable[[], object] = nothing
        self.syncs: dict[Path, HookedSync] = {}
        self.make_durable(A, B)

    def open_filesystem_sync(self, directory: Path) -> FilesystemSync | None:
        inner = super().open_filesystem_sync(directory)
        if inner is None:
            return None
        self.syncs[directory] = HookedSync(inner)
        return self.syncs[directory]

    def create_new(self, path: Path) -> FileHandle:
        before, self.before_creation = self.before_creation, nothing
        before()
        return super().create_new(path)


class Rig:
    """
    Logs on a simulated disk, each with a durable record, and a committer that syncs all of it.

    Attributes:
        disk, logs, committer: the parts.
        sync: the sync of the file system.
    """

    def __init__(self, count: int = 4) -> None:
        self.disk = HookedDisk()
        self.logs = [
            manual_log(A / f"t-{number}", filesystem=self.disk, segment_bytes=400, batch_bytes=200)
            for number in range(count)
        ]
        self.committer = GroupCommitter(3)
        opened = self.disk.open_filesystem_sync(A)
        assert opened is not None
        self.committer.use_filesystem_sync(opened, 2)
        self.sync = self.disk.syncs[A]
        self.append("kept")
        assert {} == self.commit()
        self.disk.calls.clear()

    def append(self, text: str) -> None:
        """Append a record to each log."""
        for log in self.logs:
            log.append([Record(value=text.encode())])

    def commit(self) -> dict[Log, KafkaLogError]:
        """Commit all logs."""
        return self.committer.commit(self.logs)

    def durable(self) -> list[int]:
        """Return the durable offset of each log."""
        return [log.durable_offset for log in self.logs]

    def close(self) -> None:
        """Close everything."""
        self.committer.close()
        for log in self.logs:
            log.close()

    def check_crashes(self, limit: int = 12, texts: list[list[str]] | None = None) -> None:
        """Check for states after a power cut that each log has what it calls durable."""
        texts = texts or [texts_of(log) for log in self.logs]
        for _choice, left in self.disk.crash_states(limit):
            for number, log in enumerate(self.logs):
                with manual_log(A / f"t-{number}", filesystem=left) as found:
                    durable = log.durable_offset
                    assert texts[number][:durable] == texts_of(found)[:durable]


def texts_of(log: Log) -> list[str]:
    """Return the values of all records."""
    return [bytes(record.value or b"").decode() for record in log.records()]


def cache_in_journal(disk: SimulatedDisk, log: Log) -> bytes:
    """Return the id in the sync journal of a log by which it keeps its leader epoch."""
    content = disk.snapshot()[str(log.directory / ".kafkalog_syncs")]
    assert content is not None
    return content[28:36]


def held(entered: threading.Event, go_on: threading.Event) -> Callable[[], object]:
    """Return a function that sets an event, and waits for another."""

    def hold() -> None:
        entered.set()
        assert go_on.wait(WAIT_SECONDS)

    return hold


def in_thread(call: Callable[[], object]) -> threading.Thread:
    """Start a call in a thread."""
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def manager_on(disk: SimulatedDisk, logs_min: int, *directories: Path) -> LogManager:
    """Open a manager with commit threads on a simulated disk."""
    config = ManagerConfig(log=SMALL_LOG, commit_syncfs_logs=logs_min)
    return LogManager(directories or A, config, filesystem=disk)


# ------------------------------------------------------------------------- logs that are synced


def test_flush_of_many_dirty_logs_is_one_sync(tmp_path: Path) -> None:
    """Fewer logs than the setting, also where others were durable before, are synced one by one."""
    disk = HookedDisk()
    with manager_on(disk, 4) as manager:
        manager.create_topic("t", 6)
        for number in range(6):
            append_texts(manager, "t", number, "x")
        history: list[tuple[str, str]] = []
        disk.history = history
        assert [1] * 6 == list(manager.flush().values())
        log_files = [name for name, path in history if name == "sync" and path.endswith(".log")]
        assert [] == log_files
        names = [name for name, _path in history]
        assert 1 == names.count("sync_filesystem")
        assert 6 == names.count("sync"), "the journals, of which none was synced before"
        assert names.index("sync_filesystem") > max(
            position for position, name in enumerate(names) if name == "sync"
        )
        history.clear()
        for number in range(3):
            append_texts(manager, "t", number, "y")
        assert [2, 2, 2, 1, 1, 1] == list(manager.flush().values())
        assert ["sync"] * 3 == [name for name, _path in history if "sync" in name]


def test_flush_after_that_syncs_nothing_more() -> None:
    """Bytes, names of new segments, and cut tails count as synced."""
    rig = Rig()
    logs = rig.logs
    for _step in range(12):
        rig.append("x" * 30)
    assert all(len(log.segments()) > 2 for log in logs)
    assert {} == rig.commit()
    assert 1 == rig.disk.calls["sync_filesystem"]
    assert [13] * 4 == rig.durable()
    before = rig.disk.calls["sync"], rig.disk.calls["sync_directory"]
    for log in logs:
        log.flush()
    assert before == (rig.disk.calls["sync"], rig.disk.calls["sync_directory"])
    rig.check_crashes()
    rig.close()


def test_cut_of_a_preallocated_tail_is_covered() -> None:
    """Below the recovery point the next start searches no tail."""
    disk = HookedDisk()
    logs = [
        manual_log(A / f"t-{number}", filesystem=disk, preallocate=True, segment_bytes=600)
        for number in range(2)
    ]
    committer = GroupCommitter(2)
    opened = disk.open_filesystem_sync(A)
    assert opened is not None
    committer.use_filesystem_sync(opened, 1)
    for log in logs:
        log.append([Record(value=b"x")])
        log.roll()
    assert {} == committer.commit(logs)
    before = disk.calls["sync"]
    for log in logs:
        log.flush()
    assert before == disk.calls["sync"]
    committer.close()
    for log in logs:
        log.close()


def test_logs_of_another_file_system_are_synced_one_by_one() -> None:
    """A partition directory may be a link."""
    rig = Rig()
    rig.committer.close()
    rig.committer = GroupCommitter(2)
    opened = rig.disk.open_filesystem_sync(A)
    assert opened is not None
    rig.committer.use_filesystem_sync(opened, 2)
    rig.disk.syncs[A].covered = False
    rig.append("x")
    assert {} == rig.commit()
    assert 0 == rig.disk.calls["sync_filesystem"]
    assert [2] * 4 == rig.durable()
    rig.close()


@pytest.mark.parametrize("case", ["off", "one-thread", "not-offered", "refused"])
def test_manager_without_a_sync_of_the_file_system_syncs_one_by_one(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the setting, without commit threads, or where the system has none."""
    disk = HookedDisk()
    disk.syncs_all = case != "not-offered"
    if case == "refused":

        def refuse(directory: Path) -> FilesystemSync | None:
            raise PermissionError(errno.EACCES, "no", str(directory))

        monkeypatch.setattr(disk, "open_filesystem_sync", refuse)
    config = ManagerConfig(
        log=SMALL_LOG,
        commit_syncfs_logs=0 if case == "off" else 1,
        commit_threads=1 if case == "one-thread" else 4,
    )
    with LogManager(A, config, filesystem=disk) as manager:
        manager.create_topic("t", 3)
        for number in range(3):
            append_texts(manager, "t", number, "x")
        assert [1, 1, 1] == list(manager.flush().values())
        assert {} == disk.syncs
        assert 0 == disk.calls["sync_filesystem"]


def test_close_closes_the_file_system_after_the_last_commit() -> None:
    """Later commits sync in the threads of their callers."""
    rig = Rig()
    rig.append("x")
    rig.committer.close()
    with pytest.raises(ValueError, match="its file system must be open for a sync"):
        rig.sync.sync()
    assert {} == rig.commit()
    assert [2] * 4 == rig.durable()
    rig.close()


# ------------------------------------------------------------------------------------- failures


def test_failed_sync_takes_all_logs_of_the_commit_offline() -> None:
    """Each waiter gets a typed error of each of its logs; nothing becomes durable again."""
    rig = Rig(5)
    disk, committer, logs = rig.disk, rig.committer, rig.logs
    rig.append("lost")
    assert all(cache_in_journal(disk, log) != bytes(8) for log in logs)
    bystander = logs.pop()
    disk.fail_at(1, errno.EIO, only=ALL_SYNCS)
    entered, go_on = threading.Event(), threading.Event()
    rig.sync.before = held(entered, go_on)
    first = committer.request(logs)
    assert entered.wait(WAIT_SECONDS)
    second = committer.request(logs[:1])
    go_on.set()
    failures = first.wait()
    assert set(logs) == set(failures)
    for log, error in failures.items():
        assert isinstance(error, LogStorageError)
        assert (errno.EIO, str(log.directory)) == (error.errno, error.path)
        assert isinstance(error.__cause__, OSError)
        assert log.offline_error is not None
        # The next opening does not continue with the leader epoch of what may be lost.
        assert bytes(8) == cache_in_journal(disk, log)
    (error,) = second.wait().values()
    assert isinstance(error, LogOfflineError)
    assert bystander.offline_error is None
    with pytest.raises(LogOfflineError):
        logs[0].append([Record(value=b"x")])
    assert [1] * 4 == rig.durable()
    rig.check_crashes()
    committer.close()


def test_error_of_another_logs_file_is_not_lost_with_the_commit_that_gets_it() -> None:
    """
    The system reports it once for the file system, and to whom it may concern.

    A second sync of the file system would succeed, and the log of that file be called durable.
    """
    rig = Rig(5)
    rig.append("x")
    victim, others = rig.logs[0], rig.logs[1:]
    rig.disk.fail_write_back(victim.segments()[-1].path)
    assert set(others[:2]) == set(rig.committer.commit(others[:2]))
    failures = rig.committer.commit([victim, *others[2:]])
    assert [victim] == list(failures)
    assert isinstance(failures[victim], LogStorageError)
    assert [1, 1, 1, 2, 2] == rig.durable()
    assert 1 == rig.disk.calls["sync_filesystem"]
    rig.check_crashes()
    rig.committer.close()


def test_killed_in_a_failed_sync_the_next_process_writes_the_bytes_again() -> None:
    """The error was consumed; the journals were at "trying" before it."""
    rig = Rig()
    rig.append("again")
    rig.disk.fail_at(1, only=ALL_SYNCS, kills=True)
    with pytest.raises(PowerCut):
        rig.commit()
    disk = rig.disk.killed()
    for number in range(4):
        log = manual_log(A / f"t-{number}", filesystem=disk)
        assert 2 == log.durable_offset
    for _choice, left in disk.crash_states(8):
        for number in range(4):
            with manual_log(A / f"t-{number}", filesystem=left) as log:
                assert ["kept", "again"] == texts_of(log)


def test_interrupted_sync_takes_the_logs_offline() -> None:
    """The waiter gets what interrupted it, the logs have a typed error."""
    rig = Rig()
    rig.append("x")

    def interrupt() -> None:
        raise KeyboardInterrupt

    rig.sync.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        rig.commit()
    assert all("interrupted" in str(log.offline_error) for log in rig.logs)
    assert [1] * 4 == rig.durable()
    rig.committer.close()


def test_journal_that_refuses_concerns_its_log_only() -> None:
    """Nothing was begun for it; the others are committed."""
    disk = HookedDisk()
    with manager_on(disk, 2) as manager:
        manager.create_topic("t", 3)
        logs = [manager.log("t", number) for number in range(3)]
        for number in range(3):
            append_texts(manager, "t", number, "x")
        journal = ".kafkalog_syncs"
        disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite"}), suffix=journal)
        disk.fail_at(1, errno.ENOSPC, only=frozenset({"unlink"}), suffix=journal)
        with pytest.raises(LogStorageError):
            manager.flush()
        assert [0, 1, 1] == sorted(log.durable_offset for log in logs)
        assert 1 == disk.calls["sync_filesystem"]


# --------------------------------------------------------------------------- changes during it


def test_appends_during_the_sync_are_durable_after_the_next() -> None:
    """Also those that the sync may have covered: it is not known when they came."""
    rig = Rig()
    rig.append("x")
    rig.sync.before = lambda: rig.append("before")
    rig.sync.after = lambda: rig.append("after")
    assert {} == rig.commit()
    assert [2] * 4 == rig.durable()
    rig.check_crashes()
    rig.sync.before = rig.sync.after = nothing
    assert 4 == rig.logs[0].flush()
    assert {} == rig.commit()
    assert [4] * 4 == rig.durable()
    rig.check_crashes()
    rig.close()


def test_roll_during_the_sync_is_for_the_next() -> None:
    """Neither the name of the new segment nor its bytes count as synced."""
    rig = Rig()
    for log in rig.logs:
        log.roll()
    rig.append("x")

    def roll() -> None:
        for log in rig.logs:
            log.roll()
        rig.append("y")

    rig.sync.after = roll
    assert {} == rig.commit()
    assert [2] * 4 == rig.durable()
    rig.check_crashes()
    rig.sync.after = nothing
    for log in rig.logs:
        assert 3 == log.flush()
    rig.check_crashes()
    rig.close()


def test_append_that_is_undone_during_the_sync_leaves_nothing_synced() -> None:
    """Bytes that were never published are cut; other bytes in their place need another sync."""
    rig = Rig()
    log = rig.logs[0]
    entered, go_on = threading.Event(), threading.Event()
    rig.sync.after = held(entered, go_on)
    requests: list[CommitRequest] = []
    for other in rig.logs[1:]:
        other.append([Record(value=b"x")])
    log.append([Record(value=b"x")])

    def commit_and_refuse() -> None:
        # The first batches are in the file, and not published, when the sync begins.
        requests.append(rig.committer.request(rig.logs))
        assert entered.wait(WAIT_SECONDS)
        raise OSError(errno.ENOSPC, "no space")

    rig.disk.before_creation = commit_and_refuse
    with pytest.raises(KafkaLogError):
        log.append([Record(value=b"undone" * 15)] * 4)
    assert requests
    log.append([Record(value=b"y" * 50)])
    go_on.set()
    assert {} == requests[0].wait()
    assert [2] * 4 == rig.durable()
    assert 3 == log.flush()
    rig.check_crashes()
    rig.close()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_truncation_during_the_sync_keeps_the_durable_offset_below(moment: str) -> None:
    """The sync saw the old end, which later appends have reached again."""
    rig = Rig()
    rig.append("gone")

    def truncate() -> None:
        for log in rig.logs:
            log.truncate_to(1)
        rig.append("other")

    setattr(rig.sync, moment, truncate)
    assert {} == rig.commit()
    assert [1] * 4 == rig.durable()
    rig.check_crashes()
    setattr(rig.sync, moment, nothing)
    assert {} == rig.commit()
    assert [2] * 4 == rig.durable()
    rig.check_crashes()
    rig.close()


def test_flush_and_close_of_a_log_wait_for_the_sync() -> None:
    """A caller's own flush covers what came during the sync."""
    rig = Rig()
    rig.append("x")
    entered, go_on = threading.Event(), threading.Event()
    rig.sync.after = held(entered, go_on)
    request = rig.committer.request(rig.logs)
    assert entered.wait(WAIT_SECONDS)
    rig.logs[0].append([Record(value=b"y")])
    callers = [in_thread(rig.logs[0].flush), in_thread(rig.logs[1].close)]
    callers[0].join(0.05)
    assert [True, True] == [each.is_alive() for each in callers]
    assert 1 == rig.logs[0].durable_offset
    go_on.set()
    assert {} == request.wait()
    for each in callers:
        each.join(WAIT_SECONDS)
    assert [3, 2, 2, 2] == rig.durable()
    rig.disk.clear_faults()
    rig.close()


def test_move_of_a_log_during_the_sync() -> None:
    """The close of the old log waits; the new one has everything."""
    disk = HookedDisk()
    with manager_on(disk, 2, A, B) as manager:
        manager.create_topic("t", 3, directory=A)
        for number in range(3):
            append_texts(manager, "t", number, "x")
        movers = []
        sync = disk.syncs[A]
        sync.before = lambda: movers.append(in_thread(lambda: manager.move_partition("t", 0, B)))
        assert {1} == set(manager.flush().values())
        sync.before = nothing
        movers[0].join(WAIT_SECONDS)
        assert B == manager.directory_of("t", 0)
        append_texts(manager, "t", 0, "y")
        assert {2, 1} == set(manager.flush().values())
        assert ["x", "y"] == values(manager, "t", 0)


def test_deletion_of_a_topic_during_the_sync() -> None:
    """Its logs are closed; the others are durable, and the threads continue."""
    disk = HookedDisk()
    with manager_on(disk, 2) as manager:
        for topic in ("gone", "kept"):
            manager.create_topic(topic, 2)
            for number in range(2):
                append_texts(manager, topic, number, "x")
        logs = [manager.log("kept", number) for number in range(2)]
        deleters: list[threading.Thread] = []

        def delete() -> None:
            deleters.append(in_thread(lambda: manager.delete_topic("gone")))
            deleters[0].join(0.2)

        disk.syncs[A].before = delete
        manager.flush()
        deleters[0].join(WAIT_SECONDS)
        assert not deleters[0].is_alive()
        assert [1, 1] == [log.durable_offset for log in logs]
        disk.syncs[A].before = nothing
        for number in range(2):
            append_texts(manager, "kept", number, "y")
        assert {2} == set(manager.flush().values())
        assert manager.health().is_healthy


def test_log_that_is_closed_before_its_turn_is_durable_or_fails() -> None:
    """Its close has synced it."""
    rig = Rig()
    rig.append("x")
    request = None
    entered, go_on = threading.Event(), threading.Event()
    rig.sync.after = held(entered, go_on)
    running = rig.committer.request(rig.logs[2:])
    assert entered.wait(WAIT_SECONDS)
    request = rig.committer.request(rig.logs[:2])
    rig.logs[0].close()
    go_on.set()
    assert {} == running.wait()
    assert {} == request.wait()
    with pytest.raises(LogClosedError):
        rig.logs[0].flush()
    assert [2] * 4 == rig.durable()
    rig.close()


# ----------------------------------------------------------------------------------- power cuts


def commit_with_a_cut(number: int) -> tuple[Rig, bool]:
    """Commit, append during it and commit again; the power goes at the n-th change of the disk."""
    rig = Rig(3)
    rig.append("perhaps")
    rig.sync.before = lambda: rig.logs[0].append([Record(value=b"during")])
    rig.sync.after = lambda: rig.logs[1].roll()
    rig.disk.crash_at(number, only=MUTATING)
    try:
        rig.commit()
        rig.commit()
    except (PowerCut, KafkaLogError):
        pass
    return rig, rig.disk.is_off


def test_power_cut_at_any_change_keeps_what_is_durable() -> None:
    """Before, during and after the sync, and while the logs are marked."""
    checked = 0
    for number in range(1, 100):
        rig, was_cut = commit_with_a_cut(number)
        rig.check_crashes(8, [["kept", "perhaps", "during"], *[["kept", "perhaps"]] * 2])
        rig.committer.close()
        if not was_cut:
            break
        checked += 1
    assert not was_cut
    assert [3, 2, 2] == rig.durable()
    assert checked > 10


def test_power_cut_in_the_sync_leaves_whole_records() -> None:
    """Any of the logs may have its record; none has part of it, and none lost what it had."""
    rig = Rig()
    rig.append("perhaps")
    rig.disk.crash_at(1, only=ALL_SYNCS)
    with pytest.raises(PowerCut):
        rig.commit()
    found = set()
    for _choice, left in rig.disk.crash_states(40):
        for number in range(4):
            with manual_log(A / f"t-{number}", filesystem=left) as log:
                found.add(tuple(texts_of(log)))
    assert {("kept",), ("kept", "perhaps")} == found
    assert [1] * 4 == rig.durable()
    rig.committer.close()
