"""Tests of fetch replies: their frame, sending, and a reader that tolerates truncated ends."""

from __future__ import annotations

import mmap
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog import (
    CorruptRecordError,
    FetchReader,
    FetchReply,
    FetchTooLargeError,
    KafkaLogError,
    Log,
    MultiFetchReply,
    OffsetOutOfRangeError,
    Record,
)
from kafkalog.fetch import ReceivedReply, parse_multi_reply, parse_reply, receive_reply
from tests.support.damage import batch_positions, flip
from tests.support.logs import manual_log, numbered
from tests.support.old_appends import RELEASES

ERRORS: list[tuple[KafkaLogError | None, int]] = [
    (None, 0),
    (OffsetOutOfRangeError("no"), 1),
    (CorruptRecordError("no"), 2),
    (KafkaLogError("no number"), -1),
]
MESSAGE_SETS = st.binary(max_size=30)


class Sink:
    """A socket that takes `size` bytes with each call, and now and then nothing."""

    def __init__(self, size: int) -> None:
        self.data = b""
        self._size = size
        self._calls = 0

    def send(self, data: Any, flags: int = 0, /) -> int:
        self._calls += 1
        if self._calls % 3 == 0:
            raise BlockingIOError
        self.data += bytes(data[: self._size])
        return min(len(data), self._size)

    def fileno(self) -> int:
        raise AssertionError("not to be asked for")

    def gettimeout(self) -> float | None:
        return 0.0


def sent(reply: FetchReply | MultiFetchReply, size: int = 7) -> bytes:
    """Send a reply over a socket that takes little at a time; return what arrived."""
    sink = Sink(size)
    while reply.left_bytes:
        before = reply.sent_bytes
        count = reply.send_to(sink)
        assert (before + count, len(sink.data)) == (reply.sent_bytes, reply.sent_bytes)
    assert 0 == reply.send_to(sink)
    assert reply.size_bytes == len(sink.data)
    return sink.data


def framed(code: int, body: bytes) -> bytes:
    """Write the frame by hand."""
    return struct.pack(">ih", 2 + len(body), code) + body


def content_of(reply: ReceivedReply) -> tuple[int, bytes]:
    """Return the content of a reply."""
    return reply.error_code, bytes(reply.message_set)


def filled(directory: Path, **changes: Any) -> Log:
    """Return a log of 300 records in batches of ten."""
    log = manual_log(directory, **changes)
    for first in range(0, 300, 10):
        log.append(numbered(first, 10))
    return log


def cut_fetch(log: Log) -> Callable[[int, int], memoryview]:
    """Return fetches that end at the size, as over a network."""
    return lambda offset, size: log.read(offset, size, min_one_batch=False).data


def facts(record: Record) -> tuple[object, ...]:
    """Return the fields that must agree in two copies of a record."""
    return record.offset, record.timestamp_ms, record.key, record.value, record.headers


# --------------------------------------------------------------------------------------- frames


@given(
    st.lists(st.tuples(MESSAGE_SETS, st.sampled_from(ERRORS)), max_size=4),
    st.sampled_from(ERRORS),
    st.integers(1, 20),
)
@settings(max_examples=40)
def test_replies_round_trip_through_their_frame(
    parts: list[tuple[bytes, tuple[KafkaLogError | None, int]]],
    error: tuple[KafkaLogError | None, int],
    size: int,
) -> None:
    """Alone and together, for any number of bytes per call of the socket."""
    singles = [framed(code, body) for body, (_, code) in parts]
    for (body, (each, code)), single in zip(parts, singles, strict=True):
        assert single == sent(FetchReply(body, error=each), size)
        assert (code, body) == content_of(parse_reply(single))
    replies = [FetchReply(body, error=each) for body, (each, _) in parts]
    whole = sent(MultiFetchReply(replies, error=error[0]), size)
    assert framed(error[1], b"".join(singles)) == whole
    expected = [(code, body) for body, (_, code) in parts]
    error_code, found = parse_multi_reply(whole)
    assert (error[1], expected) == (error_code, [content_of(reply) for reply in found])


def test_replies_truncated_or_too_long_are_refused() -> None:
    """At every byte, and with a length that is larger, smaller or impossible."""
    single = framed(0, b"abcdef")
    whole = framed(0, single + framed(1, b""))
    for end in range(len(single)):
        with pytest.raises(CorruptRecordError):
            parse_reply(single[:end])
    for end in range(len(whole)):
        with pytest.raises(CorruptRecordError):
            parse_multi_reply(whole[:end])
    for end in {*range(7, len(whole))} - {6 + len(single)}:
        with pytest.raises(CorruptRecordError):
            # The outer length is right, the content is truncated.
            parse_multi_reply(framed(0, whole[6:end]))
    for length in (-(2**31), -1, 0, 1, 9, 2**31 - 1):
        with pytest.raises(CorruptRecordError):
            parse_reply(struct.pack(">i", length) + single[4:])
    with pytest.raises(CorruptRecordError, match="got 1 more bytes"):
        parse_reply(single + b"x")


def test_reply_in_another_must_not_be_started() -> None:
    """Half of it would be missing."""
    reply = FetchReply(b"x" * 20)
    reply.send_to(Sink(3))
    with pytest.raises(ValueError, match="must not be sent yet"):
        MultiFetchReply([reply])


def test_reply_larger_than_its_length_is_refused(tmp_path: Path) -> None:
    """Before anything is sent; the content is a file without blocks."""
    size = 2**31 - 2
    with (tmp_path / "sparse").open("w+b") as file:
        file.truncate(size)
        with (
            mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content,
            pytest.raises(ValueError, match="at most 2147483647 bytes"),
        ):
            FetchReply(content)


@pytest.fixture(name="directory")
def fixture_directory(tmp_path: Path) -> Path:
    """A partition directory that does not exist yet."""
    return tmp_path / "orders-0"


def test_reply_of_a_converted_slice_is_sent_and_received(directory: Path) -> None:
    """With the announced size, over a blocking connection."""
    source, sink = socket.socketpair()
    with filled(directory) as log, source, sink:
        whole = log.read(0).converted(1).read()
        replies = [FetchReply(log.read(0).converted(1)), FetchReply(log.read(50, 300))]
        MultiFetchReply(replies).send_to(source)
        code, found = parse_multi_reply(receive_reply(sink))
        assert (0, 2) == (code, len(found))
        assert whole == found[0].message_set
        assert log.read(50, 300).data == found[1].message_set
        assert "sent>" in repr(replies[0])


def test_receive_reply_refuses_sizes_and_ends() -> None:
    """A size given by the peer alone allocates no memory."""
    for data, error in (
        (struct.pack(">i", 1), CorruptRecordError),
        (struct.pack(">i", -5), CorruptRecordError),
        (struct.pack(">i", 1000), FetchTooLargeError),
        (framed(0, b"abc")[:-1], EOFError),
        (b"\x00\x00", EOFError),
    ):
        source, sink = socket.socketpair()
        with source, sink:
            source.sendall(data)
            source.close()
            with pytest.raises(error):
                receive_reply(sink, max_bytes=500)


# ---------------------------------------------------------------------------------- the reader


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("compression", ["uncompressed", "gzip"])
@pytest.mark.parametrize("max_bytes", [1, 700, 10**6])
def test_reader_returns_the_records_of_the_log(
    magic: int, compression: str, max_bytes: int, directory: Path
) -> None:
    """Of every format, from any offset, through a buffer that its batches do not fit."""
    version = RELEASES[magic]
    with filled(directory, compression_type=compression, message_format_version=version) as log:
        for start in (0, 137, 299, 300):
            reader = FetchReader(start, max_bytes=max_bytes)
            found = list(reader.records(cut_fetch(log)))
            assert [facts(each) for each in log.records(start)] == [facts(each) for each in found]
            assert 300 == reader.offset
            log.append(numbered(300, 1))
            assert [300] == [each.offset for each in reader.records(cut_fetch(log))]
            log.truncate_to(300)


def test_reader_doubles_its_buffer_up_to_the_limit_and_resets_it(directory: Path) -> None:
    """By the size field, so no more often than needed; then the usual size is requested."""
    sizes: list[int] = []
    with manual_log(directory) as log:
        for size in (10, 5000, 10):
            log.append([Record(value=bytes(size), timestamp_ms=1)])

        def fetch(offset: int, size: int) -> memoryview:
            sizes.append(size)
            return cut_fetch(log)(offset, size)

        reader = FetchReader(0, max_bytes=100, limit_bytes=6000)
        assert [0, 1, 2] == [each.base_offset for each in reader.batches(fetch)]
        assert [100, 100, 6000, 100] == sizes
        sizes.clear()
        reader = FetchReader(0, max_bytes=5, limit_bytes=200)
        with pytest.raises(
            FetchTooLargeError, match="at most 200 bytes, got at least 5070"
        ) as caught:
            list(reader.batches(fetch))
        # Five bytes do not hold the size, and twice ten do: from there it is known.
        assert [5, 20, 80] == sizes[:3]
        assert (1, 1) == (caught.value.base_offset, reader.offset)


def test_reader_refuses_damage_and_fetches_without_progress(directory: Path) -> None:
    """A wrong checksum, an impossible size, batches below the requested offset."""
    with filled(directory) as log:
        positions = batch_positions(log.segments()[0].path)
        data = bytes(log.read(0).data)
        flipped = bytearray(data)
        flipped[positions[1] + 70] ^= 1
        with pytest.raises(CorruptRecordError):
            FetchReader(0).read(flipped)
        with pytest.raises(CorruptRecordError, match="size of a batch must be >= 0, got -1"):
            FetchReader(0).read(struct.pack(">qi", 0, -1) + data)
        with pytest.raises(CorruptRecordError, match="must end above the requested offset 20"):
            FetchReader(20).read(data[: positions[2]])
        # A size raised by damage is requested, and not found.
        flip(log.segments()[0].path, 9, 1)
        with pytest.raises(FetchTooLargeError):
            list(
                FetchReader(0, max_bytes=2000, limit_bytes=4000).batches(lambda *_: log_bytes(log))
            )


def log_bytes(log: Log) -> bytes:
    """Return the file as it is, with its damage."""
    return log.segments()[0].path.read_bytes()


@pytest.mark.parametrize(("size", "limit"), [(0, 5), (6, 5), (-1, 5)])
def test_reader_invalid_sizes_raise(size: int, limit: int) -> None:
    """No batch could be read with them."""
    with pytest.raises(ValueError, match="max_bytes"):
        FetchReader(0, max_bytes=size, limit_bytes=limit)
