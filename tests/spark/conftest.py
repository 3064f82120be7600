"""Spark for the tests of this directory: one JVM a module, skipped loudly where there can be none.

Every module has this line, so that the gate runs them in sequence on one worker:

    pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_session import start_session, stop_session, why_not

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return a session of two threads; its log is `spark.log` in the directory of the run."""
    reason = why_not()
    if reason is not None:
        pytest.skip(f"NOT TESTED with Spark: {reason}")
    session = start_session(tmp_path_factory.mktemp("spark"), leaves_archive=True)
    try:
        yield session
    finally:
        stop_session(session)
