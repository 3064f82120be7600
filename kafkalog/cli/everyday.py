"""The everyday verbs, which start without typer and rich.

Each is a module with a function `run(arguments) -> exit status` and its own parser. The typer
application lists them in its help.

Thread-safety: one caller at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from kafkalog.cli.exits import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE_ERROR, error_json
from kafkalog.errors import ConfigError, KafkaLogError

__all__ = ["VERBS", "run_verb"]

# Verb -> its line in the help.
VERBS: Final = {
    "ls": "List partitions: size, segments, offsets, times, codec, epoch, settings, health.",
    "cat": "Print records of a range of offsets or times, as text, hex, base64 or JSON.",
    "tail": "Print the last records; with -f also those that are appended.",
    "grep": "Print records whose key, value or header has a text or matches a pattern.",
}


def run_verb(verb: str, arguments: Sequence[str]) -> int:
    """Run an everyday verb; return its exit status. An error is reported, as JSON with --json."""
    try:
        status: int = import_module(f"kafkalog.cli.{verb}.command").run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except KafkaLogError as error:
        if "--json" in arguments:
            sys.stdout.write(error_json(error) + "\n")
        sys.stdout.flush()
        sys.stderr.write(f"kafkalog {verb}: {error}\n")
        return EXIT_USAGE_ERROR if isinstance(error, ConfigError) else EXIT_FAILED
    return status
