"""Evaluation of the PromQL that the dashboard uses, over scrapes in memory.

    expression := term (("+" | "-") term)*       term := factor (("*" | "/") factor)*
    factor     := number | "(" expression ")" | rate | quantile | aggregate | selector
    rate       := "rate" "(" selector "[" range "]" ")"
    quantile   := "histogram_quantile" "(" number "," expression ")"
    aggregate  := ("sum" | "max") ["by" "(" labels ")"] "(" expression ")"

Matchers of selectors are `=` and `=~`; variables of Grafana match everything. A rate is that of a
window of scrapes, without the extrapolation of Prometheus. Used by `ci/dashboard.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

__all__ = ["Scrape", "evaluate", "metric_names"]

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Expression = Callable[[Sequence["Scrape"]], Vector]

TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[a-zA-Z_]\w*)|(?P<text>\"[^\"]*\")"
    r"|(?P<range>\[[^\]]*\])|(?P<sign>=~|[-+*/(){},=]))"
)
WORDS = {"sum", "max", "by", "rate", "histogram_quantile"}


class Scrape(NamedTuple):
    """Samples of one moment: seconds, and by metric the values by labels."""

    at: float
    samples: Mapping[str, Vector]


def metric_names(query: str) -> set[str]:
    """Return the names of metrics in a query: names that a bracket or a matcher may follow."""
    bare = re.sub(r"\bby \([^)]*\)|\{[^}]*\}|\[[^\]]*\]", "", query)
    return set(re.findall(r"[a-zA-Z_]\w*", bare)) - WORDS


def evaluate(query: str, window: Sequence[Scrape]) -> Vector:
    """Return the values of a query at the last scrape of a window."""
    parser = _Parser(query)
    found = parser.expression()
    if parser.peek():
        raise ValueError(f"query must end here: {query!r}, at {parser.peek()!r}")
    return found(window)


class _Parser:
    """Recursive descent over the tokens of a query."""

    def __init__(self, query: str) -> None:
        self._tokens: list[str] = []
        position = 0
        while query[position:].strip():
            match = TOKEN.match(query, position)
            if match is None:
                raise ValueError(f"query must be PromQL of ci/promql.py, got {query[position:]!r}")
            self._tokens.append(match[0].strip())
            position = match.end()

    def peek(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def take(self, *expected: str) -> str:
        token = self._tokens.pop(0) if self._tokens else ""
        if expected and token not in expected:
            raise ValueError(f"token must be one of {expected}, got {token!r}")
        return token

    def expression(self) -> Expression:
        found = self._term()
        while self.peek() in ("+", "-"):
            found = _binary(self.take(), found, self._term())
        return found

    def _term(self) -> Expression:
        found = self._factor()
        while self.peek() in ("*", "/"):
            found = _binary(self.take(), found, self._factor())
        return found

    def _factor(self) -> Expression:
        token = self.take()
        if token == "(":
            found = self.expression()
            self.take(")")
            return found
        if token[0].isdigit():
            return lambda _window: {frozenset(): float(token)}
        if token == "rate":
            self.take("(")
            name = self.take()
            matches = self._matchers()
            self.take()
            self.take(")")
            return lambda window: _rate(name, matches, window)
        if token == "histogram_quantile":
            self.take("(")
            share = float(self.take())
            self.take(",")
            inner = self.expression()
            self.take(")")
            return lambda window: _quantile(share, inner(window))
        if token in ("sum", "max"):
            return self._aggregate(sum if token == "sum" else max)
        matches = self._matchers()
        return lambda window: {
            labels: value
            for labels, value in window[-1].samples.get(token, {}).items()
            if matches(labels)
        }

    def _aggregate(self, combine: Callable[[list[float]], float]) -> Expression:
        kept: set[str] = set()
        if self.peek() == "by":
            self.take("by")
            self.take("(")
            while (token := self.take()) != ")":
                kept |= {token} - {","}
        self.take("(")
        inner = self.expression()
        self.take(")")

        def aggregate(window: Sequence[Scrape]) -> Vector:
            groups: dict[Labels, list[float]] = {}
            for labels, value in inner(window).items():
                key = frozenset(each for each in labels if each[0] in kept)
                groups.setdefault(key, []).append(value)
            return {key: combine(values) for key, values in groups.items()}

        return aggregate

    def _matchers(self) -> Callable[[Labels], bool]:
        patterns: dict[str, str] = {}
        if self.peek() == "{":
            self.take("{")
            while (name := self.take()) != "}":
                if name != ",":
                    is_exact = self.take("=", "=~") == "="
                    text = self.take().strip('"')
                    patterns[name] = re.escape(text) if is_exact else re.sub(r"\$\w+", ".*", text)

        def matches(labels: Labels) -> bool:
            found = dict(labels)
            return all(re.fullmatch(each, found.get(name, "")) for name, each in patterns.items())

        return matches


def _binary(sign: str, left: Expression, right: Expression) -> Expression:
    def compute(window: Sequence[Scrape]) -> Vector:
        first, second = left(window), right(window)
        if set(first) == {frozenset()}:
            pairs = {key: (first[frozenset()], value) for key, value in second.items()}
        elif set(second) == {frozenset()}:
            pairs = {key: (value, second[frozenset()]) for key, value in first.items()}
        else:
            pairs = {key: (first[key], second[key]) for key in first.keys() & second.keys()}
        return {key: _apply(sign, *pair) for key, pair in pairs.items()}

    return compute


def _apply(sign: str, first: float, second: float) -> float:
    if sign == "/":
        return first / second if second else math.nan
    return {"+": first + second, "-": first - second, "*": first * second}[sign]


def _rate(name: str, matches: Callable[[Labels], bool], window: Sequence[Scrape]) -> Vector:
    first, last = window[0], window[-1]
    seconds = last.at - first.at
    before = first.samples.get(name, {})
    return {
        labels: max(value - before.get(labels, 0.0), 0.0) / seconds
        for labels, value in last.samples.get(name, {}).items()
        if matches(labels) and seconds > 0
    }


def _quantile(share: float, buckets: Vector) -> Vector:
    """Interpolate within the bucket, as Prometheus does."""
    by_bound = sorted(
        (math.inf if le == "+Inf" else float(le), count)
        for labels, count in buckets.items()
        if (le := dict(labels).get("le"))
    )
    total = by_bound[-1][1] if by_bound else 0.0
    if not total:
        return {}
    lower, below = 0.0, 0.0
    for bound, count in by_bound:
        if count >= share * total:
            if math.isinf(bound):
                return {frozenset(): lower}
            part = (share * total - below) / (count - below) if count > below else 1.0
            return {frozenset(): lower + (bound - lower) * part}
        lower, below = bound, count
    return {frozenset(): lower}
