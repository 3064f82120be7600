"""Types of the end of a segment."""

from typing import Final, Self, final

from typing_extensions import Buffer

from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._engine.append_file import AppendFile
from kafkalog._engine.index_buffer import IndexBuffer
from kafkalog._engine.roll_planner import RollPlanner

@final
class SegmentAppender:
    stage: Final[RollPlanner]
    saved_bytes: Final[int]
    def __new__(
        cls, stage: RollPlanner, file: AppendFile, offsets: IndexBuffer, times: IndexBuffer
    ) -> Self: ...
    def append(self, data: Buffer, facts: BatchMetadata, waited_ms: int) -> tuple[int, int]: ...
    def commit(self, data: Buffer, size: int) -> None: ...
    def add_entries(self) -> None: ...
