"""Constants of the formats of batches, messages and index entries, for Python code.

`_core/layout.pxd` defines every position, size and mask; a name of this module has the same value
there, and `struct` formats and NumPy types name the same fields. Tests compare all of them. No
other module of Python repeats a number of these formats: `ci/check_structure.py` refuses it.
"""

from __future__ import annotations

import struct
from typing import Final

__all__ = [
    "BATCH_FRAME",
    "BATCH_LENGTH_POSITION",
    "CODEC_MASK",
    "CONTROL_MASK",
    "CREATE_TIME",
    "DELETE_HORIZON_MASK",
    "FIELD_SIZE",
    "LEADER_EPOCH_POSITION",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD",
    "MAGIC_POSITION",
    "MAGIC_V2",
    "MESSAGE_KEY_SIZE_POSITION_V0",
    "MESSAGE_KEY_SIZE_POSITION_V1",
    "MESSAGE_OVERHEAD_V0",
    "MESSAGE_START",
    "NO_TIMESTAMP",
    "OFFSET_INDEX_ENTRY",
    "OFFSET_INDEX_ENTRY_FIELDS",
    "OFFSET_INDEX_ENTRY_SIZE",
    "RECORD_BATCH_OVERHEAD",
    "RECORD_BATCH_START",
    "TIMESTAMP_TYPE_MASK",
    "TIME_INDEX_ENTRY",
    "TIME_INDEX_ENTRY_FIELDS",
    "TIME_INDEX_ENTRY_SIZE",
    "TRANSACTIONAL_MASK",
]

# Batches of every format begin with offset and length, which the length does not count.
BATCH_LENGTH_POSITION: Final = 8
LOG_OVERHEAD: Final = 12
BATCH_FRAME: Final = struct.Struct(">qi")
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
MAGIC_V2: Final = 2

# Header of a v2 batch, and the fields that no CRC covers: base offset, length, leader epoch.
RECORD_BATCH_OVERHEAD: Final = 61
RECORD_BATCH_START: Final = struct.Struct(">qii")

# Messages of v0 and v1: the smallest one; offset, size and CRC; size of the key.
MESSAGE_OVERHEAD_V0: Final = 26
MESSAGE_START: Final = struct.Struct(">qiI")
MESSAGE_KEY_SIZE_POSITION_V0: Final = 18
MESSAGE_KEY_SIZE_POSITION_V1: Final = 26
# Size of a key or value, -1 for null.
FIELD_SIZE: Final = struct.Struct(">i")

# Attributes.
CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

NO_TIMESTAMP: Final = -1
# Values of the bit of TIMESTAMP_TYPE_MASK.
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

# Entries of index files: size, `struct` format, and fields of the NumPy type. Other modules use the
# kinds of `kafkalog.indexes.kinds`, but for lists of partitions, which do without NumPy.
OFFSET_INDEX_ENTRY_SIZE: Final = 8
OFFSET_INDEX_ENTRY: Final = struct.Struct(">ii")
OFFSET_INDEX_ENTRY_FIELDS: Final = [("relative_offset", ">i4"), ("position", ">i4")]
TIME_INDEX_ENTRY_SIZE: Final = 12
TIME_INDEX_ENTRY: Final = struct.Struct(">qi")
TIME_INDEX_ENTRY_FIELDS: Final = [("timestamp", ">i8"), ("relative_offset", ">i4")]
