"""Bytes of files and of memory to a socket: by `sendfile`, or piece by piece where that is refused.

The socket is the caller's, and so are its errors: they pass as they are. What stops a send is the
socket's own kind of waiting. A blocking one gets everything; one with a timeout gets everything, or
TimeoutError once it has taken nothing for so long; a non-blocking one gets what it takes now, and
the number says how much that was.

Only a plain socket may be bypassed: what TLS is to encrypt, or an object that merely looks like a
socket, gets its bytes through `send`.

Thread-safety: no state; two threads must not send to one socket at a time.
"""

from __future__ import annotations

import errno
import os
import select
import socket as sockets
import sys
from typing import Final, Protocol

from typing_extensions import Buffer

from kafkalog._core.mapping import check_bytes
from kafkalog.files.filesystem import FileHandle

__all__ = ["SendfileRefusedError", "SocketLike", "can_sendfile", "send_file", "send_memory"]

# What `sendfile` says of a file, a socket or a system that it does not work on.
_REFUSED: Final = frozenset(
    getattr(errno, name)
    for name in ("EINVAL", "ENOSYS", "EOPNOTSUPP", "ENOTSUP", "ENOTSOCK", "ESPIPE")
    if hasattr(errno, name)
)
# One call moves at most 2 GiB on Linux; a smaller one lets signals in between.
_CALL_BYTES: Final = 1 << 30
_MORE: Final = getattr(sockets, "MSG_MORE", 0)
# TLS makes records of 16 KiB; more at once only makes it hold the lock for longer.
_PIECE_BYTES: Final = 256 * 1024


class SocketLike(Protocol):
    """What has the sending half of a socket."""

    def send(self, data: Buffer, flags: int = ..., /) -> int: ...
    def fileno(self) -> int: ...
    def gettimeout(self) -> float | None: ...


class SendfileRefusedError(OSError):
    """This file or this socket takes no `sendfile`; nothing was sent by the call that raises it."""


def can_sendfile(target: SocketLike) -> bool:
    """Say whether bytes may go to the socket's descriptor past the object."""
    return isinstance(target, sockets.socket) and not _is_tls(target) and hasattr(os, "sendfile")


def send_file(target: SocketLike, handle: FileHandle, position: int, size: int) -> int:
    """
    Send `size` bytes of a file from `position` on; they never enter this process.

    The handle must be one that nobody closes meanwhile.

    Returns:
        How many went; fewer than `size` only where a non-blocking socket takes no more.

    Raises:
        SendfileRefusedError: before the first byte; send from memory instead.
        EOFError: the file ends before.
        TimeoutError, OSError: as the socket has it.
    """
    timeout = target.gettimeout()
    try:
        source = handle.fileno()
    except OSError as error:
        raise SendfileRefusedError(error.errno, f"{handle.path} has no descriptor") from error
    sent = 0
    while sent < size:
        try:
            count = os.sendfile(
                target.fileno(), source, position + sent, min(size - sent, _CALL_BYTES)
            )
        except BlockingIOError:
            if not timeout:
                return sent
            _wait_until_writable(target, timeout)
            continue
        except OSError as error:
            if error.errno in _REFUSED and not sent:
                raise SendfileRefusedError(error.errno, error.strerror) from error
            raise
        if count == 0:
            raise EOFError(f"{handle.path} ends at {position + sent}, {size - sent} bytes short")
        sent += count
    return sent


def send_memory(target: SocketLike, data: memoryview, *, more: bool = False) -> int:
    """
    Send bytes of memory.

    Args:
        target: the socket.
        data: the bytes.
        more: whether others follow at once; the system may wait to send both together.

    Returns:
        How many went; fewer than all only where a non-blocking socket takes no more.

    Raises:
        LogStorageError: the bytes are mapped, and the disk does not give them.
        TimeoutError, OSError: as the socket has it.
    """
    flags = _MORE if more and can_sendfile(target) else 0
    sent = 0
    while sent < len(data):
        piece = data[sent : sent + _PIECE_BYTES]
        # What TLS reads of a mapping that has lost it would go out as zeros.
        check_bytes(piece, touch=True)
        try:
            # TLS takes no flags, not even none.
            sent += target.send(piece, flags) if flags else target.send(piece)
        except BlockingIOError:
            return sent
        except OSError as error:
            if _tls_waits(error):
                return sent
            raise
    return sent


def _wait_until_writable(target: SocketLike, timeout: float) -> None:
    # Not select: it knows no descriptors above 1023.
    poll = select.poll()
    poll.register(target.fileno(), select.POLLOUT)
    if not poll.poll(timeout * 1000):
        raise TimeoutError(f"the socket took nothing for {timeout} seconds")


def _is_tls(target: object) -> bool:
    # Whoever has such a socket has loaded the module; who has not is spared it.
    ssl = sys.modules.get("ssl")
    return ssl is not None and isinstance(target, ssl.SSLSocket)


def _tls_waits(error: OSError) -> bool:
    ssl = sys.modules.get("ssl")
    return ssl is not None and isinstance(error, (ssl.SSLWantWriteError, ssl.SSLWantReadError))
