"""Arrow arrays made from NumPy arrays and texts, compared with pyarrow, without pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from kafkalog.spark.arrow_cells import array_of, cell_of, mask_of, numbers_of, texts_of, validity_of

USED = """
import sys
import numpy as np, pyarrow as pa
from kafkalog.spark.arrow_cells import *
numbers = array_of(pa.int64(), np.arange(9))
batch = pa.RecordBatch.from_arrays([numbers, texts_of(list("abcdefghi"))], names=["n", "t"])
kept = batch.filter(mask_of(np.arange(9) % 2 == 0)).take(array_of(pa.int64(), np.arange(2)))
assert [0, 2] == numbers_of(kept.column("n"), np.int64).tolist()
assert validity_of(kept.column("t")).all()
print("pandas" in sys.modules)
"""


def test_arrow_cells_do_not_load_pandas() -> None:
    """A worker that uses them stays small."""
    result = subprocess.run(
        [sys.executable, "-c", USED], capture_output=True, text=True, check=False, timeout=60
    )
    assert ("False\n", "") == (result.stdout, result.stderr)


def test_arrays_equal_those_of_pyarrow() -> None:
    """Numbers, times, booleans and texts; also an empty array."""
    numbers = np.array([3, -1, 2**40])
    assert pa.array([3, -1, 2**40]).equals(array_of(pa.int64(), numbers))
    times = pa.timestamp("us", tz="UTC")
    assert pa.array([3, -1, 2**40], times).equals(array_of(times, numbers))
    mask = np.array([True, False, True] * 7)
    assert pa.array(mask.tolist()).equals(mask_of(mask))
    texts = ["", "gr\u00fcn", "x" * 300]
    assert pa.array(texts).equals(texts_of(texts))
    assert pa.array([], pa.string()).equals(texts_of([]))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), "a text"),
        (pa.bool_(), True),
        (pa.int32(), -7),
        (pa.int64(), 2**40),
        (pa.timestamp("us", tz="UTC"), 1_700_000_000_000_000),
        (pa.string(), None),
        (pa.bool_(), None),
        (pa.int64(), None),
    ],
)
def test_cell_equals_that_of_pyarrow(kind: pa.DataType, value: str | bool | int | None) -> None:
    """For each type of the views of logs."""
    assert pa.array([value], kind).equals(cell_of(kind, value))


@pytest.mark.parametrize("part", [slice(0, 20), slice(3, 17), slice(9, 9)])
def test_numbers_and_validity_of_a_slice_equal_its_cells(part: slice) -> None:
    """Also if the slice begins within a byte of the validity bits."""
    cells = [None if number % 3 == 0 else number for number in range(20)]
    array = pa.array(cells, pa.int32()).slice(part.start, part.stop - part.start)
    valid = validity_of(array)
    assert [cell is not None for cell in cells[part]] == valid.tolist()
    assert [cell for cell in cells[part] if cell is not None] == (
        numbers_of(array, np.int32)[valid].tolist()
    )
    assert validity_of(pa.array([1, 2])).all()
