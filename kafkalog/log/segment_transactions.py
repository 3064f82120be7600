"""Transaction index of a segment, made at its first use: most segments never need one.

It records up to which position it was compared with the batches of the segment;
`kafkalog.log.transactions` compares it when that is needed.

Thread-safety: fields change under the context's `repair_lock`; `verified_end` may be read by any
thread, and never falls.
"""

from __future__ import annotations

import contextlib
from typing import Final

from kafkalog.errors import CorruptIndexError
from kafkalog.indexes.transaction_index import TransactionIndex
from kafkalog.log.report import RepairedIndex
from kafkalog.log.segment_types import SegmentContext

__all__ = ["KEPT", "SegmentTransactions"]

# `verified_end` of an index that was written with every batch since the segment was begun.
KEPT: Final = 2**63 - 1


class SegmentTransactions:
    """
    Aborted transactions whose markers are in a segment.

    Args:
        context: settings and parts that the segments of the log share.
        base_offset: base offset of the segment.

    Attributes:
        verified_end: bytes of the segment that the index was compared with; -1 for none.
        is_loaded: whether the file was read, or there is none.
        repaired: known contradiction of the file and the segment, None without one.
    """

    __slots__ = (
        "_base_offset",
        "_context",
        "_index",
        "_is_retired",
        "is_loaded",
        "repaired",
        "verified_end",
    )

    def __init__(self, context: SegmentContext, base_offset: int) -> None:
        self._context = context
        self._base_offset = base_offset
        self._index: TransactionIndex | None = None
        self._is_retired = False
        self.verified_end = -1
        self.is_loaded = False
        self.repaired: RepairedIndex | None = None

    @property
    def index(self) -> TransactionIndex:
        """The index, with the loaded entries; made under the repair lock, or after it was."""
        index = self._index
        if index is None:
            context = self._context
            index = self._index = TransactionIndex(
                context.filesystem,
                context.files(self._base_offset).transaction_index,
                self._base_offset,
                read_only=context.read_only or self._is_retired,
                on_error=context.report,
            )
        return index

    def load(self) -> CorruptIndexError | None:
        """
        Read the file, and return its damage.

        The writer of a read-only log adds entries: the file is read each time. An incomplete entry
        is left to the next time.

        Raises:
            LogStorageError: it cannot be read.
        """
        if self.is_loaded and not self._context.read_only:
            return None
        try:
            self.index.load()
        except CorruptIndexError as error:
            return None if self.is_loaded else error
        finally:
            self.is_loaded = True
        return None

    def record_verified(self, end: int) -> None:
        """Record up to which byte of the segment the index is right: -1 for none, or `KEPT`."""
        self.verified_end = end

    def record_repair(self, repaired: RepairedIndex | None) -> None:
        """Record how the file contradicted the segment."""
        self.repaired = repaired

    def begin_empty(self) -> None:
        """Record that the segment is new and has no entries."""
        self.is_loaded = True
        self.verified_end = KEPT

    def sync(self) -> None:
        """
        Sync the written entries.

        Raises:
            LogStorageError: the disk failed.
        """
        index = self._index
        if index is not None:
            with self._context.repair_lock:
                index.sync()
                # Opened again by the next entry: a sealed segment holds no file open.
                index.close()

    def retire(self) -> None:
        """Read the file before its name is removed, for readers that hold the segment."""
        with self._context.repair_lock:
            if not self.is_loaded:
                files = self._context.files(self._base_offset)
                if self._context.filesystem.stat(files.transaction_index) is not None:
                    # If it is damaged, the batches have the same facts, and stay with the readers.
                    with contextlib.suppress(CorruptIndexError):
                        self.index.load()
                self.is_loaded = True
            self._is_retired = True
            if self._index is not None:
                self._index.retire()

    def close(self) -> None:
        """Close the file."""
        if self._index is not None:
            self._index.close()
