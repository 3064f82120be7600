"""Errors that come through Spark as text with tracebacks, reduced to single lines.

Thread-safety: a pure function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kafkalog.errors import KafkaLogError

__all__ = ["wrapped_errors"]

_OURS: Final = re.compile(r"\[KAFKALOG\.[A-Z_]+\][^\n]*")
_CALLING: Final = "An error occurred while calling"


@contextmanager
def wrapped_errors() -> Iterator[None]:
    """
    Translate errors that come through Spark.

    Raises:
        KafkaLogError: for an error of kafkalog its one line: code, sentence and JSON detail; for an
            error of Spark its first informative line.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise KafkaLogError(_line_of(error)) from error


def _line_of(error: Exception) -> str:
    text = str(error)
    found = _OURS.search(text)
    if found is not None:
        return found[0]
    lines = (each.removeprefix(": ") for each in text.splitlines())
    informative = (each for each in lines if each and not each.startswith(_CALLING))
    return f"Spark: {next(informative, type(error).__name__)}"
