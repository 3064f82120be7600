"""`meta.properties` of all data directories together: one cluster, one node, each directory itself.

Rules of a broker: all directories agree on cluster and node, no two have one directory id. A
directory without the file gets one like the others'; where none has it, ids are made up. A file
of version 0 is kept as it is, but for a directory id.

Crash points: those of replacing the file; some directories may have theirs and others not yet,
which the next start makes up for.

Thread-safety: pure functions over the disk; the locks of the directories are held.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from kafkalog.errors import ConfigError
from kafkalog.state.kafka_uuid import format_id, new_id
from kafkalog.state.meta_properties import MetaProperties

__all__ = ["DEFAULT_NODE_ID", "agree"]

DEFAULT_NODE_ID = 1

T = TypeVar("T")


def agree(
    found: Mapping[Path, MetaProperties | None],
    *,
    cluster_id: str | None = None,
    node_id: int | None = None,
) -> tuple[str, int]:
    """
    Return the cluster and the node that directories belong to, made up where none says.

    Args:
        found: what the file of each directory says, None where there is none.
        cluster_id, node_id: what they have to say; None for whatever they say.

    Raises:
        ConfigError: they contradict each other, or what they have to say.
    """
    cluster = _one_of("cluster.id", cluster_id, {p: m.cluster_id for p, m in found.items() if m})
    node = _one_of("node.id", node_id, {p: m.node_id for p, m in found.items() if m})
    ids: dict[object, Path] = {}
    for path, meta in found.items():
        if meta is None or meta.directory_id is None:
            continue
        other = ids.setdefault(meta.directory_id, path)
        if other != path:
            raise ConfigError(
                f"{path} and {other} have one directory.id, {format_id(meta.directory_id)}: one is"
                " a copy of the other; remove the line from the copy's meta.properties",
                path=path,
            )
    return cluster or format_id(new_id()), DEFAULT_NODE_ID if node is None else node


def _one_of(key: str, wanted: T | None, said: Mapping[Path, T | None]) -> T | None:
    """Return the one value that is wanted or said, None where none is."""
    first: Path | None = None
    for path, value in said.items():
        if value is None:
            continue
        if wanted is None:
            wanted, first = value, path
        elif value != wanted:
            other = "asked for" if first is None else f"that of {first}"
            raise ConfigError(f"{path}: {key} is {value}, not {wanted}, {other}", path=path)
    return wanted
