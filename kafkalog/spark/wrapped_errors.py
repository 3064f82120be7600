"""Errors that come through Spark as text, with all of its tracebacks, made single lines again.

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
    Let an error that comes through Spark be one of ours.

    Raises:
        KafkaLogError: of an error of ours the one line that it is: code, sentence and JSON detail;
            of one of Spark's own the first line that tells anything.
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
    telling = (each for each in lines if each and not each.startswith(_CALLING))
    return f"Spark: {next(telling, type(error).__name__)}"
