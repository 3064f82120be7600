"""What is mounted where, from the table that Linux keeps of it for each process.

Thread-safety: pure functions over text. Nothing here touches a disk.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["MOUNTS", "Mount", "find_mount"]

MOUNTS: Final = Path("/proc/self/mountinfo")

_ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """
    One mounted file system.

    Attributes:
        point: where it is mounted.
        kind: its type, as "ext4" or "fuse.sshfs".
        source: the device, server or name behind it.
        flags: options of this mount ("ro", "relatime").
        options: options of the file system itself ("data=journal").
    """

    point: str
    kind: str
    source: str
    flags: frozenset[str]
    options: frozenset[str]

    def option(self, name: str) -> str | None:
        """Return the value of the option `name=value`, or None where it is not set."""
        for option in self.options:
            key, separator, value = option.partition("=")
            if separator and key == name:
                return value
        return None


def find_mount(path: str, table: str) -> Mount | None:
    """
    Return what is mounted where `path` is: the last line of those with the longest point.

    Args:
        path: an absolute path, symbolic links resolved.
        table: content of `/proc/self/mountinfo`.
    """
    best, where = "", ""
    for line in table.splitlines():
        # id, parent, device, root, point, options, ...: most lines are not wanted any further.
        fields = line.split(" ", 5)
        if len(fields) < 6:
            continue
        point = _plain(fields[4])
        if len(point) >= len(where) and _is_below(path, point) and _parse(line) is not None:
            best, where = line, point
    return _parse(best)


def _parse(line: str) -> Mount | None:
    # id, parent, device, root, point, options, optional fields, "-", type, source, options of it
    front, separator, back = line.partition(" - ")
    fields, described = front.split(" "), back.split(" ")
    if not separator or len(fields) < 6 or len(described) < 3:
        return None
    kind, source, options = described[:3]
    flags = frozenset(fields[5].split(","))
    return Mount(_plain(fields[4]), kind, _plain(source), flags, frozenset(options.split(",")))


def _plain(text: str) -> str:
    """Return a field with its escapes (of blanks, tabs, ...) undone."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def _is_below(path: str, point: str) -> bool:
    return point == "/" or path == point or path.startswith(point + "/")
