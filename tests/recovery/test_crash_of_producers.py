"""Power cuts while producers write: state, stable offset and epochs follow from the batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import KafkaLogError, Log, LogConfig, open_log
from kafkalog.log.log import partition_of
from tests.support.crash_rig import small_config, with_zeros_ahead
from tests.support.logs import numbered
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.producing import Client, committed_offsets, outcome_of
from tests.support.simulated_disk import CrashChoice, PowerCut, SimulatedDisk

DIRECTORY = Path("/alone/orders-0")
CONFIG: LogConfig = small_config(segment_bytes=500)
ZEROS_AHEAD = with_zeros_ahead(CONFIG)


class Partition:
    """A log on a simulated disk, with two producers."""

    def __init__(self, disk: SimulatedDisk | None = None, config: LogConfig = CONFIG) -> None:
        if disk is None:
            disk = SimulatedDisk()
            disk.make_durable(DIRECTORY.parent)
        self.disk = disk
        self.config = config
        self.clients = [Client(7), Client(8)]
        self.scheduler = ManualScheduler(ManualClock())
        self.opened: Log | None = None

    def open(self, *, read_only: bool = False) -> Log:
        """Open the log."""
        self.opened = open_log(
            DIRECTORY,
            config=self.config,
            read_only=read_only,
            clock=self.scheduler.clock,
            scheduler=self.scheduler,
            filesystem=self.disk,
        )
        return self.opened

    def release(self) -> None:
        """Close the log, whatever its state."""
        self.disk.clear_faults()
        if self.opened is not None:
            with contextlib.suppress(PowerCut, KafkaLogError):
                self.opened.close()


def transact(partition: Partition) -> None:
    """Transactions over segments, aborted and committed, with flushes between."""
    log, (first, second) = partition.open(), partition.clients
    first.send(log, 2, transactional=True)
    log.append(numbered(0, 1))
    second.send(log, transactional=True)
    log.flush()
    first.end(log, "abort")
    for number in range(3):
        log.append(numbered(number, 2))
        first.send(log, transactional=True)
        first.end(log, "abort" if number % 2 else "commit")
        partition.scheduler.advance(0)
    second.end(log, "abort")
    log.flush()
    first.send(log, transactional=True)


def cut_and_go_on(partition: Partition) -> None:
    """Truncations that remove markers and snapshots, and other batches at their offsets."""
    transact(partition)
    log, (first, _second) = partition.opened, partition.clients
    assert log is not None
    log.truncate_to(12)
    log.append(numbered(5, 3))
    first.sequence = outcome_of(log).sequences[7][1] + 1
    first.send(log, 3, transactional=True)
    log.flush()
    log.truncate_to(4)
    log.append(numbered(9, 2))
    log.flush()


def close_and_go_on(partition: Partition) -> None:
    """Closed in order with a transaction open, opened, ended, retained, closed."""
    transact(partition)
    assert partition.opened is not None
    partition.opened.close()
    log, first = partition.open(), partition.clients[0]
    first.end(log, "commit")
    log.delete_records(6)
    first.send(log)
    log.close()


SCENARIOS = [transact, cut_and_go_on, close_and_go_on]


def crashes(
    scenario: object, *, limit: int, config: LogConfig = CONFIG, step: int = 1
) -> Iterator[SimulatedDisk]:
    """Yield what power cuts at every `step`-th changing call of a scenario leave."""
    assert callable(scenario)
    for number in range(1, 2000, step):
        partition = Partition(config=config)
        partition.disk.crash_at(number)
        finished = False
        with contextlib.suppress(PowerCut):
            scenario(partition)
            finished = True
        for choice, disk in partition.disk.crash_states(limit, seed=number):
            try:
                yield disk
            except (AssertionError, KafkaLogError, ValueError) as error:
                error.add_note(f"crash at call {number}, {choice}")
                raise
        partition.release()
        if finished:
            return
    raise AssertionError("the scenario does not end")


def verify(disk: SimulatedDisk, config: LogConfig = CONFIG) -> None:
    """Reopen a crash state: the state of producers follows from the batches."""
    partition = Partition(disk, config)
    log = partition.open()
    outcome = outcome_of(log)
    assert outcome.first_unstable_offset == partition_of(log).view.first_unstable_offset
    assert outcome.committed == committed_offsets(log)
    first_offsets = {each.producer_id: each.first_offset for each in log.list_transactions()}
    assert outcome.open == first_offsets
    epochs = [batch.header.partition_leader_epoch for batch in log.batches()]
    assert log.recovery_report.clean or not epochs or log.leader_epoch > max(epochs)
    for producer_id in first_offsets:
        log.abort_transaction(producer_id)
    outcome = outcome_of(log)
    for producer_id, (epoch, sequence) in outcome.sequences.items():
        client = Client(producer_id, epoch, sequence + 1)
        client.send(log, transactional=True)
        client.end(log, "abort")
    assert outcome_of(log).committed == committed_offsets(log)
    assert log.log_end_offset == log.last_stable_offset
    log.close()
    with partition.open(read_only=True) as reader:
        assert outcome.committed == committed_offsets(reader)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_producers_power_cut_at_any_call_follow_from_the_batches(scenario: object) -> None:
    """Every moment; of the unsynced bytes nothing survives, all, and a part."""
    count = 0
    for disk in crashes(scenario, limit=3):
        verify(disk)
        count += 1
    assert count > 60


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_producers_with_zeros_power_cut_follow_from_the_batches(scenario: object) -> None:
    """Some moments, with zeros written ahead of the records."""
    count = 0
    for disk in crashes(scenario, limit=2, config=ZEROS_AHEAD, step=9):
        verify(disk, ZEROS_AHEAD)
        count += 1
    assert count > 6


def test_truncation_power_cut_leaves_no_abort_that_hides_later_commits() -> None:
    """The marker is gone, its entry may stay: a later batch with its offset is not a marker."""
    ends: list[int] = []
    for call in range(1, 40):
        partition = Partition()
        log, client = partition.open(), partition.clients[0]
        client.send(log, 2, transactional=True)
        client.end(log, "abort")
        log.flush()
        partition.disk.crash_at(call)
        with contextlib.suppress(PowerCut):
            log.truncate_to(2)
        partition.release()
        after = Partition(partition.disk.crash(CrashChoice("all")))
        log = after.open()
        ends.append(log.log_end_offset)
        client.send(log, 2, transactional=True)
        client.end(log, "commit")
        expected = [0, 1, 2, 3] if ends[-1] == 2 else [3, 4]
        assert expected == committed_offsets(log), call
        after.release()
    assert {2, 3} == set(ends)
