"""A `.txnindex` with a flipped bit: it has no checksum, and is checked by batches and markers."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import kafkalog
from tests.support import golden

# Of an entry: version, producer id, first offset, last offset, last stable offset.
ENTRY_BYTES = 34
FIRST_OFFSET, LAST_STABLE_OFFSET = 10, 26
SEEDS = range(12)


def committed(directory: Path, *, read_only: bool) -> list[tuple[int, bytes | None]]:
    """Return offset and value of all committed records."""
    with kafkalog.open_log(directory, read_only=read_only) as log:
        return [(each.offset, each.value) for each in log.records(isolation="read_committed")]


@pytest.mark.parametrize("partition", ["transactions-0", "transactions-1"])
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_transaction_index_flipped_bit_shows_no_aborted_record(
    tmp_path: Path, partition: str, read_only: bool, seed: int
) -> None:
    """HOST-15: a bit of an offset in an entry of every file, low bits most of all."""
    source = random.Random(f"{partition} {seed}")
    expected = committed(
        golden.copy_partition(golden.CLEAN, partition, tmp_path / "whole" / partition),
        read_only=True,
    )
    directory = golden.copy_partition(golden.CLEAN, partition, tmp_path / "garbled" / partition)
    flipped = 0
    for path in sorted(directory.glob("*.txnindex")):
        data = bytearray(path.read_bytes())
        if data:
            entry = source.randrange(len(data) // ENTRY_BYTES) * ENTRY_BYTES
            field = source.choice((FIRST_OFFSET, FIRST_OFFSET, LAST_STABLE_OFFSET))
            bit = source.choice((0, 0, 1, 2, 3, 5, 8, 20, 40))
            data[entry + field + 7 - bit // 8] ^= 1 << bit % 8
            path.write_bytes(data)
            flipped += 1
    assert flipped
    found = committed(directory, read_only=read_only)
    assert expected == found
    shutil.rmtree(tmp_path)
