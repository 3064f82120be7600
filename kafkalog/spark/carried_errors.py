"""Errors of ours that Spark brings back as text, with all of its traceback, taken out of it again.

Thread-safety: a pure function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException

from kafkalog.errors import KafkaLogError

__all__ = ["carried_errors"]

_OURS: Final = re.compile(r"\[KAFKALOG\.[A-Z_]+\][^\n]*")


@contextmanager
def carried_errors() -> Iterator[None]:
    """
    Let an error of ours that comes through Spark be one of ours; others pass.

    Raises:
        KafkaLogError: with the one line of it: code, sentence and JSON detail.
    """
    try:
        yield
    except PySparkException as error:
        found = _OURS.search(str(error))
        if found is None:
            raise
        raise KafkaLogError(found[0]) from error
