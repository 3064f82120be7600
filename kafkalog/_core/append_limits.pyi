"""Types of the limits of a run."""

from typing import Final, Self, final

@final
class AppendLimits:
    batch_bytes: Final[int]
    max_message_bytes: Final[int]
    before_ms: Final[int]
    after_ms: Final[int]
    is_key_required: Final[bool]
    is_log_append_time: Final[bool]
    def __new__(
        cls,
        *,
        batch_bytes: int,
        max_message_bytes: int,
        before_ms: int,
        after_ms: int,
        is_key_required: bool,
        is_log_append_time: bool,
    ) -> Self: ...
    def has_invalid_record(
        self, now_ms: int, null_key_count: int, min_timestamp: int, max_timestamp: int
    ) -> bool: ...
