"""Run parts of the proof, keep what they found, draw the page: `python3 ci/proof.py`.

    python3 ci/proof.py [PART ...] [--minutes N] [--seed S]   every part where none is named
    python3 ci/proof.py --gate                                short forms, of which nothing is kept
    python3 ci/proof.py --render                              draw the page from what was kept
    python3 ci/proof.py --list                                the parts, and what is missing here

Results are kept in `tests/proof/results.json`, the page is `docs/proof.md`. Exit status 1: a
promise is broken. A part that cannot be run here reports that and breaks nothing.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from asv_bench.suite import machine
from tests.proof.harness import ROOT, Part, Proof, parse_options, perform, temporary_folder
from tests.proof.page import write_page
from tests.proof.parts import PARTS
from tests.proof.results import RESULTS, Result, read_results, result_of, write_results

PAGE = ROOT / "docs" / "proof.md"
FACTS = ("CPU", "memory", "kernel", "file system", "Python")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="proof.py", description="Judge kafkalog by what survives, and draw docs/proof.md."
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="all where none is named")
    parser.add_argument("--minutes", type=float, default=10, help="for each part (10)")
    parser.add_argument("--seed", type=int, help="a fresh one is drawn where none is given")
    parser.add_argument("--gate", action="store_true", help="the short forms; keeps no results")
    parser.add_argument("--no-results", action="store_true", help="keep no results")
    parser.add_argument("--render", action="store_true", help="draw the page, run nothing")
    parser.add_argument("--list", action="store_true", help="name the parts")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="for parts that know it"
    )
    parsed = parser.parse_args(arguments)
    unknown = sorted(set(parsed.parts) - {part.name for part in PARTS})
    if unknown:
        there = ", ".join(part.name for part in PARTS)
        parser.error(f"no part {', '.join(unknown)}; there are {there}")
    return parsed


def run_part(part: Part, parsed: argparse.Namespace) -> Result:
    """Run one part and print what it counted."""
    seed = secrets.randbits(32) if parsed.seed is None else parsed.seed
    seconds = part.gate_seconds if parsed.gate else parsed.minutes * 60
    print(f"\n=== {part.name}: {part.title} (seed {seed}, {seconds:g} s)", flush=True)
    begun = time.monotonic()
    with temporary_folder(part.name) as name:
        proof = Proof(
            part.name, seed, seconds, Path(name), parsed.gate, parse_options(parsed.option)
        )
        skipped = perform(part, proof)
    facts = {name: text for name, text in machine.describe().items() if name in FACTS}
    result = result_of(proof, facts, skipped, (time.monotonic() - begun) / 60)
    if skipped:
        print(f"!!! {part.name} IS SKIPPED: {skipped}", file=sys.stderr, flush=True)
    for counted, number in result.counts.items():
        print(f"    {number:>12,} {counted}", flush=True)
    for note in result.notes:
        print(f"    {note}", flush=True)
    verdict = f"{len(result.broken)} BROKEN" if result.broken else "0 broken"
    print(f"    {verdict} in {result.minutes * 60:.0f} s, seed {seed}", flush=True)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts of the command line; return the exit status."""
    parsed = parse(sys.argv[1:] if arguments is None else arguments)
    if parsed.list:
        for part in PARTS:
            print(f"{part.name:<16} {part.title}{' - ' + part.missing() if part.missing() else ''}")
        return 0
    kept = read_results(RESULTS)
    if parsed.render:
        write_page(PAGE, PARTS, kept)
        return 0
    chosen = [part for part in PARTS if not parsed.parts or part.name in parsed.parts]
    if parsed.gate:
        chosen = [part for part in chosen if part.gate_seconds]
    broken = 0
    for part in chosen:
        result = run_part(part, parsed)
        broken += len(result.broken)
        if not (parsed.gate or parsed.no_results or result.skipped):
            kept[part.name] = result
            write_results(RESULTS, kept)
            write_page(PAGE, PARTS, kept)
    print(f"\nproof: {len(chosen)} parts, {broken} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
