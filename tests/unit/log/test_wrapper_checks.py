"""Wrappers compared with their neighbours, read from files that other processes change."""

from __future__ import annotations

import pytest

from kafkalog._core.header import parse_header
from kafkalog.log.wrapper_checks import Neighbour, WrapperChecks, neighbour_at
from kafkalog.records.codecs import Codec
from tests.support.old_logs import chapters_of

FIRST = 40


class CountedFile:
    """Bytes of a segment, with a count of the bytes that were read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.read_bytes = 0

    def read(self, position: int, size: int) -> memoryview:
        """Return up to `size` bytes."""
        self.read_bytes += size
        return memoryview(self.data)[position : position + size]


def write(magic: int, count: int) -> tuple[CountedFile, list[Neighbour]]:
    """Return a segment of wrappers, and the facts of their headers."""
    chapters = chapters_of([(magic, Codec.GZIP, 3)] * count, first_offset=FIRST)
    found, position = [], 0
    for chapter in chapters:
        found.append(neighbour_at(position, parse_header(chapter.data)))
        position = found[-1].end
    return CountedFile(b"".join(chapter.data for chapter in chapters)), found


def checks_of(file: CountedFile) -> WrapperChecks:
    """Return checks without an index that leads to a batch."""
    return WrapperChecks(file, FIRST, lambda _offset, _position: 0, lambda _base: 0)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("kept", [0, 10, 60])
def test_wrapper_of_a_file_cut_during_the_check_is_no_misfit(magic: int, kept: int) -> None:
    """The log ends before the cut now, and the next walk finds its end."""
    file, batches = write(magic, 3)
    whole, file.data = file.data, file.data[: batches[1].position + kept]
    checks = checks_of(file)
    assert checks.find_misfit(batches[1:2], 0, batches[-1].end) is None
    file.data = whole
    # The missing bytes were not cached: the wrapper is checked once they exist.
    lying = batches[1]._replace(magic=0, next_offset=batches[1].next_offset + 1)
    found = checks.find_misfit([lying], 0, batches[-1].end)
    assert found is not None
    assert lying.position == found[0].position


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_checked_in_order_are_read_a_few_times(magic: int) -> None:
    """Without an index the check of one wrapper uses the batches that the last one read."""
    file, batches = write(magic, 100)
    checks = checks_of(file)
    for number in range(100):
        assert checks.find_misfit(batches[number : number + 1], 0, batches[-1].end) is None
    assert file.read_bytes < 4 * len(file.data) + 100 * 100
