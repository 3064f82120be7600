"""Judgement of series: whether the use of a resource stays flat.

The run is cut into fifths. The first is the warm-up. The median and the 95th percentile of the last
fifth must not exceed those of the second by more than an allowance: a share, and a fixed amount for
the granularity of the resource. Times without a sample, as of a process that was killed, are left
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["ALLOWANCES", "SHORT_RUN", "Allowance", "Verdict", "judge_series"]

PARTS = 5
# Samples in each of the two fifths below which nothing can be judged.
SAMPLES_MIN = 3


@dataclass(frozen=True)
class Allowance:
    """
    Growth that still counts as flat: `share` of the earlier value and `amount` in its unit.

    >>> Allowance(0.05, 4).limit(100)
    109.0
    """

    share: float
    amount: float

    def limit(self, value: float) -> float:
        """Return the largest value that is not growth."""
        return value * (1 + self.share) + self.amount


# By measure: RSS and disk space in bytes, the others in numbers.
ALLOWANCES: Mapping[str, Allowance] = {
    "rss": Allowance(0.05, 4 << 20),
    "descriptors": Allowance(0.05, 8),
    "mappings": Allowance(0.05, 16),
    # A pool of four threads that ends after seconds without work.
    "threads": Allowance(0, 4),
    "disk": Allowance(0.10, 8 << 20),
    # From one of its two files to both.
    "journal": Allowance(0, 32 << 20),
    "files": Allowance(0.10, 16),
}
# For runs that are over before retention reaches its steady state: only an explosion is judged.
SHORT_RUN: Mapping[str, Allowance] = {
    "rss": Allowance(0.5, 48 << 20),
    "descriptors": Allowance(1, 64),
    "mappings": Allowance(1, 256),
    "threads": Allowance(0.5, 8),
    "disk": Allowance(3, 64 << 20),
    "journal": Allowance(0, 64 << 20),
    "files": Allowance(3, 400),
}


@dataclass(frozen=True)
class Verdict:
    """
    Figures of one series.

    Attributes:
        second, last: medians of the second and of the last fifth.
        second_high, last_high: their 95th percentiles.
        problem: sentence, empty if the series is flat.
    """

    second: float
    last: float
    second_high: float
    last_high: float
    problem: str


def judge_series(
    samples: Sequence[tuple[float, float]], seconds: float, allowance: Allowance
) -> Verdict:
    """
    Judge a series.

    Args:
        samples: seconds since the start of the run, and the value.
        seconds: duration of the run.
        allowance: the growth that still counts as flat.
    """
    fifths: list[list[float]] = [[] for _ in range(PARTS)]
    for at, value in samples:
        fifths[min(max(int(at * PARTS / seconds), 0), PARTS - 1)].append(value)
    second, last = sorted(fifths[1]), sorted(fifths[-1])
    if min(len(second), len(last)) < SAMPLES_MIN:
        problem = f"{len(second)} and {len(last)} samples in the second and the last fifth"
        return Verdict(0, 0, 0, 0, f"{problem}, at least {SAMPLES_MIN} are needed")
    figures = [_quantile(part, share) for share in (0.5, 0.95) for part in (second, last)]
    second_middle, last_middle, second_high, last_high = figures
    problems = [
        f"{name} rose from {before:,.0f} to {after:,.0f}, the limit is {limit:,.0f}"
        for name, before, after in (
            ("median", second_middle, last_middle),
            ("95th percentile", second_high, last_high),
        )
        if after > (limit := allowance.limit(before))
    ]
    return Verdict(second_middle, last_middle, second_high, last_high, "; ".join(problems))


def _quantile(values: Sequence[float], share: float) -> float:
    return values[min(int(len(values) * share), len(values) - 1)]
