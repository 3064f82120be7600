"""The memory of an offset map, used again from pass to pass, and how keys are told in it.

`log.cleaner.hash.algorithm` says how: by MD5 as in Kafka; by SipHash with a secret that is drawn
for each cleaning, so that nobody can choose keys that collide; or exactly, where the keys of one
hash are read from the log and compared.

Thread-safety: none; it belongs to one cleaner.
"""

from __future__ import annotations

import mmap
import secrets
from typing import Final, Literal

from kafkalog._core.offset_map import OffsetMap
from kafkalog.cleaner.grouping import ENTRY_BYTES
from kafkalog.manager_config import CleanerConfig

__all__ = ["OffsetMapBuffer"]

_SECRET_BYTES: Final = 16
# As in Kafka, for one thread.
_MEMORY_BYTES_MAX: Final = 2**31 - 1
# Marks take a bit for each offset, beside the memory and at most this part of it: of the rest the
# second pass looks up the keys again.
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
        memory_bytes: how much; what one thread of the cleaner has if None.

    Attributes:
        memory: the bytes; only the map that was made last may use them.
    """

    def __init__(self, config: CleanerConfig, memory_bytes: int | None = None) -> None:
        if memory_bytes is None:
            memory_bytes = config.dedupe_buffer_size // max(1, config.threads)
        self.config = config
        # Of the system, which gives no page before it is used.
        self.memory = mmap.mmap(-1, max(1, min(memory_bytes, _MEMORY_BYTES_MAX)))
        self._secret = secrets.token_bytes(_SECRET_BYTES)

    @property
    def compares_keys(self) -> bool:
        """Whether keys of one hash are to be compared."""
        return self.config.hash_algorithm == "exact"

    @property
    def key_count_max(self) -> int:
        """How many keys a map takes that has all of the memory."""
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
        Return an empty map; those made before must not be used any more.

        Args:
            part, part_count: which part of the keys it takes, told by hash and secret.
            exact: whether it compares keys, which `compares_keys` asks for.
            offsets: first and end of the records whose keys may come. They have marks, as far as
                there is room, unless it is a map of a part.

        Raises:
            ValueError: there is no room for a single key.
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
            wanted = (end_offset - first_offset + 7) // 8
            marks = bytearray(min(wanted, len(self.memory) // _BITMAP_SHARE))
            offset_map.mark(marks, first_offset)
        return offset_map
