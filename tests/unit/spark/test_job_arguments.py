"""What jobs are asked for: how much of a log a task takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog.spark.errors import KafkaLogSparkError
from kafkalog.spark.jobs.job_arguments import ensure_task_bytes, shared_out

MIB = 1 << 20


@pytest.mark.parametrize(
    ("cores", "total", "expected"),
    [(2, 506 * MIB, 253 * MIB), (2, 9000 * MIB, 1024 * MIB), (64, 100 * MIB, 16 * MIB)],
)
def test_tasks_are_as_many_as_cores_where_there_is_little(
    cores: int, total: int, expected: int
) -> None:
    """Never above what was asked for, and not so small that a task is all there is to it."""
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=cores))
    assert expected == shared_out(spark, 1024 * MIB, total)


def test_tasks_of_a_session_that_hides_its_cores_are_as_asked() -> None:
    """Spark Connect has no context: as much as there is, as far as that is allowed."""
    spark: Any = SimpleNamespace()
    assert 506 * MIB == shared_out(spark, 1024 * MIB, 506 * MIB)
    assert 1024 * MIB == shared_out(spark, 1024 * MIB, 5060 * MIB)


def test_task_that_takes_nothing_is_refused() -> None:
    """By name and value."""
    ensure_task_bytes(1)
    with pytest.raises(KafkaLogSparkError, match=r"OPTION_INVALID\] task_bytes = '0'"):
        ensure_task_bytes(0)
