"""Accepted batches of a segment: base offsets flipped, alone and next to other damage."""

from __future__ import annotations

import secrets
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkalog import Codec
from kafkalog.log.corrupt_ranges import find_in_data
from kafkalog.log.judging import Judgement, LogEndFacts, judge_batches
from tests.support.old_logs import LOG_KINDS, Chapter, chapter, chapters_of

ANY_OFFSET = 2**63 - 2
FIRST = 40
EVERY_KIND = pytest.mark.parametrize("kind", LOG_KINDS)
# The known facts about the end of a segment: none, the base of the next segment, a clean stop, or
# the recovery point.
ENDS = ("open", "sealed", "clean", "durable")


class Segment:
    """The bytes of a segment, and the facts about them."""

    def __init__(self, chapters: list[Chapter]) -> None:
        self.chapters = chapters
        self.starts = [0]
        for each in chapters:
            self.starts.append(self.starts[-1] + len(each.data))
        self.data = b"".join(each.data for each in chapters)
        self.end_offset = chapters[-1].last_offset + 1

    def judge(self, data: bytes, end: str) -> Judgement:
        """Return the judgement of damaged bytes."""
        end_facts = {
            "open": LogEndFacts(),
            "sealed": None,
            "clean": LogEndFacts(self.end_offset, self.end_offset),
            "durable": LogEndFacts(self.end_offset),
        }[end]
        return judge_batches(
            memoryview(data),
            Path("segment"),
            first_offset=self.chapters[0].first_offset,
            offset_max=self.end_offset - 1 if end == "sealed" else ANY_OFFSET,
            following_offset=self.end_offset if end == "sealed" else 0,
            end_facts=end_facts,
        )

    def flipped(self, number: int, bit: int) -> bytes:
        """Return the bytes with a bit of a batch's base offset flipped."""
        return flipped(self.data, self.starts[number], bit)

    def lost(self, found: Judgement) -> set[int]:
        """Return the numbers of the batches that are not served."""
        return {
            number
            for number, (start, stop) in enumerate(
                zip(self.starts[:-1], self.starts[1:], strict=True)
            )
            if start >= found.whole_end
            or any(f.position < stop and start < f.end_position for f in found.corrupt_ranges)
        }


def flipped(data: bytes, start: int, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[start + 7 - bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@EVERY_KIND
@pytest.mark.parametrize("end", ENDS)
def test_judge_undamaged_bytes_accepts_all(kind: str, end: str) -> None:
    """No corrupt range in any format, whatever is known of the end."""
    segment = Segment(chapters_of(LOG_KINDS[kind], first_offset=FIRST))

    found = segment.judge(segment.data, end)

    assert () == found.corrupt_ranges
    assert (segment.end_offset, segment.end_offset) == (found.next_offset, found.free_offset)
    assert len(segment.data) == found.whole_end


@EVERY_KIND
def test_judge_one_flipped_offset_bit_loses_that_batch_only(kind: str) -> None:
    """HOST-3, HOST-5: no neighbour is lost, nothing is torn, its offsets stay used."""
    segment = Segment(chapters_of(LOG_KINDS[kind], first_offset=FIRST))
    for number in range(len(segment.chapters)):
        for bit in range(64):
            for end in ENDS:
                found = segment.judge(segment.flipped(number, bit), end)
                where = (number, bit, end)
                lost = segment.lost(found)
                assert lost <= {number}, where
                assert len(segment.data) == found.whole_end, where
                assert segment.end_offset <= found.free_offset, where
                # The header of a wrapper does not name its first offset: a small change of its last
                # offset, or of the batch before, contradicts no other batch. The last one may have
                # any offset after a hole, if that is not above the recovery point.
                beside = segment.chapters[number : number + 2]
                is_wrapper = any(near.magic < 2 and near.codec for near in beside)
                is_last = number == len(segment.chapters) - 1
                assert lost or is_wrapper or (is_last and end in ("open", "durable")), where


@EVERY_KIND
def test_judge_single_batch_is_bounded_by_the_segments_end(kind: str) -> None:
    """Without neighbours the segment's base, the next segment and a clean stop decide."""
    magic, codec, _ = LOG_KINDS[kind][-1]
    segment = Segment([chapter(magic, codec, [FIRST])])
    for bit in range(64):
        for end in ("sealed", "clean", "durable"):
            assert {0} == segment.lost(segment.judge(segment.flipped(0, bit), end)), (bit, end)


def test_judge_two_equally_likely_batches_rejects_both() -> None:
    """In a log with holes nothing shows which of two is wrong; the batches around are served."""
    chapters = [chapter(2, 0, [first]) for first in (0, 10, 30, 40, 50)]
    segment = Segment(chapters)
    data = (
        segment.data[: segment.starts[3]] + (25).to_bytes(8) + segment.data[segment.starts[3] + 8 :]
    )

    found = segment.judge(data, "open")

    assert {2, 3} == segment.lost(found)
    assert [(11, 50)] == [
        (corrupt_range.first_offset, corrupt_range.next_offset)
        for corrupt_range in found.corrupt_ranges
    ]


def test_judge_offset_without_hole_is_not_preferred_in_a_log_with_holes() -> None:
    """HOST-4: in a compacted segment any hole may be right."""
    chapters = [
        chapter(2, 0, range(first, first + count))
        for first, count in ((45, 2), (52, 3), (60, 2), (70, 1), (71, 1))
    ]
    segment = Segment([chapter(2, 0, [FIRST]), *chapters])
    start = segment.starts[2]
    data = segment.data[:start] + (43).to_bytes(8) + segment.data[start + 8 :]

    found = segment.judge(data, "open")

    assert {1, 2} == segment.lost(found)
    assert 73 > found.next_offset == 72


def test_judge_offset_without_hole_is_preferred_in_a_log_without() -> None:
    """HOST-4: of the last two batches the one without a hole before it is accepted."""
    segment = Segment([chapter(2, 0, range(first, first + 2)) for first in range(40, 50, 2)])
    start = segment.starts[3]
    data = segment.data[:start] + (50).to_bytes(8) + segment.data[start + 8 :]

    assert {3} == segment.lost(segment.judge(data, "open"))


def test_judge_first_batch_against_whole_ones_between_damage_rejects_both() -> None:
    """HOST-4: the offset of the first batch contradicts all the others."""
    segment = Segment([chapter(2, 0, range(first, first + 2)) for first in range(40, 60, 2)])
    for wholes in ((2,), (2, 4)):
        data = bytearray(segment.flipped(0, 2))
        for number in range(1, 7):
            if number not in wholes:
                # Damage the length, so that the judge has to search for the next batch.
                data[segment.starts[number] + 8] ^= 0x10
        found = segment.judge(bytes(data), "open")
        lost = segment.lost(found)
        assert {0, 1, 5, 6} <= lost, wholes
        assert not lost & {7, 8, 9}


def test_judge_base_of_the_next_segment_counts_as_a_batch() -> None:
    """HOST-4: two raised offsets agree with each other, and with no batch after them."""
    segment = Segment([chapter(2, 0, range(first, first + 10)) for first in range(40, 80, 10)])
    data = bytearray(segment.data)
    data[segment.starts[1] : segment.starts[1] + 8] = (52).to_bytes(8)
    data[segment.starts[2] : segment.starts[2] + 8] = (64).to_bytes(8)

    assert {1, 2} == segment.lost(segment.judge(bytes(data), "sealed"))


def test_judge_doubt_reserves_offsets_after_it() -> None:
    """HOST-4: the next segment, whose base counts, decides no doubt about batches before it."""
    segment = Segment([chapter(2, 0, [offset]) for offset in range(40, 46)])
    data = bytearray(segment.flipped(1, 10))
    data[segment.starts[2] + 30] ^= 1
    data[segment.starts[4] + 30] ^= 1
    data = data[: segment.starts[4]]

    found = segment.judge(bytes(data), "open")
    assert {1, 3} <= segment.lost(found)
    segment.end_offset = found.free_offset
    again = segment.judge(bytes(data), "sealed")

    assert segment.lost(found) == segment.lost(again)


def test_judge_doubt_between_a_batch_and_an_image_rejects_both() -> None:
    """HOST-4: a next segment between the offsets of the two would decide for one of them."""
    segment = Segment([chapter(2, 0, range(first, first + 2)) for first in range(40, 50, 2)])
    data = bytearray(segment.flipped(2, 12))
    for number in (0, 3):
        data[segment.starts[number] + 30] ^= 1
    data[segment.starts[1] + 8] ^= 0x10

    found = segment.judge(bytes(data), "open")
    assert {0, 1, 2, 3, 4} == segment.lost(found)
    assert found.free_offset > 44 | 1 << 12
    segment.end_offset = found.free_offset
    assert {0, 1, 2, 3, 4} == segment.lost(segment.judge(bytes(data), "sealed"))


def test_judge_raised_batch_among_rejected_ones_is_rejected() -> None:
    """HOST-4: the beginning of the log follows the whole log, with one offset raised."""
    segment = Segment([chapter(2, 0, [offset]) for offset in range(40, 60)])
    again = Segment([chapter(2, 0, [offset]) for offset in range(40, 52)])
    data = segment.data + again.flipped(4, 10)

    found = segment.judge(data, "open")
    assert found.next_offset == 60
    assert found.free_offset > 44 | 1 << 10
    assert len(segment.data) == found.corrupt_ranges[0].position

    segment.end_offset = found.free_offset
    assert segment.judge(data, "sealed").next_offset == 60


def test_judge_agreement_across_damage_does_not_count() -> None:
    """HOST-4: after damaged batches a wrong one may seem to follow those before them."""
    segment = Segment([chapter(2, 0, [offset]) for offset in range(40, 50)])
    data = bytearray(segment.flipped(0, 1))
    for number in (1, 3):
        data[segment.starts[number] + 30] ^= 1

    assert 0 in segment.lost(segment.judge(bytes(data), "open"))


def test_judge_few_batches_after_damage_have_no_majority() -> None:
    """HOST-4: two wrong ones of three may agree if nothing else of the segment is left."""
    segment = Segment([chapter(0, 0, [offset]) for offset in range(74, 78)])
    data = bytearray(flipped(segment.flipped(1, 7), segment.starts[2], 18))
    data[20] ^= 1

    found = segment.judge(bytes(data), "open")
    assert {0, 1, 2, 3} == segment.lost(found)
    assert found.free_offset > 76 | 1 << 18
    segment.end_offset = found.free_offset
    assert {0, 1, 2, 3} == segment.lost(segment.judge(bytes(data), "sealed"))


@pytest.mark.parametrize(
    "tail",
    [b"", b"\1" * 90, b"\1" * 90 + bytes(90), bytes(90)],
    ids=["nothing", "torn", "torn and zeros", "zeros"],
)
def test_judge_again_without_the_torn_tail_gives_the_same(tail: bytes) -> None:
    """HOST-4: an opening cuts the tail, and the next opening judges the remaining bytes."""
    segment = Segment([chapter(2, 0, [offset]) for offset in range(40, 50)])
    # Foreign bytes, then batches of another log, which contradict the last batch of this one.
    for first, count in ((50, 14), (52, 3), (50, 1), (60, 6)):
        other = b"".join(chapter(2, 0, [first + each]).data for each in range(count))
        data = segment.flipped(9, 2) + b"\2" * 200 + other + tail

        found = segment.judge(data, "open")

        again = segment.judge(data[: found.whole_end], "open")
        assert found.corrupt_ranges == again.corrupt_ranges
        assert (found.whole_end, found.next_offset, found.free_offset) == (
            again.whole_end,
            again.next_offset,
            again.free_offset,
        )


def test_judge_several_agreeing_batches_outweigh_one() -> None:
    """HOST-4: a batch that contradicts all the others is rejected."""
    segment = Segment([chapter(2, 0, [number]) for number in range(10)])
    for bit in range(64):
        for kind in ("magic", "length", "header"):
            damaged = bytearray(segment.flipped(3, bit))
            start = segment.starts[4]
            if kind == "magic":
                damaged[start + 16] ^= 4
            elif kind == "length":
                damaged[start + 8] ^= 0x10
            else:
                damaged[start : start + 61] = bytes(61)
            assert {3, 4} == segment.lost(segment.judge(bytes(damaged), "open")), (bit, kind)


def test_judge_wrapper_with_impossible_offset_is_placed_between_two() -> None:
    """HOST-4: the records of the wrapper show which of its neighbours is wrong as well."""
    plain, wrapper = [(2, 0, [40, 41, 42]), (2, 0, [43, 44])], (1, 3, [45, 46, 47, 48])
    behind = [(1, 0, [49]), (0, 1, [50, 51, 52])]
    segment = Segment([chapter(*each) for each in (*plain, wrapper, *behind)])
    data = bytearray(segment.flipped(1, 2))
    data[segment.starts[2]] = 0x40

    assert {1, 2} == segment.lost(segment.judge(bytes(data), "open"))


def test_judge_last_batch_with_impossible_offset_is_not_a_torn_tail() -> None:
    """A batch with a right CRC is never cut: negative, too large, or below earlier offsets."""
    segment = Segment([chapter(2, 0, [number]) for number in range(3)])
    for offset in (2**64 - 5, 2**63 - 1, 0):
        data = segment.data[: segment.starts[2]] + offset.to_bytes(8)
        data += segment.data[segment.starts[2] + 8 :]

        found = segment.judge(data, "open")

        assert (len(data), 2, 3) == (found.whole_end, found.next_offset, found.free_offset)
        assert {2} == segment.lost(found)


def test_judge_last_batches_damaged_counts_the_offsets_they_declare() -> None:
    """A damaged batch whose header is whole, and the last one with an impossible offset."""
    segment = Segment(chapters_of([(2, Codec.NONE, 2), (2, Codec.GZIP, 6), (2, Codec.GZIP, 2)]))
    data = bytearray(segment.data)
    data[segment.starts[2] - 1] ^= 1
    data[segment.starts[2]] ^= 9

    found = segment.judge(bytes(data), "open")

    assert (len(data), 2, 10) == (found.whole_end, found.next_offset, found.free_offset)


@pytest.mark.parametrize("overlap", [0, 2, 8])
@pytest.mark.parametrize("further", [0, 1000, 2**27])
def test_judge_batch_within_damage_at_the_end_is_not_followed_by_its_offsets(
    further: int, overlap: int
) -> None:
    """A batch of the log may lie there; a batch far above belongs to another log."""
    plan = [(2, Codec.NONE, 2), (2, Codec.NONE, 6), (2, Codec.NONE, 2)]
    segment = Segment(chapters_of(plan))
    copy = (8 + further).to_bytes(8) + segment.data[segment.starts[2] + 8 :]
    data = bytearray(segment.data)
    # Its last bytes may lie over the offset of the batch after it.
    start = segment.starts[2] - len(copy) + overlap
    data[start : start + len(copy)] = copy
    data[segment.starts[1] + 23 : segment.starts[1] + 27] = b"abcd"
    if not overlap:
        data[segment.starts[2]] ^= 9

    found = segment.judge(bytes(data), "open")

    end = 4 if further == 2**27 else 10 + further
    assert (len(data), 2, end) == (found.whole_end, found.next_offset, found.free_offset)


def test_judge_searches_damaged_bytes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many damaged batches, each followed by a whole one with a wrong offset, are not quadratic."""
    segment = Segment(chapters_of([(1, Codec.NONE, 1), (1, Codec.NONE, 1), (1, Codec.NONE, 1)]))
    first, second, third = (
        segment.data[start:stop]
        for start, stop in zip(segment.starts[:-1], segment.starts[1:], strict=True)
    )
    low = (3).to_bytes(8) + third[8:]
    data = first + (second[:-1] + bytes([second[-1] ^ 1]) + low) * 50
    searched: list[int] = []
    find = find_in_data

    def counted(data: memoryview, position: int, end: int, *arguments: Any) -> int:
        searched.append(end - position)
        return find(data, position, end, *arguments)

    monkeypatch.setattr("kafkalog.log.judging.find_in_data", counted)
    segment.judge(data, "open")

    assert 0 < sum(searched) <= len(data)


def damage(data: bytearray, segment: Segment, number: int, how: str, random: Random) -> None:
    """Damage one batch in place."""
    start, end = segment.starts[number], segment.starts[number + 1]
    if how == "offset":
        data[start + random.randrange(8)] ^= 1 << random.randrange(8)
    elif how == "magic":
        data[start + 16] ^= 4
    elif how == "length":
        data[start + 8] ^= 0x10
    elif how == "header":
        data[start : start + 26] = bytes(26)
    else:
        data[end - 3] ^= 1


def explore_pairs(seed: int, count: int) -> None:
    """Damage two neighbouring batches, `count` times; only these two may be lost."""
    random = Random(seed)
    for attempt in range(count):
        kind = random.choice(list(LOG_KINDS))
        plan = LOG_KINDS[kind] * random.choice((1, 2))
        segment = Segment(chapters_of(plan, first_offset=random.choice((FIRST, 10**9))))
        # More batches follow them: with one batch on each side of a doubt neither is accepted.
        number = random.randrange(len(segment.chapters) - 3)
        hows = [random.choice(("offset", "magic", "length", "header", "payload")) for _ in "ab"]
        data = bytearray(segment.data)
        for each, how in enumerate(hows, start=number):
            damage(data, segment, each, how, random)
        # In a wrapper without a header whole messages may be found, with offsets that look right.
        destroyed = [
            each
            for each, how in enumerate(hows, start=number)
            if how in ("header", "length") and segment.chapters[each].magic < 2
        ]
        end = random.choice(ENDS)
        found = segment.judge(bytes(data), end)
        lost = segment.lost(found) - {number, number + 1}
        assert not lost or destroyed, (seed, attempt, kind, number, hows, end, lost)
        assert segment.starts[number + 2] <= found.whole_end


@pytest.mark.parametrize("seed", [1, 2])
def test_judge_two_damaged_neighbours_loses_no_third(seed: int) -> None:
    """HOST-4: offset, magic, length, header and payload, in every format."""
    explore_pairs(seed, 300)


@pytest.mark.slow
def test_judge_two_damaged_neighbours_loses_no_third_with_any_seed() -> None:
    """As above, with damage that no test had before."""
    seed = secrets.randbits(32)
    explore_pairs(seed, 5000)
