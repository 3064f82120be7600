"""Parts of one log, made one by one as `Partition` makes them, but without `Partition` and `Log`.

The disk is simulated, time is manual. Every opening recovers the log; there is no sync journal, no
lock and no session.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from kafkalog import LogConfig
from kafkalog._core.assign_offsets import assign_offsets
from kafkalog._engine.gate_state import GateState
from kafkalog.log.checkpoint_store import FileCheckpointStore
from kafkalog.log.dependent_state import DependentState
from kafkalog.log.epochs import load_epochs
from kafkalog.log.flusher import LogFlusher
from kafkalog.log.followed_start import FollowedStartOffset
from kafkalog.log.loader import load_log
from kafkalog.log.partition_paths import find_partition_paths
from kafkalog.log.producer_loading import load_producer_state
from kafkalog.log.producers import LogProducers
from kafkalog.log.segment_types import make_context
from kafkalog.log.tail import ReadOnlyTail
from kafkalog.log.truncation import (
    find_cut,
    prepare_segment,
    truncate_fully_and_start_at,
    truncate_to,
)
from kafkalog.log.view import LogView
from kafkalog.log.write_gate import WriteGate
from kafkalog.model import AppendOrigin
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.validation.follower import validate_as_follower
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.producer_batches import Produced, encoded
from tests.support.simulated_disk import SimulatedDisk

__all__ = ["DIRECTORY", "LogParts", "make_disk"]

DIRECTORY = Path("/logs/orders-0")


def make_disk() -> SimulatedDisk:
    """Return a disk with an empty partition directory."""
    disk = SimulatedDisk()
    disk.make_durable(DIRECTORY)
    return disk


class LogParts:
    """
    The parts of a log that state, reads and flushes need, around one `LocalLog`.

    Args:
        disk: has the partition directory.
        read_only: follow the files of another writer.
        config: settings; small segment indexes are the default.

    Attributes:
        clock, scheduler, disk, store: of the log.
        offline: errors that marked the log offline.
        local, gate, epochs, view, producers, state: the parts; `producers` is None if read-only.
    """

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        read_only: bool = False,
        config: LogConfig | None = None,
    ) -> None:
        self.disk = disk = make_disk() if disk is None else disk
        # The time of the batches: a producer that was silent for a day is not reloaded.
        self.clock = ManualClock(now_ms=Produced(-1).timestamp_ms)
        self.scheduler = ManualScheduler(self.clock)
        self.offline: list[BaseException] = []
        self.store = store = FileCheckpointStore(find_partition_paths(disk, DIRECTORY))
        config = LogConfig(segment_index_bytes=4096) if config is None else config
        context = make_context(disk, DIRECTORY, config, self.clock, read_only=read_only)
        recovery_point = store.read_recovery_point()
        loaded = load_log(
            context,
            clean=False,
            recovery_point=recovery_point,
            start_offset=store.read_start_offset(),
        )
        self.local = local = loaded.local
        self.epochs = load_epochs(store, loaded, keeps_end=True)
        self.gate = WriteGate(
            context,
            local.published,
            GateState(is_read_only=read_only),
            reopen=lambda: None,
            append_delayed=lambda: None,
            on_offline=self.offline.append,
            pause_cleaning=nullcontext,
        )
        tail = ReadOnlyTail(local, FollowedStartOffset(store)) if read_only else None
        self.view = LogView(self.gate, local, tail, self.epochs)
        self.producers: LogProducers | None = None
        if not read_only:
            manager = load_producer_state(
                loaded, recovery_point=recovery_point, expiration_ms=86_400_000
            )
            self.producers = LogProducers(local, manager, self.view.stable, lambda: None)
        self.state = DependentState(self.gate, local, self.epochs, self.producers)

    def flusher(self, durable_offset: int = 0) -> LogFlusher:
        """Return a new flusher, as after an opening with this durable offset."""
        return LogFlusher(
            self.gate, self.local, self.store, self.state, self.scheduler, durable_offset
        )

    def append(self, *batches: Produced, epoch: int = 0) -> None:
        """Append batches at the log end, as replication does."""
        before = self.local.snapshot
        for batch in batches or [Produced(-1)]:
            data = bytearray(encoded([batch]))
            assign_offsets(data, base_offset=before.end_offset, partition_leader_epoch=epoch)
            run = validate_as_follower(bytes(data), AppendRules.of(self.local.context.config))
            pending = self.state.producers.begin(run, AppendOrigin.REPLICATION)
            self.epochs.assign_run(run)
            self.state.producers.announce(pending)
            self.local.append(run.data, run.batches)
            self.state.producers.commit(pending, before)
            before = self.local.snapshot

    def roll(self) -> None:
        """Begin a segment at the log end."""
        with self.state.moving_start():
            self.local.roll()

    def cut(self, offset: int) -> None:
        """Truncate the segments at an offset within the log; the caller encloses it."""
        truncate_to(self.local, find_cut(self.local, offset))

    def restart(self, offset: int) -> None:
        """Replace all segments with an empty one at an offset; the caller encloses it."""
        prepare_segment(self.local, offset, [])
        truncate_fully_and_start_at(self.local, offset)
