"""Types of the snappy decoder's door."""

from typing_extensions import Buffer

def decode_stream(data: Buffer, *, limit_bytes: int) -> bytes: ...
