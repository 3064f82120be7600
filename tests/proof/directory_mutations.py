"""Changes of a directory that no writer of it would make, drawn from a seeded source.

Each returns a line that states the change. Links point at decoys next to the directory, which must
stay as they are; files grow by holes only.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from pathlib import Path

from tests.proof.entries import HEADER_FIELDS
from tests.proof.partition_images import Image

__all__ = ["CONTENT", "PLACE", "mutate", "put_file", "put_other_kind"]

Change = Callable[[random.Random, Path, Image], str]

STRAYS = (
    "00000000000000000000.logx",
    "0.log",
    "-0000000000000000001.log",
    "09223372036854775807.log",
    "99999999999999999999.log",
    "000000000000000000000.log",
    "00000000000000000005.log.swap.swap",
    "00000000000000000003.snapshot",
    "09223372036854775807.snapshot",
    ".kafkalog_unknown",
    "name\nof two lines.log",
    "\x1b[31mred.log",
    "caf\udce9.index",
    "x" * 255,
    "leader-epoch-checkpoint.tmp",
    "partition.metadata",
)
SUFFIXES = (".swap", ".cleaned", ".deleted", ".covered", ".broken", ".tmp", ".0.broken")


def mutate(
    source: random.Random, directory: Path, image: Image, *, links: bool = True
) -> tuple[list[str], bool]:
    """
    Change a directory one to three times; return what was done, and if only file contents.

    Args:
        source: of all choices.
        directory: next to which the decoys are.
        image: what is in it.
        links: whether something else may replace a file.
    """
    said, only_content = [], True
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        content = source.random() < 0.7
        change = source.choice(CONTENT if content else PLACE)
        if change is replace and not links:
            continue
        try:
            said.append(change(source, directory, image))
        except OSError as error:
            said.append(f"{change.__name__}: not possible: {error.strerror}")
        only_content &= content
    return said, only_content


def _file(source: random.Random, directory: Path, *, log: float = 0.6) -> Path:
    with os.scandir(directory) as found:
        files = sorted(Path(entry.path) for entry in found if entry.is_file(follow_symlinks=False))
    if not files:
        raise FileNotFoundError(2, "no file is left")
    logs = [path for path in files if path.suffix == ".log"]
    return source.choice(logs if logs and source.random() < log else files)


def _bytes_of(path: Path) -> bytearray:
    with path.open("rb") as file:
        return bytearray(file.read(1 << 20))


def _put(path: Path, position: int, data: bytes | bytearray) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


# ---- content ----


def flip_bits(source: random.Random, directory: Path, image: Image) -> str:
    """Flip one to eight bits anywhere."""
    path = _file(source, directory)
    data = _bytes_of(path)
    if not data:
        return f"flip in {path.name}: empty"
    places = [source.randrange(len(data)) for _ in range(source.choice((1, 1, 1, 2, 8)))]
    for place in places:
        data[place] ^= 1 << source.randrange(8)
        _put(path, place, data[place : place + 1])
    return f"flip bits of {path.name} at {places}"


def flip_header(source: random.Random, directory: Path, image: Image) -> str:
    """Flip a bit in a chosen field of a chosen entry."""
    name = source.choice(sorted(image.entries))
    entries = image.entries[name]
    path = directory / name
    if not entries or not path.is_file() or path.is_symlink():
        return f"flip a header of {name}: none"
    entry = source.choice(entries)
    field = source.choice(["base offset", "base offset", *HEADER_FIELDS])
    start, size = HEADER_FIELDS[field]
    place = entry.position + start + source.randrange(size)
    data = _bytes_of(path)
    if place >= len(data):
        return f"flip a header of {name}: cut before"
    data[place] ^= 1 << source.randrange(8)
    _put(path, place, data[place : place + 1])
    return f"flip {field} of the entry at {entry.position} of {name}, byte {place}"


def set_number(source: random.Random, directory: Path, image: Image) -> str:
    """Put a number that is interesting where a number of that size may stand."""
    path = _file(source, directory)
    size = source.choice((2, 4, 8))
    data = _bytes_of(path)
    if len(data) < size:
        return f"number in {path.name}: too small"
    place = source.randrange(len(data) - size + 1)
    value = source.choice((0, 1, -1, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1)), 2**15 - 1))
    _put(path, place, value.to_bytes(size, "big", signed=True))
    return f"{value} over {size} bytes of {path.name} at {place}"


def cut(source: random.Random, directory: Path, image: Image) -> str:
    """Cut a file anywhere, or at the end of an entry."""
    path = _file(source, directory)
    size = path.stat().st_size
    entries = image.entries.get(path.name)
    to = source.randrange(size + 1)
    if entries and source.random() < 0.5:
        to = min(size, source.choice(entries).end)
    os.truncate(path, to)
    return f"cut {path.name} from {size} to {to} bytes"


def flip_low(source: random.Random, directory: Path, image: Image) -> str:
    """Flip one of the low bits of an offset: a wrapper is still between its neighbours then."""
    name = source.choice(sorted(image.entries))
    entries, path = image.entries[name], directory / name
    if not entries or not path.is_file() or path.is_symlink():
        return f"flip an offset of {name}: none"
    place = source.choice(entries).position + 7
    data = _bytes_of(path)
    if place >= len(data):
        return f"flip an offset of {name}: cut before"
    data[place] ^= 1 << source.randrange(8)
    _put(path, place, data[place : place + 1])
    return f"flip the offset of the entry at {place - 7} of {name}"


def extend(source: random.Random, directory: Path, image: Image) -> str:
    """Extend a file with zeros, junk, or bytes of another file, after a hole of gigabytes too."""
    path = _file(source, directory)
    other = bytes(_bytes_of(_file(source, directory)))
    start = source.randrange(len(other) + 1)
    more = source.choice(
        (
            bytes(source.randrange(1, 5000)),
            source.randbytes(source.randrange(1, 300)),
            other[start:],
        )
    )
    with path.open("ab") as file:
        file.write(more)
    return f"extend {path.name} by {len(more)} bytes"


def insert(source: random.Random, directory: Path, image: Image) -> str:
    """Insert junk, or remove a range."""
    path = _file(source, directory)
    data = _bytes_of(path)
    place = source.randrange(len(data) + 1)
    removed = source.choice((0, 0, 1, 7, 61, 200))
    more = source.randbytes(source.choice((0, 1, 8, 61, 90)))
    data[place : place + removed] = more
    path.write_bytes(data)
    return f"{len(more)} bytes for {removed} of {path.name} at {place}"


def overwrite(source: random.Random, directory: Path, image: Image) -> str:
    """Write zeros, or a part of another file, over a range."""
    path = _file(source, directory)
    data = _bytes_of(path)
    if not data:
        return f"overwrite {path.name}: empty"
    place = source.randrange(len(data))
    size = min(source.choice((1, 12, 61, 512, 4096)), len(data) - place)
    other = bytes(_bytes_of(_file(source, directory)))
    start = source.randrange(len(other) + 1)
    new = source.choice((bytes(size), other[start : start + size]))
    _put(path, place, new)
    return f"{len(new)} foreign bytes over {path.name} at {place}"


def grow(source: random.Random, directory: Path, image: Image) -> str:
    """Grow a file by a hole of up to eight gigabytes."""
    path = _file(source, directory, log=0.4)
    size = path.stat().st_size + source.choice((1 << 12, 1 << 20, 1 << 30, 8 << 30))
    os.truncate(path, size)
    return f"grow {path.name} to {size} bytes"


def exchange(source: random.Random, directory: Path, image: Image) -> str:
    """Give two files each other's content."""
    first, second = _file(source, directory), _file(source, directory)
    one, two = bytes(_bytes_of(first)), bytes(_bytes_of(second))
    first.write_bytes(two)
    second.write_bytes(one)
    return f"exchange {first.name} and {second.name}"


# ---- names and kinds ----


def lose(source: random.Random, directory: Path, image: Image) -> str:
    """Remove a file."""
    path = _file(source, directory)
    path.unlink()
    return f"remove {path.name}"


def _other_name(source: random.Random, path: Path) -> str:
    stem, _, suffix = path.name.partition(".")
    if stem.isdigit() and len(stem) == 20 and source.random() < 0.6:
        base = int(stem) + source.choice((-7, -1, 1, 3, 40, 10**6, 2**31, 2**62))
        return f"{max(base, 0):020d}.{suffix}"
    return path.name + source.choice(SUFFIXES)


def put_file(path: Path, data: bytes | bytearray) -> None:
    """Write a file; what it replaces may be a link to a decoy."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def rename(source: random.Random, directory: Path, image: Image) -> str:
    """Give a file another name of the format."""
    path = _file(source, directory)
    name = _other_name(source, path)
    path.rename(directory / name)
    return f"rename {path.name} to {name}"


def duplicate(source: random.Random, directory: Path, image: Image) -> str:
    """Copy a file under another name of the format."""
    path = _file(source, directory)
    name = _other_name(source, path)
    put_file(directory / name, _bytes_of(path))
    return f"copy {path.name} to {name}"


def stray(source: random.Random, directory: Path, image: Image) -> str:
    """Put a file with an odd name there."""
    name = source.choice(STRAYS)
    content = source.choice((b"", b"\0" * 100, source.randbytes(70)))
    put_file(directory / name, content)
    return f"stray file {name!r} of {len(content)} bytes"


def replace(source: random.Random, directory: Path, image: Image) -> str:
    """Put a link, a FIFO, a socket or a folder at the name of a file, or at a name to come."""
    name = _file(source, directory).name
    if source.random() < 0.3:
        end = max(image.truth, default=0) + 1
        name = source.choice(
            (
                f"{end:020d}.log",
                f"{end:020d}.snapshot",
                ".lock",
                ".kafkalog_syncs",
                "recovery-point-offset-checkpoint.tmp",
                "leader-epoch-checkpoint.tmp",
            )
        )
    return put_other_kind(source, directory / name, directory.parent / "decoys")


def put_other_kind(source: random.Random, path: Path, decoys: Path) -> str:
    """Replace a file by a link, a FIFO, a socket or a folder."""
    if path.exists() or path.is_symlink():
        path.unlink()
    kind = source.choice(("link", "dangling link", "link to a folder", "fifo", "socket", "folder"))
    if kind == "link":
        path.symlink_to(decoys / "file")
    elif kind == "dangling link":
        path.symlink_to(decoys / "absent")
    elif kind == "link to a folder":
        path.symlink_to(decoys)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            short = decoys.parent / "s"
            made.bind(str(short))
            short.rename(path)
    else:
        path.mkdir()
        if source.random() < 0.5:
            (path / "file").write_bytes(b"kept")
    return f"{kind} as {path.name!r}"


CONTENT: tuple[Change, ...] = (
    flip_bits, flip_bits, flip_header, flip_header, flip_header, flip_low, set_number, cut, cut,
    extend, insert, overwrite, grow, exchange,
)  # fmt: skip
PLACE: tuple[Change, ...] = (lose, rename, rename, duplicate, duplicate, stray, replace, replace)
