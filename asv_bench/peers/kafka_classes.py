"""The command line of comparisons with Kafka's own classes in a Java process."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from asv_bench.peers.common import ROUNDS, ROUNDS_QUICK, Comparison, run_all
from asv_bench.peers.stores import Workspace


class Comparisons(Protocol):
    """Makes the comparisons one after another, each with both processes warm."""

    def __call__(
        self, workspace: Workspace, jars: Path, *, quick: bool, by_wall: bool
    ) -> Iterable[Comparison]: ...


def compare_with_kafka(description: str, comparisons: Comparisons) -> int:
    """Print the table; exit code 1 says that a goal was missed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="less work and fewer rounds")
    parser.add_argument("--wall", action="store_true", help="by the wall clock")
    parser.add_argument("--kafka", type=Path, required=True, help="directory of Kafka's jars")
    arguments = parser.parse_args()
    workspace = Workspace()
    try:
        reached = run_all(
            comparisons(workspace, arguments.kafka, quick=arguments.quick, by_wall=arguments.wall),
            peer="kafka",
            rounds=ROUNDS_QUICK if arguments.quick else ROUNDS,
        )
    finally:
        workspace.remove()
    return 0 if reached else 1
