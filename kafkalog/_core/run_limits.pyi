"""Types of the limits of a run."""

from typing import Final, Self, final

@final
class RunLimits:
    batch_bytes: Final[int]
    max_message_bytes: Final[int]
    before_ms: Final[int]
    after_ms: Final[int]
    needs_key: Final[bool]
    gives_time: Final[bool]
    def __new__(
        cls,
        *,
        batch_bytes: int,
        max_message_bytes: int,
        before_ms: int,
        after_ms: int,
        needs_key: bool,
        gives_time: bool,
    ) -> Self: ...
    def may_fail(
        self, now_ms: int, null_key_count: int, min_timestamp: int, max_timestamp: int
    ) -> bool: ...
