"""How long state machines that are run as a test go on."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

__all__ = ["run_lengths"]


def run_lengths(examples: int, steps: int) -> settings:
    """Return settings for so many runs of so many steps, however slow the first of them are."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        suppress_health_check=list(HealthCheck),
    )
