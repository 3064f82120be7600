"""The exit statuses of the `kafkalog` command, and how an error becomes one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer

from kafkalog.errors import KafkaLogError

__all__ = ["AILING", "DAMAGE_FOUND", "NOT_DONE", "PROMISE_BROKEN", "told_errors"]

DAMAGE_FOUND: Final = 1
AILING: Final = 1
PROMISE_BROKEN: Final = 1
NOT_DONE: Final = 2


@contextmanager
def told_errors(*others: type[Exception]) -> Iterator[None]:
    """Say what could not be done, and leave with the status for it."""
    kinds: tuple[type[Exception], ...] = (KafkaLogError, *others)
    try:
        yield
    except kinds as error:
        typer.echo(f"kafkalog: {error}", err=True)
        raise typer.Exit(NOT_DONE) from error
