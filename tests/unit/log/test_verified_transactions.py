"""Guards of transactions, passed to `append_batches`: Kafka's rules for them (PAR-7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog import AppendInfo, AppendOrigin, Log, LogConfig
from kafkalog.errors import (
    DiskFullError,
    InvalidTxnStateError,
    LogClosedError,
    OutOfOrderSequenceError,
    ReadOnlyLogError,
)
from tests.support.logs import manual_log
from tests.support.manual_time import START_MS, ManualClock, ManualScheduler
from tests.support.producer_batches import Produced, encoded
from tests.support.producing import Client, committed_offsets
from tests.support.simulated_disk import SimulatedDisk

VERIFYING: dict[str, Any] = {"verify_transactions": True}
P, Q = 7, 8


def send(
    log: Log,
    client: Client,
    *,
    guard: int = 0,
    transactional: bool = True,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> AppendInfo:
    """Append the next batch of a client, which keeps its sequence if the append fails."""
    before = client.sequence
    data = client.batch(transactional=transactional)
    try:
        return log.append_batches(data, origin=origin, guard=guard)
    except (InvalidTxnStateError, OutOfOrderSequenceError, DiskFullError):
        client.sequence = before
        raise


def verify(log: Log, client: Client) -> int:
    """Begin the verification of the client's next batch."""
    return log.begin_verification(client.producer_id, client.epoch, client.sequence)


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_transaction_begins_only_with_its_own_guard(directory: Path, origin: AppendOrigin) -> None:
    """PAR-7: no guard, another producer's, a guard that was never created; then its own."""
    with manual_log(directory, **VERIFYING) as log:
        client = Client(P)
        own, other = verify(log, client), log.begin_verification(Q, 0, 0)
        assert 0 < own != other > 0
        for wrong in (0, other, max(own, other) + 1000):
            with pytest.raises(InvalidTxnStateError) as caught:
                send(log, client, guard=wrong, origin=origin)
            assert P == caught.value.producer_id
        assert (0, []) == (log.log_end_offset, log.list_transactions())
        assert 0 == send(log, client, guard=own, origin=origin).first_offset
        assert 1 == send(log, client, origin=origin).first_offset
        assert 0 == verify(log, client)


def test_verification_returns_one_guard_until_it_is_used(directory: Path) -> None:
    """PAR-7: retries wait for one answer; the next transaction needs another guard."""
    with manual_log(directory, **VERIFYING) as log:
        client = Client(P)
        guard = verify(log, client)
        assert guard == verify(log, client)
        send(log, client, guard=guard)
        client.end(log, "commit")
        fresh = verify(log, client)
        assert fresh not in (0, guard)
        with pytest.raises(InvalidTxnStateError):
            send(log, client, guard=guard)
        send(log, client, guard=fresh)


@pytest.mark.parametrize("how", ["commit", "abort"])
@pytest.mark.parametrize("epoch", [0, 1], ids=["same epoch", "bumped epoch"])
def test_late_batch_after_its_marker_begins_no_transaction(
    directory: Path, how: str, epoch: int
) -> None:
    """PAR-7: the marker ends no transaction and invalidates the guard; readers are not blocked."""
    with manual_log(directory, **VERIFYING) as log:
        client = Client(P)
        guard = verify(log, client)
        log.append_batches(encoded([Produced(P, epoch, ends=how)]), origin=AppendOrigin.COORDINATOR)
        client.epoch = epoch
        for late in (guard, 0):
            with pytest.raises(InvalidTxnStateError):
                send(log, client, guard=late)
        assert [] == log.list_transactions()
        assert log.log_end_offset == log.last_stable_offset == 1


def test_late_batch_without_the_setting_opens_a_transaction(directory: Path) -> None:
    """PAR-7: the reason for the setting. A guard is not required, and has no effect."""
    with manual_log(directory) as log:
        client = Client(P)
        verify(log, client)
        client.end(log, "abort")
        send(log, client)
        assert [P] == [each.producer_id for each in log.list_transactions()]
        assert 1 == log.last_stable_offset < log.log_end_offset


def test_disabled_verification_first_batch_ends_the_pending_one(directory: Path) -> None:
    """PAR-7: Kafka's rule for a setting that was switched off during a request."""
    with manual_log(directory, **VERIFYING) as log:
        client = Client(P)
        guard = verify(log, client)
        log.reconfigure(log.config.replace(verify_transactions=False))
        send(log, client)
        client.end(log, "commit")
        log.reconfigure(log.config.replace(verify_transactions=True))
        with pytest.raises(InvalidTxnStateError):
            send(log, client, guard=guard)


def test_enabled_verification_refuses_an_append_without_guard(directory: Path) -> None:
    """PAR-7: the request began before the setting was switched on."""
    with manual_log(directory) as log:
        client = Client(P)
        log.reconfigure(log.config.replace(verify_transactions=True))
        with pytest.raises(InvalidTxnStateError):
            send(log, client)
        send(log, client, guard=verify(log, client))


def test_batch_outside_of_a_transaction_needs_no_guard(directory: Path) -> None:
    """PAR-7: and it does not end a pending verification."""
    with manual_log(directory, **VERIFYING) as log:
        client = Client(P)
        guard = log.begin_verification(P, 0, 1)
        send(log, client, transactional=False)
        send(log, client, guard=guard)
        assert 1 == log.list_transactions()[0].first_offset


def test_replicated_and_embedded_batches_need_no_guard(directory: Path) -> None:
    """PAR-7: the leader has verified the first; this process registers before it sends."""
    with manual_log(directory, **VERIFYING) as log:
        replicated = Produced(P, count=2, transactional=True)
        log.append_batches(encoded([replicated]), assign_offsets=False)
        log.append_batches(encoded([Produced(Q, transactional=True)]))
        assert [P, Q] == [each.producer_id for each in log.list_transactions()]


def test_second_pending_batch_is_refused_until_the_first_arrives(directory: Path) -> None:
    """PAR-7: both were verified together, and arrive in the wrong order."""
    with manual_log(directory, **VERIFYING) as log:
        first, second = Client(P, sequence=0), Client(P, sequence=1)
        guard = verify(log, second)
        assert guard == verify(log, first)
        with pytest.raises(OutOfOrderSequenceError):
            send(log, second, guard=guard)
        assert 0 == send(log, first, guard=guard).first_offset
        assert 1 == send(log, second, guard=guard).first_offset


def test_first_batch_of_transaction_version_2_needs_sequence_0(directory: Path) -> None:
    """PAR-7: if the producer is unknown; without version 2 any sequence may be the first."""
    with manual_log(directory, **VERIFYING) as log:
        for producer_id, bumps in ((P, True), (Q, False)):
            client = Client(producer_id, sequence=4)
            guard = log.begin_verification(producer_id, 0, 4, supports_epoch_bump=bumps)
            if bumps:
                with pytest.raises(OutOfOrderSequenceError):
                    send(log, client, guard=guard)
            else:
                send(log, client, guard=guard)


def test_duplicate_of_a_committed_batch_needs_no_guard(directory: Path) -> None:
    """PAR-7: Kafka checks for duplicates first; nothing is written."""
    with manual_log(directory, **VERIFYING) as log:
        client = Client(P)
        data = client.batch(transactional=True)
        guard = log.begin_verification(P, 0, 0)
        log.append_batches(data, origin=AppendOrigin.CLIENT, guard=guard)
        client.end(log, "commit")
        again = log.append_batches(data, origin=AppendOrigin.CLIENT)
        assert (True, 0) == (again.is_duplicate, again.first_offset)
        assert 2 == log.log_end_offset


def test_guard_is_valid_again_after_a_full_disk(directory: Path) -> None:
    """PAR-7: an append that was not written began no transaction."""
    disk = SimulatedDisk()
    place = Path("/alone/orders-0")
    disk.make_durable(place.parent)
    with manual_log(place, filesystem=disk, **VERIFYING) as log:
        client = Client(P)
        guard = verify(log, client)
        disk.fail_at(1, 28, only=frozenset({"pwrite", "pwritev"}), suffix=".log")
        with pytest.raises(DiskFullError):
            send(log, client, guard=guard)
        assert 0 == send(log, client, guard=guard).first_offset
        client.end(log, "commit")
        assert [0] == committed_offsets(log)


def test_append_with_guard_is_durable_and_notifies_watchers(directory: Path) -> None:
    """PAR-7: an append with a guard has the effects of one without."""
    seen = []
    with manual_log(directory, **VERIFYING) as log:
        log.watch(lambda: seen.append(log.log_end_offset))
        client = Client(P)
        data = client.batch(transactional=True)
        guard = log.begin_verification(P, 0, 0)
        log.append_batches(data, origin=AppendOrigin.CLIENT, guard=guard, wait="durable")
        assert (1, [1]) == (log.durable_offset, seen)


def test_verification_expires_with_silent_producers(directory: Path) -> None:
    """PAR-7: a request does not wait a day for a coordinator; the guard is invalid then."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    with manual_log(directory, clock=clock, scheduler=scheduler, **VERIFYING) as log:
        silent, client = Client(Q, timestamp_ms=START_MS), Client(P)
        send(log, silent, transactional=False)
        guard = verify(log, client)
        scheduler.advance(2 * 86_400_000)
        with pytest.raises(InvalidTxnStateError):
            send(log, client, guard=guard)


def test_verification_of_closed_or_read_only_log_is_refused(directory: Path) -> None:
    """PAR-7: like a write, which it begins."""
    with manual_log(directory) as log:
        pass
    with pytest.raises(LogClosedError):
        log.begin_verification(P, 0, 0)
    with manual_log(directory, read_only=True) as reader, pytest.raises(ReadOnlyLogError):
        reader.begin_verification(P, 0, 0)


def test_verify_transactions_is_off_by_default_and_has_a_key() -> None:
    """PAR-7: the key has the prefix of settings that Kafka does not have."""
    assert not LogConfig().verify_transactions
    config = LogConfig.from_properties({"kafkalog.verify.transactions": "true"})
    assert config.verify_transactions
