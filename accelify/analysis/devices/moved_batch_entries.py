"""Batches whose entries are replaced by moved ones: `for key, value in batch.items(): batch[key] = value.to(device)`.

The batch has the same name but another device: what is read of it after the loop is where the loop has moved it, also
in the caller that passed the batch to the function with the loop. `batch["x"] = batch["x"].to(device)` does so with one
entry, and `sample[0] = sample[0].to(device)`, which nobody would write for a row of a tensor.
"""

from __future__ import annotations

import ast
import re

from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import statements_in, target_names, text_of

_MOVING = frozenset({"to", "cuda", "cpu"})
# `batch[key] = ....to(`, looked for before anything is looked at.
_MOVED_ENTRY = re.compile(rb"\]\s*=[^=][^=]{0,200}?\.(?:to|cuda|cpu)\s*\(")
# By the text of a name or an entry: the statement after which it is on the device, and one of those.
_Filled = dict[str, list[tuple[ast.stmt, ast.expr]]]


class FilledBatches:
    """What is known of such batches, function by function.

    Args:
        script: its model.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self._known: dict[Scope, _Filled] = {}
        self._own: dict[Scope, _Filled] = {}
        self._moves_any = any(m.tree.mentions(_MOVED_ENTRY) for m in script.program.modules.values())

    def afterwards(self, node: ast.Name | ast.Subscript) -> tuple[list[ast.expr], bool]:
        """The moved entries that a name or an entry holds where it is read, and whether it can hold nothing else."""
        if isinstance(node, ast.Subscript) and not (
            isinstance(node.value, ast.Name) and (_is_fixed(node.slice) or _is_number(node.slice))
        ):
            return [], False
        if not self._moves_any:
            return [], False
        scope, tree = self.script.scope_of(node), self.script.tree
        filled = self._known.get(scope)
        if filled is None:
            filled = self._known[scope] = self._filled_in(scope)
        found = filled.get(text_of(node), ()) if filled else ()
        before = [(s, value) for s, value in found if tree.is_after(node, s)]
        around = set(tree.ancestors(node)) if before else set()
        return [value for _, value in before], any(tree.parent(s) in around for s, _ in before)

    def _filled_in(self, scope: Scope) -> _Filled:
        """What a function moves entry by entry, itself or by a function that it passes the batch to."""
        found = {text: list(values) for text, values in self._filled_by(scope).items()}
        for call in scope.nodes:
            if not isinstance(call, ast.Call) or not any(isinstance(a, ast.Name) for a in call.args):
                continue
            for callee in in_order(self.script.callees(call)):
                inside = self._filled_by(callee) if callee is not scope else {}
                for argument, name in handed_to(call, callee) if inside else ():
                    for text, values in inside.items() if isinstance(argument, ast.Name) else ():
                        if text == name or text.startswith(f"{name}["):
                            assert isinstance(argument, ast.Name)
                            stmt = self.script.tree.statement(call)
                            own = found.setdefault(argument.id + text[len(name) :], [])
                            own.extend((stmt, value) for _, value in values)
        return found

    def _filled_by(self, scope: Scope) -> _Filled:
        if scope not in self._own:
            self._own[scope] = _filled_by(scope)
        return self._own[scope]


def _filled_by(scope: Scope) -> _Filled:
    found: _Filled = {}
    for node in scope.nodes:
        if isinstance(node, ast.For):
            name, key = _gone_through(node)
            for stmt in statements_in(node) if name else ():
                target = _moved_entry(stmt)
                if target is not None and text_of(target.value) == name:
                    if isinstance(target.slice, ast.Name) and target.slice.id == key:
                        assert isinstance(stmt, ast.Assign)
                        found.setdefault(name, []).append((node, stmt.value))
        target = _moved_entry(node)
        if target is not None and (_is_fixed(target.slice) or _moves_itself(target, node)):
            assert isinstance(node, ast.Assign)
            found.setdefault(text_of(target), []).append((node, node.value))
    return found


def _moved_entry(node: ast.AST) -> ast.Subscript | None:
    """The target of `batch[...] = value.to(device)`."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.Call):
        return None
    target, func = node.targets[0], node.value.func
    moved = isinstance(func, ast.Attribute) and func.attr in _MOVING
    return (
        target if moved and isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) else None
    )


def _moves_itself(target: ast.Subscript, stmt: ast.AST) -> bool:
    """`sample[0] = sample[0].to(device)`: an element of a list."""
    moved = stmt.value.func.value  # type: ignore[attr-defined]
    return _is_number(target.slice) and text_of(moved) == text_of(target)


def _is_number(key: ast.expr) -> bool:
    return isinstance(key, ast.Constant) and type(key.value) is int


def _is_fixed(key: ast.expr) -> bool:
    """Whether an entry goes by a text, or by several parts of which one is a text; numbers count rows."""
    parts = key.elts if isinstance(key, ast.Tuple) else [key]
    texts = [p for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
    return bool(texts) and all(isinstance(p, ast.Constant) for p in parts)


def _gone_through(loop: ast.For) -> tuple[str, str]:
    """The name of what a loop iterates over by its keys, and the name of the key; "" for other loops."""
    node = loop.iter
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        node = node.args[0]  # list(batch)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        if node.func.attr not in ("items", "keys"):
            return "", ""
        node = node.func.value
    names = target_names(loop.target)
    return (node.id, names[0]) if isinstance(node, ast.Name) and names else ("", "")
