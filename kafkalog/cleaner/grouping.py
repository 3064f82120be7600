"""Which segments are cleaned into one, and what memory the keys of a cleaning need.

Thread-safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafkalog.cleaner.selection import SegmentCleaningFacts

__all__ = ["ENTRY_BYTES", "group_segments", "map_bytes_for", "parts_for"]

# Offsets in an index are 32 bits beside the segment's base.
_RELATIVE_OFFSET_MAX: Final = 2**31 - 1
ENTRY_BYTES: Final = 24


def group_segments(
    segments: Sequence[SegmentCleaningFacts],
    *,
    segment_bytes: int,
    index_bytes: int,
    end_offset: int,
) -> list[tuple[SegmentCleaningFacts, ...]]:
    """
    Divide segments into groups, each of which is cleaned into one segment (Cleaner in Kafka).

    A group takes the next segment while log and indexes of all together stay within what a segment
    may have, and its offsets within what an index can say. A segment beyond these bounds is a group
    of its own.

    Args:
        segments: what is cleaned, in order: all from the start of the log.
        segment_bytes: `segment.bytes`.
        index_bytes: `segment.index.bytes`, for either index.
        end_offset: the first uncleanable offset.
    """
    groups: list[list[SegmentCleaningFacts]] = []
    bases = [*(segment.base_offset for segment in segments), end_offset]
    for segment, next_base in zip(segments, bases[1:], strict=True):
        if groups and _fits([*groups[-1], segment], next_base - 1, segment_bytes, index_bytes):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return [tuple(group) for group in groups]


def _fits(
    group: Sequence[SegmentCleaningFacts], last_offset: int, segment_bytes: int, index_bytes: int
) -> bool:
    span = last_offset - group[0].base_offset
    return (
        sum(segment.size_bytes for segment in group) <= segment_bytes
        and sum(segment.offset_index_bytes for segment in group) <= index_bytes
        and sum(segment.time_index_bytes for segment in group) <= index_bytes
        and (group[-1].size_bytes == 0 or span <= _RELATIVE_OFFSET_MAX)
    )


def map_bytes_for(key_count: int, load_factor: float) -> int:
    """Return the memory of an offset map that takes so many keys in one pass."""
    slots = int(key_count / load_factor)
    # What a map uses is rounded down, and so may the quotient be, or up.
    while slots and int((slots - 1) * load_factor) >= key_count:
        slots -= 1
    while int(slots * load_factor) < key_count:
        slots += 1
    return slots * ENTRY_BYTES


def parts_for(key_count: int, usable: int) -> int:
    """
    Return into how many parts of the keys a pass is divided, so that each fits a map.

    Parts are told by the hash and differ in size by chance: each gets a tenth of its room to spare.

    Args:
        key_count: how many different keys there are, or an estimate that is not too low.
        usable: keys that the map takes.
    """
    if key_count <= usable:
        return 1
    return -(-key_count * 10 // (usable * 9))
