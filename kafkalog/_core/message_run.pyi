"""Types of the decoders of runs of plain messages."""

from typing_extensions import Buffer

from kafkalog._core.record import Record

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
