"""Store of the next case, made before each, so that only its filling is timed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import kafkalog
from asv_bench.peers.stores import Workspace, log_config

SCRATCH_BYTES = 256 << 20


class Closable(Protocol):
    """A store, open."""

    def close(self) -> None: ...


class Fresh:
    """
    A store at a time, in the hand of the cases.

    Args:
        workspace: where they are made.
        batch_size: of logs.
        peers: what makes the store of a case, by its name; other cases get a log.
        warm: whether to write and delete a scratch file before, for pages that were untouched for
            long cost several times as much to write.
        settings: of logs.

    Attributes:
        path: of the present store.
        log: the present log, where there is one.
        store: the present store of a peer.
    """

    def __init__(
        self,
        workspace: Workspace,
        batch_size: int,
        peers: Mapping[str, Callable[[Path], Closable]],
        *,
        warm: bool = False,
        **settings: int | bool,
    ) -> None:
        self._workspace = workspace
        self._config = log_config(batch_size, **settings)
        self._peers = peers
        self._warm = warm
        self._close: Callable[[], None] = lambda: None
        self.path: Path | None = None
        self.log: kafkalog.Log
        self.store: Any

    def prepare(self, name: str) -> None:
        """Make the store for a case."""
        self.close()
        self.path = self._workspace.fresh()
        if self._warm:
            warm_pages(self._workspace.fresh())
        if name in self._peers:
            self.store = self._peers[name](self.path)
            self._close = self.store.close
        else:
            self.log = kafkalog.open_log(self.path, config=self._config)
            self._close = self.log.close

    def close(self) -> None:
        """Close the store of the last case, and remove it with the files next to it."""
        self._close()
        self._close = lambda: None
        self._workspace.remove_store(self.path)


class PlainFile:
    """A file that is written to, and nothing else."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT)

    def write(self, pieces: list[bytes]) -> None:
        """Write pieces one by one."""
        for piece in pieces:
            os.write(self.descriptor, piece)

    def write_synced(self, pieces: list[bytes]) -> None:
        """Write pieces, each on the disk before the next."""
        for piece in pieces:
            os.write(self.descriptor, piece)
            os.fdatasync(self.descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def warm_pages(path: Path) -> None:
    """Write and delete a scratch file."""
    piece = bytes(1 << 20)
    with path.open("wb") as scratch:
        for _ in range(SCRATCH_BYTES >> 20):
            scratch.write(piece)
    path.unlink()
