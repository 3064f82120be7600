"""The `kafkalog` command: every verb is a library call plus a view."""

from __future__ import annotations

__all__ = ["EVERYDAY", "main"]

# Verbs of `kafkalog.cli.everyday`, whose import takes longer than the test of a name.
EVERYDAY = ("ls", "cat", "tail", "grep")


def main() -> None:
    """
    Run the command. An unexpected error exits with 3.

    Typer and rich are imported only for a verb that needs them: they take longer than most work.
    """
    import sys

    is_everyday = bool(sys.argv[1:]) and sys.argv[1] in EVERYDAY
    if is_everyday:
        _exit_on_interrupt()
    from kafkalog.cli.exits import EXIT_FAILED
    from kafkalog.cli.streams import install

    install()
    try:
        if is_everyday:
            from kafkalog.cli.everyday import run_verb

            sys.exit(run_verb(sys.argv[1], sys.argv[2:]))
        from kafkalog.cli.app import app

        app(prog_name="kafkalog")
    except Exception:  # noqa: BLE001 - whatever it is
        import traceback

        # Python's own status for it is 1, which means that something was found.
        traceback.print_exc()
        sys.exit(EXIT_FAILED)


def _exit_on_interrupt() -> None:
    """
    End the process at once at Ctrl-C, with the status 130.

    An exception would be printed during an import, and lost in a callback of one. The verbs only
    read: there is nothing to finish.
    """
    import os
    import signal

    # Not if the process that started this one has switched the signal off.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(130))
