"""Types of a range of one segment."""

from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class SegmentSlice:
    @property
    def start_offset(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def following_offset(self) -> int: ...
    @property
    def bound_position(self) -> int: ...
    @property
    def _segment(self) -> Any: ...
    aborted_transactions: Any
    _leased: Any
    _sends_memory: bool
    def __init__(
        self,
        segment: object,
        *,
        start_offset: int,
        position: int,
        size_bytes: int,
        bound: tuple[int, int],
        log_start_offset: int,
        log_end_offset: int,
        aborted_transactions: object = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def is_fetched(self) -> bool: ...
    @property
    def data(self) -> memoryview: ...
