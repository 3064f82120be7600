"""Contents of a changed directory that are still those of its image, by bytes alone.

Whole is an entry whose bytes are in a live file of its name. Moved is one whose bytes are there but
for the offset, which no sum covers. It may be served under that offset where nothing contradicts:
it is within the bounds of its file, above the records of the whole entries before it and below
those after it. The name of the next file is a bound where that file has a whole entry.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.proof.entries import Entry
from tests.proof.partition_images import Image

__all__ = ["READ_BYTES_MAX", "Found", "Moved", "look_at"]

# Of a file so much is looked at; no image is as large.
READ_BYTES_MAX = 1 << 22
# Zeros at the end that are kept: an entry may end with some.
ZEROS_KEPT = 1 << 12
OFFSET_END = 2**63 - 1
# Magic -> where an entry is covered by its sum from.
COVERED_FROM = {0: 16, 1: 16, 2: 21}
OFFSET_BYTES = 8


@dataclass(frozen=True, slots=True)
class Moved:
    """
    An entry that is whole but for its offset.

    Attributes:
        entry: as it was.
        shift: how far its offset is from its former offset.
    """

    entry: Entry
    shift: int

    def explains(self, image: Image, offset: int, found: Any) -> bool:
        """Return whether a record that is served at an offset is one of this entry."""
        before = offset - self.shift
        is_inside = self.entry.first_offset <= before <= self.entry.last_offset
        return is_inside and image.truth.get(before) == found


@dataclass(frozen=True, slots=True)
class Found:
    """
    Entries of a directory.

    Attributes:
        whole: entries that are whole in a file of their name, with that name.
        touched: the others.
        moved: those that may be served under another offset.
        returned: those of segments that had been set aside, which may be served again.
        bases: base offsets by the names of the live files.
        has_all_logs: whether every log file is as it was, and there is none besides.
    """

    whole: Sequence[tuple[str, Entry]]
    touched: Sequence[Entry]
    moved: Sequence[Moved]
    returned: Sequence[Entry]
    bases: Sequence[int]
    has_all_logs: bool


def look_at(image: Image, directory: Path) -> Found:
    """Compare a directory with its image."""
    contents = {path.name: _content(path) for path in sorted(directory.glob("*.log"))}
    whole: list[tuple[str, Entry]] = []
    touched: list[Entry] = []
    for name, entries in image.entries.items():
        data, at = contents.get(name), 0
        for entry in entries:
            found = -1
            if data is not None:
                found = entry.position
                if data[entry.position : entry.end] != entry.data:
                    found = data.find(entry.data, at)
            if found < 0:
                touched.append(entry)
            elif any(each in image.truth for each in range(*entry.offsets)):
                first, last = entry.first_offset, entry.last_offset
                whole.append((name, Entry(found, entry.data, first, last, False)))
                at = found + len(entry.data)
    logs = {name: data for name, data in image.files.items() if name.endswith(".log")}
    # A copy of an entry may be in another place as well.
    moved = [] if contents == logs else list(_moved(_completed(directory, contents), image, whole))
    # An opening gives a segment that was leaving its name back, where nothing takes its place.
    there = [_content(path) or b"" for path in sorted(directory.glob("*.log*"))]
    returned = [each for each in image.set_aside if any(each.data in data for data in there)]
    bases = [int(name[:20]) for name in contents if name[:20].isdigit()]
    return Found(whole, touched, moved, returned, bases, contents == logs)


def _completed(directory: Path, contents: Mapping[str, bytes | None]) -> Mapping[str, bytes | None]:
    """Add the `.swap` files whose names no live file has: an opening gives them those."""
    swaps = {path.name.removesuffix(".swap"): path for path in directory.glob("*.log.swap")}
    added = {name: _content(path) for name, path in swaps.items() if name not in contents}
    return dict(sorted({**contents, **added}.items()))


def _content(path: Path) -> bytes | None:
    """Return the bytes of a regular file, without most of the zeros at its end."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None
    except FileNotFoundError:
        return None
    with path.open("rb") as file:
        data = file.read(READ_BYTES_MAX)
    size = len(data.rstrip(b"\0"))
    return data[: size + ZEROS_KEPT]


def _moved(
    contents: Mapping[str, bytes | None],
    image: Image,
    whole: Sequence[tuple[str, Entry]],
) -> Iterator[Moved]:
    """Yield the entries that are in a file with another offset, where that may stand."""
    entries = [entry for each in image.entries.values() for entry in each]
    names = [name for name in contents if name[:20].isdigit() and len(name) == len("0.log") + 19]
    for slot, name in enumerate(names):
        data = contents[name]
        if data is None:
            continue
        has_whole = {each for each, _ in whole}
        # Of two copies of a file either name may be the wrong one.
        others = (each for each in names[slot + 1 :] if contents[each] != data)
        behind = (int(each[:20]) for each in others if each in has_whole)
        bounds = int(name[:20]), next(behind, OFFSET_END)
        neighbours = [(at.position, _span(image, at)) for each, at in whole if each == name]
        if data == image.files.get(name):
            continue
        for entry in entries:
            places = [*_places(data, entry)]
            # Of two copies of an entry either offset may be the wrong one.
            beside = [each for each in neighbours if each[0] not in places]
            for position in places:
                (offset,) = struct.unpack_from(">q", data, position)
                (before,) = struct.unpack_from(">q", entry.data)
                moved = Moved(entry, offset - before)
                if offset != before and _may_stand(moved, image, position, bounds, beside):
                    yield moved


def _places(data: bytes, entry: Entry) -> Iterator[int]:
    """Yield where the bytes of an entry are that its sum covers, and its length in front."""
    start = COVERED_FROM[entry.data[16]]
    covered, size = entry.data[start:], entry.data[OFFSET_BYTES : OFFSET_BYTES + 4]
    found = data.find(covered)
    while found >= 0:
        position = found - start
        if position >= 0 and data[position + OFFSET_BYTES : position + OFFSET_BYTES + 4] == size:
            yield position
        found = data.find(covered, found + 1)


def _span(image: Image, entry: Entry) -> tuple[int, int]:
    """Return the lowest and highest offset of records in an entry, its own where it has none."""
    offsets = [each for each in range(*entry.offsets) if each in image.truth]
    return (offsets[0], offsets[-1]) if offsets else (entry.first_offset, entry.last_offset)


def _may_stand(
    moved: Moved,
    image: Image,
    position: int,
    bounds: tuple[int, int],
    neighbours: Sequence[tuple[int, tuple[int, int]]],
) -> bool:
    first, last = (each + moved.shift for each in _span(image, moved.entry))
    low = max((span[1] + 1 for at, span in neighbours if at < position), default=0)
    high = min((span[0] for at, span in neighbours if at > position), default=OFFSET_END)
    return max(bounds[0], low) <= first and last < min(bounds[1], high)
