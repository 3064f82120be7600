"""Fail if a class, a constructor or an import breaks a rule of structure.

  * subclass: no class of the project has exactly one subclass in the project. Errors, protocols and
    the classes of `SINGLE_SUBCLASS_ALLOWED` are exempt.
  * name: no public class name occurs twice in the package.
  * assignment: no function assigns or deletes an attribute of anything but `self` or `cls`, or of
    an object that it returns; `self.a.b = ...` and `setattr` are refused as well. Nor does it
    change a list, dictionary or set that is an attribute of another object, unless it made that
    object: `other.names.append(...)`, `other.names[key] = ...`, `del other.names[key]`.
  * arguments: no constructor takes more than seven arguments besides `self`.
  * circle: no modules import each other in a circle, for type checking neither.
  * state: no Cython module has a `global` statement, or at its top level a variable in lower case,
    an empty or changed container, or an array; no C source has a variable that is not `const`. The
    variables of `STATE_ALLOWED` are exempt.
  * format: no number of a format outside of the modules that define it: in Python a big-endian
    `struct` or NumPy type, or `int.from_bytes(data[8:12])` with a literal bound; in Cython a
    comparison with a codec as a bound.
  * parts: only the packages of `PARTS_USERS` import what leads from a log to its parts.
  * walk: no `while` loop goes from batch to batch by a function of `WALK_STEPS`, but in the
    functions of `WALKS`. All others use `walk_source`, or `walk_memory` for bytes in memory.

`ci/structure-allowed.txt` lists the violations that are left, a line each. It may only shrink: an
entry that is no violation any more fails, too. Usage: `python ci/check_structure.py`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kafkalog"
ALLOWED = ROOT / "ci" / "structure-allowed.txt"
ARGUMENTS_MAX = 7
# At most two classes, each with its reason.
SINGLE_SUBCLASS_ALLOWED = {
    "KafkaLogReader": "Spark checks which methods a reader has",
}
PARTS_USERS = ("log", "cleaner", "manager", "spark")
PARTS = {"kafkalog.log.log.partition_of", "kafkalog.log.cleaner_access.cleaner_access"}
# Functions that may change another object, each with its reason.
FOREIGN_ALLOWED = {
    "kafkalog.settings:check_config": "`__post_init__` of every frozen class of settings calls it",
}
# Types of attributes that only their owner changes, and the methods that change them.
CONTAINERS = {"Counter", "OrderedDict", "bytearray", "defaultdict", "deque", "dict", "list", "set"}
MUTATORS = {
    *("add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "insert"),
    *("intersection_update", "pop", "popitem", "popleft", "remove", "reverse", "setdefault"),
    *("sort", "subtract", "symmetric_difference_update", "update"),
}
WALK_STEPS = {
    *("scan_batches", "walk_batches", "parse_header", "read_header", "read_whole_header"),
    *("next_header", "walk_headers"),
}
# Functions that go from batch to batch themselves, each with its reason.
WALKS = {
    "records.memory_walk:walk_memory": "the walk over memory",
    "log.judging:collect": "the judgement, which the walk asks for",
    "log.judging:end_of_images": "batches within damage, which no walk reaches",
    "log.index_lookup:walk_headers": "finds one batch with a fifth of the instructions",
    "spark.plan.log_files:_batches_as_late": "each step finds one batch by `walk_headers`",
    "spark.plan.size_estimator:_batch_end": "finds one batch, in windows that grow",
    "log.ingest:_walk_heads": "batches without offsets of a log; each is taken or refused",
    "log.loader:_has_first_batch": "compares the headers of two files after a crash",
    "records.validation.follower:_run_of_any": "each batch is refused with its own error",
    "records.validation.leader:run": "each batch has limits of its own, and may be replaced",
    "records.validation.old_formats:_rewrite": "batches that the loop itself encodes",
}
CYTHON_CLASS = re.compile(r"^cdef class (\w+)(?:\(([\w., ]+)\))?:", re.MULTILINE)
CYTHON_STATE = re.compile(
    r"^\s+global (\w+)"
    r"|^cdef (?!class |struct |enum|extern |packed |union |inline )"
    r"[^(=:\n]*?\b(_*[a-z]\w*)\s*(?:=|$)"
    r"|^(_?[a-z]\w*)\s*(?::[^=\n]+)?=[^=]",
    re.MULTILINE,
)
# Containers at the top level: typed, empty, or a list; and changes of one in capitals.
CYTHON_CONTAINER = re.compile(
    r"^cdef (?:dict|list|set|bytearray) (\w+)\s*(?:=|$)"
    r"|^cdef (?!const )\w[\w ]*?\b(\w+)(?:\[\w+\])+\s*(?:=|$)"
    r"|^(?!__all__)(\w+)\s*(?::[^=\n]+)?=\s*(?:\{\s*\}|\[|(?:dict|list|set|bytearray)\()"
    r"|^\s+(?:del )?(_?[A-Z][A-Z0-9_]*)\[[^\n=]*\]\s*[-+|&]?=[^=]"
    rf"|^\s+(_?[A-Z][A-Z0-9_]*)\.(?:{'|'.join(sorted(MUTATORS))})\(",
    re.MULTILINE,
)
_KERNEL_TABLE = "computed or selected once, when the module is imported; only read afterwards"
# Variables of C sources of `_core`, by source, each with its reason.
STATE_ALLOWED = {
    "crc_kernels": ("kernels slices folds", _KERNEL_TABLE),
    "crc32_hw": ("power_95 power_63", _KERNEL_TABLE),
    "crc32c_hw": (
        "of_run long_once long_twice short_once short_twice stream_once stream_twice",
        _KERNEL_TABLE,
    ),
    "key_hash_hw": ("md5_kernels", _KERNEL_TABLE),
    "mapping_guard": (
        "first_block page_size previous original passing_thread kafkalog_guard_losses",
        "the guarded mappings: a signal handler needs them, and gets no argument of ours",
    ),
}
C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)+'", re.DOTALL)
C_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
C_QUALIFIER = re.compile(r"\b_Atomic\([^()]*\)|__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")
C_LOCAL_STATIC = re.compile(r"[{};]\s*static\s+(?!const\b)([^;={]+)")
C_VARIABLE = re.compile(r"\(\*\s*(\w+)|(\w+)\s*(?:\[[^\]]*\]\s*)*$")
# A `struct` format or a NumPy type, big-endian, of one field or more.
BIG_ENDIAN = re.compile(r"[>!](?:\d*[?bBcdefhHiIlLnNpqQsuxX])+\d*")
CODEC_BOUND = re.compile(r"[<>]=?\s*CODEC_(?!MASK)\w+|CODEC_(?!MASK)\w+\s*[<>]")
# Modules and packages that define a format.
FORMATS = (
    *("layout", "indexes.transaction_index", "state", "fetch", "log.conversion.digest"),
    "records.control",
    "_core.codec",
)
DOCSTRING = re.compile(r'""".*?"""', re.DOTALL)

Trees = Mapping[Path, ast.Module]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def nodes_of(tree: ast.Module) -> list[ast.AST]:
    """Return all nodes of a module: each rule reads them."""
    return list(ast.walk(tree))


def classes(trees: Trees) -> Iterator[tuple[str, str, list[str]]]:
    """Yield module, name and bases of each class, compiled ones too."""
    for path, tree in trees.items():
        for node in nodes_of(tree):
            if isinstance(node, ast.ClassDef):
                bases = (
                    each.value if isinstance(each, ast.Subscript) else each for each in node.bases
                )
                yield (
                    module_of(path),
                    node.name,
                    [ast.unparse(each).rpartition(".")[2] for each in bases],
                )
    for path in sorted(PACKAGE.rglob("*.pyx")):
        for match in CYTHON_CLASS.finditer(path.read_text()):
            yield module_of(path), match[1], [each.strip() for each in (match[2] or "").split(",")]


def module_of(path: Path) -> str:
    """Return the dotted name of a module."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def class_problems(trees: Trees) -> Iterator[str]:
    """Yield single subclasses, and public names that occur twice."""
    children = defaultdict[str, set[tuple[str, str]]](set)
    modules = defaultdict[str, list[str]](list)
    exempt = set(SINGLE_SUBCLASS_ALLOWED)
    for module, name, bases in classes(trees):
        modules[name].append(module)
        if module == "kafkalog.errors" or "Protocol" in bases:
            exempt.add(name)
        for base in bases:
            children[base].add((module, name))
    for base, found in sorted(children.items()):
        if base in modules and base not in exempt and len(found) == 1:
            yield f"subclass: {base} has only {next(iter(found))[1]}"
    for name, places in sorted(modules.items()):
        if len(places) > 1 and not name.startswith("_"):
            yield f"name: {name} in {', '.join(sorted(places))}"


def container_attributes(trees: Trees) -> set[str]:
    """
    Return the names of attributes that some class of the package makes a container.

    A name that is elsewhere an object of a class with such methods is left out.
    """
    nodes = [node for tree in trees.values() for node in nodes_of(tree)]
    owners = {
        each.name
        for each in nodes
        if isinstance(each, ast.ClassDef)
        and any(isinstance(part, ast.FunctionDef) and part.name in MUTATORS for part in each.body)
    }
    containers, others = set[str](), set[str]()
    for name, kind in (attribute for node in nodes for attribute in _attributes(node)):
        (containers if kind in CONTAINERS else others if kind in owners else set()).add(name)
    return containers - others


def _attributes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the attributes that a class or an assignment declares, with their types."""
    if isinstance(node, ast.ClassDef):
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield each.target.id, _head(each.annotation)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
        yield node.target.attr, _head(node.annotation)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                yield target.attr, _made_type(node.value)


def _head(node: ast.expr) -> str:
    """Return the last name of an expression without its subscripts: `list` of `list[int]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _made_type(value: ast.expr) -> str:
    """Return the type of what an expression makes, empty if its form does not show it."""
    if isinstance(value, ast.Call):
        return _head(value.func)
    kinds = {ast.List: "list", ast.ListComp: "list", ast.Dict: "dict", ast.DictComp: "dict"}
    return {**kinds, ast.Set: "set", ast.SetComp: "set"}.get(type(value), "")


def function_problems(path: Path, tree: ast.Module, containers: AbstractSet[str]) -> Iterator[str]:
    """Yield changes of attributes of other objects, and constructors with many arguments."""
    for node in nodes_of(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if node.name == "__init__" and len(names) - 1 > ARGUMENTS_MAX:
            yield f"arguments: {module_of(path)}:{enclosing(tree, node)} takes {len(names) - 1}"
        name = f"{module_of(path)}:{node.name}"
        for change in foreign_changes(node, containers):
            yield f"assignment: {name} {change}"


def foreign_changes(function: Function, containers: AbstractSet[str]) -> Iterator[str]:
    """Yield what a function changes of other objects: attributes, and containers in them."""
    nodes = list(ast.walk(function))
    own = {"self", "cls"} | {
        each.value.id
        for each in nodes
        if isinstance(each, ast.Return) and isinstance(each.value, ast.Name)
    }
    taken = {each.arg for each in nodes if isinstance(each, ast.arg)}
    own -= taken - {"self", "cls"}
    made = own | _made_names(nodes)
    for each in nodes:
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store | ast.Del):
            changed, free = each.value, own
        elif (owner := _changed_owner(each, containers)) is not None:
            changed, free = owner, made
        else:
            continue
        if not (isinstance(changed, ast.Name) and changed.id in free):
            yield ast.unparse(each)


def _made_names(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the local names of objects that are new: results of calls of classes."""
    found = set()
    for each in nodes:
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call):
            name = _head(each.value.func).lstrip("_")
            if name[:1].isupper():
                found |= {target.id for target in each.targets if isinstance(target, ast.Name)}
    return found


def _changed_owner(node: ast.AST, containers: AbstractSet[str]) -> ast.expr | None:
    """Return whose container, or attribute by `setattr`, a node changes; None if it does not."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        held = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in {"__setattr__", "__delattr__"}:
            return node.args[0] if _head(node.func.value) == "object" else None
        held = node.func.value if node.func.attr in MUTATORS else node
    elif isinstance(node, ast.Call) and _head(node.func) in {"setattr", "delattr"}:
        return node.args[0]
    else:
        return None
    while isinstance(held, ast.Subscript):
        held = held.value
    is_held = isinstance(held, ast.Attribute) and held.attr in containers
    return held.value if is_held and isinstance(held, ast.Attribute) else None


def enclosing(tree: ast.Module, function: ast.AST) -> str:
    """Return the name of the class that a method is in."""
    found = (each for each in nodes_of(tree) if isinstance(each, ast.ClassDef))
    return next((each.name for each in found if function in each.body), "")


def circles(trees: Trees) -> Iterator[str]:
    """Yield modules that import each other, by every import that is written in them."""
    modules = {module_of(path) for path in trees}
    uses = {module_of(path): imports(path, tree) & modules for path, tree in trees.items()}
    reached: dict[str, set[str]] = {}
    for module in uses:
        found, pending = set[str](), [module]
        while pending:
            new = uses.get(pending.pop(), set()) - found
            found |= new
            pending += new
        reached[module] = found
    for module in sorted(uses):
        circle = sorted(each for each in reached[module] if module in reached[each])
        if len(circle) > 1 and module == circle[0]:
            yield f"circle: {', '.join(circle)}"


def imports(path: Path, tree: ast.Module) -> set[str]:
    """Return the modules that the statements of a module name, but for the package's own page."""
    found = set()
    packages = path.relative_to(ROOT).parts[:-1]
    for node in nodes_of(tree):
        if isinstance(node, ast.ImportFrom):
            above = packages[: len(packages) - node.level + 1] if node.level else ()
            origin = ".".join([*above, *([node.module] if node.module else [])])
            found |= {origin, *(f"{origin}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found - {"kafkalog"}


def parts_problems(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield imports of the accessors of a log's parts by packages that have no use for parts."""
    module = module_of(path)
    if not module.startswith(tuple(f"kafkalog.{each}." for each in PARTS_USERS)):
        for name in sorted(imports(path, tree) & PARTS):
            yield f"parts: {module} {name.rpartition('.')[2]}"


def walk_problems(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield functions with a loop from batch to batch that are not listed, as `module:function`."""
    module = module_of(path).removeprefix("kafkalog.")
    for function in nodes_of(tree):
        if not isinstance(function, Function):
            continue
        calls = (
            call.func
            for loop in ast.walk(function)
            if isinstance(loop, ast.While)
            for call in ast.walk(loop)
            if isinstance(call, ast.Call)
        )
        if any(isinstance(each, ast.Name) and each.id in WALK_STEPS for each in calls):
            yield f"{module}:{function.name}"


def format_problems(path: Path, tree: ast.Module | None = None) -> Iterator[str]:
    """Yield numbers of a format in modules that do not define one; `tree` for Python alone."""
    module = module_of(path).removeprefix("kafkalog.")
    if not any(module == each or module.startswith(f"{each}.") for each in FORMATS):
        bounds = (match[0] for match in CODEC_BOUND.finditer(path.read_text()))
        for each in bounds if tree is None else python_numbers(tree):
            yield f"format: {module} {each.strip()}"


def python_numbers(tree: ast.Module) -> Iterator[str]:
    """Yield the big-endian types, and the literal slices that become a number, of a source."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if BIG_ENDIAN.fullmatch(node.value):
                yield node.value
        elif isinstance(node, ast.Call) and _head(node.func) == "from_bytes" and node.args:
            argument = node.args[0]
            if isinstance(argument, ast.Subscript) and isinstance(argument.slice, ast.Slice):
                bounds = (argument.slice.lower, argument.slice.upper)
                if any(isinstance(each, ast.Constant) for each in bounds):
                    yield ast.unparse(node)


def state_problems(path: Path) -> Iterator[str]:
    """Yield variables of a compiled module, or of a C source, that are no constants."""
    text = path.read_text()
    if path.suffix in {".c", ".h"}:
        names = c_variables(text)
    else:
        text = DOCSTRING.sub("", text)
        matches = [*CYTHON_STATE.finditer(text), *CYTHON_CONTAINER.finditer(text)]
        names = (match[match.lastindex or 0] for match in matches)
    for name in dict.fromkeys(names):
        yield f"state: {module_of(path)} {name}"


def c_variables(text: str) -> Iterator[str]:
    """Yield the variables of a C source that live as long as the process, and are not `const`."""
    text = C_QUALIFIER.sub(" ", C_DIRECTIVE.sub("", C_COMMENT.sub(" ", text)))
    outside, blocks = _without_blocks(text)
    for statement in outside.split(";"):
        head = statement.partition("=")[0].strip()
        words = set(re.findall(r"\w+", head))
        is_function = "(" in head and "(*" not in head
        is_type = head.endswith("}") or not words - {"struct", "union", "enum", "static"}
        if not (is_function or is_type or words & {"typedef", "extern", "const"}):
            yield from _declared(statement)
    for block in blocks:
        for match in C_LOCAL_STATIC.finditer(block):
            yield from _declared(match[1])


def _without_blocks(text: str) -> tuple[str, list[str]]:
    """Return a C source with `{}` for each block, the bodies of functions left out; and these."""
    outside, blocks, depth, start = "", list[str](), 0, 0
    for number, letter in enumerate(text):
        if letter == "{":
            if depth == 0:
                outside, start = outside + text[start:number], number
            depth += 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                blocks.append(text[start : number + 1])
                start = number + 1
                is_body = re.search(r"\)\s*$", outside) is not None
                outside += ";" if is_body else "{}"
    return outside + text[start:], blocks


def _declared(statement: str) -> Iterator[str]:
    """Yield the names that a declaration in C declares."""
    for part in re.sub(r"\{\}", " ", statement).split(","):
        match = C_VARIABLE.search(part.partition("=")[0].strip())
        if match is not None:
            yield match[1] or match[2]


def compiled_sources() -> Iterator[Path]:
    """Yield the sources of the compiled packages, without what Cython generates of them."""
    for suffix in ("pyx", "pxd", "c", "h"):
        for path in PACKAGE.rglob(f"*.{suffix}"):
            if suffix != "c" or not path.read_text().startswith("/* Generated by Cython"):
                yield path


def main() -> int:
    """Print what is new, and what is allowed in vain."""
    paths = sorted(PACKAGE.rglob("*.py"))
    trees = {path: ast.parse(path.read_text()) for path in paths}
    found = {*class_problems(trees), *circles(trees)}
    containers = container_attributes(trees)
    for path, tree in trees.items():
        found |= {*function_problems(path, tree, containers), *parts_problems(path, tree)}
        found |= set(format_problems(path, tree))
    changes = {each for each in found if each.startswith("assignment: ")}
    exempt_changes = {each for each in changes if each.split()[1] in FOREIGN_ALLOWED}
    without_change = set(FOREIGN_ALLOWED) - {each.split()[1] for each in exempt_changes}
    found -= exempt_changes
    found |= {f"exempt, and not there: {each}" for each in without_change}
    walks = {walk for path, tree in trees.items() for walk in walk_problems(path, tree)}
    found |= {f"walk: {each}" for each in walks - set(WALKS)}
    found |= {f"walk listed, and not there: {each}" for each in set(WALKS) - walks}
    compiled = list(compiled_sources())
    states = {problem for path in compiled for problem in state_problems(path)}
    exempt = {
        f"state: kafkalog._core.{source} {name}"
        for source, (names, _reason) in STATE_ALLOWED.items()
        for name in names.split()
    }
    found |= states - exempt | {f"exempt, and not there: {each}" for each in exempt - states}
    found |= {problem for path in compiled for problem in format_problems(path)}
    if sys.argv[1:] == ["--write"]:
        ALLOWED.write_text("".join(f"{each}\n" for each in sorted(found)))
        return 0
    allowed = set(ALLOWED.read_text().splitlines())
    for each in sorted(found - allowed):
        print(f"new: {each}")
    for each in sorted(allowed - found):
        print(f"allowed, and no longer so; remove it: {each}")
    print(f"{len(found)} violations, {len(allowed)} allowed")
    return 1 if found != allowed else 0


if __name__ == "__main__":
    sys.exit(main())
