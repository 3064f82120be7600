"""The part "power-cuts": ext4 and XFS lose their power while the mixed workloads run.

Options: `filesystems=xfs`, `workload=single` or `workload=managers`, and `rounds=2000`: end after
so many cuts of each file system and workload, where the time allows them.
"""

from __future__ import annotations

import contextlib
from functools import partial

from tests.proof.disks import SIZES, Disk, present_kinds, shared_folder
from tests.proof.harness import Proof
from tests.proof.rounds import Rounds, Workload, in_order
from tests.proof.side_by_side import Judge, run_side_by_side
from tests.proof.workloads import load_modules, workloads

__all__ = ["run"]


def run(proof: Proof) -> None:
    """Cut until the time is over, each file system and workload in a separate process."""
    kinds = present_kinds(proof, proof.options.get("filesystems", "ext4,xfs").split(","))
    load_modules()
    judges = [
        Judge(f"{kind}-{workload.slug}", partial(_cut, kind=kind, workload=workload))
        for kind in kinds
        for workload in workloads(proof)
    ]
    run_side_by_side(proof, judges)
    in_order(proof)


def _cut(proof: Proof, *, kind: str, workload: Workload) -> None:
    """Cut one file system under one workload."""
    with shared_folder(proof.folder, SIZES[kind]) as folder, contextlib.ExitStack() as mounted:
        disk = Disk(folder, kind)
        mounted.callback(disk.unmount)
        Rounds(proof, workload, folder, disk).run()
