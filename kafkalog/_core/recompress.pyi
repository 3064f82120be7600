"""Types of the exchange of a batch's payload."""

from typing_extensions import Buffer

def replace_payload(batch: Buffer, codec: int, payload: Buffer) -> bytearray: ...
