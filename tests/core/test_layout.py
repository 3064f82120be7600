"""The layout constants against numbers written out by hand from the format's description."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkalog import layout

LAYOUT = Path(__file__).parents[2] / "kafkalog" / "_core" / "layout.pxd"

EXPECTED = {
    "BASE_OFFSET_POSITION": 0,
    "BATCH_LENGTH_POSITION": 8,
    "LOG_OVERHEAD": 12,
    "LEADER_EPOCH_POSITION": 12,
    "MAGIC_POSITION": 16,
    "HEADER_SIZE_UP_TO_MAGIC": 17,
    "CRC_POSITION": 17,
    "ATTRIBUTES_POSITION": 21,
    "LAST_OFFSET_DELTA_POSITION": 23,
    "BASE_TIMESTAMP_POSITION": 27,
    "MAX_TIMESTAMP_POSITION": 35,
    "PRODUCER_ID_POSITION": 43,
    "PRODUCER_EPOCH_POSITION": 51,
    "BASE_SEQUENCE_POSITION": 53,
    "RECORD_COUNT_POSITION": 57,
    "RECORDS_POSITION": 61,
    "RECORD_BATCH_OVERHEAD": 61,
    "BATCH_LENGTH_MIN": 49,
    "BATCH_LENGTH_MAX": 2_147_483_635,
    "MESSAGE_CRC_POSITION": 12,
    "MESSAGE_MAGIC_POSITION": 16,
    "MESSAGE_ATTRIBUTES_POSITION": 17,
    "MESSAGE_KEY_SIZE_POSITION_V0": 18,
    "MESSAGE_KEY_POSITION_V0": 22,
    "MESSAGE_OVERHEAD_V0": 26,
    "LEGACY_LENGTH_MIN": 14,
    "MESSAGE_TIMESTAMP_POSITION": 18,
    "MESSAGE_KEY_SIZE_POSITION_V1": 26,
    "MESSAGE_KEY_POSITION_V1": 30,
    "MESSAGE_OVERHEAD_V1": 34,
    "LEGACY_LENGTH_MIN_V1": 22,
    "CODEC_MASK": 0x07,
    "TIMESTAMP_TYPE_MASK": 0x08,
    "TRANSACTIONAL_MASK": 0x10,
    "CONTROL_MASK": 0x20,
    "DELETE_HORIZON_MASK": 0x40,
    "CODEC_NONE": 0,
    "CODEC_GZIP": 1,
    "CODEC_SNAPPY": 2,
    "CODEC_LZ4": 3,
    "CODEC_ZSTD": 4,
    "RECORD_BODY_SIZE_MIN": 6,
    "RECORD_SIZE_MIN": 7,
    "OFFSET_INDEX_ENTRY_SIZE": 8,
    "TIME_INDEX_ENTRY_SIZE": 12,
    "VARINT_SIZE_MAX": 5,
    "VARLONG_SIZE_MAX": 10,
}


def _constants() -> dict[str, int]:
    """Evaluate the `NAME = sum of names and numbers` lines, which is all that the file has."""
    values: dict[str, int] = {}
    for line in LAYOUT.read_text("ascii").splitlines():
        match = re.fullmatch(r"    (\w+) = ([^#]+?)\s*(#.*)?", line)
        if match:
            total = 0
            for sign, term in re.findall(r"([+-]?)\s*(\w+)", match[2]):
                value = values[term] if term in values else int(term, 0)
                total += -value if sign == "-" else value
            values[match[1]] = total
    return values


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_layout_constant_equals_the_format(name: str) -> None:
    """Each constant has the value that the format's description gives."""
    assert EXPECTED[name] == _constants()[name]


@pytest.mark.parametrize("name", sorted(set(layout.__all__) - {"CREATE_TIME", "LOG_APPEND_TIME"}))
def test_constant_of_python_code_equals_the_cores(name: str) -> None:
    """The core does not give out its constants; what is written down twice is the same."""
    assert _constants()[name] == getattr(layout, name)


def test_timestamp_types_are_what_their_bit_says() -> None:
    """Create time is the bit not set, append time the bit set."""
    assert (0, 1) == (layout.CREATE_TIME, layout.LOG_APPEND_TIME)
    assert layout.TIMESTAMP_TYPE_MASK == layout.LOG_APPEND_TIME << 3
