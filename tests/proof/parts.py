"""The registry: every part of the proof whose module is there, in the order of the page."""

from __future__ import annotations

from tests.proof import needs
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
    Part(
        "fuzzing",
        "Fuzzing under AddressSanitizer",
        "Every entry that takes bytes, state files and whole directories among them, is given "
        "inputs that are changed at random, in a build with AddressSanitizer and UBSan: nothing "
        "but the library's own errors, no access outside of a buffer, results equal to those of "
        "slow reference codecs. The gate does it in its step of the sanitizers.",
        "tests.proof.fuzzing",
        needs=(needs.gcc,),
    ),
)
