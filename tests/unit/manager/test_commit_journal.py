"""Commit journal of a manager: one sync a commit, failures, other programs, what is left."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path
from uuid import UUID

import pytest

from kafkalog import (
    DiskFullError,
    FileSystem,
    KafkaLogError,
    LogManager,
    LogOfflineError,
    ManagerConfig,
    Record,
    TopicPartition,
    open_log,
)
from kafkalog.log.log import partition_of
from kafkalog.manager import commit_journal
from kafkalog.state.partition_metadata import read_partition_metadata
from tests.support.disk_faults import SYNCING, PowerCut
from tests.support.managers import SMALL_LOG, append_texts, manual_manager, scheduler_of, values
from tests.support.simulated_disk import SimulatedDisk

A = Path("/disks/a")
CONFIG = ManagerConfig(
    log=SMALL_LOG.replace(segment_bytes=20_000),
    num_recovery_threads_per_data_dir=1,
    journal_enable=True,
    journal_bytes=1 << 18,
)
JOURNAL = ".kafkalog_journal."


def opened(disk: SimulatedDisk, config: ManagerConfig = CONFIG) -> LogManager:
    """Return a manager of a disk."""
    return manual_manager(A, config=config, filesystem=disk)


def journal_files(disk: SimulatedDisk) -> list[str]:
    """Return the files of the journal."""
    return [name for name in disk.list(A) if name.startswith(JOURNAL)]


class Rig:
    """A manager with a topic `t` of so many partitions, each with a durable record."""

    def __init__(self, count: int = 3, config: ManagerConfig = CONFIG) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_durable(A)
        self.manager = opened(self.disk, config)
        self.manager.create_topic("t", count)
        self.append("kept")
        self.manager.flush()

    def append(self, text: str) -> None:
        """Append a record to each partition."""
        for topic, partition in self.manager.partitions():
            append_texts(self.manager, topic, partition, text)

    def syncs_of(self, *, of: str = "flush") -> list[str]:
        """Return the paths that a flush, or a checkpoint, syncs."""
        self.disk.history = []
        if of == "flush":
            self.manager.flush()
        else:
            scheduler_of(self.manager).advance(CONFIG.journal_checkpoint_interval_ms)
        history, self.disk.history = self.disk.history, None
        return [Path(path).name for name, path in history if name in SYNCING]

    def lose_power(self) -> SimulatedDisk:
        """Return the disk after a power cut that takes all that is not synced."""
        return self.disk.crash()


def test_commit_of_many_logs_is_one_sync() -> None:
    """Of the journal; and none if nothing is dirty."""
    rig = Rig(5)
    rig.append("a")
    assert [f"{JOURNAL}1"] == rig.syncs_of()
    assert [2] * 5 == [rig.manager.log("t", each).durable_offset for each in range(5)]
    # Nothing is dirty: no sync at all.
    assert not rig.syncs_of()
    rig.manager.close()


def test_checkpoint_syncs_the_logs_and_is_recorded() -> None:
    """Each log once, then the journal."""
    rig = Rig(2)
    rig.append("a")
    rig.manager.flush()
    logs = [partition_of(rig.manager.log("t", each)) for each in range(2)]
    assert [1, 1] == [log.flusher.synced_offset for log in logs]
    synced = rig.syncs_of(of="checkpoint")
    assert [2, 2] == [log.flusher.synced_offset for log in logs]
    assert synced.count("00000000000000000000.log") == 2
    assert synced[-1] == f"{JOURNAL}1"
    # A second one has nothing to do.
    assert not [name for name in rig.syncs_of(of="checkpoint") if name.endswith(".log")]
    rig.manager.close()


def test_idle_journal_is_not_written() -> None:
    """After the checkpoint that covers the last commit."""
    rig = Rig(2)
    rig.append("a")
    rig.manager.flush()
    assert rig.syncs_of(of="checkpoint")
    later = [name for _ in range(3) for name in rig.syncs_of(of="checkpoint")]
    assert not [name for name in later if name.startswith(JOURNAL)]
    rig.append("b")
    assert [f"{JOURNAL}1"] == rig.syncs_of()
    assert rig.syncs_of(of="checkpoint")[-1] == f"{JOURNAL}1"
    rig.manager.close()


def test_checkpoint_comes_once_in_the_second_half_of_a_file() -> None:
    """Later commits of the same file, and the record of the checkpoint, request no other."""
    without_rolls = CONFIG.log.replace(segment_bytes=1 << 20, segment_index_bytes=1 << 16)
    rig = Rig(1, CONFIG.replace(log=without_rolls, journal_bytes=1 << 20))
    scheduler = scheduler_of(rig.manager)
    rounds = []
    for _ in range(200):
        rig.append("a" * 3000)
        rig.disk.history = []
        rig.manager.flush()
        # Requested tasks run now, before the interval has passed.
        scheduler.advance(1)
        scheduler.advance(1)
        synced = [Path(path).name for name, path in rig.disk.history if name in SYNCING]
        rig.disk.history = None
        rounds.append(sum(name.endswith(".log") for name in synced))
    # Two files of 128 blocks, of which 110 take commits of one block each.
    assert [0, 1] == sorted(set(rounds))
    assert sum(rounds) == 2
    assert len(journal_files(rig.disk)) == 2
    rig.manager.close()


def test_recovery_point_is_that_of_the_files() -> None:
    """A recovery scans what the journal alone had."""
    rig = Rig(1)
    rig.append("a")
    rig.manager.flush()
    log = rig.manager.log("t")
    assert partition_of(log).flusher.checkpoint_recovery_point()
    assert log.durable_offset == 2
    assert partition_of(log).store.read_recovery_point() == 1
    rig.manager.close()


def test_close_in_order_leaves_nothing_of_the_journal() -> None:
    """On the disk: a broker finds its own files."""
    rig = Rig()
    rig.append("a")
    rig.manager.flush()
    assert journal_files(rig.disk) == [f"{JOURNAL}1"]
    rig.manager.close()
    left = rig.lose_power()
    assert not journal_files(left)
    assert ".kafka_cleanshutdown" in left.list(A)


def test_power_cut_gives_back_what_was_flushed() -> None:
    """From the journal alone."""
    rig = Rig()
    for text in ("a", "b"):
        rig.append(text)
        rig.manager.flush()
    rig.append("not flushed")
    with contextlib.closing(opened(rig.lose_power())) as manager:
        for partition in range(3):
            assert ["kept", "a", "b"] == values(manager, "t", partition)
        assert manager.health().is_healthy


def test_kill_leaves_a_journal_that_changes_nothing() -> None:
    """The files have all of it, and more."""
    rig = Rig()
    rig.append("a")
    rig.manager.flush()
    rig.append("b")
    with contextlib.closing(opened(rig.disk.killed())) as manager:
        assert ["kept", "a", "b"] == values(manager, "t")


def test_journal_of_a_disabled_setting_is_applied_and_removed() -> None:
    """By a manager that makes no journal."""
    rig = Rig()
    rig.append("a")
    rig.manager.flush()
    disk = rig.lose_power()
    with contextlib.closing(opened(disk, CONFIG.replace(journal_enable=False))) as manager:
        assert ["kept", "a"] == values(manager, "t")
        assert not journal_files(disk)


def test_large_appends_and_new_segments_sync_their_own_files() -> None:
    """In the commit of the others."""
    rig = Rig(2, CONFIG.replace(journal_log_max_bytes=150))
    append_texts(rig.manager, "t", 0, "small")
    append_texts(rig.manager, "t", 1, "l" * 100)
    assert [f"{JOURNAL}1", "00000000000000000000.log"] == sorted(
        name for name in rig.syncs_of() if not name.startswith(".kafkalog_syncs")
    )
    rig.manager.log("t", 0).roll()
    append_texts(rig.manager, "t", 0, "after")
    assert f"{JOURNAL}1" not in rig.syncs_of()
    append_texts(rig.manager, "t", 0, "again")
    assert [f"{JOURNAL}1"] == rig.syncs_of()
    with contextlib.closing(opened(rig.lose_power())) as manager:
        assert ["kept", "small", "after", "again"] == values(manager, "t", 0)


def test_full_journal_lets_logs_sync_their_own_files() -> None:
    """Until a checkpoint, which the manual scheduler does not run by itself."""
    rig = Rig(1)
    names: list[str] = []
    texts = ["kept"]
    for number in range(60):
        texts.append(f"text {number}")
        append_texts(rig.manager, "t", 0, texts[-1])
        names += rig.syncs_of()
    assert names.count("00000000000000000000.log") > 5
    scheduler_of(rig.manager).advance(0)
    texts.append("room again")
    append_texts(rig.manager, "t", 0, texts[-1])
    assert [f"{JOURNAL}2"] == rig.syncs_of()
    with contextlib.closing(opened(rig.lose_power())) as manager:
        assert texts == values(manager, "t")


def test_failed_sync_of_the_journal_takes_the_directory_offline() -> None:
    """With all logs; it comes back with what was flushed."""
    rig = Rig(2)
    rig.append("a")
    rig.manager.flush()
    rig.append("b")
    rig.disk.fail_at(1, errno.EIO, only=frozenset({"sync"}), suffix=f"{JOURNAL}1")
    with pytest.raises(KafkaLogError, match="commit journal"):
        rig.manager.flush()
    logs = [rig.manager.directory_of("t", each) for each in range(2)]
    assert logs
    assert not rig.manager.health().directories[0].is_online
    with pytest.raises(LogOfflineError):
        rig.manager.log("t", 0).append([Record(value=b"refused")])
    # A cut now: what was flushed before is there.
    with contextlib.closing(opened(rig.lose_power())) as manager:
        assert ["kept", "a"] == values(manager, "t", 1)[:2]
    rig.manager.bring_online(A)
    assert ["kept", "a", "b"] == values(rig.manager, "t", 0)
    rig.append("c")
    rig.manager.flush()
    assert rig.manager.log("t", 0).durable_offset == 4
    rig.manager.close()
    assert not journal_files(rig.disk)


def test_full_disk_at_the_start_is_no_journal() -> None:
    """The logs sync their own files."""
    rig = Rig(1)
    rig.manager.close()
    rig.disk.capacity_bytes = rig.disk.used_bytes + 60_000
    with contextlib.closing(opened(rig.disk)) as manager:
        assert not journal_files(rig.disk)
        append_texts(manager, "t", 0, "a")
        manager.flush()
        assert manager.log("t").durable_offset == 2


def test_full_disk_within_the_journal_syncs_the_logs() -> None:
    """As on a file system that copies on write."""
    rig = Rig(1)
    rig.append("a")
    rig.disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite"}), suffix=f"{JOURNAL}1")
    rig.manager.flush()
    assert rig.manager.log("t").durable_offset == 2
    rig.append("b")
    assert [f"{JOURNAL}1"] == rig.syncs_of()
    with contextlib.closing(opened(rig.lose_power())) as manager:
        assert ["kept", "a", "b"] == values(manager, "t")


def test_commit_whose_write_failed_is_void_before_a_truncation() -> None:
    """All of it may be on the disk."""
    rig = Rig(1)
    rig.append("a")
    rig.disk.fail_at(
        1,
        errno.ENOSPC,
        only=frozenset({"pwrite"}),
        short_write_bytes=4096,
        suffix=f"{JOURNAL}1",
    )
    rig.manager.flush()
    assert not rig.disk.faults_waiting
    rig.manager.log("t").truncate_to(1)
    for _choice, left in rig.disk.crash_states(20):
        with contextlib.closing(opened(left)) as manager:
            assert ["kept"] == values(manager, "t")


def test_truncated_records_do_not_come_back() -> None:
    """Before and after other records have their offsets."""
    rig = Rig(1)
    rig.append("a")
    rig.append("b")
    rig.manager.flush()
    rig.manager.log("t").truncate_to(1)
    with contextlib.closing(opened(rig.lose_power())) as manager:
        assert ["kept"] == values(manager, "t")
    append_texts(rig.manager, "t", 0, "c")
    rig.manager.flush()
    with contextlib.closing(opened(rig.lose_power())) as manager:
        assert ["kept", "c"] == values(manager, "t")


def test_deleted_topic_does_not_come_back() -> None:
    """Into the topic that has its name now."""
    rig = Rig(1)
    rig.append("a")
    rig.manager.flush()
    rig.manager.delete_topic("t")
    rig.manager.create_topic("t")
    append_texts(rig.manager, "t", 0, "new")
    rig.manager.flush()
    append_texts(rig.manager, "t", 0, "newer")
    rig.manager.flush()
    with contextlib.closing(opened(rig.lose_power())) as manager:
        assert ["new", "newer"] == values(manager, "t")
        assert not manager.health().faults


def test_failed_sync_of_a_log_is_recovered_from_the_journal() -> None:
    """The system loses the log's bytes; the journal has them."""
    rig = Rig(2)
    rig.append("a")
    rig.manager.flush()
    path = A / "t-0" / "00000000000000000000.log"
    rig.disk.fail_write_back(path)
    scheduler_of(rig.manager).advance(CONFIG.journal_checkpoint_interval_ms)
    assert not rig.manager.health().is_healthy
    rig.disk.evict(path)
    rig.manager.bring_online(A)
    assert ["kept", "a"] == values(rig.manager, "t", 0)
    assert ["kept", "a"] == values(rig.manager, "t", 1)
    rig.append("b")
    rig.manager.flush()
    with contextlib.closing(opened(rig.lose_power())) as manager:
        assert ["kept", "a", "b"] == values(manager, "t", 0)


def refuse_to_open(disk: SimulatedDisk) -> None:
    """Let the next opening of the segment of partition 0 be denied."""
    suffix = "t-0/00000000000000000000.log"
    disk.fail_at(1, errno.EACCES, only=frozenset({"open"}), suffix=suffix)


def test_partition_that_cannot_be_opened_keeps_its_entries() -> None:
    """Over two starts; the others continue, and truncate what the old journal had."""
    rig = Rig(2)
    rig.append("a")
    rig.manager.flush()
    disk = rig.lose_power()
    refuse_to_open(disk)
    manager = opened(disk)
    assert [TopicPartition("t", 0)] == [each.subject for each in manager.health().faults]
    manager.log("t", 1).truncate_to(1)
    append_texts(manager, "t", 1, "b")
    manager.flush()
    disk = disk.crash()
    refuse_to_open(disk)
    manager = opened(disk)
    assert ["kept", "b"] == values(manager, "t", 1)
    assert ["kept", "a"] == values(manager, "t", 0)
    append_texts(manager, "t", 0, "c")
    manager.flush()
    manager.close()
    assert not journal_files(disk)


def overwrite(disk: SimulatedDisk, source: SimulatedDisk) -> None:
    """Let another program have written the log of partition 0: the bytes of another disk."""
    path = A / "t-0" / "00000000000000000000.log"
    handle = source.open(path)
    data = handle.pread(handle.size(), 0)
    handle.close()
    target = disk.open(path, write=True)
    target.truncate(0)
    target.pwrite(data, 0)
    target.sync()
    target.close()


@pytest.mark.parametrize(
    ("texts", "reason"),
    [(["kept", "other"], "another batch there"), (["else"], "other bytes before them")],
)
def test_log_of_another_program_is_not_overwritten(texts: list[str], reason: str) -> None:
    """The fault has file, position and offset, and the journal is kept."""
    rig = Rig(2)
    other = Rig(2)
    if texts[0] == "kept":
        append_texts(other.manager, "t", 0, *texts[1:])
    else:
        other.manager.log("t", 0).truncate_to(0)
        append_texts(other.manager, "t", 0, *texts)
    rig.append("a")
    rig.manager.flush()
    disk = rig.lose_power()
    overwrite(disk, other.disk)
    with contextlib.closing(opened(disk)) as manager:
        assert texts == values(manager, "t", 0)
        assert ["kept", "a"] == values(manager, "t", 1)
        (fault,) = manager.health().faults
        assert (fault.task, fault.subject) == ("commit-journal", A / "t-0")
        for part in ("00000000000000000000.log", "offsets 1 to 1", "position", reason):
            assert part in str(fault.error)
        append_texts(manager, "t", 0, "new")
    assert [f"{JOURNAL}1.unapplied"] == journal_files(disk)
    with contextlib.closing(opened(disk)) as manager:
        assert [*texts, "new"] == values(manager, "t", 0)
        assert not manager.health().faults


def test_journal_of_a_kill_before_a_close_in_order_is_removed() -> None:
    """A broker has recovered the directory, which had everything, and closed it."""
    rig = Rig(1)
    rig.append("a")
    rig.manager.flush()
    disk = rig.disk.killed()
    disk.create_new(A / ".kafka_cleanshutdown").close()
    with contextlib.closing(opened(disk)) as manager:
        assert ["kept", "a"] == values(manager, "t")
        assert not manager.health().faults
    assert not journal_files(disk)


def test_journal_of_a_cut_before_a_close_in_order_is_not_applied() -> None:
    """A broker has recovered the directory, without the journal's records, and closed it."""
    rig = Rig(1)
    rig.append("a")
    rig.manager.flush()
    disk = rig.lose_power()
    for name in (".kafka_cleanshutdown", f"{JOURNAL}7"):
        disk.create_new(A / name).close()
    with contextlib.closing(opened(disk)) as manager:
        assert ["kept"] == values(manager, "t")
        assert "commit-journal" in [fault.task for fault in manager.health().faults]
    assert sorted([f"{JOURNAL}1.unapplied", f"{JOURNAL}7.unapplied"]) == journal_files(disk)


def test_journal_of_an_idle_manager_is_removed() -> None:
    """No log was opened for writing: the marker is that of the last close."""
    rig = Rig(1)
    rig.manager.close()
    idle = opened(rig.disk)
    assert [f"{JOURNAL}1"] == journal_files(rig.disk)
    assert idle.topics()
    disk = rig.lose_power()
    with contextlib.closing(opened(disk, CONFIG.replace(journal_enable=False))) as manager:
        assert ["kept"] == values(manager, "t")
        assert not manager.health().faults
        assert not journal_files(disk)


def test_log_alone_is_refused_until_the_journal_is_applied() -> None:
    """For writing; a reader gets what the file has."""
    rig = Rig(1)
    rig.append("a")
    rig.manager.flush()
    disk = rig.lose_power()
    with pytest.raises(LogOfflineError, match=r"was not applied \(\.kafkalog_journal\.1\)"):
        open_log(A / "t-0", filesystem=disk)
    with open_log(A / "t-0", read_only=True, filesystem=disk) as log:
        assert log.log_end_offset == 1
    opened(disk).close()
    with open_log(A / "t-0", filesystem=disk) as log:
        assert log.log_end_offset == 2


def test_cut_within_the_write_of_a_commit_keeps_the_commits_before() -> None:
    """In all states of the torn commit."""
    rig = Rig(2)
    rig.append("a")
    rig.manager.flush()
    rig.append("b")
    rig.disk.crash_at(1, only=frozenset({"sync"}))
    with pytest.raises(PowerCut):
        rig.manager.flush()
    for _choice, left in rig.disk.crash_states(20):
        with contextlib.closing(opened(left)) as manager:
            for partition in range(2):
                assert ["kept", "a"] == values(manager, "t", partition)[:2]


def test_producer_is_durable_by_the_journal() -> None:
    """Its futures complete by one sync."""
    rig = Rig(4)
    with rig.manager.producer(wait="durable", linger_ms=0) as producer:
        sent = [producer.send("t", b"sent", partition=number) for number in range(4)]
        scheduler_of(rig.manager).advance(1)
        producer.flush()
        assert [1] * 4 == [each.result(0).offset for each in sent]
    with contextlib.closing(opened(rig.lose_power())) as manager:
        for partition in range(4):
            assert ["kept", "sent"] == values(manager, "t", partition)


def test_full_disk_of_logs_is_typed() -> None:
    """Appends that do not fit fail; what was appended can be committed: the journal is there."""
    rig = Rig(1)
    rig.append("a")
    rig.disk.capacity_bytes = rig.disk.used_bytes
    with pytest.raises(DiskFullError):
        append_texts(rig.manager, "t", 0, "x" * 5_000)
    rig.manager.flush()
    assert rig.manager.log("t").durable_offset == 2
    rig.disk.capacity_bytes = None
    rig.manager.close()


def test_log_whose_topic_cannot_be_read_syncs_its_own_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A journal names the topic; without its id the others are committed nevertheless."""
    rig = Rig(1)
    rig.manager.create_topic("u")
    append_texts(rig.manager, "u", 0, "a")
    rig.append("b")
    read = read_partition_metadata

    def refuse(filesystem: FileSystem, directory: Path) -> UUID | None:
        if directory.name == "u-0":
            raise OSError(errno.EIO, "refused", str(directory))
        return read(filesystem, directory)

    monkeypatch.setattr(commit_journal, "read_partition_metadata", refuse)
    rig.manager.flush()
    for name in ("t", "u"):
        log = rig.manager.log(name)
        assert log.log_end_offset == log.durable_offset
    rig.manager.close()
