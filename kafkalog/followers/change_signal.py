"""Wait of a follower: for events of the disk, and for a call from another thread.

One descriptor is readable if either is there, so that an event loop can watch it.

Thread-safety: `wake` from any thread, and from a signal handler; the rest from one thread at a
time. `close` when no other call is running.
"""

from __future__ import annotations

import contextlib
import os
import select

from kafkalog.files.filesystem import FileNotifications

__all__ = ["ChangeSignal"]

_WAIT_MAX_MS = 2**31 - 1


class ChangeSignal:
    """
    Waits for events or a wake-up.

    Args:
        notifications: the events; None for wake-ups only.

    Raises:
        OSError: the process has too many open files.
    """

    def __init__(self, notifications: FileNotifications | None) -> None:
        self._wake_reader = self._wake_writer = -1
        # A pipe and not an eventfd, which other systems lack.
        self._epoll: select.epoll | None = None
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        try:
            if notifications is not None:
                self._epoll = select.epoll()
                self._epoll.register(notifications.fileno(), select.EPOLLIN)
                self._epoll.register(self._wake_reader, select.EPOLLIN)
        except OSError:
            self.close()
            raise

    def __del__(self) -> None:
        self.close()

    def fileno(self) -> int:
        """Return a descriptor that is readable while there are events or a wake-up."""
        return self._wake_reader if self._epoll is None else self._epoll.fileno()

    def wait(self, seconds: float) -> None:
        """Return once there are events or a wake-up, or after a time."""
        if self._epoll is not None:
            self._epoll.poll(min(seconds, _WAIT_MAX_MS / 1000))
        else:
            poll = select.poll()
            poll.register(self._wake_reader, select.POLLIN)
            poll.poll(min(seconds * 1000, _WAIT_MAX_MS))

    def wake(self) -> None:
        """End the current or the next wait; from any thread."""
        # Full: there is a wake-up already. Closed: no thread waits any more.
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_writer, b"\0")

    def clear(self) -> None:
        """Remove wake-ups, so that the next wait waits."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_reader, 4096)

    def stop_events(self, notifications: FileNotifications) -> None:
        """Wait for wake-ups only from now on."""
        if self._epoll is not None:
            self._epoll.unregister(notifications.fileno())

    def close(self) -> None:
        """Close the descriptors. Idempotent."""
        if self._epoll is not None:
            self._epoll.close()
        reader, self._wake_reader = self._wake_reader, -1
        writer, self._wake_writer = self._wake_writer, -1
        for descriptor in (reader, writer):
            if descriptor >= 0:
                os.close(descriptor)
