"""Output streams of the command, which escape control characters.

Names of files, keys, values and messages are foreign data, and a terminal obeys control characters:
ESC begins a sequence, C1 controls do so in one character, and bidirectional marks change the order
of text on the screen. They are written as `\\x1b`, `\\u202e`; newlines and tabs stay.

If the reader closes the pipe (`| head -1`), the command ends with status 0 and no message.

Only the standard library is imported: the everyday verbs start without typer and rich.

Thread-safety: that of the streams below.
"""

from __future__ import annotations

import io
import os
import re
import sys
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from typing import Final, TextIO

__all__ = ["EscapingStream", "escape", "has_unsafe", "install"]

# C0 without tab and newline, DEL and C1, marks of direction, separators of lines, surrogates.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def escape(text: str) -> str:
    """Return a text with its control characters as Python writes them."""
    return _UNSAFE.sub(_shown, text)


def has_unsafe(text: str) -> bool:
    """Return whether a text has a character that `escape` replaces."""
    return _UNSAFE.search(text) is not None


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class EscapingStream(io.TextIOBase):
    """
    A stream that escapes its text, and ends the command if the reader of the pipe is gone.

    Args:
        stream: the stream below.
        escapes: False for text that `SafeConsole` has escaped and styled.
    """

    def __init__(self, stream: TextIO, *, escapes: bool = True) -> None:
        self._stream = stream
        self._escapes = escapes

    @property
    def styled(self) -> EscapingStream:
        """A stream for text that is escaped already."""
        return EscapingStream(self._stream, escapes=False)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream below."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """Return True if styles may be written: they are escape sequences."""
        return not self._escapes and self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the stream below."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Write a text; SystemExit(0) if the reader is gone."""
        try:
            shown = escape(text) if self._escapes else text
            if not shown.isascii():
                encoding = self._stream.encoding or "utf-8"
                shown = shown.encode(encoding, "backslashreplace").decode(encoding)
            self._stream.write(shown)
        except BrokenPipeError:
            self._end()
        return len(text)

    def flush(self) -> None:
        """Flush the stream below; SystemExit(0) if the reader is gone."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._end()

    def _end(self) -> None:
        # Python flushes once more when it exits.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._stream.fileno())
        os.close(nothing)
        raise SystemExit(0)


def install() -> None:
    """Replace the process's streams until it ends."""
    # Entered and never left: the interpreter writes to them when it exits, too.
    streams = ExitStack()
    streams.enter_context(redirect_stdout(EscapingStream(sys.stdout)))
    streams.enter_context(redirect_stderr(EscapingStream(sys.stderr)))
