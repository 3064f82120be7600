"""Offsets of records that one call has sent."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SentRange"]


class SentRange(NamedTuple):
    """
    Records of one call at consecutive offsets.

    Attributes:
        partition: the partition.
        first_offset: offset of the first.
        record_count: number of records.
        is_duplicate: True if the log had them before: nothing was stored, and the offsets are those
            of the first time.
    """

    partition: int
    first_offset: int
    record_count: int
    is_duplicate: bool = False
