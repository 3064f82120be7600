"""Tests of programs that store records: the real engine, a time that a test moves, and faults.

A program for Kafka's storage is tested without a broker, a container or a JVM: its test opens a
`LogManager` on a temporary directory. `kafkalog.testing.fixtures` has fixtures of pytest; all other
names also work with `unittest`, and need no pytest.
"""

from __future__ import annotations

from kafkalog.testing.assertions import (
    assert_committed,
    assert_offsets,
    assert_records,
    assert_topic_records,
    assert_transaction,
)
from kafkalog.testing.faults import Faults
from kafkalog.testing.managers import ManagerFactory
from kafkalog.testing.manual_time import START_MS, ManualClock, ManualScheduler, ManualTime
from kafkalog.testing.record_difference import ExpectedRecords

__all__ = [
    "START_MS",
    "ExpectedRecords",
    "Faults",
    "ManagerFactory",
    "ManualClock",
    "ManualScheduler",
    "ManualTime",
    "assert_committed",
    "assert_offsets",
    "assert_records",
    "assert_topic_records",
    "assert_transaction",
]
