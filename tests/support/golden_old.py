"""The directories of Kafka 0.8.2 to 2.8 under `tests/golden/kafka-old`, and their manifests.

The facts have their types in `tests.support.manifest_old`. Like all of `tests/golden`, these bytes
are never written: a test that needs to write takes a copy, and `golden.unchanged` proves that a
reader left them alone. Unlike the 4.1 sets, a broker's directory has its empty `.lock` file here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Final, Protocol

from tests.support import golden
from tests.support.manifest import Headers
from tests.support.manifest_old import (
    NO_TIMESTAMP_TYPE,
    TIMESTAMP_TYPE_NAMES,
    OldEntryFact,
    OldRecordFact,
    OldSummary,
    Rendered,
    parse_old_record,
    parse_old_summary,
)

__all__ = [
    "BROKERS",
    "OldManifest",
    "RenderedRecord",
    "all_old_partitions",
    "copy_old_data_directory",
    "copy_old_partition",
    "old_data_directory",
    "old_partitions",
    "rendered",
]

BROKERS: Final = ("kafka-0.8.2", "kafka-0.9.0", "kafka-0.10.2", "kafka-2.8")
_ROOT: Final = golden.GOLDEN / "kafka-old"


class RenderedRecord(Protocol):
    """The fields of a record for a rendering; `kafkalog`'s own has them, but for a long value."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


class OldManifest:
    """The manifest of one partition of an old broker; read lazily, a file at a time."""

    def __init__(self, broker: str, partition: str) -> None:
        self.broker = broker
        self.partition = partition
        self._directory = _ROOT / "manifests" / broker

    def __repr__(self) -> str:
        return f"OldManifest({self.broker!r}, {self.partition!r})"

    @property
    def directory(self) -> Path:
        """The partition's directory; a fixture, not to be written."""
        return old_data_directory(self.broker) / self.partition

    @cached_property
    def summary(self) -> OldSummary:
        """The facts about the whole partition."""
        path = self._directory / f"{self.partition}.summary.json"
        return parse_old_summary(json.loads(path.read_text("utf-8")))

    def records(self) -> Iterator[OldRecordFact]:
        """Yield every record of every segment in log order, control records and old ones too."""
        for line in golden.read_lines(self._directory / f"{self.partition}.jsonl.gz"):
            yield parse_old_record(line)

    def entries(self) -> Iterator[OldEntryFact]:
        """Yield every outer entry that has records, in log order."""
        for (segment, position), group in groupby(
            self.records(), key=lambda record: (record.segment, record.position)
        ):
            records = tuple(group)
            first = records[0]
            yield OldEntryFact(
                magic=first.magic,
                codec=first.codec,
                offset=first.wrapper_offset,
                segment=segment,
                position=position,
                size_bytes=first.batch_size,
                crc=first.crc,
                records=records,
            )


def old_data_directory(broker: str) -> Path:
    """Return the `log.dirs` directory of a broker; a fixture, not to be written."""
    path = _ROOT / broker
    if not path.is_dir():
        raise FileNotFoundError(f"golden data directory {path} is missing")
    return path


def old_partitions(broker: str) -> tuple[str, ...]:
    """Return the names of a broker's partition directories, sorted."""
    return tuple(
        sorted(path.name for path in old_data_directory(broker).iterdir() if path.is_dir())
    )


def all_old_partitions() -> tuple[tuple[str, str], ...]:
    """Return (broker, partition) of all 123: parameters for a test."""
    return tuple((broker, name) for broker in BROKERS for name in old_partitions(broker))


def copy_old_data_directory(broker: str, target: Path) -> Path:
    """Copy a broker's data directory to `target` (made here) and return it; it may be written."""
    return golden.copy_tree(old_data_directory(broker), target)


def copy_old_partition(broker: str, partition: str, target: Path) -> Path:
    """Copy one partition directory alone, without its data directory's checkpoints."""
    return golden.copy_tree(old_data_directory(broker) / partition, target)


def rendered(
    records: Iterable[RenderedRecord], *, bare: bool = False, headers: bool = True
) -> Rendered:
    """
    Return count, first and last offset and SHA-256 of records, as the summaries have them.

    `bare` leaves out timestamps, their types and headers, `headers=False` the headers alone: what
    consumers of 0.9 and of 0.10 see.
    """
    digest = hashlib.sha256()
    offsets = []
    for record in records:
        timestamp = -1 if bare else record.timestamp_ms
        timestamp_type = NO_TIMESTAMP_TYPE if bare else record.timestamp_type
        fields = (
            str(record.offset),
            str(timestamp),
            TIMESTAMP_TYPE_NAMES[timestamp_type],
            _hex(record.key),
            _hex(record.value),
            _headers(record.headers) if headers and not bare else "",
        )
        digest.update("\t".join(fields).encode() + b"\n")
        offsets.append(record.offset)
    first, last = (offsets[0], offsets[-1]) if offsets else (-1, -1)
    return Rendered(len(offsets), first, last, digest.hexdigest())


def _headers(headers: Headers) -> str:
    return ",".join(
        f"{name.encode('utf-8', 'surrogateescape').hex()}:{_hex(value)}" for name, value in headers
    )


def _hex(data: bytes | None) -> str:
    return "null" if data is None else data.hex()
