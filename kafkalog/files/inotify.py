"""Changes of directories on Linux: events of `inotify`, without a thread and without polling.

The kernel queues an event during the system call that makes the change, so that a reader of the
queue that sees a changed byte finds its event. Changes through a writable mapping, and those of
another machine on a network file system, have no event.

A full queue (`/proc/sys/fs/inotify/max_queued_events`) loses events, and has an event for that. The
number of instances and of watches of a user is limited: `max_user_instances`, `max_user_watches`.

Thread-safety: one thread at a time, `close` when no other call is running. A forked child must not
read: parent and child have one queue.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from kafkalog.files.filesystem import FileEvent

__all__ = ["Inotify", "InotifyFunctions", "open_inotify"]

_Function: TypeAlias = Callable[..., int]

# Of <sys/inotify.h>.
_MODIFY: Final = 0x0000_0002
_MOVED_FROM: Final = 0x0000_0040
_MOVED_TO: Final = 0x0000_0080
_CREATE: Final = 0x0000_0100
_DELETE: Final = 0x0000_0200
_Q_OVERFLOW: Final = 0x0000_4000
_IGNORED: Final = 0x0000_8000
_ONLY_DIRECTORY: Final = 0x0100_0000
_NAMES: Final = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ONLY_DIRECTORY
# Watch, mask, cookie, size of the name; in the order of bytes of the machine.
_EVENT: Final = struct.Struct("=iIII")
_BUFFER_BYTES: Final = 64 * 1024


class InotifyFunctions(NamedTuple):
    """The system calls, which `os` does not have."""

    init: _Function
    add_watch: _Function
    remove_watch: _Function


class Inotify:
    """
    One queue of events.

    Args:
        functions: the system calls.

    Raises:
        OSError: EMFILE if the process or the user has too many.
    """

    def __init__(self, functions: InotifyFunctions) -> None:
        self._functions = functions
        self._descriptor = -1
        self._descriptor = functions.init(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise _last_error("inotify_init1")

    def __del__(self) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def add(self, directory: Path, *, with_writes: bool) -> int:
        """Watch a directory; return the number of the watch."""
        mask = _NAMES | _MODIFY if with_writes else _NAMES
        path = os.fsencode(directory)
        watch: int = self._functions.add_watch(self._descriptor, path, mask)
        if watch < 0:
            raise _last_error(str(directory))
        return watch

    def remove(self, watch: int) -> None:
        """End a watch. Idempotent: the system ends the watch of a removed directory itself."""
        self._functions.remove_watch(self._descriptor, watch)

    def read(self) -> list[FileEvent]:
        """Return the events since the last call, in order."""
        found: list[FileEvent] = []
        while True:
            try:
                data = os.read(self._descriptor, _BUFFER_BYTES)
            except BlockingIOError:
                return found
            position = 0
            while position < len(data):
                watch, mask, _cookie, size = _EVENT.unpack_from(data, position)
                position += _EVENT.size
                name = os.fsdecode(data[position : position + size].rstrip(b"\0"))
                position += size
                if mask & _Q_OVERFLOW:
                    found.append(FileEvent(-1, ""))
                elif mask & _IGNORED:
                    found.append(FileEvent(watch, "", is_removed=True))
                else:
                    found.append(
                        FileEvent(
                            watch,
                            name,
                            is_written=bool(mask & _MODIFY),
                            is_removed=bool(mask & (_MOVED_FROM | _DELETE)),
                        )
                    )
            if len(data) < _BUFFER_BYTES // 2:
                # Few events, and there were no more: another read would only confirm it.
                return found

    def close(self) -> None:
        """Close the queue. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def open_inotify(platform: str = sys.platform) -> Inotify | None:
    """
    Return a queue of events, None where the system has none.

    Raises:
        OSError: EMFILE if the process or the user has too many.
    """
    if platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "inotify_init1"):
        return None
    return Inotify(
        InotifyFunctions(
            _function(library, "inotify_init1", ctypes.c_int),
            _function(library, "inotify_add_watch", ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32),
            _function(library, "inotify_rm_watch", ctypes.c_int, ctypes.c_int),
        )
    )


def _function(library: ctypes.CDLL, name: str, *arguments: Any) -> _Function:
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, *arguments, use_errno=True)
    return prototype((name, library))


def _last_error(name: str) -> OSError:
    number = ctypes.get_errno()
    reasons = {
        errno.ENOSPC: "too many watches (fs.inotify.max_user_watches)",
        errno.EMFILE: "too many inotify instances (fs.inotify.max_user_instances) or open files",
    }
    return OSError(number, reasons.get(number, os.strerror(number)), name)
