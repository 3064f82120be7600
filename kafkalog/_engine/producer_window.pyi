"""Types of the functions for the next batch of an idempotent producer."""

from typing import TypeVar

_Entry = TypeVar("_Entry", bound=tuple[object, ...])

def is_next(entry: tuple[object, ...], producer_epoch: int, base_sequence: int) -> bool: ...
def after_next(entry: _Entry, last_offset: int, offset_delta: int, timestamp_ms: int) -> _Entry: ...
