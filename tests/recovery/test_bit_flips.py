"""Tests of flipped bits outside of base offsets: one lost batch, and no wrong record."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.damage import batch_positions, flip, forget_shutdown, log_file
from tests.support.logs import manual_log, numbered

BASE_OFFSET_SIZE = 8


@pytest.mark.parametrize("read_only", [True, False])
def test_flipped_bit_at_any_byte_costs_at_most_its_batch(directory: Path, read_only: bool) -> None:
    """The other two batches are served; base offsets, which no CRC covers, are not tested."""
    with manual_log(directory) as log:
        for number in range(3):
            log.append(numbered(number, 1))
        expected = list(log.records())
    forget_shutdown(directory)
    positions = batch_positions(log_file(directory))
    data = log_file(directory).read_bytes()
    for batch in range(3):
        others = [record for record in expected if record.offset != batch]
        for position in range(positions[batch] + BASE_OFFSET_SIZE, positions[batch + 1]):
            log_file(directory).write_bytes(data)
            flip(log_file(directory), position, 1 << position % 8)
            with manual_log(directory, read_only=read_only) as log:
                found = list(log.records(on_corrupt="skip"))
            assert found in (others, expected), f"byte {position}"
            forget_shutdown(directory)
            for side in (*directory.glob("*.broken"), log_file(directory, 3)):
                side.unlink(missing_ok=True)
