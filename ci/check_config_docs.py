"""Fail if `docs/configuration.md` is not what `kafkalog.config` says.

python ci/check_config_docs.py            compare
python ci/check_config_docs.py --write    make it anew
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kafkalog.config import BEHAVIOUR, KEYS_WITHOUT_USE, PERFORMANCE, LogConfig  # noqa: E402
from kafkalog.settings import LONG_MAX, Setting, settings_of  # noqa: E402

PAGE = ROOT / "docs" / "configuration.md"

HEAD = """\
# Configuration

<!-- Made by ci/check_config_docs.py from kafkalog/config.py: change it there. -->

A log takes a `LogConfig`. Its fields are Kafka's topic settings, dots turned into underscores, with
Kafka 4.1's names, types, defaults and ranges; keys of kafkalog's own begin with `kafkalog.`, which
the field names leave out. An unknown key, a wrong type or a value out of range is a `ConfigError`
that names the key, the value and the rule.

```python
config = LogConfig(segment_bytes=16 << 20, compression_type="zstd")
config = LogConfig.from_properties({"segment.bytes": "16777216", "compression.type": "zstd"})
config = config.replace(retention_ms=-1)
```
"""

INTRODUCTIONS = {
    BEHAVIOUR: "What is kept, for how long, and what an append may hold.",
    PERFORMANCE: "The same records in other files, batches or memory.",
}

DIFFERENCES = """\
## Differences from Kafka

- `segment.bytes` may be as small as 14; Kafka 4.1 asks for 1 MiB. Embedded logs are often small.
- An integer and `1.0` are not the same here: `LogConfig(segment_ms=1.0)` is an error.
"""


def value_range(setting: Setting) -> str:
    """Return the range of a setting as a cell."""
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    if setting.kind == "boolean":
        return "`true`, `false`"
    if setting.lower is None:
        return "any"
    bound = (
        f"{setting.lower} and more"
        if setting.upper is None
        else f"{setting.lower} to {setting.upper}"
    )
    return bound if setting.extra is None else f"{bound}, or {setting.extra}"


def default_value(setting: Setting) -> str:
    """Return the default of a setting as a cell."""
    return "2^63-1" if setting.default == LONG_MAX else f"`{setting.format(setting.default)}`"


def table(group: str) -> list[str]:
    """Return the section of one group."""
    lines = [f"## {group}", "", INTRODUCTIONS[group], ""]
    lines += ["| key | field | type | default | range | unit |", "|---|---|---|---|---|---|"]
    chosen = [each for each in settings_of(LogConfig).values() if each.group == group]
    for each in chosen:
        cells = [
            f"`{each.key}`",
            f"`{each.name}`",
            each.kind,
            default_value(each),
            value_range(each),
            each.unit,
        ]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    lines.append("")
    for each in chosen:
        lines.append(f"- `{each.key}`: {each.doc.replace(str(LONG_MAX), '2^63-1')}")
    lines.append("")
    return lines


def page() -> str:
    """Return the whole page."""
    lines = [HEAD, *table(BEHAVIOUR), *table(PERFORMANCE), DIFFERENCES]
    lines += ["Topic settings of Kafka that are refused, because they would do nothing:", ""]
    lines += [f"- `{key}`: {reason}." for key, reason in KEYS_WITHOUT_USE.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Compare or write the page."""
    parser = argparse.ArgumentParser(description="Compare docs/configuration.md with the code.")
    parser.add_argument("--write", action="store_true", help="make the page anew")
    expected = page()
    if parser.parse_args().write:
        PAGE.write_text(expected, "utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text("utf-8") != expected:
        print("docs/configuration.md is not up to date: python ci/check_config_docs.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
