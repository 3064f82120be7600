"""`kafkalog stat`: counts compared with slow counting, geometry of the page, hostile keys."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kafkalog import LogConfig, Record, open_log
from kafkalog.cleaner.plan_model import SegmentState
from kafkalog.cleaner.survey import SegmentSurvey
from kafkalog.cli.app import app
from kafkalog.cli.stat.html_report import WIDTH, segment_bars
from kafkalog.cli.stat.keys import key_text
from tests.support.damage import flip
from tests.support.golden import data_directory, unchanged

LITTLE = ("--memory", "65536")
COMPACT = ("--set", "cleanup.policy=compact")
HOSTILE = [
    b"</title><script>alert(1)</script>",
    b"<img src=http://example.org/x onerror=alert(1)>",
    b"\"'&amp;&#x3c;",
    b"\x1b[2J\x00\r\n\xff[bold]\\",
    b"k" * 100_000,
    b"",
]


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, ["stat", *map(str, arguments), *LITTLE])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


def parsed(result: Result) -> Any:
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


@dataclass
class Element:
    """A tag with what is in it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """All tags of a page in their order, with the text directly in them."""

    elements: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        if self.elements:
            self.elements[-1].text += data

    def of(self, tag: str, **attributes: str) -> list[Element]:
        """Return the elements of a kind."""
        pairs = {name.rstrip("_"): value for name, value in attributes.items()}
        return [
            each
            for each in self.elements
            if each.tag == tag and pairs.items() <= each.attributes.items()
        ]


def page_of(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text("ascii"))
    page.close()
    return page


@pytest.fixture(name="log")
def fixture_log(tmp_path: Path) -> Path:
    """Three segments with keys of every kind, each batch one record."""
    with open_log(tmp_path / "orders-0", config=LogConfig(cleanup_policy=("compact",))) as log:
        for number in range(3):
            for key in HOSTILE[number:]:
                log.append([Record(key=key, value=b"v%d" % number, timestamp_ms=1000 + number)])
            log.append([Record(key=b"gone", value=None, timestamp_ms=1000 + number)])
            if number < 2:
                log.roll()
    return tmp_path / "orders-0"


def test_stat_log_shows_tables(log: Path) -> None:
    """Segments, tombstones and keys; the log is only read."""
    with unchanged(log):
        result = run(log, *COMPACT, "--top", "3")
    assert 0 == result.exit_code, result.output
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0].startswith("orders-0: offsets 0..18, ")
    assert lines[0].endswith(" bytes in 3 segments, 18 records of 7 keys")
    assert "  dirty from 0 (it was never cleaned), held from 13 (the active segment is" in lines[1]
    assert "  1 tombstones that no cleaning has seen yet" == lines[3]
    assert ["0", "dirty"] == lines[5].split()[:2]
    assert ["13", "active"] == lines[7].split()[:2]
    assert any(line.startswith("  gone ") for line in lines)
    # Nothing of a key that a terminal would obey, and no more than its beginning.
    assert set(result.stdout) <= {"\n", *map(chr, range(32, 127))}
    assert "\\x1b[2J\\x00\\x0d\\x0a\\xff[bold]\\\\" in result.stdout
    assert "k" * 48 + "... (100,000 bytes, sha256:" in result.stdout
    assert "k" * 49 not in result.stdout


def test_stat_json_equals_slow_counting(log: Path) -> None:
    """Bytes of each segment, live and dead, and the keys with theirs."""
    (found,) = parsed(run(log, *COMPACT, "--json", "--top", "100"))["logs"]
    with open_log(log, read_only=True) as opened:
        bases = [segment.base_offset for segment in opened.segments()]
        batches = [
            (record.key or b"", record.offset, batch.header.size_bytes)
            for batch in opened.batches()
            for record in batch.records()
        ]
    latest = {key: offset for key, offset, _ in batches}
    for segment, base, end in zip(found["segments"], bases, [*bases[1:], 10**9], strict=True):
        inside = [each for each in batches if base <= each[1] < end]
        dead = [each for each in inside if latest[each[0]] > each[1]]
        assert base == segment["base_offset"]
        assert sum(size for *_, size in inside) == segment["size_bytes"]
        assert sum(size for *_, size in dead) == segment["dead_bytes"]
        assert (len(inside), len(dead)) == (segment["records"], segment["dead_records"])
    sizes = {key: sum(size for each, _, size in batches if each == key) for key in latest}
    assert {key.hex(): size for key, size in sizes.items()} == {
        key["key"]: key["bytes"] for key in found["biggest_by_bytes"]
    }


def test_stat_page_has_no_scripts_or_addresses(log: Path, tmp_path: Path) -> None:
    """For any keys and names of directories."""
    nasty = tmp_path / "<script>alert(1)<" / "orders-0"
    nasty.parent.mkdir()
    log.rename(nasty)
    result = run(nasty, *COMPACT, "--html", tmp_path / "page.html")
    assert 0 == result.exit_code, result.output
    page = page_of(tmp_path / "page.html")
    tags = {each.tag for each in page.elements}
    assert not tags & {"script", "img", "link", "iframe", "object", "a", "image", "use", "b"}
    for each in page.elements:
        assert not {"src", "href", "xlink:href"} & each.attributes.keys()
        assert not [name for name in each.attributes if name.startswith("on")]
    (policy,) = [each for each in page.of("meta") if "http-equiv" in each.attributes]
    assert "default-src 'none'; style-src 'unsafe-inline'" == policy.attributes["content"]
    assert "<script>alert(1)<" in page.of("title")[0].text
    keys = {each.text for each in page.of("td", class_="key")}
    assert {key_text(key) for key in HOSTILE} <= keys
    assert result.stdout.startswith("logs drawn in ")


def test_stat_page_draws_segments_as_wide_as_their_bytes(log: Path, tmp_path: Path) -> None:
    """The dead part of each is as high as its share."""
    run(log, *COMPACT, "--html", tmp_path / "page.html")
    (found,) = parsed(run(log, *COMPACT, "--json"))["logs"]
    page = page_of(tmp_path / "page.html")
    dead, live = page.of("rect", class_="dead"), page.of("rect", class_="live")
    assert 3 == len(dead) == len(live) == len(found["segments"])
    assert ["dirty", "dirty", "active"] == [each.attributes["class"] for each in page.of("g")]
    total = sum(segment["size_bytes"] for segment in found["segments"])
    x = 0.0
    for above, below, segment in zip(dead, live, found["segments"], strict=True):
        assert x == pytest.approx(float(above.attributes["x"]), abs=0.1)
        assert above.attributes["x"] == below.attributes["x"]
        width = 1.5 + (WIDTH - 4.5) * segment["size_bytes"] / total
        assert width - 0.5 == pytest.approx(float(above.attributes["width"]), abs=0.1)
        height = 72 * segment["dead_bytes"] / segment["size_bytes"]
        assert height == pytest.approx(float(above.attributes["height"]), abs=0.1)
        assert 72 - height == pytest.approx(float(below.attributes["height"]), abs=0.1)
        x += width
    assert WIDTH == pytest.approx(x, abs=0.1)
    bars = page.of("svg", class_="tombstones")
    assert 1 == len(bars)


def test_stat_hide_keys_shows_hashes(log: Path, tmp_path: Path) -> None:
    """In the page, in the tables and in JSON."""
    page = tmp_path / "page.html"
    for arguments in (("--html", page), ("--json",), ()):
        result = run(log, *COMPACT, "--hide-keys", *arguments)
        text = page.read_text() if "--html" in arguments else result.stdout
        assert "gone" not in text
        assert key_text(b"gone", hidden=True) in text


def test_stat_broker_directory_has_every_log() -> None:
    """With any policy; a partition may be named."""
    data = data_directory("kafka-4.1")
    with unchanged(data):
        (found,) = parsed(run(data, "--json", "--partition", "compact-none-0"))["logs"]
        plain = parsed(run(data, "--json", "--partition", "plain-0"))["logs"][0]
    # The checkpoint shows that a broker compacted it.
    assert (True, "checkpoint") == (found["is_compacted"], found["begins"]["kind"])
    assert (False, "log start") == (plain["is_compacted"], plain["begins"]["kind"])


def test_stat_damaged_log_is_reported_and_others_are_shown(log: Path, tmp_path: Path) -> None:
    """With status 1."""
    with open_log(tmp_path / "whole-0") as other:
        other.append([Record(key=b"k", value=b"v")])
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    flip(log / "00000000000000000000.log", 70)
    result = run(tmp_path)
    assert 1 == result.exit_code
    assert "whole-0: offsets 0..1, " in result.stdout
    assert f"damaged: {log}: " in result.stdout
    (line,) = json.loads(run(tmp_path, "--json").stdout)["damaged"]
    assert line.startswith(str(log))


@pytest.mark.parametrize("problem", ["absent", "empty", "file"])
def test_stat_path_without_a_log_is_refused(tmp_path: Path, problem: str) -> None:
    """With status 2."""
    path = tmp_path / "x"
    if problem == "empty":
        path.mkdir()
    elif problem == "file":
        path.write_bytes(b"")
    result = run(path)
    assert 3 == result.exit_code
    assert "kafkalog: " in result.stderr


def test_stat_unwritable_page_is_reported(log: Path, tmp_path: Path) -> None:
    """With status 3."""
    result = run(log, "--html", tmp_path / "absent" / "page.html")
    assert 3 == result.exit_code
    assert "page.html" in result.stderr


def segment(base_offset: int, state: SegmentState, size_bytes: int) -> SegmentSurvey:
    """Return a segment."""
    return SegmentSurvey(base_offset, state, size_bytes, 0, 1, 0, 0, -1, -1)


def test_bars_of_many_segments_are_few() -> None:
    """Neighbours of one state are one bar; no state is lost, and the width is that of the page."""
    states = [SegmentState.CLEAN] * 3000 + [SegmentState.HELD] + [SegmentState.ACTIVE]
    segments = [segment(number, state, 1000) for number, state in enumerate(states)]
    bars = segment_bars(segments)
    assert 3002 == sum(len(bar.segments) for bar in bars)
    assert ["held", "active"] == [bar.state for bar in bars[-2:]]
    assert len(bars) < 245
    assert min(bar.width for bar in bars) >= 1.5
    assert WIDTH == pytest.approx(bars[-1].x + bars[-1].width)
    assert 3_002_000 == sum(bar.size_bytes for bar in bars)


def test_bars_of_an_empty_segment_are_one_bar() -> None:
    """The segment has no bytes."""
    (bar,) = segment_bars([segment(0, SegmentState.ACTIVE, 0)])
    assert (0.0, WIDTH) == (bar.x, bar.width)
