"""The judge of mutated directories finds what is planted, and parses what brokers wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.log.reader import LogReader
from tests.proof.data_directories import DataImage, own_data_images, run_data_case
from tests.proof.directory_case import run_case
from tests.proof.directory_contents import look_at
from tests.proof.entries import entries_of
from tests.proof.partition_images import Image, own_images
from tests.support import golden


@pytest.fixture(name="image", scope="module")
def fixture_image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """A partition of format v2, as a kill leaves it."""
    images = {each.name: each for each in own_images(tmp_path_factory.mktemp("images"))}
    return images["own/v2/killed"]


@pytest.mark.parametrize("partition", ["plain-0", "transactions-0", "compact-none-0"])
def test_entries_of_broker_segments_equal_the_manifest(partition: str) -> None:
    """The judge's own parser agrees with Kafka's classes about every batch."""
    manifest = golden.Manifest(golden.CLEAN, partition)
    found = [
        (entry.first_offset, entry.last_offset, len(entry.data))
        for path in sorted(manifest.directory.glob("*.log"))
        for entry in entries_of(path.read_bytes(), int(path.name[:20]))
    ]
    expected = [
        (batch.base_offset, batch.last_offset, batch.batch_size) for batch in manifest.batches()
    ]
    assert expected == found


def test_case_that_is_judged_right_has_no_problem(image: Image, tmp_path: Path) -> None:
    """Three seeds whose damage is reported are not called broken."""
    for seed in (1, 5, 8):
        assert [] == run_case(image, seed, tmp_path / str(seed)).problems


def leave_out(monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    """Let readers leave a record out without a word."""
    read = LogReader.records
    monkeypatch.setattr(
        LogReader,
        "records",
        lambda self, *args, **kw: (
            each for each in read(self, *args, **kw) if each.offset != offset
        ),
    )


def test_case_with_a_record_left_out_is_a_problem(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that leaves a record out without a word is found."""
    leave_out(monkeypatch, 4)
    problems = run_case(image, 1, tmp_path / "case").problems
    assert any("lost without a word" in each or "differ" in each for each in problems)


def test_case_with_a_wrong_truth_is_a_problem(image: Image, tmp_path: Path) -> None:
    """A record that is served with another content than was appended is found."""
    truth = {**image.truth, 3: (0, b"", b"")}
    wrong = Image(image.name, image.partition, image.files, truth, settings=image.settings)
    problems = run_case(wrong, 1, tmp_path / "case").problems
    assert "offset 3 serves what was never there" in problems


@pytest.fixture(name="data_image", scope="module")
def fixture_data_image(tmp_path_factory: pytest.TempPathFactory) -> DataImage:
    """A data directory, as a kill leaves it."""
    return next(own_data_images(tmp_path_factory.mktemp("data")))


@pytest.mark.parametrize("seed", range(6))
def test_data_directory_that_is_judged_right_has_no_problem(
    data_image: DataImage, tmp_path: Path, seed: int
) -> None:
    """A reported or refused change, or a log start that is believed, is not called broken."""
    assert [] == run_data_case(data_image, seed, tmp_path / "case").problems


def test_data_directory_with_a_record_left_out_is_a_problem(
    data_image: DataImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that leaves a record out without a word is found."""
    leave_out(monkeypatch, 24)
    problems = run_data_case(data_image, 3, tmp_path / "case").problems
    assert any("lost without a word" in each or "differ" in each for each in problems)


def test_moved_entry_is_explained_only_where_nothing_contradicts(
    image: Image, tmp_path: Path
) -> None:
    """The last entry of the log may stand above; one between whole ones may not."""
    directory = image.write(tmp_path)
    name = sorted(image.entries)[-1]
    data = bytearray(image.files[name])
    middle, last = image.entries[name][1], image.entries[name][-1]
    for entry, expected in ((middle, 0), (last, 1)):
        changed = bytearray(data)
        changed[entry.position + 5] ^= 1
        (directory / name).write_bytes(changed)
        assert len(look_at(image, directory).moved) == expected
