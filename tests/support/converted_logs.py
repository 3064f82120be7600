"""Logs to be converted, and what is asked of them before and afterwards."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

import kafkalog
from kafkalog import LogConfig, Record
from tests.support.golden_old import OldManifest
from tests.support.logs import numbered

__all__ = [
    "SMALL",
    "T",
    "bases",
    "ensure_placed",
    "ensure_reads_as",
    "read",
    "transaction_entries",
    "write_log",
    "write_old_log",
]

T: Final = 1_700_000_000_000
SMALL: Final = LogConfig(segment_bytes=4096, index_interval_bytes=512)


def write_log(directory: Path, *, config: LogConfig = SMALL, appends: int = 40) -> Path:
    """Write a log of 10 records an append, some with headers."""
    with kafkalog.open_log(directory, config=config) as log:
        for number in range(appends):
            records = numbered(number * 10, 9)
            records.append(Record(key=None, value=b"v" * 60, headers=[("h", None)], timestamp_ms=T))
            log.append(records)
    return directory


def write_old_log(directory: Path, *sets: bytes, base_offset: int = 0) -> Path:
    """Write one segment of message sets, as an old broker leaves it after a kill."""
    directory.mkdir()
    (directory / f"{base_offset:020}.log").write_bytes(b"".join(sets))
    return directory


def read(directory: Path) -> list[tuple[Any, ...]]:
    """Return all fields of records."""
    with kafkalog.open_log(directory, read_only=True) as log:
        return [
            (r.offset, r.timestamp_ms, max(r.timestamp_type, 0), r.key, r.value, r.headers)
            for r in log.records()
            if r.offset >= log.log_start_offset
        ]


def bases(directory: Path) -> list[int]:
    """Return the base offsets of the segments."""
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def transaction_entries(directory: Path) -> list[tuple[int, bytes]]:
    """Return base offset and bytes of every entry of the transaction indexes of a log."""
    found = []
    for path in sorted(directory.glob("*.txnindex")):
        data = path.read_bytes()
        found += [(int(path.stem), data[at : at + 34]) for at in range(0, len(data), 34)]
    return found


def ensure_placed(entries: list[tuple[int, bytes]], segments: list[int]) -> None:
    """Check that every entry is in the segment that holds its marker."""
    for base, entry in entries:
        marker = struct.unpack(">hqqqq", entry)[3]
        assert base == max(at for at in segments if at <= marker)


def ensure_reads_as(manifest: OldManifest, directory: Path) -> None:
    """Hold a converted log of an old broker against the facts of what it was made of."""
    summary = manifest.summary
    start = summary.log_start_offset
    facts = [f for f in manifest.records() if f.offset >= start and not f.is_control]
    found = [record for record in read(directory) if record[0] >= start]
    assert [f.offset for f in facts] == [record[0] for record in found]
    for fact, record in zip(facts, found, strict=True):
        kind = max(fact.timestamp_type, 0)
        assert (fact.timestamp_ms, kind, fact.key) == record[1:4]
        assert fact.has_value(record[4])
        assert fact.headers == record[5]
    with kafkalog.open_log(directory) as log:
        assert summary.log_end_offset == log.log_end_offset
        assert log.recovery_report.clean
        assert not log.recovery_report.rebuilt
        magics = {batch.header.magic for batch in log.batches(start)}
        assert magics == ({2} if magics else set())
