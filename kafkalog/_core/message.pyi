"""Types of the decoders of messages of the old formats."""

from typing import NamedTuple

from typing_extensions import Buffer

from kafkalog._core.columns import RecordColumns
from kafkalog._core.header import BatchHeader
from kafkalog._core.record import Record

class MessageSummary(NamedTuple):
    status: int
    position: int
    min_timestamp: int
    max_timestamp: int
    null_key_count: int
    record_count: int
    first_offset: int
    last_offset: int
    is_dense: bool
    other_magic_count: int

def wrapper_value(data: Buffer, header: BatchHeader, *, strict: bool = True) -> tuple[int, int]: ...
def decode_messages(
    payload: Buffer, header: BatchHeader, start: int, end: int, *, strict: bool = True
) -> list[Record]: ...
def decode_message_tuples(
    payload: Buffer, header: BatchHeader, start: int, end: int, *, strict: bool = True
) -> list[tuple[bytes | None, bytes | None]]: ...
def decode_message_lists(
    payload: Buffer, header: BatchHeader, start: int, end: int, *, strict: bool = True
) -> tuple[list[bytes | None], list[bytes | None]]: ...
def decode_message_columns(
    payload: Buffer,
    header: BatchHeader,
    start: int,
    end: int,
    columns: RecordColumns,
    *,
    strict: bool = True,
) -> int: ...
def summarize_messages(
    payload: Buffer, header: BatchHeader, start: int, end: int, *, strict: bool = True
) -> MessageSummary: ...
def check_messages(
    payload: Buffer, header: BatchHeader, start: int, end: int, *, strict: bool = True
) -> int: ...
def count_messages(
    payload: Buffer, header: BatchHeader, start: int, end: int, *, strict: bool = True
) -> int: ...
def first_message_offset(payload: Buffer, header: BatchHeader, start: int, end: int) -> int: ...
def decode_run_records(
    data: Buffer,
    position: int = 0,
    *,
    end: int | None = None,
    check_crc: bool = True,
    strict: bool = True,
) -> tuple[list[Record], int, int]: ...
def decode_run_tuples(
    data: Buffer,
    position: int = 0,
    *,
    end: int | None = None,
    check_crc: bool = True,
    strict: bool = True,
) -> tuple[list[tuple[bytes | None, bytes | None]], int, int]: ...
def decode_run_lists(
    data: Buffer,
    position: int = 0,
    *,
    end: int | None = None,
    check_crc: bool = True,
    strict: bool = True,
) -> tuple[list[bytes | None], list[bytes | None], int, int]: ...
