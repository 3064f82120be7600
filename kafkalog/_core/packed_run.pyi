"""Types of a run of batches."""

from collections.abc import Callable
from typing import Final, Protocol, final

from typing_extensions import Buffer

from kafkalog._core.run_facts import RunFacts
from kafkalog.model import AppendInfo, Rewriting

class _Made(Protocol):
    @property
    def data(self) -> Buffer: ...
    @property
    def batches(self) -> RunFacts: ...

@final
class PackedRun:
    @property
    def data(self) -> bytes | bytearray: ...
    @property
    def batches(self) -> RunFacts: ...
    record_count: Final[int]
    log_append_time_ms: Final[int | None]
    assign_offsets: Final[bool]
    rewriting: Final[Rewriting]
    made_at: Final[Callable[[int], _Made] | None]
    has_producers: Final[bool]
    leader_epoch: Final[int]
    def __init__(
        self,
        data: bytes | bytearray,
        batches: RunFacts,
        record_count: int,
        log_append_time_ms: int | None = None,
        *,
        assign_offsets: bool = True,
        rewriting: Rewriting = ...,
        made_at: Callable[[int], _Made] | None = None,
        has_producers: bool = False,
        leader_epoch: int = -2,
    ) -> None: ...
    def stamp(self, log_end_offset: int, partition_leader_epoch: int) -> AppendInfo: ...
