"""Plain messages of the old formats that lie side by side in a file, read as one.

Each is a batch of one record. To open them one by one costs many times what decoding them does.

Thread-safety: immutable.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import TypeVar

from kafkalog._core.header import parse_header
from kafkalog._core.message import decode_run_records
from kafkalog._core.record import Record
from kafkalog.records.batch_view import BatchView

__all__ = ["MessageRun", "Part"]


class MessageRun:
    """
    Whole messages whose CRC was found right, with offsets that rise.

    Args:
        data: their bytes, nothing else.
        path: the file they come from, for errors.
        position: where the first begins in that file.
        last_position: where the last begins there.
        first_offset, last_offset: of the first and the last.

    Attributes:
        data, path, position, last_position, first_offset, last_offset: as given.
    """

    __slots__ = ("data", "first_offset", "last_offset", "last_position", "path", "position")

    def __init__(
        self,
        data: memoryview,
        *,
        path: str | PathLike[str] | None,
        position: int,
        last_position: int,
        first_offset: int,
        last_offset: int,
    ) -> None:
        self.data = data
        self.path = path
        self.position = position
        self.last_position = last_position
        self.first_offset = first_offset
        self.last_offset = last_offset

    def __repr__(self) -> str:
        return (
            f"<MessageRun offsets {self.first_offset} to {self.last_offset},"
            f" {len(self.data)} bytes at {self.position}>"
        )

    @property
    def next_offset(self) -> int:
        """One above the offset of the last message."""
        return self.last_offset + 1

    def pieces(self) -> Iterator[list[Record] | BatchView]:
        """
        Yield the records in lists; a message with a correct CRC that does not decode, as a view.

        Reading the records of that view raises the error.
        """
        start, end = 0, len(self.data)
        while start < end:
            records, start, _ = decode_run_records(self.data, start, check_crc=False)
            if records:
                yield records
            if start < end:
                batch = self.batch_at(self.position + start)
                yield batch
                start += batch.header.size_bytes

    def batch_at(self, position: int) -> BatchView:
        """Return the message that begins at `position` of the file."""
        start = position - self.position
        end = parse_header(self.data, start).end_position
        return BatchView(self.data[start:end], path=self.path, position=position)

    def last_batch(self) -> BatchView:
        """Return the last message."""
        return self.batch_at(self.last_position)


# Parts of a read: batches, or runs of messages instead of them.
Part = TypeVar("Part", bound=BatchView | MessageRun)
