"""Types of the kernels that write what compaction leaves of batches."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kafkalog._core.columns import RecordColumns

DROP: Final[int]
COPY: Final[int]
EMPTY: Final[int]
REWRITE: Final[int]

def count_flags(
    flags: NDArray[np.uint8], first_rows: NDArray[np.int64], counts: NDArray[np.int64]
) -> None: ...
def judge_batches(
    kept: NDArray[np.int64],
    record_counts: NDArray[np.int64],
    starts_horizon: NDArray[np.uint8],
    shows_end: NDArray[np.uint8],
    has_horizon: NDArray[np.uint8],
    horizons: NDArray[np.int64],
    actions: NDArray[np.uint8],
    new_horizon_ms: int,
) -> int: ...
def max_output_bytes(columns: RecordColumns, size: int) -> int: ...
def write_retained(
    data: Buffer,
    position: int,
    actions: NDArray[np.uint8],
    first_rows: NDArray[np.int64],
    has_horizon: NDArray[np.uint8],
    horizons: NDArray[np.int64],
    columns: RecordColumns,
    keep: NDArray[np.uint8],
    output: Buffer,
) -> int: ...
def retained_records(
    payload: Buffer,
    start: int,
    end: int,
    columns: RecordColumns,
    keep: NDArray[np.uint8],
    first_row: int,
    end_row: int,
    horizon: int | None,
) -> tuple[memoryview, int, int, int]: ...
def wrap_retained(
    batch: Buffer,
    payload: Buffer,
    codec: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    has_horizon: bool,
) -> bytearray: ...
