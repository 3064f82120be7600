"""The bytes of real brokers under `tests/golden`, and their manifests.

The facts have their types in `tests.support.manifest`; the directories of brokers before 4.1 have
a module of their own, `tests.support.golden_old`. `tests/golden` is never written: a test
that needs to write takes a copy with `copy_data_directory`, and proves with `unchanged` that a
reader left the bytes alone. A data directory lacks one thing that a broker has there: the empty
`.lock` file.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

from tests.support.manifest import (
    CODECS,
    TIMESTAMP_TYPES,
    AbortedTransactionFact,
    BatchFact,
    ConsumerFact,
    CountAndHash,
    Headers,
    ProducerFact,
    RecordFact,
    RecoveredFact,
    SegmentFact,
    Summary,
    TimestampAnswer,
    parse_batch,
    parse_record,
    parse_summary,
)

__all__ = [
    "CLEAN",
    "CODECS",
    "DATA_SETS",
    "GOLDEN",
    "SWAP",
    "TIMESTAMP_TYPES",
    "UNCLEAN",
    "AbortedTransactionFact",
    "BatchFact",
    "CanonicalRecord",
    "ConsumerFact",
    "CountAndHash",
    "Manifest",
    "ProducerFact",
    "RecordFact",
    "RecoveredFact",
    "SegmentFact",
    "Summary",
    "TimestampAnswer",
    "all_partitions",
    "canonical_hash",
    "canonical_line",
    "copy_data_directory",
    "copy_partition",
    "copy_tree",
    "data_directory",
    "partitions",
    "read_lines",
    "snapshot",
    "unchanged",
    "vectors",
]

GOLDEN: Final = Path(__file__).resolve().parent.parent / "golden"

CLEAN: Final = "kafka-4.1"
UNCLEAN: Final = "kafka-4.1-unclean"
SWAP: Final = "kafka-4.1-swap"
DATA_SETS: Final = (CLEAN, UNCLEAN, SWAP)

_COPY_CHUNK_BYTES: Final = 1 << 16


class CanonicalRecord(Protocol):
    """The fields of a record for the canonical hash; `kafkalog`'s own record has them all."""

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


class Manifest:
    """
    The manifest of one golden partition; read lazily, a file at a time.

    `recovered=True` gives the second manifest of the swap set: the log that a broker made of it.
    """

    def __init__(self, data_set: str, partition: str, *, recovered: bool = False) -> None:
        self.data_set = data_set
        self.partition = partition
        self._stem = partition + (".recovered" if recovered else "")
        self._directory = GOLDEN / data_set / "manifests"

    def __repr__(self) -> str:
        return f"Manifest({self.data_set!r}, {self._stem!r})"

    @property
    def directory(self) -> Path:
        """The partition's directory; a fixture, not to be written."""
        return data_directory(self.data_set) / self.partition

    @cached_property
    def summary(self) -> Summary:
        """The facts about the whole partition."""
        path = self._directory / f"{self._stem}.summary.json"
        return parse_summary(json.loads(path.read_text("utf-8")))

    def records(self) -> Iterator[RecordFact]:
        """Yield every record of every segment in file order, control records too."""
        for line in read_lines(self._directory / f"{self._stem}.jsonl.gz"):
            yield parse_record(line)

    def batches(self) -> Iterator[BatchFact]:
        """Yield every batch of every segment in file order, emptied ones too."""
        for line in read_lines(self._directory / f"{self._stem}.batches.jsonl.gz"):
            yield parse_batch(line)

    def dump(self) -> str:
        """Return the output of Kafka's own DumpLogSegments on this partition."""
        path = self._directory / "dumps" / f"{self._stem}.txt.gz"
        return gzip.decompress(path.read_bytes()).decode("utf-8")


def data_directory(data_set: str) -> Path:
    """Return the `log.dirs` directory of a set; a fixture, not to be written."""
    path = GOLDEN / data_set / "data"
    if not path.is_dir():
        raise FileNotFoundError(f"golden data directory {path} is missing")
    return path


def partitions(data_set: str) -> tuple[str, ...]:
    """Return the names of the partition directories of a set, sorted."""
    return tuple(sorted(path.name for path in data_directory(data_set).iterdir() if path.is_dir()))


def all_partitions() -> tuple[tuple[str, str], ...]:
    """Return (set, partition) of every golden partition: parameters for a test."""
    return tuple((name, partition) for name in DATA_SETS for partition in partitions(name))


def vectors(name: str) -> dict[str, Any]:
    """Return one file of `vectors/` as parsed; its README describes the members."""
    parsed: dict[str, Any] = json.loads((GOLDEN / "vectors" / f"{name}.json").read_text("utf-8"))
    return parsed


def canonical_line(record: CanonicalRecord) -> bytes:
    """Return the line of one record in the canonical hash."""
    headers = ",".join(
        f"{_encoded(name.encode('utf-8', 'surrogateescape'))}={_encoded(value)}"
        for name, value in record.headers
    )
    fields = (
        str(record.offset),
        str(record.timestamp_ms),
        TIMESTAMP_TYPES[record.timestamp_type],
        _encoded(record.key),
        _encoded(record.value),
        headers,
    )
    return "\t".join(fields).encode() + b"\n"


def canonical_hash(records: Iterable[CanonicalRecord]) -> CountAndHash:
    """Return count and canonical SHA-256 of records, which must come in offset order."""
    digest = hashlib.sha256()
    count = 0
    for record in records:
        digest.update(canonical_line(record))
        count += 1
    return CountAndHash(count, digest.hexdigest())


def copy_data_directory(data_set: str, target: Path) -> Path:
    """
    Copy a set's data directory to `target` (made here) and return it; the copy may be written.

    Files stay sparse: the indexes of the unclean set are 10 MiB of zeros for a few entries.
    """
    return copy_tree(data_directory(data_set), target)


def copy_partition(data_set: str, partition: str, target: Path) -> Path:
    """Copy one partition directory alone, without its data directory's checkpoints."""
    return copy_tree(data_directory(data_set) / partition, target)


def snapshot(directory: Path) -> dict[str, str]:
    """Return relative path -> SHA-256 of every file below `directory`; directories end in `/`."""
    found: dict[str, str] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_dir():
            found[name + "/"] = ""
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@contextmanager
def unchanged(directory: Path) -> Iterator[None]:
    """Assert that what runs inside leaves every name and every byte of `directory` as it was."""
    before = snapshot(directory)
    yield
    assert before == snapshot(directory), f"the bytes of {directory} changed"


def copy_tree(source: Path, target: Path) -> Path:
    """Copy a directory of golden files to `target` (made here), sparse files sparse; return it."""
    target.mkdir(parents=True)
    for path in sorted(source.rglob("*")):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir()
        else:
            _copy_sparse(path, copy)
    return target


def _copy_sparse(source: Path, target: Path) -> None:
    zeros = bytes(_COPY_CHUNK_BYTES)
    with source.open("rb") as reader, target.open("xb") as writer:
        while chunk := reader.read(_COPY_CHUNK_BYTES):
            if chunk == zeros[: len(chunk)]:
                writer.seek(len(chunk), os.SEEK_CUR)
            else:
                writer.write(chunk)
        writer.truncate()


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a compressed file of JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)


def _encoded(value: bytes | None) -> str:
    return "-" if value is None else base64.b64encode(value).decode("ascii")
