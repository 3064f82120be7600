"""Types of the status translator: codes, names and the exceptions they become."""

from typing import Final

STATUS_CODES: Final[dict[str, int]]

def status_name(status: int) -> str: ...
def status_meaning(status: int) -> str: ...
def check_status(
    status: int, position: int, path: object = None, base_offset: int | None = None
) -> None: ...
