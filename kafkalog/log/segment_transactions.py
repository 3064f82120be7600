"""A segment's transaction index, made when it is first asked for: most segments never need one.

How far it was held against the batches of the segment is noted with it; `kafkalog.log.transactions`
does that, and says when it has to be done.

Thread-safety: fields change under the context's `repair_lock`; `verified_end` may be read by any
thread, and what it promises stays true.
"""

from __future__ import annotations

import contextlib
from typing import Final

from kafkalog.errors import CorruptIndexError
from kafkalog.indexes.transaction_index import TransactionIndex
from kafkalog.log.report import RepairedIndex
from kafkalog.log.segment_types import SegmentContext

__all__ = ["KEPT", "SegmentTransactions"]

# `verified_end` of an index that was kept with every batch since the segment was begun.
KEPT: Final = 2**63 - 1


class SegmentTransactions:
    """
    The aborted transactions whose markers lie in a segment.

    Args:
        context: what the log's segments share.
        base_offset: of the segment.

    Attributes:
        verified_end: bytes of the segment that the index was held against; -1 for none.
        is_loaded: whether the file was read, or is none to read.
        repaired: how the file contradicted the segment, None where it did not as far as is known.
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
        """The index, as far as it was loaded; made under the repair lock, or after it was."""
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
        Take what the file says now, and return what is wrong with it.

        Of a log that is only read its writer adds entries meanwhile: the file is looked at each
        time. An entry of which half is written is left to the next time.

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

    def begin_empty(self) -> None:
        """Take note that the segment was just made, and has nothing."""
        self.is_loaded = True
        self.verified_end = KEPT

    def sync(self) -> None:
        """
        Put what was entered on the disk.

        Raises:
            LogStorageError: the disk refused.
        """
        index = self._index
        if index is not None:
            with self._context.repair_lock:
                index.sync()
                # Opened again by the next entry: a sealed segment holds no file open.
                index.close()

    def retire(self) -> None:
        """Take what the file says before its name goes, for readers that hold the segment."""
        with self._context.repair_lock:
            if not self.is_loaded:
                files = self._context.files(self._base_offset)
                if self._context.filesystem.stat(files.transaction_index) is not None:
                    # Where it is damaged, its batches tell the same: they stay with its readers.
                    with contextlib.suppress(CorruptIndexError):
                        self.index.load()
                self.is_loaded = True
            self._is_retired = True
            if self._index is not None:
                self._index.retire()

    def close(self) -> None:
        """Let the file go."""
        if self._index is not None:
            self._index.close()
