"""Sending of bytes of files and of memory to a socket: by `sendfile`, or by `send` in pieces.

The socket belongs to the caller, and its errors pass unchanged. The mode of the socket decides when
a send ends. A blocking socket gets everything. A socket with a timeout gets everything, or
TimeoutError is raised once it has accepted nothing for that time. A non-blocking socket gets the
bytes that it accepts now; the result is their number.

`sendfile` is used for plain sockets only: a TLS socket, which encrypts the bytes, and an object
that merely resembles a socket get the bytes through `send`.

Thread-safety: no state; two threads must not send to one socket at the same time.
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

# Errors of `sendfile` for a file, a socket or a system that it does not support.
_REFUSED: Final = frozenset(
    getattr(errno, name)
    for name in ("EINVAL", "ENOSYS", "EOPNOTSUPP", "ENOTSUP", "ENOTSOCK", "ESPIPE")
    if hasattr(errno, name)
)
# One call moves at most 2 GiB on Linux; a smaller one lets signals in between.
_CALL_BYTES: Final = 1 << 30
_MORE: Final = getattr(sockets, "MSG_MORE", 0)
# TLS makes records of 16 KiB; larger pieces only make it keep its lock for longer.
_PIECE_BYTES: Final = 256 * 1024


class SocketLike(Protocol):
    """The sending half of a socket."""

    def send(self, data: Buffer, flags: int = ..., /) -> int: ...
    def fileno(self) -> int: ...
    def gettimeout(self) -> float | None: ...


class SendfileRefusedError(OSError):
    """This file or socket does not support `sendfile`; the call that raises it sent nothing."""


def can_sendfile(target: SocketLike) -> bool:
    """Return whether `sendfile` may write to the socket's descriptor directly."""
    return isinstance(target, sockets.socket) and not _is_tls(target) and hasattr(os, "sendfile")


def send_file(target: SocketLike, handle: FileHandle, position: int, size: int) -> int:
    """
    Send `size` bytes of a file from `position` on; they never enter this process.

    The handle must stay open until this returns.

    Returns:
        Number of bytes sent; fewer than `size` only if a non-blocking socket accepts no more.

    Raises:
        SendfileRefusedError: before the first byte; send from memory instead.
        EOFError: the file is shorter.
        TimeoutError, OSError: raised by the socket.
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
        more: True if more bytes follow at once; the system may wait to send both together.

    Returns:
        Number of bytes sent; fewer than all only if a non-blocking socket accepts no more.

    Raises:
        LogStorageError: the bytes are mapped, and the disk does not return them.
        TimeoutError, OSError: raised by the socket.
    """
    flags = _MORE if more and can_sendfile(target) else 0
    sent = 0
    while sent < len(data):
        piece = data[sent : sent + _PIECE_BYTES]
        # TLS would send zeros for bytes that a mapping has lost.
        check_bytes(piece, touch=True)
        try:
            # TLS accepts no flags, not even 0.
            sent += target.send(piece, flags) if flags else target.send(piece)
        except BlockingIOError:
            return sent
        except OSError as error:
            if _tls_waits(error):
                return sent
            raise
    return sent


def _wait_until_writable(target: SocketLike, timeout: float) -> None:
    # Not select: it does not support descriptors above 1023.
    poll = select.poll()
    poll.register(target.fileno(), select.POLLOUT)
    if not poll.poll(timeout * 1000):
        raise TimeoutError(f"the socket took nothing for {timeout} seconds")


def _is_tls(target: object) -> bool:
    # A caller with a TLS socket has imported the module; other callers save the import.
    ssl = sys.modules.get("ssl")
    return ssl is not None and isinstance(target, ssl.SSLSocket)


def _tls_waits(error: OSError) -> bool:
    ssl = sys.modules.get("ssl")
    return ssl is not None and isinstance(error, (ssl.SSLWantWriteError, ssl.SSLWantReadError))
