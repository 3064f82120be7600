"""`meta.properties`: the cluster and the node that a data directory belongs to.

A Java properties file in ISO-8859-1, of version 1 (KRaft) or 0 (ZooKeeper; also if `version` is
missing):

    #                                       two comment lines, the second with the date
    #Sat Nov 21 08:01:20 UTC 2026
    node.id=1                               required in version 1, absent in 0
    directory.id=2123QeLtTdyNcuDceqQFNw
    version=1
    cluster.id=dMKr_zHSSDuy_QKL-pe5ng       required in version 1

Unknown keys are ignored when it is read, as by a broker. The file is replaced as a whole: after a
crash it is the old one or the new one (`kafkalog.files.atomic_files`).

Thread-safety: pure functions over the disk.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkalog.errors import CorruptStateError
from kafkalog.files.atomic_files import read_file, replace_file
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import META_PROPERTIES
from kafkalog.java_properties import ENCODING, parse_properties
from kafkalog.state.kafka_uuid import format_id, is_reserved_directory_id, parse_id

__all__ = [
    "MetaProperties",
    "format_properties",
    "read_meta_properties",
    "write_meta_properties",
]

_MAX_BYTES: Final = 1024 * 1024
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """
    Content of the file. `node_id` is `broker.id` in version 0, `node.id` in version 1.

    Version 1 requires `cluster_id` and `node_id`.
    """

    version: int = 1
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: uuid.UUID | None = None

    def __post_init__(self) -> None:
        if self.version not in (0, 1):
            raise ValueError(f"version must be 0 or 1, got {self.version}")
        if self.version == 1 and (self.cluster_id is None or self.node_id is None):
            raise ValueError("version 1 requires cluster.id and node.id")
        if self.node_id is not None and not -(2**31) <= self.node_id < 2**31:
            raise ValueError(f"node id must fit 32 bits, got {self.node_id}")
        if self.directory_id is not None and is_reserved_directory_id(self.directory_id):
            raise ValueError(
                f"directory.id must not be reserved, got {format_id(self.directory_id)}"
            )


def read_meta_properties(filesystem: FileSystem, directory: Path) -> MetaProperties | None:
    """
    Return the content of the directory's file, or None if it is missing.

    Raises:
        CorruptStateError: the file is damaged, of an unknown version, or lacks a required key.
        LogStorageError: the file cannot be read.
    """
    path = directory / META_PROPERTIES
    try:
        with storage_errors(path, doing="reading"):
            data = read_file(filesystem, path, max_bytes=_MAX_BYTES)
        if data is None:
            return None
        pairs = parse_properties(data.decode(ENCODING))
        return _from_properties({each.key: each.value for each in pairs})
    except ValueError as error:
        raise CorruptStateError(f"{path}: {error}", path=path) from error


def _from_properties(properties: Mapping[str, str]) -> MetaProperties:
    version = _integer(properties, "version")
    version = 0 if version is None else version
    directory_id = properties.get("directory.id")
    return MetaProperties(
        version=version,
        cluster_id=properties.get("cluster.id"),
        node_id=_integer(properties, "broker.id" if version == 0 else "node.id"),
        directory_id=None if directory_id is None else parse_id(directory_id),
    )


def _integer(properties: Mapping[str, str], key: str) -> int | None:
    text = properties.get(key)
    if text is None:
        return None
    if re.fullmatch(r"-?[0-9]{1,10}", text) is None:
        raise ValueError(f"{key} must be a number, got {text[:40]!r}")
    return int(text)


def write_meta_properties(
    filesystem: FileSystem, directory: Path, properties: MetaProperties, *, now_ms: int
) -> None:
    """Write the directory's file with the date `now_ms`; it is on the disk when this returns."""
    node_key = "broker.id" if properties.version == 0 else "node.id"
    pairs: dict[str, str] = {}
    if properties.node_id is not None:
        pairs[node_key] = str(properties.node_id)
    if properties.directory_id is not None:
        pairs["directory.id"] = format_id(properties.directory_id)
    pairs["version"] = str(properties.version)
    if properties.cluster_id is not None:
        pairs["cluster.id"] = properties.cluster_id
    path = directory / META_PROPERTIES
    with storage_errors(path, doing="writing"):
        replace_file(filesystem, path, format_properties(pairs, now_ms=now_ms).encode("ascii"))


def format_properties(pairs: Mapping[str, str], *, now_ms: int) -> str:
    """Return a Java properties file in ASCII, with escapes."""
    at = time.gmtime(now_ms // 1000)
    date = (
        f"{_DAYS[at.tm_wday]} {_MONTHS[at.tm_mon - 1]} {at.tm_mday:02d} "
        f"{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d} UTC {at.tm_year}"
    )
    lines = [f"{_escape(key, True)}={_escape(value, False)}\n" for key, value in pairs.items()]
    return f"#\n#{date}\n" + "".join(lines)


_ESCAPES: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}


def _escape(text: str, is_key: bool) -> str:
    parts = []
    for position, character in enumerate(text):
        if character in _ESCAPES:
            parts.append(_ESCAPES[character])
        elif character in "=:#!" or (character == " " and (is_key or position == 0)):
            parts.append("\\" + character)
        elif " " <= character <= "~":
            parts.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            parts += [f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2)]
    return "".join(parts)
