"""Power cuts in every step of a manager: creating, writing, deleting, closing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafkalog import LogManager, ManagerConfig, Record
from tests.support.crash_rig import MANAGER_CALL_STEP, MANY_STATES, with_zeros_ahead
from tests.support.managers import (
    SMALL_LOG,
    append_texts,
    has_marker,
    manual_manager,
    scheduler_of,
    values,
)
from tests.support.shares import calls
from tests.support.simulated_disk import PowerCut, SimulatedDisk

A, B = Path("/disks/a"), Path("/disks/b")
CONFIG = ManagerConfig(log=SMALL_LOG, num_recovery_threads_per_data_dir=1)
ZEROS_AHEAD = CONFIG.replace(log=with_zeros_ahead(SMALL_LOG))


@dataclass
class Promised:
    """
    Guarantees of the calls that returned.

    Attributes:
        partitions: topic -> partitions, of topics that were created.
        gone: topics that were deleted.
        durable: texts that are on the disk, by topic (its partition 0).
        settings: of topics.
        starts: log starts.
        retention_bytes: the default, if it was changed.
        changing: topics that a call is changing: either state is right.
        sizes: topic -> number of partitions, of topics whose creation was begun.
    """

    partitions: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    durable: dict[str, list[str]] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    retention_bytes: int = SMALL_LOG.retention_bytes
    changing: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)

    @contextlib.contextmanager
    def change(self, topic: str) -> Iterator[None]:
        """Around a call that changes a topic."""
        self.changing.add(topic)
        yield
        self.changing.discard(topic)


Scenario = Callable[[LogManager, Promised], None]


def create(manager: LogManager, promised: Promised, topic: str, count: int) -> None:
    """Create a topic with a setting."""
    promised.sizes[topic] = count
    with promised.change(topic):
        manager.create_topic(topic, count, {"retention.bytes": "12345"})
    promised.partitions[topic] = count
    promised.settings[topic] = {"retention.bytes": "12345"}


def append(manager: LogManager, promised: Promised, topic: str, *texts: str) -> None:
    """Append to partition 0, and wait for the disk."""
    for text in texts:
        manager.log(topic).append([Record(value=text.encode())], wait="durable")
        promised.durable.setdefault(topic, []).append(text)


def living(manager: LogManager, promised: Promised) -> None:
    """Create, write, reconfigure and delete topics."""
    create(manager, promised, "one", 3)
    append(manager, promised, "one", "a", "b")
    create(manager, promised, "two", 3)
    append(manager, promised, "two", "c")
    with promised.change("one"):
        manager.reconfigure("one", {"retention.bytes": None, "segment.bytes": "700"})
    promised.settings["one"] = {"segment.bytes": "700"}
    scheduler_of(manager).advance(40_000)
    with promised.change("two"):
        manager.delete_topic("two")
    promised.gone.add("two")
    del promised.partitions["two"], promised.durable["two"], promised.settings["two"]
    scheduler_of(manager).advance(2_000)


def closing(manager: LogManager, promised: Promised) -> None:
    """Written, retained, and closed in order."""
    manager.reconfigure_defaults({"log.retention.bytes": "9999"})
    promised.retention_bytes = 9999
    create(manager, promised, "one", 2)
    append(manager, promised, "one", *(f"{number:400d}" for number in range(3)))
    promised.durable["one"] = promised.durable["one"][2:]
    manager.log("one").delete_records(2)
    promised.starts["one"] = 2
    append(manager, promised, "one", "last")
    manager.close()


def coming_again(manager: LogManager, promised: Promised) -> None:
    """Deleted and created again under the same name, with other content."""
    create(manager, promised, "one", 2)
    append(manager, promised, "one", "old", "old", "old")
    scheduler_of(manager).advance(40_000)
    with promised.change("one"):
        manager.delete_topic("one")
        promised.durable.clear()
        promised.partitions.clear()
        promised.settings.clear()
        create(manager, promised, "one", 2)
    append(manager, promised, "one", "new")
    manager.close()


def verify(disk: SimulatedDisk, promised: Promised, config: ManagerConfig = CONFIG) -> None:
    """Open a crash state; the guarantees hold, and the manager works."""
    manager = manual_manager(A, B, config=config, filesystem=disk)
    assert manager.health().is_healthy
    assert manager.config.log.retention_bytes in (promised.retention_bytes, 9999)
    topics = manager.topics()
    for topic, numbers in topics.items():
        # All partitions or none, wherever the creation was cut.
        assert tuple(range(promised.sizes[topic])) == numbers
    for topic, count in promised.partitions.items():
        if topic not in promised.changing:
            assert tuple(range(count)) == topics[topic]
            assert promised.settings[topic] == manager.topic_configs.overrides_of(topic)
    assert not promised.gone & set(topics) - promised.changing
    for topic, texts in promised.durable.items():
        if topic in topics and topic not in promised.changing:
            found = values(manager, topic)
            first = found.index(texts[0])
            assert texts == found[first : first + len(texts)]
            assert promised.starts.get(topic, 0) <= manager.log(topic).log_start_offset
    for topic in topics:
        before = values(manager, topic)
        append_texts(manager, topic, 0, "after")
        assert [*before, "after"] == values(manager, topic)
    if "fresh" not in topics:
        manager.create_topic("fresh", 2)
    manager.close()
    assert has_marker(A, disk)
    assert has_marker(B, disk)
    manager = manual_manager(A, B, config=config, filesystem=disk)
    for topic in manager.topics():
        assert manager.log(topic).recovery_report.clean
    manager.close()


def explore(scenario: Scenario, states: int, step: int, config: ManagerConfig = CONFIG) -> int:
    """Cut the power at every `step`-th changing call; return the number of calls."""
    for moment in calls(2_000, step):
        disk = SimulatedDisk()
        promised = Promised()
        disk.crash_at(moment)
        finished = False
        with contextlib.suppress(PowerCut):
            manager = manual_manager(A, B, config=config, filesystem=disk)
            scenario(manager, promised)
            finished = True
        for choice, after in disk.crash_states(limit=states, seed=moment):
            try:
                verify(after, promised, config)
            except BaseException as error:
                error.add_note(f"power cut at call {moment}, {choice}")
                raise
        if finished:
            return moment
    raise AssertionError("the life never ended")


@pytest.mark.sample
@pytest.mark.parametrize("scenario", [living, closing, coming_again])
def test_manager_power_cut_keeps_the_guarantees(scenario: Scenario) -> None:
    """A few states of a few moments; the slow run has more of both."""
    assert explore(scenario, 2, step=5) > 50


@pytest.mark.parametrize("scenario", [living, closing, coming_again])
def test_manager_with_zeros_power_cut_keeps_the_guarantees(scenario: Scenario) -> None:
    """Some moments, with zeros written ahead of the records."""
    assert explore(scenario, 2, step=19, config=ZEROS_AHEAD) > 50


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [living, closing, coming_again])
def test_manager_power_cut_at_many_calls_keeps_the_guarantees(scenario: Scenario) -> None:
    """Every sixth moment, or every moment, and more crash states of each."""
    assert explore(scenario, MANY_STATES, step=MANAGER_CALL_STEP) > 50
