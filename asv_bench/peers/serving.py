"""Goal P15: a log's segments to a socket, against a bare loop of `os.sendfile` over the same files.

    python -m asv_bench.peers.serving [--quick]

Both sides send the same bytes in the same pieces over one TCP connection of the loopback, at whose
other end a separate process reads them into memory. Ours does the work of a server: `Log.read` at
the requested offset, `FetchData.send_to`. The bare loop needs no look-up: it knows each file and
each position. A framed reply has six bytes first, which cost the kernel more than us: its peer
sends six bytes as well. Files are in the page cache.

By the wall clock, as is right for what waits for the other end, and by the thread's CPU clock,
where all that we add is seen: the kernel copies nothing on this side.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import kafkalog
from asv_bench.peers.common import Comparison, Goal, make_records
from asv_bench.peers.stores import Workspace, fill_log, run_in_workspace
from kafkalog.fetch import FetchReply

VALUE_BYTES = 1024
BATCH_BYTES = 16 * 1024
SEGMENT_BYTES = 64 << 20
TOTAL_BYTES, TOTAL_BYTES_QUICK = 512 << 20, 128 << 20
PIECE_BYTES = (1 << 20, 64 << 10)
ROOM_BYTES = 1 << 20

Case = Callable[[], object]
# A slice of a log: offset, file, position in it, size.
SentRange = tuple[int, int, int, int]


def receive(listener: socket.socket) -> None:
    """Read what comes over the first connection, to its end."""
    connection, _ = listener.accept()
    listener.close()
    room = bytearray(ROOM_BYTES)
    while connection.recv_into(room):
        pass


@contextmanager
def connected() -> Iterator[socket.socket]:
    """Return a connection to a process that reads all that it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = multiprocessing.get_context("fork").Process(target=receive, args=(listener,))
        process.start()
        connection = socket.create_connection(listener.getsockname())
    try:
        yield connection
    finally:
        connection.close()
        process.join()


def pieces(log: kafkalog.Log, piece_bytes: int) -> list[SentRange]:
    """Return the position of each piece of the log, as `Log.read` cuts it."""
    files: dict[str, int] = {}
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.read(offset, piece_bytes)
        path = str(fetched.path)
        if path not in files:
            files[path] = os.open(path, os.O_RDONLY)
        found.append((offset, files[path], fetched.position, fetched.size_bytes))
        offset = fetched.next_offset
    return found


def bare_case(connection: socket.socket, found: list[SentRange], head: bytes = b"") -> Case:
    """Return a case: a head, if there is one, and `os.sendfile` until each piece is sent."""
    target = connection.fileno()

    def case() -> None:
        for _, source, position, size in found:
            if head:
                connection.send(head, socket.MSG_MORE)
            while size:
                sent = os.sendfile(target, source, position, size)
                position, size = position + sent, size - sent

    return case


def send_case(
    log: kafkalog.Log, connection: socket.socket, found: list[SentRange], piece_bytes: int
) -> Case:
    """Return a case: read and send at the requested offsets."""

    def case() -> None:
        for offset, *_ in found:
            log.read(offset, piece_bytes).send_to(connection)

    return case


def reply_case(
    log: kafkalog.Log, connection: socket.socket, found: list[SentRange], piece_bytes: int
) -> Case:
    """Return a case: the same in frames."""

    def case() -> None:
        for offset, *_ in found:
            FetchReply(log.read(offset, piece_bytes)).send_to(connection)

    return case


def comparisons(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield the comparison for each size of piece, by either clock."""
    total = TOTAL_BYTES_QUICK if quick else TOTAL_BYTES
    records = make_records(total // VALUE_BYTES, VALUE_BYTES)
    with (
        fill_log(workspace.fresh(), records, BATCH_BYTES, segment_bytes=SEGMENT_BYTES) as log,
        connected() as connection,
    ):
        for piece_bytes in PIECE_BYTES:
            found = pieces(log, piece_bytes)
            cases = {
                "sendfile": bare_case(connection, found),
                "head": bare_case(connection, found, b"framed"),
                "send_to": send_case(log, connection, found, piece_bytes),
                "reply": reply_case(log, connection, found, piece_bytes),
            }
            for clock, words in ((time.perf_counter, "wall"), (time.thread_time, "CPU")):
                # Default limit of `Log.read`; a look-up costs as much as half of a piece of 64 KiB.
                is_goal = piece_bytes == 1 << 20 and words == "wall"
                what = "P15 segment to socket" if is_goal else "segment to socket"
                yield Comparison(
                    f"{piece_bytes // 1024} KiB a read, {words}",
                    sum(size for *_, size in found) // 1024,
                    cases,
                    [
                        Goal(f"{what} / bare sendfile", "send_to", "sendfile", 0.9 * is_goal),
                        Goal("framed reply / bare send, sendfile", "reply", "head", 0),
                    ],
                    clock=clock,
                    unit="KiB",
                )
            for source in {source for _, source, _, _ in found}:
                os.close(source)


if __name__ == "__main__":
    sys.exit(run_in_workspace(sys.argv[1:], comparisons))
