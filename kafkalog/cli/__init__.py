"""The `kafkalog` command: every verb is a library call plus a view."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command; typer and rich are imported only now. An unexpected error exits with 3."""
    import sys
    import traceback

    from kafkalog.cli.app import app
    from kafkalog.cli.exits import EXIT_FAILED
    from kafkalog.cli.terminal import install

    install()
    try:
        app(prog_name="kafkalog")
    except Exception:  # noqa: BLE001 - whatever it is
        # Python's own status for it is 1, which means that something was found.
        traceback.print_exc()
        sys.exit(EXIT_FAILED)
