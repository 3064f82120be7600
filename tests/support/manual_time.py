"""The manual clock and scheduler of `kafkalog.testing`, under the name that tests import."""

from __future__ import annotations

from kafkalog.testing.manual_time import START_MS, ManualClock, ManualScheduler

__all__ = ["START_MS", "ManualClock", "ManualScheduler"]
