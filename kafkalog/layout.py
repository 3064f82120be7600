"""Constants of the batch format that Python code needs.

The core owns the format: `_core/layout.pxd` has every position, size and mask; the constants of
this module have the same names there, and a test compares them. This module has only constants.
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

# In batches of every format: size of offset and length, which the length excludes; the magic.
LOG_OVERHEAD: Final = 12
MAGIC_POSITION: Final = 16
MAGIC_V2: Final = 2

# Size of the header of a v2 batch, before its records; of the smallest message of v0 and v1.
RECORD_BATCH_OVERHEAD: Final = 61
MESSAGE_OVERHEAD_V0: Final = 26

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
