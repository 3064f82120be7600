"""Types of the key hashing entry points."""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kafkalog._core.bytes_column import BytesColumn

def value(key: Buffer) -> int: ...
def partition_of(key: Buffer, partition_count: int) -> int: ...
def hash_column(
    keys: BytesColumn,
    hashes: NDArray[np.int32],
    *,
    start: int = 0,
    stop: int | None = None,
    null_hash: int = 0,
) -> None: ...
def partition_column(
    keys: BytesColumn,
    partition_count: int,
    partitions: NDArray[np.int32],
    *,
    start: int = 0,
    stop: int | None = None,
    null_partition: int = -1,
) -> None: ...
