"""Power cuts while a manager cleans in the background: no key loses its latest value."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafkalog import CleanerConfig, LogManager, ManagerConfig, Record
from kafkalog.files.names import CLEANER_OFFSET_CHECKPOINT
from tests.support.crash_rig import MANY_STATES, with_zeros_ahead
from tests.support.managers import SMALL_LOG, checkpointed, manual_manager, scheduler_of
from tests.support.shares import calls
from tests.support.simulated_disk import PowerCut, SimulatedDisk

DATA = Path("/data")
CONFIG = ManagerConfig(
    log=SMALL_LOG,
    log_initial_task_delay_ms=1_000,
    num_recovery_threads_per_data_dir=1,
    cleaner=CleanerConfig(backoff_ms=1_000, dedupe_buffer_size=2 << 20),
)
ZEROS_AHEAD = CONFIG.replace(log=with_zeros_ahead(SMALL_LOG))
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
KEYS = 4
TURNS = 4


@dataclass
class Table:
    """
    Expected content of a table.

    Attributes:
        latest: last durable value of each key.
        pending: a key and its value, which were not acknowledged.
    """

    latest: dict[bytes, bytes] = field(default_factory=dict)
    pending: tuple[bytes, bytes] | None = None

    def allows(self, found: dict[bytes, bytes]) -> bool:
        """Return whether a log may have this content."""
        return found == self.latest or (
            self.pending is not None and found == self.latest | dict([self.pending])
        )


def live(manager: LogManager, table: Table) -> None:
    """Append durable values, and let the cleaner run between them."""
    manager.create_topic("table", 1, COMPACTED)
    for turn in range(TURNS):
        for number in range(KEYS + turn):
            key, value = b"key %d" % (number % KEYS), b"%d.%d" % (turn, number) * 40
            table.pending = key, value
            manager.log("table").append([Record(key=key, value=value)], wait="durable")
            table.latest[key] = value
        table.pending = None
        scheduler_of(manager).advance(2_000)
    manager.close()


def content(manager: LogManager) -> list[tuple[bytes, bytes]]:
    """Return keys and values of the table."""
    return [(each.key or b"", each.value or b"") for each in manager.log("table").records()]


def verify(disk: SimulatedDisk, table: Table, config: ManagerConfig) -> None:
    """Open a crash state; its content is the same before and after another cleaning."""
    manager = manual_manager(DATA, config=config, filesystem=disk)
    if manager.topics():
        assert table.allows(dict(content(manager)))
        scheduler_of(manager).advance(3_000)
        assert manager.health().is_healthy
        assert table.allows(dict(content(manager)))
        manager.compact("table", include_active=True)
        found = content(manager)
        assert table.allows(dict(found))
        assert len(dict(found)) == len(found)
        end = manager.log("table").log_end_offset
        assert checkpointed(DATA, CLEANER_OFFSET_CHECKPOINT, disk).get("table-0", 0) == end
    manager.close()
    manager = manual_manager(DATA, config=config, filesystem=disk)
    if manager.topics():
        assert manager.log("table").recovery_report.clean
        assert found == content(manager)
    manager.close()


def explore(states: int, step: int, config: ManagerConfig = CONFIG) -> tuple[int, int]:
    """Cut the power at every `step`-th changing call; return the numbers of calls and cleanings."""
    for moment in calls(20_000, step):
        disk, table = SimulatedDisk(), Table()
        disk.crash_at(moment)
        cleanings = 0
        is_finished = False
        with contextlib.suppress(PowerCut):
            manager = manual_manager(DATA, config=config, filesystem=disk)
            live(manager, table)
            cleanings = manager.health().cleaner.cleaning_count
            is_finished = True
        for choice, after in disk.crash_states(limit=states, seed=moment):
            try:
                verify(after, table, config)
            except BaseException as error:
                error.add_note(f"power cut at call {moment}, {choice}")
                raise
        if is_finished:
            return moment, cleanings
    raise AssertionError("the life never ended")


def test_background_cleaning_power_cut_keeps_latest_values() -> None:
    """A few states of a few moments; the slow run has more of both."""
    moments, cleanings = explore(states=2, step=31)
    assert moments > 200
    assert cleanings >= 3


def test_background_cleaning_with_zeros_power_cut_keeps_latest_values() -> None:
    """Some moments, with zeros written ahead of the records."""
    moments, cleanings = explore(states=2, step=61, config=ZEROS_AHEAD)
    assert moments > 200
    assert cleanings >= 3


@pytest.mark.slow
def test_background_cleaning_power_cut_at_many_calls_keeps_latest_values() -> None:
    """Every tenth moment, and more crash states of each; `KAFKALOG_CRASH_STEP=1` takes all."""
    moments, cleanings = explore(states=MANY_STATES, step=10)
    assert moments > 200
    assert cleanings >= 3
