"""Arguments of jobs: the bytes of a log that a task reads."""

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
def test_shared_out_splits_small_logs_over_the_cores(cores: int, total: int, expected: int) -> None:
    """Never above the argument, and at least 16 MiB."""
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=cores))
    assert expected == shared_out(spark, 1024 * MIB, total)


def test_shared_out_without_a_context_uses_the_argument() -> None:
    """Spark Connect has no context: one task up to the size of the argument."""
    spark: Any = SimpleNamespace()
    assert 506 * MIB == shared_out(spark, 1024 * MIB, 506 * MIB)
    assert 1024 * MIB == shared_out(spark, 1024 * MIB, 5060 * MIB)


def test_task_bytes_zero_is_refused() -> None:
    """The error has the name and the value."""
    ensure_task_bytes(1)
    with pytest.raises(KafkaLogSparkError, match=r"OPTION_INVALID\] task_bytes = '0'"):
        ensure_task_bytes(0)
