"""Types of the LZ4 decoder."""

from typing_extensions import Buffer

def decode_blocks(
    data: Buffer, position: int, *, block_size_max: int, limit_bytes: int
) -> tuple[bytes, int]: ...
