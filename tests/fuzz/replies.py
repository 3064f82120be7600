"""Responses to a fetch: frames with a wrong size, and message sets cut and damaged."""

from __future__ import annotations

import struct
from itertools import pairwise

from kafkalog.errors import CorruptRecordError, FetchTooLargeError, KafkaLogError
from kafkalog.fetch import FetchReader, parse_multi_reply, parse_reply, receive_reply
from tests.fuzz.inputs import Choices, mended
from tests.support import reference

__all__ = ["parse_replies", "read_replies"]

HEAD = struct.Struct(">ih")


class Connection:
    """A socket that returns bytes in parts of one size and then ends."""

    def __init__(self, data: bytes, piece: int) -> None:
        self._data = data
        self._piece = piece

    def recv_into(self, target: memoryview) -> int:
        """Fill a part of the target."""
        part = self._data[: min(self._piece, len(target))]
        target[: len(part)] = part
        self._data = self._data[len(part) :]
        return len(part)


def parse_replies(data: bytes) -> None:
    """Frames: each accepted response has exactly the bytes of a frame."""
    choices = Choices(data)
    piece, reply = 1 + choices.byte(), choices.rest
    try:
        code, message_set = parse_reply(reply)
    except CorruptRecordError:
        assert len(reply) < HEAD.size or HEAD.unpack_from(reply)[0] + 4 != len(reply)
    else:
        assert reply == HEAD.pack(2 + len(message_set), code) + bytes(message_set)
    try:
        code, replies = parse_multi_reply(reply)
    except CorruptRecordError:
        pass
    else:
        inside = b"".join(
            HEAD.pack(2 + len(each.message_set), each.error_code) + bytes(each.message_set)
            for each in replies
        )
        assert reply == HEAD.pack(2 + len(inside), code) + inside
    connection = Connection(reply, piece)
    try:
        received = receive_reply(connection, max_bytes=1 << 16)  # type: ignore[arg-type]
    except (CorruptRecordError, FetchTooLargeError, EOFError):
        return
    assert reply[: len(received)] == bytes(received)
    parse_reply(received)


def read_replies(data: bytes) -> None:
    """
    A reader of a server with any bytes as a log: its batches equal the reference's.

    The server responds with the bytes from the first batch that ends at or after the requested
    offset, up to the requested size, which may cut a batch.
    """
    choices = Choices(data)
    (mends,) = choices.flags(1)
    size = 1 + choices.byte()
    start = choices.number(choices.one_of([1, 8])) & 2**63 - 1
    log = mended(choices.rest) if mends else choices.rest
    walk = reference.scan_batches(log, check_crc=False, check_order=False)
    places = [(position, header.last_offset) for position, header in walk.batches]
    reader = FetchReader(
        start, max_bytes=size, limit_bytes=4 * size, decompressed_max_bytes=1 << 20
    )
    taken: list[bytes] = []

    def serve(offset: int, max_bytes: int) -> bytes:
        """Return the bytes of a fetch; the part after the last batch starts at its first byte."""
        position = next((at for at, last in places if last >= offset), walk.position)
        return log[position : position + max_bytes]

    try:
        for batch in reader.batches(serve):
            data = bytes(batch.data)
            assert "OK" == reference.check_batch(data)
            taken.append(data)
    except KafkaLogError:
        # Damage, a batch beyond the limit, or offsets that do not rise.
        whole = reference.scan_batches(log)
        assert "OK" != whole.status or any(h.size_bytes > 4 * size for _, h in whole.batches)
        return
    assert all(batch in log for batch in taken)
    assert reader.offset >= start
    if all(before[1] < after[1] for before, after in pairwise(places)):
        # No batch after the first one is skipped or returned twice. If offsets fall, the server
        # does not find a batch after the end of a fetch.
        assert b"".join(taken) in log
