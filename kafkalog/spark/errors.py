"""Errors for Spark: a stable code and JSON detail within the message.

Only the text of an error in a Python worker reaches the caller: its class and message. So the text
has to contain everything, for people and for programs:

    [KAFKALOG.TOPIC_NOT_FOUND] no topic 'ordres'; did you mean 'orders'? {"topic": "ordres"}

Thread-safety: everything here is immutable. Nothing here imports pyspark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from kafkalog.errors import (
    ConfigError,
    CorruptRecordError,
    InvalidRecordError,
    KafkaLogError,
    LogLockedError,
    NotALogError,
    OffsetOutOfRangeError,
    UnsupportedCodecError,
)

__all__ = ["ErrorCode", "KafkaLogSparkError", "coded_errors", "of_engine"]


class ErrorCode(StrEnum):
    """Code of an error; never renamed, as programs compare it."""

    OPTION_MISSING = "OPTION_MISSING"
    OPTION_INVALID = "OPTION_INVALID"
    OPTION_UNKNOWN = "OPTION_UNKNOWN"
    OPTION_CONFLICT = "OPTION_CONFLICT"
    PATH_NOT_FOUND = "PATH_NOT_FOUND"
    TOPIC_NOT_FOUND = "TOPIC_NOT_FOUND"
    OFFSET_INVALID = "OFFSET_INVALID"
    OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
    COLUMN_UNKNOWN = "COLUMN_UNKNOWN"
    COLUMN_MISSING = "COLUMN_MISSING"
    TYPE_INVALID = "TYPE_INVALID"
    PARTITION_OUT_OF_RANGE = "PARTITION_OUT_OF_RANGE"
    TXN_CONFLICT = "TXN_CONFLICT"
    LOCKED = "LOCKED"
    OVERWRITE_UNSUPPORTED = "OVERWRITE_UNSUPPORTED"
    CORRUPT_BATCH = "CORRUPT_BATCH"
    UNSUPPORTED = "UNSUPPORTED"
    DATA_LOSS = "DATA_LOSS"
    BATCH_TOO_LARGE = "BATCH_TOO_LARGE"
    RECORD_INVALID = "RECORD_INVALID"
    JAVA_MISSING = "JAVA_MISSING"
    SPARK_MISSING = "SPARK_MISSING"
    JOB_FAILED = "JOB_FAILED"
    STORAGE = "STORAGE"


class KafkaLogSparkError(KafkaLogError):
    """
    Base class of the errors of `kafkalog.spark`.

    Args:
        code: the kind of error, for programs.
        message: the same for people.
        detail: facts of the case, for programs; `path`, `position` and `base_offset` are the
            attributes of every error of kafkalog too.

    Attributes:
        code, message, detail: as given.
    """

    def __init__(self, code: ErrorCode, message: str, **detail: object) -> None:
        super().__init__(message)
        self.args = (code, message)
        self.code = code
        self.message = message
        self.detail = detail
        path, position = detail.get("path"), detail.get("position")
        base_offset = detail.get("base_offset")
        self.path = None if path is None else str(path)
        self.position = position if isinstance(position, int) else None
        self.base_offset = base_offset if isinstance(base_offset, int) else None

    def __str__(self) -> str:
        text = f"[KAFKALOG.{self.code}] {self.message}"
        return f"{text} {json.dumps(self.detail, default=str)}" if self.detail else text


# The first class that an error is an instance of gives its code.
_CODES: tuple[tuple[type[KafkaLogError], ErrorCode], ...] = (
    (CorruptRecordError, ErrorCode.CORRUPT_BATCH),
    (UnsupportedCodecError, ErrorCode.UNSUPPORTED),
    (InvalidRecordError, ErrorCode.RECORD_INVALID),
    (OffsetOutOfRangeError, ErrorCode.OFFSET_OUT_OF_RANGE),
    (LogLockedError, ErrorCode.LOCKED),
    (NotALogError, ErrorCode.PATH_NOT_FOUND),
    (ConfigError, ErrorCode.OPTION_INVALID),
)


def of_engine(
    error: KafkaLogError, code: ErrorCode | None = None, **detail: object
) -> KafkaLogSparkError:
    """
    Return the error that Spark shows for an error of the engine; raise it `from error`.

    Args:
        error: raised by the engine; an error with a code is returned unchanged.
        code: the code; that of the error's class if None, STORAGE if it has none.
        detail: facts in addition to the error's own.
    """
    if isinstance(error, KafkaLogSparkError):
        return error
    if code is None:
        fitting = (each for kind, each in _CODES if isinstance(error, kind))
        code = next(fitting, ErrorCode.STORAGE)
    location = {"path": error.path, "position": error.position, "base_offset": error.base_offset}
    facts = {name: value for name, value in location.items() if value is not None}
    kind = type(error).__name__
    return KafkaLogSparkError(code, f"{kind}: {error}", **{"error": kind, **facts, **detail})


@contextmanager
def coded_errors(**detail: object) -> Iterator[None]:
    """
    Translate every error of the engine or the disk to an error with a code.

    Args:
        detail: facts in addition to the error's own.

    Raises:
        KafkaLogSparkError: as returned by `of_engine`; STORAGE if the disk refused.
    """
    try:
        yield
    except KafkaLogSparkError:
        raise
    except KafkaLogError as error:
        raise of_engine(error, None, **detail) from error
    except OSError as error:
        kind = type(error).__name__
        path = {} if error.filename is None else {"path": str(error.filename)}
        raise KafkaLogSparkError(
            ErrorCode.STORAGE, f"{kind}: {error}", **{"error": kind, **path, **detail}
        ) from error
