"""Updates of producers, transactions and leader epochs after changes of a log's segments.

They come last, after the change of the segments is complete: an error there marks the log offline,
because later appends would be checked against obsolete state.

Thread-safety: under the log's lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafkalog.errors import LogStorageError, ReadOnlyLogError
from kafkalog.log.epochs import LogEpochs
from kafkalog.log.local_log import LocalLog
from kafkalog.log.producers import LogProducers
from kafkalog.log.write_gate import WriteGate
from kafkalog.state.producers import ProducerStates

__all__ = ["DependentState"]


class DependentState:
    """
    The state of a log that depends on its segments.

    Args:
        gate: marks the log offline.
        local: the segments.
        epochs: the leader epochs.
        producers: the producers; None for a log that is open read-only.

    Attributes:
        epochs: as given.

    Thread-safety: under the log's lock.
    """

    def __init__(
        self, gate: WriteGate, local: LocalLog, epochs: LogEpochs, producers: LogProducers | None
    ) -> None:
        self._gate = gate
        self._local = local
        self.epochs = epochs
        self._producers = producers

    @property
    def producers(self) -> LogProducers:
        """The producers; raises ReadOnlyLogError of a log that is open read-only."""
        if self._producers is None:
            directory = self._local.context.directory
            raise ReadOnlyLogError(f"{directory} is open read-only", path=directory)
        return self._producers

    @property
    def producer_states(self) -> ProducerStates | None:
        """The producers as the fast path of an append needs them; None if `producers` raises."""
        return None if self._producers is None else self._producers.states

    @contextmanager
    def moving_start(self) -> Iterator[None]:
        """Enclose a change that rolls the log, or moves its start up."""
        before = self._local.snapshot
        try:
            yield
        finally:
            after = self._local.snapshot
            if after is not before:
                self.producers.on_roll(before)
            if after.start_offset > before.start_offset:
                self.epochs.truncate_from_start(after.start_offset)
                self.producers.on_start_moved(before)

    @contextmanager
    def truncating(self) -> Iterator[None]:
        """Enclose a change that truncates the log, or empties it."""
        before = self._local.snapshot
        self.epochs.begin_truncation()
        self.producers.block_committed_reads()
        try:
            yield
        finally:
            after = self._local.snapshot
            if after is before:
                self.producers.withdraw()
            elif after.end_offset < before.end_offset:
                self.epochs.bump()
        self.epochs.end_truncation()
        try:
            if after.segments.segments[0].base_offset >= after.end_offset == after.start_offset:
                self.epochs.clear()
                self.producers.reset()
            else:
                self.epochs.truncate_from_end(after.end_offset)
                self.producers.on_truncation()
        except (OSError, LogStorageError) as error:
            self._gate.mark_offline(error)
            raise
