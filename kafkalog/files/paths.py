"""Paths as callers give them: one path, or several.

Thread-safety: pure functions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from kafkalog.errors import ConfigError

__all__ = ["Paths", "as_paths"]

# One path, or several of them.
Paths = str | PathLike[str] | Iterable[str | PathLike[str]]


def as_paths(paths: Paths) -> tuple[Path, ...]:
    """
    Return absolute paths; a single path stands for itself, not for its letters.

    Raises:
        ConfigError: a path is empty.
        TypeError: something is not a path of text.
    """
    if isinstance(paths, str | bytes | PathLike):
        paths = (os.fspath(paths),)
    found = []
    for each in paths:
        text = os.fspath(each)
        if not isinstance(text, str):
            raise TypeError(f"paths must be text, got {type(text).__name__}: {text!r}")
        if not text:
            raise ConfigError("a path must not be empty")
        found.append(Path(text).absolute())
    return tuple(found)
