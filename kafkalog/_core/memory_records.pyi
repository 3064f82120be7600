"""Types of a run of batches."""

from collections.abc import Callable
from typing import Any, Final, Protocol, final

from typing_extensions import Buffer

from kafkalog._core.batch_metadata import BatchMetadata

class _RebuiltBatches(Protocol):
    @property
    def data(self) -> Buffer: ...
    @property
    def batches(self) -> BatchMetadata: ...

@final
class MemoryRecords:
    @property
    def data(self) -> bytes | bytearray: ...
    @property
    def batches(self) -> BatchMetadata: ...
    record_count: Final[int]
    log_append_time_ms: Final[int | None]
    needs_offsets: Final[bool]
    rewriting: Final[Any]
    rebuild_at: Final[Callable[[int], _RebuiltBatches] | None]
    has_producers: Final[bool]
    leader_epoch: Final[int]
    def __init__(
        self,
        data: bytes | bytearray,
        batches: BatchMetadata,
        record_count: int,
        log_append_time_ms: int | None = None,
        *,
        needs_offsets: bool = True,
        rewriting: object = None,
        rebuild_at: Callable[[int], _RebuiltBatches] | None = None,
        has_producers: bool = False,
        leader_epoch: int = -2,
    ) -> None: ...
    def assign_offsets(self, log_end_offset: int, partition_leader_epoch: int) -> None: ...
