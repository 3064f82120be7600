"""Types of the memory of a batch; only the builder makes one."""

from typing import Self, final

@final
class BatchMemory:
    def __new__(cls, capacity: int) -> Self: ...
