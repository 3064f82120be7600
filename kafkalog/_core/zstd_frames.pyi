"""Types of the walk over Zstandard's headers."""

from typing import Final

from typing_extensions import Buffer

WINDOW_SIZE_MAX: Final[int]

def walk_frame(data: Buffer, position: int) -> tuple[int, int, int | None, int] | None: ...
