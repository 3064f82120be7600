"""Check that docs/spark-options.md has the table of options of the code, or writer of the page.

python ci/check_spark_options.py            1 and a message where the page is not up to date
python ci/check_spark_options.py --write    make the page
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parent.parent / "docs" / "spark-options.md"
# For a script the interpreter searches the folder of the script first.
sys.path.insert(0, str(PAGE.parent.parent))

from generated import compare_or_write  # noqa: E402

from kafkalog.spark.options import IGNORED, OPTIONS  # noqa: E402
from kafkalog.spark.options.option import Option  # noqa: E402

HEAD: Final = """# Options of the Spark data source

<!-- made by ci/check_spark_options.py from kafkalog/spark/options/table.py; not to be edited -->

All options of `spark.read`, `spark.readStream`, `df.write` and `df.writeStream` with
`format("kafkalog")`. Names are not case-sensitive. An unknown name is refused, with the nearest
known name. Sizes are `64k`, `256m`, `1g` (powers of 1024, bytes without a unit); times are
`100ms`, `30s`, `15m`, `24h` (ms without a unit); lists are separated by commas.

The column *Spark's Kafka source* compares an option with that of `format("kafka")`; an empty cell
means that that source has no such option.
"""

IGNORED_HEAD: Final = """## Accepted, and ignored

A query of Spark's Kafka source runs with its options unchanged: these are ignored, with one warning
in a process.
"""

_KINDS: Final = {"batch": "batch", "stream": "stream", "write": "write"}


def cell(text: str) -> str:
    """Return a text as a cell of a table."""
    return text.replace("|", "\\|")


def default_of(option: Option) -> str:
    """Return what counts where an option is not given."""
    if option.otherwise:
        return option.otherwise
    return f"`{option.default}`" if option.default is not None else ""


def row(option: Option) -> str:
    """Return the line of an option."""
    names = ", ".join(f"`{name}`" for name in (option.name, *option.aliases))
    cells = [
        names,
        ", ".join(_KINDS[where] for where in option.where),
        default_of(option),
        option.rule,
        option.kafka,
    ]
    return f"| {' | '.join(map(cell, cells))} |".replace("|  |", "| |").replace("|  |", "| |")


def page() -> str:
    """Return the whole page."""
    lines = [HEAD]
    for group in dict.fromkeys(option.group for option in OPTIONS):
        chosen = [option for option in OPTIONS if option.group == group]
        lines += [f"## {group}", ""]
        lines += ["| option | for | default | must be | Spark's Kafka source |"]
        lines += ["|---|---|---|---|---|", *map(row, chosen), ""]
        lines += [f"- `{option.name}`: {option.doc}" for option in chosen]
        lines.append("")
    lines.append(IGNORED_HEAD)
    lines += [f"- `{each.name}`: {each.reason}." for each in IGNORED if each.is_reported]
    names = sorted(option.name for option in OPTIONS if option.ignored_in == "batch")
    lines.append(
        f"- in a batch, {', '.join(f'`{name}`' for name in names)}: only a stream applies it."
    )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Compare or write the page."""
    return compare_or_write(PAGE, page, "check_spark_options.py")


if __name__ == "__main__":
    sys.exit(main())
