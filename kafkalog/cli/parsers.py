"""Parsers of the everyday verbs, by the standard library: typer's take longer than most work.

Thread-safety: pure functions.
"""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Final

from kafkalog.cli.columns import output_width

__all__ = ["add_form_arguments", "add_partitions", "add_range_arguments", "make_parser"]

_FORMS: Final = ("auto", "text", "hex", "base64", "json")
_WIDTH_MAX: Final = 80


def make_parser(verb: str, description: str, epilog: str) -> ArgumentParser:
    """Return the parser of a verb; its help has at most 80 columns."""
    width = min(output_width() or _WIDTH_MAX, _WIDTH_MAX)

    def make_formatter(prog: str) -> RawDescriptionHelpFormatter:
        return RawDescriptionHelpFormatter(prog, width=width, max_help_position=22)

    return ArgumentParser(
        prog=f"kafkalog {verb}",
        description=description,
        epilog=epilog,
        formatter_class=make_formatter,
        allow_abbrev=False,
    )


def add_partitions(parser: ArgumentParser) -> None:
    """Add the partitions to read."""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PARTITION",
        help="a partition directory, TOPIC@DIR, or a data directory",
    )
    parser.add_argument("--key", help="only this key: text, hex:0a0b or base64:Cgs=")
    parser.add_argument(
        "--partition", type=int, action="append", metavar="N", help="only these numbers"
    )
    parser.add_argument(
        "--committed", action="store_true", help="without open and aborted transactions"
    )


def add_range_arguments(parser: ArgumentParser) -> None:
    """Add the range of offsets and times, and the largest number."""
    parser.add_argument("--from", dest="start", type=int, metavar="OFFSET", help="first offset")
    parser.add_argument(
        "--to", dest="end", type=int, metavar="OFFSET", help="offset after the last one"
    )
    parser.add_argument("--since", metavar="TIME", help="first time")
    parser.add_argument("--until", metavar="TIME", help="time after the last one")
    parser.add_argument("--max", type=int, metavar="N", help="largest number in all")


def add_form_arguments(parser: ArgumentParser) -> None:
    """Add the form of records."""
    parser.add_argument(
        "--as",
        dest="form",
        choices=_FORMS,
        default="auto",
        metavar="FORM",
        help=f"{', '.join(_FORMS)}; auto is text, and decodes internal topics",
    )
    parser.add_argument("--full", action="store_true", help="do not cut lines at the terminal")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
