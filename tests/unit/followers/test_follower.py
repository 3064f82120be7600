"""Followers in the process of the writer: what they return, report and refuse."""

from __future__ import annotations

import errno
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest

import kafkalog
from kafkalog import (
    ClientClosedError,
    CommittedOffset,
    ConfigError,
    CorruptRecordError,
    FileSystem,
    Follower,
    ForkedLogError,
    LogConfig,
    LogManager,
    LostRecords,
    ManagerConfig,
    PartitionChange,
    Record,
    TopicPartition,
    open_log,
)
from kafkalog.files.filesystem import FileEvent, FileNotifications
from kafkalog.files.posix import PosixFileSystem
from kafkalog.testing.faults import Faults
from kafkalog.testing.faulty_disk import FaultyDisk
from kafkalog.testing.faulty_filesystem import FaultyFileSystem

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIG = ManagerConfig(log=LogConfig(segment_bytes=2_000, file_delete_delay_ms=0))


class Disk:
    """The disk of the machine with another `open_notifications`."""

    def __init__(self, opened: Callable[[], FileNotifications | None]) -> None:
        self._disk = PosixFileSystem()
        self.open_notifications = opened

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


def without_events() -> FileSystem:
    """Return a disk without events."""
    return cast("FileSystem", Disk(lambda: None))


def refuse() -> FileNotifications | None:
    """Refuse as a system whose limit is reached."""
    raise OSError(errno.EMFILE, "too many inotify instances")


class FewWatches:
    """Events of the machine, for the first watches only."""

    def __init__(self, count: int) -> None:
        events = PosixFileSystem().open_notifications()
        assert events is not None
        self._events = events
        self._left = count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    def add(self, directory: Path, *, with_writes: bool) -> int:
        """Watch a directory, if a watch is left."""
        self._left -= 1
        if self._left < 0:
            raise OSError(errno.ENOSPC, "too many watches", str(directory))
        return self._events.add(directory, with_writes=with_writes)


class LostEvents:
    """Events that are all lost, as in a full queue."""

    def __init__(self) -> None:
        events = PosixFileSystem().open_notifications()
        assert events is not None
        self._events = events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    def read(self) -> list[FileEvent]:
        """Return that events were lost, if there were any."""
        return [FileEvent(-1, "")] if self._events.read() else []


@pytest.fixture(name="manager")
def fixture_manager(tmp_path: Path) -> Iterator[LogManager]:
    """Return the manager of a topic with two partitions."""
    with LogManager([tmp_path], CONFIG) as manager:
        manager.create_topic("t", 2)
        yield manager


def append(manager: LogManager, partition: TopicPartition, *values: bytes) -> None:
    """Append records, a batch for each."""
    for value in values:
        manager.log(*partition).append([Record(value=value)])


def values(found: dict[TopicPartition, list[Record]]) -> dict[TopicPartition, list[bytes | None]]:
    """Return the values of the result of a poll."""
    return {where: [record.value for record in records] for where, records in found.items()}


def drain(follower: Follower) -> list[bytes | None]:
    """Return the values of all records until none comes for a moment."""
    found = []
    while polled := follower.poll(300):
        found += [record.value for records in polled.values() for record in records]
    return found


def test_end_shows_later_records_only(manager: LogManager, tmp_path: Path) -> None:
    """Of each partition, in order, once."""
    append(manager, T0, b"old")
    with kafkalog.follow(tmp_path) as follower:
        assert (T0, T1) == follower.partitions()
        assert (1, 0) == (follower.position(T0), follower.position(T1))
        assert {} == follower.poll()
        append(manager, T0, b"a", b"b")
        append(manager, T1, b"c")
        assert {T0: [b"a", b"b"], T1: [b"c"]} == values(follower.poll(5_000))
        assert {} == follower.poll()
        assert {
            T0: CommittedOffset(3, leader_epoch=0),
            T1: CommittedOffset(1, leader_epoch=0),
        } == follower.positions()


def test_start_shows_all_and_offsets_the_rest(manager: LogManager, tmp_path: Path) -> None:
    """A partition without an offset begins at its log start."""
    append(manager, T0, b"a", b"b", b"c")
    append(manager, T1, b"d")
    with kafkalog.follow(tmp_path, "t", start="start") as follower:
        assert {T0: [b"a", b"b", b"c"], T1: [b"d"]} == values(follower.poll(5_000))
    with kafkalog.follow(tmp_path, "t", start={T0: 2}) as follower:
        assert {T0: [b"c"], T1: [b"d"]} == values(follower.poll(5_000))


def test_topics_and_partitions_are_selected(manager: LogManager, tmp_path: Path) -> None:
    """Topics of Kafka itself are followed only by name."""
    manager.create_topic("u")
    manager.create_topic("__consumer_offsets")
    offsets = TopicPartition("__consumer_offsets", 0)
    for arguments, expected in (
        ({}, (T0, T1, TopicPartition("u", 0))),
        ({"topics": ["u"]}, (TopicPartition("u", 0),)),
        ({"topics": "__consumer_offsets"}, (offsets,)),
        ({"partitions": [("t", 1)]}, (T1,)),
    ):
        with kafkalog.follow(tmp_path, **cast("Any", arguments)) as follower:
            assert expected == follower.partitions()
    with pytest.raises(ValueError, match="not followed"):
        kafkalog.follow(tmp_path, "t").position(offsets)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"topics": "t", "partitions": [T0]}, ValueError, "got both"),
        ({"topics": []}, ValueError, "at least one name"),
        ({"topics": "a/b"}, ValueError, "topic name"),
        ({"partitions": []}, ValueError, "at least one"),
        ({"start": "now"}, ValueError, "start must be"),
        ({"start": {T0: -1}}, ValueError, "offset must be >= 0"),
        ({"start": {T0: True}}, TypeError, "CommittedOffset"),
        ({"start": {T0: "3"}}, TypeError, "CommittedOffset"),
        ({"isolation": "dirty"}, ValueError, "isolation"),
        ({"on_corrupt": "fix"}, ValueError, "on_corrupt"),
        ({"max_records": 0}, ValueError, "max_records"),
        ({"max_bytes": 1.5}, ValueError, "max_bytes"),
        ({"poll_interval_ms": 10**9}, ValueError, "at most"),
        ({"directories": []}, ConfigError, "data directory"),
    ],
)
def test_wrong_arguments_are_refused(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    """With the name of the argument and its value."""
    with pytest.raises(error, match=words):
        kafkalog.follow(**{"directories": tmp_path, **arguments})


@pytest.mark.parametrize("count", [1, 3, 7])
def test_pieces_are_bounded(manager: LogManager, tmp_path: Path, count: int) -> None:
    """A batch of more records is returned in parts, also of new records."""
    with kafkalog.follow(tmp_path, start="start", max_records=count) as follower:
        for turn in range(3):
            manager.log("t").append([Record(value=b"%d %d" % (turn, n)) for n in range(10)])
            found: list[bytes | None] = []
            while len(found) < 10:
                (piece,) = [next(follower.pieces(timeout_ms=5_000))]
                assert 1 <= len(piece.records) <= count
                assert piece.records[-1].offset + 1 == piece.next_offset == follower.position(T0)
                found += [record.value for record in piece.records]
            assert [b"%d %d" % (turn, n) for n in range(10)] == found


def test_pieces_end_with_the_bytes(manager: LogManager, tmp_path: Path) -> None:
    """The record that reaches the limit is the last one."""
    append(manager, T0, *[bytes(100)] * 10)
    with kafkalog.follow(tmp_path, start="start", max_bytes=250) as follower:
        sizes = [len(piece.records) for piece in follower.pieces(timeout_ms=300)]
        assert [3, 3, 3, 1] == sizes
        with pytest.raises(ValueError, match="max_records"):
            follower.poll(0, 0)


def test_batches_larger_than_a_read_are_returned(manager: LogManager, tmp_path: Path) -> None:
    """Also many small ones at once, and compressed ones."""
    manager.create_topic("big", 1, {"compression.type": "gzip", "segment.bytes": "10000000"})
    manager.create_topic("plain", 1, {"segment.bytes": "10000000"})
    with kafkalog.follow(tmp_path, ["big", "plain"]) as follower:
        for topic in ("big", "plain"):
            for size in (1, 200_000, 70_000, 3, 65_536):
                manager.log(topic).append([Record(value=os.urandom(size))])
                (record,) = follower.poll(5_000)[TopicPartition(topic, 0)]
                assert size == len(record.value or b"")
            append(manager, TopicPartition(topic, 0), *[b"%d" % n for n in range(1_500)])
            assert [b"%d" % n for n in range(1_500)] == drain(follower)


def test_rolls_and_preallocated_segments_are_followed(tmp_path: Path) -> None:
    """Zeros after the end are not records."""
    config = ManagerConfig(log=LogConfig(segment_bytes=2_000, preallocate=True))
    with LogManager([tmp_path], config) as manager:
        manager.create_topic("t")
        with kafkalog.follow(tmp_path) as follower:
            found: list[bytes | None] = []
            for number in range(100):
                append(manager, T0, b"%d " % number + bytes(100))
                if number % 3:
                    found += values(follower.poll(5_000)).get(T0, [])
            found += drain(follower)
            assert [b"%d " % number + bytes(100) for number in range(100)] == found
            assert len(manager.log("t").segments()) > 3


def test_truncation_below_the_position_is_lost(manager: LogManager, tmp_path: Path) -> None:
    """It is seen before or after other records have the offsets."""
    lost: list[LostRecords] = []
    with kafkalog.follow(tmp_path, on_lost=lost.append) as follower:
        append(manager, T0, *[b"%d" % n for n in range(6)])
        assert 6 == len(drain(follower))
        manager.log("t").truncate_to(4)
        assert [] == drain(follower)
        assert [LostRecords(T0, 6, 4)] == lost == follower.lost
        append(manager, T0, b"x")
        assert [b"x"] == drain(follower)
        manager.log("t").truncate_to(2)
        append(manager, T0, *[b"y%d" % n for n in range(9)])
        assert [b"y%d" % n for n in range(9)] == drain(follower)
        assert LostRecords(T0, 5, 2) == lost[-1]
        manager.log("t").truncate_to(10)
        assert [] == drain(follower)
        manager.log("t").truncate_fully_and_start_at(20)
        append(manager, T0, b"z")
        assert [b"z"] == drain(follower)
        assert LostRecords(T0, 10, 20) == lost[-1]
        assert 21 == follower.position(T0)


def test_deleted_records_are_lost(manager: LogManager, tmp_path: Path) -> None:
    """Except for records that were returned before."""
    with kafkalog.follow(tmp_path, max_records=2) as follower:
        append(manager, T0, *[b"%d" % n + bytes(500) for n in range(20)])
        assert 2 == len(follower.poll(5_000)[T0])
        manager.log("t").delete_records(15)
        # A read that has begun may return records that are removed during it.
        found = [int((value or b"").rstrip(b"\0")) for value in drain(follower)]
        assert list(range(15, 20)) == found[-5:]
        assert sorted(set(found)) == found
        lost = [offset for each in follower.lost for offset in range(*each[1:])]
        assert set(range(20)) == {0, 1, *found, *lost}
        assert {0, 1, *found}.isdisjoint(lost)


def test_records_appended_while_earlier_ones_are_returned_are_read(
    manager: LogManager, tmp_path: Path
) -> None:
    """Their event is taken by a call that returns earlier records, which a read had begun with."""
    append(manager, T0, *[b"%d" % number for number in range(5)])
    found: list[bytes | None] = []
    with kafkalog.follow(tmp_path, start="start", max_records=2) as follower:
        for step in range(4):
            # Without a wait: the safety poll would find them, unless it came before.
            found += [record.value for record in follower.poll(0)[T0]]
            if step == 0:
                append(manager, T0, b"last", b"end")
    assert [b"0", b"1", b"2", b"3", b"4", b"last", b"end"] == found


def test_topics_come_and_go(manager: LogManager, tmp_path: Path) -> None:
    """Of a topic that is made again, all records are new."""
    changes: list[PartitionChange] = []
    u = TopicPartition("u", 0)
    with kafkalog.follow(tmp_path, on_partition=changes.append) as follower:
        manager.create_topic("u")
        append(manager, u, b"first", b"second")
        assert [b"first", b"second"] == drain(follower)
        manager.delete_topic("u")
        assert {} == follower.poll()
        assert (T0, T1) == follower.partitions()
        manager.create_topic("u")
        append(manager, u, b"third")
        assert [b"third"] == drain(follower)
        manager.delete_topic("u")
        manager.create_topic("u")
        append(manager, u, b"fourth", b"fifth")
        assert [b"fourth", b"fifth"] == drain(follower)
    kinds = [(change.partition, change.kind) for change in changes]
    assert [(u, "added")] + [(u, "removed"), (u, "added")] * 2 == kinds
    assert [] == follower.lost


def test_partition_that_moves_keeps_its_position(tmp_path: Path) -> None:
    """From one data directory to another, of the same follower."""
    directories = [tmp_path / "a", tmp_path / "b"]
    with LogManager(directories, CONFIG) as manager:
        manager.create_topic("t", directory=directories[0])
        append(manager, T0, b"before")
        with kafkalog.follow(directories, start="start") as follower:
            assert [b"before"] == drain(follower)
            manager.move_partition("t", 0, directories[1])
            append(manager, T0, b"after")
            assert [b"after"] == drain(follower)
            assert [] == follower.lost


def test_durable_shows_records_after_their_sync(manager: LogManager, tmp_path: Path) -> None:
    """Nothing of a log before its first sync, nor above a later one."""
    with kafkalog.follow(tmp_path, start="start", durable=True) as follower:
        append(manager, T0, b"a", b"b")
        assert [] == drain(follower)
        manager.log("t").flush()
        assert {T0: [b"a", b"b"]} == values(follower.poll(5_000))
        append(manager, T0, b"c")
        append(manager, T1, b"d")
        manager.log("t", 1).flush()
        assert {T1: [b"d"]} == values(follower.poll(5_000))
        manager.log("t").truncate_to(1)
        append(manager, T0, b"e")
        assert [] == drain(follower)
        assert [LostRecords(T0, 2, 1)] == follower.lost
        manager.flush()
        assert {T0: [b"e"]} == values(follower.poll(5_000))
        append(manager, T0, b"f")
        manager.close()
        assert {T0: [b"f"]} == values(follower.poll(5_000))


def test_durable_shows_nothing_of_a_failed_sync(tmp_path: Path) -> None:
    """Until the directory is online again, and has synced it."""
    disk = FaultyDisk()
    filesystem = FaultyFileSystem(disk, PosixFileSystem())
    with LogManager([tmp_path], CONFIG, filesystem=filesystem) as manager:
        manager.create_topic("t")
        options = {"start": "start", "durable": True, "filesystem": filesystem}
        with kafkalog.follow(tmp_path, **cast("Any", options)) as follower:
            append(manager, T0, b"a")
            manager.flush()
            assert [b"a"] == drain(follower)
            Faults(tmp_path, disk, PosixFileSystem()).fail_next_sync("t")
            with pytest.raises(kafkalog.LogStorageError):
                manager.log("t").append([Record(value=b"b")], wait="durable")
            assert [] == drain(follower)
            manager.bring_online(tmp_path)
            manager.log("t").append([Record(value=b"c")], wait="durable")
            assert [b"b", b"c"] == drain(follower)


@pytest.mark.parametrize("durable", [False, True])
def test_committed_records_are_shown_with_the_end_of_their_transaction(
    manager: LogManager, tmp_path: Path, durable: bool
) -> None:
    """Records of an aborted one never; a marker that is not durable decides nothing."""
    with (
        manager.producer(transactional_id="x") as producer,
        kafkalog.follow(
            tmp_path, "t", isolation="read_committed", durable=durable, start="start"
        ) as follower,
    ):
        for number in range(4):
            producer.begin_transaction()
            producer.send("t", b"%d" % number, partition=0)
            producer.flush()
            manager.flush()
            assert [] == drain(follower)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
            manager.flush()
            assert [b"%d" % number] * (not number % 2) == drain(follower)


def test_corrupt_batch_is_raised_after_the_records_before(
    manager: LogManager, tmp_path: Path
) -> None:
    """Again and again until the position is set after it; other partitions continue."""
    append(manager, T0, b"a", b"b", b"c")
    faults = Faults(tmp_path, FaultyDisk(), PosixFileSystem())
    faults.damage("t", 0, 1)
    with kafkalog.follow(tmp_path, start="start") as follower:
        append(manager, T1, b"d")
        seen: list[bytes | None] = []
        for _turn in range(6):
            try:
                seen += [each.value for records in follower.poll().values() for each in records]
            except CorruptRecordError as error:
                assert "t-0" in str(error)
                seen.append(None)
        assert {b"a", b"d", None} == set(seen)
        assert 1 == follower.position(T0)
        follower.seek(T0, 2)
        assert [b"c"] == drain(follower)
        with pytest.raises(ValueError, match="offset must be"):
            follower.seek(T0, -1)
    with kafkalog.follow(tmp_path, start="start", on_corrupt="skip") as follower:
        assert [b"a", b"c", b"d"] == sorted(value or b"" for value in drain(follower))


@pytest.mark.parametrize(
    "disk",
    [
        without_events,
        lambda: cast("FileSystem", Disk(refuse)),
        lambda: cast("FileSystem", Disk(lambda: cast("FileNotifications", FewWatches(0)))),
        lambda: cast("FileSystem", Disk(lambda: cast("FileNotifications", FewWatches(2)))),
        lambda: cast("FileSystem", Disk(lambda: cast("FileNotifications", LostEvents()))),
    ],
)
@pytest.mark.parametrize("durable", [False, True])
def test_without_events_the_same_is_found(
    manager: LogManager, tmp_path: Path, disk: Callable[[], FileSystem], durable: bool
) -> None:
    """By the poll; rolls, deletions and other incarnations too."""
    options = {"durable": durable, "filesystem": disk(), "poll_interval_ms": 20}
    with kafkalog.follow(tmp_path, **cast("Any", options)) as follower:
        for number in range(30):
            append(manager, T0, b"%d " % number + bytes(200))
        manager.flush()
        assert [b"%d " % number + bytes(200) for number in range(30)] == drain(follower)
        append(manager, T0, b"a")
        manager.flush()
        assert [b"a"] == drain(follower)
        manager.delete_topic("t")
        manager.create_topic("t")
        append(manager, T0, b"b")
        manager.flush()
        assert [b"b"] == drain(follower)
        assert (T0,) == follower.partitions()


def test_refused_events_are_a_warning(
    manager: LogManager, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the reason, once."""
    few = cast("FileSystem", Disk(lambda: cast("FileNotifications", FewWatches(1))))
    for filesystem, words in ((few, "too many watches"), (Disk(refuse), "too many inotify")):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            kafkalog.follow(tmp_path, filesystem=cast("FileSystem", filesystem)).close()
        assert 1 == len(caplog.records)
        assert words in caplog.text


def test_standalone_logs_are_followed(tmp_path: Path) -> None:
    """In a directory that is no data directory; each has its own durable offsets."""
    with (
        open_log(tmp_path / "t-0") as first,
        open_log(tmp_path / "t-1") as second,
        kafkalog.follow(tmp_path, durable=True) as follower,
    ):
        first.append([Record(value=b"a")])
        second.append([Record(value=b"b")], wait="durable")
        assert [b"b"] == drain(follower)
        first.flush()
        assert [b"a"] == drain(follower)


def test_directory_that_does_not_exist_yet_is_followed(tmp_path: Path) -> None:
    """From its first partition on."""
    with kafkalog.follow(tmp_path / "later") as follower:
        assert () == follower.partitions()
        assert {} == follower.poll(10)
        with LogManager([tmp_path / "later"]) as manager:
            manager.create_topic("t")
            append(manager, T0, b"a")
            assert {T0: [b"a"]} == values(follower.poll(10_000))


def test_many_logs_keep_few_files_open(tmp_path: Path) -> None:
    """The logs that were read last; the others continue where they were."""
    with LogManager([tmp_path], CONFIG) as manager:
        manager.create_topic("t", 30)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        # An eighth of them: 25 logs.
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
        try:
            follower = kafkalog.follow(tmp_path, start="start")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        with follower:
            for turn in range(3):
                for number in range(30):
                    append(manager, TopicPartition("t", number), b"%d %d" % (turn, number))
                found = drain(follower)
                assert sorted(b"%d %d" % (turn, number) for number in range(30)) == sorted(
                    value or b"" for value in found
                )
                opened = [
                    path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()
                ]
                # Each log has one file for its reads, and one for its tail; the writer has one.
                own = [path for path in opened if path.is_relative_to(tmp_path)]
                logs = [path for path in own if path.suffix == ".log"]
                assert len(logs) <= 30 + 2 * 25


def test_close_from_another_thread_ends_the_iteration(manager: LogManager, tmp_path: Path) -> None:
    """And every later call is refused; a second close does nothing."""
    follower = kafkalog.follow(tmp_path)
    found: list[bytes | None] = []
    began = threading.Event()

    def read() -> None:
        for piece in follower:
            found.extend(record.value for record in piece.records)
            began.set()

    thread = threading.Thread(target=read)
    thread.start()
    append(manager, T0, b"a")
    assert began.wait(30)
    follower.close()
    thread.join(30)
    assert not thread.is_alive()
    assert [b"a"] == found
    follower.close()
    assert follower.is_closed
    assert "closed" in repr(follower)
    assert 1 == follower.positions()[T0].offset
    for call in (follower.poll, follower.partitions, follower.fileno, follower.collect):
        with pytest.raises(ClientClosedError):
            call()
    assert [] == list(follower)


def test_close_within_a_callback_ends_the_poll(manager: LogManager, tmp_path: Path) -> None:
    """The files are released at its end."""
    follower = kafkalog.follow(tmp_path, on_partition=lambda _change: follower.close())
    manager.create_topic("u")
    assert {} == follower.poll(10_000)
    assert follower.is_closed
    with pytest.raises(ClientClosedError):
        follower.poll()


def test_wakeup_ends_a_wait(manager: LogManager, tmp_path: Path) -> None:
    """The current one, or the next; and an iteration."""
    with kafkalog.follow(tmp_path) as follower:
        follower.wakeup()
        assert {} == follower.poll(60_000)
        thread = threading.Thread(target=follower.wakeup)
        thread.start()
        assert [] == list(follower)
        thread.join()
        append(manager, T0, b"a")
        assert [b"a"] == drain(follower)


def test_signal_handler_may_close(manager: LogManager, tmp_path: Path) -> None:
    """A wait in the main thread ends."""
    with kafkalog.follow(tmp_path) as follower:
        before = signal.signal(signal.SIGALRM, lambda *_arguments: follower.close())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            assert [] == list(follower)
        finally:
            signal.signal(signal.SIGALRM, before)
    assert follower.is_closed


def test_forked_child_refuses(manager: LogManager, tmp_path: Path) -> None:
    """The child would take the events of its parent."""
    with kafkalog.follow(tmp_path) as follower:
        child = os.fork()
        if not child:
            refused = 0
            for call in (follower.poll, follower.partitions, follower.collect):
                try:
                    call()
                except ForkedLogError:
                    refused += 1
            follower.close()
            os._exit(refused)
        _pid, status = os.waitpid(child, 0)
        assert 3 == os.waitstatus_to_exitcode(status)
        append(manager, T0, b"a")
        assert [b"a"] == drain(follower)


class Interrupted(BaseException):
    """Raised by a signal handler, as KeyboardInterrupt is."""


# Python passes over an exception in a destructor, or in the callback of a weak reference.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupted_reads_lose_and_repeat_nothing(manager: LogManager, tmp_path: Path) -> None:
    """An exception at any line of a read, as of Ctrl-C."""
    expected = [b"%d" % number for number in range(150)]
    found: list[bytes | None] = []
    interrupts = 0

    def interrupt(*_arguments: object) -> None:
        raise Interrupted

    with kafkalog.follow(tmp_path, "t") as follower:
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            for number, value in enumerate(expected):
                append(manager, T0, value)
                if number % 10 == 3:
                    manager.log("t").roll()
                polled: dict[TopicPartition, list[Record]] = {}
                try:
                    # Within the read, most of the time; before the assignment or after it.
                    signal.setitimer(signal.ITIMER_REAL, 1e-5 * (number % 40 + 1))
                    polled = follower.poll()
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Interrupted:
                    interrupts += 1
                    if not polled:
                        # A result that was interrupted after the poll is read again.
                        follower.seek(T0, len(found))
                found += [record.value for records in polled.values() for record in records]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        found += drain(follower)
    assert expected == found
    assert interrupts


def interrupt_at(number: int) -> Callable[[FrameType, str, object], Any]:
    """Return a trace function that raises at the line of this number in `kafkalog.followers`."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        if "followers" not in frame.f_code.co_filename:
            return None
        if event == "line":
            count += 1
            if count == number:
                raise Interrupted
        return trace

    return trace


def test_interrupt_at_any_line_leaves_no_partition_unread(
    manager: LogManager, tmp_path: Path
) -> None:
    """The next poll has the record, or the position shows that this one was about to return it."""
    before = sys.gettrace()
    is_interrupted, number = True, 0
    with kafkalog.follow(tmp_path, "t") as follower:
        while is_interrupted:
            number += 1
            append(manager, T0, b"%d" % number)
            is_interrupted = False
            sys.settrace(interrupt_at(number))
            try:
                found = follower.poll()
            except Interrupted:
                is_interrupted = True
            finally:
                sys.settrace(before)
            if is_interrupted:
                found = follower.poll()
                position = follower.position(T0)
                assert position == number
                assert found == {} or values_of(found) == [b"%d" % number]
        assert values_of(found) == [b"%d" % number]
    assert number > 50


def values_of(found: dict[TopicPartition, list[Record]]) -> list[bytes | None]:
    """Return the values of a poll."""
    return [record.value for records in found.values() for record in records]


def test_failing_callback_raises_and_loses_nothing(manager: LogManager, tmp_path: Path) -> None:
    """Its exception comes out of the poll; the next one continues."""

    def fail(change: PartitionChange) -> None:
        if change.kind == "added":
            raise RuntimeError(str(change.partition))

    with kafkalog.follow(tmp_path, on_partition=fail) as follower:
        manager.create_topic("u")
        append(manager, TopicPartition("u", 0), b"a")
        append(manager, T0, b"b")
        with pytest.raises(RuntimeError, match="u-0"):
            follower.poll(10_000)
        assert [b"a", b"b"] == sorted(value or b"" for value in drain(follower))
