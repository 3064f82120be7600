"""Settings of matplotlib for the pictures of the docs: the same bytes for the same data."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["SETTINGS"]

SETTINGS: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kafkalog",
    "font.size": 7,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
