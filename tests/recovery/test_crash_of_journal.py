"""Power cuts in every step of a manager with a commit journal, and in the recovery from it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from kafkalog import KafkaLogError, LogManager, ManagerConfig, Producer, Record
from kafkalog._core.murmur2 import partition_of
from tests.support.crash_rig import MANY_STATES
from tests.support.managers import SMALL_LOG, manual_manager, scheduler_of
from tests.support.shares import calls
from tests.support.simulated_disk import PowerCut, SimulatedDisk

A = Path("/disks/a")
BIG_SEGMENTS = SMALL_LOG.replace(segment_bytes=4000)
CONFIG = ManagerConfig(
    log=BIG_SEGMENTS,
    num_recovery_threads_per_data_dir=1,
    journal_enable=True,
    journal_bytes=1 << 18,
)
LINGER_MS = 100
DELAYING = CONFIG.replace(journal_linger_ms=LINGER_MS)
CALLS_MAX = 3_000

Partition = tuple[str, int]


@dataclass
class Life:
    """
    A manager, and what its calls have promised.

    Attributes:
        manager: the manager.
        texts: what each partition has, from offset 0 on.
        durable: how many of them must be there after a power cut.
        changing: partitions that a call is truncating: to the texts, or to these.
        gone: topics whose deletion was begun.
    """

    manager: LogManager
    texts: dict[Partition, list[str]] = field(default_factory=dict)
    durable: dict[Partition, int] = field(default_factory=dict)
    changing: dict[Partition, list[str]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    serial: int = 0
    producer: Producer | None = None

    def create(self, topic: str, count: int) -> None:
        """Create a topic."""
        self.manager.create_topic(topic, count)
        for partition in range(count):
            self.texts[topic, partition], self.durable[topic, partition] = [], 0
        self.gone.discard(topic)

    def append(self, topic: str, partition: int = 0, count: int = 1) -> None:
        """Append records."""
        for _ in range(count):
            self.serial += 1
            text = f"{topic} {partition} {self.serial} {'x' * 40}"
            self.texts[topic, partition].append(text)
            self.manager.log(topic, partition).append(
                [Record(value=text.encode(), key=text.encode())]
            )

    def send(self, topic: str, *partitions: int, count: int = 1) -> None:
        """Send records to partitions by one call of a durable producer."""
        if self.producer is None:
            self.producer = self.manager.producer(wait="durable", on_full="raise")
        partition_count = len(self.manager.topics()[topic])
        keys, values = [], []
        for partition in partitions:
            for _ in range(count):
                self.serial += 1
                text = f"{topic} {partition} {self.serial} {'x' * 40}"
                self.texts[topic, partition].append(text)
                keys.append(key_of(partition, partition_count))
                values.append(text.encode())
        sent = self.producer.send_many(topic, keys, values)
        self.producer.flush()
        sent.result(0)
        for partition in partitions:
            place = topic, partition
            self.durable[place] = len(self.texts[place])

    def linger(self) -> None:
        """Let the time of delayed appends come."""
        scheduler_of(self.manager).advance(LINGER_MS)

    def flush(self) -> None:
        """Commit all logs together."""
        ends = {place: len(texts) for place, texts in self.texts.items()}
        self.manager.flush()
        self.durable |= ends

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Truncate a log."""
        place = topic, partition
        before = self.texts[place]
        self.durable[place] = min(self.durable[place], offset)
        self.changing[place] = before
        self.texts[place] = before[:offset]
        self.manager.log(topic, partition).truncate_to(offset)
        del self.changing[place]

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.gone.add(topic)
        for place in [place for place in self.texts if place[0] == topic]:
            del self.texts[place], self.durable[place]
        self.manager.delete_topic(topic)

    def checkpoint(self) -> None:
        """Let the time of a checkpoint come."""
        scheduler_of(self.manager).advance(10_000)


Scenario = Callable[[Life], None]


def delaying(life: Life) -> None:
    """Records that are appended later, by time, by other appends, a checkpoint, a roll, a close."""
    life.create("a", 3)
    life.send("a", 0, 1, count=2)
    life.send("a", 1, 2)
    life.linger()
    life.send("a", 0, 2)
    life.append("a", 0)
    life.send("a", 0, 1)
    life.flush()
    life.send("a", 0, 1, 2)
    life.manager.log("a", 1).roll()
    life.send("a", 1)
    life.checkpoint()
    life.send("a", 0, 1, 2, count=3)
    life.linger()
    life.send("a", 0, 2)
    life.manager.close()


def delaying_and_truncating(life: Life) -> None:
    """Truncated below and above delayed records; other records at the same offsets."""
    life.create("a", 2)
    life.send("a", 0, 1)
    life.linger()
    life.send("a", 0)
    life.truncate("a", 0, 1)
    life.send("a", 0, 1)
    life.linger()
    life.append("a", 0)
    life.send("a", 0, 1)
    life.truncate("a", 0, 3)
    life.append("a", 0)
    life.send("a", 0, 1)
    life.flush()
    life.send("a", 0, 1)


def delaying_and_coming_again(life: Life) -> None:
    """A topic with delayed records is deleted and created again, and gets others."""
    life.create("a", 1)
    life.create("b", 1)
    life.send("a", 0, count=2)
    life.send("b", 0)
    life.delete("a")
    life.create("a", 1)
    life.send("a", 0)
    life.linger()
    life.send("a", 0)
    life.send("b", 0)
    life.delete("b")
    life.send("a", 0)


def delaying_and_reopening(life: Life) -> None:
    """A log with records in the journal is closed, opened again, truncated, and gets others."""
    life.create("a", 2)
    life.send("a", 0, 1)
    life.manager.log("a", 0).close()
    life.truncate("a", 0, 0)
    life.send("a", 0, 1, count=2)
    life.manager.log("a", 0).close()
    life.manager.log("a", 1).close()
    life.send("a", 0)
    life.truncate("a", 1, 0)
    life.send("a", 1)
    life.linger()
    life.append("a", 1)
    life.flush()


DELAYING_SCENARIOS = [
    delaying,
    delaying_and_truncating,
    delaying_and_coming_again,
    delaying_and_reopening,
]


def committing(life: Life) -> None:
    """Commits of several logs, one after another, a checkpoint between, closed in order."""
    life.create("a", 3)
    life.append("a", 0)
    life.flush()
    for round_number in range(3):
        life.append("a", round_number % 3, 2)
        life.append("a", 1)
        life.flush()
    life.checkpoint()
    life.append("a", 2)
    life.flush()
    life.append("a", 2)
    life.manager.close()


def truncating(life: Life) -> None:
    """Truncated below and above what commits have; other records at the same offsets."""
    life.create("a", 2)
    life.append("a", 0, 2)
    life.append("a", 1)
    life.flush()
    life.append("a", 0, 3)
    life.append("a", 1)
    life.flush()
    life.truncate("a", 0, 3)
    life.append("a", 0, 2)
    life.flush()
    life.append("a", 0)
    life.truncate("a", 0, 1)
    life.append("a", 0, 1)
    life.append("a", 1, 1)
    life.flush()


def coming_again(life: Life) -> None:
    """A topic is deleted and created again, with commits before and after."""
    life.create("a", 1)
    life.create("b", 1)
    life.append("a", 0, 2)
    life.flush()
    life.append("a", 0, 2)
    life.append("b", 0, 1)
    life.flush()
    life.delete("a")
    life.create("a", 1)
    life.append("a")
    life.flush()
    life.append("a")
    life.flush()


def rolling(life: Life) -> None:
    """Segments roll between append and commit, and old ones are deleted."""
    life.create("a", 2)
    life.append("a", 0)
    life.flush()
    for _ in range(3):
        life.append("a", 0, 2)
        life.append("a", 1)
        life.flush()
        life.append("a", 0)
        life.manager.log("a", 0).roll()
        life.append("a", 0, 1)
        life.flush()
    life.append("a", 1)
    life.flush()


def filling(life: Life) -> None:
    """More commits than a file of the journal has space for, checkpoints at some of them."""
    life.create("a", 2)
    life.append("a", 0)
    life.append("a", 1)
    life.flush()
    for number in range(45):
        life.append("a", number % 2)
        life.flush()
        if number % 9 == 5:
            scheduler_of(life.manager).advance(0)


def compacting(life: Life) -> None:
    """Sealed segments are replaced whose bytes commits have."""
    life.create("a", 1)
    life.manager.reconfigure("a", {"cleanup.policy": "compact"})
    life.append("a")
    life.flush()
    for _ in range(2):
        life.append("a", 0, 2)
        life.flush()
    life.manager.log("a").roll()
    life.append("a")
    life.manager.compact("a")
    life.append("a")
    life.flush()


SCENARIOS = [committing, truncating, coming_again, rolling, filling, compacting]


def key_of(partition: int, partition_count: int) -> bytes:
    """Return a key of a partition."""
    keys = (b"key %d" % number for number in count())
    return next(key for key in keys if partition_of(key, partition_count) == partition)


def seen(manager: LogManager, place: Partition) -> list[str]:
    """Return the texts of a partition; a power cut may leave a hole before what was not synced."""
    records = manager.log(*place).records(on_corrupt="skip")
    return [(record.value or b"").decode() for record in records]


def is_within(found: list[str], texts: list[str], durable: int) -> bool:
    """Return whether the promised texts are there, and then only others, in order."""
    if found[:durable] != texts[:durable]:
        return False
    rest = iter(texts[durable:])
    return all(text in rest for text in found[durable:])


def verify(life: Life, disk: SimulatedDisk, config: ManagerConfig = CONFIG) -> None:
    """Open a crash state; all promises hold, and the manager works, through one more crash."""
    manager = manual_manager(A, config=config, filesystem=disk)
    # Damage may be where a power cut took what was not synced.
    assert not manager.health().faults
    found: dict[Partition, list[str]] = {}
    for place, texts in life.texts.items():
        topic, partition = place
        if topic in life.gone or partition not in manager.topics().get(topic, ()):
            assert not life.durable[place]
            continue
        found[place] = seen(manager, place)
        durable = life.durable[place]
        assert is_within(found[place], texts, durable) or (
            place in life.changing and is_within(found[place], life.changing[place], durable)
        ), (place, durable, found[place], texts)
        # The second crash comes after other records at these offsets.
        if found[place]:
            manager.log(*place).truncate_to(manager.log(*place).log_end_offset - 1)
        manager.log(*place).append([Record(value=b"after", key=b"after")])
        found[place] = seen(manager, place)
        assert found[place][-1] == "after"
    manager.flush()
    for _choice, again in disk.crash_states(2, seed=7):
        with contextlib.closing(manual_manager(A, config=config, filesystem=again)) as reopened:
            assert not reopened.health().faults
            for place, texts in found.items():
                assert texts == seen(reopened, place)
        assert not [name for name in again.list(A) if name.startswith(".kafkalog_journal")]
    manager.close()
    assert not [name for name in disk.list(A) if name.startswith(".kafkalog_journal")]


def explore(scenario: Scenario, states: int, step: int, config: ManagerConfig = CONFIG) -> int:
    """Cut the power at the calls of a scenario, check states after it; return their number."""
    state_count = 0
    for moment in calls(CALLS_MAX, step):
        disk = SimulatedDisk()
        disk.make_durable(A)
        life = Life(manual_manager(A, config=config, filesystem=disk))
        disk.crash_at(moment)
        finished = False
        with contextlib.suppress(PowerCut):
            scenario(life)
            finished = True
        for choice, left in disk.crash_states(states, seed=moment):
            state_count += 1
            try:
                verify(life, left, config)
            except BaseException as error:
                error.add_note(f"call {moment}, {choice}")
                raise
        disk.clear_faults()
        if finished:
            return state_count
    raise AssertionError("the life never ended")


def explore_failures(
    scenario: Scenario, error_number: int, step: int, config: ManagerConfig = CONFIG
) -> int:
    """Let a call of a scenario fail, then cut the power or close; return the number of runs."""
    for moment in calls(CALLS_MAX, step):
        disk = SimulatedDisk()
        disk.make_durable(A)
        life = Life(manual_manager(A, config=config, filesystem=disk))
        disk.fail_at(moment, error_number)
        try:
            with contextlib.suppress(KafkaLogError):
                scenario(life)
            has_failed = not disk.faults_waiting
            disk.clear_faults()
            for _choice, left in disk.crash_states(2, seed=moment):
                verify(life, left, config)
            with contextlib.suppress(KafkaLogError):
                life.manager.close()
            verify(life, disk.killed(), config)
        except BaseException as error:
            error.add_note(f"call {moment} failed with {errno.errorcode[error_number]}")
            raise
        if not has_failed:
            return moment
    raise AssertionError("the life never ended")


@pytest.mark.sample
@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_failing_call_with_journal_keeps_what_was_flushed(
    scenario: Scenario, error_number: int
) -> None:
    """A few of the calls; the slow run has more of them."""
    assert explore_failures(scenario, error_number, 29) > 20


@pytest.mark.slow
@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_any_failing_call_with_journal_keeps_what_was_flushed(
    scenario: Scenario, error_number: int
) -> None:
    """Every fourth call, from a random first one; all calls with `KAFKALOG_CRASH_STEP=1`."""
    assert explore_failures(scenario, error_number, 4) > 50


@pytest.mark.sample
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_power_cut_with_journal_keeps_what_was_flushed(scenario: Scenario) -> None:
    """Some of the calls; the slow run has more of them."""
    assert explore(scenario, 3, 7) > 20


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_power_cut_with_journal_at_any_call_keeps_what_was_flushed(scenario: Scenario) -> None:
    """Every fourth call, from a random first one, and many states; all calls as above."""
    assert explore(scenario, MANY_STATES, 4) > 50


@pytest.mark.sample
@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("scenario", DELAYING_SCENARIOS)
def test_failing_call_keeps_acknowledged_records(scenario: Scenario, error_number: int) -> None:
    """Whose append is delayed. A few of the calls; the slow run has more of them."""
    assert explore_failures(scenario, error_number, 29, DELAYING) > 20


@pytest.mark.slow
@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("scenario", DELAYING_SCENARIOS)
def test_any_failing_call_keeps_acknowledged_records(scenario: Scenario, error_number: int) -> None:
    """Every fourth call, from a random first one; all calls with `KAFKALOG_CRASH_STEP=1`."""
    assert explore_failures(scenario, error_number, 4, DELAYING) > 50


@pytest.mark.sample
@pytest.mark.parametrize("scenario", DELAYING_SCENARIOS)
def test_power_cut_keeps_acknowledged_records(scenario: Scenario) -> None:
    """Some of the calls; the slow run has more of them."""
    assert explore(scenario, 3, 7, DELAYING) > 20


@pytest.mark.slow
@pytest.mark.parametrize("scenario", DELAYING_SCENARIOS)
def test_power_cut_at_any_call_keeps_acknowledged_records(scenario: Scenario) -> None:
    """Every fourth call, from a random first one, and many states; all calls as above."""
    assert explore(scenario, MANY_STATES, 4, DELAYING) > 50
