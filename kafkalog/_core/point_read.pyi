"""Types of the point read."""

from typing_extensions import Buffer

from kafkalog._core.record import Record

def find_record(data: Buffer, offset: int) -> Record | None: ...
