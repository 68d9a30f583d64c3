"""Files that the main process writes and that functions which run later read, under any spelling of the path.

if not os.path.isdir(folder):
    with open(os.path.join(folder, "t.csv"), "w") as file: ...
rows = read()                               # open(folder + "/t.csv")
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from accelify.analysis.files.folders import path_text
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, text_of

Qualname = Callable[[Module, Scope, ast.expr], str | None]

# What a function that takes a file by its name is called, and what takes a stream in its place.
_READING = re.compile(r"^(open|load\w*|read\w*|genfromtxt|fromfile|File|imread|parse)$")
_STREAMS = frozenset("json.load pickle.load yaml.load yaml.safe_load csv.reader".split())
# What reads any file as text or bytes, as one that is opened and written is read.
_PLAIN = re.compile(
    r"^((builtins|io|codecs|gzip|bz2|lzma)\.)?open$|^pandas\.read_|^numpy\.(loadtxt|genfromtxt|fromfile)$"
)
_OF_PATHS = frozenset({"open", "read_text", "read_bytes"})


class _Read(NamedTuple):
    """A read of a file: its path, with braces for the unknown parts, and whether its content is text or bytes."""

    text: str
    plain: bool


class ReadLater:
    """Finds out whether files that are written at a place are read by code that runs after it.

    Args:
        script: its model.
        qualname: the name of a library's function that an expression of a module is.
    """

    def __init__(self, script: ScriptModel, qualname: Qualname) -> None:
        self.script = script
        self._qualname = qualname
        self._known: dict[Scope, list[tuple[ast.Call, _Read]]] = {}

    def is_read(self, place: ast.stmt, written: Iterable[ast.expr], untold: bool = False) -> bool:
        """Whether functions that run after a place read one of the files that are written there.

        Args:
            place: a statement.
            written: the paths of the files.
            untold: whether a file counts of which not even the name is known.
        """
        names = {path_text(self.script, path) for path in written}
        retained = {text for text in names if untold and not self._is_gone_on_with(text)}
        return any(
            any(_are_one(text, read.text) for text in names)
            or (read.plain and any(_may_be_one(text, read.text) for text in retained))
            for read in self._after(place)
        )

    def _is_gone_on_with(self, text: str) -> bool:
        """Whether a file is opened to go on with it: a log, and no data."""
        return any(
            text_of(mode).strip("'\"")[:1] == "a" and path_text(self.script, call.args[0]) == text
            for call in self.script.calls()
            if call.args and (mode := call_argument(call, 1, "mode")) is not None
            if isinstance(mode, ast.Constant) and getattr(call.func, "id", "") == "open"
        )

    def _after(self, place: ast.stmt) -> Iterator[_Read]:
        """The reads of the functions that run after a place, of the function around it and of those that call it."""
        tree, seen, inner = self.script.tree, set[Scope](), list[Scope]()
        queue = [(self.script.scope_of(place), tree.end(place))]
        while queue:
            scope, end = queue.pop()
            seen.add(scope)
            yield from (read for call, read in self._reads(scope) if tree.start(call) > end)
            for call in (n for n in scope.calls if tree.start(n) > end):
                yield from self._handed(scope, call)
                inner += self._run_by(call)
            for call in self.script.callers(scope) if scope.kind == "function" else ():
                if (outer := self.script.scope_of(call)) not in seen:
                    queue.append((outer, tree.end(call)))
        called: set[Scope] = set()
        while inner:
            scope = inner.pop()
            if scope in called:
                continue
            called.add(scope)
            yield from (read for _, read in self._reads(scope))
            for node in scope.nodes:
                inner += self._run_by(node) if isinstance(node, ast.Call) else []

    def _run_by(self, call: ast.Call) -> Iterator[Scope]:
        """The functions that a call runs; of an object that it makes, all methods."""
        for callee in self.script.interpreter.calls.get(call, ()):
            yield callee
            if callee.is_method and callee.name.endswith("__init__") and callee.parent is not None:
                yield from (s for s in callee.parent.children.values() if s.kind == "function")

    def _reads(self, scope: Scope) -> list[tuple[ast.Call, _Read]]:
        if scope not in self._known:
            module = self.script.interpreter.module_of(scope)
            calls = scope.calls
            found = [(call, self._read_by(module, scope, call)) for call in calls]
            self._known[scope] = [(call, read) for call, read in found if read is not None]
        return self._known[scope]

    def _handed(self, scope: Scope, call: ast.Call) -> Iterator[_Read]:
        """The reads of a function that gets the path from a call: `read(folder + "/t.csv")`."""
        if self.script.interpreter.module_of(scope) not in self.script.modules:
            return
        for callee in in_order(self.script.callees(call)):
            stated = {read.text: read for _, read in self._reads(callee)}
            for given, name in handed_to(call, callee) if stated else ():
                if f"{{{name}}}" in stated and not isinstance(given, ast.Starred):
                    yield _Read(path_text(self.script, given), stated[f"{{{name}}}"].plain)

    def _read_by(self, module: Module, scope: Scope, call: ast.Call) -> _Read | None:
        last = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if not _READING.match(last) or _writes(call):
            return None
        name = self._qualname(module, scope, call.func)
        path = call.args[0] if call.args and not isinstance(call.args[0], ast.Starred) else None
        if name is None:
            if last not in _OF_PATHS or not isinstance(call.func, ast.Attribute):
                return None
            path, name = call.func.value, "open"
        if path is None or name in _STREAMS:
            return None
        own = module in self.script.modules
        text = path_text(self.script, path) if own else f"{{{text_of(path)}}}"
        if not own and isinstance(path, ast.Constant):
            text = str(path.value)
        return _Read(text, bool(_PLAIN.search(name)))


def _writes(call: ast.Call) -> bool:
    """Whether a call opens a file to write it."""
    place = 0 if isinstance(call.func, ast.Attribute) and len(call.args) < 2 else 1
    modes = [call_argument(call, index, "mode") for index in (place, 1)]
    return any(
        isinstance(m, ast.Constant) and isinstance(m.value, str) and re.fullmatch(r"[wax]\w?\+?\w?", m.value)
        for m in modes
    )


def _stated(text: str) -> str:
    """The end of a path that is known: `/t.csv` of `{folder}/t.csv`."""
    return text.rpartition("}")[2]


def _are_one(text: str, other: str) -> bool:
    """Whether two paths have the same file name, where both are known."""
    whole = all("/" in _stated(one) or "{" not in one for one in (text, other))
    names = {_stated(one).rpartition("/")[2] for one in (text, other)}
    return whole and len(names) == 1 and "" not in names and _may_be_one(text, other)


def _may_be_one(text: str, other: str) -> bool:
    """Whether two paths can be the same, judged by the ends that are known."""
    end, other_end = _stated(text), _stated(other)
    return end.endswith(other_end) or other_end.endswith(end)
