"""Tests of clients in a forked child: every call ends, whatever locks the parent held (SRV-3)."""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path

import pytest

from kafkalog import ForkedLogError, Log, LogManager, ManagerConfig, Record, TopicPartition
from kafkalog.clients.consumer import Consumer
from kafkalog.clients.producer import Producer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

# Far longer than any call takes; a call that waits for a lock of the parent never ends.
HANGS_SECONDS = 60
POSITION = {TopicPartition("t", 0): 1}


def output_of_child(act: Callable[[], str]) -> str:
    """Return the output of a forked child; fail if it does not end."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # These tests fork a process with threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            said = act()
        except BaseException as error:  # noqa: BLE001
            said = type(error).__name__
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    try:
        ended = select.select([reader], [], [], HANGS_SECONDS)[0]
        if not ended:
            os.kill(child, signal.SIGKILL)
            pytest.fail("the child hangs")
        return os.read(reader, 1000).decode()
    finally:
        os.close(reader)
        os.waitpid(child, 0)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    """A manager with a topic."""
    with LogManager(tmp_path) as made:
        made.create_topic("t", 2)
        yield made


@pytest.fixture
def producer(manager: LogManager) -> Producer:
    """A producer with an open transaction and a record that is not delivered yet."""
    made = manager.producer(transactional_id="x", linger_ms=10**9)
    made.begin_transaction()
    made.send("t", b"v", partition=0)
    return made


@pytest.fixture
def consumer(manager: LogManager) -> Consumer:
    """A consumer that has read records."""
    made = manager.consumer("group", auto_offset_reset="earliest")
    made.subscribe("t")
    made.poll()
    return made


class _Held:
    """Locks that another thread holds for the length of the block."""

    def __init__(self, *locks: object) -> None:
        self._locks = locks
        self._taken, self._done = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold)

    def _hold(self) -> None:
        for lock in self._locks:
            lock.__enter__()  # type: ignore[attr-defined]
        self._taken.set()
        self._done.wait()
        for lock in self._locks:
            lock.__exit__(None, None, None)  # type: ignore[attr-defined]

    def __enter__(self) -> None:
        self._thread.start()
        self._taken.wait()

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()


def quietly(act: Callable[[], None]) -> Callable[[], str]:
    """Return a function that makes the call and reports that it ended."""

    def call() -> str:
        act()
        return "ended"

    return call


LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition)
PARTS = (dict, list, tuple, set, deque, threading.Event)


def locks_of(root: object, package: str = "kafkalog.clients") -> list[object]:
    """Return every lock of an object, and of the objects of a package that it refers to."""
    found: list[object] = []
    seen, left = {id(root)}, [root]
    while left:
        for each in gc.get_referents(left.pop()):
            if id(each) in seen:
                continue
            seen.add(id(each))
            if isinstance(each, LOCKS):
                found.append(each)
            elif isinstance(each, PARTS) or type(each).__module__.startswith(package):
                left.append(each)
    # A condition has the lock that it was made with; one of the two is enough.
    held = set(map(id, found))
    return [each for each in found if id(_lock_of(each)) not in held]


def _lock_of(lock: object) -> object:
    """Return the lock of a condition; None for a lock."""
    return (
        getattr(lock.acquire, "__self__", None) if isinstance(lock, threading.Condition) else None
    )


PRODUCER_CALLS: dict[str, Callable[[Producer], object]] = {
    "send": lambda p: p.send("t", b"w", partition=0),
    "send elsewhere": lambda p: p.send("t", b"w", partition=1),
    "flush": lambda p: p.flush(),
    "partitions_for": lambda p: p.partitions_for("t"),
    "begin": lambda p: p.begin_transaction(),
    "commit": lambda p: p.commit_transaction(),
    "abort": lambda p: p.abort_transaction(),
    "offsets": lambda p: p.send_offsets_to_transaction(POSITION, "group"),
}


@pytest.mark.parametrize("call", PRODUCER_CALLS)
def test_producer_in_a_forked_child_raises(producer: Producer, call: str) -> None:
    """With each of its locks held by another thread of the parent; the parent continues."""
    locks = locks_of(producer)
    assert len(locks) >= 8
    with _Held(*locks):
        said = output_of_child(lambda: str(PRODUCER_CALLS[call](producer)))
        assert said == ForkedLogError.__name__
        assert output_of_child(quietly(producer.close)) == "ended"
    producer.commit_transaction()


def test_future_in_a_forked_child_has_an_error(producer: Producer) -> None:
    """No thread delivers the record there; the parent does."""
    sent = producer.send("t", b"w", partition=0)

    def look() -> str:
        done, left = wait([sent])
        assert (len(done), len(left)) == (1, 0)
        return type(sent.exception()).__name__

    with _Held(*locks_of(producer)):
        assert output_of_child(look) == ForkedLogError.__name__
    producer.commit_transaction()
    assert sent.result().offset == 1


CONSUMER_CALLS: dict[str, Callable[[Consumer], object]] = {
    "poll": lambda c: c.poll(1000),
    "records": lambda c: list(c.records(0)),
    "commit": lambda c: c.commit(),
    "committed": lambda c: c.committed(TopicPartition("t", 0)),
    "all_committed": lambda c: c.all_committed(),
    "positions": lambda c: c.positions(),
    "lag": lambda c: c.lag(TopicPartition("t", 0)),
    "subscribe": lambda c: c.subscribe("t"),
    "seek": lambda c: c.seek_to_end(),
}


@pytest.mark.parametrize("call", CONSUMER_CALLS)
def test_consumer_in_a_forked_child_raises(consumer: Consumer, call: str) -> None:
    """A thread that appends may hold its event and the lock of its positions."""
    locks = locks_of(consumer)
    assert len(locks) >= 2
    with _Held(*locks):
        said = output_of_child(lambda: str(CONSUMER_CALLS[call](consumer)))
        assert said == ForkedLogError.__name__
        assert output_of_child(quietly(consumer.close)) == "ended"
        assert output_of_child(quietly(consumer.wakeup)) == "ended"
    consumer.close()


def test_manager_in_a_forked_child_makes_no_client(manager: LogManager) -> None:
    """It is released there without waiting for a thread."""
    locks = locks_of(manager)
    assert locks
    with _Held(*locks):
        assert output_of_child(lambda: str(manager.producer())) == ForkedLogError.__name__
        assert output_of_child(lambda: str(manager.consumer())) == ForkedLogError.__name__
        assert output_of_child(quietly(manager.close)) == "ended"


LOG_CALLS: dict[str, Callable[[LogManager, Log], object]] = {
    "flush all": lambda m, _log: m.flush(),
    "open a log": lambda m, _log: m.log("t", 1),
    "create": lambda m, _log: m.create_topic("other"),
    "delete": lambda m, _log: m.delete_topic("t"),
    "health": lambda m, _log: m.health(),
    "metrics": lambda m, _log: m.metrics(),
    "append": lambda _m, log: log.append([Record(value=b"w")]),
    "flush": lambda _m, log: log.flush(),
    "roll": lambda _m, log: log.roll(),
    "truncate": lambda _m, log: log.truncate_to(0),
    "delete records": lambda _m, log: log.delete_records(1),
    "retention": lambda _m, log: log.apply_retention(),
}


@pytest.mark.parametrize("has_journal", [False, True])
@pytest.mark.parametrize("call", LOG_CALLS)
def test_manager_and_log_in_a_forked_child_raise(
    tmp_path: Path, call: str, has_journal: bool
) -> None:
    """With every lock of the engine held by another thread of the parent."""
    with LogManager(tmp_path, ManagerConfig(journal_enable=has_journal)) as manager:
        manager.create_topic("t", 2)
        log = manager.log("t")
        log.append([Record(value=b"v")])
        manager.flush()
        locks = locks_of(manager, "kafkalog")
        assert len(locks) >= 30
        with _Held(*locks):
            said = output_of_child(lambda: str(LOG_CALLS[call](manager, log)))
            assert said == ForkedLogError.__name__
            read = output_of_child(lambda: str([each.value for each in log.records()]))
            assert read == "[b'v']"
            assert output_of_child(quietly(log.close)) == "ended"
            assert output_of_child(quietly(manager.close)) == "ended"
        log.append([Record(value=b"w")], wait="durable")
        assert 2 == log.durable_offset


READ_CALLS: dict[str, Callable[[LogManager], object]] = {
    "topics": lambda manager: manager.topics(),
    "partitions": lambda manager: manager.partitions(),
    "scan": lambda manager: len(manager.scan("t").to_numpy()["value"]),
}


@pytest.mark.parametrize("call", READ_CALLS)
def test_manager_in_a_forked_child_lists_and_reads(manager: LogManager, call: str) -> None:
    """The state at the fork, while one of its threads has every lock of the engine."""
    logs = [manager.log("t", number) for number in range(2)]
    logs[0].append([Record(value=b"v")])
    expected = str(READ_CALLS[call](manager))
    with _Held(*locks_of(manager, "kafkalog")):
        assert expected == output_of_child(lambda: str(READ_CALLS[call](manager)))


def test_read_only_log_in_a_forked_child_reads_or_raises(tmp_path: Path) -> None:
    """It reads, unless a thread of the parent was looking for new records at the fork."""
    with LogManager(tmp_path) as manager:
        manager.create_topic("t")
        manager.log("t").append([Record(value=b"v")])
    with LogManager(tmp_path, read_only=True) as reader:
        log = reader.log("t")

        def read() -> str:
            return str([each.value for each in log.records()])

        assert "[b'v']" == output_of_child(read)
        with _Held(*locks_of(reader, "kafkalog")):
            assert ForkedLogError.__name__ == output_of_child(read)
            assert "ended" == output_of_child(quietly(log.close))
            assert "ended" == output_of_child(quietly(reader.close))
        assert "[b'v']" == read()


def test_appender_in_a_forked_child_raises(manager: LogManager) -> None:
    """Pending records are written by the parent, once."""
    log = manager.log("t", 0)
    appender = log.appender()
    appender.append(b"k", b"v")
    locks = locks_of(appender, "kafkalog.log.record_appender")
    assert locks
    with _Held(*locks):
        append = quietly(lambda: appender.append(b"k", b"w"))
        for act in (append, lambda: str(appender.flush())):
            assert output_of_child(act) == ForkedLogError.__name__
        assert output_of_child(quietly(appender.close)) == "ended"
    appender.close()
    assert [b"v"] == [each.value for each in log.records()]
