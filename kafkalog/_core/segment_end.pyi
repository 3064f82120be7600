"""Types of the end of a segment."""

from typing import Final, Self, final

from typing_extensions import Buffer

from kafkalog._core.growing import EntryMemory, FileEnd
from kafkalog._core.run_facts import RunFacts
from kafkalog._core.segment_stage import SegmentStage

@final
class SegmentEnd:
    stage: Final[SegmentStage]
    saved_bytes: Final[int]
    def __new__(
        cls, stage: SegmentStage, file: FileEnd, offsets: EntryMemory, times: EntryMemory
    ) -> Self: ...
    def append(self, data: Buffer, facts: RunFacts, waited_ms: int) -> tuple[int, int]: ...
    def commit(self, data: Buffer, size: int) -> None: ...
    def add_entries(self) -> None: ...
