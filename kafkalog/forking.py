"""Protection of forked children from inherited locks that a thread of the parent may have.

Only the thread that forks continues in the child. A lock that another thread had at that time is
never released, so a thread of the child that acquires it waits for ever. Objects with locks that
are registered here are notified in the child, before it runs other code, and from then on refuse
all calls before they acquire a lock.

Thread-safety: every function may be called from any thread.
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
        """Refuse all calls from now on, with new locks; called in the child by its only thread."""
        ...


_live: Final[WeakSet[Inherited]] = WeakSet()


def refuse_in_children(inherited: Inherited) -> None:
    """Register an object, as long as it lives, for a notification in every child forked later."""
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
            logger.exception("%r could not be notified of a fork", type(inherited))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_notify_inherited)
