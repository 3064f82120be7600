"""View of a diagnosis: text for people, one JSON object for programs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console
from rich.text import Text

from kafkalog.doctor.findings import Diagnosis, Finding, Severity

__all__ = ["show_diagnosis", "write_json"]

_STYLES = {Severity.NOTE: "dim", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}


def write_json(output: TextIO, diagnosis: Diagnosis) -> None:
    """Write the diagnosis as one line."""
    output.write(json.dumps(diagnosis.as_dict(), separators=(",", ":")) + "\n")


def show_diagnosis(console: Console, diagnosis: Diagnosis) -> None:
    """Show every finding, and then a summary."""
    for finding in diagnosis.findings:
        console.print(_heading(finding), soft_wrap=True)
        for label, text in _lines(finding):
            console.print(Text(_paragraph(console, label, text)), soft_wrap=True)
    for what in diagnosis.unseen:
        console.print(Text(f"not looked at: {what}"), soft_wrap=True)
    console.print(Text(_summary(diagnosis)), soft_wrap=True)


def _paragraph(console: Console, label: str, text: str) -> str:
    """Return a text after its label: wrapped at words on a terminal, else as one line."""
    if not console.is_terminal:
        return f"  {label:<8} {text}"
    return textwrap.fill(
        text,
        console.width,
        initial_indent=f"  {label:<8} ",
        subsequent_indent=" " * 11,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _heading(finding: Finding) -> Text:
    return Text(f"{finding.severity.name} {finding.check}", _STYLES[finding.severity])


def _lines(finding: Finding) -> Iterator[tuple[str, str]]:
    yield "seen", finding.seen
    yield "matters", finding.matters
    if finding.remedy:
        yield "change", finding.remedy


def _summary(diagnosis: Diagnosis) -> str:
    counts = ", ".join(
        f"{diagnosis.count(severity)} {severity.name.lower()}s" for severity in reversed(Severity)
    )
    return (
        f"{diagnosis.partition_count} partitions, {diagnosis.segment_count} segments,"
        f" {diagnosis.log_bytes:,} bytes: {counts}"
    )
