"""Mapped files: what is lost reads as zeros and is refused; whose the signal is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kafkalog._core.mapping import FileMapping, check_bytes, lost_mapping_count
from kafkalog.files.mappings import MappedOrigin
from tests.support.lost_pages import run_program

PAGE = os.sysconf("SC_PAGESIZE")

# What each program begins with: a file of ten pages, mapped, and what is said of it.
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
    """Return a program that begins with the preface."""
    return PREFACE + body


def test_mapping_shows_the_file_and_keeps_no_descriptor(tmp_path: Path) -> None:
    """The bytes are those of the file; the descriptor is the caller's, and none stays open."""
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


def test_mapping_of_nothing_is_refused(tmp_path: Path) -> None:
    """A size of 0 is a mistake of the caller, a closed descriptor an error of the system."""
    with pytest.raises(ValueError, match="size must be above 0"):
        FileMapping(0, 0, MappedOrigin(tmp_path, (0, 0)))
    with pytest.raises(OSError, match="Bad file descriptor"):
        FileMapping(-1, 10, MappedOrigin(tmp_path, (0, 0)))


def test_lost_page_reads_as_zeros_and_is_refused(tmp_path: Path) -> None:
    """Only the bytes of lost pages are refused, with file and position; DUR-3."""
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


def test_page_that_the_disk_refuses_is_an_input_output_error(tmp_path: Path) -> None:
    """A file that is as long as before, and gives no bytes, is a failure of its disk; DUR-3."""
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


def test_threads_that_fault_at_once_all_go_on(tmp_path: Path) -> None:
    """Many threads, many mappings, the same and other pages: nobody dies, all is refused."""
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


def test_more_mappings_than_a_block_of_the_table_are_known(tmp_path: Path) -> None:
    """The table grows, entries are used again, and each mapping is known by its address."""
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


def test_forked_child_outlives_what_is_lost(tmp_path: Path) -> None:
    """A child has the handler and the mappings of its parent; their losses are its own."""
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
    """Whichever came first: our pages are caught. After, it takes the next file that is mapped."""
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
def test_fault_of_a_foreign_mapping_ends_the_process_as_ever(tmp_path: Path, order: str) -> None:
    """A page that is not ours is not our matter: SIGBUS, told by the faulthandler if there is."""
    steps = "\n".join(
        "faulthandler.enable()" if step == "faulthandler" else "install_signal_handler()"
        for step in order.split(", ")
    )
    body = FOREIGN + "\n" + steps + "\nfault_elsewhere()\n"
    run_program(program(body), tmp_path, expected=-signal.SIGBUS)


def test_signal_that_somebody_sends_ends_the_process_as_ever(tmp_path: Path) -> None:
    """SIGBUS by `kill` has no address: it goes to the handler installed before."""
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
