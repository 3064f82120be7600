"""Whether bytes are all zero: what a hole, or a file that was made long before its bytes, reads as.

Pure; thread-safe. Copies nothing.
"""

from __future__ import annotations

import numpy as np
from typing_extensions import Buffer

__all__ = ["is_zero"]


def is_zero(data: Buffer) -> bool:
    """Say whether no byte of `data` is other than zero; no byte at all counts as zero."""
    return not np.frombuffer(memoryview(data), dtype=np.uint8).any()
