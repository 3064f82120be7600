"""What a forked child inherits and must not use: locks that a thread of its parent may hold.

Only the thread that forks goes on in the child. A lock that another one held then is never let go,
so whoever takes it there waits for ever. Objects with locks that are entered here are told in the
child, before it runs anything else, and refuse from then on before they take one.

Thread-safety: every function from any thread.
"""

from __future__ import annotations

import logging
import os
from typing import Final, Protocol
from weakref import WeakSet

from kafkalog.errors import ForkedLogError

__all__ = ["Inherited", "forked_error", "refuse_in_children"]

logger = logging.getLogger(__name__)


class Inherited(Protocol):
    """An object that refuses to work in a forked child."""

    def become_inherited(self) -> None:
        """Refuse from now on, with fresh locks; called in the child by the thread that forked."""
        ...


_live: Final[WeakSet[Inherited]] = WeakSet()


def refuse_in_children(inherited: Inherited) -> None:
    """Have an object told in every child that is forked from now on, for as long as it lives."""
    _live.add(inherited)


def forked_error(what: object) -> ForkedLogError:
    """Return the error of an object that a forked child has inherited."""
    return ForkedLogError(
        f"{what} belongs to the process that this one ({os.getpid()}) was forked from:"
        " open the data directory here, in the child alone, and make another"
    )


def _notify_inherited() -> None:
    for inherited in list(_live):
        try:
            inherited.become_inherited()
        except Exception:
            logger.exception("%r was not told of a fork", type(inherited))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_notify_inherited)
