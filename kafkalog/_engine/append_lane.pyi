"""Types of the fast path of an append."""

from collections.abc import Callable
from threading import RLock
from typing import Any, Protocol, Self, TypeVar, final

from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.record_groups import RecordGroup
from kafkalog._engine.epoch_state import EpochState
from kafkalog._engine.gate_state import GateState
from kafkalog._engine.snapshot import PublishedSnapshot
from kafkalog.clock import Clock
from kafkalog.model import AppendInfo
from kafkalog.records.append_rules import AppendRules

_Entry = TypeVar("_Entry")

class _Producers(Protocol[_Entry]):
    def find_next(
        self, producer_id: int, producer_epoch: int, base_sequence: int, /
    ) -> _Entry | None: ...
    def record_next(
        self, entry: _Entry, last_offset: int, offset_delta: int, timestamp_ms: int, /
    ) -> None: ...

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
        producers: _Producers[Any] | None = None,
    ) -> Self: ...
    def configure(self, rules: AppendRules, has_followers: bool) -> None: ...
    def admit(self, wait: str) -> int: ...
    def append_group(
        self,
        group: RecordGroup,
        timestamp_ms: int,
        size_limit: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
    ) -> AppendInfo | MemoryRecords | None: ...
    def append(self, run: MemoryRecords) -> AppendInfo | None: ...
