"""Types of the snappy decoder."""

from typing_extensions import Buffer

def decode_stream(data: Buffer, *, limit_bytes: int) -> bytes: ...
