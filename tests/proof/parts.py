"""The registry: every part of the proof whose module is there, in the order of the page."""

from __future__ import annotations

from tests.proof.harness import Part

__all__ = ["PARTS"]

PARTS: tuple[Part, ...] = ()
