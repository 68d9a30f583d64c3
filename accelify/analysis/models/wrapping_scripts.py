"""Scripts in the same folder that expect the saved weights to come out of a `DataParallel`.

They load weights into a wrapper, and expect `module.` in the names, cut it off without a test, or take a saved model
out of one (`.module`). Only scripts that import from the same modules are looked at, in the script's folder, and the
program's modules that are not converted. In the folders below, a script that loads weights also has to name the file;
if it names the folder, too, that is enough.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Set
from pathlib import Path

from accelify import looked_at
from accelify.analysis.models.cutting_scripts import cuts_names, may_cut
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, target_names, walk, walk_scope

_WRAPS = re.compile(rb"^[ \t]*([A-Za-z_][\w.]*)[ \t]*=[ \t]*(?:[\w.]*\.)?DataParallel\(", re.MULTILINE)
_IMPORTS = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([A-Za-z_][\w.]*)", re.MULTILINE)
# Who writes the prefix somewhere minds it, and so does who asks for it in a name.
_MINDS = re.compile(rb"""module\.['"]|['"]module['"]\s+(?:not\s+)?in\b|\.startswith\(['"]module['"]""")
# Who asks for the prefix before it cuts it off.
_ASKS = re.compile(rb"""['"]module\.?['"]\s+(?:not\s+)?in\b|\.startswith\(['"]module""")
# Who names the wrapper or asks for its part knows that a model may come without.
_KNOWS = re.compile(rb"""DataParallel|['"]module['"]|\.backward\(""")
_GIVING_BACK = frozenset({"eval", "train", "cpu", "cuda", "to", "float", "double", "half"})
# A file of weights in a path, with the folders in front of it where they are there.
_FILE = re.compile(rb"[^'\"{}%]*?([\w-][\w.-]*\.\w+)$")
_LARGEST = 1_000_000
_MOST = 300
_MOST_ENTRIES = 2_000
# How far below the script's folder, and where no scripts are that load what it saves.
_DEEPEST = 3
_NO_SCRIPTS = frozenset({"build", "dist", "node_modules", "site-packages", "venv", "tests", "docs"})

# Where in a file a model is: under a key of the dictionary, or None where it is all of the file.
Key = str | None


def loading_into_wrappers(script: ScriptModel, saved: Set[str] = frozenset()) -> Iterator[tuple[str, int]]:
    """The names of scripts that load weights into a wrapper, each with the line in which it does.

    Args:
        script: the script that saves.
        saved: what is in the paths of its files.
    """
    for path, data in [*_sharing(script, b"DataParallel("), *_below(script, b"DataParallel(", saved)]:
        if _MINDS.search(data) is not None:
            continue
        if b".backward(" in data and b".state_dict()" in data:
            continue  # it trains, and loads what it has saved itself
        for match in _WRAPS.finditer(data):
            loads = re.compile(rb"(?<![\w.])" + re.escape(match[1]) + rb"\.load_state_dict\(")
            found = loads.search(data, match.end())
            if found is not None:
                yield _shown(script, path), data.count(b"\n", 0, found.start()) + 1
                break


def cutting_names(script: ScriptModel, saved: Set[str] = frozenset()) -> Iterator[tuple[str, int]]:
    """The names of scripts that cut the `module.` off the names of weights unasked, each with the line of that.

    Args:
        script: the script that saves.
        saved: what is in the paths of its files.
    """
    word = b".load_state_dict("
    for path, data in [*_sharing(script, word), *_below(script, word, saved)]:
        if not may_cut(data) or _ASKS.search(data) is not None:
            continue
        if b".backward(" in data and b".state_dict()" in data:
            continue  # it trains, and loads what it has saved itself
        lines = list(cuts_names(data))
        if lines:
            yield _shown(script, path), min(lines)


def taking_out_of_wrappers(script: ScriptModel, keys: set[Key]) -> Iterator[tuple[str, int]]:
    """The names of files that read `.module` off a model out of a file, each with the first line of that.

    Args:
        script: the script that saves.
        keys: under which keys it saves the models.
    """
    for path, data in [*_sharing(script, b".module"), *_staying(script, b".module")]:
        if b"torch.load" not in data or _KNOWS.search(data) is not None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                module = ast.parse(data)
            except (SyntaxError, ValueError):
                continue
        lines = [node.lineno for key, node in taken_out(module) if key in keys]
        if lines:
            yield path.name, min(lines)


def taken_out(module: ast.Module) -> Iterator[tuple[Key, ast.Attribute]]:
    """What `.module` is read off a model out of a file, with the key under which that is there."""
    functions = [n for n in walk(module) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    known: dict[str, tuple[Key, ...]] = {}
    for body in [module.body, *[function.body for function in functions]]:
        nodes = list(walk_scope(body))
        bound = {
            n for node in nodes if isinstance(node, ast.Assign) for t in node.targets for n in target_names(t)
        }
        here = {name: keys for name, keys in known.items() if name not in bound}
        for node in sorted(
            (n for n in nodes if isinstance(n, (ast.Assign, ast.Attribute))),
            key=lambda n: (n.end_lineno or 0, n.end_col_offset or 0, isinstance(n, ast.Assign)),
        ):
            if isinstance(node, ast.Assign):
                keys = _place(node.value, here)
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        here.pop(target.id, None)
                        if keys is not None:
                            here[target.id] = keys
            elif node.attr == "module" and isinstance(node.ctx, ast.Load):
                keys = _place(node.value, here)
                if keys is not None and len(keys) <= 1:
                    yield (keys[0] if keys else None), node
        if body is module.body:
            known = here


def _place(node: ast.expr, known: dict[str, tuple[Key, ...]]) -> tuple[Key, ...] | None:
    """The keys that lead to an expression in a file that is loaded; None for what comes from elsewhere."""
    keys: list[Key] = []
    while True:
        if isinstance(node, ast.Subscript):
            if not isinstance(node.slice, ast.Constant) or not isinstance(node.slice.value, str):
                return None
            keys.insert(0, node.slice.value)
            node = node.value
        elif isinstance(node, ast.Call) and dotted(node.func) == "torch.load":
            return tuple(keys)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _GIVING_BACK
        ):
            node = node.func.value
        elif isinstance(node, ast.Name) and node.id in known:
            return (*known[node.id], *keys)
        else:
            return None


def _sharing(script: ScriptModel, word: bytes) -> Iterator[tuple[Path, bytes]]:
    """The scripts of the folder with some word that take something from modules of the program."""
    if script.path is None:
        return
    own, shared = _own_files(script), _shared_names(script)
    for path in _scripts_in(script.path.parent)[:_MOST]:
        data = b"" if path.resolve() in own else _read(path)
        if word in data and _takes_some(data, shared):
            yield path, data


def _below(script: ScriptModel, word: bytes, saved: Set[str]) -> Iterator[tuple[Path, bytes]]:
    """The scripts of the folders below with some word that name one of some files, and where it is or our modules."""
    found = [match for text in saved if (match := _FILE.search(text.encode())) is not None]
    files = {match[1]: match[0].lstrip(b"./") for match in found}
    if script.path is None or not files:
        return
    own, shared = _own_files(script), _shared_names(script)
    for path in _files_below(script.path.parent):
        data = b"" if path.resolve() in own else _read(path)
        if word not in data:
            continue
        named = [
            whole
            for name, whole in files.items()
            if re.search(rb"[/'\"]" + re.escape(name) + rb"['\"]", data)
        ]
        if any(b"/" in whole and whole in data for whole in named) or (named and _takes_some(data, shared)):
            yield path, data


def _files_below(top: Path) -> Iterator[Path]:
    """The Python files of the folders below one, nearest folders first, as many as are worth a look."""
    folders, seen, passed = [(top, 0)], 0, 0
    while folders and seen < _MOST and passed < _MOST:
        (folder, depth), passed = folders.pop(0), passed + 1
        try:
            inner, files = looked_at.names_in(folder, _MOST_ENTRIES)
        except OSError:
            continue
        if depth < _DEEPEST:
            further = (one for one in inner if not one.startswith((".", "_")) and one not in _NO_SCRIPTS)
            folders += [(folder / one, depth + 1) for one in further]
        for name in files if depth else ():
            if name.endswith(".py") and seen < _MOST:
                seen += 1
                yield folder / name


def _scripts_in(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in looked_at.names_in(folder)[1] if name.endswith(".py")]
    except OSError:
        return []


def _own_files(script: ScriptModel) -> set[Path]:
    files = [m.path for m in script.modules if m.path is not None]
    return {path.resolve() for path in [*files, *([script.path] if script.path is not None else [])]}


def _shared_names(script: ScriptModel) -> set[bytes]:
    shared = {name.encode() for name in script.program.modules if name != "__main__"}
    return shared | ({script.path.stem.encode()} if script.path is not None else set())


def _takes_some(data: bytes, shared: set[bytes]) -> bool:
    return not shared.isdisjoint(match[1] for match in _IMPORTS.finditer(data))


def _shown(script: ScriptModel, path: Path) -> str:
    """A file as it is named in messages: from the script's folder."""
    folder = script.path.parent if script.path is not None else path.parent
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def _staying(script: ScriptModel, word: bytes) -> Iterator[tuple[Path, bytes]]:
    """The program's modules that are not converted, out of other folders than the script's."""
    for module in script.program.modules.values():
        if module not in script.modules and module.path is not None and module.tree.mentions(word):
            if script.path is None or module.path.parent.resolve() != script.path.parent.resolve():
                yield module.path, module.tree.data


def _read(path: Path) -> bytes:
    try:
        return looked_at.read(path, _LARGEST) or b""
    except OSError:
        return b""


__all__ = [
    "Key",
    "cutting_names",
    "loading_into_wrappers",
    "taken_out",
    "taking_out_of_wrappers",
]
