"""Types of the key hash entry points."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

def md5_implementations() -> tuple[str, ...]: ...
def md5_with(name: str, keys: Sequence[Buffer]) -> list[bytes]: ...
def siphash(secret: Buffer, keys: Sequence[Buffer]) -> list[bytes]: ...
def hash_cells(
    data: Buffer, offsets: NDArray[np.int32], *, secret: Buffer | None = None
) -> bytes: ...
