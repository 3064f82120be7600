"""The registry: every part of the proof whose module is there, in the order of the page."""

from __future__ import annotations

from tests.proof.harness import Part

__all__ = ["PARTS"]

PARTS: tuple[Part, ...] = (
    Part(
        "mutations",
        "Mutated directories",
        "Partitions of brokers 0.8.2 to 4.1 and of this library are changed at random: bits, "
        "numbers, cuts, foreign bytes, holes of gigabytes, names, strays, links, FIFOs, sockets, "
        "folders. Errors are typed, time and memory bounded, nothing outside is written; what is "
        "served at an offset was there before; every whole entry is served or its loss reported; "
        "a second opening answers as the first.",
        "tests.proof.mutations",
        gate_seconds=45,
    ),
)
