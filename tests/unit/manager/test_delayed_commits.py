"""Records that are committed before their logs have them (`kafkalog.journal.linger.ms`)."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from kafkalog import (
    DiskFullError,
    KafkaLogError,
    LogOfflineError,
    ManagerConfig,
    Record,
    SentMany,
    TopicPartition,
)
from kafkalog._core.murmur2 import partition_of as partition_of_key
from kafkalog.log.log import partition_of
from kafkalog.manager.delayed_commits import DELAYED_APPEND
from tests.support.disk_faults import SYNCING
from tests.support.managers import SMALL_LOG, append_texts, manual_manager, scheduler_of, values
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
# More than the last block of a segment file has space for.
LARGE = "x" * 9000


def key_of(partition: int, partition_count: int) -> bytes:
    """Return a key of a partition."""
    return next(
        key
        for number in count()
        if partition_of_key(key := b"key %d" % number, partition_count) == partition
    )


class Rig:
    """A manager with a topic `t`, and a durable producer that sends texts to its partitions."""

    def __init__(self, partition_count: int = 3, config: ManagerConfig = CONFIG) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_durable(A)
        self.manager = manual_manager(A, config=config, filesystem=self.disk)
        self.manager.create_topic("t", partition_count)
        self.producer = self.manager.producer(wait="durable")
        self.keys = [key_of(each, partition_count) for each in range(partition_count)]
        # The names of the files are on the disk, and the leader epochs.
        for partition in range(partition_count):
            append_texts(self.manager, "t", partition, "first")
        self.manager.flush()

    def send(self, *texts: str, partitions: tuple[int, ...] | None = None) -> SentMany:
        """Send the texts to each partition, by one call; they are not committed yet."""
        chosen = range(len(self.keys)) if partitions is None else partitions
        keys = [self.keys[each] for each in chosen for _ in texts]
        return self.producer.send_many("t", keys, [text.encode() for _ in chosen for text in texts])

    def commit(self, *texts: str, partitions: tuple[int, ...] | None = None) -> SentMany:
        """Send the texts, and commit them."""
        sent = self.send(*texts, partitions=partitions)
        self.producer.flush()
        return sent

    def syncs_of(self, call: Callable[[], object]) -> list[str]:
        """Return the names of the files that a call syncs."""
        self.disk.history = []
        call()
        history, self.disk.history = self.disk.history, None
        return [Path(path).name for name, path in history if name in SYNCING]

    def linger(self) -> None:
        """Let the time of the appends come."""
        scheduler_of(self.manager).advance(LINGER_MS)

    def ends(self) -> list[tuple[int, int]]:
        """Return log end and durable offset of each partition."""
        logs = [self.manager.log("t", each) for each in range(len(self.keys))]
        return [(log.log_end_offset, log.durable_offset) for log in logs]

    def health(self) -> list[str]:
        """Return the tasks with faults."""
        return [fault.task for fault in self.manager.health().faults]


def test_records_are_acknowledged_before_their_logs_have_them() -> None:
    """By one sync of the journal; then the logs get them, in one batch."""
    rig = Rig()
    sent: list[SentMany] = []
    assert rig.syncs_of(lambda: sent.append(rig.commit("a", "b"))) == [f"{JOURNAL}1"]
    assert [tuple(each) for each in sent[0].result(0)] == [
        (partition, 1, 2, False) for partition in range(3)
    ]
    assert rig.ends() == [(1, 1)] * 3
    assert rig.commit("c").result(0)[0].first_offset == 3
    assert not rig.syncs_of(rig.linger)
    assert rig.ends() == [(4, 4)] * 3
    assert values(rig.manager, "t", 1) == ["first", "a", "b", "c"]
    _first, batch = rig.manager.log("t", 1).batches()
    assert (len(list(batch.records())), batch.header.producer_id) == (3, -1)
    rig.manager.close()
    assert not [name for name in rig.disk.list(A) if name.startswith(JOURNAL)]


@pytest.mark.parametrize("config", [CONFIG.replace(journal_linger_ms=0), ManagerConfig()])
def test_without_the_setting_nothing_is_delayed(config: ManagerConfig) -> None:
    """A linger needs a journal, too."""
    rig = Rig(config=config)
    rig.commit("a")
    assert rig.ends() == [(2, 2)] * 3
    rig.manager.close()


def test_records_have_the_time_of_the_call() -> None:
    """And not that of the append."""
    rig = Rig(1)
    start_ms = scheduler_of(rig.manager).clock.now_ms()
    rig.commit("a")
    scheduler_of(rig.manager).advance(LINGER_MS // 2)
    rig.commit("b")
    scheduler_of(rig.manager).advance(LINGER_MS)
    found = [record.timestamp_ms for record in rig.manager.log("t").records(1)]
    assert found == [start_ms, start_ms + LINGER_MS // 2]
    rig.manager.close()


def writes_of(log_call: str) -> Callable[[Rig], object]:
    """Return a call that writes to partition 0, or needs its end."""
    calls: dict[str, Callable[[Rig], object]] = {
        "append": lambda rig: append_texts(rig.manager, "t", 0, "later"),
        "roll": lambda rig: rig.manager.log("t").roll(),
        "truncate": lambda rig: rig.manager.log("t").truncate_to(3),
        "flush": lambda rig: rig.manager.log("t").flush(),
        "flush of a manager": lambda rig: rig.manager.flush(),
        "high watermark": lambda rig: rig.manager.log("t").set_high_watermark(2),
        "send": lambda rig: (rig.producer.send("t", b"later", partition=0), rig.producer.flush()),
        "close": lambda rig: rig.manager.log("t").close(),
        "checkpoint": lambda rig: scheduler_of(rig.manager).advance(10_000),
    }
    return calls[log_call]


@pytest.mark.parametrize(
    ("call", "end"),
    [
        ("append", ["later"]),
        ("roll", []),
        ("truncate", []),
        ("flush", []),
        ("flush of a manager", []),
        ("high watermark", []),
        ("send", ["later"]),
        ("close", []),
        ("checkpoint", []),
    ],
)
def test_whatever_writes_to_a_log_appends_its_delayed_records_first(
    call: str, end: list[str]
) -> None:
    """Callers have their offsets."""
    rig = Rig(2)
    rig.commit("a", "b")
    writes_of(call)(rig)
    rig.manager.log("t").set_high_watermark(None)
    assert values(rig.manager, "t") == ["first", "a", "b", *end]
    assert rig.commit("c").result(0)[0].first_offset == 3 + len(end)
    rig.linger()
    assert values(rig.manager, "t") == ["first", "a", "b", *end, "c"]
    assert values(rig.manager, "t", 1) == ["first", "a", "b", "c"]
    rig.manager.close()


def test_records_that_were_appended_before_their_commit_are_committed_with_the_log() -> None:
    """The journal gets their bytes, as those of other appends."""
    rig = Rig(2)
    sent = rig.send("a")
    append_texts(rig.manager, "t", 0, "b")
    rig.producer.flush()
    assert sent.result(0)
    assert rig.ends() == [(3, 3), (1, 1)]
    rig.manager.close()


def test_truncated_records_are_not_committed_afterwards() -> None:
    """A recovery must not bring them back."""
    rig = Rig(1)
    rig.commit("a")
    rig.linger()
    sent = rig.send("b")
    rig.manager.log("t").truncate_to(2)
    append_texts(rig.manager, "t", 0, "c")
    rig.producer.flush()
    assert sent.done()
    rig.manager.flush()
    assert values(rig.manager, "t") == ["first", "a", "c"]
    rig.manager.close()


def test_order_of_a_producer_is_kept() -> None:
    """Records with headers, without keys, and to a named partition are sent at once."""
    rig = Rig(1)
    rig.commit("a")
    rig.producer.send_many("t", [b"k"], [b"b"], headers=[[("h", b"1")]])
    rig.send("c")
    rig.producer.send_many("t", None, [b"d"])
    rig.commit("e")
    rig.producer.send("t", b"f", partition=0)
    rig.send("g")
    rig.producer.flush()
    rig.linger()
    assert values(rig.manager, "t") == ["first", *"abcdefg"]
    rig.manager.close()


def test_producers_of_a_log_share_its_offsets() -> None:
    """One commit acknowledges what both have sent."""
    rig = Rig(1)
    other = rig.manager.producer(wait="durable")
    first, second = rig.send("a"), other.send_many("t", rig.keys, [b"b"])
    assert rig.syncs_of(other.flush) == [f"{JOURNAL}1"]
    assert second.result(0)[0].first_offset == 2
    assert not rig.syncs_of(rig.producer.flush)
    assert first.result(0)[0].first_offset == 1
    rig.linger()
    assert values(rig.manager, "t") == ["first", "a", "b"]
    rig.manager.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"compression.type": "lz4"},
        {"message.timestamp.type": "LogAppendTime"},
        {"max.message.bytes": "100"},
    ],
)
def test_settings_that_change_or_refuse_batches_delay_nothing(settings: dict[str, str]) -> None:
    """A refusal comes before the acknowledgement."""
    rig = Rig(1)
    rig.manager.create_topic("other", 1, settings)
    sent = rig.producer.send_many("other", [b"k"], [b"v" * 200])
    rig.producer.flush()
    if "max.message.bytes" in settings:
        assert isinstance(sent.exception(0), KafkaLogError)
    else:
        assert sent.result(0)
        assert rig.manager.log("other").log_end_offset == 1
    rig.manager.close()


def test_later_settings_refuse_no_record_that_was_acknowledged() -> None:
    """A smaller limit is that of later records."""
    rig = Rig(1)
    rig.commit("a" * 300)
    rig.manager.reconfigure("t", {"max.message.bytes": "150"})
    rig.linger()
    assert values(rig.manager, "t") == ["first", "a" * 300]
    sent = rig.commit("b" * 300)
    assert isinstance(sent.exception(0), KafkaLogError)
    rig.manager.close()


def test_full_disk_keeps_acknowledged_records_in_the_journal() -> None:
    """The logs get them when there is space; until then no more are taken."""
    rig = Rig(2)
    rig.commit(LARGE)
    rig.disk.capacity_bytes = rig.disk.used_bytes
    rig.linger()
    assert rig.health() == [DELAYED_APPEND] * 2
    assert rig.ends() == [(1, 1)] * 2
    with pytest.raises(DiskFullError):
        append_texts(rig.manager, "t", 0, "refused")
    refused = rig.manager.producer(wait="durable", on_full="raise")
    sent = refused.send_many("t", rig.keys, [b"c", b"c"])
    refused.flush()
    assert isinstance(sent.exception(0), DiskFullError)
    rig.disk.capacity_bytes = None
    scheduler_of(rig.manager).advance(2_000)
    assert DELAYED_APPEND not in rig.health()
    assert rig.commit("d").result(0)[0].first_offset == 2
    rig.linger()
    expected = ["first", LARGE, "d"]
    assert [values(rig.manager, "t", each) for each in range(2)] == [expected] * 2
    rig.manager.close()


def test_full_disk_lets_old_records_be_deleted() -> None:
    """Otherwise it would stay full."""
    rig = Rig(1)
    for number in range(100):
        rig.commit(f"{number} {'x' * 400}")
        rig.linger()
    rig.commit(LARGE)
    # Space for a checkpoint file, and not for the records.
    rig.disk.capacity_bytes = rig.disk.used_bytes + 4096
    rig.linger()
    assert rig.health() == [DELAYED_APPEND]
    rig.manager.log("t").delete_records(90)
    scheduler_of(rig.manager).advance(10_000)
    assert not rig.health()
    assert values(rig.manager, "t")[-1] == LARGE
    rig.manager.close()


def test_close_on_a_full_disk_leaves_the_journal() -> None:
    """It has the records; the close raises."""
    rig = Rig(1)
    rig.commit(LARGE)
    rig.disk.capacity_bytes = rig.disk.used_bytes
    with pytest.raises(DiskFullError):
        rig.manager.log("t").close()
    with pytest.raises(DiskFullError):
        rig.manager.close()
    assert [name for name in rig.disk.list(A) if name.startswith(JOURNAL)]


def test_full_journal_appends_at_once() -> None:
    """And syncs the logs; a checkpoint makes space again."""
    rig = Rig(2)
    names: list[str] = []
    for number in range(60):
        rig.send(f"text {number}")
        names += rig.syncs_of(rig.producer.flush)
    assert names.count("00000000000000000000.log") > 5
    assert rig.ends()[0][0] > 30
    scheduler_of(rig.manager).advance(0)
    assert rig.syncs_of(lambda: rig.commit("space again")) == [f"{JOURNAL}2"]
    rig.linger()
    expected = ["first", *(f"text {number}" for number in range(60)), "space again"]
    assert [values(rig.manager, "t", each) for each in range(2)] == [expected] * 2
    rig.manager.close()


def test_full_journal_on_a_full_disk_refuses() -> None:
    """Each record is in the log, or its caller has an error."""
    rig = Rig(1)
    rig.disk.capacity_bytes = rig.disk.used_bytes
    producer = rig.manager.producer(wait="durable", on_full="raise")
    acknowledged = ["first"]
    for number in range(70):
        sent = producer.send_many("t", rig.keys, [b"%d %s" % (number, b"x" * 1000)])
        producer.flush()
        if sent.exception(0) is None:
            acknowledged.append(f"{number} {'x' * 1000}")
        else:
            assert isinstance(sent.exception(0), DiskFullError)
    assert 10 < len(acknowledged) < 70
    rig.disk.capacity_bytes = None
    scheduler_of(rig.manager).advance(2_000)
    assert values(rig.manager, "t") == acknowledged
    rig.manager.close()


def test_failed_sync_of_the_journal_is_the_error_of_its_records() -> None:
    """The data directory goes offline."""
    rig = Rig(2)
    rig.commit("a")
    sent = rig.send("b")
    rig.disk.fail_at(1, errno.EIO, only=frozenset({"sync"}), suffix=f"{JOURNAL}1")
    rig.producer.flush()
    assert isinstance(sent.exception(0), KafkaLogError)
    assert not rig.manager.health().directories[0].is_online
    with pytest.raises(LogOfflineError):
        rig.manager.log("t").append([Record(value=b"refused")])
    rig.manager.close()


def test_log_that_is_offline_refuses_its_records_alone() -> None:
    """The records of the other log are acknowledged."""
    rig = Rig(2)
    sent = rig.send("a")
    partition_of(rig.manager.log("t", 0)).gate.mark_offline(OSError("gone"), notify=False)
    rig.producer.flush()
    assert sent.failed_rows == [0]
    assert isinstance(sent.exception(0), LogOfflineError)
    assert [each.partition for each in sent.delivered] == [1]
    rig.linger()
    assert values(rig.manager, "t", 1) == ["first", "a"]
    rig.manager.close()


def test_split_gives_each_group_its_ranges() -> None:
    """Also where a partition has records of several groups."""
    rig = Rig(2)
    keys = [rig.keys[each] for each in (0, 1, 0, 0, 1, 1)]
    sent = rig.producer.send_many("t", keys, [b"%d" % each for each in range(6)])
    parts = sent.split([3, 2, 1])
    rig.producer.flush()
    found = [[tuple(each)[:3] for each in part.result(0)] for part in parts]
    assert found == [[(0, 1, 2), (1, 1, 1)], [(0, 3, 1), (1, 2, 1)], [(1, 3, 1)]]
    rig.linger()
    assert values(rig.manager, "t") == ["first", "0", "2", "3"]
    assert values(rig.manager, "t", 1) == ["first", "1", "4", "5"]
    rig.manager.close()


def test_deleted_topic_takes_its_delayed_records_along() -> None:
    """A topic of the same name begins at offset 0."""
    rig = Rig(1)
    rig.commit("a")
    rig.manager.delete_topic("t")
    rig.manager.create_topic("t", 1)
    assert rig.commit("b").result(0)[0].first_offset == 0
    rig.linger()
    assert values(rig.manager, "t") == ["b"]
    rig.manager.close()


def test_files_of_a_log_with_delayed_records_are_not_released() -> None:
    """Also while offsets are reserved for more; after a linger without records they are."""
    rig = Rig(1)
    files = partition_of(rig.manager.log("t")).idle_files
    rig.commit("a")
    assert not files.try_release()
    rig.linger()
    assert not files.try_release()
    rig.linger()
    assert files.try_release()
    rig.commit("b")
    rig.linger()
    assert values(rig.manager, "t") == ["first", "a", "b"]
    rig.manager.close()


def test_durable_offset_never_exceeds_the_log_end() -> None:
    """Records that the log lacks are not durable for a follower yet."""
    rig = Rig(1)
    for number in range(5):
        rig.commit(str(number))
        end, durable = rig.ends()[0]
        assert durable == end
        if number % 2:
            rig.linger()
    name = TopicPartition("t", 0)
    assert rig.manager.flush()[name] == 6
    rig.manager.close()


@pytest.mark.parametrize("text", ["small", LARGE])
def test_roll_between_append_and_commit_loses_nothing_in_a_power_cut(text: str) -> None:
    """The new segment may be on the disk without the end of the one before."""
    rig = Rig(1)
    sent = rig.send(text, text, text)
    rig.linger()
    rig.manager.log("t").roll()
    rig.producer.flush()
    assert sent.result(0)
    for _choice, left in rig.disk.crash_states(100, seed=3):
        with contextlib.closing(manual_manager(A, config=CONFIG, filesystem=left)) as manager:
            assert values(manager, "t") == ["first", text, text, text]


@pytest.mark.parametrize("change", ["delete", "move", "truncate"])
def test_log_that_was_opened_again_cancels_its_records_in_the_journal(change: str) -> None:
    """A kill right after it: nothing comes back, and nothing is reported as missing."""
    rig = Rig(1)
    other = Path("/disks/b")
    rig.disk.make_durable(other)
    rig.manager.close()
    rig.manager = manual_manager(A, other, config=CONFIG, filesystem=rig.disk)
    rig.producer = rig.manager.producer(wait="durable")
    rig.commit("a", "b")
    rig.manager.log("t").close()
    if change == "delete":
        rig.manager.log("t")
        rig.manager.delete_topic("t")
    elif change == "move":
        rig.manager.log("t")
        rig.manager.move_partition("t", 0, other)
    else:
        rig.manager.log("t").truncate_to(1)
        rig.manager.log("t").flush()
    with contextlib.closing(
        manual_manager(A, other, config=CONFIG, filesystem=rig.disk.killed())
    ) as manager:
        assert not manager.health().faults
        if change != "delete":
            expected = ["first", "a", "b"] if change == "move" else ["first"]
            assert values(manager, "t") == expected
