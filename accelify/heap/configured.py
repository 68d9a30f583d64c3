"""Objects that a configuration names: `hydra.utils.instantiate(cfg.trainer)`, by the `_target_` of its files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelify import files_read
from accelify.heap.parameters import SPREAD
from accelify.heap.values import Class, Function, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

_MAKING = frozenset({"hydra.utils.instantiate", "hydra.utils.call"})
# What runs a script in a folder that the configuration names: by default one by the time at which it is started.
FRAME = "hydra.main"
_RUN_FOLDER, _TIMED = ("hydra", "run", "dir"), re.compile(r"\$\{(?:now|hydra\.job\.id)\b")
_OPTIONS = frozenset({"_recursive_", "_convert_"})
_FOLDER = re.compile(r"\bconfig_path\s*=\s*[\"']([^\"']+)[\"']")
_LINE = re.compile(r"^(\s*)([\w-]+):\s*[\"']?([^\s#\"']*)")
# `- model: small` or `- override /model: small`, in a list of defaults.
_DEFAULT = re.compile(r"^\s*-\s+(?:override\s+)?/?([\w/]+)(?:@\S+)?:\s*([\w.-]+)", re.MULTILINE)
_MOST, _LARGEST = 300, 100_000


def configured(
    engine: Interpreter, name: str, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> Value | None:
    """The object of a class of the project that an entry of the configuration names; None for any other.

    What the configuration says of its arguments is not known.
    """
    if name not in _MAKING or not args or not isinstance(node, ast.Call) or not node.args:
        return None
    targets = _targets(engine, _entry(node.args[0]))
    if len(targets) != 1 or "_partial_" in keywords:
        return None  # a run chooses one of several
    module, _, word = targets.pop().rpartition(".")
    made = engine.modules.named(module, word)
    if made is None or not (made.of(Class) or made.of(Function)):
        return None
    written = {key: value for key, value in keywords.items() if key not in _OPTIONS}
    return engine.calls.call(made, args[1:], {SPREAD: Value(), **written}, node)


def is_in_one_folder(engine: Interpreter) -> bool:
    """Whether the files of the configuration name the folder of a run, and each one without the time: all processes
    have the same one."""
    root = engine.modules.folder
    folders = [root, *(root / one for one in _folders(engine))]
    named = {
        path
        for folder in dict.fromkeys(folders)
        for place, _, text in _files(folder)
        for keys, path in _entries(text)
        if (*place, *keys)[-len(_RUN_FOLDER) :] == _RUN_FOLDER
    }
    return bool(named) and not any(_TIMED.search(path) for path in named)


def _folders(engine: Interpreter) -> list[Path]:
    """The folders of configurations that decorators name."""
    named = [
        Path(module.path).parent / path
        for module in engine.run.modules
        for path in _FOLDER.findall(module.text)
    ]
    return list(dict.fromkeys(named))


def _entry(node: ast.expr) -> tuple[str, ...]:
    """The keys of `cfg.trainer.loss` or `cfg["trainer"]["loss"]`, from the outermost; none of another expression."""
    keys: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            keys.append(node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            keys.append(str(node.slice.value))
        else:
            return ()
        node = node.value
    return tuple(reversed(keys))


def _targets(engine: Interpreter, entry: tuple[str, ...]) -> set[str]:
    """What the project's files name at an entry, by their lists of defaults where one of these chooses among them."""
    found: list[tuple[tuple[str, ...], str]] = []
    chosen: set[tuple[str, ...]] = set()
    for folder in _folders(engine) if entry else ():
        for place, file, text in _files(engine.modules.folder / folder):
            chosen |= {(*place, *group.split("/"), choice) for group, choice in _DEFAULT.findall(text)}
            for keys, target in _named(text):
                if (*place, *keys)[-len(entry) :] == entry:
                    found.append(((*place, file), target))
    return {target for file, target in found if file in chosen} or {target for _, target in found}


def _files(folder: Path) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """The configuration's files: the keys under which each is put, which are its folders, its name and its text."""
    left: list[tuple[str, ...]] = [()]
    files = 0
    for place in left:
        try:
            folders, names = files_read.names_in(folder.joinpath(*place), _MOST, files_read.COMMANDS)
        except OSError:
            continue
        left += [(*place, one) for one in folders[: max(_MOST - len(left), 0)]]
        for name in names:
            stem, _, ending = name.rpartition(".")
            files += 1
            if ending not in ("yaml", "yml") or files > _MOST:
                continue
            try:
                data = files_read.read(folder.joinpath(*place, name), _LARGEST)
            except OSError:
                continue
            yield place, stem, (data or b"").decode("utf-8", "replace")


def _named(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The classes that a file names, each with the keys above it."""
    return ((keys[:-1], value) for keys, value in _entries(text) if keys[-1] == "_target_")


def _entries(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """What a file sets, each with its keys from the outermost."""
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        indent, key, value = len(found[1]), found[2], found[3]
        while above and above[-1][0] >= indent:
            above.pop()
        above.append((indent, key))
        yield tuple(name for _, name in above), value
