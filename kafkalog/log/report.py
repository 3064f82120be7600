"""Report of a recovery: its findings and actions, for people and for code.

Thread-safety: immutable values.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kafkalog.log.corrupt_ranges import CorruptRange

__all__ = ["RecoveryReport", "RefusedSwap", "RepairedIndex", "TruncatedTail"]


@dataclass(frozen=True, slots=True)
class TruncatedTail:
    """
    Bytes cut from the end of the last segment.

    Attributes:
        path: the segment file.
        position: new end of the file: the end of the last whole batch.
        size_bytes: number of the bytes.
        reason: name of the check that the first of them failed.
        kept_in: side file with the bytes, None if all of them were zeros.
    """

    path: Path
    position: int
    size_bytes: int
    reason: str
    kept_in: Path | None


@dataclass(frozen=True, slots=True)
class RefusedSwap:
    """
    A `.swap` file that replaced nothing, since it was damaged or did not cover the old segments.

    Attributes:
        path: its former path.
        reason: the reason.
        kept_in: its path now.
    """

    path: Path
    reason: str
    kept_in: Path


@dataclass(frozen=True, slots=True)
class RepairedIndex:
    """
    A transaction index that contradicted the batches of its segment, and no longer does.

    A broker, or any program that believes the file, returns records of aborted transactions as
    committed, or leaves committed ones out. Only contradictions that were on the disk before the
    last stop or crash are reported: an index that is missing, or lacks entries that a crash
    removed, is rebuilt without a report.

    Attributes:
        path: the `.txnindex` file.
        reason: the contradiction.
        removed: entries without a marker of the segment, or with other fields.
        added: aborted transactions of the segment that had no right entry.
        is_written: whether the file is right now; else the log uses entries in memory: it is open
            read-only, or the disk failed.
    """

    path: Path
    reason: str
    removed: int
    added: int
    is_written: bool


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """
    Findings and actions of the opening of a log.

    Attributes:
        clean: whether the last writer closed the log in order, so that nothing was scanned.
        scanned_segments, scanned_bytes, scanned_batches, scanned_records: extent of the scan.
        rewritten_bytes: bytes above the recovery point that were written and synced again.
        cut: torn tails that were cut; their bytes are kept next to the log.
        rebuilt: rebuilt index files.
        corrupt_ranges: corrupt ranges with whole batches after them, or below the recovery point.
        removed: files of unfinished work that were removed.
        completed_swaps: segments of a finished compaction that were swapped in.
        refused_swaps: `.swap` files that replaced nothing and are kept as `.broken`.
        repaired: transaction indexes of scanned segments that contradicted them.
        ignored: files that are named like segments, but as no segment is; their records are not
            served, and they stay.
        log_start_offset, log_end_offset, recovery_point: range of the log after recovery.
        duration_ms: duration of the opening.
    """

    clean: bool
    scanned_segments: int
    scanned_bytes: int
    scanned_batches: int
    scanned_records: int
    rewritten_bytes: int
    cut: tuple[TruncatedTail, ...]
    rebuilt: tuple[Path, ...]
    corrupt_ranges: tuple[CorruptRange, ...]
    removed: tuple[Path, ...]
    completed_swaps: tuple[Path, ...]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    duration_ms: int
    refused_swaps: tuple[RefusedSwap, ...] = ()
    repaired: tuple[RepairedIndex, ...] = ()
    ignored: tuple[Path, ...] = ()

    @property
    def found_damage(self) -> bool:
        """True if anything was cut, found corrupt, refused, repaired, or ignored."""
        return bool(
            self.cut or self.corrupt_ranges or self.refused_swaps or self.repaired or self.ignored
        )

    def summary(self) -> str:
        """Return the report in one line."""
        if self.clean and not self.found_damage:
            return f"clean: offsets {self.log_start_offset} to {self.log_end_offset}"
        extent = f"{self.scanned_bytes:,} bytes ({self.scanned_batches:,} batches)"
        place = f"{self.scanned_segments} segments in {self.duration_ms} ms"
        parts = [f"scanned {extent} in {place}"]
        for tail in self.cut:
            kept = "all zeros" if tail.kept_in is None else f"kept in {tail.kept_in.name}"
            parts.append(f"cut {tail.size_bytes:,} torn bytes of {tail.path.name} ({kept})")
        parts.extend(
            f"corrupt range of {each.size_bytes:,} bytes of {each.path.name} at {each.position}"
            f" ({each.reason}; offsets {each.first_offset} to {each.next_offset - 1})"
            for each in self.corrupt_ranges
        )
        parts.extend(
            f"{swap.path.name} replaced nothing: {swap.reason} (kept in {swap.kept_in.name})"
            for swap in self.refused_swaps
        )
        parts.extend(f"{path.name} is not a segment" for path in self.ignored)
        parts.extend(f"repaired {index.path.name}: {index.reason}" for index in self.repaired)
        if self.rebuilt:
            parts.append(f"rebuilt {len(self.rebuilt)} index files")
        if self.completed_swaps:
            parts.append(f"completed the swap of {len(self.completed_swaps)} segments")
        parts.append(f"offsets {self.log_start_offset} to {self.log_end_offset}")
        return "; ".join(parts)
