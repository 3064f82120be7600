"""Runner of `kafka.tools.DumpLogSegments`, and parser of its output.

The tool ends with status 0 whatever it found, so its standard error decides: `Dump.complaints`
holds every line there that names a fault, every batch that it called invalid, and a non-zero
status. `Dump.ensure_clean` raises with all of them.

Limits: keys and values are printed as text, so a value with a line feed in it cannot be read back
from `print_data`; sizes, offsets, timestamps, sequences and header names can.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .kafka_maven import KafkaInstall

__all__ = ["Dump", "DumpError", "DumpedFile", "DumpedRecord", "dump", "segment_files"]

COMPLAINTS = (
    "Mismatches in",
    "Found timestamp mismatch in",
    "Found out of order timestamp in",
    "Non-consecutive offsets in",
    "Exception",
    "corrupt",
    "Could not",
    "Ignoring",
)
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
FACT = re.compile(r"(\w+): (\S+)")
RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) (?P<kind>\w+): (?P<timestamp>-?\d+) keySize: (?P<key_size>-?\d+) "
    r"valueSize: (?P<value_size>-?\d+) "
    # A message of magic 0 or 1 has a separate checksum, and no sequence.
    r"(?:isValid: true crc: \d+\}|"
    r"sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<headers>.*?)\])"
    r"(?: key: (?P<key>.*?) payload: (?P<value>.*))?"
)


class DumpError(AssertionError):
    """Kafka's own tool reports faults of the files; the message has its output."""


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """One record line; key and value only with `print_data`, sizes are -1 for null."""

    offset: int
    timestamp_ms: int
    key_size: int
    value_size: int
    sequence: int
    header_keys: tuple[str, ...]
    key: str | None
    value: str | None


@dataclass(slots=True)
class DumpedFile:
    """Output of the tool for one file: `batches` and `entries` with its names of fields."""

    path: Path
    batches: list[dict[str, str]] = field(default_factory=list)
    records: list[DumpedRecord] = field(default_factory=list)
    entries: list[dict[str, str]] = field(default_factory=list)
    passed_sanity_check: bool = False

    def pairs(self) -> list[tuple[int, int]]:
        """Return an index's entries as (offset, position) or (timestamp, offset)."""
        first, second = (
            ("offset", "position") if self.path.suffix == ".index" else ("timestamp", "offset")
        )
        return [(int(entry[first]), int(entry[second])) for entry in self.entries]


@dataclass(slots=True)
class Dump:
    """All files of one run of the tool, and every fault it named."""

    files: dict[Path, DumpedFile]
    complaints: list[str]

    def ensure_clean(self, *, with_gaps: bool = False) -> None:
        """Raise DumpError if the tool complained; `with_gaps`: but for offsets compacted away."""
        complaints = [
            line
            for line in self.complaints
            if not (with_gaps and line.startswith("Non-consecutive offsets in"))
        ]
        if complaints:
            raise DumpError("DumpLogSegments complains:\n" + "\n".join(complaints))


def dump(
    install: KafkaInstall,
    paths: Sequence[Path],
    *,
    deep: bool = False,
    print_data: bool = False,
    index_sanity_check: bool = False,
    verify_index_only: bool = False,
) -> Dump:
    """Run the tool once over all paths (0.5 s and what the data take)."""
    if not paths:
        raise ValueError("no files to dump")
    switches = {
        "--deep-iteration": deep,
        "--print-data-log": print_data,
        "--index-sanity-check": index_sanity_check,
        "--verify-index-only": verify_index_only,
    }
    answer = install.run(
        "kafka.tools.DumpLogSegments",
        *(switch for switch, is_on in switches.items() if is_on),
        "--files",
        ",".join(map(str, paths)),
    )
    files = parse(answer.stdout.split("\n"))
    complaints = find_complaints(answer.stderr.splitlines(), files.values())
    if answer.returncode != 0:
        complaints.append(f"exit status {answer.returncode}: {answer.stderr[-1500:]}")
    complaints += [f"{path}: not dumped" for path in paths if path not in files]
    if index_sanity_check:
        complaints += [
            f"{path}: did not pass the sanity check"
            for path in paths
            if path in files and not files[path].passed_sanity_check
        ]
    return Dump(files, complaints)


def segment_files(directory: Path, *suffixes: str) -> list[Path]:
    """Return the segment files of a partition with these suffixes (all kinds if none), sorted."""
    kinds = suffixes or SUFFIXES
    return sorted(path for path in directory.iterdir() if path.suffix in kinds)


def parse(lines: Iterable[str]) -> dict[Path, DumpedFile]:
    """Sort the tool's lines by the file they speak of."""
    files: dict[Path, DumpedFile] = {}
    current: DumpedFile | None = None
    for line in lines:
        if line.startswith("Dumping "):
            path = Path(line.removeprefix("Dumping "))
            current = files.setdefault(path, DumpedFile(path))
        elif current is not None:
            parse_line(line, current)
    return files


def parse_line(line: str, target: DumpedFile) -> None:
    if line.startswith("baseOffset: ") or (line.startswith("offset: ") and "isvalid: " in line):
        target.batches.append(dict(FACT.findall(line)))
    elif match := RECORD.match(line):  # control records have more after the headers
        names = match["headers"]
        target.records.append(
            DumpedRecord(
                offset=int(match["offset"]),
                timestamp_ms=int(match["timestamp"]),
                key_size=int(match["key_size"]),
                value_size=int(match["value_size"]),
                sequence=int(match["sequence"] or -1),
                header_keys=tuple(names.split(",")) if names else (),
                key=match["key"],
                value=match["value"],
            )
        )
    elif line.startswith(("offset: ", "timestamp: ", "version: ", "producerId: ")):
        target.entries.append(dict(FACT.findall(line)))
    elif line.endswith((" passed sanity check.", " is empty.")):
        target.passed_sanity_check = True


def find_complaints(errors: Iterable[str], files: Iterable[DumpedFile]) -> list[str]:
    """Return the tool's complaints: fault lines of its standard error, and invalid batches."""
    found = [line for line in errors if any(word in line for word in COMPLAINTS)]
    for file in files:
        found += [
            f"{file.path}: batch at {batch['position']} is invalid"
            for batch in file.batches
            if batch["isvalid"] != "true"
        ]
    return found
