"""Tests of walks over batches: the same batches for any division of the bytes into windows."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.batch import BatchColumns
from kafkalog._core.status import STATUS_CODES
from kafkalog.log.batch_walk import (
    CrcCheck,
    ResumePoint,
    WalkDamage,
    WalkedBatches,
    WalkRange,
    walk_source,
)
from kafkalog.log.byte_source import ByteSource, MappedSource
from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.log.walk import WalkResult
from kafkalog.records.codecs import Codec
from tests.support.old_logs import Chapter, chapters_of
from tests.support.simulated_source import SimulatedSource

HEADER_BYTES = 61
PLAN = [
    (2, Codec.NONE, 3),
    (2, Codec.GZIP, 40),
    (1, Codec.NONE, 1),
    (0, Codec.NONE, 1),
    (1, Codec.GZIP, 5),
    (2, Codec.NONE, 1),
]
CHAPTERS = chapters_of(PLAN, first_offset=10, repeat=7)
DATA = b"".join(each.data for each in CHAPTERS)
STARTS = [len(b"".join(each.data for each in CHAPTERS[:n])) for n in range(len(CHAPTERS))]


@dataclass
class Found:
    """The result of a walk: bytes of each batch, and the damage at its end."""

    batches: list[bytes] = field(default_factory=list)
    damage: list[tuple[int, str, int]] = field(default_factory=list)

    def stop(self, damage: WalkDamage) -> ResumePoint | None:
        self.damage.append((damage.position, name_of(damage.status), damage.next_offset))
        return None


def name_of(status: int) -> str:
    return next(name for name, code in STATUS_CODES.items() if code == status)


def walked(source: ByteSource, found: Found, *, capacity: int = 64, **how: object) -> Found:
    """Walk a source to its end, or to the first damage, and return the result."""
    columns = BatchColumns(capacity)
    walk_range = WalkRange(0, source.size_bytes, CHAPTERS[0].first_offset, 2**31)
    options = {"on_damage": found.stop, **how}
    for run in walk_source(source, walk_range, columns, **options):  # type: ignore[arg-type]
        found.batches += batches_of(run, columns)
    return found


def batches_of(run: WalkedBatches, columns: BatchColumns) -> list[bytes]:
    starts = columns.position[: run.count].tolist()
    sizes = columns.size_bytes[: run.count].tolist()
    spans = zip(starts, sizes, strict=True)
    found = [bytes(run.data[start : start + size]) for start, size in spans]
    assert b"".join(found) == bytes(run.run)
    assert run.origin + starts[0] == run.position
    return found


def flipped(position: int) -> bytes:
    data = bytearray(DATA)
    data[position] ^= 0x40
    return bytes(data)


@pytest.mark.parametrize("capacity", [1, 2, 64])
def test_walk_any_window_returns_every_batch_once(capacity: int) -> None:
    """Windows end within a header, within a batch, and between two batches."""
    expected = [each.data for each in CHAPTERS]
    assert expected == walked(MappedSource(memoryview(DATA)), Found(), capacity=capacity).batches
    for window_bytes in range(1, len(DATA) + 2):
        source = SimulatedSource(DATA)
        found = walked(source, Found(), capacity=capacity, window_bytes=window_bytes)
        assert (expected, []) == (found.batches, found.damage), window_bytes
        largest = max(window_bytes, *(len(each.data) for each in CHAPTERS))
        assert max(size for _position, size in source.windows) <= largest + HEADER_BYTES


@given(
    where=st.integers(0, len(CHAPTERS) - 1),
    within=st.integers(8, 200),
    window_bytes=st.integers(1, len(DATA)),
)
def test_walk_any_window_stops_at_the_same_damage(
    where: int, within: int, window_bytes: int
) -> None:
    """
    The batches before it, its place and the failed check do not depend on the windows.

    A wrong offset is the exception: only neighbours show it, and a window may not have them. A
    judge reads all of them.
    """
    data = flipped(STARTS[where] + within % (len(CHAPTERS[where].data) - 8) + 8)
    whole = walked(MappedSource(memoryview(data)), Found())
    parts = walked(SimulatedSource(data), Found(), window_bytes=window_bytes)
    assert whole == parts


@pytest.mark.parametrize("cut_to", [0, 1, STARTS[2], STARTS[2] + 20, len(DATA) - 1])
def test_walk_cut_file_ends_with_the_last_whole_batch(cut_to: int) -> None:
    """A file that became shorter is not an error of the disk."""
    expected = [
        each.data
        for each, start in zip(CHAPTERS, STARTS, strict=True)
        if start + len(each.data) <= cut_to
    ]
    found = walked(SimulatedSource(DATA, cut_to=cut_to), Found(), window_bytes=100)
    assert expected == found.batches
    assert ["TRUNCATED"] * (cut_to not in (0, STARTS[2])) == [each[1] for each in found.damage]


def test_walk_length_beyond_the_end_reads_no_further() -> None:
    """A batch that would end after the file is damaged; no byte is read to find that."""
    data = bytearray(DATA)
    data[STARTS[1] + 8] = 0x7F
    source = SimulatedSource(bytes(data))
    found = walked(source, Found(), window_bytes=100)
    assert [(STARTS[1], "TRUNCATED", CHAPTERS[1].first_offset)] == found.damage
    assert max(size for _position, size in source.windows) <= len(CHAPTERS[0].data) + HEADER_BYTES


def test_walk_batch_above_the_limit_is_damage_of_its_size() -> None:
    """The walk does not read a batch above the limit, and may resume after it."""
    sizes: list[int] = []

    def go_on(damage: WalkDamage) -> ResumePoint:
        sizes.append(damage.batch_bytes)
        return ResumePoint(damage.position + damage.batch_bytes, damage.next_offset)

    found = walked(
        SimulatedSource(DATA), Found(), on_damage=go_on, window_bytes=100, batch_bytes_max=300
    )
    large = [each for each in CHAPTERS if len(each.data) > 300]
    assert large and [len(each.data) for each in large] == sizes
    assert [each.data for each in CHAPTERS if each not in large] == found.batches


def test_walk_damage_is_reported_after_the_batches_before_it() -> None:
    """A caller that raises has got every whole batch; a caller that resumes gets more."""
    events: list[object] = []

    def go_on(damage: WalkDamage) -> ResumePoint:
        events.append(name_of(damage.status))
        return ResumePoint(STARTS[3], damage.next_offset)

    columns = BatchColumns(64)
    source = MappedSource(memoryview(flipped(STARTS[2] + 20)))
    for run in walk_source(source, WalkRange(0, len(DATA), 10, 2**31), columns, on_damage=go_on):
        events += batches_of(run, columns)
    data = [each.data for each in CHAPTERS]
    assert [*data[:2], "CRC", *data[3:]] == events


@pytest.mark.parametrize("window_bytes", [61, 100, 700, None])
def test_walk_crc_on_doubt_rejected_row_is_checked_again(
    window_bytes: int | None,
) -> None:
    """The rows before the wrong CRC were given out; from it on the checked walk counts."""
    data, bad = flipped(STARTS[1] + 70), CHAPTERS[1].data
    columns, found, seen = BatchColumns(64), Found(), list[tuple[bytes, bool]]()
    walk_range = WalkRange(0, len(data), 10, 2**31)
    for run in walk_source(
        SimulatedSource(data),
        walk_range,
        columns,
        check_crc=CrcCheck.ON_DOUBT,
        on_damage=found.stop,
        window_bytes=window_bytes,
    ):
        for row, each in enumerate(batches_of(run, columns)):
            if not run.is_checked and len(each) == len(bad) and each != CHAPTERS[0].data:
                run.reject(row)
                break
            seen.append((each, run.is_checked))
    assert [(CHAPTERS[0].data, False)] == seen
    assert [(STARTS[1], "CRC", CHAPTERS[1].first_offset)] == found.damage


class NotedJudge:
    """A judge that finds one damaged batch at the first request, and has no doubt afterwards."""

    def __init__(self, chapter: Chapter, start: int, end: int) -> None:
        self.end = end
        self.is_final = False
        self.calls: list[tuple[int, str]] = []
        self._range = CorruptRange(
            path=None,  # type: ignore[arg-type]
            position=start,
            size_bytes=len(chapter.data),
            first_offset=chapter.first_offset,
            next_offset=chapter.last_offset + 1,
            reason="CRC",
        )

    def corrupt_range_from(self, position: int) -> CorruptRange | None:
        is_before = self.is_final and position < self._range.end_position
        return self._range if is_before else None

    def judge(self, damage: WalkDamage) -> None:
        self.calls.append((damage.position, name_of(damage.status)))
        self.is_final = True

    def accepts(self, walk: WalkResult, origin: int, expected: int, columns: BatchColumns) -> bool:
        return True

    def judge_refused(self) -> None:
        raise AssertionError("all are accepted")


@pytest.mark.parametrize("window_bytes", [61, 150, 700, None])
def test_walk_wrong_offset_is_judged_before_its_batch_is_given(window_bytes: int | None) -> None:
    """No window gives out a batch that the judge rejects, wherever the window ends."""
    # The base offset of the second batch is wrong, and only the third one shows it.
    data = bytearray(DATA)
    data[STARTS[1] : STARTS[1] + 8] = (5000).to_bytes(8, "big")
    judge = NotedJudge(CHAPTERS[1], STARTS[1], len(data))
    reported: list[int] = []

    def go_on(damage: WalkDamage) -> ResumePoint:
        reported.append(damage.position)
        return ResumePoint(damage.resume_min, damage.next_offset)

    found = walked(
        SimulatedSource(bytes(data)),
        Found(),
        judge=judge,
        on_damage=go_on,
        window_bytes=window_bytes,
    )
    assert [each.data for each in CHAPTERS if each is not CHAPTERS[1]] == found.batches
    assert 1 == len(judge.calls)
    assert [STARTS[1]] == reported
