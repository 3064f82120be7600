"""Object that is being opened: to be awaited, or entered by `async with`.

Thread-safety: none; it belongs to one task.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["PendingOpen"]


class _Closable(Protocol):
    async def aclose(self) -> None:
        """Close the object."""
        ...


T = TypeVar("T", bound=_Closable)


class PendingOpen(Generic[T]):
    """
    Result of `open_manager` and `open_log`.

    Args:
        open_object: opens the object.
    """

    def __init__(self, open_object: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._open_object = open_object
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._open_object().__await__()

    async def __aenter__(self) -> T:
        self._opened = opened = await self._open_object()
        return opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.aclose()
