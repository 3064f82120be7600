"""Indexes of a segment, created at the first access or append.

A log of many segments is opened to append to the last one and to read some of them. If an index
cannot be written at a sync, both are removed. File names are not synced here.

Thread-safety: any thread may read the indexes; everything else is under the log's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kafkalog._core.index import OffsetIndexView, TimeIndexView
from kafkalog.files.names import FileKind
from kafkalog.indexes.kinds import OFFSET_INDEX, TIME_INDEX, IndexKind
from kafkalog.indexes.segment_index import IndexStorage, SegmentIndex
from kafkalog.log.index_lookup import IndexLookup
from kafkalog.log.lazy_attribute import LazyAttribute
from kafkalog.log.segment_file import SegmentFile
from kafkalog.log.segment_types import IndexRebuildInput, SegmentContext

__all__ = ["SegmentIndexes"]

logger = logging.getLogger(__name__)


class SegmentIndexes:
    """
    Offset index, time index and look-up of a segment.

    Attributes:
        base_offset: first offset of the segment, which names its files.
        file: the `.log` file.
        offset_index, time_index: its indexes.
    """

    offset_index: LazyAttribute[SegmentIndex[OffsetIndexView]] = LazyAttribute(
        lambda segment: segment._make_index(
            OFFSET_INDEX, FileKind.OFFSET_INDEX, segment._source.offset_entries
        )
    )
    time_index: LazyAttribute[SegmentIndex[TimeIndexView]] = LazyAttribute(
        lambda segment: segment._make_index(
            TIME_INDEX, FileKind.TIME_INDEX, segment._source.time_entries
        )
    )
    _index_lookup: LazyAttribute[IndexLookup] = LazyAttribute(
        lambda segment: segment._make_index_lookup()
    )

    def __init__(self, context: SegmentContext, base_offset: int, file: SegmentFile) -> None:
        self.base_offset = base_offset
        self.file = file
        self._context = context
        self._source = IndexRebuildInput(file, base_offset, context.config.index_interval_bytes)

    def _make_index(
        self, kind: IndexKind[Any], file_kind: FileKind, rebuild: Callable[[], bytes]
    ) -> SegmentIndex[Any]:
        context = self._context
        storage = IndexStorage(
            context.filesystem, context.pool, context.read_only, on_error=context.report
        )
        return SegmentIndex(
            kind,
            storage,
            context.files(self.base_offset).path(file_kind),
            self.base_offset,
            rebuild=rebuild,
            segment_size=self._source.size_bytes,
        )

    def _make_index_lookup(self) -> IndexLookup:
        return IndexLookup(self.file, self.base_offset, self.offset_index, self.time_index)

    def _made_indexes(self) -> list[SegmentIndex[Any]]:
        """Return the indexes that were created by an access or an append."""
        attributes: tuple[LazyAttribute[Any], ...] = (
            SegmentIndexes.offset_index,
            SegmentIndexes.time_index,
        )
        found = (attribute.peek(self) for attribute in attributes)
        return [index for index in found if index is not None]

    def sync_indexes(self) -> None:
        """Sync index files written here, not their names."""
        if not any(index.is_unsynced for index in self._made_indexes()):
            return
        indexes = (self.offset_index, self.time_index)
        if not all(index.sync() for index in indexes):
            # Remove both: a broker checks for the offset index only, and then rebuilds both.
            logger.warning("%s is left without indexes: they could not be written", self.file.path)
            for index in indexes:
                index.remove()
