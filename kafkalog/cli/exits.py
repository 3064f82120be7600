"""The exit statuses of the `kafkalog` command, and how an error becomes one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer

from kafkalog.errors import ConfigError, KafkaLogError

__all__ = ["AILING", "DAMAGE_FOUND", "NOT_DONE", "PROMISE_BROKEN", "WRONG_USAGE", "told_errors"]

DAMAGE_FOUND: Final = 1
AILING: Final = 1
PROMISE_BROKEN: Final = 1
WRONG_USAGE: Final = 2
NOT_DONE: Final = 3


@contextmanager
def told_errors(
    *others: type[Exception], status: int = NOT_DONE, as_json: bool = False
) -> Iterator[None]:
    """
    Report what could not be done, and leave with the status for it.

    Args:
        others: errors to report beside those of the library.
        status: of all errors but wrong settings, which are of usage.
        as_json: whether a JSON object says it on standard output too, as results are.
    """
    kinds: tuple[type[Exception], ...] = (KafkaLogError, *others)
    try:
        yield
    except kinds as error:
        if as_json:
            typer.echo(json.dumps({"error": type(error).__name__, "message": str(error)}))
        typer.echo(f"kafkalog: {error}", err=True)
        is_usage = isinstance(error, ConfigError)
        raise typer.Exit(WRONG_USAGE if is_usage else status) from error
