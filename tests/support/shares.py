"""The share of a long scenario's calls that one run of the tests takes.

Every call would take the gate longer than it has. So a run takes every third or tenth,
beginning with a random one: some runs take all. `KAFKALOG_CRASH_STEP=1` takes all
at once.
"""

from __future__ import annotations

import os
import secrets
from typing import Final

__all__ = ["calls"]

_STEP: Final = int(os.environ.get("KAFKALOG_CRASH_STEP", "0"))


def calls(stop: int, step: int) -> range:
    """Return numbers of calls from 1 to below `stop`, `step` apart if nothing else is asked for."""
    step = _STEP or step
    return range(1 + secrets.randbelow(step), stop, step)
