"""The facts of the batch format that code in Python needs, too.

The format is the core's affair: `_core/layout.pxd` has every position, size and mask, and what is
here has the same names there. A test holds the two against each other. Constants, and nothing else.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "CODEC_MASK",
    "CONTROL_MASK",
    "CREATE_TIME",
    "DELETE_HORIZON_MASK",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD",
    "MAGIC_POSITION",
    "MAGIC_V2",
    "MESSAGE_OVERHEAD_V0",
    "NO_TIMESTAMP",
    "RECORD_BATCH_OVERHEAD",
    "TIMESTAMP_TYPE_MASK",
    "TRANSACTIONAL_MASK",
]

# Of batches of every format: offset and length, which the length does not count; the format.
LOG_OVERHEAD: Final = 12
MAGIC_POSITION: Final = 16
MAGIC_V2: Final = 2

# The header of a batch of v2, behind which its records begin; the smallest message of v0 and v1.
RECORD_BATCH_OVERHEAD: Final = 61
MESSAGE_OVERHEAD_V0: Final = 26

# Attributes.
CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

NO_TIMESTAMP: Final = -1
# What the bit of TIMESTAMP_TYPE_MASK says.
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1
