"""The number of examples of each property."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["examples"]

# Under sanitizers an example costs many times as much, and fuzz targets give new ones besides.
SHARE: Final = float(os.environ.get("KAFKALOG_EXAMPLES_SHARE", "1"))


def examples(count: int) -> int:
    """Return `count`, or the share of it that the environment asks for, at least 5."""
    return max(min(count, 5), round(count * SHARE))
