"""What appending needs to know of the batches of a run: sizes, offsets, timestamps.

Of most batches that is a tuple each. A plain message of an old format is a batch as well, of a
hundred bytes perhaps: there the facts are columns, so that nothing is made for a single one.

Thread-safety: pure functions over what is not changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

__all__ = ["BatchFacts", "MessageFacts", "joined", "newest", "shifted", "sizes_above", "starts_of"]


class BatchFacts(NamedTuple):
    """
    What appending needs to know of a batch; offsets as they stand in its bytes.

    Attributes:
        size_bytes: of all of it.
        base_offset: of its first record.
        last_offset: of its last record.
        max_timestamp: largest timestamp, -1 where there is none.
        shallow_offset: what the time index says of that timestamp, -1 where there is none.
    """

    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    shallow_offset: int


class MessageFacts(Sequence[BatchFacts]):
    """
    The facts of plain messages that lie back to back.

    Args:
        starts: where each begins, the first at 0, and where the last ends.
        offsets: of each, rising.
        timestamps: of each, -1 where it has none.

    Attributes:
        starts, offsets, timestamps: as given.
    """

    __slots__ = ("offsets", "starts", "timestamps")

    def __init__(
        self,
        starts: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        timestamps: npt.NDArray[np.int64],
    ) -> None:
        self.starts = starts
        self.offsets = offsets
        self.timestamps = timestamps

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        return f"MessageFacts({len(self)} messages, {int(self.starts[-1])} bytes)"

    @overload
    def __getitem__(self, slot: int) -> BatchFacts: ...
    @overload
    def __getitem__(self, slot: slice) -> list[BatchFacts]: ...
    def __getitem__(self, slot: int | slice) -> BatchFacts | list[BatchFacts]:
        if isinstance(slot, slice):
            return list(self)[slot]
        row = slot + len(self) if slot < 0 else slot
        offset, timestamp = int(self.offsets[row]), int(self.timestamps[row])
        size = int(self.starts[row + 1] - self.starts[row])
        return BatchFacts(size, offset, offset, timestamp, offset if timestamp >= 0 else -1)

    def __iter__(self) -> Iterator[BatchFacts]:
        offsets = self.offsets.tolist()
        shallow = np.where(self.timestamps >= 0, self.offsets, -1).tolist()
        sizes = np.diff(self.starts).tolist()
        rows = zip(sizes, offsets, offsets, self.timestamps.tolist(), shallow, strict=True)
        return map(BatchFacts._make, rows)

    def first_beyond(
        self, first: int, offset_max: int, end_max: int, timestamp_max: int | None
    ) -> int:
        """Return the first row from `first` on above one of these limits; one past all if none."""
        stop = int(self.offsets.searchsorted(offset_max, "right"))
        stop = min(stop, int(self.starts[1:].searchsorted(end_max, "right")))
        times = self.timestamps[first : max(stop, first)]
        if timestamp_max is not None and times.size and int(times.max()) > timestamp_max:
            stop = first + int((times > timestamp_max).argmax())
        return max(stop, first)


def starts_of(sizes: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Return where batches of these sizes begin that lie back to back, and where the last ends."""
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def shifted(batches: Sequence[BatchFacts], shift: int) -> Sequence[BatchFacts]:
    """Return the facts of the same batches so many offsets later."""
    if not shift:
        return batches
    if isinstance(batches, MessageFacts):
        return MessageFacts(batches.starts, batches.offsets + shift, batches.timestamps)
    return [
        BatchFacts(
            size, base + shift, last + shift, timestamp,
            shallow + shift if shallow >= 0 else shallow,
        )
        for size, base, last, timestamp, shallow in batches
    ]  # fmt: skip


def joined(parts: Sequence[Sequence[BatchFacts]]) -> Sequence[BatchFacts]:
    """Return the facts of several runs, one behind the other."""
    columns = [part for part in parts if isinstance(part, MessageFacts)]
    if not columns or len(columns) < len(parts):
        return [facts for part in parts for facts in part]
    return MessageFacts(
        starts_of(np.concatenate([np.diff(part.starts) for part in columns])),
        np.concatenate([part.offsets for part in columns]),
        np.concatenate([part.timestamps for part in columns]),
    )


def newest(batches: Sequence[BatchFacts]) -> BatchFacts:
    """Return the earliest of those that have the largest timestamp; there is one at least."""
    if isinstance(batches, MessageFacts):
        return batches[int(batches.timestamps.argmax())]
    return batches[0] if len(batches) == 1 else max(batches, key=_max_timestamp)


def sizes_above(batches: Sequence[BatchFacts], limit_bytes: int) -> list[int]:
    """Return the sizes of the batches that are larger than the limit, in order."""
    if isinstance(batches, MessageFacts):
        sizes = np.diff(batches.starts)
        large: list[int] = sizes[sizes > limit_bytes].tolist()
        return large
    return [facts.size_bytes for facts in batches if facts.size_bytes > limit_bytes]


def _max_timestamp(facts: BatchFacts) -> int:
    return facts.max_timestamp
