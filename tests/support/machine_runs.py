"""The lengths of state machines that are run as a test."""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

__all__ = ["run_lengths"]

# Times as many runs as the gate has time for.
TIMES: Final = int(os.environ.get("KAFKALOG_MACHINE_TIMES", "1"))


def run_lengths(examples: int, steps: int) -> settings:
    """Return settings for so many runs of so many steps, however slow the first of them are."""
    return settings(
        max_examples=TIMES * examples,
        stateful_step_count=steps,
        suppress_health_check=list(HealthCheck),
    )
