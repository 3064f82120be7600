"""Tests of mapped files: lost pages read as zeros and are refused; handling of SIGBUS."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kafkalog._core.mapping import FileMapping, check_bytes, lost_mapping_count
from kafkalog.files.mappings import MappedOrigin
from tests.support.lost_pages import run_program

PAGE = os.sysconf("SC_PAGESIZE")

# Start of each program: a function that maps a file of ten pages.
PREFACE = """
import os, sys, signal, threading, faulthandler
from pathlib import Path
from kafkalog._core.mapping import FileMapping, check_bytes
from kafkalog._core.mapping import install_signal_handler, lost_mapping_count
from kafkalog.errors import LogStorageError
from kafkalog.files.mappings import MappedOrigin

PAGE = os.sysconf("SC_PAGESIZE")

def mapped(name, size=10 * PAGE):
    path = Path(sys.argv[1]) / name
    path.write_bytes(b"x" * size)
    descriptor = os.open(path, os.O_RDONLY)
    facts = os.fstat(descriptor)
    mapping = FileMapping(descriptor, size, MappedOrigin(path, (facts.st_dev, facts.st_ino)))
    os.close(descriptor)
    return path, mapping
"""


def program(body: str) -> str:
    """Return a program that starts with the preface."""
    return PREFACE + body


def test_mapping_shows_the_file_and_keeps_no_descriptor(tmp_path: Path) -> None:
    """The bytes equal the file; the mapping keeps no descriptor open."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 40)
    descriptor = os.open(path, os.O_RDONLY)
    before = len(list(Path("/proc/self/fd").iterdir()))
    mapping = FileMapping(descriptor, 10_000, MappedOrigin(path, (0, 0)))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    os.close(descriptor)
    view = memoryview(mapping)
    assert bytes(view) == (bytes(range(256)) * 40)[:10_000]
    assert view.readonly
    assert len(mapping) == 10_000
    assert mapping.lost is None
    check_bytes(view, touch=True)
    assert lost_mapping_count() == 0


def test_mapping_of_no_bytes_raises(tmp_path: Path) -> None:
    """A size of 0 raises ValueError, a closed descriptor OSError."""
    with pytest.raises(ValueError, match="size must be above 0"):
        FileMapping(0, 0, MappedOrigin(tmp_path, (0, 0)))
    with pytest.raises(OSError, match="Bad file descriptor"):
        FileMapping(-1, 10, MappedOrigin(tmp_path, (0, 0)))


def test_lost_page_reads_as_zeros_and_is_refused(tmp_path: Path) -> None:
    """Only bytes of lost pages are refused; the error has file and position; DUR-3."""
    said = run_program(
        program("""
path, mapping = mapped("file")
view = memoryview(mapping)
os.truncate(path, 4 * PAGE)
print(bytes(view[5 * PAGE : 5 * PAGE + 3]) == bytes(3), mapping.lost == (5 * PAGE, 6 * PAGE))
check_bytes(view[: 5 * PAGE])
try:
    check_bytes(view[4 * PAGE : 6 * PAGE])
except LogStorageError as error:
    print(error.position == 5 * PAGE, error.path == str(path), error.errno)
print(lost_mapping_count())
del view, mapping
print(lost_mapping_count())
"""),
        tmp_path,
    )
    assert said == ["True True", "True True None", "1", "0"]


def test_page_refused_by_the_disk_raises_eio(tmp_path: Path) -> None:
    """A file of unchanged size with unreadable bytes is a failure of its disk; DUR-3."""
    said = run_program(
        program("""
path, mapping = mapped("file")
os.truncate(path, 0)
view = memoryview(mapping)
view[0]
os.truncate(path, 10 * PAGE)
try:
    check_bytes(view)
except LogStorageError as error:
    print(error.errno, error.position, type(error.__cause__).__name__)
"""),
        tmp_path,
    )
    assert said == ["5 0 OSError"]


def test_threads_that_fault_at_once_all_continue(tmp_path: Path) -> None:
    """Many threads and mappings, equal and different pages: each read is refused."""
    said = run_program(
        program("""
files = [mapped(f"file{number}", 64 * PAGE) for number in range(8)]
for path, _ in files:
    os.truncate(path, 0)
start, refused = threading.Barrier(16), []
def read(number):
    start.wait()
    for path, mapping in files[number % 8 :] + files[: number % 8]:
        view = memoryview(mapping)
        for page in range(64):
            view[page * PAGE]
        try:
            check_bytes(view)
        except LogStorageError:
            refused.append(path)
threads = [threading.Thread(target=read, args=(number,)) for number in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(refused), lost_mapping_count())
"""),
        tmp_path,
    )
    assert said == ["128 8"]


def test_more_mappings_than_a_table_block_are_found(tmp_path: Path) -> None:
    """The table grows, entries are reused, and each mapping is found by its address."""
    said = run_program(
        program("""
files = [mapped(f"file{number}", 2 * PAGE) for number in range(300)]
del files[1::2]
files += [mapped(f"later{number}", 2 * PAGE) for number in range(100)]
path, mapping = files[-1]
os.truncate(path, 0)
memoryview(mapping)[PAGE]
print([each.lost for _, each in files].count(None), mapping.lost == (PAGE, 2 * PAGE))
"""),
        tmp_path,
    )
    assert said == ["249 True"]


def test_forked_child_survives_a_lost_page(tmp_path: Path) -> None:
    """A child inherits handler and mappings; the parent does not count its lost pages."""
    said = run_program(
        program("""
path, mapping = mapped("file")
os.truncate(path, 0)
child = os.fork()
if child == 0:
    memoryview(mapping)[0]
    os._exit(42 if lost_mapping_count() == 1 else 43)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), lost_mapping_count())
"""),
        tmp_path,
    )
    assert said == ["42 0"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_guard_and_faulthandler_work_together(tmp_path: Path, when: str) -> None:
    """In either order mapped pages are caught; if faulthandler is later, after the next mapping."""
    said = run_program(
        program(f"""
if {when!r} == "before":
    faulthandler.enable()
path, mapping = mapped("file")
if {when!r} == "after":
    faulthandler.enable()
    mapped("other")
os.truncate(path, 0)
memoryview(mapping)[0]
print(lost_mapping_count())
"""),
        tmp_path,
    )
    assert said == ["1"]


FOREIGN = """
import ctypes, mmap
def fault_elsewhere():
    path = Path(sys.argv[1]) / "foreign"
    path.write_bytes(b"x" * PAGE)
    with open(path, "rb") as file:
        foreign = mmap.mmap(file.fileno(), PAGE, access=mmap.ACCESS_READ)
        os.truncate(path, 0)
        foreign[0]
"""


@pytest.mark.parametrize("order", ["guard", "faulthandler, guard", "guard, faulthandler, guard"])
def test_fault_of_a_foreign_mapping_ends_the_process(tmp_path: Path, order: str) -> None:
    """A fault of a page of other code passes SIGBUS on to the earlier handler."""
    steps = "\n".join(
        "faulthandler.enable()" if step == "faulthandler" else "install_signal_handler()"
        for step in order.split(", ")
    )
    body = FOREIGN + "\n" + steps + "\nfault_elsewhere()\n"
    run_program(program(body), tmp_path, expected=-signal.SIGBUS)


def test_signal_sent_by_kill_goes_to_the_earlier_handler(tmp_path: Path) -> None:
    """SIGBUS by `kill` has no address; without an earlier handler it ends the process."""
    body = """
mapped("file")
os.kill(os.getpid(), signal.SIGBUS)
"""
    run_program(program(body), tmp_path, expected=-signal.SIGBUS)
    said = run_program(
        program("""
signal.signal(signal.SIGBUS, lambda *_: print("mine"))
mapped("file")
os.kill(os.getpid(), signal.SIGBUS)
print("alive")
"""),
        tmp_path,
    )
    assert said == ["mine", "alive"]
