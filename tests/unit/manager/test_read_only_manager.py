"""Read-only managers: topics of a live directory, without a trace in it."""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import (
    ConfigError,
    ForkedLogError,
    InconsistentTopicIdError,
    LogClosedError,
    LogManager,
    LogOfflineError,
    LogStorageError,
    ManagerConfig,
    NotALogError,
    ReadOnlyLogError,
    Record,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from kafkalog.clients.config import ConsumerConfig
from kafkalog.clients.consumer import Consumer
from kafkalog.files.filesystem import FileFacts
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log import opening
from kafkalog.log.log import Log, partition_of
from kafkalog.state.partition_metadata import write_partition_metadata
from tests.support.managers import SMALL_LOG, append_texts, manual_manager, scheduler_of, values

pytestmark = pytest.mark.usefixtures("_quiet")

DISK = PosixFileSystem()


def listing(*directories: Path) -> dict[str, tuple[int, int, int, int]]:
    """Return inode, size and times of everything below directories."""
    found = {}
    for directory in directories:
        for path in (directory, *sorted(directory.rglob("*"))):
            facts = path.stat()
            found[str(path)] = facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
    return found


def result_in_child(action: Callable[[], object]) -> object:
    """Return the result of a function in a forked child; fail if it raises there."""
    readable, writable = os.pipe()
    with warnings.catch_warnings():
        # A process with threads is forked.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            os.write(writable, repr(action()).encode())
        except BaseException as error:  # noqa: BLE001 - reported to the parent
            os.write(writable, repr(f"failed: {error!r}").encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as output:
        text = output.read()
    os.waitpid(child, 0)
    return ast.literal_eval(text.decode())


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LogManager]:
    """A manager that writes one directory, with a topic of two partitions."""
    with manual_manager(tmp_path / "data") as manager:
        manager.create_topic("orders", 2)
        append_texts(manager, "orders", 0, "a", "b")
        yield manager


@pytest.fixture
def reader(writer: LogManager, tmp_path: Path) -> Iterator[LogManager]:
    """A read-only manager of the same directory."""
    assert not writer.is_closed
    with LogManager(tmp_path / "data", read_only=True) as manager:
        yield manager


def test_reader_serves_what_the_writer_appends(writer: LogManager, reader: LogManager) -> None:
    """Topics, directories and logs; all callers get the same log."""
    assert reader.topics() == {"orders": (0, 1)}
    assert reader.partitions() == (TopicPartition("orders", 0), TopicPartition("orders", 1))
    assert reader.directory_of("orders", 1) == writer.directory_of("orders", 1)
    assert (reader.cluster_id, reader.node_id) == (writer.cluster_id, writer.node_id)
    log = reader.log("orders", 0)
    assert log is reader.log("orders", 0)
    assert log.is_read_only
    assert values(reader, "orders") == ["a", "b"]
    # Made, and never written.
    assert reader.log("orders", 1).log_end_offset == 0
    assert [True, True] == [reader.has_files("orders", number) for number in (0, 1)]
    append_texts(writer, "orders", 1, "c")
    assert values(reader, "orders", 1) == ["c"]
    assert len(reader.scan("orders").to_numpy()["offset"]) == 3
    assert reader.health().is_healthy


def test_reader_leaves_no_trace(tmp_path: Path) -> None:
    """Nothing is created, written, renamed, locked or touched, and no thread is started."""
    directories = tmp_path / "a", tmp_path / "b"
    with manual_manager(*directories) as manager:
        manager.create_topic("orders", 4, {"segment.bytes": "600"})
        manager.create_topic("gone")
        append_texts(manager, "orders", 0, *map(str, range(40)))
        with manager.consumer("group", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("orders")
            consumer.poll()
            consumer.commit()
        manager.delete_topic("gone")
    before, threads = listing(*directories), threading.active_count()
    with LogManager(directories, read_only=True) as manager:
        assert listing(*directories) == before
        for name in manager.partitions():
            manager.log(*name).log_end_offset  # noqa: B018 - a refresh
            manager.has_files(*name)
        assert len(manager.scan("orders").to_numpy()["offset"]) == 40
        with manager.consumer("group") as consumer:
            consumer.subscribe("orders")
            assert consumer.poll() == {}
        manager.plan_compaction("orders", 0)
        manager.health()
        assert threading.active_count() == threads
        assert listing(*directories) == before
        # The lock is free.
        with manual_manager(*directories):
            before = listing(*directories)
            assert manager.topics()
            assert listing(*directories) == before
        before = listing(*directories)
    assert listing(*directories) == before


def test_reader_of_a_stopped_directory_leaves_no_trace(tmp_path: Path) -> None:
    """As above, after a kill: neither recovery nor cleanup is done by a reader."""
    with manual_manager(tmp_path / "data") as manager:
        manager.create_topic("orders", 2)
        append_texts(manager, "orders", 0, "a", "b")
        shutil.copytree(tmp_path / "data", tmp_path / "killed")
    (tmp_path / "killed/orders-1.0123456789abcdef0123456789abcdef-delete").mkdir()
    (tmp_path / "killed/orders-0/00000000000000000000.log.cleaned").write_bytes(b"x")
    before = listing(tmp_path / "killed")
    with LogManager(tmp_path / "killed", read_only=True) as manager:
        assert values(manager, "orders") == ["a", "b"]
    assert listing(tmp_path / "killed") == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_reader_needs_no_permission_to_write() -> None:
    """A process of another user, in directories that it may only read."""
    root = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        with manual_manager(root / "data") as writer:
            writer.create_topic("orders", 1)
            append_texts(writer, "orders", 0, "a", "b")
            root.chmod(0o755)
            for path in (root / "data").rglob("*"):
                path.chmod(0o755 if path.is_dir() else 0o644)
            (root / "data").chmod(0o755)

            with LogManager(root / "data", read_only=True) as manager:
                # The other user may be unable to import modules.
                assert values(manager, "orders") == ["a", "b"]

            def read() -> object:
                os.setgid(65534)
                os.setuid(65534)
                with pytest.raises(PermissionError):
                    (root / "data/x").write_bytes(b"")
                with LogManager(root / "data", read_only=True) as manager:
                    return manager.topics(), values(manager, "orders")

            assert result_in_child(read) == ({"orders": (0,)}, ["a", "b"])
    finally:
        shutil.rmtree(root)


REFUSED: dict[str, Callable[[LogManager], object]] = {
    "create_topic": lambda manager: manager.create_topic("new"),
    "create_partition": lambda manager: manager.create_partition("orders", 2),
    "delete_topic": lambda manager: manager.delete_topic("orders"),
    "delete_unknown_topic": lambda manager: manager.delete_topic("unknown"),
    "delete_partition": lambda manager: manager.delete_partition("orders", 0),
    "move_partition": lambda manager: manager.move_partition("orders", 0, "/elsewhere"),
    "reconfigure": lambda manager: manager.reconfigure("orders", {"retention.ms": "1"}),
    "reconfigure_defaults": lambda manager: manager.reconfigure_defaults({}),
    "producer": lambda manager: manager.producer(),
    "flush": lambda manager: manager.flush(),
    "commit": lambda manager: manager.commit([]),
    "lower_leader_epochs": lambda manager: manager.lower_leader_epochs(),
    "compact": lambda manager: manager.compact("orders"),
    "bring_online": lambda manager: manager.bring_online("/elsewhere"),
    "append": lambda manager: manager.log("orders").append([Record(value=b"x")]),
}


@pytest.mark.parametrize("method", REFUSED)
def test_every_change_is_refused(reader: LogManager, method: str) -> None:
    """One typed error, before anything else is checked."""
    with pytest.raises(ReadOnlyLogError, match="read-only"):
        REFUSED[method](reader)


@pytest.mark.parametrize("name", ["topic_configs", "retention", "on_progress", "on_deletion"])
def test_arguments_of_writers_are_refused(tmp_path: Path, name: str) -> None:
    """They would have no effect."""
    (tmp_path / "data").mkdir()
    arguments = {name: ()}
    with pytest.raises(ConfigError, match=name):
        LogManager(tmp_path / "data", read_only=True, **arguments)  # type: ignore[arg-type]


def test_topics_come_and_go(writer: LogManager, reader: LogManager) -> None:
    """The next call sees a new topic; a deleted one ends with its readers."""
    writer.create_topic("bills", 1)
    assert reader.topics() == {"bills": (0,), "orders": (0, 1)}
    append_texts(writer, "bills", 0, "x")
    log = reader.log("bills")
    records = iter(log.records())
    assert next(records).value == b"x"
    writer.delete_topic("bills")
    with pytest.raises(UnknownTopicOrPartitionError):
        reader.log("bills")
    assert reader.topics() == {"orders": (0, 1)}
    assert log.is_closed
    writer.create_partition("orders", 2)
    assert reader.partitions()[-1] == TopicPartition("orders", 2)
    writer.delete_partition("orders", 1)
    assert reader.topics() == {"orders": (0, 2)}


def test_topic_made_again_is_another_log(writer: LogManager, reader: LogManager) -> None:
    """Its id differs, whatever the file system does with the inode of its directory."""
    for step in range(20):
        append_texts(writer, "orders", 0, f"new {step}")
        old = reader.log("orders")
        assert old.log_end_offset > 0
        writer.delete_topic("orders")
        scheduler_of(writer).advance(SMALL_LOG.file_delete_delay_ms)
        writer.create_topic("orders", 1)
        fresh = reader.log("orders")
        assert fresh is not old
        assert fresh.log_end_offset == 0
        assert old.is_closed


def test_directories_of_a_broker_that_are_not_partitions_are_left_out(
    writer: LogManager, reader: LogManager, tmp_path: Path
) -> None:
    """Deleted, stray and moving directories, and the log of a controller."""
    data = tmp_path / "data"
    for state in ("delete", "stray", "future"):
        (data / f"bills-0.{uuid.uuid4().hex}-{state}").mkdir()
    (data / "__cluster_metadata-0").mkdir()
    (data / "bills-0").write_bytes(b"a file")
    assert reader.topics() == writer.topics() == {"orders": (0, 1)}
    (data / "orders-1").rename(data / f"orders-1.{uuid.uuid4().hex}-stray")
    assert reader.topics() == {"orders": (0,)}


def test_directory_is_served_once_it_has_a_segment_or_an_id(
    writer: LogManager, reader: LogManager, tmp_path: Path
) -> None:
    """A broker makes the directory first, the segment and the topic id later."""
    assert not writer.is_closed
    path = tmp_path / "data/bills-0"
    path.mkdir()
    assert reader.topics() == {"orders": (0, 1)}
    (path / "00000000000000000000.log").write_bytes(b"")
    assert reader.topics() == {"bills": (0,), "orders": (0, 1)}
    log = reader.log("bills")
    write_partition_metadata(DISK, path, uuid.uuid4())
    (tmp_path / "data/other").write_bytes(b"")
    assert reader.log("bills") is log
    write_partition_metadata(DISK, path, uuid.uuid4())
    (tmp_path / "data/other").unlink()
    assert reader.log("bills") is not log


def test_settings_follow_their_file(writer: LogManager, reader: LogManager) -> None:
    """They are read, and never written."""
    writer.create_topic("bills", 1, {"max.message.bytes": "4321"})
    assert reader.log("bills").config.max_message_bytes == 4321
    assert reader.topic_configs.overrides_of("bills") == {"max.message.bytes": "4321"}


def test_damaged_settings_are_a_fault(
    writer: LogManager, reader: LogManager, tmp_path: Path
) -> None:
    """Records are served without them."""
    assert not writer.is_closed
    (tmp_path / "data/.kafkalog_topics").write_bytes(b"damaged")
    (tmp_path / "data/x").write_bytes(b"")
    assert values(reader, "orders") == ["a", "b"]
    assert ["settings"] == [fault.task for fault in reader.health().faults]


def test_partition_moves_to_another_directory(tmp_path: Path) -> None:
    """The log is another one, and a consumer continues at its position."""
    a, b = tmp_path / "a", tmp_path / "b"
    with manual_manager(a, b) as writer, LogManager([a, b], read_only=True) as reader:
        writer.create_topic("orders", 1, directory=a)
        append_texts(writer, "orders", 0, "a", "b")
        old = reader.log("orders")
        with reader.consumer(auto_offset_reset="earliest", poll_interval_ms=1) as consumer:
            consumer.assign([("orders", 0)])
            assert [each.value for each in consumer.poll()[TopicPartition("orders", 0)]] == [
                b"a",
                b"b",
            ]
            writer.move_partition("orders", 0, b)
            append_texts(writer, "orders", 0, "c")
            assert reader.directory_of("orders", 0) == b
            assert reader.log("orders") is not old
            assert [each.value for each in consumer.poll()[TopicPartition("orders", 0)]] == [b"c"]
            assert consumer.lost == []


def test_partition_in_two_directories_is_blocked_until_one_is_removed(tmp_path: Path) -> None:
    """As for a writer: only the operator knows which copy is right."""
    a, b = tmp_path / "a", tmp_path / "b"
    with manual_manager(a, b) as writer:
        writer.create_topic("orders", 1, directory=a)
        append_texts(writer, "orders", 0, "a")
    shutil.copytree(a / "orders-0", b / "orders-0")
    with LogManager([a, b], read_only=True) as reader:
        with pytest.raises(LogOfflineError, match="move one of the two"):
            reader.log("orders")
        assert not reader.health().is_healthy
        shutil.rmtree(b / "orders-0")
        assert values(reader, "orders") == ["a"]
        assert reader.health().is_healthy


def test_partition_of_another_topic_is_stray(tmp_path: Path) -> None:
    """Two topic ids contradict each other: neither is served without a note of the right one."""
    with manual_manager(tmp_path / "data") as writer:
        writer.create_topic("orders", 2)
    (tmp_path / "data/.kafkalog_topics").unlink(missing_ok=True)
    write_partition_metadata(DISK, tmp_path / "data/orders-1", uuid.uuid4())
    with LogManager(tmp_path / "data", read_only=True) as reader:
        assert reader.topics() == {}
        assert len(reader.health().stray_partitions) == 2
        with pytest.raises(InconsistentTopicIdError):
            reader.log("orders", 1)


def test_directory_that_is_away_keeps_its_partitions(tmp_path: Path) -> None:
    """It is offline, and served again when it is back; its topics do not count as deleted."""
    a, b = tmp_path / "a", tmp_path / "b"
    with manual_manager(a, b) as writer:
        writer.create_topic("orders", 1, directory=b)
        append_texts(writer, "orders", 0, "a")
    with LogManager([a, b], read_only=True) as reader:
        assert values(reader, "orders") == ["a"]
        b.rename(tmp_path / "away")
        assert reader.topics() == {"orders": (0,)}
        assert [True, False] == [each.is_online for each in reader.health().directories]
        assert values(reader, "orders") == ["a"]
        (tmp_path / "away").rename(b)
        # It is tried again a second after the last failure.
        deadline = time.monotonic() + 30
        while not reader.health().is_healthy and time.monotonic() < deadline:
            time.sleep(0.05)
        assert reader.topics() == {"orders": (0,)}
        assert reader.health().is_healthy
        assert values(reader, "orders") == ["a"]


def test_partition_that_is_made_again_while_it_is_opened_is_unknown_until_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory is missing at one moment, and has all files of a partition at the next."""
    with manual_manager(tmp_path) as writer:
        writer.create_topic("orders", 1)
        append_texts(writer, "orders", 0, "a")
    directory = tmp_path / "orders-0"
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n0\n")
    try_load = opening._try_load
    stat = PosixFileSystem.stat

    def stat_missing(self: PosixFileSystem, path: Path) -> FileFacts | None:
        return None if path == directory else stat(self, path)

    def load_while_missing(*arguments: Any, **options: Any) -> Any:
        with monkeypatch.context() as missing:
            missing.setattr(PosixFileSystem, "stat", stat_missing)
            return try_load(*arguments, **options)

    with LogManager(tmp_path, read_only=True) as reader:
        with monkeypatch.context() as patched:
            patched.setattr(opening, "_try_load", load_while_missing)
            with pytest.raises(UnknownTopicOrPartitionError):
                reader.log("orders")
        assert values(reader, "orders") == ["a"]
        assert reader.health().faults == ()


def test_directory_that_was_never_read_may_have_any_partition(tmp_path: Path) -> None:
    """An unknown partition may be in it."""
    with manual_manager(tmp_path / "a") as writer:
        writer.create_topic("orders", 1)
    with LogManager([tmp_path / "a", tmp_path / "b"], read_only=True) as reader:
        assert reader.topics() == {"orders": (0,)}
        with pytest.raises(LogOfflineError, match="its content is not known"):
            reader.log("bills")
    assert not (tmp_path / "b").exists()


def test_missing_directory_is_an_error(tmp_path: Path) -> None:
    """It is not made, and neither is a file taken for one."""
    with pytest.raises(LogStorageError, match="no such data directory"):
        LogManager(tmp_path / "data", read_only=True)
    assert not (tmp_path / "data").exists()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotALogError):
        LogManager(tmp_path / "file", read_only=True)


def test_identity_is_that_of_the_files(tmp_path: Path) -> None:
    """Required values are compared; without a file there is no identity, and none is made."""
    with manual_manager(tmp_path / "data", cluster_id="abc", node_id=7) as writer:
        writer.create_topic("orders", 1)
    with pytest.raises(ConfigError, match=r"cluster\.id"):
        LogManager(tmp_path / "data", read_only=True, cluster_id="other")
    (tmp_path / "data/meta.properties").unlink()
    with LogManager(tmp_path / "data", read_only=True) as reader:
        assert (reader.cluster_id, reader.node_id) == ("", -1)
        assert reader.topics() == {"orders": (0,)}


def test_closed_manager_refuses_reads(reader: LogManager) -> None:
    """Its logs are closed with it."""
    log = reader.log("orders")
    reader.close()
    reader.close()
    assert log.is_closed
    with pytest.raises(LogClosedError):
        reader.log("orders")
    with pytest.raises(LogClosedError):
        reader.consumer()


def test_child_of_a_fork_makes_a_manager_itself(reader: LogManager, tmp_path: Path) -> None:
    """The inherited one refuses, without a lock."""

    def child() -> object:
        with pytest.raises(ForkedLogError):
            reader.topics()
        with pytest.raises(ForkedLogError):
            reader.log("orders")
        reader.close()
        with LogManager(tmp_path / "data", read_only=True) as own:
            return values(own, "orders")

    assert result_in_child(child) == ["a", "b"]
    assert values(reader, "orders") == ["a", "b"]


def test_files_of_logs_above_the_limit_are_released(tmp_path: Path) -> None:
    """A log that was released sees appends, rolls, truncations and a new directory."""
    with manual_manager(tmp_path / "data") as writer:
        writer.create_topic("orders", 1)
        append_texts(writer, "orders", 0, "a", "b")
        with LogManager(tmp_path / "data", read_only=True) as reader:
            files = partition_of(reader.log("orders")).open_files
            for step in range(40):
                assert files.try_release()
                assert files.is_released
                assert values(reader, "orders") == values(writer, "orders")
                if step % 9 == 4:
                    log = writer.log("orders")
                    log.truncate_to(max(log.log_end_offset - 3, log.log_start_offset))
                elif step % 9 == 7:
                    writer.log("orders").delete_records(writer.log("orders").log_end_offset - 1)
                else:
                    append_texts(writer, "orders", 0, *("x" * step for _ in range(step % 4)))


def test_many_logs_hold_few_files(tmp_path: Path) -> None:
    """The limit of open logs holds for a reader, too."""
    config = ManagerConfig(log=SMALL_LOG)
    count = 60
    with manual_manager(tmp_path / "data", config=config) as writer:
        writer.create_topic("orders", count)
        for number in range(count):
            append_texts(writer, "orders", number, "a")
        with LogManager(tmp_path / "data", config, read_only=True) as reader:
            for number in range(count):
                assert values(reader, "orders", number) == ["a"]
            open_files = [
                partition_of(reader.log("orders", number)).open_files for number in range(count)
            ]
            assert len(open_files) == count
            assert all(each.try_release() for each in open_files)


def test_deleted_topic_costs_no_record_of_another(writer: LogManager, reader: LogManager) -> None:
    """Fetched records are returned before the error, which does not keep others from being read."""
    for topic in ("a", "b", "c"):
        writer.create_topic(topic, 1)
        append_texts(writer, topic, 0, "0")
    seen: dict[str, list[str]] = {"a": [], "c": []}
    errors = 0
    with reader.consumer(auto_offset_reset="earliest", poll_interval_ms=1) as consumer:
        consumer.subscribe("a", "b", "c")
        while sum(map(len, consumer.poll().values())):
            pass
        consumer.seek_to_beginning()
        writer.delete_topic("b")
        for number in range(1, 20):
            append_texts(writer, "a", 0, str(number))
            append_texts(writer, "c", 0, str(number))
            time.sleep(0.002)
            try:
                found = consumer.poll()
            except UnknownTopicOrPartitionError:
                errors += 1
                continue
            for where, records in found.items():
                seen[where.topic] += [(record.value or b"").decode() for record in records]
        for _ in range(4):
            with contextlib.suppress(UnknownTopicOrPartitionError):
                for where, records in consumer.poll().items():
                    seen[where.topic] += [(record.value or b"").decode() for record in records]
    expected = [str(number) for number in range(20)]
    assert {"a": expected, "c": expected} == seen
    assert errors > 3


def test_callback_of_a_closed_log_may_call_the_manager(
    writer: LogManager, reader: LogManager
) -> None:
    """A look that closes the log of a deleted topic calls its watchers."""
    found: list[dict[str, tuple[int, ...]]] = []
    reader.log("orders").watch(lambda: found.append(reader.topics()))
    writer.delete_topic("orders")
    assert reader.topics() == {}
    assert found


def test_threads_use_one_manager_while_topics_change(tmp_path: Path) -> None:
    """No call hangs, and each raises typed errors only."""
    stop = threading.Event()
    failures: list[BaseException] = []
    with (
        manual_manager(tmp_path / "data") as writer,
        LogManager(tmp_path / "data", read_only=True) as reader,
    ):

        def read() -> None:
            while not stop.is_set():
                for topic, number in reader.partitions():
                    try:
                        log = reader.log(topic, number)
                        assert {record.value for record in log.records()} <= {b"x"}
                    except (UnknownTopicOrPartitionError, LogClosedError):
                        pass
                    except BaseException as error:  # noqa: BLE001 - raised by the test
                        failures.append(error)
                        return

        threads = [threading.Thread(target=read) for _number in range(4)]
        for thread in threads:
            thread.start()
        for step in range(60):
            topic = f"t{step % 4}"
            writer.create_topic(topic, 2)
            append_texts(writer, topic, step % 2, "x", "x")
            if step % 4 == 3:
                for number in range(4):
                    writer.delete_topic(f"t{number}")
        stop.set()
        for thread in threads:
            thread.join(timeout=60)
        assert not any(thread.is_alive() for thread in threads)
        assert reader.topics() == writer.topics() == {}
    if failures:
        raise failures[0]


class SlowSource:
    """The logs of a manager; something happens after a log was taken and before it is used."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self.then: list[Callable[[], object]] = []

    def log(self, topic: str, partition: int) -> Log:
        """Return a log, and let the next thing happen."""
        log = self._manager.log(topic, partition)
        if self.then:
            self.then.pop(0)()
        return log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)


def texts(consumer: Consumer) -> list[bytes | None]:
    """Return the values of a poll of one partition."""
    return [record.value for records in consumer.poll().values() for record in records]


@pytest.mark.parametrize("looks", [0, 1])
def test_consumer_reads_a_topic_that_was_deleted_while_it_was_reopened(
    writer: LogManager, reader: LogManager, looks: int
) -> None:
    """Several times in a row: the poll returns nothing, and the next one has the new records."""
    generation = 0

    def make_again() -> None:
        nonlocal generation
        generation += 1
        writer.delete_topic("orders")
        scheduler_of(writer).advance(SMALL_LOG.file_delete_delay_ms)
        writer.create_topic("orders", 1)
        append_texts(writer, "orders", 0, f"new {generation}")

    def replace_topic() -> None:
        make_again()
        # The reader closes the logs of the deleted topic.
        for _number in range(looks):
            reader.topics()

    source = SlowSource(reader)
    with Consumer(source, "", ConsumerConfig(auto_offset_reset="earliest")) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        assert texts(consumer) == [b"a", b"b"]
        replace_topic()
        # Once to compare it with the log that is assigned, and once to assign it.
        source.then = [replace_topic] * 6
        seen: list[bytes | None] = []
        while seen[-1:] != [b"new 7"]:
            # Without a look, a log that is open is read although it was deleted.
            seen += texts(consumer)
        assert source.then == []
        assert seen == sorted(set(seen), key=seen.index)
        assert consumer.lost[-1].resumed_offset == 0
