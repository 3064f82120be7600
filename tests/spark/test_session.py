"""A session starts in a JVM of its own and runs Python, with this package, in its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_session_started_runs_rows_through_python(spark: SparkSession) -> None:
    """The JVM answers, and its Python workers have this package at hand."""

    def package_of(_: int) -> str:
        import kafkalog

        return kafkalog.__name__

    answers = spark.sparkContext.parallelize([1, 2], 2).map(package_of).collect()

    assert ["kafkalog", "kafkalog"] == answers
    assert 10 == spark.range(10).count()
