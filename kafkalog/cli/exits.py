"""Exit statuses of the `kafkalog` command, and the translation of errors to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer

from kafkalog.errors import ConfigError, KafkaLogError

__all__ = [
    "EXIT_CHECK_FAILED",
    "EXIT_DAMAGE_FOUND",
    "EXIT_FAILED",
    "EXIT_UNHEALTHY",
    "EXIT_USAGE_ERROR",
    "error_boundary",
]

EXIT_DAMAGE_FOUND: Final = 1
EXIT_UNHEALTHY: Final = 1
EXIT_CHECK_FAILED: Final = 1
EXIT_USAGE_ERROR: Final = 2
EXIT_FAILED: Final = 3


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
            typer.echo(json.dumps({"error": type(error).__name__, "message": str(error)}))
        typer.echo(f"kafkalog: {error}", err=True)
        is_usage = isinstance(error, ConfigError)
        raise typer.Exit(EXIT_USAGE_ERROR if is_usage else status) from error
