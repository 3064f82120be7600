"""What a `with` does at its end, and what is said where a program forgets it.

Thread-safety: every function from any thread.
"""

from __future__ import annotations

import os
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

__all__ = ["ClosingContextManager", "warn_unless_closed"]


def warn_unless_closed(
    opened: object,
    name: str,
    *,
    has_written: bool = True,
    release: Callable[[], object] | None = None,
) -> Callable[[], object]:
    """
    Issue a ResourceWarning when an object is dropped, or the program ends, before it is closed.

    As for Python's own files the warning is shown where the interpreter's filters say so:
    `python -X dev`, or `-W default::ResourceWarning`. A forked child does not warn.

    Args:
        opened: the object.
        name: what the warning calls it.
        has_written: whether the next opening has something to recover.
        release: called with the warning; it must not wait, for a garbage collection calls it.

    Returns:
        What the close of the object calls: from then on there is no warning.
    """
    cost = "the next opening has to recover it; " if has_written else ""
    message = f"unclosed {name}: {cost}close it, or use `with`"
    return weakref.finalize(opened, _warn, message, os.getpid(), release).detach


def _warn(message: str, process: int, release: Callable[[], object] | None) -> None:
    if os.getpid() != process:
        return
    if release is not None:
        release()
    warnings.warn(message, ResourceWarning, stacklevel=1)


class ClosingContextManager(ABC):
    """Something that a `with` closes, whatever happened in it."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
