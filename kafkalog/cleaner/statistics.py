"""What one cleaning read, kept, rewrote and dropped, and why.

Thread-safety: filled by one cleaning; read it when that is done, or accept that it grows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["CleaningStatistics"]


@dataclass(slots=True)
class CleaningStatistics:
    """
    Counts of the second pass, of one piece or of several added up.

    Attributes:
        bytes_read, bytes_written: sizes of the batches before and after.
        batches_read: those looked at; a plain message of an old format is one.
        batches_copied: those that stay byte for byte.
        batches_rewritten: those that lost records, or got a delete horizon.
        batches_emptied: those of which only the header stays.
        records_read, records_kept: control records too.
        superseded: records dropped because a later one has their key.
        tombstones_expired: records without a value dropped because their time is over.
        keyless_dropped: records dropped because a compacted log cannot keep what has no key.
        aborted_dropped: records dropped because their transaction was aborted.
        control_dropped: control records dropped, their transactions being gone.
        tombstones_kept: records without a value that stay.
        horizons_set: batches that got a delete horizon: their tombstones were seen first.
        batches_grown: rewritten batches that became larger than they were and than the largest
            batch allowed: of codecs that compress less well than the producer's did.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    batches_read: int = 0
    batches_copied: int = 0
    batches_rewritten: int = 0
    batches_emptied: int = 0
    records_read: int = 0
    records_kept: int = 0
    superseded: int = 0
    tombstones_expired: int = 0
    keyless_dropped: int = 0
    aborted_dropped: int = 0
    control_dropped: int = 0
    tombstones_kept: int = 0
    horizons_set: int = 0
    batches_grown: int = 0

    def add(self, other: CleaningStatistics) -> None:
        """Add the counts of another piece of work to this one."""
        for name in _NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def as_dict(self) -> dict[str, int]:
        """Return all counts by attribute."""
        return {name: getattr(self, name) for name in _NAMES}


_NAMES = tuple(field.name for field in fields(CleaningStatistics))
