"""Console of the command: text is escaped first, then styled, and written to the stream below.

Thread-safety: that of the streams below.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from kafkalog.cli.streams import EscapingStream, escape, has_unsafe

__all__ = ["SafeConsole"]


class SafeConsole(Console):
    """A console that escapes control characters of texts before it styles them."""

    def __init__(self, *, stderr: bool = False, highlight: bool = True) -> None:
        stream = sys.stderr if stderr else sys.stdout
        file = stream.styled if isinstance(stream, EscapingStream) else stream
        super().__init__(file=file, highlight=highlight)  # type: ignore[arg-type]

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of a renderable, escaped except for the console's own controls."""
        for segment in super().render(renderable, options):
            if segment.control is None and has_unsafe(segment.text):
                yield Segment(escape(segment.text), segment.style)
            else:
                yield segment
