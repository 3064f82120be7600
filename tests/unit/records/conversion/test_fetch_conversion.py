"""Tests of replies to old fetches: promised size, chunks, filler, and refusals."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import kafkalog
from kafkalog._core.builder import BatchBuilder
from kafkalog.errors import CorruptRecordError, UnsupportedCodecError
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec, compress
from kafkalog.records.conversion.convert import convert_batches
from kafkalog.records.conversion.fetch import CHUNK_BYTES, ConvertedFetch
from kafkalog.records.conversion.options import ConversionOptions
from tests.support.damage import batch_positions, flip
from tests.support.logs import numbered
from tests.support.reference_conversion import PlainRecord, decode_run, down_convert
from tests.support.reference_messages import Message, encode_set

T = 1_700_000_000_000


def batch(
    offset: int, count: int = 1, size: int = 20, codec: Codec = Codec.NONE, *, control: bool = False
) -> bytes:
    """Return a v2 batch with `count` values of `size` bytes."""
    builder = BatchBuilder()
    for number in range(count):
        builder.append(None, bytes([65 + number % 26]) * size, T + number)
    data = bytes(
        builder.finish(
            base_offset=offset,
            control=control,
            producer_id=1 if control else -1,
            producer_epoch=0 if control else -1,
        )
    )
    return convert_batches(data, 2, codec=codec).data


def fetch(
    batches: Sequence[bytes], *, magic: int = 1, first: int = 0, cut: bytes = b""
) -> ConvertedFetch:
    """Return the answer to a fetch of these batches, and of the truncated batch after them."""
    source = memoryview(b"".join(batches) + cut)
    return ConvertedFetch(
        map(BatchView, batches), source, ConversionOptions(magic, first_offset=first)
    )


def whole_part(data: bytes) -> list[PlainRecord]:
    """Return the records that an old consumer reads: it stops at a truncated message."""
    position = 0
    while position + 12 <= len(data):
        size = 12 + struct.unpack_from(">i", data, position + 8)[0]
        if position + size > len(data):
            break
        position += size
    return [record for one in decode_run(data[:position]) for record in one.records]


def is_filler(data: bytes) -> bool:
    """Return whether bytes are the beginning of a batch that claims more than there is."""
    offset, length = struct.unpack_from(">qi", data)
    return offset == -1 and length >= 61 and length > len(data) - 12 and not any(data[12:])


@pytest.mark.parametrize("magic", [0, 1])
def test_answer_has_the_promised_size_and_the_records(magic: int) -> None:
    """Uncompressed records grow: the excess is truncated."""
    batches = [batch(n * 30, 30) for n in range(4)]
    converted = fetch(batches, magic=magic)
    data = converted.read()
    assert converted.size_bytes == len(data) == sum(map(len, batches))
    expected, _ = down_convert(b"".join(batches), magic, 0)
    assert expected[: len(data)] == data


def test_answer_is_never_smaller_than_its_first_batch() -> None:
    """However much it has grown, the consumer must be able to continue."""
    first = batch(0, 200, 1)
    converted = fetch([first])
    expected, _ = down_convert(first, 1, 0)
    assert len(expected) > len(first)
    assert (len(expected), expected) == (converted.size_bytes, converted.read())


def test_answer_below_the_promised_size_is_filled() -> None:
    """With the beginning of a batch that is longer than the answer."""
    batches = [batch(0, 30), batch(30, 30), batch(60, 1, control=True), batch(61, 1)]
    converted = fetch(batches, first=55)
    data = converted.read()
    assert sum(map(len, batches)) == len(data)
    records = whole_part(data)
    assert [55, 56, 57, 58, 59, 61] == [record.offset for record in records]
    filler = data[len(down_convert(b"".join(batches), 1, 55)[0]) :]
    assert is_filler(filler)
    assert 1 == converted.report.control_batches_dropped


@pytest.mark.parametrize("left", [1, 5, 11, 12, 13, 60])
def test_filler_of_any_size_looks_truncated(left: int) -> None:
    """Even if its length field does not fit."""
    control = batch(1, 1, left + 20, control=True)
    data = [batch(0), control]
    converted = fetch(data)
    answer = converted.read()[: len(down_convert(data[0], 1, 0)[0]) + left]
    assert [0] == [record.offset for record in whole_part(answer)]


def test_answer_without_any_kept_batch_is_the_smallest_filler() -> None:
    """The consumer sees that the slice was not empty."""
    converted = fetch([batch(0, control=True), batch(1, control=True)])
    assert 12 == converted.size_bytes
    assert struct.pack(">qi", -1, 61) == converted.read()


def test_empty_source_is_an_empty_answer() -> None:
    """At the end of the log."""
    converted = fetch([])
    assert (0, b"") == (converted.size_bytes, converted.read())


def test_source_without_a_whole_batch_is_sent_unchanged() -> None:
    """An old consumer learns from it that its fetch size is too small."""
    piece = batch(0)[:40]
    converted = fetch([], cut=piece)
    assert (40, piece) == (converted.size_bytes, converted.read())


def test_truncated_batch_at_the_end_counts_for_the_size() -> None:
    """The promise is the size of the slice."""
    converted = fetch([batch(0)], cut=batch(1)[:70])
    data = converted.read()
    assert len(batch(0)) + 70 == len(data)
    assert [0] == [record.offset for record in whole_part(data)]


def test_chunks_take_up_to_128_kib_of_source_batches_after_the_first() -> None:
    """The first is one batch; a batch that is larger than a chunk is a chunk."""
    sizes = [1000, 60_000, 60_000, 60_000, 200_000, 10]
    batches = [batch(n, 1, size) for n, size in enumerate(sizes)]
    pieces = list(fetch(batches).chunks())
    counts = [len(whole_part(piece)) for piece in pieces[:-1]]
    assert [1, 2, 1, 1, 1] == counts
    assert sum(map(len, batches)) == sum(map(len, pieces))
    assert CHUNK_BYTES == 131_072


def test_batch_of_a_later_chunk_is_not_parsed() -> None:
    """Batches without records or with invalid content are batches like any other."""
    builder = BatchBuilder()
    empty = bytes(builder.finish(base_offset=2, last_offset_delta=3, max_timestamp=T))
    lying = encode_set([Message(6, 1, 1, T, None, compress(Codec.GZIP, bytes(60)))])
    batches = [batch(0), batch(1, 1, CHUNK_BYTES), empty]
    converted = fetch(batches)
    assert [0, 1] == [record.offset for record in whole_part(converted.read())]
    assert 1 == converted.report.empty_batches_dropped
    batches = [batch(0), batch(1, 1, CHUNK_BYTES), lying, batch(7)]
    assert [0, 1] == [record.offset for record in whole_part(fetch(batches, magic=0).read())]


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_in_the_first_chunk_is_refused(magic: int) -> None:
    """Also after batches that were dropped."""
    zstd = batch(1, 40, codec=Codec.ZSTD)
    for batches in ([zstd], [batch(0, control=True), zstd]):
        with pytest.raises(UnsupportedCodecError, match="zstd"):
            fetch(batches, magic=magic)


def test_zstd_after_the_first_chunk_ends_the_data() -> None:
    """The consumer fetches it next, and is refused then."""
    batches = [batch(0), batch(1), batch(2, 40, codec=Codec.ZSTD), batch(50)]
    data = fetch(batches).read()
    assert sum(map(len, batches)) == len(data)
    assert [0, 1] == [record.offset for record in whole_part(data)]


def test_chunks_can_be_read_once() -> None:
    """They are converted during the iteration."""
    converted = fetch([batch(0)])
    converted.read()
    with pytest.raises(ValueError, match="once"):
        converted.read()


# ---- from a log


def test_fetch_of_a_log_is_converted_from_the_requested_offset(tmp_path: Path) -> None:
    """Records before it in the same uncompressed batch are left out."""
    with kafkalog.open_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 20))
        log.append(numbered(20, 20))
        converted = log.read(7).converted(1)
        offsets = [record.offset for record in whole_part(converted.read())]
        assert list(range(7, 7 + len(offsets))) == offsets
        assert 7 == converted.report.records_below_start
        with pytest.raises(ValueError, match="magic must be 0 or 1, got 2"):
            log.read(0).converted(2)
        at_end = log.read(log.log_end_offset).converted(0)
        assert (0, b"") == (at_end.size_bytes, at_end.read())


def damaged_log(directory: Path, batch_number: int) -> Path:
    """Write a log of ten batches, then damage one of them."""
    with kafkalog.open_log(directory) as log:
        for number in range(10):
            log.append(numbered(number * 5, 5))
    path = next(directory.glob("*.log"))
    flip(path, batch_positions(path)[batch_number] + 70)
    return directory


def walk(directory: Path, magic: int) -> Iterator[list[PlainRecord]]:
    """Fetch from offset 0 on as an old consumer does."""
    with kafkalog.open_log(directory, read_only=True) as log:
        offset = 0
        while offset < log.log_end_offset:
            records = whole_part(log.read(offset).converted(magic).read())
            yield records
            offset = records[-1].offset + 1


def test_old_consumer_reads_a_whole_log_by_fetches(tmp_path: Path) -> None:
    """Data truncated from one answer begins the next."""
    with kafkalog.open_log(tmp_path / "orders-0") as log:
        for number in range(10):
            log.append(numbered(number * 50, 50))
        expected = [record.offset for record in log.records()]
    found = [record.offset for records in walk(tmp_path / "orders-0", 0) for record in records]
    assert expected == found


@pytest.mark.parametrize("batch_number", [0, 3])
def test_damage_after_the_first_chunk_is_reported_to_the_next_fetch(
    tmp_path: Path, batch_number: int
) -> None:
    """Whole batches before it are delivered."""
    directory = damaged_log(tmp_path / "orders-0", batch_number)
    offsets: list[int] = []
    with pytest.raises(CorruptRecordError):
        for records in walk(directory, 1):
            offsets += [record.offset for record in records]
    assert list(range(batch_number * 5)) == offsets
