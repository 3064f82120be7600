"""The command line of comparisons with Kafka's own classes in a Java process."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from asv_bench.peers.common import Comparison, add_options, options_of, run_all
from asv_bench.peers.stores import Workspace


class Comparisons(Protocol):
    """Makes the comparisons one after another, each with both processes warm."""

    def __call__(
        self, workspace: Workspace, jars: Path, *, quick: bool, by_wall: bool
    ) -> Iterable[Comparison]: ...


def compare_with_kafka(description: str, comparisons: Comparisons) -> int:
    """Print the table; exit code 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=description)
    add_options(parser)
    parser.add_argument("--wall", action="store_true", help="by the wall clock")
    parser.add_argument("--kafka", type=Path, required=True, help="directory of Kafka's jars")
    arguments = parser.parse_args()
    options = options_of(arguments)
    workspace = Workspace()
    try:
        made = comparisons(workspace, arguments.kafka, quick=options.quick, by_wall=arguments.wall)
        return run_all(made, peer="Kafka", options=options)
    finally:
        workspace.remove()
