"""Conversion of logs of all formats with random damage: no wrong record, no unreported loss."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog import Codec, LogConfig, convert_batches, convert_log
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from tests.support.converted_logs import T
from tests.support.reference_messages import Message, encode_set

CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=256)


def message_set(first: int, magic: int, codec: int = 0) -> bytes:
    """Return five messages with different values."""
    return encode_set(
        [
            Message(n, magic, 0, T + n if magic else -1, b"key", b"value %d " % n * 9)
            for n in range(first, first + 5)
        ],
        codec=codec,
    )


# Two segments: v0 and v1, plain and compressed, and v2 after and between them.
SEGMENTS = {
    0: message_set(0, 0)
    + message_set(5, 0, codec=1)
    + message_set(10, 1)
    + message_set(15, 1, codec=3),
    20: convert_batches(message_set(20, 1), 2).data
    + message_set(25, 1, codec=1)
    + convert_batches(message_set(30, 0), 2, codec=Codec.ZSTD).data
    + message_set(35, 1),
}
VALUES = {b"value %d " % n * 9 for n in range(40)}
SIZES = {base: len(data) for base, data in SEGMENTS.items()}

flips = st.lists(
    st.sampled_from(sorted(SEGMENTS)).flatmap(
        lambda base: st.tuples(
            st.just(base), st.integers(0, SIZES[base] - 1), st.sampled_from([1, 8, 128])
        )
    ),
    min_size=1,
    max_size=3,
)


def write_damaged(directory: Path, damage: list[tuple[int, int, int]]) -> Path:
    """Write the segments with bits flipped, as a broker leaves them after a kill."""
    directory.mkdir()
    for base, data in SEGMENTS.items():
        damaged = bytearray(data)
        for at, position, mask in damage:
            if at == base:
                damaged[position] ^= mask
        (directory / f"{base:020}.log").write_bytes(damaged)
    return directory


def readable(directory: Path) -> list[tuple[int, bytes | None]]:
    """Return offset and value of every record that can be read."""
    with kafkalog.open_log(directory, read_only=True) as log:
        found = []
        for batch in log.batches(on_corrupt="skip"):
            try:
                found += [(record.offset, record.value) for record in batch.records()]
            except (CorruptRecordError, InvalidRecordError):
                continue
        return found


@settings(max_examples=25)
@given(flips)
def test_convert_log_damaged_raises_or_reports_skipped_bytes(
    damage: list[tuple[int, int, int]],
) -> None:
    """Every record of the target is one of the source; missing records are reported."""
    root = Path(tempfile.mkdtemp())
    try:
        source = write_damaged(root / "a-0", damage)
        expected = readable(source)
        made = convert_log(source, root / "b-0", codec=Codec.ZSTD, on_corrupt="skip", config=CONFIG)
        found = readable(root / "b-0")
        assert expected == found
        assert {value for _, value in found} <= VALUES
        assert len(found) == len(VALUES) or made.left_out
        if any(not left.reason.startswith("torn") for left in made.left_out):
            with pytest.raises((CorruptRecordError, InvalidRecordError)):
                convert_log(source, root / "c-0", codec=Codec.ZSTD, config=CONFIG)
            assert not (root / "c-0").exists()
    finally:
        shutil.rmtree(root)


@settings(max_examples=25)
@given(flips)
def test_convert_log_damaged_in_place_keeps_readable_records(
    damage: list[tuple[int, int, int]],
) -> None:
    """Damaged segments stay unconverted, with their whole and their damaged batches."""
    root = Path(tempfile.mkdtemp())
    try:
        directory = write_damaged(root / "a-0", damage)
        # Recovery truncates a torn tail, which is reported and kept next to the log.
        kafkalog.open_log(directory, config=CONFIG).close()
        expected = readable(directory)
        made = convert_log(
            directory, in_place=True, codec=Codec.ZSTD, on_corrupt="skip", config=CONFIG
        )
        assert expected == readable(directory)
        untouched = [one.base_offset for one in made.segments if not one.was_converted]
        kept = {int(left.path.stem) for left in made.left_out}
        assert set(untouched) <= kept | {made.log_end_offset}
    finally:
        shutil.rmtree(root)
