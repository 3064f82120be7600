"""The `kafkalog` command: every verb is a library call plus a view."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command; typer and rich are imported only now."""
    from kafkalog.cli.app import app

    app(prog_name="kafkalog")
