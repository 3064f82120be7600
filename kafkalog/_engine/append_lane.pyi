"""Types of the fast path of an append."""

from collections.abc import Callable
from threading import RLock
from typing import Self, final

from kafkalog._core.memory_records import MemoryRecords
from kafkalog._engine.epoch_state import EpochState
from kafkalog._engine.gate_state import GateState
from kafkalog._engine.snapshot import PublishedSnapshot
from kafkalog.clock import Clock
from kafkalog.model import AppendInfo
from kafkalog.records.append_rules import AppendRules

@final
class AppendLane:
    @property
    def rules(self) -> AppendRules: ...
    @property
    def has_followers(self) -> bool: ...
    def __new__(
        cls,
        gate: GateState,
        lock: RLock,
        published: PublishedSnapshot,
        epochs: EpochState,
        clock: Clock,
        undo: Callable[[BaseException], object],
        ensure_writable: Callable[[], object],
    ) -> Self: ...
    def configure(self, rules: AppendRules, has_followers: bool) -> None: ...
    def admit(self, wait: str) -> int: ...
    def append(self, run: MemoryRecords) -> AppendInfo | None: ...
