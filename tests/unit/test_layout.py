"""Tests of the layout constants, compared with numbers from the format's description."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkalog import layout
from kafkalog.indexes.kinds import OFFSET_INDEX, TIME_INDEX, IndexKind

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
    "OFFSET_ENTRY_OFFSET_POSITION": 0,
    "OFFSET_ENTRY_POSITION_POSITION": 4,
    "OFFSET_INDEX_ENTRY_SIZE": 8,
    "TIME_ENTRY_TIMESTAMP_POSITION": 0,
    "TIME_ENTRY_OFFSET_POSITION": 8,
    "TIME_INDEX_ENTRY_SIZE": 12,
    "VARINT_SIZE_MAX": 5,
    "VARLONG_SIZE_MAX": 10,
}


def _constants() -> dict[str, int]:
    """Evaluate the lines `NAME = sum of names and numbers`; the file has no others."""
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
    """Each constant has the value of the format's description."""
    assert EXPECTED[name] == _constants()[name]


# Positions of the fields of each `struct` of Python code, and the end of the last field.
STRUCTS = {
    "BATCH_FRAME": ["BASE_OFFSET_POSITION", "BATCH_LENGTH_POSITION", "LOG_OVERHEAD"],
    "RECORD_BATCH_START": [
        "BASE_OFFSET_POSITION",
        "BATCH_LENGTH_POSITION",
        "LEADER_EPOCH_POSITION",
        "MAGIC_POSITION",
    ],
    "MESSAGE_START": [
        "BASE_OFFSET_POSITION",
        "BATCH_LENGTH_POSITION",
        "MESSAGE_CRC_POSITION",
        "MESSAGE_MAGIC_POSITION",
    ],
    "OFFSET_INDEX_ENTRY": [
        "OFFSET_ENTRY_OFFSET_POSITION",
        "OFFSET_ENTRY_POSITION_POSITION",
        "OFFSET_INDEX_ENTRY_SIZE",
    ],
    "TIME_INDEX_ENTRY": [
        "TIME_ENTRY_TIMESTAMP_POSITION",
        "TIME_ENTRY_OFFSET_POSITION",
        "TIME_INDEX_ENTRY_SIZE",
    ],
}
NUMBERS = sorted(
    name
    for name in layout.__all__
    if isinstance(getattr(layout, name), int) and name not in ("CREATE_TIME", "LOG_APPEND_TIME")
)


@pytest.mark.parametrize("name", NUMBERS)
def test_constant_of_python_code_equals_the_cores(name: str) -> None:
    """The core does not export its constants; the copies in Python are equal."""
    assert _constants()[name] == getattr(layout, name)


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_struct_of_python_code_has_the_cores_fields(name: str) -> None:
    """Each field has the position of the core, and the last field the same end."""
    layout_struct: struct.Struct = getattr(layout, name)
    ends = [
        struct.calcsize(layout_struct.format[: 1 + count])
        for count in range(len(layout_struct.format))
    ]
    assert layout_struct.format.startswith(">")
    assert [_constants()[position] for position in STRUCTS[name]] == ends


def test_every_struct_of_python_code_is_compared() -> None:
    """The table above lists all structs; the size of a key or value is one field."""
    names = {name for name in layout.__all__ if isinstance(getattr(layout, name), struct.Struct)}
    assert {*STRUCTS, "FIELD_SIZE"} == names


@pytest.mark.parametrize("kind", [OFFSET_INDEX, TIME_INDEX])
def test_index_kind_numpy_type_equals_its_struct(kind: IndexKind[Any]) -> None:
    """NumPy and `struct` read the same numbers from an entry."""
    entry = kind.entry.pack(1, 2)
    assert (kind.entry.size, (1, 2)) == (
        kind.dtype.itemsize,
        np.frombuffer(entry, kind.dtype)[0].item(),
    )


def test_index_views_read_the_fields_of_the_kinds() -> None:
    """The compiled look-up finds an entry packed by the struct."""
    offsets = OFFSET_INDEX.make_view(OFFSET_INDEX.entry.pack(3, 400), 10, 1)
    assert (13, 400) == offsets.lookup(13)
    times = TIME_INDEX.make_view(TIME_INDEX.entry.pack(5000, 7), 10, 1)
    assert (5000, 17) == times.lookup(5000)


def test_timestamp_types_equal_their_bit() -> None:
    """Create time means bit clear, append time means bit set."""
    assert (0, 1) == (layout.CREATE_TIME, layout.LOG_APPEND_TIME)
    assert layout.TIMESTAMP_TYPE_MASK == layout.LOG_APPEND_TIME << 3
