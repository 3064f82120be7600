"""The table of mounts, and which line of it counts."""

from __future__ import annotations

import pytest

from kafkalog.files.mounts import Mount, find_mount

TABLE = """\
27 1 254:0 / / rw,relatime - overlay overlay rw,lowerdir=/a
30 27 254:1 / /data rw,noatime shared:3 master:1 - ext4 /dev/vdb rw,commit=30,data=ordered
33 30 254:3 / /data/with\\040space ro - xfs /dev/disk\\0401 rw
34 27 254:4 / /twice rw - ext4 /dev/vde rw
35 34 0:41 / /twice rw - fuse.sshfs host: rw
36 27 0:42 / /cut rw - ext4
37 27 0:43
"""


def test_mount_has_place_type_source_and_both_kinds_of_options() -> None:
    """The optional fields between them may be many or none."""
    expected = Mount(
        "/data",
        "ext4",
        "/dev/vdb",
        frozenset({"rw", "noatime"}),
        frozenset({"rw", "commit=30", "data=ordered"}),
    )
    assert expected == find_mount("/data/orders-0", TABLE)


def test_blanks_in_names_are_read_as_they_are_meant() -> None:
    """The kernel writes them in octal."""
    mount = find_mount("/data/with space/orders-0", TABLE)
    assert mount is not None
    assert ("/data/with space", "/dev/disk 1") == (mount.point, mount.source)
    assert "ro" in mount.flags


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "overlay"),
        ("/database", "overlay"),
        ("/data", "ext4"),
        ("/twice/orders-0", "fuse.sshfs"),
        ("/cut/orders-0", "overlay"),
    ],
)
def test_last_of_the_longest_points_above_the_path_counts(path: str, expected: str) -> None:
    """A later mount hides an earlier one; a line that is cut says nothing."""
    mount = find_mount(path, TABLE)
    assert mount is not None
    assert expected == mount.kind


def test_table_without_a_line_for_the_path_has_no_answer() -> None:
    """As it is where nothing is known."""
    assert find_mount("/data", "") is None


def test_option_with_a_value_is_found_by_its_name() -> None:
    """The whole name, and not one without a value."""
    mount = Mount("/", "ext4", "d", frozenset({"rw"}), frozenset({"commit=30", "data=ordered"}))
    assert "30" == mount.option("commit")
    assert mount.option("com") is None
    assert mount.option("rw") is None
