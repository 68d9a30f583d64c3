"""Where Python looks for a script's modules: the folders around it, and those that the project puts on `sys.path`."""

from __future__ import annotations

import ast
import os
import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from accelify import looked_at
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
_ABSOLUTE = frozenset({"abspath", "realpath", "resolve", "absolute"})
# Attributes of a path itself, not of the module in front of it.
_METHODS = frozenset({"resolve", "absolute", "as_posix", "joinpath"})
_JOINING = frozenset({"join", "joinpath", "Path", "PurePath", "str", "normpath", "as_posix"})
_WORDS = {"sep": os.sep, "pardir": os.pardir, "curdir": os.curdir}
_FARTHEST = 12


# Paths computed from `__file__`, as `os.path.join(os.path.dirname(__file__), "lib")`, without running the code.


class _ComputedPaths(NamedTuple):
    """The paths that the expressions of one file evaluate to, where it is at a path and is run in a folder.

    `assigned` are the assignments to its names, in order; `bound` what a call or a loop gives to those in it.
    """

    file: str
    folder: str
    assigned: Mapping[str, list[ast.Assign]]
    bound: Mapping[str, ast.expr]

    def place(self, node: ast.expr) -> str | None:
        """The path that an expression evaluates to, None where it is not known."""
        text = self._text(node)
        return None if text is None else os.path.normpath(os.path.join(self.folder, text))

    def _text(self, node: ast.expr, far: int = 0) -> str | None:
        if far > _FARTHEST:
            return None
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            return self._named(node, far)
        if isinstance(node, ast.BinOp):
            return self._joint(node, far)
        if isinstance(node, ast.JoinedStr):
            parts = [v.value if isinstance(v, ast.FormattedValue) else v for v in node.values]
            texts = self._texts(parts, far)
            return None if texts is None else "".join(texts)
        if isinstance(node, ast.Attribute):
            outer = self._text(node.value, far + 1) if node.attr == "parent" else None
            return os.path.dirname(outer) if outer is not None else _WORDS.get(node.attr)
        if isinstance(node, ast.Subscript):
            return self._part(node, far)
        return self._called(node, far) if isinstance(node, ast.Call) else None

    def _texts(self, nodes: list[ast.expr], far: int) -> list[str] | None:
        """The path for each of some expressions, None where one is not known."""
        found = [self._text(node, far + 1) for node in nodes]
        known = [text for text in found if text is not None]
        return known if len(known) == len(found) else None

    def _named(self, name: ast.Name, far: int) -> str | None:
        """What a name was last assigned in front of the line where it is, which may assign it again."""
        if name.id == "__file__":
            return self.file
        if name.id in self.bound:
            return self._text(self.bound[name.id], far + 1)
        made = self.assigned.get(name.id, [])
        before = [one for one in made if (one.end_lineno or one.lineno) < name.lineno]
        meant = (before or made)[-1:]
        return self._text(meant[0].value, far + 1) if meant else None

    def _joint(self, node: ast.BinOp, far: int) -> str | None:
        """`a + b`, `a / b` of paths, and `"%s/lib" % a`."""
        right = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        texts = self._texts([node.left, *right], far)
        if texts is None:
            return None
        if isinstance(node.op, ast.Mod):
            return (
                texts[0] % tuple(texts[1:])
                if texts[0].count("%") == texts[0].count("%s") == len(right)
                else None
            )
        if isinstance(node.op, ast.Div):
            return os.path.join(*texts)
        return "".join(texts) if isinstance(node.op, ast.Add) else None

    def _part(self, node: ast.Subscript, far: int) -> str | None:
        """`path.parents[1]`, `os.path.split(path)[0]` and `sys.path[0]`, which is the script's folder."""
        index = getattr(node.slice, "value", None)
        if index not in (0, 1, 2, 3):
            return None
        whole = node.value
        if dotted(whole) == "sys.path":
            return os.path.dirname(self.file) if index == 0 else None
        if isinstance(whole, ast.Attribute) and whole.attr == "parents":
            text = self._text(whole.value, far + 1)
            for _ in range(index + 1):
                text = None if text is None else os.path.dirname(text)
            return text
        if isinstance(whole, ast.Call) and (dotted(whole.func) or "").endswith("path.split") and whole.args:
            text = self._text(whole.args[0], far + 1)
            return None if text is None or index > 1 else os.path.split(text)[index]
        return None

    def _called(self, call: ast.Call, far: int) -> str | None:
        """What a call of `os.path` or `pathlib` makes of paths."""
        name = str(getattr(call.func, "attr", getattr(call.func, "id", "")))
        if name in ("getcwd", "cwd"):
            return self.folder
        if name in ("getfile", "getsourcefile"):
            return self.file  # of the frame in which it is called
        own = [call.func.value] if isinstance(call.func, ast.Attribute) and name in _METHODS else []
        if any(isinstance(arg, ast.Starred) for arg in call.args):
            return None
        texts = self._texts([*own, *call.args], far)
        if not texts or isinstance(getattr(call.func, "value", None), ast.Constant):  # `", ".join(...)`
            return None
        if name in _ABSOLUTE:
            return os.path.normpath(os.path.join(self.folder, texts[0]))
        if name == "dirname":
            return os.path.dirname(texts[0])
        return os.path.join(*texts) if name in _JOINING else None


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
    while looked_at.exists(top / "__init__.py") and top.parent != top:
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
        return list(dict.fromkeys([folder, top, outermost]))
    # A script in `tools/` or `examples/vision/` imports from the project's root.
    roots = up_to_top(folder)
    return [*roots, *(root / "src" for root in roots if looked_at.is_folder(root / "src"))]


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
    return any(looked_at.exists(folder / name) for name in _TOP_OF_PROJECT)


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
        place for place in places if place != top and place.is_relative_to(top) and looked_at.is_folder(place)
    ]


def _added_by(path: Path, text: str, workplaces: list[Path]) -> list[Path]:
    """The folders that one file puts on `sys.path`, started in the first of some folders that makes one of it."""
    if _WORD not in text:
        return []
    names, puts = _puts(text)
    found: list[Path] = []
    for place, bound in puts:
        stated = (_ComputedPaths(str(path), str(folder), names, bound).place(place) for folder in workplaces)
        there = (Path(one).resolve() for one in stated if one is not None and looked_at.is_folder(one))
        found += islice(there, 1)
    return [*found, *_written_out(workplaces[0], text)]


def _written_out(folder: Path, text: str) -> Iterator[Path]:
    """The folders that the texts in a line name, whatever they are joined to."""
    for line in _LINES.findall(text):
        parts = [one or other for one, other in _STRING.findall(line)]
        if parts and looked_at.is_folder(place := folder.joinpath(*parts)):
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
            if looked_at.is_file(candidate):
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
