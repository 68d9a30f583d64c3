"""Folders that all processes go on to list, or to write in, when the main process may not have made them yet.

mkdirs(self.folder)
self.load_checkpoint("last")        # max(os.listdir(self.folder))
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Set
from functools import cached_property
from typing import NamedTuple

from accelify.analysis.devices.option_devices import self_of
from accelify.analysis.files.folders import path_text
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, text_of

# What fails where there is no such folder.
_GOING_IN = frozenset("os.listdir os.scandir os.chdir logging.FileHandler logging.basicConfig".split())
_LISTS = frozenset({"iterdir"})
_DEEPEST = 3

Qualname = Callable[[Module, Scope, ast.expr], str | None]


class _Folders(NamedTuple):
    """Folders by their paths as a function writes them, and by the attributes of a class's objects that hold them."""

    texts: frozenset[str]
    attributes: frozenset[str] = frozenset()
    cls: ast.ClassDef | None = None

    def __bool__(self) -> bool:
        return bool(self.texts or self.attributes)


class ListedLater:
    """Finds out whether code that runs after a folder is made lists the folder.

    Args:
        script: its model.
        qualname: the name of a library's function that an expression of a module is.
        writing: the calls of the script that write on every process, into their argument.
    """

    def __init__(self, script: ScriptModel, qualname: Qualname, writing: Set[ast.Call] = frozenset()) -> None:
        self.script = script
        self._qualname = qualname
        self._writing = writing

    def is_listed(self, stmt: ast.stmt, made: list[ast.expr]) -> bool:
        """Whether folders that a statement makes are listed after it, or a log is opened in them."""
        if not self._may_be:
            return False
        scope = self.script.scope_of(stmt)
        texts = frozenset(t for path in made for one in self._each(path) if (t := self._text(scope, one)))
        return self._after(scope, self.script.tree.end(stmt), self._folders(scope, texts), frozenset())

    @cached_property
    def _may_be(self) -> bool:
        """Whether anything writes everywhere, or any module has a word of what goes into folders."""
        if self._writing:
            return True
        words = [name.rpartition(".")[2].encode() for name in (*_GOING_IN, *_LISTS)]
        modules = self.script.program.modules.values()
        return any(module.tree.mentions(word) for module in modules for word in words)

    def _after(self, scope: Scope, end: int, folders: _Folders, seen: frozenset[Scope]) -> bool:
        """Whether it is so in the rest of a function, or of those that call it."""
        if not folders or scope in seen:
            return False
        if self._in_scope(scope, folders, end, _DEEPEST):
            return True
        for call in self.script.callers(scope) if scope.kind == "function" else ():
            outer, given = self.script.scope_of(call), handed_to(call, scope)
            texts = {self._text(outer, a) for a, name in given if f"{{{name}}}" in folders.texts}
            texts |= {t for a, name in given for t in _renamed(folders.texts, name, dotted(a))}
            texts |= {t for t in folders.texts if self._is_shared(t, scope, outer)}
            stated = self._folders(outer, frozenset(texts))
            if not stated.attributes:
                stated = _Folders(stated.texts, folders.attributes, folders.cls)
            if self._after(outer, self.script.tree.end(call), stated, seen | {scope}):
                return True
        return False

    def _in_scope(self, scope: Scope, folders: _Folders, start: int, left: int) -> bool:
        module = self.script.interpreter.module_of(scope)
        own = module in self.script.modules
        for node in scope.nodes:
            if not isinstance(node, ast.Call) or (own and self.script.tree.start(node) < start):
                continue
            if any(self._are(scope, gone, folders) for gone in self._gone_into(module, scope, node)):
                return True
            if node in self._writing and self._takes_holder(node, folders):
                return True
            for callee in in_order(self.script.callees(node)) if left else ():
                inner = self._handed(scope, node, callee, folders)
                if inner and self._in_scope(callee, inner, 0, left - 1):
                    return True
        return False

    def _gone_into(self, module: Module, scope: Scope, call: ast.Call) -> list[ast.expr]:
        """The path that a call goes into; of one that writes on every process, all that can be one."""
        if call in self._writing:
            return [*call.args, *[kw.value for kw in call.keywords]]
        if isinstance(call.func, ast.Attribute) and call.func.attr in _LISTS:
            return [call.func.value]
        if not (dotted(call.func) or "").endswith(tuple(name.rpartition(".")[2] for name in _GOING_IN)):
            return []
        name = self._qualname(module, scope, call.func) or ""
        if name not in _GOING_IN:
            return []
        named = [kw.value for kw in call.keywords if kw.arg in ("path", "filename")]
        return [*call.args[:1], *named][:1]

    def _takes_holder(self, call: ast.Call, folders: _Folders) -> bool:
        """Whether a call gets the object with a folder's path: `Log(args)`, where the path is `args.folder`."""
        given = {dotted(a) for a in [*call.args, *[kw.value for kw in call.keywords]]} - {None}
        return any(text.startswith(f"{{{name}.") for text in folders.texts for name in given)

    def _handed(self, scope: Scope, call: ast.Call, callee: Scope, folders: _Folders) -> _Folders:
        """The folders as a function that is called knows them."""
        given = handed_to(call, callee)
        texts = {f"{{{name}}}" for a, name in given if self._are(scope, a, folders)}
        texts |= {t for a, name in given for t in _renamed(folders.texts, dotted(a), name)}
        texts |= {text for text in folders.texts if self._is_shared(text, scope, callee)}
        if folders.cls is None or callee.owner_class is not folders.cls:
            return _Folders(frozenset(texts))
        return _Folders(frozenset(texts), folders.attributes, folders.cls)

    def _is_shared(self, text: str, scope: Scope, other: Scope) -> bool:
        """Whether a text means the same in two functions: no variables in it, or those of their module alone."""
        if "{" not in text:
            return True
        names = {part.partition("}")[0].partition(".")[0] for part in text.split("{")[1:]}
        owners = {scope.resolve(name) for name in names}
        return all(o is not None and o.kind == "module" for o in owners) and owners == {
            other.resolve(name) for name in names
        }

    def _folders(self, scope: Scope, texts: frozenset[str]) -> _Folders:
        own = f"{{{self_of(scope)}."
        retained = frozenset(
            text[len(own) : -1] for text in texts if text.startswith(own) and text.endswith("}")
        )
        return _Folders(texts, retained, scope.owner_class if retained else None)

    def _are(self, scope: Scope, node: ast.expr, folders: _Folders) -> bool:
        """Whether an expression is the path of such a folder, of one around it, or of a file in it."""
        text = self._text(scope, node)
        own = f"{{{self_of(scope)}."
        if folders.cls is not None and scope.owner_class is folders.cls and text.startswith(own):
            if text[len(own) :].partition("}")[0] in folders.attributes:
                return True
        around = any(text == one or one.startswith(f"{text}/") for one in folders.texts if text)
        inside = {text, *(self._text(scope, one) for one in self._beginnings(scope, node, _DEEPEST))}
        return around or any(t == one or t.startswith(f"{one}/") for t in inside for one in folders.texts)

    def _beginnings(self, scope: Scope, node: ast.expr, left: int) -> Iterator[ast.expr]:
        """What a path may begin with: `a` and `b` of `join(a or b, name)`, by whatever name the function keeps it."""
        inner: list[ast.expr] = []
        if left <= 0:
            return
        if isinstance(node, ast.BoolOp):
            inner = node.values
        elif isinstance(node, ast.IfExp):
            inner = [node.body, node.orelse]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            # `folder + ".txt"` is beside the folder; `name + ".txt"` is in it, where the name is one of a file in it.
            within = self._beginnings(scope, node.left, left - 1)
            yield from (one for one in within if isinstance(one, (ast.Call, ast.BinOp)))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            inner = [node.left]
        elif isinstance(node, ast.Call) and (dotted(node.func) or "").endswith("path.join"):
            inner = node.args[:1]
        elif isinstance(node, ast.Name):
            inner = [s.value for s in scope.of_type(ast.Assign) if dotted(s.targets[0]) == node.id]
        for one in inner:
            yield one
            yield from self._beginnings(scope, one, left - 1)

    def _text(self, scope: Scope, node: ast.expr) -> str:
        if self.script.interpreter.module_of(scope) in self.script.modules:
            return path_text(self.script, node)
        return f"{{{text_of(node)}}}"

    def _each(self, path: ast.expr) -> list[ast.expr]:
        """The paths that a name iterates over: `for folder in (logs, checkpoints): mkdirs(folder)`."""
        if isinstance(path, ast.Name):
            for loop in self.script.enclosing_loops(path):
                if isinstance(loop, ast.While) or dotted(loop.target) != path.id:
                    continue
                if isinstance(loop.iter, (ast.Tuple, ast.List)):
                    return loop.iter.elts
        return [path]


def _renamed(texts: frozenset[str], holder: str | None, name: str | None) -> Iterator[str]:
    """The texts that read an attribute off an object (`{args.folder}/logs`), by another name of that object."""
    for text in texts:
        if holder is not None and name is not None and text.startswith(f"{{{holder}."):
            yield f"{{{name}{text[len(holder) + 1 :]}"
