"""The part "kills": SIGKILL at random moments of the mixed workloads. A kill loses nothing.

Options: `workload=single` or `workload=managers`, and `rounds=500`: end after so many kills of each
workload, where the time allows them.
"""

from __future__ import annotations

from functools import partial

from tests.proof.disks import shared_folder
from tests.proof.harness import Proof
from tests.proof.rounds import Rounds, Workload, in_order
from tests.proof.side_by_side import Judge, run_side_by_side
from tests.proof.workloads import load_modules, workloads

__all__ = ["run"]


def run(proof: Proof) -> None:
    """Kill until the time is over, each workload in a separate process."""
    load_modules()
    judges = [Judge(each.slug, partial(_kill, workload=each)) for each in workloads(proof)]
    run_side_by_side(proof, judges)
    in_order(proof)


def _kill(proof: Proof, *, workload: Workload) -> None:
    """Kill one workload."""
    with shared_folder(proof.folder, 1 << 29) as folder:
        Rounds(proof, workload, folder).run()
