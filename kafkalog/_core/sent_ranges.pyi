"""Types of the offsets of records that were sent together."""

from collections.abc import Sequence
from typing import Any, TypeVar

_Range = TypeVar("_Range", bound=tuple[Any, ...])

def split_ranges(
    batches: Sequence[tuple[Any, ...]], counts: list[int], kind: type[_Range]
) -> list[list[_Range]]: ...
