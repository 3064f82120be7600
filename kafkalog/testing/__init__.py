"""Tests of programs that store records: the real engine, and a time that a test moves."""

from __future__ import annotations

from kafkalog.testing.manual_time import START_MS, ManualClock, ManualScheduler, ManualTime

__all__ = ["START_MS", "ManualClock", "ManualScheduler", "ManualTime"]
