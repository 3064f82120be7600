"""The part "kills": SIGKILL at random moments of the mixed workloads. A kill loses nothing."""

from __future__ import annotations

from tests.proof.disks import shared_folder
from tests.proof.harness import Proof
from tests.proof.rounds import Rounds, in_order
from tests.proof.workloads import workloads

__all__ = ["run"]


def run(proof: Proof) -> None:
    """Kill until the time is over, the workloads in turns."""
    with shared_folder(proof.folder, 1 << 30) as folder:
        rounds = []
        for workload in workloads(proof):
            place = folder / workload.name.replace(" ", "-")
            place.mkdir()
            rounds.append(Rounds(proof, workload, place))
        while proof.seconds_left() and len(proof.found) < 20:
            for each in rounds:
                each.one()
    in_order(proof)
