"""Types of the end of a log file."""

from typing import Any

from typing_extensions import Buffer, disjoint_base

@disjoint_base
class AppendFile:
    size_bytes: int
    _handle: Any
    _zeroed_bytes: int
    def append(self, data: Buffer, size: int) -> None: ...
