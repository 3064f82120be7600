"""Pristine partitions for the judge of mutated directories, with what each offset holds.

Two sources: the partitions that brokers 0.8.2 to 4.1 wrote, whose manifests were made by Kafka's
own classes, and partitions that are appended here, where the judge keeps what it appended. An image
is a few files in memory; a case writes them to a separate folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import kafkalog
from tests.proof.entries import Entry, entries_of
from tests.support import golden, golden_old

__all__ = ["Image", "Served", "broker_images", "own_images", "served_of"]

# Offset -> (timestamp, hash of key, hash of value).
Served = dict[int, tuple[int, bytes | None, bytes | None]]

FILE_BYTES_MAX = 300_000


@dataclass(frozen=True)
class Image:
    """
    One partition directory.

    Attributes:
        name: names it in reports.
        partition: name of the directory.
        files: name -> bytes.
        truth: what each offset holds, markers left out.
        committed: the offsets that readers of committed records may be given; None if unknown.
        is_compacted: offsets may be missing although nothing is damaged.
        settings: the log's, for opening.
    """

    name: str
    partition: str
    files: dict[str, bytes]
    truth: Served
    committed: frozenset[int] | None = None
    is_compacted: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def entries(self) -> dict[str, list[Entry]]:
        """The entries of each live `.log` file, by the file's name."""
        return {
            name: list(entries_of(data, int(name[:20])))
            for name, data in sorted(self.files.items())
            if name.endswith(".log") and name[:20].isdigit()
        }

    @cached_property
    def set_aside(self) -> list[Entry]:
        """The entries of the segments that a broker or a cleaning had under other names."""
        return [
            entry
            for name, data in sorted(self.files.items())
            if name[:20].isdigit() and name[20:25] == ".log."
            for entry in entries_of(data, int(name[:20]))
        ]

    @property
    def size_bytes(self) -> int:
        """The size of all files, to which the time of a case is about proportional."""
        return sum(map(len, self.files.values()))

    def write(self, folder: Path) -> Path:
        """Write the files below `folder`; return the partition's directory."""
        directory = folder / self.partition
        directory.mkdir(parents=True)
        for name, data in self.files.items():
            (directory / name).write_bytes(data)
        return directory


def hashed(data: bytes | memoryview | None) -> bytes | None:
    """Return a short hash of a key or a value, None for null."""
    return None if data is None else hashlib.blake2b(data, digest_size=8).digest()


def served_of(records: Iterable[Any]) -> Served:
    """Return what records hold, by offset; an offset that is served twice raises ValueError."""
    found: Served = {}
    last = -1
    for record in records:
        if record.offset <= last:
            raise ValueError(f"offset {record.offset} is served after offset {last}")
        last = record.offset
        found[last] = record.timestamp_ms, hashed(record.key), hashed(record.value)
    return found


def _files_of(directory: Path) -> dict[str, bytes] | None:
    files = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    if sum(len(data) for data in files.values()) > FILE_BYTES_MAX:
        return None
    return files


def broker_images() -> Iterator[Image]:
    """Yield the golden partitions that are small and whose every record is in the manifest."""
    for data_set, partition in golden.all_partitions():
        if data_set == golden.SWAP:
            continue
        manifest = golden.Manifest(data_set, partition)
        yield from _image(f"{data_set}/{partition}", manifest, "compact" in partition)
    for broker, partition in golden_old.all_old_partitions():
        old = golden_old.OldManifest(broker, partition)
        yield from _image(f"{broker}/{partition}", old, "compact" in partition)


def _image(name: str, manifest: Any, is_compacted: bool) -> Iterator[Image]:
    files = _files_of(manifest.directory)
    if files is None or not any(name.endswith(".log") for name in files):
        return
    truth: Served = {}
    for record in manifest.records():
        if record.is_control:
            continue
        if record.value is None and record.value_size >= 0:
            return
        truth[record.offset] = record.timestamp_ms, hashed(record.key), hashed(record.value)
    is_compacted |= manifest.directory.name.startswith("__")
    yield Image(name, manifest.directory.name, files, truth, is_compacted=is_compacted)


_SETTINGS: dict[str, Any] = {
    "segment_bytes": 1500,
    "index_interval_bytes": 100,
    "segment_index_bytes": 64 * 1024,
    "message_timestamp_after_max_ms": 2**63 - 1,
}
_FORMATS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("v2", {}),
    ("v2-lz4", {"compression_type": "lz4"}),
    ("v2-zstd", {"compression_type": "zstd"}),
    ("v1", {"message_format_version": "0.10.2"}),
    ("v1-gzip", {"message_format_version": "0.10.2", "compression_type": "gzip"}),
    ("v0", {"message_format_version": "0.9.0"}),
    ("v0-snappy", {"message_format_version": "0.9.0", "compression_type": "snappy"}),
)


def own_images(folder: Path) -> Iterator[Image]:
    """Yield partitions that are appended here: each format, closed and as a kill leaves it."""
    for name, settings in _FORMATS:
        settings = {**_SETTINGS, **settings}
        directory = folder / f"own-{name}" / "orders-0"
        log = kafkalog.open_log(directory, config=kafkalog.LogConfig(**settings))
        truth: Served = {}
        number = 0
        for count in (1, 3, 2, 5, 1, 4, 1, 1, 6, 2) * 3:
            records = []
            for _ in range(count):
                has_time = "0.9" not in str(settings.get("message_format_version"))
                timestamp = 1_700_000_000_000 + number if has_time else -1
                key, value = b"k%d" % number, b"v%d" % number * (1 + number % 7)
                truth[number] = timestamp, hashed(key), hashed(value)
                records.append(kafkalog.Record(key=key, value=value, timestamp_ms=timestamp))
                number += 1
            log.append(records)
            if number % 11 == 0:
                log.flush()
        killed = _files_of(directory) or {}
        log.close()
        closed = _files_of(directory) or {}
        yield Image(f"own/{name}/closed", "orders-0", closed, truth, settings=settings)
        yield Image(f"own/{name}/killed", "orders-0", killed, truth, settings=settings)
