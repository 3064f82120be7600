"""Types of the rows of an exact offset map, which makes and uses them itself."""

from typing import Self, final

@final
class ExactRows:
    def __new__(cls) -> Self: ...
