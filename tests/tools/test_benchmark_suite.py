"""Tests of the suite of comparisons: results are stored unchanged, and shown on the page."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from asv_bench.peers.common import Comparison, at_most, parse_options
from asv_bench.peers.results import Result, first_size, from_json, in_order, split_label, to_json
from asv_bench.suite import __main__ as command
from asv_bench.suite import machine, measuring, needs
from asv_bench.suite.groups import Goal, Group, read_goals, read_groups
from asv_bench.suite.measured import Measured, read_measured, write_measured
from asv_bench.suite.page import amount, page, times
from asv_bench.suite.plots import write_plots
from tests.interop import kafka_maven

ROOT = Path(__file__).resolve().parents[2]
RESULT = Result("P1", "decode", "100 B, 16 KiB", "ns a record", "peer", 20, (10, 20), (210, 460))
GROUP = Group("decoding", "Decoding", "Both decode.", (("records",),), needs=())
GOALS = {
    "P1": Goal("P1", "columnar decode", "decoding", "Memory bounds it."),
    "K1": Goal("K1", "decode in Java", "java", ""),
}


def measured(*lines: Result | str, group: str = "decoding", absent: str = "") -> Measured:
    """Return results of one group on a machine without a name."""
    load = (0.5, 1.0, 2.0)
    facts = {"CPU": "one"}
    return Measured(group, "2026-01-31", True, load, 0.25, facts, absent=absent, lines=lines)


def drawn(*lines: Result | str) -> str:
    """Return the page of one group."""
    return page({"decoding": GROUP}, GOALS, {"decoding": measured(*lines)})


def test_result_compares_medians_and_spreads_by_rounds() -> None:
    """A ratio is that of medians; its spread comes from rounds, each with both sides."""
    assert (15, 335) == (RESULT.ours_median, RESULT.theirs_median)
    assert pytest.approx(335 / 15) == RESULT.ratio
    assert (21, 23) == RESULT.spread
    assert RESULT.is_reached
    assert not dataclasses.replace(RESULT, wanted=25).is_reached
    assert dataclasses.replace(RESULT, wanted=0).is_reached


def test_result_as_json_round_trips() -> None:
    """Results are stored to four digits; a note is a text."""
    assert RESULT == from_json(to_json(RESULT))
    long = dataclasses.replace(RESULT, ours=(1.23456, 2))
    kept = from_json(to_json(long))
    assert isinstance(kept, Result)
    assert (1.235, 2) == kept.ours
    assert "97 mappings" == from_json(to_json("97 mappings"))


@pytest.mark.parametrize(
    ("label", "parts"),
    [
        ("P1 decode", ("P1", "decode", "")),
        ("P6b encode lz4 / the bare codec", ("P6b", "encode lz4", "the bare codec")),
        ("K12 every segment / Kafka", ("K12", "every segment", "Kafka")),
        ("append lists / LMDB putmulti", ("", "append lists", "LMDB putmulti")),
        ("P95 is no goal", ("P95", "is no goal", "")),
        ("G9 verify / binaryFile", ("G9", "verify", "binaryFile")),
    ],
)
def test_label_is_split_into_goal_work_and_peer(label: str, parts: tuple[str, str, str]) -> None:
    """Labels of comparisons have three parts; a goal's number may be left out."""
    assert parts == split_label(label)


def test_label_without_text_raises() -> None:
    """A row without a name is a mistake in the suite."""
    with pytest.raises(ValueError, match="names nothing"):
        split_label(" ")


def test_results_in_order_keep_groups_together() -> None:
    """Rows of one goal and work are adjacent, in the order of their first row."""
    first, second = RESULT, dataclasses.replace(RESULT, what="encode")
    third = dataclasses.replace(RESULT, work="1 KiB")
    assert [first, third, second] == in_order([first, second, third])


def test_file_of_results_separates_groups(tmp_path: Path) -> None:
    """Each group has its own machine, day and lines; an absent group has its reason."""
    path = tmp_path / "results.jsonl"
    assert {} == read_measured(path)
    one, none = measured(RESULT, "a note"), measured(group="java", absent="no JDK")
    write_measured(path, [one, none])
    assert {"decoding": one, "java": none} == read_measured(path)
    assert [path] == list(tmp_path.iterdir())


def test_page_shows_both_sides_spread_and_goal() -> None:
    """The row of a result that reached its goal."""
    row = "| P1 | decode | 100 B, 16 KiB | record | 15 ns | 335 ns | peer | 22.3x "
    assert f"{row}| 21.0x to 23.0x | 20x |" in drawn(RESULT)
    assert "1 are reached in every row: P1." in drawn(RESULT)
    assert "Memory bounds it." not in drawn(RESULT)


def test_page_shows_missed_goal_in_bold_with_its_reason() -> None:
    """A goal that is missed in one of two rows counts as missed and is explained."""
    text = drawn(RESULT, dataclasses.replace(RESULT, wanted=25))
    assert "| **22.3x** | 21.0x to 23.0x | 25x |" in text
    assert "- **P1**, columnar decode: 1 of 2 rows below. Memory bounds it." in text
    assert "1 in some: P1." in text


def test_page_names_goals_that_were_not_measured() -> None:
    """A goal without a row is in the table too, with a reason if there is one."""
    assert "| K1 | decode in Java | not measured |" in drawn(RESULT)
    kept = {"java": measured(group="java", absent="no JDK")}
    java = dataclasses.replace(GROUP, name="java", title="Java", needs=("kafka",))
    text = page({"java": java}, GOALS, kept)
    assert "| K1 | decode in Java | not measured: no JDK |" in text
    assert "## Java\n\nBoth decode.\n\nNot measured: no JDK.\n" in text


def test_page_names_the_tests_that_show_a_goal() -> None:
    """A goal that is not measured is neither reached nor missed."""
    goal = Goal("G5", "filters", "", "", ("tests/spark/test_connect.py",))
    text = page({"decoding": GROUP}, {**GOALS, "G5": goal}, {"decoding": measured(RESULT)})
    link = "[test_connect.py](../tests/spark/test_connect.py)"
    assert f"| G5 | filters | shown by {link} |" in text
    assert "1 are not measured: K1. 1 are shown by tests: G5. " in text


def test_page_shows_results_without_a_goal_in_their_group() -> None:
    """Rows without a goal are below the group's picture, with notes."""
    free = dataclasses.replace(RESULT, goal="", what="look", wanted=0)
    goals, _, group = drawn(free, "97 mappings").partition("## Decoding")
    assert "| look |" not in goals
    assert "|  | look | 100 B, 16 KiB | record | 15 ns | 335 ns | peer | 22.3x |" in group
    assert "\n- 97 mappings\n" in group


def test_page_describes_the_machine_and_its_load() -> None:
    """Place, time, and the load by other processes."""
    text = drawn(RESULT)
    assert "| CPU | one |" in text
    assert "| decoding | 2026-01-31 | quick | 1 | 0.5, 1.0, 2.0 | 0.2 |" in text
    other = dataclasses.replace(measured(group="java"), machine={"CPU": "two"}, quick=False)
    groups = {"decoding": GROUP, "java": dataclasses.replace(GROUP, name="java")}
    both = page(groups, GOALS, {"decoding": measured(RESULT), "java": other})
    assert "Machine 2:" in both
    assert "| java | 2026-01-31 | full | 2 |" in both


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [
        (9.444, "ns", "9.44 ns"),
        (1250, "ns", "1.25 us"),
        (4_500_000, "ns", "4.5 ms"),
        (2.5e9, "ns", "2.5 s"),
        (126.54, "bytes", "126.5 bytes"),
    ],
)
def test_amount_has_a_short_unit(number: float, unit: str, text: str) -> None:
    """Times have the unit that makes them short, other numbers their own."""
    assert text == amount(number, unit)


def test_times_near_a_goal_have_two_decimals() -> None:
    """A ratio of 1.96 for a goal of 2 must not read 2.0."""
    assert ["0.82x", "1.96x", "23.1x", "118x"] == [times(r) for r in (0.82, 1.96, 23.1, 118.4)]


def test_plots_of_the_same_results_are_identical(tmp_path: Path) -> None:
    """A committed picture has no date and no random part."""
    for name in ("one", "two"):
        write_plots(tmp_path / name, {"decoding": GROUP}, {"decoding": measured(RESULT)})
    one, two = (
        (tmp_path / name / "benchmarks-decoding.svg").read_bytes() for name in ("one", "two")
    )
    assert one == two
    assert b"P1 decode / peer" in one
    assert None is re.search(rb"20\d\d-\d\d-\d\d", one)


def test_plots_of_group_without_results_are_removed(tmp_path: Path) -> None:
    """A picture is removed with its results."""
    write_plots(tmp_path, {"decoding": GROUP}, {"decoding": measured(RESULT)})
    write_plots(tmp_path, {"decoding": GROUP}, {"decoding": measured(absent="no JDK")})
    assert [] == list(tmp_path.iterdir())


def test_first_size_of_many_results_drops_the_other_sizes() -> None:
    """A picture or a table of a hundred rows is useless."""
    small = [dataclasses.replace(RESULT, work=f"100 B, {number}") for number in range(30)]
    large = [dataclasses.replace(RESULT, work=f"1 KiB, {number}") for number in range(30)]
    assert small == first_size([*small, *large])
    assert small == first_size(small)


def test_every_goal_is_in_the_table_and_has_a_group() -> None:
    """P1 to P23, K1 to K12 and G1 to G14 are all there, each with a group or tests that exist."""
    names = {*(f"P{number}" for number in range(1, 24)), "P6b"}
    names |= {f"K{number}" for number in range(1, 13)}
    names |= {f"G{number}" for number in range(1, 15)}
    goals = read_goals()
    assert names == set(goals)
    assert set() == {goal.group for goal in goals.values()} - {*read_groups(), ""}
    assert set() == {name for name, goal in goals.items() if not goal.group and not goal.shown}
    files = {name for goal in goals.values() for name in goal.shown}
    assert set() == {name for name in files if not (ROOT / name).is_file()}


def test_every_command_of_a_group_is_a_module() -> None:
    """Each command in the table of groups can be run."""
    peers = ROOT / "asv_bench" / "peers"
    for group in read_groups().values():
        for module, *_arguments in group.commands:
            assert (peers / f"{module}.py").is_file()


def test_committed_page_is_rendered_from_committed_results() -> None:
    """The page is not edited by hand, and a new text in the tables comes to the page."""
    kept = read_measured(ROOT / "asv_bench" / "results.jsonl")
    groups = read_groups()
    kept = {name: kept[name] for name in groups if name in kept}
    expected = page(groups, read_goals(), kept)
    assert expected == (ROOT / "docs" / "benchmarks.md").read_text("utf-8"), (
        "run `python3 ci/bench.py --render`"
    )


def test_committed_misses_are_all_explained() -> None:
    """A missed goal has a text about attempts and limits."""
    kept = read_measured(ROOT / "asv_bench" / "results.jsonl")
    goals = read_goals()
    below = {each.goal for one in kept.values() for each in one.results if not each.is_reached}
    assert set() == {name for name in below if not goals[name].missed}


def test_command_line_keeps_groups_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One group is measured again, the others stay; a group that fails keeps its old results."""
    old = measured(RESULT, group="lookups")
    write_measured(tmp_path / "results.jsonl", [old, measured(RESULT, group="reads")])
    found = [measured("new", group="reads")]

    def measure(group: Group, **_options: object) -> Measured:
        if group.name == "lookups":
            raise measuring.GroupError("no")
        return found.pop()

    monkeypatch.setattr(command, "measure", measure)
    assert 1 == command.main(["--output", str(tmp_path), "lookups", "reads"])
    kept = read_measured(tmp_path / "results.jsonl")
    assert {"lookups": old, "reads": measured("new", group="reads")} == kept
    assert (tmp_path / "benchmarks.md").exists()


def test_command_line_renders_without_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--render FILE` draws another file's results and starts nothing."""
    monkeypatch.setattr(subprocess, "run", lambda *_a, **_k: pytest.fail("started something"))
    other = tmp_path / "other.jsonl"
    write_measured(other, [measured(RESULT, group="reads")])
    assert 0 == command.main(["--render", str(other), "--output", str(tmp_path / "drawn")])
    assert "| reads | 2026-01-31 |" in (tmp_path / "drawn" / "benchmarks.md").read_text("utf-8")


def test_command_line_with_unknown_group_lists_the_groups(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A mistyped name starts no measurement."""
    with pytest.raises(SystemExit):
        command.main(["recordz"])
    assert "no group recordz; there are records" in capsys.readouterr().err


def test_group_that_needs_kafka_is_absent_without_a_jdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a Java compiler the group is reported as absent and does not fail."""
    monkeypatch.setattr(machine, "describe", lambda: {"CPU": "one"})
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    group = dataclasses.replace(GROUP, needs=("kafka",))
    found = measuring.measure(group, quick=True, rounds=1, load=(0.0, 0.0, 0.0))
    assert "no `javac` on the path" in found.absent
    assert () == found.lines


def test_group_whose_jars_cannot_be_downloaded_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry without an answer is reported on the page."""

    def refused() -> None:
        raise kafka_maven.KafkaUnavailableError("Maven could not fetch its jars\nmany lines")

    monkeypatch.setattr(machine, "describe", lambda: {"CPU": "one"})
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(kafka_maven, "missing_reason", lambda: None)
    monkeypatch.setattr(kafka_maven, "fetch_kafka", refused)
    group = dataclasses.replace(GROUP, needs=("kafka",))
    found = measuring.measure(group, quick=True, rounds=1, load=(0.0, 0.0, 0.0))
    assert "Maven could not fetch its jars" == found.absent


def test_every_need_of_a_group_is_defined() -> None:
    """A mistyped need would count as fulfilled."""
    assert set() == {need for group in read_groups().values() for need in group.needs} - {
        *needs.NEEDS
    }


def test_comparison_with_a_time_has_it_as_the_other_side() -> None:
    """A goal that is an amount replaces a peer's time."""
    moments = iter(range(100))
    comparison = Comparison(
        "100 B",
        1000,
        {"ours": lambda: None},
        [at_most("G1 read", "ours", 2.0), at_most("G3 count", "ours", 0.5)],
        clock=lambda: next(moments),
    )
    comparison.run(rounds=2)
    reached, missed = comparison.results("peer")
    assert ("G1", "read", "the goal") == (reached.goal, reached.what, reached.peer)
    assert ((1e6, 1e6), (2e6, 2e6)) == (reached.ours, reached.theirs)
    assert reached.is_reached and not missed.is_reached
    assert [True, False] == ["ok" in row for row in comparison.rows()]


def test_comparison_that_warms_up_gives_each_case_its_share() -> None:
    """A slow case runs once before the first round, a quick one until its share is over."""
    now = 0.0
    runs = []

    def case(name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            nonlocal now
            now += seconds
            runs.append(name)

        return run

    cases: dict[str, Callable[[], object]] = {
        "quick": case("quick", 1.0),
        "slow": case("slow", 10.0),
    }
    comparison = Comparison("3 M", 1, cases, [], clock=lambda: now, warm_seconds=6.0)
    comparison.run(rounds=1)
    assert [*["quick"] * 3, "slow", "quick", "slow"] == runs
    assert {"quick": [1.0], "slow": [10.0]} == comparison.seconds
    runs.clear()
    comparison.run(rounds=1, warm=False)
    assert ["quick", "slow"] * 2 == runs


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], 4), (["--quick"], 4), (["--quick", "--rounds", "1"], 1), (["--rounds", "9"], 9)],
)
def test_comparison_has_its_rounds_unless_set_by_the_command_line(
    arguments: list[str], expected: int
) -> None:
    """Options of the command line precede those of the comparison."""
    comparison = Comparison("3 M", 1, {}, [], rounds=4)
    assert expected == parse_options(arguments).rounds_of(comparison)


def test_busy_seconds_exclude_idle_time() -> None:
    """Idle and waiting are not work; steal time is not idle."""
    text = "cpu  100 10 50 9999 888 7 3 30 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"
    assert 2.0 == machine.busy_seconds(text, ticks_per_second=100)


def test_mount_of_path_is_the_innermost() -> None:
    """The longest mount point that holds the path names its file system."""
    mounts = "a / ext4 rw 0 0\nb /scratch tmpfs rw 0 0\nc /scratch2 xfs rw 0 0\n"
    assert "tmpfs" == machine.kind_of_mount("/scratch/x", mounts)
    assert "xfs" == machine.kind_of_mount("/scratch2", mounts)
    assert "ext4" == machine.kind_of_mount("/var", mounts)
