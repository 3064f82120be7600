"""Commits of many logs together: overlap, rounds, failures, interruptions and power cuts."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest

from kafkalog import (
    ForkedLogError,
    KafkaLogError,
    Log,
    LogClosedError,
    LogManager,
    LogOfflineError,
    LogStorageError,
    ManagerConfig,
    Record,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from kafkalog.files import posix
from kafkalog.manager.group_commit import CommitRequest, GroupCommitter
from tests.support.disk_faults import SYNCING, PowerCut
from tests.support.logs import manual_log
from tests.support.managers import append_texts, manual_manager, values
from tests.support.simulated_disk import SimulatedDisk
from tests.support.syncs import WAIT_SECONDS, Syncs

A, B = Path("/disks/a"), Path("/disks/b")


@pytest.fixture(name="syncs")
def fixture_syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    """Return the syncs of log files."""
    return Syncs(monkeypatch)


def logs_in(directory: Path, count: int) -> list[Log]:
    """Return open logs, each with a record that is not durable."""
    logs = [manual_log(directory / f"t-{number}") for number in range(count)]
    for log in logs:
        log.append([Record(value=b"x")])
    return logs


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def in_thread(call: Callable[[], object]) -> threading.Thread:
    """Start a call in a thread."""
    thread = threading.Thread(target=call)
    thread.start()
    return thread


@pytest.mark.parametrize("thread_count", [1, 4])
def test_flush_syncs_as_many_logs_at_once_as_there_are_threads(
    tmp_path: Path, syncs: Syncs, thread_count: int
) -> None:
    """SRV-1: the syncs of a flush are in flight together, for the file system merges them."""
    with LogManager(tmp_path, ManagerConfig(commit_threads=thread_count)) as manager:
        manager.create_topic("t", 8)
        for number in range(8):
            append_texts(manager, "t", number, "x")
        syncs.hold()
        flushing = in_thread(manager.flush)
        syncs.wait_for(thread_count)
        syncs.release()
        flushing.join(WAIT_SECONDS)
        assert thread_count == syncs.most
        assert [1] * 8 == [manager.log("t", number).durable_offset for number in range(8)]


def test_flush_returns_the_durable_offsets_of_open_logs(tmp_path: Path) -> None:
    """A log that is not open has nothing to sync, and is left out."""
    with manual_manager(tmp_path / "a", tmp_path / "b") as manager:
        manager.create_topic("t", 5)
        append_texts(manager, "t", 1, "a", "b")
        append_texts(manager, "t", 3, "c")
        expected = {TopicPartition("t", 1): 2, TopicPartition("t", 3): 1}
        assert {} == manager.flush([("t", 0), ("t", 2)])
        assert {TopicPartition("t", 3): 1} == manager.flush([("t", 3)])
        assert 0 == manager.log("t", 1).durable_offset
        assert expected == manager.flush()
        assert expected == manager.flush(), "nothing is left to be synced"


def test_flush_of_an_unknown_partition_syncs_nothing(tmp_path: Path) -> None:
    """The names are checked before the first sync."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("t")
        append_texts(manager, "t", 0, "x")
        with pytest.raises(UnknownTopicOrPartitionError):
            manager.flush([("t", 0), ("t", 1)])
        assert 0 == manager.log("t").durable_offset


def test_flush_of_a_closed_manager_raises(tmp_path: Path) -> None:
    """Its logs are durable already."""
    manager = manual_manager(tmp_path)
    manager.close()
    with pytest.raises(LogClosedError):
        manager.flush()


def test_flush_failure_marks_one_log_offline_and_the_others_are_durable() -> None:
    """The error names the partition; another flush raises again and syncs what is new."""
    disk = SimulatedDisk()
    disk.make_durable(A)
    with manual_manager(A, filesystem=disk) as manager:
        manager.create_topic("t", 4)
        logs = [manager.log("t", number) for number in range(4)]
        for number in range(4):
            append_texts(manager, "t", number, "x")
        disk.fail_at(2, errno.ENOSPC, only=frozenset({"sync"}), suffix=".log")
        with pytest.raises(LogStorageError) as caught:
            manager.flush()
        failed = [log for log in logs if log.offline_error is not None]
        assert [failed[0].directory] == [log.directory for log in failed]
        assert str(failed[0].directory) in str(caught.value)
        assert [0, 1, 1, 1] == sorted(log.durable_offset for log in logs)
        healthy = next(number for number in range(4) if logs[number] not in failed)
        append_texts(manager, "t", healthy, "y")
        with pytest.raises(LogOfflineError):
            manager.flush()
        assert 2 == logs[healthy].durable_offset


def test_commit_during_a_round_is_covered_by_the_next_one(tmp_path: Path, syncs: Syncs) -> None:
    """Callers that come during a sync share one round, and are released together."""
    logs = logs_in(tmp_path, 5)
    committer = GroupCommitter(2)
    syncs.hold()
    requests = [committer.request(logs[:1])]
    syncs.wait_for(1)
    requests += [committer.request([log, logs[1]]) for log in logs[1:]]
    # More of the first log: what is appended during a sync needs another one.
    logs[0].append([Record(value=b"y")])
    requests.append(committer.request(logs[:1]))
    assert 1 == syncs.count
    syncs.release_begun()
    assert {} == requests[0].wait()
    syncs.wait_for(3)
    assert [1, 0, 0, 0, 0] == [log.durable_offset for log in logs]
    syncs.release()
    assert [{}] * 5 == [each.wait() for each in requests[1:]]
    assert [2, 1, 1, 1, 1] == [log.durable_offset for log in logs]
    assert 6 == syncs.count, "one for each log, and another for the first"
    committer.close()
    for log in logs:
        log.close()


def test_leader_commits_in_its_thread_and_those_that_come_meanwhile_later(
    tmp_path: Path, syncs: Syncs
) -> None:
    """Without another thread; a second leader is refused while a round runs, and requests."""
    logs = logs_in(tmp_path, 3)
    others = commit_threads()
    committer = GroupCommitter(2)
    syncs.hold()
    led: list[CommitRequest | None] = []
    leader = in_thread(lambda: led.append(committer.lead(logs[:1])))
    syncs.wait_for(1)
    assert commit_threads() <= others
    assert committer.lead(logs[1:]) is None
    requested = committer.request(logs[1:])
    # The thread of the committer waits for the end of the round.
    assert (1, [0, 0, 0]) == (syncs.count, [log.durable_offset for log in logs])
    syncs.release()
    leader.join(WAIT_SECONDS)
    assert {} == requested.wait()
    assert led[0] is not None
    assert {} == led[0].wait()
    assert [1, 1, 1] == [log.durable_offset for log in logs]
    committer.close()
    assert committer.lead(logs) is None
    for log in logs:
        log.close()


def test_leader_has_the_errors_of_its_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a request: the other logs of the round are durable."""
    logs = logs_in(tmp_path, 3)
    committer = GroupCommitter(2)

    def sync(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().parent == logs[1].directory:
            raise OSError(errno.EIO, "the disk")

    monkeypatch.setattr(posix, "sync_descriptor", sync)
    led = committer.lead(logs)
    assert led is not None
    assert [logs[1]] == list(led.wait())
    assert [1, 0, 1] == [log.durable_offset for log in logs]
    committer.close()
    for log in logs:
        with contextlib.suppress(LogOfflineError):
            log.close()


@pytest.mark.parametrize("in_main_thread", [True, False])
def test_flush_commits_in_its_thread_unless_a_signal_may_interrupt_it(
    tmp_path: Path, in_main_thread: bool, syncs: Syncs
) -> None:
    """In the main thread another one commits."""
    others = commit_threads()
    with LogManager(tmp_path, ManagerConfig(commit_threads=2)) as manager:
        manager.create_topic("t", 1)
        append_texts(manager, "t", 0, "x")
        if in_main_thread:
            manager.flush()
        else:
            in_thread(manager.flush).join(WAIT_SECONDS)
        assert syncs.count == 1
        own = commit_threads() - others
        assert in_main_thread == any(each.name == "kafkalog-commit" for each in own)


def test_commit_of_durable_logs_syncs_nothing(tmp_path: Path, syncs: Syncs) -> None:
    """Also for a log that went offline: what it promised is on the disk."""
    (log,) = logs_in(tmp_path, 1)
    log.flush()
    before = syncs.count
    assert {} == GroupCommitter(4).commit([log])
    assert before == syncs.count
    log.close()


def test_interrupted_sync_takes_its_log_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may have lost the error: the log is opened again, and recovered, by the next use."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("t", 2)
        for number in range(2):
            append_texts(manager, "t", number, "x")
        broken = manager.log("t", 0)

        def sync(descriptor: int) -> None:
            if str(broken.directory) in os.readlink(f"/proc/self/fd/{descriptor}"):  # noqa: PTH115
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(posix, "sync_descriptor", sync)
            with pytest.raises(KeyboardInterrupt):
                manager.flush()
        assert 1 == manager.log("t", 1).durable_offset, "the others were synced"
        assert "interrupted by KeyboardInterrupt" in str(broken.offline_error)
        with pytest.raises(LogOfflineError, match="interrupted by KeyboardInterrupt"):
            broken.append([Record(value=b"y")])
        assert ["x"] == values(manager, "t", 0)
        assert 1 == manager.log("t", 0).durable_offset
        assert manager.health().is_healthy


def test_commit_without_more_threads_syncs_in_the_calling_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of threads, or the end of the interpreter, makes a commit slower and no less true."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    logs = logs_in(tmp_path, 3)
    committer = GroupCommitter(4)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert {} == committer.commit(logs)
    assert [1, 1, 1] == [log.durable_offset for log in logs]
    for log in logs:
        log.append([Record(value=b"y")])
    assert {} == committer.commit(logs)
    committer.close()
    committer.close()
    for log in logs:
        log.append([Record(value=b"z")])
    assert {} == committer.commit(logs), "after the close"
    assert [3, 3, 3] == [log.durable_offset for log in logs]
    for log in logs:
        log.close()


def test_threads_end_when_idle_and_at_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manager that is dropped leaves no threads for ever."""
    monkeypatch.setattr("kafkalog.manager.group_commit.IDLE_SECONDS", 0.05)
    logs = logs_in(tmp_path, 3)
    others = commit_threads()
    committer = GroupCommitter(3)
    for step in range(3):
        for log in logs:
            log.append([Record(value=b"y")])
        assert {} == committer.commit(logs)
        if step == 1:
            wait_until(lambda: commit_threads() <= others)
    committer.close()
    assert commit_threads() <= others
    for log in logs:
        log.close()


def commit_threads() -> set[threading.Thread]:
    """Return the threads of commits, also those of earlier tests, which end when they are idle."""
    names = {"kafkalog-commit", "kafkalog-sync"}
    return {each for each in threading.enumerate() if each.name in names}


def test_commit_of_a_log_of_another_directory_raises(tmp_path: Path) -> None:
    """A manager commits its own logs."""
    (log,) = logs_in(tmp_path / "other", 1)
    message = "log must be in a directory of the manager, got"
    with manual_manager(tmp_path / "data") as manager, pytest.raises(ValueError, match=message):
        manager.commit([log])
    log.close()


def test_flush_of_a_log_that_was_closed_after_a_failed_sync_raises() -> None:
    """The close does not hide that records are not on the disk."""
    disk = SimulatedDisk()
    disk.make_durable(A)
    with manual_manager(A, filesystem=disk) as manager:
        manager.create_topic("t", 2)
        for number in range(2):
            append_texts(manager, "t", number, "x")
        log = manager.log("t", 0)
        disk.fail_at(1, errno.ENOSPC, only=frozenset({"sync"}), suffix=".log")
        with pytest.raises(LogStorageError):
            manager.flush([("t", 0)])
        with contextlib.suppress(KafkaLogError):
            log.close()
        with pytest.raises(LogClosedError):
            manager.flush()
        assert 1 == manager.log("t", 1).durable_offset


def test_flushes_from_many_threads_leave_everything_durable(tmp_path: Path) -> None:
    """Each caller finds what it appended on the disk when its flush returns."""
    with LogManager([tmp_path / "a", tmp_path / "b"]) as manager:
        manager.create_topic("t", 12)

        def work(seed: int) -> None:
            for step in range(20):
                names = [("t", (seed * 7 + step * each) % 12) for each in range(4)]
                ends = {}
                for name in names:
                    info = manager.log(*name).append([Record(value=b"x")])
                    ends[TopicPartition(*name)] = info.last_offset + 1
                durable = manager.flush(names)
                assert all(durable[name] >= end for name, end in ends.items())

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))


def flush_with_a_cut(disk: SimulatedDisk, number: int) -> tuple[bool, list[int]]:
    """
    Flush, append and flush again; the power goes at the n-th sync of that.

    Returns whether it went, and the ends that the first flush has made durable.
    """
    was_cut = False
    manager = manual_manager(A, B, filesystem=disk)
    manager.create_topic("t", 6)
    for partition in range(6):
        append_texts(manager, "t", partition, "kept")
    manager.flush()
    ends = [manager.log("t", partition).log_end_offset for partition in range(6)]
    for partition in range(6):
        append_texts(manager, "t", partition, "perhaps")
    disk.crash_at(number, only=SYNCING)
    try:
        manager.flush()
    except PowerCut:
        was_cut = True
    with contextlib.suppress(PowerCut, KafkaLogError):
        manager.close()
    return was_cut, ends


def test_flush_crashed_at_any_sync_keeps_what_an_earlier_one_returned() -> None:
    """A power cut in a flush: the partitions that it was to cover have their batches or not."""
    checked = 0
    for number in range(1, 100):
        disk = SimulatedDisk()
        for path in (A, B):
            disk.make_durable(path)
        was_cut, ends = flush_with_a_cut(disk, number)
        if not was_cut:
            break
        for _choice, left in disk.crash_states(6, seed=number):
            with manual_manager(A, B, filesystem=left) as found:
                for partition, end in enumerate(ends):
                    texts = values(found, "t", partition)
                    assert "kept" == texts[end - 1]
                    assert texts[end:] in ([], ["perhaps"])
            checked += 1
    assert not was_cut
    assert checked > 30


def test_durable_producer_syncs_its_partitions_side_by_side(tmp_path: Path, syncs: Syncs) -> None:
    """SRV-1: one round for the batches of all partitions, acknowledged together."""
    with LogManager(tmp_path, ManagerConfig(commit_threads=4)) as manager:
        manager.create_topic("t", 8)
        with manager.producer(wait="durable", linger_ms=0) as producer:
            syncs.hold()
            sent = [producer.send("t", b"x", partition=0)]
            syncs.wait_for(1)
            sent += [producer.send("t", b"x", partition=number) for number in range(1, 8)]
            wait_until(lambda: all(manager.log("t", number).log_end_offset for number in range(8)))
            assert 1 == syncs.count
            syncs.release_begun()
            syncs.wait_for(5)
            assert sent[0].result(WAIT_SECONDS).offset == 0
            assert not any(each.done() for each in sent[1:])
            syncs.release()
            assert [0] * 8 == [each.result(WAIT_SECONDS).offset for each in sent]
            assert 4 == syncs.most


def test_durable_producer_writes_batches_during_a_sync(tmp_path: Path, syncs: Syncs) -> None:
    """A slow disk delays the acknowledgements, and not the batches after them."""
    with LogManager(tmp_path) as manager:
        manager.create_topic("t", 2)
        with manager.producer(wait="durable", linger_ms=0) as producer:
            syncs.hold()
            first = producer.send("t", b"x", partition=0)
            syncs.wait_for(1)
            second = producer.send("t", b"y", partition=1)
            wait_until(lambda: manager.log("t", 1).log_end_offset == 1)
            assert not first.done()
            assert not second.done()
            syncs.release()
            assert (0, 0) == (first.result(WAIT_SECONDS).offset, second.result(WAIT_SECONDS).offset)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_flush_in_a_forked_child_raises(tmp_path: Path) -> None:
    """SRV-3: it takes no lock, which a thread of the parent may hold."""
    with LogManager(tmp_path) as manager:
        manager.create_topic("t", 3)
        for number in range(3):
            append_texts(manager, "t", number, "x")
        manager.flush()
        child = os.fork()
        if not child:
            try:
                manager.flush()
            except ForkedLogError:
                os._exit(7)
            except BaseException:  # noqa: BLE001 - the child must not run the tests
                os._exit(1)
            os._exit(0)
        assert 7 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_thread_of_commits_waits_for_no_request_that_another_thread_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that leads a round takes the requests that are there; the others are served."""
    are_there = threading.Event()

    class Shared(SimpleQueue[object]):
        """A queue that another thread empties between a look and what follows it."""

        def get(self, block: bool = True, timeout: float | None = None) -> object:
            found = super().get(block, timeout)
            are_there.wait(WAIT_SECONDS)
            return found

        def empty(self) -> bool:
            if super().empty():
                return True
            committer.lead([])
            return False

    monkeypatch.setattr("kafkalog.manager.group_commit.SimpleQueue", Shared)
    committer = GroupCommitter(2)
    logs = logs_in(tmp_path, 2)
    waiting = [in_thread(committer.request([log]).wait) for log in logs]
    are_there.set()
    for each in waiting:
        each.join(WAIT_SECONDS)
    are_served = not any(each.is_alive() for each in waiting)
    # It ends a thread that waits for a request.
    committer.close()
    assert are_served
    assert [1, 1] == [log.durable_offset for log in logs]
