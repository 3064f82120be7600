"""Goals P7 to P12: a log on the disk, against LMDB, Arrow IPC, plain files and plain searches.

    python -m asv_bench.peers.storage [--quick] [P7 P8 ...]

Files lie in the directory for temporary files (TMPDIR), which should be on a disk, and are removed
afterwards. Reads are warm: everything is in the page cache, on both sides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from asv_bench.peers.common import ROUNDS, ROUNDS_QUICK, Comparison, run_all
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


def comparisons(wanted: list[str], workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield the comparisons of the goals wanted, of all where none is named."""
    for name, section in SECTIONS.items():
        if not wanted or name in wanted:
            yield from section(workspace, quick=quick)


def main(arguments: list[str]) -> int:
    """Print the table; exit code 1 says that a goal was missed."""
    quick = "--quick" in arguments
    wanted = [argument for argument in arguments if argument in SECTIONS]
    workspace = Workspace()
    try:
        reached = run_all(
            comparisons(wanted, workspace, quick=quick),
            peer="peer",
            rounds=ROUNDS_QUICK if quick else ROUNDS,
        )
    finally:
        workspace.remove()
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
