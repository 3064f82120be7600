"""Tests of the project's own checks: each finds the faults that it is made for."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

CI = Path(__file__).resolve().parents[2] / "ci"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_ci_{name}", CI / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["## [Unreleased]", "- entry"], "under no heading"),
        (["## [Unreleased]", "### Removed", "### Added"], "out of order"),
        (["## [Unreleased]", "### News"], "none of"),
        (["## [1.0.0] - 2026-01-31", "## [Unreleased]"], "not the first"),
        (["## [1.0.0] - 2026-02-31"], "no date"),
        (["## [1.0.0] - 2026-01-31", "## [1.0.1] - 2026-01-30"], "do not fall"),
        (["## 1.0.0"], "want"),
        (["## [Unreleased]", "### Added", "prose"], "no bullet"),
        (["## [Unreleased]", "| old | new |"], "under no heading"),
        (["## [Unreleased]", "### Changed", "| old | new |", "|---|"], "2 cells"),
        (["## [Unreleased]", "### Changed", "| old | new"], "must end with |"),
    ],
)
def test_changelog_with_a_broken_rule_is_refused(lines: list[str], complaint: str) -> None:
    """Each rule of the grammar is enforced."""
    reader = _load("check_changelog").Reader()
    for number, line in enumerate(lines, start=1):
        reader.read(number, line)
    assert len(reader.problems) == 1
    assert complaint in reader.problems[0]


def test_changelog_in_order_is_accepted() -> None:
    """Sections, headings, bullets, their continuation lines, and tables."""
    reader = _load("check_changelog").Reader()
    text = "## [Unreleased]\n\n### Added\n\n- a\n  b\n\n### Fixed\n\n- c\n\n"
    table = "| old | new |\n|---|---|\n| `a` | `b` |\n\n| one cell |\n\n- d\n\n"
    release = "## [0.1.0] - 2026-01-31"
    for number, line in enumerate((text + table + release).splitlines(), start=1):
        reader.read(number, line)
    assert reader.problems == []
    assert reader.versions == [(0, 1, 0)]


@pytest.mark.parametrize(
    ("statement", "is_refused"),
    [
        ("from kafkalog.errors import CorruptRecordError", False),
        ("from kafkalog._core.cursor cimport Cursor", False),
        ("from libc.stdint cimport int64_t", False),
        ("import numpy as np", False),
        ("cimport numpy as np", True),
        ("from numpy cimport ndarray", True),
        ("from kafkalog import config", True),
        ("from kafkalog.files import names", True),
        ("import os", True),
        ("    import threading", True),
        ("# import os", False),
        ("from kafkalog import (\n    errors,\n    config,\n)", True),
        ("from kafkalog import (\n    errors,  # and\n)", False),
        ("from kafkalog \\\n    import config", True),
        ("from ..config import LogConfig", True),
        ("from .. import config", True),
        ("from ..errors import CorruptRecordError", False),
        ("from . import header", False),
        ("from .cursor cimport Cursor", False),
        ("import sys; import os", True),
        ("if TYPE_CHECKING: from kafkalog.files import names", True),
        ("def f():\n    import numpy, socket", True),
        ('"""\nimport os\n"""', False),
        ("os = __import__('os')", True),
        ("import importlib", True),
        ("value = sys.modules['os']", True),
        ("exec('import os')", True),
        ("from libc.time cimport time", True),
        ("from libc cimport time", True),
        ("from libc cimport stdint", False),
        ("from libc.stdlib cimport malloc, free", False),
        ("from libc.stdlib cimport malloc, system", True),
        ("from cpython.mem cimport PyMem_RawMalloc", False),
        ("from cpython.pystate cimport PyGILState_Ensure", True),
        ("from posix.unistd cimport read", True),
        ("from cython.parallel cimport prange", True),
        ('cdef extern from "Python.h" nogil:', False),
        ('cdef extern from "crc32c_hw.h":', False),
        ('cdef extern from "<sys/socket.h>":', True),
        ('cdef extern from "other.h":', True),
        ('cdef extern from *:\n    """\n    #include <stddef.h>\n    """', False),
        ('cdef extern from *:\n    """\n    #include <fcntl.h>\n    """', True),
    ],
)
def test_core_import_beyond_errors_is_refused(statement: str, is_refused: bool) -> None:
    """Allowed and refused statements of the core, one by one."""
    module = _load("check_core_imports")
    path = module.ROOT / "kafkalog" / "_core" / "imagined.pyx"
    assert is_refused == bool(module.problems_of(path, statement.splitlines()))


def test_core_import_over_several_lines_is_reported_at_its_first() -> None:
    """The number of a line is that of the beginning of the statement."""
    module = _load("check_core_imports")
    path = module.ROOT / "kafkalog" / "_core" / "imagined.pyx"
    text = (
        '"""A module.\n\nTwo lines.\n"""\nimport \\\n    sys\nfrom kafkalog import (\n    model,\n)'
    )
    expected = ["kafkalog/_core/imagined.pyx:7: import of kafkalog.model"]
    assert expected == module.problems_of(path, text.splitlines())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f():\n    global cache\n", ["cache"]),
        ("cdef list _anchors = [None]\n", ["_anchors"]),
        ("cdef const int64_t* losses\n", ["losses"]),
        ("cdef object spare = Builder(1)\n", ["spare"]),
        ("names = []\n", ["names"]),
        ("_CACHE = {}\n", ["_CACHE"]),
        ("SEEN: set = set()\nPARTS = dict()\n", ["SEEN", "PARTS"]),
        ("KNOWN = ['a']\n", ["KNOWN"]),
        ("cdef dict CACHE = {}\n", ["CACHE"]),
        ("cdef uint32_t slices[8]\n", ["slices"]),
        ("cdef uint32_t SLICES[8][256]\n", ["SLICES"]),
        ("_UNITS = {1: 2}\ndef f(x):\n    _UNITS[x] = 1\n", ["_UNITS"]),
        ("_UNITS = {1: 2}\ndef f(x):\n    _UNITS.update(x)\n", ["_UNITS"]),
        ("_UNITS = {1: 2}\ndef f(x):\n    return _UNITS[x] == 1\n", []),
        ("NAMES = ('a', 'b')\nKINDS = frozenset({1})\n", []),
        ("cdef int f(int n):\n    cdef int local[8]\n    cdef dict found = {}\n", []),
        ("cdef str KEY = 'key'\ncdef enum:\n    SIZE = 1\n", []),
        ("cdef inline int size_of(int kind) noexcept nogil:\n    kind = 1\n", []),
        ("cdef int value_of(int kind) except -1\n__all__ = ['value_of']\n", []),
    ],
)
def test_module_state_of_a_kernel_is_refused(
    text: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constants in capitals and functions are no state."""
    module = _load("check_structure")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    path = tmp_path / "kernel.pyx"
    path.write_text(text)
    assert [f"state: kernel {name}" for name in expected] == list(module.state_problems(path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("static int count;\n", ["count"]),
        ("int64_t losses = 0;\n", ["losses"]),
        ("static uint32_t once, twice;\n", ["once", "twice"]),
        ("static uint32_t slices[8][256]; /* filled later */\n", ["slices"]),
        ("static uint32_t slices[2] = {1, 2};\n", ["slices"]),
        ("static _Atomic(block *) first;\n", ["first"]),
        ("static struct {\n    int a, b;\n} folds;\n", ["folds"]),
        ("static int (*chosen)(int);\n", ["chosen"]),
        ("int f(void)\n{\n    static int calls = 0;\n    return calls++;\n}\n", ["calls"]),
        ("static const uint8_t moves[2] = {1, 2};\n", []),
        ("static inline int f(int a)\n{\n    int b = a;\n    return b;\n}\nint g(void);\n", []),
        ("typedef struct pair { int a; } pair;\nstruct one { int a; };\n", []),
        ("#define SIZE 8\nextern int64_t losses;\n/* static int old; */\n", []),
    ],
)
def test_variable_of_a_c_source_is_refused(
    text: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constants, types, functions and local variables are no state."""
    module = _load("check_structure")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    path = tmp_path / "kernel.c"
    path.write_text(text)
    assert [f"state: kernel {name}" for name in expected] == list(module.state_problems(path))


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("kafkalog/reader.py", 'ENTRY = struct.Struct(">ii")', 1),
        ("kafkalog/reader.py", 'TYPE = np.dtype([("a", ">i4"), ("b", ">i8")])', 2),
        ("kafkalog/reader.py", 'ENTRY = struct.Struct("<ii")', 0),
        ("kafkalog/reader.py", 'ENTRY = struct.Struct("!hqq")', 1),
        ("kafkalog/reader.py", 'size, crc = struct.unpack(">iI", data)', 1),
        ("kafkalog/reader.py", "count = struct.unpack_from(fmt, data)", 0),
        ("kafkalog/reader.py", 'is_above = compare(">=", ">")', 0),
        ("kafkalog/reader.py", "size = int.from_bytes(head[8:12])", 1),
        ("kafkalog/reader.py", 'size = int.from_bytes(head[SIZE:12], "big")', 1),
        ("kafkalog/reader.py", "size = int.from_bytes(head[SIZE:END])", 0),
        ("kafkalog/reader.py", "size = int.from_bytes(self.read(4))", 0),
        ("kafkalog/layout.py", 'ENTRY = struct.Struct(">ii")', 0),
        ("kafkalog/state/journal.py", 'ENTRY = struct.Struct(">ii")', 0),
        ("kafkalog/_core/kernel.pyx", "if attributes & CODEC_MASK <= CODEC_ZSTD:", 1),
        ("kafkalog/_core/kernel.pyx", "if codec == CODEC_LZ4 or codec != CODEC_NONE:", 0),
        ("kafkalog/_core/codec.pxd", "return CODEC_NONE <= codec <= CODEC_ZSTD", 0),
    ],
)
def test_format_number_outside_of_its_module_is_refused(
    name: str, text: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Big-endian layouts and bounds of codecs have listed modules."""
    module = _load("check_structure")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    tree = ast.parse(text) if path.suffix == ".py" else None
    assert count == len(list(module.format_problems(path, tree)))


@pytest.mark.parametrize(
    ("package", "statement", "is_refused"),
    [
        ("_engine", "from kafkalog._core.header cimport BatchHeader", False),
        ("_engine", "from kafkalog._engine.append_file cimport AppendFile", False),
        ("_engine", "from kafkalog.files import names", True),
        ("_engine", "from kafkalog.model import AppendInfo", False),
        ("_core", "from kafkalog._engine.append_file cimport AppendFile", True),
        ("_core", "from kafkalog.model import AppendInfo", True),
        ("_core", 'cdef extern from "<unistd.h>":', True),
        ("_engine", 'cdef extern from "<unistd.h>":', False),
    ],
)
def test_engine_import_beyond_core_is_refused(
    package: str, statement: str, is_refused: bool
) -> None:
    """The compiled objects use the kernels, never the reverse."""
    module = _load("check_core_imports")
    path = module.ROOT / "kafkalog" / package / "imagined.pyx"
    assert is_refused == bool(module.problems_of(path, [statement]))


@pytest.mark.parametrize(
    ("package", "is_refused"),
    [("spark", False), ("manager", False), ("cli", True), ("doctor", True)],
)
def test_structure_import_of_log_parts_by_another_package_is_refused(
    package: str, is_refused: bool
) -> None:
    """Only the packages that work on the parts of a log may import them."""
    module = _load("check_structure")
    tree = ast.parse("from kafkalog.log.log import partition_of")
    path = module.ROOT / "kafkalog" / package / "imagined.py"
    assert is_refused == bool(list(module.parts_problems(path, tree)))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("while rest:\n  found = scan_batches(data, at)", ["imagined:read"]),
        (
            "while rest:\n  if rest:\n    size = parse_header(data, at).size_bytes",
            ["imagined:read"],
        ),
        ("for found in walk_source(source, bounds, columns):\n  parse_header(found.run)", []),
        ("while rest:\n  rest = rest.find_timestamp(1)", []),
        ("found = scan_batches(data, at)", []),
    ],
)
def test_structure_loop_from_batch_to_batch_is_refused(body: str, expected: list[str]) -> None:
    """A separate loop could judge damage by another rule."""
    module = _load("check_structure")
    lines = body.replace("\n", "\n    ")
    tree = ast.parse(f"def read(data, at, rest, source, bounds, columns):\n    {lines}\n")
    assert expected == list(module.walk_problems(module.PACKAGE / "imagined.py", tree))


def _trees(module: ModuleType, **sources: str) -> dict[Path, ast.Module]:
    """Return the trees of imagined modules of the package."""
    package = module.ROOT / "kafkalog" / "imagined"
    return {package / f"{name}.py": ast.parse(text) for name, text in sources.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("class Base: ...\nclass Only(Base): ...", ["subclass: Base has only Only"]),
        ("class Base: ...\nclass One(Base): ...\nclass Two(Base): ...", []),
        ("class Base(Protocol): ...\nclass Only(Base): ...", []),
        ("class Only(Foreign): ...", []),
    ],
)
def test_structure_single_subclass_in_the_package_is_refused(
    text: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A base with one subclass is one class in two places."""
    module = _load("check_structure")
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    assert expected == list(module.class_problems(_trees(module, one=text)))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Reader", ["name: Reader in kafkalog.imagined.one, kafkalog.imagined.two"]),
        ("_Reader", []),
    ],
)
def test_structure_public_class_name_in_two_modules_is_refused(
    name: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A public name means one class in the whole package."""
    module = _load("check_structure")
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    text = f"class {name}: ..."
    assert expected == list(module.class_problems(_trees(module, one=text, two=text)))


_OWNERS = """
class Box:
    items: list[int]
    def __init__(self):
        self.names = {}
        self.counts: Counter[str] = Counter()
        self.part = Part()
class Part:
    def add(self, item): ...
class Other:
    def __init__(self):
        self.part = []
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("box.size = 1", "box.size"),
        ("self.box.size += 1", "self.box.size"),
        ("del box.size", "box.size"),
        ("box.items.append(1)", "box.items.append(1)"),
        ("self.box.items.clear()", "self.box.items.clear()"),
        ("inventory = box.inside; inventory.counts.update(a=1)", "inventory.counts.update(a=1)"),
        ("box.names['a'] = 1", "box.names['a']"),
        ("box.names['a']['b'] = 1", "box.names['a']['b']"),
        ("del self.box.names['a']", "self.box.names['a']"),
        ("box.names['a'].add(1)", "box.names['a'].add(1)"),
        ("setattr(box, 'size', 1)", "setattr(box, 'size', 1)"),
        ("delattr(self.box, 'size')", "delattr(self.box, 'size')"),
        ("object.__setattr__(box, 'size', 1)", "object.__setattr__(box, 'size', 1)"),
        ("box.items.append(1); return box", "box.items.append(1)"),
        ("for each in self.boxes: each.items.pop()", "each.items.pop()"),
    ],
)
def test_structure_change_of_another_object_is_refused(body: str, expected: str) -> None:
    """Each form of a change: assignment, deletion, method, subscript and `setattr`."""
    module = _load("check_structure")
    text = f"{_OWNERS}\ndef change(self, box):\n    {body}"
    trees = _trees(module, one=text)
    (path, tree), containers = next(iter(trees.items())), module.container_attributes(trees)
    problems = list(module.function_problems(path, tree, containers))
    assert [f"assignment: kafkalog.imagined.one:change {expected}"] == problems


@pytest.mark.parametrize(
    "body",
    [
        "self.size = 1",
        "self.items.append(1); self.names['a'] = 1; del self.names['a']",
        "cls.names['a'] = 1",
        "items = box.items.copy(); items.append(1)",
        "box.items.index(1)",
        "box.part.add(1)",
        "made = Box(); made.size = 1; return made",
        "made = Box(); made.items.append(1); self.use(made)",
        "setattr(self, 'size', 1); object.__setattr__(self, 'size', 1)",
    ],
)
def test_structure_change_of_own_state_is_accepted(body: str) -> None:
    """Own attributes, local containers, new objects, and methods of other classes are free."""
    module = _load("check_structure")
    text = f"{_OWNERS}\ndef change(self, box):\n    {body}"
    trees = _trees(module, one=text)
    (path, tree), containers = next(iter(trees.items())), module.container_attributes(trees)
    assert [] == list(module.function_problems(path, tree, containers))


@pytest.mark.parametrize(("count", "is_refused"), [(7, False), (8, True)])
def test_structure_constructor_with_more_than_seven_arguments_is_refused(
    count: int, is_refused: bool
) -> None:
    """`self` does not count."""
    module = _load("check_structure")
    names = ", ".join(f"a{number}" for number in range(count))
    text = f"class Wide:\n    def __init__(self, {names}): ..."
    ((path, tree),) = _trees(module, one=text).items()
    expected = [f"arguments: kafkalog.imagined.one:Wide takes {count}"] if is_refused else []
    assert expected == list(module.function_problems(path, tree, set()))


@pytest.mark.parametrize(
    ("back", "is_refused"),
    [
        ("from kafkalog.imagined import one", True),
        ("from . import one", True),
        ("if TYPE_CHECKING:\n    from kafkalog.imagined.one import One", True),
        ("from kafkalog.imagined import three", False),
    ],
)
def test_structure_modules_that_import_each_other_are_refused(back: str, is_refused: bool) -> None:
    """By every import that is written in them, for type checking too."""
    module = _load("check_structure")
    trees = _trees(module, one="from kafkalog.imagined.two import Two", two=back, three="")
    expected = ["circle: kafkalog.imagined.one, kafkalog.imagined.two"] if is_refused else []
    assert expected == list(module.circles(trees))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("x" * 101, "columns"),
        ("\u00e9", "not ASCII"),
        ("path = '/home/" + "someone/x'", "path of somebody"),
        ("# TO" + "DO: later", "number of an issue"),
    ],
)
def test_tidy_line_with_a_broken_rule_is_refused(line: str, complaint: str) -> None:
    """Each rule about single lines is enforced."""
    found = list(_load("check_tidy").line_problems(Path("imagined.py"), [line]))
    assert len(found) == 1
    assert complaint in found[0][1]


def test_tidy_long_functions_are_refused() -> None:
    """In Python by the syntax tree, in Cython by indentation."""
    tidy = _load("check_tidy")
    body = "    x = 1\n" * 71
    python = list(tidy.python_problems(Path("imagined.py"), f'"""D."""\ndef f():\n{body}'))
    cython = ['"""D."""', "cdef int f(", "    int a,", ") noexcept nogil:", *body.splitlines()]
    assert ["f has 72 lines"] == [problem for _, problem in python]
    assert ["a function of 74 lines"] == [problem for _, problem in tidy.cython_problems(cython)]
    short = [*cython[:20], "cdef int g(int a):", "    return a"]
    assert list(tidy.cython_problems(short)) == []
    kin = ['"""D."""', "cdef class Long(Base):", *["    cdef int field"] * 90]
    assert list(tidy.cython_problems(kin)) == []


@pytest.mark.parametrize(
    ("name", "line", "is_refused"),
    [
        ("kafkalog/records/imagined.py", "from kafkalog import Record", True),
        ("kafkalog/records/imagined.py", "    import kafkalog", True),
        ("kafkalog/records/imagined.py", "from kafkalog.config import LogConfig", False),
        ("kafkalog/cli/imagined.py", "from kafkalog import Record", False),
        ("tests/imagined.py", "from kafkalog import Record", False),
    ],
)
def test_tidy_import_of_the_whole_package_is_refused_within_it(
    name: str, line: str, *, is_refused: bool
) -> None:
    """The layer check cannot tell such an import from one of a Cython module."""
    tidy = _load("check_tidy")
    assert is_refused == bool(list(tidy.line_problems(tidy.ROOT / name, [line])))


def test_docs_fragments_follow_from_headings(tmp_path: Path) -> None:
    """Headings become anchors as on the usual hosts; fenced blocks are not read."""
    docs = _load("check_docs")
    page = tmp_path / "page.md"
    page.write_text("# The `name`, byte by byte\n```text\n# no heading\n```\n## Two\n")
    assert {"the-name-byte-by-byte", "two"} == docs.anchors(page)
