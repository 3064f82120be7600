"""A survey as one HTML file: no script, no network, drawings as SVG within it.

Its content security policy forbids what it does not need, which is everything but its own style.
Every text in it is escaped: names of directories and keys are foreign bytes.

Of each log:

  * its segments as bars as wide as their bytes, in the colour of their state in the next cleaning;
    the dead part of each is pale. If there are too many segments to distinguish, neighbours of one
    state are drawn as one bar.
  * tombstones by the time from which they may be removed;
  * the biggest keys, by records and by bytes.

Thread-safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Final

from kafkalog.cleaner.plan_model import SegmentState, moment_text
from kafkalog.cleaner.survey import KeySurvey, LogSurvey, SegmentSurvey, TombstoneSurvey
from kafkalog.cli.printing import percent
from kafkalog.cli.stat.keys import key_text
from kafkalog.cli.stat.tables import headline, range_line, segment_cells, tombstone_lines

__all__ = ["Bar", "segment_bars", "survey_page"]

WIDTH: Final = 960
_BAR_HEIGHT: Final = 72
_TIME_HEIGHT: Final = 60
# More bars than this cannot be distinguished.
_BARS_MAX: Final = 240
_BAR_MIN_WIDTH: Final = 1.5
_KEY_WIDTH: Final = 220
# Rows of the table of segments; the drawing has all of them.
_ROWS_MAX: Final = 200

_COLOURS: Final = {
    SegmentState.CLEAN: "#2f855a",
    SegmentState.DIRTY: "#c05621",
    SegmentState.HELD: "#718096",
    SegmentState.ACTIVE: "#2b6cb0",
}
_MEANINGS: Final = {
    SegmentState.CLEAN: "cleaned before",
    SegmentState.DIRTY: "the next cleaning takes it",
    SegmentState.HELD: "must wait",
    SegmentState.ACTIVE: "takes appends",
}
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = """
body { font: 14px/1.45 system-ui, sans-serif; color: #1a202c; margin: 2em auto; max-width: 1000px;
  padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin: 2.2em 0 .2em; } h3 { font-size: 1em;
  margin: 1.2em 0 .3em; }
p { margin: .3em 0; color: #4a5568; } svg { display: block; max-width: 100%; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .5em 0; }
td, th { padding: .12em .9em .12em 0; text-align: right; border-bottom: 1px solid #edf2f7; }
td.text, th.text { text-align: left; } td.key { font-family: ui-monospace, monospace;
  overflow-wrap: anywhere; text-align: left; }
.swatch { display: inline-block; width: .8em; height: .8em; margin: 0 .35em 0 .9em; }
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """
    One or more adjacent segments, as they are drawn.

    Attributes:
        x, width: place in units of the drawing.
        segments: the segments.
        size_bytes, dead_bytes: of all of them.
    """

    x: float
    width: float
    segments: tuple[SegmentSurvey, ...]
    size_bytes: int
    dead_bytes: int

    @property
    def state(self) -> SegmentState:
        """The state of all of them."""
        return self.segments[0].state


def segment_bars(segments: Sequence[SegmentSurvey], width: float = WIDTH) -> list[Bar]:
    """Return the bars of segments, from left to right, as wide together as the drawing."""
    groups = list(_groups(segments))
    total = sum(segment.size_bytes for segment in segments)
    # Each gets the least visible width, and shares the rest by its bytes.
    rest = max(0.0, width - _BAR_MIN_WIDTH * len(groups))
    bars, x = [], 0.0
    for group in groups:
        size = sum(segment.size_bytes for segment in group)
        share = size / total if total else 1 / len(groups)
        dead = sum(segment.dead_bytes for segment in group)
        bar = Bar(x, _BAR_MIN_WIDTH + rest * share, group, size, dead)
        bars.append(bar)
        x += bar.width
    return bars


def _groups(segments: Sequence[SegmentSurvey]) -> Iterator[tuple[SegmentSurvey, ...]]:
    """Yield the segments of each bar: neighbours of one state, in groups large enough to be few."""
    per_bar = -(-len(segments) // _BARS_MAX)
    for _state, run in groupby(segments, key=lambda segment: segment.state):
        neighbours = tuple(run)
        for first in range(0, len(neighbours), per_bar):
            yield neighbours[first : first + per_bar]


def survey_page(surveys: Sequence[LogSurvey], title: str, *, hide_keys: bool = False) -> str:
    """
    Return the page.

    Args:
        surveys: a log each.
        title: name of the directory.
        hide_keys: True to show keys as their hashes.
    """
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        _legend(),
    ]
    for survey in surveys:
        parts += _log_parts(survey, hide_keys=hide_keys)
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _legend() -> str:
    swatches = "".join(
        f'<span class="swatch" style="background:{colour}"></span>{state}: {_MEANINGS[state]}'
        for state, colour in _COLOURS.items()
    )
    return f"<p>Segments, as wide as their bytes.{swatches}. The pale part of each is dead.</p>"


def _log_parts(survey: LogSurvey, *, hide_keys: bool) -> Iterator[str]:
    yield f"<section><h2>{escape(str(survey.topic_partition))}</h2>"
    yield f"<p>{escape(headline(survey))}</p><p>{escape(range_line(survey))}</p>"
    dead = percent(survey.dead_bytes, survey.size_bytes)
    yield (
        f"<p>{survey.dead_bytes:,} bytes ({dead}) and {survey.dead_records:,} records are dead, as"
        f" of {moment_text(survey.now_ms)}. All was counted, nothing estimated; passes over the"
        f" keys: {survey.passes}.</p>"
    )
    yield from _segments_drawing(survey.segments)
    yield _segments_table(survey.segments)
    if survey.tombstones:
        yield "<h3>Tombstones, and when they may go</h3>"
        yield from _tombstones_drawing(survey.tombstones, survey.now_ms)
        lines = "".join(f"<li>{escape(line)}</li>" for line in tombstone_lines(survey))
        yield f"<ul>{lines}</ul>"
    for what, keys in (
        ("records", survey.biggest_by_records),
        ("bytes", survey.biggest_by_bytes),
    ):
        if keys:
            yield f"<h3>Biggest keys by {what}</h3>"
            yield _keys_table(keys, what, hide_keys=hide_keys)
    yield "</section>"


def _segments_drawing(segments: Sequence[SegmentSurvey]) -> Iterator[str]:
    height = _BAR_HEIGHT
    yield f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" class="segments">'
    for bar in segment_bars(segments):
        dead = height * bar.dead_bytes / bar.size_bytes if bar.size_bytes else 0.0
        colour = _COLOURS[bar.state]
        # A gap on the right separates neighbours.
        width = max(bar.width - 0.5, 1.0)
        yield f'<g class="{bar.state}"><title>{escape(_bar_title(bar))}</title>'
        yield (
            f'<rect class="dead" x="{bar.x:.2f}" y="0" width="{width:.2f}" height="{dead:.2f}"'
            f' fill="{colour}" fill-opacity="0.25"/>'
        )
        yield (
            f'<rect class="live" x="{bar.x:.2f}" y="{dead:.2f}" width="{width:.2f}"'
            f' height="{height - dead:.2f}" fill="{colour}"/></g>'
        )
    yield "</svg>"


def _bar_title(bar: Bar) -> str:
    first, last = bar.segments[0], bar.segments[-1]
    name = f"segment {first.base_offset}"
    if first is not last:
        name = f"{len(bar.segments)} segments, {first.base_offset} to {last.base_offset}"
    live = bar.size_bytes - bar.dead_bytes
    return f"{name}, {bar.state}: {live:,} bytes live, {bar.dead_bytes:,} dead"


def _segments_table(segments: Sequence[SegmentSurvey]) -> str:
    titles = ("bytes", "live", "dead", "", "records", "dead", "tombstones", "newest record")
    head = "".join(f"<th>{title}</th>" for title in titles)
    rows = [f'<tr><th class="text">segment</th><th class="text">state</th>{head}</tr>']
    for segment in segments[-_ROWS_MAX:]:
        newest = segment.largest_timestamp_ms
        name, state, *numbers = segment_cells(segment)
        numbers.append("-" if newest < 0 else moment_text(newest))
        cells = "".join(f"<td>{number}</td>" for number in numbers)
        names = f'<td class="text">{name}</td><td class="text">{state}</td>'
        rows.append(f"<tr>{names}{cells}</tr>")
    summary = f"{len(segments):,} segments"
    if len(segments) > _ROWS_MAX:
        summary += f", the last {_ROWS_MAX} of them"
    return f"<details><summary>{summary}</summary><table>{''.join(rows)}</table></details>"


def _tombstones_drawing(tombstones: Sequence[TombstoneSurvey], now_ms: int) -> Iterator[str]:
    """Yield bars over time, from now to the last moment; those without a time are at its end."""
    height, times = (
        _TIME_HEIGHT,
        [each.until_ms for each in tombstones if each.until_ms is not None],
    )
    first, last = min([now_ms, *times]), max([now_ms + 1, *times])
    most = max(each.count for each in tombstones)
    yield f'<svg viewBox="0 0 {WIDTH} {height + 18}" width="{WIDTH}" role="img" class="tombstones">'
    yield f'<line x1="0" y1="{height}" x2="{WIDTH}" y2="{height}" stroke="#718096"/>'
    for each, line in zip(tombstones, _titles(tombstones), strict=True):
        is_known = each.until_ms is not None
        share = ((each.until_ms or 0) - first) / (last - first) if is_known else 1.0
        x = share * (WIDTH - 40) + (0 if is_known else 20)
        tall = max(2.0, height * each.count / most)
        colour = "#553c9a" if is_known else "#b794f4"
        yield (
            f'<rect x="{x:.2f}" y="{height - tall:.2f}" width="6" height="{tall:.2f}"'
            f' fill="{colour}"><title>{escape(line)}</title></rect>'
        )
    for x, anchor, time_ms in ((0, "start", first), (WIDTH - 40, "end", last)):
        yield (
            f'<text x="{x}" y="{height + 14}" font-size="11" text-anchor="{anchor}"'
            f' fill="#4a5568">{moment_text(time_ms)}</text>'
        )
    yield "</svg>"


def _titles(tombstones: Sequence[TombstoneSurvey]) -> Iterator[str]:
    for each in tombstones:
        when = "not seen yet" if each.until_ms is None else moment_text(each.until_ms)
        yield f"{each.count:,}: {when}"


def _keys_table(keys: Sequence[KeySurvey], what: str, *, hide_keys: bool) -> str:
    most = max(1, *(getattr(key, what) for key in keys))
    rows = [
        (
            '<tr><th class="text">key</th><th class="text"></th><th>records</th><th>bytes</th>'
            "<th>latest offset</th></tr>"
        )
    ]
    for key in keys:
        width = _KEY_WIDTH * getattr(key, what) / most
        bar = (
            f'<svg viewBox="0 0 {_KEY_WIDTH} 12" width="{_KEY_WIDTH}" class="key">'
            f'<rect x="0" y="1" width="{width:.2f}" height="10" fill="#4a5568"/></svg>'
        )
        shown = escape(key_text(key.key, hidden=hide_keys))
        rows.append(
            f'<tr><td class="key">{shown}</td><td class="text">{bar}</td>'
            f"<td>{key.records:,}</td><td>{key.bytes:,}</td><td>{key.latest_offset}</td></tr>"
        )
    return f"<table>{''.join(rows)}</table>"
