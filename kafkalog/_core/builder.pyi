"""Types of the batch builder."""

from typing import Final, Self, final

from typing_extensions import Buffer

from kafkalog._core.records_builder import RecordsBuilder

@final
class BatchBuilder(RecordsBuilder):
    base_timestamp: Final[int]
    def __new__(cls, *, capacity: int = 16384) -> Self: ...
    def reset(self, *, base_timestamp: int | None = None) -> None: ...
    def payload(self) -> memoryview: ...
    def finish(
        self,
        *,
        base_offset: int = 0,
        partition_leader_epoch: int = -1,
        codec: int = 0,
        payload: Buffer | None = None,
        timestamp_type: int = 0,
        max_timestamp: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        delete_horizon: bool = False,
        last_offset_delta: int | None = None,
    ) -> memoryview: ...
