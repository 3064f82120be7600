"""Skip of a test that needs a real Kafka, where this machine lacks Java or Maven."""

from __future__ import annotations

import os

import pytest

from .kafka_maven import KAFKA, Project, missing_reason

__all__ = ["skip_without_kafka"]


def skip_without_kafka(project: Project = KAFKA) -> None:
    """Skip the test with a reason in capitals; fail it if the gate requires a real Kafka."""
    reason = missing_reason(project)
    if reason is None:
        return
    message = f"NOT TESTED against a real Kafka: {reason}"
    if os.environ.get("KAFKALOG_REQUIRE_KAFKA") == "1":
        pytest.fail(message)
    pytest.skip(message)
