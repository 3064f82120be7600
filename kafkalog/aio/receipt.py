"""Receipt of a sending: its state, also after a cancellation or an error.

Thread-safety: read from any thread; filled by the producer.
"""

from __future__ import annotations

from typing import Protocol

from kafkalog.clients.many_records import SentRange

__all__ = ["AcceptedRequest", "SendReceipt", "Sending"]


class AcceptedRequest(Protocol):
    """Request of a sending."""

    @property
    def is_accepted(self) -> bool:
        """True once the records cannot be withdrawn."""
        ...


class Sending(Protocol):
    """State of the records of a sending."""

    @property
    def is_done(self) -> bool:
        """True once each record is in the log, or never will be."""
        ...

    @property
    def delivered(self) -> list[SentRange]:
        """The ranges that are in the log so far."""
        ...

    @property
    def failed_rows(self) -> list[int]:
        """Numbers of the records that will not be in the log."""
        ...


class SendReceipt:
    """
    State of one `send` or `send_many`, also after it was cancelled or has failed.

    >>> receipt = SendReceipt()
    >>> try:
    ...     await producer.send_many("orders", keys, values, receipt=receipt)
    ... except asyncio.CancelledError:
    ...     if receipt.is_accepted: ...  # the records are in the log, or will be
    """

    def __init__(self) -> None:
        self._request: AcceptedRequest | None = None
        self._sending: Sending | None = None

    def __repr__(self) -> str:
        state = "done" if self.is_done else "accepted" if self.is_accepted else "not accepted"
        return f"<SendReceipt: {state}>"

    @property
    def is_accepted(self) -> bool:
        """
        True if the records will be written, and cannot be withdrawn any more.

        False of a call that was cancelled or refused: nothing of it is in the log, or will be.
        """
        return self._request is not None and self._request.is_accepted

    @property
    def is_done(self) -> bool:
        """True if each accepted record is in the log, or never will be."""
        return self._sending is not None and self._sending.is_done

    @property
    def delivered(self) -> list[SentRange]:
        """The ranges that are in the log so far."""
        return [] if self._sending is None else self._sending.delivered

    @property
    def failed_rows(self) -> list[int]:
        """Numbers of the records that will not be in the log, counted from 0, in order."""
        return [] if self._sending is None else self._sending.failed_rows

    def show(self, request: AcceptedRequest, sending: Sending) -> None:
        """Show the state of a sending; called by the producer."""
        self._request, self._sending = request, sending
