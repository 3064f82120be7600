"""The `kafkalog` command: every verb is a library call plus a view."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """
    Run the command. An unexpected error exits with 3.

    Typer and rich are imported only for a verb that needs them: they take longer than most work.
    """
    import sys

    from kafkalog.cli.everyday import VERBS, run_verb
    from kafkalog.cli.exits import EXIT_FAILED
    from kafkalog.cli.streams import install

    install()
    try:
        if sys.argv[1:] and sys.argv[1] in VERBS:
            sys.exit(run_verb(sys.argv[1], sys.argv[2:]))
        from kafkalog.cli.app import app

        app(prog_name="kafkalog")
    except Exception:  # noqa: BLE001 - whatever it is
        import traceback

        # Python's own status for it is 1, which means that something was found.
        traceback.print_exc()
        sys.exit(EXIT_FAILED)
