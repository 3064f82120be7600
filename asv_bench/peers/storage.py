"""Goals P7 to P12: a log on the disk, against LMDB, Arrow IPC, plain files and plain searches.

    python -m asv_bench.peers.storage [--quick] [P7 P8 ...]

Files lie in the directory for temporary files (TMPDIR), which should be on a disk, and are removed
afterwards. Reads are warm: everything is in the page cache, on both sides.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator

from asv_bench.peers.common import Comparison, add_options, options_of, run_all
from asv_bench.peers.storage_append import appends, durable_appends
from asv_bench.peers.storage_read import lookups, random_reads, recoveries, scans
from asv_bench.peers.stores import Workspace

SECTIONS: dict[str, Callable[..., Iterator[Comparison]]] = {
    "P7": appends,
    "P8": durable_appends,
    "P9": scans,
    "P10": random_reads,
    "P11": lookups,
    "P12": recoveries,
}


def comparisons(names: list[str], workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield the comparisons of the goals of these names, of all where none is named."""
    for name, section in SECTIONS.items():
        if not names or name in names:
            yield from section(workspace, quick=quick)


def main(arguments: list[str]) -> int:
    """Print the table; exit code 1 if a goal was missed."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    parser.add_argument("goals", nargs="*", choices=[*SECTIONS, []], help="all where none is named")
    parsed = parser.parse_args(arguments)
    options = options_of(parsed)
    workspace = Workspace()
    try:
        made = comparisons(parsed.goals, workspace, quick=options.quick)
        return run_all(made, peer="peer", options=options)
    finally:
        workspace.remove()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
