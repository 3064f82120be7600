"""A manager against a model: topics, records and settings, through restarts and crashes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkalog import InvalidTopicError, LogManager, ManagerConfig, Record, TopicExistsError
from kafkalog.log.log import partition_of
from tests.support.managers import SMALL_LOG, has_marker, manual_manager, scheduler_of
from tests.support.simulated_disk import CrashChoice, SimulatedDisk

A, B = Path("/disks/a"), Path("/disks/b")
CONFIG = ManagerConfig(log=SMALL_LOG, num_recovery_threads_per_data_dir=1)
WITH_JOURNAL = CONFIG.replace(
    journal_enable=True,
    journal_bytes=1 << 18,
    journal_log_max_bytes=500,
    journal_checkpoint_interval_ms=7_000,
)
TOPICS = ("orders", "pay.ments", "pay_ments", "x")
KINDS = ("nothing", "all", "names", "contents", "zeros", "random")


@dataclass
class Partition:
    """
    Contents of a partition.

    Attributes:
        texts: by offset, from 0 on.
        start: log start offset.
        durable: how many of the texts the disk was promised to have.
        batches: first offset of each batch.
    """

    texts: list[str] = field(default_factory=list)
    start: int = 0
    durable: int = 0
    batches: list[int] = field(default_factory=list)


@dataclass
class Topic:
    """A topic's partitions and settings."""

    partitions: list[Partition]
    overrides: dict[str, str] = field(default_factory=dict)


class ManagerMachine(RuleBasedStateMachine):
    """Does the same things to a manager and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.topics: dict[str, Topic] = {}
        self.serial = 0
        self.config = CONFIG
        self.manager = self.opened()

    def opened(self) -> LogManager:
        """Return a manager of the disk as it is."""
        return manual_manager(A, B, config=self.config, filesystem=self.disk)

    @rule(has_journal=st.booleans())
    def reopen(self, has_journal: bool) -> None:
        """Close in order, and open again with a commit journal or without."""
        self.config = WITH_JOURNAL if has_journal else CONFIG
        self.restart()

    @rule()
    def flush(self) -> None:
        """Commit all logs together."""
        self.manager.flush()
        for topic in self.topics.values():
            for partition in topic.partitions:
                partition.durable = len(partition.texts)

    @precondition(lambda self: self.topics)
    @rule(number=st.integers(0, 99), part=st.floats(0, 1))
    def truncate(self, number: int, part: float) -> None:
        """Truncate a log; the records do not come back."""
        topic, index, partition = self.pick(number)
        # Whole batches leave: at an offset within one, those before it would be missing.
        offsets = [each for each in partition.batches if each >= partition.start]
        if not offsets:
            return
        offset = offsets[int((len(offsets) - 1) * part)]
        assert offset == self.manager.log(topic, index).truncate_to(offset)
        del partition.texts[offset:]
        partition.batches = [each for each in partition.batches if each < offset]
        partition.durable = min(partition.durable, offset)

    def pick(self, number: int) -> tuple[str, int, Partition]:
        """Return one of the partitions."""
        every = [
            (name, index, partition)
            for name, topic in sorted(self.topics.items())
            for index, partition in enumerate(topic.partitions)
        ]
        return every[number % len(every)]

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(1, 3), size=st.none() | st.just("700"))
    def create(self, topic: str, count: int, size: str | None) -> None:
        """Create a topic; refused where it exists, or collides."""
        overrides = {} if size is None else {"segment.bytes": size}
        other = topic.replace("_", ".") if "_" in topic else topic.replace(".", "_")
        try:
            self.manager.create_topic(topic, count, overrides)
        except TopicExistsError:
            assert topic in self.topics
        except InvalidTopicError:
            assert other != topic
            assert other in self.topics
        else:
            assert topic not in self.topics
            assert other == topic or other not in self.topics
            self.topics[topic] = Topic([Partition() for _ in range(count)], overrides)

    @precondition(lambda self: self.topics)
    @rule(number=st.integers(0, 99))
    def delete(self, number: int) -> None:
        """Delete a topic."""
        topic = self.pick(number)[0]
        self.manager.delete_topic(topic)
        del self.topics[topic]

    @precondition(lambda self: self.topics)
    @rule(number=st.integers(0, 99), count=st.integers(1, 6), durable=st.booleans())
    def append(self, number: int, count: int, durable: bool) -> None:
        """Append records."""
        topic, index, partition = self.pick(number)
        texts = [f"{self.serial + each}:{'x' * 30}" for each in range(count)]
        self.serial += count
        log = self.manager.log(topic, index)
        records = [Record(value=text.encode()) for text in texts]
        info = log.append(records, wait="durable" if durable else "written")
        assert len(partition.texts) == info.first_offset
        partition.batches.append(info.first_offset)
        partition.texts += texts
        if durable:
            partition.durable = len(partition.texts)

    @precondition(lambda self: self.topics)
    @rule(number=st.integers(0, 99), part=st.floats(0, 1))
    def delete_records(self, number: int, part: float) -> None:
        """Move a log start up; it does not come back."""
        topic, index, partition = self.pick(number)
        offset = int(len(partition.texts) * part)
        self.manager.log(topic, index).delete_records(offset)
        partition.start = max(partition.start, offset)

    @precondition(lambda self: self.topics)
    @rule(number=st.integers(0, 99), size=st.none() | st.sampled_from(["650", "800"]))
    def reconfigure(self, number: int, size: str | None) -> None:
        """Change a setting of a topic."""
        topic = self.pick(number)[0]
        self.manager.reconfigure(topic, {"segment.bytes": size})
        said = self.topics[topic].overrides
        said.pop("segment.bytes", None)
        if size is not None:
            said["segment.bytes"] = size

    @precondition(lambda self: self.topics)
    @rule(number=st.integers(0, 99))
    def rest(self, number: int) -> None:
        """Let a log rest; what it has is on the disk then."""
        topic, index, partition = self.pick(number)
        assert partition_of(self.manager.log(topic, index)).idle_files.try_release()
        partition.durable = len(partition.texts)

    @rule(seconds=st.integers(0, 40))
    def work(self, seconds: int) -> None:
        """Let time pass."""
        scheduler_of(self.manager).advance(seconds * 1000)
        assert self.manager.health().is_healthy

    @rule()
    def restart(self) -> None:
        """Close in order, and open again; nothing is recovered."""
        self.manager.close()
        assert has_marker(A, self.disk)
        for topic in self.topics.values():
            for partition in topic.partitions:
                partition.durable = len(partition.texts)
        self.manager = self.opened()
        for name, index in self.manager.partitions():
            assert self.manager.log(name, index).recovery_report.clean

    @rule(kind=st.sampled_from(KINDS), seed=st.integers(0, 999))
    def crash(self, kind: str, seed: int) -> None:
        """Let the power go; what was promised is there, and of the rest a beginning."""
        self.disk = self.disk.crash(CrashChoice(kind, 0, seed))
        self.manager = self.opened()
        health = self.manager.health()
        assert health.is_healthy or health.damage
        for name, topic in self.topics.items():
            for index, partition in enumerate(topic.partitions):
                log = self.manager.log(name, index)
                lost = [each.first_offset for each in log.corrupt_ranges()]
                if lost:
                    # The name of a segment outlived records that no sync had covered.
                    assert min(lost) >= partition.durable
                    log.truncate_to(min(lost))
                end = log.log_end_offset
                assert max(partition.durable, partition.start) <= end
                assert end <= max(len(partition.texts), partition.start)
                # Records below the start are not read again.
                del partition.texts[end:]
                partition.batches = [each for each in partition.batches if each < end]
                partition.durable = end
        assert self.manager.health().is_healthy

    @invariant()
    def agrees(self) -> None:
        """Topics, settings and records are those of the model."""
        expected = {
            name: tuple(range(len(topic.partitions))) for name, topic in self.topics.items()
        }
        assert expected == self.manager.topics()
        for name, topic in self.topics.items():
            assert topic.overrides == self.manager.topic_configs.overrides_of(name)
            for index, partition in enumerate(topic.partitions):
                log = self.manager.log(name, index)
                found = [
                    (record.offset, (record.value or b"").decode()) for record in log.records()
                ]
                assert list(enumerate(partition.texts))[log.log_start_offset :] == found
                assert partition.start == log.log_start_offset

    def teardown(self) -> None:
        """Close what is open."""
        self.manager.close()


TestManagerMachine = ManagerMachine.TestCase
TestManagerMachine.settings = settings(max_examples=40, stateful_step_count=25)
