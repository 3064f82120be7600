"""Exit statuses of the `kafkalog` command, and the translation of errors to them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kafkalog.errors import ConfigError, KafkaLogError

__all__ = [
    "EXIT_CHECK_FAILED",
    "EXIT_DAMAGE_FOUND",
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_UNHEALTHY",
    "EXIT_USAGE_ERROR",
    "error_boundary",
    "error_json",
]

EXIT_DAMAGE_FOUND: Final = 1
EXIT_UNHEALTHY: Final = 1
EXIT_CHECK_FAILED: Final = 1
EXIT_USAGE_ERROR: Final = 2
EXIT_FAILED: Final = 3
# As of a shell whose command was ended by SIGINT.
EXIT_INTERRUPTED: Final = 130


@contextmanager
def error_boundary(
    *others: type[Exception], status: int = EXIT_FAILED, as_json: bool = False
) -> Iterator[None]:
    """
    Report an error, and exit with its status.

    Args:
        others: errors to report in addition to those of the library.
        status: of all errors but wrong settings, which exit with EXIT_USAGE_ERROR.
        as_json: True to write the error as a JSON object to standard output too.
    """
    kinds: tuple[type[Exception], ...] = (KafkaLogError, *others)
    try:
        yield
    except kinds as error:
        if as_json:
            sys.stdout.write(error_json(error) + "\n")
        sys.stdout.flush()
        sys.stderr.write(f"kafkalog: {error}\n")
        is_usage = isinstance(error, ConfigError)
        raise SystemExit(EXIT_USAGE_ERROR if is_usage else status) from error


def error_json(error: Exception) -> str:
    """Return an error as a line of JSON."""
    return json.dumps({"error": type(error).__name__, "message": str(error)})
