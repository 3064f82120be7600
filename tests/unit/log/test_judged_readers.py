"""Range readers and followers accept the batches that an open log accepts.

Tasks of Spark read ranges of files, followers read while a writer appends: if a base offset is
wrong, both serve what `Log.records` serves.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from kafkalog import Log
from kafkalog.errors import OffsetOutOfRangeError
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.log import partition_of
from kafkalog.log.ranges.damage import Damage
from kafkalog.log.ranges.reader import RangeOptions, RangeReader
from kafkalog.log.scan.options import make_options
from kafkalog.log.scan.rows import RowReader
from kafkalog.model import TopicPartition
from kafkalog.records.codecs import Codec
from kafkalog.spark.plan.log_files import find_log_end
from kafkalog.state.checkpoints import OffsetCheckpoint
from tests.support.damage import log_file
from tests.support.logs import manual_log
from tests.support.old_logs import LOG_KINDS, Chapter, chapter, chapters_of

FIRST = 40
PARTITION = TopicPartition("orders", 0)
EVERY_KIND = pytest.mark.parametrize("kind", LOG_KINDS)
# The known facts about the end of a segment: none, the base of the next segment, a clean stop, or
# the recovery point.
ENDS = ("open", "sealed", "clean", "durable")


def write_log(directory: Path, chapters: list[Chapter], data: bytes, end: str) -> None:
    """Write a segment, and the facts about its end."""
    directory.mkdir(exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    log_file(directory, FIRST).write_bytes(data)
    end_offset = chapters[-1].last_offset + 1
    disk = PosixFileSystem()
    if end == "sealed":
        log_file(directory, end_offset).write_bytes(chapter(2, 0, [end_offset]).data)
        end_offset += 1
    if end in ("clean", "durable"):
        checkpoint = OffsetCheckpoint(disk, directory / "recovery-point-offset-checkpoint")
        checkpoint.update({PARTITION: end_offset})
    if end == "clean":
        (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')


def served_by_log(directory: Path, middle: int) -> tuple[list[int], list[int], set[int], int]:
    """
    Return the offsets that an open log serves around damage, and those from `middle` on.

    Then the edges of the missing offsets, and the log end.
    """
    with manual_log(directory, read_only=True) as log:
        served = [record.offset for record in log.records(on_corrupt="skip")]
        start = min(middle, log.log_end_offset)
        behind = [record.offset for record in log.records(start, on_corrupt="skip")]
        missed = {
            offset
            for corrupt_range in log.corrupt_ranges()
            for offset in (
                corrupt_range.first_offset,
                min(corrupt_range.next_offset, log.log_end_offset) - 1,
            )
            # Only the recovery point shows that offsets are missing after a whole end.
            if corrupt_range.first_offset <= offset and corrupt_range.size_bytes
        }
        return served, behind, missed.difference(served), log.log_end_offset


def served_by_ranges(
    directory: Path, start: int, end: int, *, piece_bytes: int = 1 << 20
) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the offsets that a reader of a range serves, and the ranges that it misses."""
    damage: list[tuple[int, int]] = []

    def note(event: Damage) -> None:
        damage.append((event.corrupt_range.first_offset, event.corrupt_range.next_offset))

    def miss(error: OffsetOutOfRangeError) -> int:
        damage.append((error.log_end_offset or 0, end))
        return end

    options = make_options(columns=["offset"], on_corrupt="skip")
    reader = RangeReader(
        PosixFileSystem(),
        directory,
        start,
        end,
        RangeOptions(
            timestamps=options.conditions.timestamps,
            check_crcs=True,
            max_batch_bytes=2**31 - 1,
            retries=0,
            piece_bytes=piece_bytes,
        ),
        on_damage=note,
        on_missing=miss,
    )
    rows = RowReader(options, lambda view, error: True)
    offsets: list[int] = []

    def batches() -> Iterator[object]:
        topic, partition = PARTITION
        yield from rows.read(
            reader.batch_slices(), start, end, topic=topic, partition=partition, limit_bytes=1 << 30
        )
        yield from rows.flush()

    for batch in batches():
        table = pa.Table.from_batches([pa.record_batch(batch)])
        offsets += table["offset"].to_pylist()
    return offsets, damage


def check(directory: Path, where: object, random: Random, piece_bytes: int = 1 << 20) -> None:
    """Compare a reader of ranges with the log."""
    middle = random.randrange(FIRST, FIRST + 30)
    expected, expected_after, missed, end = served_by_log(directory, middle)
    last = max(int(path.stem) for path in directory.glob("*.log"))
    found, position = find_log_end(PosixFileSystem(), directory, last)
    assert end == found or position == log_file(directory, last).stat().st_size, where
    offsets, damage = served_by_ranges(directory, FIRST, end, piece_bytes=piece_bytes)
    assert expected == offsets, (where, damage, piece_bytes)
    for offset in missed:
        assert any(first <= offset < following for first, following in damage), (where, offset)
    if middle < end:
        after, _ = served_by_ranges(directory, middle, end, piece_bytes=piece_bytes)
        assert expected_after == after, (where, middle)


def flipped(data: bytes, start: int, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[start + 7 - bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def starts_of(chapters: list[Chapter]) -> list[int]:
    """Return where each begins, and at the end where the last one ends."""
    starts = [0]
    for each in chapters:
        starts.append(starts[-1] + len(each.data))
    return starts


@EVERY_KIND
@pytest.mark.parametrize("end", ENDS)
def test_range_reader_wrong_base_offset_equals_log(kind: str, end: str, directory: Path) -> None:
    """HOST-3, HOST-5: one damaged batch costs a task of Spark that batch only."""
    random = Random(18)
    chapters = chapters_of(LOG_KINDS[kind], first_offset=FIRST)
    data, starts = b"".join(each.data for each in chapters), starts_of(chapters)
    for number in range(len(chapters)):
        for bit in random.sample(range(64), 6):
            write_log(directory, chapters, flipped(data, starts[number], bit), end)
            check(directory, (kind, end, number, bit), random, random.choice((300, 1 << 20)))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", ["v0-wrappers", "v1-wrappers"])
def test_range_reader_wrong_wrapper_offset_equals_log(kind: str, end: str, directory: Path) -> None:
    """HOST-4: no header contradicts a low bit of a wrapper's offset, but its records do."""
    random = Random(end)
    chapters = chapters_of(LOG_KINDS[kind], first_offset=FIRST)
    data, starts = b"".join(each.data for each in chapters), starts_of(chapters)
    for number in range(len(chapters)):
        for bit in random.sample(range(4), 2):
            write_log(directory, chapters, flipped(data, starts[number], bit), end)
            check(directory, (kind, end, number, bit), random, random.choice((300, 1 << 20)))


@pytest.mark.parametrize(
    ("kind", "end", "flips"),
    [
        # The last wrapper has an offset that belongs to the next segment.
        ("v1-wrappers", "sealed", [(3, 1), (4, 1)]),
        # The batches after a wrong wrapper are not judged by its offset.
        ("v0-wrappers", "open", [(5, 1), (9, 1)]),
        ("v0-wrappers", "open", [(4, 1), (6, 2)]),
        # The last wrapper follows a hole only because the one before it is wrong.
        ("downgraded", "durable", [(4, 0), (5, 1)]),
        # The hole before the last batch is hidden by a wrapper with a wrong offset.
        ("downgraded", "durable", [(4, 30), (5, 39)]),
        ("downgraded", "durable", [(4, 20), (5, 21)]),
        ("downgraded", "clean", [(4, 20), (5, 21)]),
    ],
)
def test_range_reader_two_wrong_offsets_equals_log(
    kind: str, end: str, flips: list[tuple[int, int]], directory: Path
) -> None:
    """HOST-4: each of the two batches is lost, and no whole one."""
    for copies in (1, 2):
        chapters = chapters_of(LOG_KINDS[kind] * copies, first_offset=FIRST)
        data, starts = b"".join(each.data for each in chapters), starts_of(chapters)
        if max(number for number, _bit in flips) >= len(chapters):
            continue
        for number, bit in flips:
            data = flipped(data, starts[number], bit)
        write_log(directory, chapters, data, end)
        check(directory, (kind, end, flips, copies), Random(copies))


def test_range_reader_many_wrong_wrappers_equals_log(
    directory: Path,
) -> None:
    """HOST-4: more than are judged; each is a corrupt range, and all others are served."""
    chapters = chapters_of([(0, Codec.GZIP, 3)] * 80, first_offset=FIRST)
    data, starts = b"".join(each.data for each in chapters), starts_of(chapters)
    for number in range(1, 80, 2):
        data = flipped(data, starts[number], 0)
    write_log(directory, chapters, data, "open")
    expected, _, missed, end = served_by_log(directory, FIRST)
    offsets, damage = served_by_ranges(directory, FIRST, end)
    assert offsets == expected == [FIRST + each for each in range(240) if each // 3 % 2 == 0]
    for offset in missed:
        assert any(first <= offset < following for first, following in damage), offset


@EVERY_KIND
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("bit", range(0, 12, 2))
def test_damaged_last_batch_with_wrong_offset_hides_none_before_it(
    kind: str, end: str, bit: int, directory: Path
) -> None:
    """HOST-4: no reader accepts its offset, since its CRC does not match."""
    chapters = chapters_of(LOG_KINDS[kind], first_offset=FIRST)
    data, starts = b"".join(each.data for each in chapters), starts_of(chapters)
    middle = (starts[-2] + starts[-1]) // 2
    data = flipped(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], starts[-2], bit)
    write_log(directory, chapters, data, end)
    if end == "sealed":
        before = [fact[0] for each in chapters[:-1] for fact in each.facts]
        assert before == served_by_log(directory, FIRST)[0][: len(before)]
        # A clean close after the recovery, so that the readers do not scan.
        with manual_log(directory):
            pass
        assert before == served_by_log(directory, FIRST)[0][: len(before)]
    check(directory, (kind, end, bit), Random(bit))


@pytest.mark.parametrize("seed", [761711305, 1997047332])
def test_range_reader_found_damage_equals_log(directory: Path, seed: int) -> None:
    """Seeds with which the readers once differed: an odd end, a wrapper before the end."""
    explore(directory, seed, 600)


def explore(directory: Path, seed: int, count: int) -> None:
    """Damage one or two batches at random, `count` times."""
    random = Random(seed)
    for attempt in range(count):
        kind, end = random.choice(list(LOG_KINDS)), random.choice(ENDS)
        chapters = chapters_of(LOG_KINDS[kind] * random.choice((1, 2)), first_offset=FIRST)
        starts = starts_of(chapters)
        data = bytearray(b"".join(each.data for each in chapters))
        for _ in range(random.choice((1, 2))):
            start = starts[random.randrange(len(chapters))]
            data[start + random.choice((0, 3, 4, 6, 7, 8, 11, 16, 22))] ^= 1 << random.randrange(8)
        write_log(directory, chapters, bytes(data), end)
        check(directory, (seed, attempt, kind, end), random)


# The second seed raises a v0 wrapper and a message after it beyond the offsets of a segment.
@pytest.mark.parametrize(("seed", "count"), [(4, 60), (1994069177, 19)])
def test_range_reader_random_damage_equals_log(directory: Path, seed: int, count: int) -> None:
    """HOST-3, HOST-4: lengths, magic and attributes as well, of one batch or of two."""
    explore(directory, seed, count)


@pytest.mark.slow
def test_range_reader_random_damage_equals_log_with_any_seed(directory: Path) -> None:
    """As above, with damage that no test had before."""
    explore(directory, secrets.randbits(32), 600)


def served(log: Log) -> tuple[list[int], int]:
    """Return the offsets that a log serves around damage, and its end."""
    return [record.offset for record in log.records(on_corrupt="skip")], log.log_end_offset


@EVERY_KIND
@pytest.mark.parametrize("appended", [1, 2, 4])
def test_follower_wrong_base_offset_serves_what_a_new_reader_does(
    kind: str, appended: int, directory: Path
) -> None:
    """HOST-3, HOST-5: batches after the wrong one are seen as soon as they are written."""
    random = Random(appended)
    chapters = chapters_of(LOG_KINDS[kind], first_offset=FIRST)
    starts, whole = starts_of(chapters), b"".join(each.data for each in chapters)
    first = len(chapters) - appended
    for number in range(first, len(chapters)):
        for bit in random.sample(range(64), 3):
            data = flipped(whole, starts[number], bit)
            write_log(directory, chapters, data[: starts[first]], "open")
            with manual_log(directory, read_only=True) as follower:
                with log_file(directory, FIRST).open("ab") as file:
                    file.write(data[starts[first] :])
                for _ in range(2):
                    partition_of(follower).view.snapshot()
                with manual_log(directory, read_only=True) as log:
                    inside = chapters[number].magic < 2 and chapters[number].codec
                    if inside and number == len(chapters) - 1:
                        # Only a recovery compares the last wrapper with its records.
                        continue
                    assert served(log) == served(follower), (number, bit)


def test_follower_reads_after_damage_once_it_was_read_twice(directory: Path) -> None:
    """HOST-4: an unfinished batch looks the same, and is waited for; batches after it are read."""
    chapters = [chapter(2, 0, [FIRST + number]) for number in range(4)]
    write_log(directory, chapters, chapters[0].data, "open")
    torn = bytearray(chapters[1].data)
    torn[-1] ^= 1
    with manual_log(directory, read_only=True) as follower:
        with log_file(directory, FIRST).open("ab", buffering=0) as file:
            file.write(torn)
            assert [FIRST + 1] * 3 == [
                partition_of(follower).view.snapshot().end_offset for _ in range(3)
            ]
            file.write(chapters[2].data)
            assert [FIRST + 1, FIRST + 3] == [
                partition_of(follower).view.snapshot().end_offset for _ in range(2)
            ]
            file.write(chapters[3].data)
            assert FIRST + 4 == partition_of(follower).view.snapshot().end_offset
        assert ([FIRST, FIRST + 2, FIRST + 3], FIRST + 4) == served(follower)
        assert [(FIRST + 1, FIRST + 2)] == [
            (corrupt_range.first_offset, corrupt_range.next_offset)
            for corrupt_range in follower.corrupt_ranges()
        ]
