"""Types of the short way of an append."""

from threading import RLock
from typing import Any

from typing_extensions import Buffer, disjoint_base

from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._core.memory_records import MemoryRecords
from kafkalog.model import AppendInfo, AppendOrigin

@disjoint_base
class LogEnd:
    snapshot: Any
    def append(self, data: Buffer, batches: BatchMetadata) -> bool: ...

@disjoint_base
class EpochsAtHand:
    current: int
    _epochs: Any
    def is_epoch_written(self, run: MemoryRecords) -> bool: ...

@disjoint_base
class RunAppender:
    _local: Any
    _epochs: Any

@disjoint_base
class AppendEntrance:
    _closed: bool
    _is_released: bool
    _tail: Any
    _offline: BaseException | None
    _process: int
    _clock: Any
    _rules: Any
    _flush_messages: int
    _watchers: tuple[Any, ...]
    _appender: Any
    _write_lock: RLock
    def _admit(self, wait: str) -> int: ...
    def _append(self, run: MemoryRecords, wait: str, origin: AppendOrigin = ...) -> AppendInfo: ...
