"""Damage to logs of magic 0, 1 and 2: one entry is lost, and no other record is served.

CRC-32 covers a message from its magic on; offset and size are not covered. A wrapper whose content
is not compressed has whole messages with good CRCs: they must not be read as entries of the log.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import CorruptRecordError, KafkaLogError, Log, Record
from kafkalog.records.codecs import Codec, compress
from tests.support.damage import forget_shutdown, log_file
from tests.support.logs import manual_log, records_until_error
from tests.support.manual_time import START_MS
from tests.support.old_logs import (
    LOG_KINDS,
    Chapter,
    OldFact,
    chapter,
    chapters_of,
    fact_of,
    facts_of,
    write_chapters,
)
from tests.support.reference_messages import Message, encode_message, encode_messages

FIRST = 40
OFFSET_SIZE = 8
SIZE_END = 12
HEADER_SIZE = 34
# In a batch of v2; no CRC covers it, and no read depends on it.
LEADER_EPOCH = range(12, 16)
EVERY_KIND = pytest.mark.parametrize("kind", LOG_KINDS)


def around(log: Log) -> list[OldFact]:
    """Return the records served by a reader that skips damage."""
    return [fact_of(record) for record in log.records(on_corrupt="skip")]


def until_raised(log: Log) -> tuple[list[OldFact], KafkaLogError | None]:
    """Return the records served up to the first error, and the error."""
    found, error = records_until_error(log)
    return [fact_of(record) for record in found], error


def starts_of(chapters: list[Chapter]) -> list[int]:
    """Return the start of each entry, and the end of the last."""
    starts = [0]
    for each in chapters:
        starts.append(starts[-1] + len(each.data))
    return starts


def flips(magic: int, size: int) -> Iterator[int]:
    """Yield bytes to damage: the header without the leader epoch, some of the rest."""
    for position in (*range(OFFSET_SIZE, min(HEADER_SIZE, size)), *range(HEADER_SIZE, size, 7)):
        if magic < 2 or position not in LEADER_EPOCH:
            yield position


@EVERY_KIND
def test_flipped_bit_after_the_offset_costs_at_most_its_entry(directory: Path, kind: str) -> None:
    """Size, CRC, attributes, time, key, value: other entries are served, damage is reported."""
    chapters = chapters_of(LOG_KINDS[kind], first_offset=FIRST)
    path = write_chapters(directory, chapters)
    data, starts = path.read_bytes(), starts_of(chapters)
    for number, each in enumerate(chapters):
        others = facts_of(chapters[:number] + chapters[number + 1 :])
        for position in flips(each.magic, len(each.data)):
            damaged = bytearray(data)
            damaged[starts[number] + position] ^= 1 << position % 7
            path.write_bytes(damaged)
            with manual_log(directory, read_only=True) as log:
                assert others == around(log), (number, position)
                before, error = until_raised(log)
                assert others[: len(before)] == before
                assert error is not None or log.recovery_report.cut


@EVERY_KIND
def test_flipped_bit_in_an_offset_is_reported_if_contradicted(directory: Path, kind: str) -> None:
    """Every entry but the last, which has no successor: it raises, or all records are right."""
    chapters = chapters_of(LOG_KINDS[kind], first_offset=FIRST)
    path = write_chapters(directory, chapters)
    data, starts = path.read_bytes(), starts_of(chapters)
    facts = facts_of(chapters)
    for number, each in enumerate(chapters[:-1]):
        for bit in (0, 1, 2, 3, 4, 5, 6, 12, 24, 33, 62, 63):
            damaged = bytearray(data)
            damaged[starts[number] + 7 - bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            with manual_log(directory, read_only=True) as log:
                found, error = until_raised(log)
                served = around(log)
                assert sorted({fact[0] for fact in served}) == [fact[0] for fact in served]
            if error is not None or log.recovery_report.cut:
                continue
            # A first wrapper that was moved down contradicts no other entry.
            assert found == facts or (number == 0 and each.magic == 1 and each.codec), (number, bit)


@EVERY_KIND
def test_torn_last_entry_is_truncated_and_not_served(tmp_path: Path, kind: str) -> None:
    """Whole messages inside a torn wrapper are not read as entries of the log."""
    chapters = chapters_of(LOG_KINDS[kind], first_offset=FIRST)
    kept, last = chapters[:-1], chapters[-1]
    start = sum(len(each.data) for each in kept)
    for size in range(1, len(last.data), 1 + len(last.data) // 12):
        directory = tmp_path / f"torn{size}-0"
        torn = Chapter(last.data[:size], last.magic, last.codec, last.facts)
        path = write_chapters(directory, [*kept, torn])
        with manual_log(directory, read_only=True) as log:
            assert facts_of(kept) == around(log)
            assert [start] == [cut.position for cut in log.recovery_report.cut]
        with manual_log(directory) as log:
            assert () == log.recovery_report.corrupt_ranges
            assert last.first_offset == log.append([Record(value=b"new")]).first_offset
        forget_shutdown(directory)
        with manual_log(directory) as log:
            assert () == log.recovery_report.cut
            assert [*facts_of(kept), b"new"] == [*around(log)[:-1], around(log)[-1][4]]
        assert path.read_bytes().startswith(b"".join(each.data for each in kept))


def stored_wrapper(magic: int, first_offset: int, count: int) -> Chapter:
    """Return a wrapper with incompressible messages, which its codec stored unchanged."""
    facts: list[OldFact] = []
    messages = []
    for number in range(count):
        value = struct.pack(">QQ", hash((first_offset, number)) % 2**64, number) * 2
        timestamp = START_MS + number if magic else -1
        offset = first_offset + number
        facts.append((offset, timestamp, 0 if magic else -1, None, value))
        relative = number if magic else offset
        messages.append(Message(relative, magic, 0, timestamp, None, value))
    stored = encode_messages(messages)
    # Snappy as xerial frames it: one block, a literal of all bytes (two bytes of length).
    literal = bytes([len(stored) & 0x7F | 0x80, len(stored) >> 7, 61 << 2])
    literal += (len(stored) - 1).to_bytes(2, "little") + stored
    frame = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(literal)) + literal
    wrapper = Message(
        facts[-1][0], magic, Codec.SNAPPY, max(fact[1] for fact in facts), None, frame
    )
    return Chapter(encode_message(wrapper), magic, Codec.SNAPPY, tuple(facts))


@pytest.mark.parametrize("where", ["middle", "end", "before zeros", "torn"])
@pytest.mark.parametrize("first_offset", [0, FIRST])
@pytest.mark.parametrize("magic", [0, 1])
def test_damaged_wrapper_inner_messages_are_not_entries(
    directory: Path, magic: int, first_offset: int, where: str
) -> None:
    """The lengths of the wrapper give its end, though whole messages are stored raw inside."""
    before = chapter(magic, Codec.NONE, (first_offset,))
    wrapper = stored_wrapper(magic, first_offset + 1, 8)
    behind = chapter(magic, Codec.GZIP, range(first_offset + 9, first_offset + 12))
    whole = {"middle": [before, behind]}.get(where, [before])
    path = write_chapters(directory, [before, wrapper, behind])
    with manual_log(directory, read_only=True) as log:
        assert facts_of([before, wrapper, behind]) == around(log)

    damaged = bytearray(wrapper.data)
    if where == "torn":
        del damaged[-30:]
    else:
        damaged[13] ^= 1  # the CRC
    tail = {"middle": behind.data, "before zeros": bytes(5000)}.get(where, b"")
    path.write_bytes(before.data + bytes(damaged) + tail)
    with manual_log(directory, read_only=True) as log:
        assert facts_of(whole) == around(log)
        assert facts_of([before]) == until_raised(log)[0]
    with manual_log(directory) as log:
        assert facts_of(whole) == around(log)
        assert (where == "middle") == (log.recovery_report.cut == ())


def test_damaged_message_message_in_its_value_is_not_an_entry(
    directory: Path,
) -> None:
    """The values are messages of a copied log with fitting offsets."""
    image = encode_message(Message(FIRST + 5, 1, 0, START_MS, b"image", b"of another log"))
    carrier = encode_message(Message(FIRST, 1, 0, START_MS, None, image * 3))
    behind = chapter(1, Codec.NONE, (FIRST + 1,))
    damaged = bytearray(carrier)
    for position in (12, 13, 14, 15):
        damaged[position] ^= 0xFF
    directory.mkdir()
    for tail in (b"", behind.data):
        log_file(directory, FIRST).write_bytes(bytes(damaged) + tail)
        with manual_log(directory, read_only=True) as log:
            assert ([behind.facts[0]] if tail else []) == around(log)


def wrapper_around(content: bytes, *, offset: int, codec: int = Codec.GZIP) -> bytes:
    """Return a wrapper of magic 1 with a good CRC around any bytes."""
    return encode_message(Message(offset, 1, codec, START_MS, None, content))


def nested(offset: int) -> bytes:
    inner = wrapper_around(
        compress(Codec.GZIP, encode_message(Message(0, 1, 0, START_MS, b"k", b"v"))), offset=0
    )
    return wrapper_around(compress(Codec.GZIP, inner), offset=offset)


HOSTILE = {
    "bomb": wrapper_around(compress(Codec.GZIP, bytes(30_000_000)), offset=FIRST + 4),
    "nested": nested(FIRST + 4),
    "empty": wrapper_around(compress(Codec.GZIP, b""), offset=FIRST + 4),
    "no value": encode_message(Message(FIRST + 4, 1, Codec.GZIP, START_MS, None, None)),
    "garbage": wrapper_around(b"this is no gzip stream", offset=FIRST + 4),
    "zstd": wrapper_around(compress(Codec.ZSTD, b"anything"), offset=FIRST + 4, codec=4),
    "unknown codec": wrapper_around(b"anything", offset=FIRST + 4, codec=6),
    "cut message": wrapper_around(
        compress(Codec.GZIP, encode_message(Message(0, 1, 0, START_MS, b"k", b"v"))[:-3]),
        offset=FIRST + 4,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_wrapper_in_the_middle_raises_or_is_skipped(directory: Path, name: str) -> None:
    """The CRC of the wrapper is right: no corrupt range, and no other record is lost."""
    limit = 1_000_000
    before = chapters_of([(0, Codec.LZ4, 4)], first_offset=FIRST)[0]
    behind = chapters_of([(1, Codec.GZIP, 3), (2, Codec.NONE, 2)], first_offset=FIRST + 5)
    hostile = Chapter(HOSTILE[name], 1, Codec.GZIP, ())
    path = write_chapters(directory, [before, hostile, *behind])
    content = path.read_bytes()
    with manual_log(directory, decompressed_max_bytes=limit) as log:
        assert ((), ()) == (log.recovery_report.corrupt_ranges, log.recovery_report.cut)
        tracemalloc.start()
        found, error = until_raised(log)
        assert facts_of([before, *behind]) == around(log)
        for fact in facts_of([before, *behind]):
            record = log.get(fact[0])
            assert record is not None
            assert fact == fact_of(record)
        try:
            log.read(FIRST + 4).first_offset  # noqa: B018 - decompresses the wrapper
        except KafkaLogError as refused:
            assert str(path) == refused.path
        later = log.offset_for_timestamp(START_MS + FIRST + 6)
        assert later is not None
        assert FIRST + 6 == later.offset
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert before.facts == tuple(found)
    assert error is not None
    assert (str(path), len(before.data)) == (error.path, error.position)
    assert content == path.read_bytes()
    assert peak < 10 * limit


def test_damage_before_a_wrapper_costs_no_record_of_it(directory: Path) -> None:
    """The corrupt range ends where its records begin, not at the offset in its header."""
    chapters = chapters_of(
        [(1, Codec.NONE, 1), (1, Codec.GZIP, 5), (1, Codec.LZ4, 6)], first_offset=FIRST
    )
    path = write_chapters(directory, chapters)
    data = bytearray(path.read_bytes())
    data[len(chapters[0].data) + 20] ^= 1
    path.write_bytes(data)
    with manual_log(directory) as log:
        assert [(FIRST + 1, FIRST + 6)] == [
            (corrupt_range.first_offset, corrupt_range.next_offset)
            for corrupt_range in log.corrupt_ranges()
        ]
        for offset in range(FIRST + 1, FIRST + 6):
            with pytest.raises(CorruptRecordError):
                list(log.read(offset).records())
        for fact in chapters[2].facts:
            assert fact == fact_of(next(log.read(fact[0]).records()))


def test_damage_before_a_bomb_does_not_decompress_it(directory: Path) -> None:
    """The corrupt range ends at the offset of the bomb; recovery uses little memory."""
    first = chapters_of([(1, Codec.NONE, 1), (1, Codec.NONE, 1)], first_offset=FIRST)
    bomb = wrapper_around(compress(Codec.GZIP, bytes(80_000_000)), offset=FIRST + 4)
    path = write_chapters(directory, [*first, Chapter(bomb, 1, Codec.GZIP, ())])
    data = bytearray(path.read_bytes())
    data[len(first[0].data) + 20] ^= 1
    path.write_bytes(data)
    tracemalloc.start()
    with manual_log(directory) as log:
        assert [(FIRST + 1, FIRST + 4)] == [
            (corrupt_range.first_offset, corrupt_range.next_offset)
            for corrupt_range in log.corrupt_ranges()
        ]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000_000


def test_lowered_offset_at_an_index_entry_raises_in_lookups(directory: Path) -> None:
    """A look-up that begins at the entry sees no batch before it."""
    chapters = chapters_of([(1, Codec.GZIP, 5)] * 6, first_offset=FIRST)
    path = write_chapters(directory, chapters)
    with manual_log(directory, index_interval_bytes=0):
        pass
    starts = starts_of(chapters)
    data = bytearray(path.read_bytes())
    lowered = chapters[3]
    data[starts[3] : starts[3] + 8] = (FIRST + 2).to_bytes(8)
    path.write_bytes(data)
    with manual_log(directory, read_only=True) as log:
        assert log.recovery_report.clean
        for fact in lowered.facts:
            with pytest.raises(CorruptRecordError):
                log.get(fact[0])
        for fact in facts_of([*chapters[:3], chapters[5]]):
            record = log.get(fact[0])
            assert record is not None
            assert fact == fact_of(record)


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("number", [0, 3, -3])
@EVERY_KIND
def test_missing_bytes_of_an_entry_cost_that_entry_only(
    kind: str, number: int, sealed: bool, directory: Path
) -> None:
    """HOST-4: its lengths then lead too far, into another entry or after the last."""
    chapters = chapters_of(LOG_KINDS[kind], first_offset=FIRST)
    for missing in (4, 25):
        directory.mkdir(exist_ok=True)
        for path in directory.iterdir():
            path.unlink()
        pieces = [each.data for each in chapters]
        middle = len(pieces[number]) // 2 + 10
        pieces[number] = pieces[number][:middle] + pieces[number][middle + missing :]
        log_file(directory, FIRST).write_bytes(b"".join(pieces))
        end = chapters[-1].last_offset + 1
        if sealed:
            log_file(directory, end).write_bytes(chapter(2, 0, [end]).data)
        with manual_log(directory, read_only=True) as log:
            served = {record.offset for record in log.records(on_corrupt="skip")}
        lost = {fact[0] for fact in chapters[number].facts}
        assert {fact[0] for each in chapters for fact in each.facts} - served == lost, missing


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("magic", [0, 1])
def test_damaged_length_up_to_the_log_end_costs_one_message(
    directory: Path, magic: int, read_only: bool
) -> None:
    """HOST-4: a damaged length may lead to the end of the log, over whole messages."""
    pieces = [bytearray(chapter(magic, 0, [offset]).data) for offset in range(FIRST, FIRST + 4)]
    size = sum(map(len, pieces[1:])) - SIZE_END
    pieces[1][OFFSET_SIZE:SIZE_END] = size.to_bytes(4)
    # The length of the key.
    pieces[1][18 if magic == 0 else 26] ^= 1
    directory.mkdir()
    log_file(directory, FIRST).write_bytes(b"".join(pieces))
    with manual_log(directory, read_only=read_only) as log:
        served = [record.offset for record in log.records(on_corrupt="skip")]
        assert served == [FIRST, FIRST + 2, FIRST + 3]
        assert [(each.first_offset, each.next_offset) for each in log.corrupt_ranges()] == [
            (FIRST + 1, FIRST + 2)
        ]
