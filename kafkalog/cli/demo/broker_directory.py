"""Check of a real broker's data directory, partition by partition, record by record.

The golden data of the repository have manifests: count and SHA-256 of what Kafka's own classes read
from the same files. The demo computes both from what kafkalog reads. The hashed line is described
in the data's README: six fields separated by tabs, bytes in base64, `-` for null.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kafkalog import Record, open_log

__all__ = ["PartitionCheck", "check_partitions", "find_golden", "partition_names"]

_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
_GOLDEN_SET: Final = Path("tests") / "golden" / "kafka-4.1"


@dataclass(frozen=True, slots=True)
class PartitionCheck:
    """Records read from one partition, and the comparison with Kafka's classes."""

    name: str
    segments: int
    batches: int
    records: int
    codecs: str
    equal: bool


def find_golden() -> Path | None:
    """Return the golden set of the repository of this package, None if it is installed."""
    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        if (root / _GOLDEN_SET / "data").is_dir():
            return root / _GOLDEN_SET
    return None


def partition_names(golden: Path) -> list[str]:
    """Return the partitions of a set that have a manifest, sorted."""
    manifests = golden / "manifests"
    return sorted(
        path.name
        for path in (golden / "data").iterdir()
        if path.is_dir() and (manifests / f"{path.name}.summary.json").is_file()
    )


def check_partitions(golden: Path, names: Iterable[str]) -> Iterator[PartitionCheck]:
    """Read each partition from its log start offset to its end and compare with its manifest."""
    for name in names:
        summary = json.loads((golden / "manifests" / f"{name}.summary.json").read_text("utf-8"))
        expected = summary["dataRecordsFromLogStart"]
        with open_log(golden / "data" / name, read_only=True) as log:
            digest = hashlib.sha256()
            count = 0
            for record in log.records():
                digest.update(canonical_line(record))
                count += 1
            codecs: dict[str, None] = {}
            batches = 0
            for batch in log.batches():
                batches += 1
                codecs[batch.codec.name.lower()] = None
            yield PartitionCheck(
                name=name,
                segments=len(log.segments()),
                batches=batches,
                records=count,
                codecs=", ".join(codecs) or "-",
                equal=agrees(expected, count, digest.hexdigest()),
            )


def agrees(expected: dict[str, Any], count: int, sha256: str) -> bool:
    return (expected["count"], expected["sha256"]) == (count, sha256)


def canonical_line(record: Record) -> bytes:
    """Return the line of a record in the manifests' hash."""
    headers = ",".join(
        f"{encoded(name.encode('utf-8', 'surrogateescape'))}={encoded(value)}"
        for name, value in record.headers
    )
    fields = (
        str(record.offset),
        str(record.timestamp_ms),
        _TIMESTAMP_TYPES[record.timestamp_type],
        encoded(record.key),
        encoded(record.value),
        headers,
    )
    return "\t".join(fields).encode() + b"\n"


def encoded(data: bytes | None) -> str:
    return "-" if data is None else base64.b64encode(data).decode("ascii")
