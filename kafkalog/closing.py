"""Base class of context managers that close themselves, and a warning for objects not closed.

Thread-safety: every function may be called from any thread.
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

    As for Python's own files the interpreter's filters decide whether the warning is shown:
    `python -X dev`, or `-W default::ResourceWarning`. A forked child does not warn.

    Args:
        opened: the object.
        name: name of the object in the warning.
        has_written: True if the next opening must recover.
        release: called with the warning; it must not wait, because a garbage collection calls it.

    Returns:
        A function that cancels the warning; the close of the object calls it.
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
    """Base class of objects that a `with` statement closes, also after an error."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
