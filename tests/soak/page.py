"""Page of the soak: `docs/soak.md` and `docs/images/soak.svg`, from the results that are kept."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from tests.soak.flatness import ALLOWANCES
from tests.soak.results import Kept
from tests.support.pictures import SETTINGS

__all__ = ["draw", "page", "write_page"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "soak.md"
PICTURE = ROOT / "docs" / "images" / "soak.svg"
TITLES = {
    "rss": "Resident memory",
    "descriptors": "Open descriptors",
    "mappings": "Mappings",
    "threads": "Threads",
    "disk": "Disk space in use",
    "files": "Files",
}
BYTES = {"rss", "disk", "journal"}
# Faults whose times the picture shows, with their colors.
MARKS = {"kill": "C3", "full disk": "C1", "read only disk": "C5"}

ABOUT = """# Soak

Two services work for an hour under load and bad input. At the end no acknowledged record may be
lost or doubled, each piece of bad input must have got its answer in time, and the use of memory,
descriptors, mappings and disk space must be flat. Drawn by `python3 ci/soak.py` from its results
(`tests/soak/results.json`, `tests/soak/samples.jsonl`).

```text
python3 ci/soak.py                      # an hour, with a fresh seed
python3 ci/soak.py --minutes 5          # below 30 minutes only rough limits of growth are judged
python3 ci/soak.py --seed 7             # the same order of faults as an earlier run
python3 ci/soak.py --gate               # about a minute, as the gate runs it
```

The exit status is 1 if a judgement fails. The full and the read-only disk need root and loop
devices. Without them a limit of the size of files replaces both, with a message.
"""

PROGRAMS = """
## Programs

* **embedded** uses `kafkalog.aio` and has the routes of `examples/ingest_http`: durable producers,
  transactions, a compacted topic, a group that keeps up, a slow group. It has a commit
  journal, segments of 256 KiB, and retention by 2 MiB and 4 minutes. It lives as long as the run.
* **ingest** is `examples/ingest_http/service.py`, unchanged. Its topic has the same segments and
  retention. It is killed, stopped and started again.
* **followers**, one process for each service, use `kafkalog.follow` with `durable=True` and
  `read_committed`. They judge each record when it is durable.
* **clients**, six for each service, send a request by HTTP until it is acknowledged. One request in
  a hundred ends without waiting for its answer, and is repeated.

Each service has an ext4 file system of 256 MiB on a loop device.

A client numbers its records, and the value of a record follows from both. So a follower sees each
lost, repeated or changed record. After each round of faults everything acknowledged must have
reached the followers, and each client must have made progress. After the end a read-only manager
reads both directories, and compares the compacted topic with the acknowledged versions. The
followers end before the services, so what is acknowledged last is judged there alone.
"""

FLATNESS = """
## Flatness

The run is cut into fifths; the first is the warm-up. The median and the 95th percentile of the last
fifth must not exceed those of the second by more than an allowance: {allowances}.

| series | second fifth | last fifth | 95th percentiles | flat |
|---|---|---|---|---|
"""

LIMITS = """
## Limits

* The load is light, so that the services are idle most of the time: about 50 requests a second.
  [Benchmarks](benchmarks.md) has the throughput.
* The service refuses bodies that are too large or malformed before they reach the engine, so the
  engine's metrics do not count them.
* The kernel refuses to make a file system read-only while files are open for writing. So the file
  system reports an error to itself (`mount -o remount,abort`), and the kernel makes it read-only.
  The service is ended then, as the repair needs an unmounted file system.
* Power cuts are part of the [proof](proof.md).
"""


def write_page(kept: Kept) -> None:
    """Write the page and the picture."""
    PAGE.write_text("".join(page(kept)), "utf-8")
    draw(kept, PICTURE)


def page(kept: Kept) -> Iterator[str]:
    """Yield the parts of the page."""
    yield ABOUT
    count = len(kept.problems)
    yield f"\n## The run\n\n{count or 'No'} judgement{'' if count == 1 else 's'} failed.\n"
    if count:
        yield "\n"
        yield from (f"- {each}\n" for each in kept.problems[:30])
    yield from (f"\n{each}\n" for each in kept.notes)
    yield "\n| | |\n|---|---|\n"
    yield f"| day, commit | {kept.day}, `{kept.commit}` |\n"
    yield f"| duration, seed | {kept.seconds / 60:.1f} minutes, {kept.seed} |\n"
    yield from (f"| {name} | {text} |\n" for name, text in kept.machine.items())
    yield f"| faults | {sum(fault['count'] for fault in kept.faults.values())} |\n"
    yield from (f"| {name} | {number:,} |\n" for name, number in sorted(kept.counts.items()))
    yield "\n![Memory, descriptors, mappings, threads, disk space and files of the run]"
    yield "(images/soak.svg)\n\nVertical lines: SIGKILL (red), full disk (orange), read-only disk"
    yield " (brown).\n"
    yield from _flatness(kept)
    yield from _faults(kept)
    yield PROGRAMS
    yield LIMITS


def _flatness(kept: Kept) -> Iterator[str]:
    allowances = "; ".join(
        f"{measure} {allowance.share:.0%} and {_figure(measure, allowance.amount)}"
        for measure, allowance in ALLOWANCES.items()
    )
    yield FLATNESS.format(allowances=allowances)
    for name, verdict in kept.verdicts.items():
        measure = name.rpartition(": ")[2]
        second, last, second_high, last_high = (
            _figure(measure, verdict[each])
            for each in ("second", "last", "second_high", "last_high")
        )
        yield f"| {name} | {second} | {last} | {second_high}, {last_high} "
        yield f"| {'no' if verdict['problem'] else 'yes'} |\n"


def _figure(measure: str, value: float) -> str:
    return f"{value / (1 << 20):.1f} MiB" if measure in BYTES else f"{value:,.0f}"


def _faults(kept: Kept) -> Iterator[str]:
    yield "\n## Bad input\n\n"
    yield "| fault | times | answers | longest wait | metrics |\n|---|---|---|---|---|\n"
    for name, fault in sorted(kept.faults.items()):
        answers = "; ".join(f"{count:,} x {text}" for text, count in fault["answers"].items())
        metrics = "; ".join(
            f"`{metric}` {_range(values)}" for metric, values in fault["metrics"].items()
        )
        yield f"| {name} | {fault['count']} | {answers} | {fault['longest']:.1f} s | {metrics} |\n"


def _range(values: list[float | None]) -> str:
    low, high = values
    if low is None or high is None:
        return "missing"
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def draw(kept: Kept, path: Path) -> None:
    """Draw a panel for each measure, with a curve for each process or volume."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(10, 5), layout="constrained")
        axes = figure.subplots(2, 3)
        for number, (measure, title) in enumerate(TITLES.items()):
            axis = axes[number // 3][number % 3]
            axis.set_title(title + (", MiB" if measure in BYTES else ""), loc="left")
            for name, (times, values) in _curves(kept, measure).items():
                axis.plot(times, values, linewidth=0.9, label=name)
            for fault, color in MARKS.items():
                for at in kept.faults.get(fault, {}).get("at", ()):
                    axis.axvline(at / 60, color=color, linewidth=0.4, alpha=0.6)
            axis.set_ylim(0, 1.45 * axis.get_ylim()[1])
            axis.set_xlabel("minutes")
            axis.legend(loc="upper left", frameon=False, fontsize=6)
        figure.savefig(path, metadata={"Date": None})


def _curves(kept: Kept, measure: str) -> dict[str, tuple[list[float], list[float]]]:
    """Return times in minutes and values by name; a gap between two lives of a process."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    lives: dict[str, int] = {}
    for sample in kept.samples:
        for name, figures in sample.items():
            if name == "at" or measure not in figures:
                continue
            times, values = found.setdefault(name, ([], []))
            life = figures.get("life", 0)
            if lives.setdefault(name, life) != life:
                times.append(sample["at"] / 60)
                values.append(math.nan)
            lives[name] = life
            times.append(sample["at"] / 60)
            values.append(figures[measure] / ((1 << 20) if measure in BYTES else 1))
    return found
