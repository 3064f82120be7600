"""Contents of the directories of old brokers, and the part that a reader of the log gets."""

from __future__ import annotations

from functools import cache

from tests.support import golden_old
from tests.support.golden_old import OldManifest
from tests.support.manifest_old import OldEntryFact, OldRecordFact

__all__ = ["PARTITIONS", "entries_of", "manifest_of", "visible_of"]

PARTITIONS = golden_old.all_old_partitions()


@cache
def manifest_of(broker: str, partition: str) -> OldManifest:
    return OldManifest(broker, partition)


@cache
def entries_of(manifest: OldManifest) -> tuple[OldEntryFact, ...]:
    """Return the outer entries that reach the log start offset."""
    start = manifest.summary.log_start_offset
    return tuple(entry for entry in manifest.entries() if entry.offset >= start)


@cache
def visible_of(manifest: OldManifest) -> tuple[OldRecordFact, ...]:
    """Return the records that a reader gets: no control records, none below the log start."""
    start = manifest.summary.log_start_offset
    return tuple(
        record
        for entry in entries_of(manifest)
        for record in entry.records
        if record.offset >= start and not record.is_control
    )
