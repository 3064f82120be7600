"""Report of failures and damage of an everyday verb, and the exit status that results.

With JSON, each is an object on standard output too, so that a program reads one stream.

Thread-safety: one caller at a time.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from kafkalog.cli.exits import EXIT_DAMAGE_FOUND, EXIT_FAILED, error_json
from kafkalog.errors import KafkaLogError

__all__ = ["Report"]

# Lines of damage as text; the rest is a number.
_LINES_MAX: Final = 20


class Report:
    """
    Failures and damage so far.

    Args:
        verb: name of the verb, before each line.
        as_json: True to write each as a JSON object to standard output, too.
    """

    def __init__(self, verb: str, *, as_json: bool) -> None:
        self._verb = verb
        self._as_json = as_json
        self._damages = 0
        self._has_failed = False

    @property
    def status(self) -> int:
        """Exit status: 3 after a failure, 1 after damage, else 0."""
        if self._has_failed:
            return EXIT_FAILED
        return EXIT_DAMAGE_FOUND if self._damages else 0

    def add_failure(self, error: KafkaLogError) -> None:
        """Report that a path could not be read; the verb continues with the next."""
        self._has_failed = True
        if self._as_json:
            sys.stdout.write(error_json(error) + "\n")
        self._write(str(error))

    def add_damage(self, text: str, **fields: Any) -> None:
        """Report damage: a line for people, and the fields of its JSON object."""
        self._damages += 1
        if self._as_json:
            sys.stdout.write(json.dumps({"kind": "damage", **fields}, separators=(",", ":")) + "\n")
        if self._damages <= _LINES_MAX:
            self._write(f"damage: {text}")

    def finish(self) -> int:
        """Report the number of the damages without a line; return the exit status."""
        if self._damages > _LINES_MAX:
            self._write(f"... and {self._damages - _LINES_MAX:,} more; --json has all")
        return self.status

    def _write(self, line: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(f"kafkalog {self._verb}: {line}\n")
