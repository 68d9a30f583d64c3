"""Where Python looks for a script's modules: the folders around it, and those that the project puts on `sys.path`."""

from __future__ import annotations

import ast
import os
import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path

from accelify import files_read
from accelify.analysis.modules.computed_paths import ComputedPaths
from accelify.analysis.syntax import dotted, names_in, walk

# How far up a project's root is looked for, and the files by which it is recognised.
_MOST_ROOTS = 4
_TOP_OF_PROJECT = (".git", "setup.py", "pyproject.toml")
_WORD = "sys.path"
_LINES = re.compile(r"(?:sys\.path\.\w+|join|Path)\((.*)\)")
_STRING = re.compile(r"'([^'\n]*)'|\"([^\"\n]*)\"")
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+([\w, \t]*)|import[ \t]+([\w., \t]+))", re.MULTILINE
)


_PYTHON = Path(sysconfig.get_path("stdlib")).resolve()
_INSTALLED = frozenset({"site-packages", "dist-packages"})


@lru_cache(maxsize=1024)
def is_of_python(folder: Path) -> bool:
    """Whether a folder is one of Python's standard library, which is no project: what is there is known by name."""
    return folder.is_relative_to(_PYTHON) and not _INSTALLED.intersection(
        folder.relative_to(_PYTHON).parts[:1]
    )


def roots_of(path: Path) -> list[Path]:
    """The folders in which a script's imports from its project are found: its own folder first."""
    folder = path.resolve().parent
    top, marked = folder, []
    while files_read.exists(top / "__init__.py") and top.parent != top:
        # A project's folder that is a package, too: modules of it are run by `python -m` from there.
        if top != folder and _is_top(top):
            marked.append(top)
        top = top.parent
    if top != folder:
        # The package may be in a folder that needs no `__init__.py` to be one: `experiments/cars/train.py`.
        above = up_to_top(top)
        if marked or _is_top(above[-1]):
            return [folder, *(marked or above), *([top] if marked else [])]
        # Nothing says where the project begins: it may be a package itself, run from within.
        outermost = next(one for one in (folder, *folder.parents) if one.parent == top)
        # A script that says how the folder around is called is run from the one above.
        named = [top.parent] if _imports(path, top.name) else []
        return list(dict.fromkeys([folder, top, outermost, *named]))
    # A script in `tools/` or `examples/vision/` imports from the project's root.
    roots = up_to_top(folder)
    return [*roots, *(root / "src" for root in roots if files_read.is_folder(root / "src"))]


def _imports(path: Path, name: str) -> bool:
    """Whether a script imports a package by its whole name, or something of it."""
    data = files_read.read(path) if files_read.is_file(path) else None
    text = (data or b"").decode("utf-8", "replace")
    found = ([base] if base else plain.split(",") for base, _, plain in _IMPORT.findall(text))
    return any(one.strip().partition(".")[0] == name for ones in found for one in ones)


def up_to_top(folder: Path) -> list[Path]:
    """A folder and those around it, up to the project's root or as far as one is looked for."""
    found = [folder]
    while len(found) < _MOST_ROOTS and found[-1].parent != found[-1] and not _is_top(found[-1]):
        found.append(found[-1].parent)
    return found


# What carries the training itself is always the library.
_ENGINES = frozenset({"accelerate", "accelify", "deepspeed", "torch"})
# Libraries are known by name; their source is not needed for a script's roles. A script's own folder comes before them.
NEVER_FOLLOWED = _ENGINES | {"torchvision", "numpy", "matplotlib", "transformers"}
# What scripts import most, and no project has a module in place of.
_LIBRARIES = NEVER_FOLLOWED | frozenset("argparse math os random sys time tqdm".split())


def top_of_project(folder: Path) -> Path | None:
    """The nearest folder around one, or itself, with the marks of a project's root; None where there is none."""
    around = [folder, *folder.parents]
    return next((one for one in around if _is_top(one)), None)


def _is_top(folder: Path) -> bool:
    return any(files_read.exists(folder / name) for name in _TOP_OF_PROJECT)


def added_roots(path: Path, text: str, roots: list[Path], read: Callable[[Path], str | None]) -> list[Path]:
    """Folders that a script puts on its `sys.path`, itself or in modules of the project that it imports, followed by
    those of PYTHONPATH.

    Args:
        path: where the script is.
        text: what is in it.
        roots: the folders around it in which its modules are looked for.
        read: how to read a file.
    """
    path = path.resolve()
    found = _added_by(path, text, roots)
    for module in _imported(path, text, roots):
        if (other := read(module)) is not None:
            found += _added_by(module, other, [path.parent, *roots])
    return list(dict.fromkeys([*found, *_python_path_folders(path.parent)]))


def _python_path_folders(folder: Path) -> list[Path]:
    """The folders of PYTHONPATH that are in the project around a folder: others are not part of it."""
    stated = os.environ.get("PYTHONPATH", "")
    top = top_of_project(folder) if stated else None
    if top is None:
        return []
    places = [Path(one).resolve() for one in stated.split(os.pathsep) if one]
    return [
        place
        for place in places
        if place != top and place.is_relative_to(top) and files_read.is_folder(place)
    ]


def _added_by(path: Path, text: str, workplaces: list[Path]) -> list[Path]:
    """The folders that one file puts on `sys.path`, started in the first of some folders that makes one of it."""
    if _WORD not in text:
        return []
    names, puts = _puts(text)
    found: list[Path] = []
    for place, bound in puts:
        stated = (ComputedPaths(str(path), str(folder), names, bound).place(place) for folder in workplaces)
        there = (Path(one).resolve() for one in stated if one is not None and files_read.is_folder(one))
        found += islice(there, 1)
    return [*found, *_written_out(workplaces[0], text)]


def _written_out(folder: Path, text: str) -> Iterator[Path]:
    """The folders that the texts in a line name, whatever they are joined to."""
    for line in _LINES.findall(text):
        parts = [one or other for one, other in _STRING.findall(line)]
        if parts and files_read.is_folder(place := folder.joinpath(*parts)):
            yield place.resolve()


def _imported(path: Path, text: str, roots: list[Path]) -> Iterator[Path]:
    """The files of the project that a script's imports name, packages by their `__init__.py`."""
    for base, names, plain in _IMPORT.findall(text):
        targets = [base, *(f"{base}.{name}" for name in names.split(","))] if base else plain.split(",")
        for target in targets:
            words = target.split(" as ")[0].replace(" ", "").replace("\t", "")
            dots = len(words) - len(words.lstrip("."))
            parts = [part for part in words.split(".") if part]
            around = [path.parents[dots - 1]] if 0 < dots <= len(path.parents) else roots
            if parts and (dots or parts[0] not in _LIBRARIES):
                found = module_file(parts, around)
                if found is not None:
                    yield found.resolve()


def module_file(parts: Sequence[str], roots: Iterable[Path]) -> Path | None:
    """The file of a module, from the first of some folders that has it.

    As Python does it: of a package and a file of one name in one folder, the package, which is its `__init__.py`.
    What has the name of a library is looked for in the first folder alone, that of the script, and what has that of
    torch or of an engine not at all.

    Args:
        parts: the words of its dotted name.
        roots: the folders in which names are looked for.
    """
    if parts and parts[0] in NEVER_FOLLOWED:
        roots = islice(roots, int(parts[0] not in _ENGINES))
    # Most names are libraries', and none of the folders has them: text is asked for in a quarter of a Path's time.
    tail = os.sep.join(parts)
    for root in roots:
        if is_of_python(root):
            continue
        base = f"{root}{os.sep}{tail}" if tail else str(root)
        for candidate in (f"{base}{os.sep}__init__.py", f"{base}.py"):
            if files_read.is_file(candidate):
                return Path(candidate)
    return None


# A place that is put on `sys.path`, and what names in it represent that only a loop or a call around it gives.
_Puts = list[tuple[ast.expr, dict[str, ast.expr]]]


@lru_cache(maxsize=64)
def _puts(text: str) -> tuple[dict[str, list[ast.Assign]], _Puts]:
    """The assignments of a file by name, and what it puts on `sys.path`, in the order of the search."""
    try:
        nodes = walk(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return {}, []
    assigned: dict[str, list[ast.Assign]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(node)
    front: _Puts = []
    afterwards: _Puts = []
    for node in nodes:
        for place, first in _put_by(node):
            bound = _bound(place, nodes)
            if first:
                front[:0] = reversed(bound)
            else:
                afterwards += bound
    return assigned, [*front, *afterwards]


def _put_by(node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """What one call or assignment puts on `sys.path`, and whether in front of what is there."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        method = node.func.attr if dotted(node.func.value) == _WORD else ""
        if method == "append" and len(node.args) == 1:
            yield node.args[0], False
        elif method == "insert" and len(node.args) == 2:
            yield node.args[1], True
        elif method == "extend" and len(node.args) == 1:
            yield from ((one, False) for one in getattr(node.args[0], "elts", []))
    elif isinstance(node, ast.AugAssign) and dotted(node.target) == _WORD:
        yield from ((one, False) for one in getattr(node.value, "elts", []))
    elif isinstance(node, ast.Assign) and dotted(node.targets[0]) == _WORD:
        parts = [node.value.left, node.value.right] if isinstance(node.value, ast.BinOp) else [node.value]
        yield from ((one, True) for part in parts for one in getattr(part, "elts", []))


def _bound(place: ast.expr, nodes: list[ast.AST]) -> _Puts:
    """A place for each turn of a loop, or each call of a function, that gives a name in it; else the place alone."""
    names = names_in(place)
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and names & {a.arg for a in node.args.args}:
            if place in walk(node):
                calls = [n for n in nodes if isinstance(n, ast.Call) and dotted(n.func) == node.name]
                return [
                    (place, {a.arg: one for a, one in zip(node.args.args, c.args, strict=False)})
                    for c in calls
                ]
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id in names:
            if place in walk(node):
                return [(place, {node.target.id: one}) for one in getattr(node.iter, "elts", [])]
    return [(place, {})]
