"""Expressions that are evaluated further up than the script does: whether they have the same value there.

Each argument of the Accelerator is one. Between its place and the line where the script reads the same, no statement
may write what it reads: `if args.device: cfg["device"] = args.device` above `torch.device(cfg["device"])`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from accelify.analysis import knowledge as k
from accelify.analysis.devices.fallbacks import fallback
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, dotted, walk

_DEPTH = 3
# Entries of a name that a statement writes or an expression reads: attributes and constant keys. None: any of them.
Entries = frozenset[str] | None
_ANY: Entries = None


@dataclass(frozen=True)
class Expression:
    """A lifted expression: its text, the names that it reads, and the statement that reads them in the script."""

    text: str
    names: frozenset[str]
    read: ast.stmt | None = None

    def entries(self, name: str) -> Entries:
        """What it reads of an object by its name."""
        found: set[str] = set()
        try:
            tree = ast.parse(self.text, mode="eval")
        except SyntaxError:
            return _ANY
        parents = {id(child): node for node in walk(tree) for child in ast.iter_child_nodes(node)}
        for node in walk(tree):
            if not isinstance(node, (ast.Name, ast.Attribute)) or dotted(node) != name:
                continue
            above, call = parents[id(node)], None
            if isinstance(above, ast.Attribute):
                call = parents.get(id(above))
            entry = _entry(above, call if isinstance(call, ast.Call) and call.func is above else None)
            if entry is None:
                return _ANY
            found.add(entry)
        return frozenset(found) or _ANY


@dataclass(frozen=True)
class Lifted:
    """All expressions that are evaluated at one place."""

    expressions: tuple[Expression, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The names that they read."""
        return frozenset().union(*(one.names for one in self.expressions))

    def changed_by(self, script: ScriptModel, stmt: ast.stmt) -> bool:
        """Whether a statement above the lines that read them may give one of them another value."""
        return any(next(_changes(script, one, stmt), None) is not None for one in self.expressions)

    def changed_from(self, script: ScriptModel, start: int, scope: Scope) -> frozenset[str]:
        """The names whose entries may be written in a scope between a place and the lines that read them."""
        return frozenset(
            name
            for one in self.expressions
            if one.read is not None and script.scope_of(one.read) is scope
            for stmt in scope.nodes
            if isinstance(stmt, ast.stmt) and start <= script.tree.start(stmt)
            for name in _changes(script, one, stmt)
        )


def _changes(script: ScriptModel, one: Expression, stmt: ast.stmt) -> Iterator[str]:
    """The names of an expression of which a statement may write what it reads."""
    if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    around = script.tree.parent(stmt)
    if fallback(script, stmt) or (isinstance(around, ast.stmt) and fallback(script, around)):
        return  # without a GPU the Accelerator takes the CPU anyway
    end = None
    if one.read is not None and script.scope_of(one.read) is script.scope_of(stmt):
        end = script.tree.start(one.read)
        if script.tree.start(stmt) >= end:
            return
    own = script.scope_of(stmt).self_name()  # which of its attributes are set yet is asked by `text_here`
    for name in one.names - {own}:
        if writes(script, [stmt], name, one.entries(name), end=end):
            yield name


def writes(
    script: ScriptModel,
    statements: Iterable[ast.AST],
    name: str,
    entries: Entries = _ANY,
    end: int | None = None,
    depth: int = _DEPTH,
) -> bool:
    """Whether statements may write attributes or items of an object.

    Args:
        script: its model.
        statements: they, in the scope where the object has the name.
        name: of the object, dotted where it is an attribute.
        entries: the attributes and keys asked about; None for any.
        end: an offset from which on nothing counts.
        depth: how many functions of the program are followed that get the object.
    """
    for node in (node for stmt in statements for node in walk(stmt)):
        if end is not None and isinstance(node, (ast.stmt, ast.expr)) and script.tree.start(node) >= end:
            continue
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            if _is(node.value, name) and _meets(_entry(node), entries):
                return True
        elif isinstance(node, ast.Call) and _call_writes(script, node, name, entries, depth):
            return True
    return False


def _call_writes(script: ScriptModel, call: ast.Call, name: str, entries: Entries, depth: int) -> bool:
    function = call.func
    if isinstance(function, ast.Name) and function.id in ("setattr", "delattr") and len(call.args) > 1:
        return _is(call.args[0], name) and _meets(_text(call.args[1]), entries)
    callees = script.callees(call)
    if isinstance(function, ast.Attribute) and not callees:
        return (
            function.attr in k.WRITING_METHODS
            and _is(function.value, name)
            and any(_meets(entry, entries) for entry in _entries_of_call(call))
        )
    if not depth:
        return False
    for callee in callees:
        body = getattr(callee.node, "body", [])
        called = {parameter for value, parameter in handed_to(call, callee) if _is(value, name)}
        own = callee.self_name()
        if own is not None and isinstance(function, ast.Attribute) and _is(function.value, name):
            called.add(own)
        owner = script.scope_of(call).resolve(name.partition(".")[0])
        if owner is not None and owner.kind == "module" and callee.resolve(name.partition(".")[0]) is owner:
            called.add(name)
        if isinstance(body, list) and any(
            writes(script, body, inner, entries, depth=depth - 1) for inner in called
        ):
            return True
    return False


def _entries_of_call(call: ast.Call) -> list[str | None]:
    """The entries that a writing method writes: `update(device="cpu")`, `setdefault("device", "cpu")`."""
    first = call_argument(call, 0, "")
    found: list[str | None] = [keyword.arg for keyword in call.keywords]
    if isinstance(first, ast.Dict):
        found += [_text(key) if key is not None else None for key in first.keys]
    elif first is not None or not found:
        found.append(_text(first) if first is not None else None)
    return found


def _is(node: ast.expr, name: str) -> bool:
    """Whether an expression is the object by a name, or the dictionary of its attributes."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "vars"
        and node.args
    ):
        return _is(node.args[0], name)
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return _is(node.value, name)
    return dotted(node) == name


def _entry(node: ast.AST, call: ast.Call | None = None) -> str | None:
    """The entry that an attribute, an item or `get(key)` is; None where it is not known."""
    if isinstance(node, ast.Subscript):
        return _text(node.slice)
    if isinstance(node, ast.Attribute):
        if call is None:
            return node.attr
        return _text(call.args[0]) if node.attr in ("get", "pop") and call.args else None
    return None


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _meets(entry: str | None, entries: Entries) -> bool:
    return entry is None or entries is None or entry in entries
