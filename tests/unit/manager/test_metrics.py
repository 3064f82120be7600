"""`LogManager.metrics`: each figure compared with what was done to the logs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from kafkalog import (
    HealthConfig,
    Log,
    LogClosedError,
    LogConfig,
    LogFacts,
    LogManager,
    ManagerConfig,
    MetricsSnapshot,
    Record,
    RetentionDecision,
    TopicPartition,
)
from kafkalog.errors import ForkedLogError
from kafkalog.files.names import RECOVERY_POINT_CHECKPOINT
from tests.support.damage import flip, forget_shutdown
from tests.support.descriptors import descriptor_count
from tests.support.managers import (
    ONE_PARTITION,
    SMALL_LOG,
    append_texts,
    fail_directory,
    manual_manager,
    scheduler_of,
)
from tests.support.producing import Client
from tests.support.simulated_disk import SimulatedDisk
from tests.support.syncs import Syncs

APPENDS = (
    "kafkalog_log_appends_total",
    "kafkalog_log_appended_batches_total",
    "kafkalog_log_appended_records_total",
    "kafkalog_log_appended_bytes_total",
)
OFFSETS = ("kafkalog_log_start_offset", "kafkalog_log_end_offset", "kafkalog_log_durable_offset")


def figures(manager: LogManager, *names: str, topic: str = "orders") -> tuple[float, ...]:
    """Return metrics of a topic."""
    snapshot = manager.metrics()
    return tuple(snapshot.value(name, topic=topic) for name in names)


def reads(manager: LogManager) -> tuple[float, float]:
    """Return the records and bytes that were read."""
    records, size_bytes = figures(
        manager, "kafkalog_log_read_records_total", "kafkalog_log_read_bytes_total"
    )
    return records, size_bytes


def file_bytes(directory: Path) -> int:
    """Return the size of all segments of a partition."""
    return sum(each.stat().st_size for each in directory.glob("*.log"))


def test_metrics_appends_of_all_paths_equal_the_files(tmp_path: Path) -> None:
    """Fast path, rolls, producers, and appends that are refused or sent twice."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders")
        log = manager.log("orders")
        log.append([Record(value=b"one"), Record(value=b"two")])
        log.append_lists(None, [b"x" * 90] * 40)
        Client(7).send(log)
        with pytest.raises(ValueError, match="wait"):
            log.append([Record(value=b"no")], wait="never")  # type: ignore[arg-type]
        batches = list(log.batches())
        before = figures(manager, *APPENDS)
        assert (3, len(batches), log.log_end_offset, file_bytes(log.directory)) == before
        assert 1 < len(log.segments())
        assert (len(log.segments()), before[3]) == figures(
            manager, "kafkalog_log_segments", "kafkalog_log_size_bytes"
        )
        assert (0, log.log_end_offset, 0) == figures(manager, *OFFSETS)
        log.flush()
        assert (0, log.log_end_offset, log.log_end_offset) == figures(manager, *OFFSETS)
        assert (0,) == figures(manager, "kafkalog_log_unsynced_records")


def test_metrics_batches_that_are_sent_twice_count_once(tmp_path: Path) -> None:
    """A duplicate is not written."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders")
        data = Client(7).batch()
        manager.log("orders").append_batches(data)
        before = figures(manager, *APPENDS)
        assert manager.log("orders").append_batches(data).is_duplicate
        assert before == figures(manager, *APPENDS)


def test_metrics_reads_of_all_paths_count(tmp_path: Path) -> None:
    """Slices count bytes, look-ups records, iterators and scans both, of whole batches."""
    with LogManager([tmp_path]) as manager:
        manager.create_topic("orders")
        log = manager.log("orders")
        for _ in range(3):
            log.append([Record(value=b"one"), Record(value=b"two")])
        size_bytes = log.segments()[0].size_bytes
        assert (0, 0) == reads(manager)
        for _ in range(3):
            assert size_bytes == log.read(0).size_bytes
        assert (0, 3 * size_bytes) == reads(manager)
        assert log.get(0) is not None
        assert log.get(5) is not None
        assert (2, 3 * size_bytes) == reads(manager)
        log.get_many([0, 1, 2])
        assert (5, 3 * size_bytes) == reads(manager)
        assert 6 == len(list(log.records()))
        assert (11, 4 * size_bytes) == reads(manager)
        assert 3 == len(list(log.batches()))
        assert (17, 5 * size_bytes) == reads(manager)
        list(log.scan())
        assert (23, 6 * size_bytes) == reads(manager)
        with manager.consumer() as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            consumer.seek(TopicPartition("orders", 0), 0)
            assert 6 == sum(map(len, consumer.poll(0).values()))
        assert (29, 7 * size_bytes) == reads(manager)


def test_metrics_retention_shows_debt_then_deletions(tmp_path: Path) -> None:
    """Overdue segments are deleted, wait for their delay, and are gone."""
    config = ManagerConfig(log=SMALL_LOG.replace(retention_ms=60_000, retention_bytes=-1))
    debt = (
        "kafkalog_retention_overdue_segments",
        "kafkalog_retention_overdue_bytes",
        "kafkalog_retention_overdue_seconds",
    )
    deleted = ("kafkalog_log_deleted_segments_total", "kafkalog_log_deleted_bytes_total")
    with manual_manager(tmp_path, config=config) as manager:
        clock = scheduler_of(manager).clock
        manager.create_topic("orders")
        log = manager.log("orders")
        log.append([Record(value=b"x" * 500)])
        log.append([Record(value=b"y" * 500)])
        assert (0, 0, 0) == figures(manager, *debt)
        clock.advance(62_000)
        size_bytes = sum(each.size_bytes for each in log.segments())
        assert (2, size_bytes, 2.0) == figures(manager, *debt)
        explained = [each for each in log.explain_retention() if each.is_due]
        assert 2 == len(explained)
        log.apply_retention()
        assert (0, 0, 0) == figures(manager, *debt)
        assert (2, size_bytes) == figures(manager, *deleted)
        assert size_bytes <= figures(manager, "kafkalog_log_removed_bytes")[0]
        assert (2, 2) == figures(manager, *OFFSETS[:2])
        scheduler_of(manager).advance(2_000)
        assert (0,) == figures(manager, "kafkalog_log_removed_bytes")
        log.append([Record(value=b"z")])
        log.truncate_to(2)
        assert 2 == log.log_end_offset
        assert (3,) == figures(manager, "kafkalog_log_appended_records_total")


def test_metrics_size_retention_debt_has_no_age(tmp_path: Path) -> None:
    """A limit of bytes names no time."""
    config = ManagerConfig(log=SMALL_LOG.replace(retention_ms=-1, retention_bytes=600))
    with manual_manager(tmp_path, config=config) as manager:
        manager.create_topic("orders")
        log = manager.log("orders")
        for _ in range(4):
            log.append([Record(value=b"x" * 500)])
        due = [each for each in log.explain_retention() if each.is_due]
        assert due
        assert (len(due), sum(each.segment.size_bytes for each in due), 0) == figures(
            manager,
            "kafkalog_retention_overdue_segments",
            "kafkalog_retention_overdue_bytes",
            "kafkalog_retention_overdue_seconds",
        )


def test_metrics_debt_of_own_policies_is_theirs(tmp_path: Path) -> None:
    """It has no age; a policy that raises has none, and is a fault of retention itself."""
    kept: list[int] = [1]

    def keep_last(log: LogFacts) -> RetentionDecision:
        count = kept[0]
        return RetentionDecision(log.segments[-count].base_offset, f"keeps {count}")

    debt = ("kafkalog_retention_overdue_segments", "kafkalog_retention_overdue_seconds")
    with manual_manager(tmp_path, retention=[keep_last]) as manager:
        manager.create_topic("orders")
        log = manager.log("orders")
        for _ in range(3):
            log.append([Record(value=b"x" * 500)])
        assert (2, 0) == figures(manager, *debt)
        kept[0] = 9
        assert (0, 0) == figures(manager, *debt)
        with pytest.raises(IndexError):
            log.apply_retention()


def test_metrics_ages_of_a_topic_are_the_largest(tmp_path: Path) -> None:
    """Sizes are added up; offsets have no sum."""
    config = ManagerConfig(log=SMALL_LOG.replace(retention_ms=60_000, retention_bytes=-1))
    with manual_manager(tmp_path, config=config) as manager:
        manager.create_topic("orders", 2)
        append_texts(manager, "orders", 0, "one")
        scheduler_of(manager).clock.advance(5_000)
        append_texts(manager, "orders", 1, "two", "three")
        scheduler_of(manager).clock.advance(62_000)
        snapshot = manager.metrics(partitions=False)
        assert 7 == snapshot.value("kafkalog_retention_overdue_seconds", topic="orders")
        assert 2 == snapshot.value("kafkalog_retention_overdue_segments", topic="orders")
        assert 3 == snapshot.value("kafkalog_log_unsynced_records", topic="orders")
        assert not snapshot.has("kafkalog_log_end_offset")


def test_metrics_damage_counts_ranges_that_were_found(tmp_path: Path) -> None:
    """A reader finds the damage; its range is counted until its segment is deleted."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders")
        append_texts(manager, "orders", 0, "one", "two", "three")
    path = tmp_path / "orders-0" / f"{0:020}.log"
    flip(path, path.read_bytes().index(b"two"))
    with manual_manager(tmp_path) as manager:
        log = manager.log("orders")
        assert 2 == len(list(log.records(on_corrupt="skip")))
        (found,) = log.corrupt_ranges()
        assert (1, found.size_bytes) == figures(
            manager, "kafkalog_log_damaged_ranges", "kafkalog_log_damaged_bytes"
        )


def test_metrics_lag_of_groups_follows_positions_and_appends(tmp_path: Path) -> None:
    """Also in the next process, where neither log nor group was used yet."""
    with manual_manager(tmp_path, config=ONE_PARTITION) as manager:
        manager.create_topic("orders")
        append_texts(manager, "orders", 0, "one", "two", "three")
        with manager.consumer(
            "billing", max_poll_records=2, auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["orders"])
            assert 2 == sum(map(len, consumer.poll(0).values()))
            consumer.commit()
        snapshot = manager.metrics()
        assert 1 == snapshot.value("kafkalog_group_lag_records", group="billing")
        append_texts(manager, "orders", 0, "four")
        assert 2 == manager.metrics().value("kafkalog_group_lag_records", topic="orders")
        assert not manager.metrics(groups=False).has("kafkalog_group_lag_records")
    with manual_manager(tmp_path, config=ONE_PARTITION) as manager:
        snapshot = manager.metrics(partitions=False)
        assert 2 == snapshot.value("kafkalog_group_lag_records", group="billing", topic="orders")
        assert ("group", "topic") == snapshot.family("kafkalog_group_lag_records").definition.labels


def test_metrics_counters_continue_in_the_next_log(tmp_path: Path) -> None:
    """After a close, a move and a failed directory, which comes back."""
    disk = SimulatedDisk()
    first, second = Path("/first"), Path("/second")
    with manual_manager(first, second, filesystem=disk) as manager:
        manager.create_topic("orders", directory=first)
        append_texts(manager, "orders", 0, "one", "two")
        manager.log("orders").close()
        append_texts(manager, "orders", 0, "three")
        assert (3, 3, 3) == figures(manager, *APPENDS[:3])
        manager.move_partition("orders", 0, second)
        append_texts(manager, "orders", 0, "four")
        assert (4, 4, 4) == figures(manager, *APPENDS[:3])
        fail_directory(disk, manager, "orders")
        assert 4 <= figures(manager, *APPENDS[:1])[0]
        snapshot = manager.metrics()
        assert [1, 0] == [
            snapshot.value("kafkalog_directory_online", directory=str(each))
            for each in (first, second)
        ]
        manager.bring_online(second)
        before = figures(manager, *APPENDS[:3])
        append_texts(manager, "orders", 0, "five")
        assert before[0] + 1 == figures(manager, *APPENDS[:3])[0]


def test_metrics_sums_keep_deleted_partitions(tmp_path: Path) -> None:
    """Without labels of partitions a sum never decreases; a topic that is gone counts in ""."""
    name = "kafkalog_log_appended_records_total"
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders", 2)
        append_texts(manager, "orders", 0, "one", "two")
        append_texts(manager, "orders", 1, "three")
        manager.delete_partition("orders", 0)
        assert 1 == manager.metrics().value(name)
        assert 3 == manager.metrics(partitions=False).value(name, topic="orders")
        manager.delete_topic("orders")
        assert not manager.metrics().has(name)
        assert 3 == manager.metrics(partitions=False).value(name, topic="")
        for number in range(80):
            manager.create_topic(f"t{number}")
            append_texts(manager, f"t{number}", 0, "one")
            manager.delete_topic(f"t{number}")
        assert 83 == manager.metrics(partitions=False).value(name)
        manager.create_topic("orders", 1)
        append_texts(manager, "orders", 0, "one")
        assert 84 == manager.metrics(partitions=False).value(name)


def test_metrics_of_a_thousand_closed_partitions_open_nothing(tmp_path: Path) -> None:
    """Start, end and size are those of the logs, and no log or file is open."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders", 1000)
        append_texts(manager, "orders", 3, "one", "two", "three")
        manager.log("orders", 3).append([Record(value=b"x" * 700)])
        manager.log("orders", 3).delete_records(2)
        expected = manager.metrics()
    with manual_manager(tmp_path) as manager:
        before = descriptor_count()
        found = manager.metrics()
        again = manager.metrics()
        assert before == descriptor_count()
        assert 0 == found.value("kafkalog_directory_open_logs")
        for name in ("kafkalog_log_start_offset", "kafkalog_log_end_offset"):
            assert expected.value(name, partition="3") == found.value(name, partition="3")
            assert expected.value(name) == found.value(name) == again.value(name)
            assert 1000 == len(found.family(name).samples)
        assert 4 == found.value("kafkalog_log_durable_offset", partition="3")
        assert file_bytes(tmp_path / "orders-3") == found.value("kafkalog_log_size_bytes")
        assert 2 == found.value("kafkalog_log_segments", partition="3")
        append_texts(manager, "orders", 3, "five")
        assert 5 == manager.metrics().value("kafkalog_log_end_offset", partition="3")
        assert 1 == manager.metrics().value("kafkalog_directory_open_logs")


def test_metrics_unknown_ends_have_no_samples(tmp_path: Path) -> None:
    """A log that cannot be recovered has no end that is known; its files still have a size."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders")
        append_texts(manager, "orders", 0, "one")
    forget_shutdown(tmp_path)
    (tmp_path / "orders-0" / "leader-epoch-checkpoint").unlink()
    (tmp_path / "orders-0" / "leader-epoch-checkpoint").mkdir()
    with manual_manager(tmp_path) as manager:
        snapshot = manager.metrics()
        assert 1 == snapshot.value("kafkalog_recoveries_total", result="failed")
        assert not snapshot.has("kafkalog_log_end_offset", topic="orders")
        assert snapshot.value("kafkalog_log_size_bytes", topic="orders")
        assert 1 == snapshot.value("kafkalog_faults", task="open")


def test_metrics_recoveries_count_what_they_scanned_and_cut(tmp_path: Path) -> None:
    """A torn tail is cut at the start after a crash."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders")
        append_texts(manager, "orders", 0, "one", "two")
        snapshot = manager.metrics()
        assert 1 == snapshot.value("kafkalog_recoveries_total", result="clean")
    forget_shutdown(tmp_path)
    (tmp_path / RECOVERY_POINT_CHECKPOINT).unlink(missing_ok=True)
    path = tmp_path / "orders-0" / f"{0:020}.log"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\1" * 7)
    with manual_manager(tmp_path) as manager:
        snapshot = manager.metrics()
        assert 1 == snapshot.value("kafkalog_recoveries_total", result="recovered")
        assert size <= snapshot.value("kafkalog_recovery_scanned_bytes_total")
        assert 7 == snapshot.value("kafkalog_recovery_truncated_bytes_total")
        assert 1 == snapshot.histogram("kafkalog_open_seconds").count


def test_metrics_cleanings_and_their_debt(tmp_path: Path) -> None:
    """The dirty ratio is that of the last selection; totals are sums of all cleanings."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders", 1, {"cleanup.policy": "compact"})
        log = manager.log("orders")
        for number in range(20):
            log.append([Record(key=b"k", value=b"%03d" % number * 60)])
        scheduler_of(manager).advance(60_000)
        snapshot = manager.metrics()
        assert 1 <= snapshot.value("kafkalog_cleaner_cleanings_total")
        assert snapshot.has("kafkalog_cleaner_dirty_ratio", topic="orders")
        removed = snapshot.value("kafkalog_cleaner_removed_records_total")
        assert 0 < removed == 20 - len(list(log.records()))
        read = snapshot.value("kafkalog_cleaner_read_bytes_total")
        assert snapshot.value("kafkalog_cleaner_written_bytes_total") < read
        before = removed
        for number in range(20):
            log.append([Record(key=b"k", value=b"%03d" % number * 60)])
        manager.compact("orders")
        assert before < manager.metrics().value("kafkalog_cleaner_removed_records_total")


def test_metrics_commits_and_syncs_are_counted_by_directory(tmp_path: Path) -> None:
    """Each wait for the disk is a commit, each sync of a log a sync; groups have sizes."""
    with LogManager([tmp_path]) as manager:
        manager.create_topic("orders", 3)
        for _ in range(5):
            manager.log("orders", 0).append([Record(value=b"one")], wait="durable")
        snapshot = manager.metrics()
        assert 5 == snapshot.histogram("kafkalog_commit_seconds").count
        assert 5 == snapshot.histogram("kafkalog_sync_seconds", directory=str(tmp_path)).count
        assert 5 == snapshot.histogram("kafkalog_sync_callers").sum
        for partition in range(3):
            append_texts(manager, "orders", partition, "two")
        manager.flush()
        snapshot = manager.metrics()
        assert 6 == snapshot.histogram("kafkalog_commit_seconds").count
        assert 8 == snapshot.histogram("kafkalog_sync_seconds").count
        assert 3 == snapshot.histogram("kafkalog_commit_logs").sum
        assert 1 == snapshot.histogram("kafkalog_commit_requests").sum
        assert 0 == snapshot.value("kafkalog_sync_running_seconds")
        assert 0 < snapshot.histogram("kafkalog_append_seconds").count


def test_metrics_producers_have_buffers_retries_and_failures(tmp_path: Path) -> None:
    """Records that do not fit the disk wait, are retried, and count when they are given up."""
    disk = SimulatedDisk()
    with manual_manager(Path("/data"), filesystem=disk) as manager:
        manager.create_topic("orders")
        producer = manager.producer(buffer_memory=1 << 20, delivery_timeout_ms=60_000)
        sent = producer.send("orders", b"one")
        snapshot = manager.metrics()
        assert 1 == snapshot.value("kafkalog_producers")
        assert 1 << 20 == snapshot.value("kafkalog_producer_buffer_size_bytes")
        assert producer.pending_bytes == snapshot.value("kafkalog_producer_buffer_used_bytes") > 0
        disk.capacity_bytes = 0
        scheduler_of(manager).advance(1_000)
        snapshot = manager.metrics()
        assert 1 == snapshot.value("kafkalog_producer_waiting_batches")
        assert 0 < snapshot.value("kafkalog_producer_waiting_seconds")
        assert 0 < snapshot.value("kafkalog_producer_retries_total")
        scheduler_of(manager).advance(60_000)
        assert sent.exception() is not None
        snapshot = manager.metrics()
        assert 1 == snapshot.value("kafkalog_producer_failures_total")
        assert 0 == snapshot.value("kafkalog_producer_waiting_batches")
        disk.capacity_bytes = None
        producer.close()
        snapshot = manager.metrics()
        assert (0, 1) == (
            snapshot.value("kafkalog_producers"),
            snapshot.value("kafkalog_producer_failures_total"),
        )


def test_metrics_pool_counts_hits_misses_and_pinned_files(tmp_path: Path) -> None:
    """A file that a reader keeps after its deletion is pinned."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders")
        for _ in range(3):
            manager.log("orders").append([Record(value=b"x" * 500)])
        log = manager.log("orders")
        kept = log.read(0)
        assert kept.data
        assert kept.data
        snapshot = manager.metrics()
        assert 0 < snapshot.value("kafkalog_pool_misses_total")
        assert 0 < snapshot.value("kafkalog_pool_entries")
        list(log.records())
        list(log.records())
        assert 0 < manager.metrics().value("kafkalog_pool_hits_total")
        log.delete_records(2)
        scheduler_of(manager).advance(2_000)
        assert manager.health().held_bytes == manager.metrics().value("kafkalog_pinned_bytes") > 0


def test_metrics_deleted_topics_wait_for_their_delay(tmp_path: Path) -> None:
    """Their files are dead until they are removed."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders")
        append_texts(manager, "orders", 0, "one")
        manager.delete_topic("orders")
        assert 0 < manager.metrics().value("kafkalog_directory_removed_bytes")
        scheduler_of(manager).advance(2_000)
        assert 0 == manager.metrics().value("kafkalog_directory_removed_bytes")


def test_metrics_of_closed_manager_and_of_child_raise(tmp_path: Path) -> None:
    """A child of a fork has no manager."""
    manager = manual_manager(tmp_path)
    child = os.fork()
    if not child:
        status = 1
        try:
            manager.metrics()
        except ForkedLogError:
            status = 0
        finally:
            os._exit(status)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    manager.close()
    with pytest.raises(LogClosedError):
        manager.metrics()


Counts = dict[tuple[str, tuple[str, ...]], float]


def counters_of(snapshot: MetricsSnapshot) -> Counts:
    """Return all counters, and the counts and sums of histograms."""
    found: Counts = {}
    for family in snapshot:
        for sample in family.samples:
            key = family.name, sample.labels
            if family.definition.kind == "counter":
                assert isinstance(sample.value, int | float)
                found[key] = sample.value
            elif family.definition.kind == "histogram":
                assert not isinstance(sample.value, int | float)
                found[key] = sample.value.count
    return found


class Repeated:
    """Actions that are repeated in threads until the end; their errors are kept."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._repeat, args=(each,)) for each in actions]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, action: Callable[[], object]) -> None:
        try:
            while not self._stop.is_set():
                action()
        except BaseException as error:  # noqa: BLE001 - the test reports it
            self.errors.append(error)


def decreased(before: Counts, after: Counts, topics: tuple[str, ...]) -> list[object]:
    """Return the counters that decreased, of some topics and of the manager."""
    return [
        (key, count, after.get(key))
        for key, count in before.items()
        if (key[1][0] in topics if key[0].startswith("kafkalog_log_") else True)
        and after.get(key, -1) < count
    ]


def test_metrics_during_all_kinds_of_changes_never_decrease(tmp_path: Path) -> None:
    """Scrapes in one thread; appends, truncations, deletions, closes and new topics in others."""
    config = ManagerConfig(log=LogConfig(segment_bytes=2000, file_delete_delay_ms=0))
    with LogManager([tmp_path], config) as manager:
        manager.create_topic("orders", 3)

        def log(partition: int) -> Log:
            return manager.log("orders", partition)

        def come_and_go() -> None:
            manager.create_topic("short", 1)
            append_texts(manager, "short", 0, "one")
            manager.delete_topic("short")

        with Repeated(
            lambda: log(0).append_lists(None, [b"x" * 100] * 5),
            lambda: log(0).delete_records(log(0).high_watermark),
            lambda: log(1).append_lists(None, [b"x" * 100] * 5),
            lambda: log(1).truncate_to(max(log(1).log_end_offset - 3, 0)),
            lambda: list(log(1).records(on_corrupt="skip")),
            lambda: log(2).close(),
            lambda: manager.flush([("orders", 0), ("orders", 1)]),
            come_and_go,
        ) as repeated:
            before: Counts = {}
            sums: Counts = {}
            for _ in range(30):
                found = counters_of(manager.metrics())
                assert [] == decreased(before, found, ("orders",))
                before = found
                found = counters_of(manager.metrics(partitions=False))
                assert [] == decreased(sums, found, ("orders",))
                sums = found
                assert manager.health().directories[0].is_online
        assert [] == repeated.errors
        appended = manager.metrics().value(APPENDS[2], topic="orders", partition="0")
        assert log(0).log_end_offset == appended


def test_metrics_of_a_hanging_disk_show_the_sync_and_its_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape does not wait for the disk; callers that came meanwhile share the next sync."""
    syncs = Syncs(monkeypatch)
    limits = HealthConfig(sync_ms=1, free_bytes=1)
    with LogManager([tmp_path], ManagerConfig(health=limits)) as manager:
        manager.create_topic("orders")
        log = manager.log("orders")
        log.append([Record(value=b"one")], wait="durable")
        before = syncs.count
        syncs.hold()

        def append() -> None:
            log.append([Record(value=b"two")], wait="durable")

        threads = [threading.Thread(target=append) for _ in range(4)]
        threads[0].start()
        syncs.wait_for(before + 1)
        for thread in threads[1:]:
            thread.start()
        while manager.metrics().value("kafkalog_log_appended_records_total") < 5:
            threads[0].join(0.001)
        while not manager.metrics().value("kafkalog_sync_running_seconds") > 0.002:
            threads[0].join(0.001)
        health = manager.health()
        assert ["slow disk"] == [each.rule for each in health.findings]
        assert not health.is_healthy
        assert 4 == manager.metrics().value("kafkalog_log_unsynced_records")
        syncs.release()
        for thread in threads:
            thread.join()
        snapshot = manager.metrics()
        assert 0 == snapshot.value("kafkalog_sync_running_seconds")
        assert 5 == snapshot.histogram("kafkalog_sync_callers").sum
        assert 5 == snapshot.histogram("kafkalog_commit_seconds").count
        assert manager.health().is_healthy


def test_metrics_and_health_during_the_close_raise_nothing_else(tmp_path: Path) -> None:
    """Scrapes in other threads end with a snapshot, or because the manager is closed."""
    for _ in range(5):
        manager = LogManager([tmp_path])
        if "orders" not in manager.topics():
            manager.create_topic("orders", 20)
        for partition in range(20):
            append_texts(manager, "orders", partition, "one")
        closed = threading.Event()

        def scrape(manager: LogManager = manager, closed: threading.Event = closed) -> None:
            try:
                manager.metrics()
            except LogClosedError:
                closed.wait(60)

        with Repeated(scrape, scrape, manager.health) as repeated:
            manager.close()
            closed.set()
        assert [] == repeated.errors
