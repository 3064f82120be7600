"""The part "power-cuts": ext4 and XFS lose their power while the mixed workloads run."""

from __future__ import annotations

import contextlib
import shutil

from tests.proof.disks import SIZES, Disk, shared_folder
from tests.proof.harness import Proof
from tests.proof.rounds import Rounds, in_order
from tests.proof.workloads import workloads

__all__ = ["run"]


def run(proof: Proof) -> None:
    """Cut until the time is over, the file systems and workloads in turns."""
    kinds = proof.options.get("filesystems", "ext4,xfs").split(",")
    for kind in [each for each in kinds if shutil.which(f"mkfs.{each}") is None]:
        proof.note(f"{kind} was left out: there is no mkfs.{kind}.")
        proof.say(f"{kind.upper()} IS LEFT OUT: there is no mkfs.{kind}")
        kinds.remove(kind)
    chosen = workloads(proof)
    needed = sum(SIZES[kind] for kind in kinds) * len(chosen)
    with shared_folder(proof.folder, needed) as folder, contextlib.ExitStack() as mounted:
        rounds = []
        for kind in kinds:
            for workload in chosen:
                place = folder / f"{kind}-{workload.name.replace(' ', '-')}"
                place.mkdir()
                disk = Disk(place, kind)
                mounted.callback(disk.unmount)
                rounds.append(Rounds(proof, workload, place, disk))
        while proof.seconds_left() and len(proof.found) < 20:
            for each in rounds:
                each.one()
    in_order(proof)
