"""Memory of an offset map, reused from pass to pass, and the identity of keys in the map.

`log.cleaner.hash.algorithm` selects the identity: MD5 as in Kafka; SipHash with a secret that is
drawn for each cleaning, so that no producer can choose keys that collide; or exact comparison, for
which the keys of one hash are read from the log.

Thread-safety: none; it belongs to one cleaner.
"""

from __future__ import annotations

import mmap
import secrets
from typing import Final, Literal

from kafkalog._core.offset_map import ENTRY_BYTES, OffsetMap
from kafkalog.manager_config import CleanerConfig

__all__ = ["OffsetMapBuffer"]

_SECRET_BYTES: Final = 16
# As in Kafka, for one thread.
_MEMORY_BYTES_MAX: Final = 2**31 - 1
# Marks are one bit for each offset, in extra memory of at most this part of the map. The second
# pass looks up the keys of offsets without marks again.
_BITMAP_SHARE: Final = 16
_IDENTITIES: Final[dict[str, Literal["md5", "siphash"]]] = {
    "md5": "md5",
    "siphash": "siphash",
    "exact": "siphash",
}


class OffsetMapBuffer:
    """
    Memory for the keys of a pass, reused from pass to pass.

    Args:
        config: settings of compaction.
        memory_bytes: size of the memory; the share of one cleaner thread if None.

    Attributes:
        memory: the memory; only the map that was made last may use it.
    """

    def __init__(self, config: CleanerConfig, memory_bytes: int | None = None) -> None:
        if memory_bytes is None:
            memory_bytes = config.dedupe_buffer_size // max(1, config.threads)
        self.config = config
        # An anonymous mapping: the system allocates a page only when it is used.
        self.memory = mmap.mmap(-1, max(1, min(memory_bytes, _MEMORY_BYTES_MAX)))
        self._secret = secrets.token_bytes(_SECRET_BYTES)

    @property
    def compares_keys(self) -> bool:
        """Return whether keys of one hash are compared."""
        return self.config.hash_algorithm == "exact"

    @property
    def key_count_max(self) -> int:
        """Number of keys that fit a map of the whole memory."""
        slots = len(self.memory) // ENTRY_BYTES
        return int(slots * self.config.io_buffer_load_factor)

    def draw_secret(self) -> None:
        """Draw another secret: once for all passes over the same keys."""
        self._secret = secrets.token_bytes(_SECRET_BYTES)

    def new_map(
        self,
        *,
        part: int = 0,
        part_count: int = 1,
        exact: bool = False,
        offsets: tuple[int, int] | None = None,
    ) -> OffsetMap:
        """
        Return an empty map; earlier maps must not be used any more.

        Args:
            part, part_count: the part of the keys for this map, selected by hash and secret.
            exact: whether the map compares keys; needed if `compares_keys`.
            offsets: first and end offset of the records whose keys are added. They get marks, as
                many as the memory allows, unless the map is for one part of several.

        Raises:
            ValueError: the memory does not hold a single key.
        """
        first_offset, end_offset = offsets or (0, 0)
        offset_map = OffsetMap(
            self.memory,
            load_factor=self.config.io_buffer_load_factor,
            identity=_IDENTITIES[self.config.hash_algorithm],
            exact=exact,
            secret=self._secret,
            part=part,
            part_count=part_count,
        )
        if part_count == 1 and first_offset < end_offset:
            size_bytes = (end_offset - first_offset + 7) // 8
            marks = bytearray(min(size_bytes, len(self.memory) // _BITMAP_SHARE))
            offset_map.mark(marks, first_offset)
        return offset_map
