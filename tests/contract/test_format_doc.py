"""The bytes printed in docs/format.md are what the prose beside them says."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from kafkalog._core.batch import check_batch, parse_header
from kafkalog._core.crc32c import value
from kafkalog._core.index import OffsetIndexView, TimeIndexView
from kafkalog._core.record import Record, decode_records
from kafkalog._core.status import STATUS_CODES

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "format.md"
HEX_LINE = re.compile(r"^(?:[0-9a-f]{2} ){0,7}[0-9a-f]{2}$")


def _blocks() -> list[bytes]:
    """Return every fenced block that is all hexadecimal, as bytes."""
    found = []
    for block in re.findall(r"```\w*\n(.*?)```", DOCUMENT.read_text("ascii"), re.DOTALL):
        lines = block.strip().splitlines()
        if all(HEX_LINE.match(line) for line in lines):
            found.append(bytes.fromhex("".join(lines)))
    return found


def test_worked_example_decodes_to_what_the_text_says() -> None:
    """The batch is whole, and header and records have the values of the table."""
    batch = _blocks()[0]
    header = parse_header(batch)
    assert STATUS_CODES["OK"] == check_batch(batch)
    assert (106, 1000, 94, 5, 2) == (
        len(batch),
        header.base_offset,
        header.batch_length,
        header.partition_leader_epoch,
        header.magic,
    )
    assert header.crc == value(batch[21:]) == 0x2FE6134C
    assert (1_767_225_600_000, 1_767_225_600_250) == (header.base_timestamp, header.max_timestamp)
    first, second = decode_records(batch, header, 61, len(batch))
    assert first == Record(
        key=b"N14228",
        value=b"on time",
        headers=[("origin", b"EWR")],
        timestamp_ms=1_767_225_600_000,
        offset=1000,
    )
    assert second == Record(key=b"N24211", timestamp_ms=1_767_225_600_250, offset=1001)


def test_index_examples_decode_to_what_the_text_says() -> None:
    """Both entries of the offset index and the one of the time index are found."""
    _, offset_index, time_index = _blocks()
    offsets = OffsetIndexView(offset_index, 1000)
    assert [(1040, 4150), (1099, 8300)] == [offsets.entry(0), offsets.entry(1)]
    assert (1040, 4150) == offsets.lookup(1098)
    assert (1000, 0) == offsets.lookup(1039)
    times = TimeIndexView(time_index, 1000)
    assert (1_767_225_600_250, 1001) == times.entry(0)


def test_header_table_is_without_gaps_and_ends_at_61() -> None:
    """The table of header fields adds up, and is the layout that `struct` would read."""
    section = DOCUMENT.read_text("ascii").split("## The record batch")[1].split("\nAttributes,")[0]
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ", section, re.MULTILINE)
    end = 0
    for position, size in rows:
        assert end == int(position)
        end += int(size)
    assert end == struct.calcsize(">qiibIhiqqqhii") == 61
