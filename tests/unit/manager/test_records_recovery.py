"""Recovery of records that a commit journal has, and their log lacks in whole or in part."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path
from uuid import UUID

import pytest

from kafkalog import (
    ConfigError,
    DiskFullError,
    KafkaLogError,
    LogManager,
    ManagerConfig,
    Record,
    TopicPartition,
)
from kafkalog.manager.records_recovery import append_records
from kafkalog.state.commit_journal import journal_path, read_journal, records_entries
from kafkalog.state.partition_metadata import write_partition_metadata
from tests.support.delayed_logs import key_of
from tests.support.logs import manual_log
from tests.support.managers import (
    SMALL_LOG,
    append_texts,
    has_marker,
    manual_manager,
    scheduler_of,
    values,
)
from tests.support.shares import calls
from tests.support.simulated_disk import SimulatedDisk

A = Path("/disks/a")
LINGER_MS = 100
CONFIG = ManagerConfig(
    log=SMALL_LOG.replace(segment_bytes=20_000),
    num_recovery_threads_per_data_dir=1,
    journal_enable=True,
    journal_bytes=1 << 18,
    journal_linger_ms=LINGER_MS,
)
JOURNAL = ".kafkalog_journal."
SEGMENT = "00000000000000000000.log"
BATCH_HEADER_BYTES = 61
# A batch of the settings has space for one of them.
TEXTS = [f"{number} {'x' * 120}" for number in range(4)]


class Rig:
    """A manager with a topic `t`, each partition of which has a record "first" on the disk."""

    def __init__(self, partition_count: int = 1, config: ManagerConfig = CONFIG) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_durable(A)
        self.manager = manual_manager(A, config=config, filesystem=self.disk)
        self.manager.create_topic("t", partition_count)
        self.producer = self.manager.producer(wait="durable")
        self.keys = [key_of(each, partition_count) for each in range(partition_count)]
        for partition in range(partition_count):
            append_texts(self.manager, "t", partition, "first")
        self.manager.flush()

    def commit(self, *texts: str) -> None:
        """Commit texts to each partition, as one entry of records each."""
        keys = [key for key in self.keys for _ in texts]
        sent = self.producer.send_many(
            "t", keys, [text.encode() for _ in self.keys for text in texts]
        )
        self.producer.flush()
        assert sent.exception(0) is None

    def linger(self) -> None:
        """Let the time of the appends come."""
        scheduler_of(self.manager).advance(LINGER_MS)


def opened(disk: SimulatedDisk, config: ManagerConfig = CONFIG) -> LogManager:
    """Return a manager of a disk."""
    return manual_manager(A, config=config, filesystem=disk)


def journal_files(disk: SimulatedDisk) -> list[str]:
    """Return the files of the journal."""
    return sorted(name for name in disk.list(A) if name.startswith(JOURNAL))


def segment_of(disk: SimulatedDisk, partition: int = 0) -> bytes:
    """Return the bytes of a log."""
    handle = disk.open(A / f"t-{partition}" / SEGMENT)
    try:
        return handle.pread(handle.size(), 0)
    finally:
        handle.close()


def write_segment(disk: SimulatedDisk, data: bytes, partition: int = 0) -> None:
    """Replace the bytes of a log, on the disk."""
    handle = disk.open(A / f"t-{partition}" / SEGMENT, write=True)
    handle.truncate(0)
    handle.pwrite(data, 0)
    handle.sync()
    handle.close()


def batch_starts(data: bytes) -> list[int]:
    """Return the positions at which batches begin, and the end of the last."""
    starts = [0]
    while starts[-1] + BATCH_HEADER_BYTES <= len(data):
        size = int.from_bytes(data[starts[-1] + 8 : starts[-1] + 12], "big")
        if size == 0:
            break
        starts.append(starts[-1] + 12 + size)
    return starts


def check_applied(disk: SimulatedDisk, *texts: str, config: ManagerConfig = CONFIG) -> None:
    """A start appends what lacks, a second one finds it, and no journal is left."""
    with contextlib.closing(opened(disk, config)) as manager:
        assert values(manager, "t") == ["first", *texts]
        assert not manager.health().faults
        log = manager.log("t")
        assert log.durable_offset == log.log_end_offset == 1 + len(texts)
        # On the disk, without a close.
        with contextlib.closing(opened(disk.crash(), config)) as again:
            assert values(again, "t") == ["first", *texts]
        append_texts(manager, "t", 0, "new")
    assert not journal_files(disk)
    with contextlib.closing(opened(disk, config)) as manager:
        assert values(manager, "t") == ["first", *texts, "new"]


def check_refused(
    disk: SimulatedDisk, present: list[str], *reasons: str, config: ManagerConfig = CONFIG
) -> None:
    """A start changes nothing in the log, has a fault, and keeps the journal; the log is usable."""
    with contextlib.closing(opened(disk, config)) as manager:
        assert values(manager, "t") == present
        faults = [each for each in manager.health().faults if each.task == "commit-journal"]
        assert [each.subject for each in faults] == [A / "t-0"]
        for reason in reasons:
            assert reason in str(faults[0].error)
        append_texts(manager, "t", 0, "new")
    assert journal_files(disk) == [f"{JOURNAL}1.unapplied"]
    with contextlib.closing(opened(disk, config)) as manager:
        assert values(manager, "t") == [*present, "new"]
        assert not manager.health().faults


# ---------------------------------------------------------------------------- missing records


def test_log_lacks_all_records() -> None:
    """They have keys, timestamps and offsets as before, in order of the commits."""
    rig = Rig()
    start_ms = scheduler_of(rig.manager).clock.now_ms()
    rig.commit("a", "b")
    scheduler_of(rig.manager).advance(LINGER_MS // 2)
    rig.commit("c")
    disk = rig.disk.crash()
    with contextlib.closing(opened(disk.crash())) as manager:
        found = [
            (record.offset, record.timestamp_ms, record.key, record.value)
            for record in manager.log("t").records(1)
        ]
    later_ms = start_ms + LINGER_MS // 2
    (key,) = rig.keys
    assert found == [(1, start_ms, key, b"a"), (2, start_ms, key, b"b"), (3, later_ms, key, b"c")]
    check_applied(disk, "a", "b", "c")


@pytest.mark.parametrize("has_lingered", [False, True])
def test_killed_process_leaves_records_to_the_journal(*, has_lingered: bool) -> None:
    """Some commits are in the files of the log."""
    rig = Rig()
    rig.commit("a", "b")
    if has_lingered:
        rig.linger()
    rig.commit("c")
    check_applied(rig.disk.killed(), "a", "b", "c")


def test_log_that_has_all_records_is_not_changed() -> None:
    """Neither its files nor its end."""
    rig = Rig()
    rig.commit("a", "b")
    rig.commit("c")
    rig.linger()
    rig.manager.log("t").flush()
    disk = rig.disk.crash()
    before = segment_of(disk)
    with contextlib.closing(opened(disk)) as manager:
        assert manager.log("t").log_end_offset == 4
        assert segment_of(disk)[: len(before.rstrip(b"\0"))] == before.rstrip(b"\0")
    check_applied(disk, "a", "b", "c")


@pytest.mark.parametrize("kept", range(1, 6))
@pytest.mark.parametrize("more", [0, 1, BATCH_HEADER_BYTES - 1, BATCH_HEADER_BYTES + 40])
def test_log_lacks_the_last_records_of_an_entry(kept: int, more: int) -> None:
    """Whole batches, and a torn one after them."""
    rig = Rig()
    rig.commit(*TEXTS)
    rig.linger()
    rig.manager.log("t").flush()
    disk = rig.disk.crash()
    data = segment_of(disk)
    starts = batch_starts(data)
    assert len(starts) == 1 + 1 + len(TEXTS)
    write_segment(disk, data[: min(starts[kept] + more, starts[-1])])
    check_applied(disk, *TEXTS)


def test_torn_tail_with_other_bytes_is_cut_before_the_append() -> None:
    """The disk has the size of the file, and zeros or garbage in place of its end."""
    rig = Rig()
    rig.commit("a", "b")
    rig.linger()
    rig.manager.log("t").flush()
    disk = rig.disk.crash()
    data = segment_of(disk)
    start, end = batch_starts(data)[1:3]
    write_segment(disk, data[: start + 20] + bytes(end - start - 20))
    check_applied(disk, "a", "b")


def test_offsets_below_the_log_start_count_as_applied() -> None:
    """Deleted records do not come back, and the later ones are appended."""
    rig = Rig()
    rig.commit("a", "b")
    rig.linger()
    rig.manager.log("t").flush()
    rig.manager.log("t").delete_records(3)
    rig.commit("c")
    with contextlib.closing(opened(rig.disk.killed())) as manager:
        assert values(manager, "t") == ["c"]
        assert manager.log("t").log_start_offset == 3
        assert not manager.health().faults


# ------------------------------------------------------------------------------ other programs


def records_of_another_program(*texts: str) -> bytes:
    """Return the bytes of a log in which another program has appended to the record "first"."""
    other = Rig()
    append_texts(other.manager, "t", 0, *texts)
    other.manager.flush()
    return segment_of(other.disk)


@pytest.mark.parametrize(
    ("commits", "texts", "offset", "lost"),
    [
        ([["a"]], ["other"], 1, "offsets 1 to 1"),
        ([["a", "b"]], ["other"], 1, "offsets 1 to 2"),
        ([["a"], ["b"]], ["other", "more", "than both"], 1, "offsets 1 to 1"),
        # Equal values, but no key.
        ([["a"]], ["a"], 1, "offsets 1 to 1"),
    ],
)
def test_other_records_at_the_offsets_are_not_overwritten(
    commits: list[list[str]], texts: list[str], offset: int, lost: str
) -> None:
    """The fault has directory, offsets, file and position; the log can be used."""
    rig = Rig()
    for commit in commits:
        rig.commit(*commit)
    disk = rig.disk.crash()
    write_segment(disk, records_of_another_program(*texts))
    reason = f"the log has another record at offset {offset}"
    place = f"{A / 't-0'}: {lost} are in {JOURNAL}1 alone, at position "
    check_refused(disk, ["first", *texts], place, reason)


def test_other_record_after_equal_ones_is_not_overwritten() -> None:
    """The first commit is in the log; nothing of the second and third is appended."""
    rig, other = Rig(), Rig()
    for text in ("a", "b", "c"):
        rig.commit(text)
    other.commit("a")
    append_texts(other.manager, "t", 0, "other")
    other.manager.flush()
    disk = rig.disk.crash()
    write_segment(disk, segment_of(other.disk))
    reason = "the log has another record at offset 2"
    check_refused(disk, ["first", "a", "other"], "offsets 2 to 2", reason)


def test_other_record_after_equal_ones_of_an_entry_is_not_overwritten() -> None:
    """Of one commit with three records."""
    rig, other = Rig(), Rig()
    rig.commit("a", "b", "c")
    other.commit("a")
    append_texts(other.manager, "t", 0, "other")
    other.manager.flush()
    disk = rig.disk.crash()
    write_segment(disk, segment_of(other.disk))
    reason = "the log has another record at offset 2"
    check_refused(disk, ["first", "a", "other"], "offsets 1 to 3", reason)


def test_log_that_ends_before_the_records_is_refused() -> None:
    """Its first record is missing: a gap is never made."""
    rig = Rig()
    rig.commit("a")
    disk = rig.disk.crash()
    write_segment(disk, b"")
    check_refused(disk, [], "offsets 1 to 1", "the log ends at offset 0")


def test_refused_partition_does_not_hold_up_the_others() -> None:
    """They get their records."""
    rig = Rig(3)
    rig.commit("a", "b")
    disk = rig.disk.crash()
    write_segment(disk, b"", 0)
    with contextlib.closing(opened(disk)) as manager:
        assert [values(manager, "t", each) for each in (1, 2)] == [["first", "a", "b"]] * 2
        assert [each.subject for each in manager.health().faults] == [A / "t-0"]


def test_topic_that_was_created_again_gets_no_records() -> None:
    """Of the topic before it, which had another id."""
    rig = Rig()
    rig.commit("a")
    disk = rig.disk.crash()
    disk.unlink(A / "t-0" / "partition.metadata")
    write_partition_metadata(disk, A / "t-0", UUID(int=77))
    check_refused(disk, ["first"], "the topic has another id now")


def test_missing_partition_is_reported() -> None:
    """The journal is kept, and the other partition gets its records."""
    rig = Rig(2)
    rig.commit("a")
    disk = rig.disk.crash()
    for name in disk.list(A / "t-0"):
        disk.unlink(A / "t-0" / name)
    disk.remove_directory(A / "t-0")
    disk.sync_directory(A)
    with contextlib.closing(opened(disk)) as manager:
        assert values(manager, "t", 1) == ["first", "a"]
        (fault,) = [each for each in manager.health().faults if each.task == "commit-journal"]
        assert "t-0 is missing" in str(fault.error)
    assert journal_files(disk) == [f"{JOURNAL}1.unapplied"]


# ------------------------------------------------------------------------------- other settings


@pytest.mark.parametrize(
    "settings",
    [
        {"max_message_bytes": 50},
        {"compression_type": "lz4"},
        {"message_timestamp_type": "LogAppendTime"},
        {"message_timestamp_after_max_ms": 0, "message_timestamp_before_max_ms": 0},
        {"segment_bytes": 100},
        {"cleanup_policy": ("compact",)},
    ],
)
def test_settings_of_now_refuse_no_record(settings: dict[str, object]) -> None:
    """They were checked by those in force when they were acknowledged."""
    rig = Rig()
    start_ms = scheduler_of(rig.manager).clock.now_ms()
    rig.commit(*TEXTS)
    disk = rig.disk.crash()
    config = CONFIG.replace(log=CONFIG.log.replace(**settings))
    with contextlib.closing(opened(disk, config)) as manager:
        scheduler_of(manager).advance(3_600_000)
        assert values(manager, "t") == ["first", *TEXTS]
        assert not manager.health().faults
        batches = list(manager.log("t").batches())[1:]
        assert {each.header.attributes for each in batches} == {0}
        assert {each.timestamp_ms for each in manager.log("t").records(1)} == {start_ms}
    assert not journal_files(disk)


@pytest.mark.parametrize("settings", [{"journal_linger_ms": 0}, {"journal_enable": False}])
def test_linger_that_was_switched_off_is_one_of_later_records(
    settings: dict[str, bool | int],
) -> None:
    """The journal that is there is applied."""
    rig = Rig()
    rig.commit("a", "b")
    check_applied(rig.disk.crash(), "a", "b", config=CONFIG.replace(**settings))


# ---------------------------------------------------------------------------- a close in order


def test_directory_that_was_closed_since_with_the_records_has_no_journal() -> None:
    """Another program has recovered the log, which had all."""
    rig = Rig(2)
    rig.commit("a")
    rig.linger()
    disk = rig.disk.killed()
    disk.create_new(A / ".kafka_cleanshutdown").close()
    with contextlib.closing(opened(disk)) as manager:
        assert [values(manager, "t", each) for each in range(2)] == [["first", "a"]] * 2
        assert not manager.health().faults
    assert not journal_files(disk)


def test_directory_that_was_closed_since_without_the_records_is_refused() -> None:
    """Another program has continued, and may have deleted the records on purpose."""
    rig = Rig()
    rig.commit("a")
    disk = rig.disk.killed()
    disk.create_new(A / ".kafka_cleanshutdown").close()
    check_refused(disk, ["first"], "offsets 1 to 1", "another program has closed the directory")


def test_directory_that_was_closed_since_with_other_records_is_refused() -> None:
    """At the same offset."""
    rig = Rig()
    rig.commit("a")
    disk = rig.disk.crash()
    write_segment(disk, records_of_another_program("other"))
    disk.create_new(A / ".kafka_cleanshutdown").close()
    check_refused(disk, ["first", "other"], "another record at offset 1")


def test_topics_that_are_gone_since_a_close_in_order_are_not_compared() -> None:
    """Deleted, or created again."""
    rig = Rig(2)
    rig.commit("a")
    disk = rig.disk.crash()
    for name in disk.list(A / "t-1"):
        disk.unlink(A / "t-1" / name)
    disk.remove_directory(A / "t-1")
    disk.unlink(A / "t-0" / "partition.metadata")
    write_partition_metadata(disk, A / "t-0", UUID(int=77))
    disk.create_new(A / ".kafka_cleanshutdown").close()
    with contextlib.closing(opened(disk)) as manager:
        assert values(manager, "t") == ["first"]
        assert "commit-journal" not in [each.task for each in manager.health().faults]
    assert not journal_files(disk)


# --------------------------------------------------------------------------- errors of the disk


def refuse_to_open(disk: SimulatedDisk) -> None:
    """Let the next opening of the segment of partition 0 be denied."""
    disk.fail_at(1, errno.EACCES, only=frozenset({"open"}), suffix=f"t-0/{SEGMENT}")


@pytest.mark.parametrize(
    "config",
    [CONFIG, CONFIG.replace(journal_linger_ms=0), CONFIG.replace(journal_enable=False)],
)
def test_partition_that_cannot_be_opened_gets_its_records_later(config: ManagerConfig) -> None:
    """The new journal has copies of its entries; over two starts, with the linger or without it."""
    rig = Rig(2)
    rig.commit("a", "b")
    rig.commit("c")
    disk = rig.disk.crash()
    for number in (2, 3):
        refuse_to_open(disk)
        manager = opened(disk, config)
        assert [each.subject for each in manager.health().faults] == [TopicPartition("t", 0)]
        assert values(manager, "t", 1) == ["first", "a", "b", "c"]
        assert journal_files(disk) == [f"{JOURNAL}{number}"]
        content = read_journal(disk, [journal_path(A, number)])
        assert not content.damage
        copies = {
            name.directory: [
                (each.first_offset, each.end_offset) for each in records_entries(entries)
            ]
            for name, entries in content.entries.items()
        }
        assert copies == {"t-0": [(1, 3), (3, 4)]}
        disk = disk.crash()
    refuse_to_open(disk)
    with contextlib.closing(opened(disk, config)) as manager:
        assert values(manager, "t", 0) == ["first", "a", "b", "c"]
        append_texts(manager, "t", 0, "new")
    assert not journal_files(disk)
    with contextlib.closing(opened(disk, config)) as manager:
        assert values(manager, "t", 0) == ["first", "a", "b", "c", "new"]


def test_full_disk_in_the_recovery_lets_the_next_opening_repeat_it() -> None:
    """The partition is offline until then."""
    rig = Rig()
    rig.commit("x" * 9000)
    disk = rig.disk.crash()
    # The first write is one of the recovery of the log itself, which continues without it.
    disk.fail_at(2, errno.ENOSPC, only=frozenset({"pwrite", "pwritev"}), suffix=f"t-0/{SEGMENT}")
    with contextlib.closing(opened(disk)) as manager:
        assert [each.subject for each in manager.health().faults] == [TopicPartition("t", 0)]
        assert isinstance(manager.health().faults[0].error, DiskFullError)
        assert values(manager, "t") == ["first", "x" * 9000]
    assert not journal_files(disk)


def test_failed_sync_in_the_recovery_lets_the_next_start_repeat_it() -> None:
    """After a power cut."""
    rig = Rig()
    rig.commit("a")
    disk = rig.disk.crash()
    disk.fail_at(1, errno.EIO, only=frozenset({"sync"}), suffix=f"t-0/{SEGMENT}")
    with contextlib.suppress(KafkaLogError):
        opened(disk)
    disk.clear_faults()
    check_applied(disk.crash(), "a")


@pytest.mark.parametrize("damage", ["other bytes", "fewer records"])
def test_damaged_entry_is_refused_and_the_later_ones_are_left_alone(damage: str) -> None:
    """The file has changed since it was read; the entries before are appended."""
    rig = Rig()
    for text in ("a", "b", "c"):
        rig.commit(text)
    disk = rig.disk.crash()
    (entries,) = read_journal(disk, [journal_path(A, 1)]).entries.values()
    first, second, third = records_entries(entries)
    if damage == "fewer records":
        second = second._replace(end_offset=second.end_offset + 1)
    else:
        handle = disk.open(second.path, write=True)
        handle.pwrite(b"\x7f", second.file_position)
        handle.close()
    with manual_log(Path("/disks/b/t-0"), filesystem=disk) as log:
        log.append([Record(value=b"first")])
        reason = append_records(disk, log, [first, second, third])
        assert f"offsets 2 to {second.end_offset - 1} are in {JOURNAL}1 alone" in reason
        assert reason.endswith("the journal has no whole records of them any more")
        assert [record.value for record in log.records()] == [b"first", b"a"]
        assert log.durable_offset == 2
        # A repetition changes nothing.
        assert append_records(disk, log, [first, second, third]) == reason
        assert log.log_end_offset == 2


def test_refusal_appends_nothing_but_compares() -> None:
    """As for a directory that another program has closed in order."""
    rig = Rig()
    rig.commit("a")
    rig.commit("b")
    disk = rig.disk.crash()
    (entries,) = read_journal(disk, [journal_path(A, 1)]).entries.values()
    first, second = records_entries(entries)
    with manual_log(Path("/disks/b/t-0"), filesystem=disk) as log:
        log.append([Record(value=b"first")])
        assert append_records(disk, log, [first]) == ""
        assert append_records(disk, log, [first], refusal="closed") == ""
        assert append_records(disk, log, [first, second], refusal="closed").endswith(": closed")
        assert log.log_end_offset == 2


def test_full_disk_in_the_recovery_leaves_the_records_to_the_next_start() -> None:
    """The manager is closed without another opening; the other partition has its records."""
    rig = Rig(2)
    rig.commit("x" * 9000)
    disk = rig.disk.crash()
    disk.fail_at(2, errno.ENOSPC, only=frozenset({"pwrite", "pwritev"}), suffix=f"t-0/{SEGMENT}")
    opened(disk).close()
    assert journal_files(disk) == [f"{JOURNAL}2"]
    assert not has_marker(A, disk)
    check_applied(disk, "x" * 9000)


def test_close_of_a_log_on_a_full_disk_leaves_its_records_to_the_next_opening() -> None:
    """Of the same manager."""
    rig = Rig()
    rig.commit("x" * 9000)
    rig.disk.capacity_bytes = rig.disk.used_bytes
    with pytest.raises(DiskFullError):
        rig.manager.log("t").close()
    rig.disk.capacity_bytes = None
    assert values(rig.manager, "t") == ["first", "x" * 9000]
    rig.manager.close()
    assert not journal_files(rig.disk)


@pytest.mark.sample
@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("is_killed", [False, True])
def test_any_failing_call_of_a_start_leaves_the_records(
    error_number: int, *, is_killed: bool
) -> None:
    """To the next opening of the partition, to a directory that comes online, or the next start."""
    moment = 0
    for moment in calls(1_000, 5):
        rig = Rig(2)
        rig.commit("a", "b")
        rig.linger()
        rig.commit("x" * 9000)
        expected = [["first", "a", "b", "x" * 9000]] * 2
        disk = rig.disk.killed() if is_killed else rig.disk.crash()
        disk.fail_at(moment, error_number)
        manager = None
        with contextlib.suppress(KafkaLogError):
            manager = opened(disk)
        is_over = bool(disk.faults_waiting)
        disk.clear_faults()
        # A directory whose cluster.id could not be read needs a start.
        with contextlib.suppress(ConfigError):
            if manager is not None:
                if not manager.health().directories[0].is_online:
                    manager.bring_online(A)
                assert [values(manager, "t", each) for each in range(2)] == expected
                manager.close()
        with contextlib.closing(opened(disk.crash())) as again:
            assert [values(again, "t", each) for each in range(2)] == expected
        if is_over:
            break
    assert moment > 100
