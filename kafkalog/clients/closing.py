"""What a `with` does at its end: close.

Thread-safety: none of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from types import TracebackType

__all__ = ["ClosedByWith"]


class ClosedByWith(AbstractContextManager["ClosedByWith"]):
    """A client that a `with` closes, whatever happened in it."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
