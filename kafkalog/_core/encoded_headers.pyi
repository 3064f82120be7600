"""Types of the header encoder; only the builder makes one."""

from typing import final

@final
class EncodedHeaders: ...
