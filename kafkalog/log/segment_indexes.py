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
from kafkalog.log.segment_types import IndexRebuildInput, SegmentContext

__all__ = ["SegmentIndexes"]

logger = logging.getLogger(__name__)


class SegmentIndexes:
    """
    Offset index, time index and look-up of a segment, which holds this object.

    Attributes:
        offset_index, time_index: the indexes.
        lookup: positions by both of them.

    Args:
        source: what the indexes are rebuilt from: the `.log` file and its base offset.
    """

    offset_index: LazyAttribute[SegmentIndex[OffsetIndexView]] = LazyAttribute(
        lambda indexes: indexes._make_index(
            OFFSET_INDEX, FileKind.OFFSET_INDEX, indexes._source.offset_entries
        )
    )
    time_index: LazyAttribute[SegmentIndex[TimeIndexView]] = LazyAttribute(
        lambda indexes: indexes._make_index(
            TIME_INDEX, FileKind.TIME_INDEX, indexes._source.time_entries
        )
    )
    lookup: LazyAttribute[IndexLookup] = LazyAttribute(lambda indexes: indexes._make_lookup())

    def __init__(self, context: SegmentContext, source: IndexRebuildInput) -> None:
        self._context = context
        self._source = source

    def _make_index(
        self, kind: IndexKind[Any], file_kind: FileKind, rebuild: Callable[[], bytes]
    ) -> SegmentIndex[Any]:
        context, base_offset = self._context, self._source.base_offset
        storage = IndexStorage(
            context.filesystem, context.pool, context.read_only, on_error=context.report
        )
        return SegmentIndex(
            kind,
            storage,
            context.files(base_offset).path(file_kind),
            base_offset,
            rebuild=rebuild,
            segment_size=self._source.size_bytes,
        )

    def _make_lookup(self) -> IndexLookup:
        source = self._source
        return IndexLookup(source.file, source.base_offset, self.offset_index, self.time_index)

    def made(self) -> list[SegmentIndex[Any]]:
        """Return the indexes that were created by an access or an append."""
        attributes: tuple[LazyAttribute[Any], ...] = (
            SegmentIndexes.offset_index,
            SegmentIndexes.time_index,
        )
        found = (attribute.peek(self) for attribute in attributes)
        return [index for index in found if index is not None]

    def sync(self) -> None:
        """Sync index files written here, not their names."""
        if not any(index.is_unsynced for index in self.made()):
            return
        indexes = (self.offset_index, self.time_index)
        if not all(index.sync() for index in indexes):
            # Remove both: a broker checks for the offset index only, and then rebuilds both.
            path = self._source.file.path
            logger.warning("%s is left without indexes: they could not be written", path)
            for index in indexes:
                index.remove()
