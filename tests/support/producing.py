"""A producer, its coordinator, and what tests ask of a log that has them."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog import AppendInfo, AppendOrigin, Log
from kafkalog.records.control import ControlType
from tests.support.manual_time import START_MS
from tests.support.producer_batches import Produced, encoded

__all__ = ["Client", "Outcome", "committed_offsets", "outcome_of"]


@dataclass
class Client:
    """A producer that sends to one log, and the coordinator of its transactions."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    timestamp_ms: int = START_MS

    def batch(self, count: int = 1, *, transactional: bool = False) -> bytes:
        """Return the next batch; sending it again is sending it twice."""
        made = Produced(
            self.producer_id,
            self.epoch,
            self.sequence,
            count,
            transactional,
            timestamp_ms=self.timestamp_ms,
        )
        self.sequence += count
        return encoded([made])

    def send(self, log: Log, count: int = 1, *, transactional: bool = False) -> AppendInfo:
        """Append the next batch."""
        data = self.batch(count, transactional=transactional)
        return log.append_batches(data, origin=AppendOrigin.CLIENT)

    def end(self, log: Log, how: str) -> AppendInfo:
        """Append the marker of the transaction: "commit" or "abort"."""
        marker = Produced(self.producer_id, self.epoch, ends=how, timestamp_ms=self.timestamp_ms)
        return log.append_batches(encoded([marker]), origin=AppendOrigin.COORDINATOR)


def committed_offsets(log: Log, start: int | None = None, end: int | None = None) -> list[int]:
    """Return the offsets that a reader of committed records sees."""
    return [record.offset for record in log.records(start, end, isolation="read_committed")]


@dataclass
class Outcome:
    """
    The facts in the batches of a log, collected by a slow walk from the first to the last.

    Attributes:
        open: producer id -> first offset of its open transaction.
        committed: offsets of records that a reader of committed ones sees.
        sequences: producer id -> epoch and last sequence.
    """

    open: dict[int, int]
    committed: list[int]
    sequences: dict[int, tuple[int, int]]

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest open transaction."""
        return min(self.open.values(), default=None)


def outcome_of(log: Log) -> Outcome:
    """Return the facts in the batches of a log."""
    opened: dict[int, int] = {}
    waiting: dict[int, list[int]] = {}
    visible: list[int] = []
    sequences: dict[int, tuple[int, int]] = {}
    for batch in log.batches():
        header = batch.header
        if header.is_control:
            offsets = waiting.pop(header.producer_id, [])
            opened.pop(header.producer_id, None)
            if batch.control_records()[0].type is ControlType.COMMIT:
                visible += offsets
            continue
        offsets = [record.offset for record in batch.records()]
        if header.producer_id >= 0:
            last = header.base_sequence + header.last_offset_delta
            sequences[header.producer_id] = (header.producer_epoch, last)
        if header.is_transactional:
            opened.setdefault(header.producer_id, header.base_offset)
            waiting.setdefault(header.producer_id, []).extend(offsets)
        else:
            visible += offsets
    stable = min(opened.values(), default=log.log_end_offset)
    start = log.log_start_offset
    committed = sorted(offset for offset in visible if start <= offset < stable)
    return Outcome(opened, committed, sequences)
