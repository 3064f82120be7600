"""Producers after a deletion that a crash interrupted: gaps below the log start."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog import Log, LogConfig, open_log
from kafkalog.model import AppendOrigin
from tests.support.producer_batches import Produced, encoded

CONFIG = LogConfig(message_timestamp_after_max_ms=2**62)
TIME_MS = 4 * 10**12

# Without the sync journal a log may have had producers before its first snapshot.
UNKNOWN = shutil.ignore_patterns("*.tmp", "*.snapshot", ".kafkalog_syncs")


def send(log: Log, batch: Produced) -> None:
    """Append a batch of a producer, or a marker."""
    origin = AppendOrigin.EMBEDDED if batch.ends is None else AppendOrigin.COORDINATOR
    log.append_batches(encoded([batch]), origin=origin)


def data(sequence: int, *, transactional: bool) -> Produced:
    """Return a batch of one record of producer 7."""
    return Produced(7, sequence=sequence, transactional=transactional, timestamp_ms=TIME_MS)


def drop_marker(directory: Path) -> None:
    """Cut the marker, the last batch of the middle segment: it was not on the disk yet."""
    segment = directory / "00000000000000000001.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole[: size_of_first_batch(whole)])


def damage_marker(directory: Path) -> None:
    """Change a byte of the marker: its sector was not on the disk yet."""
    segment = directory / "00000000000000000001.log"
    damaged = bytearray(segment.read_bytes())
    damaged[-1] ^= 1
    segment.write_bytes(damaged)


def damage_segment(directory: Path) -> None:
    """Make the middle segment a file of zeros."""
    segment = directory / "00000000000000000001.log"
    segment.write_bytes(bytes(segment.stat().st_size))


def delete_segment(directory: Path) -> None:
    """Remove the middle segment: renames of a deletion reach the disk in any order."""
    for path in directory.glob("00000000000000000001.*"):
        path.unlink()


def size_of_first_batch(data: bytes) -> int:
    """Return the size in bytes of the batch that data begins with."""
    return int.from_bytes(data[8:12], "big") + 12


LOSSES = [drop_marker, damage_marker, damage_segment, delete_segment]


def crashed_log(
    tmp_path: Path, lose: Callable[[Path], None], start_offset: int, last: Produced
) -> Path:
    """
    Return a copy of an open log with a loss in the middle of its three segments.

    Only its batches show its producers: every opening replays all of them.

    The segments are a transaction's first batch (offset 0), its second (1) with the marker (2) that
    aborts it, and the batch `last` (3).
    """
    directory, crashed = tmp_path / "orders-0", tmp_path / "crashed/orders-0"
    with open_log(directory, config=CONFIG) as log:
        send(log, data(0, transactional=True))
        log.roll()
        send(log, data(1, transactional=True))
        send(log, Produced(7, ends="abort", timestamp_ms=TIME_MS))
        log.roll()
        send(log, last)
        shutil.copytree(directory, crashed, ignore=UNKNOWN)
    (crashed / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {start_offset}\n")
    lose(crashed)
    return crashed


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("transactional", [False, True])
def test_replay_over_a_gap_below_the_log_start_removes_the_states_before_it(
    tmp_path: Path, lose: Callable[[Path], None], transactional: bool
) -> None:
    """A lost marker leaves no transaction open; a later transaction has its own first offset."""
    crashed = crashed_log(tmp_path, lose, 3, data(2, transactional=transactional))
    for _ in range(2):
        with open_log(crashed, config=CONFIG) as log:
            assert (log.log_start_offset, log.log_end_offset) == (3, 4)
            opened = {each.producer_id: each.first_offset for each in log.list_transactions()}
            assert opened == ({7: 3} if transactional else {})
            assert log.last_stable_offset == (3 if transactional else 4)
            assert [batch.header.base_offset for batch in log.batches()] == [3]
            log.truncate_to(4)
            assert opened == {e.producer_id: e.first_offset for e in log.list_transactions()}


def test_replay_over_a_gap_below_the_log_start_accepts_the_next_sequence(tmp_path: Path) -> None:
    """The last sequence may have been in the gap: the producer is unknown, any sequence goes."""
    other = Produced(8, sequence=0, timestamp_ms=TIME_MS)
    with open_log(crashed_log(tmp_path, delete_segment, 3, other), config=CONFIG) as log:
        assert sorted(each.producer_id for each in log.list_producers()) == [8]
        assert log.append_batches(encoded([data(2, transactional=False)])).first_offset == 4


@pytest.mark.parametrize("lose", LOSSES)
def test_replay_over_a_gap_above_the_log_start_keeps_the_transaction_open(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    """The transaction may have been aborted: readers of committed records wait."""
    crashed = crashed_log(tmp_path, lose, 0, data(2, transactional=False))
    with open_log(crashed, config=CONFIG) as log:
        assert [each.first_offset for each in log.list_transactions()] == [0]
        assert log.last_stable_offset == 0
