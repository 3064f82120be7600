"""Errors that came through Spark, shortened to one line."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kafkalog.errors import KafkaLogError
from kafkalog.spark.wrapped_errors import wrapped_errors

OURS = '[KAFKALOG.LOCKED] somebody has it {"path": "/data"}'


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (PySparkException(f"Job aborted: Traceback:\n  kafkalog.E: {OURS}\n at java.x"), OURS),
        (Py4JError("An error occurred while calling o1.load.\n: java.E: no\n\tat x"), "java.E: no"),
        (
            PySparkException("[PATH_ALREADY_EXISTS] Path there.\n\nJVM stacktrace:\nx"),
            "Path there.",
        ),
        (Py4JError(""), "Py4JError"),
    ],
)
def test_error_through_spark_is_one_line(error: Exception, line: str) -> None:
    """Own errors are found inside the text; for others the first line with a message."""
    with pytest.raises(KafkaLogError) as caught, wrapped_errors():
        raise error
    assert str(caught.value).endswith(line)
    assert "\n" not in str(caught.value)
