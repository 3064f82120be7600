"""Groups of segments that are cleaned into one, and the memory that the keys of a cleaning need.

Thread-safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog._core.offset_map import ENTRY_BYTES
from kafkalog.cleaner.selection import SegmentCleaningFacts
from kafkalog.log.judging import RELATIVE_OFFSET_MAX

__all__ = ["group_segments", "map_bytes_for", "parts_for"]


def group_segments(
    segments: Sequence[SegmentCleaningFacts],
    *,
    segment_bytes: int,
    index_bytes: int,
    end_offset: int,
) -> list[tuple[SegmentCleaningFacts, ...]]:
    """
    Divide segments into groups, each of which is cleaned into one segment (Cleaner in Kafka).

    The next segment joins a group while the sums of log and index sizes stay within the limits of a
    segment, and the offsets within the range of an index entry. A segment beyond these limits is a
    group alone.

    Args:
        segments: the segments to clean, in order: all from the start of the log.
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
        and (group[-1].size_bytes == 0 or span <= RELATIVE_OFFSET_MAX)
    )


def map_bytes_for(key_count: int, load_factor: float) -> int:
    """Return the memory of an offset map for `key_count` keys in one pass."""
    slots = int(key_count / load_factor)
    # The usable slots of a map are rounded down; the quotient may be rounded down or up.
    while slots and int((slots - 1) * load_factor) >= key_count:
        slots -= 1
    while int(slots * load_factor) < key_count:
        slots += 1
    return slots * ENTRY_BYTES


def parts_for(key_count: int, usable: int) -> int:
    """
    Return the number of parts into which the keys are divided, so that each part fits a map.

    Parts are ranges of hashes and differ in size by chance, so a tenth of each map is left free.

    Args:
        key_count: number of different keys, or an estimate that is not too low.
        usable: number of keys that fit the map.
    """
    if key_count <= usable:
        return 1
    return -(-key_count * 10 // (usable * 9))
