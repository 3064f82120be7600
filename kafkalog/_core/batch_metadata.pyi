"""Types of the facts of a run."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, final, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

__all__ = ["BatchFacts", "BatchMetadata"]

class BatchFacts(NamedTuple):
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    shallow_offset: int

@final
class BatchMetadata:
    @property
    def size_bytes(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def is_all_messages(self) -> bool: ...
    def __init__(self, rows: Iterable[tuple[int, int, int, int, int]] = ()) -> None: ...
    @staticmethod
    def of_messages(
        starts: NDArray[np.int64], offsets: NDArray[np.int64], timestamps: NDArray[np.int64]
    ) -> BatchMetadata: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, slot: int, /) -> BatchFacts: ...
    @overload
    def __getitem__(self, slot: slice, /) -> list[BatchFacts]: ...
    def __iter__(self) -> Iterator[BatchFacts]: ...
    def add(
        self,
        size_bytes: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        shallow_offset: int,
    ) -> None: ...
    def extend(self, others: BatchMetadata) -> None: ...
    def shifted(self, shift: int) -> BatchMetadata: ...
    def batches_above(self, limit_bytes: int) -> list[BatchFacts]: ...
    def span(self) -> tuple[int, int, int, int]: ...
    def assign_offsets(
        self, data: Buffer, base_offset: int, partition_leader_epoch: int
    ) -> tuple[int, int, int, int]: ...
