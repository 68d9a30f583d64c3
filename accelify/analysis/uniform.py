"""Which values are the same on every process, as far as can be seen."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, cast

from accelify.analysis import values as v
from accelify.analysis.lowered import PLACEHOLDER
from accelify.analysis.scopes import Scope, Scopes
from accelify.analysis.statements.enumerated import counter_of
from accelify.analysis.syntax import Node, Tree, call_argument, children, dotted, target_names
from accelify.analysis.values import Entity, Values

if TYPE_CHECKING:
    from accelify.analysis.script import ScriptModel

_COUNTERS = frozenset(
    {"args", "opt", "config", "cfg", "epoch", "step", "iteration", "i", "it", "epochs", "self"}
)
_UNIFORM_CALLS = frozenset(
    {
        "builtins.len",
        "builtins.int",
        "builtins.str",
        "builtins.float",
        "builtins.max",
        "builtins.min",
        "builtins.range",
        "builtins.isinstance",
        "builtins.hasattr",
        "builtins.getattr",
        "builtins.bool",
    }
)


class UniformValues:
    """The part of the ScriptModel that separates uniform values from those of one process's batch."""

    tree: Tree
    scopes: Scopes

    if TYPE_CHECKING:

        def scope_of(self, node: Node) -> Scope: ...
        def qualname(self, node: ast.expr) -> str | None: ...
        def values(self, node: ast.expr) -> Values: ...
        def callers(self, scope: Scope) -> list[ast.Call]: ...

    def is_uniform(self, test: ast.expr, depth: int = 0) -> bool:
        """Whether an expression has the same value on every process as far as can be seen.

        True for arguments of the command line, loop counters, constants and what is computed from these alone.
        """
        scope = self.scope_of(test) if hasattr(test, "lineno") else self.scopes.module
        queue: list[ast.AST] = [test]
        while queue:
            node = queue.pop()
            if self._is_size_of_data(node):
                continue
            queue.extend(children(node))
            if isinstance(node, ast.Call):
                name = self.qualname(node.func) or ""
                if name not in _UNIFORM_CALLS and not name.startswith("os.path."):
                    return False
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                if not self._uniform_name(node, scope, depth):
                    return False
        return True

    def _is_size_of_data(self, node: ast.AST) -> bool:
        """`len(dataset)`, whatever the data set was made from."""
        return (
            isinstance(node, ast.Call)
            and self.qualname(node.func) == "builtins.len"
            and len(node.args) == 1
            and any(isinstance(w, Entity) and w.kind == v.DATASET for w in self.values(node.args[0]))
        )

    def _uniform_name(self, name: ast.Name, scope: Scope, depth: int) -> bool:
        owner = scope.resolve(name.id)
        if name.id == PLACEHOLDER:
            parent = self.tree.parent(name)
            return isinstance(parent, ast.Attribute) and parent.attr == "num_processes"
        if owner is None:
            return True
        if any(isinstance(w, Entity) and w.kind in (v.BATCH, v.OUTPUT, v.TENSOR) for w in self.values(name)):
            return False
        if isinstance(self.tree.parent(name), ast.Attribute) and name.id in (
            "args",
            "opt",
            "config",
            "cfg",
            "hparams",
            "self",
        ):
            return True
        if depth > 4:
            return False
        for node in owner.of_type(ast.Assign, ast.AugAssign, ast.For, ast.AsyncFor):
            targets: list[ast.expr] = []
            value: ast.expr | None = None
            if isinstance(node, ast.Assign):
                targets, value = node.targets, node.value
            elif isinstance(node, ast.AugAssign):
                targets, value = [node.target], node.value
            elif isinstance(node, (ast.For, ast.AsyncFor)):
                if name.id in target_names(node.target):
                    kind = (
                        node.iter.func.id
                        if isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name)
                        else ""
                    )
                    first = target_names(node.target)[:1]
                    counted = kind in ("range", "trange") or (kind == "enumerate" and first == [name.id])
                    counted = counted or counter_of(cast("ScriptModel", self), node) == name.id
                    if not counted and not _is_written_out(node.iter):
                        return False
            if value is not None and any(name.id in target_names(t) for t in targets):
                if isinstance(value, ast.Call) and (dotted(value.func) or "").endswith("parse_args"):
                    continue
                if not self.is_uniform(value, depth + 1):
                    return False
        if owner.kind == "function" and owner.takes(name.id):
            return name.id in _COUNTERS or self._uniform_argument(owner, name.id, depth)
        return True

    def _uniform_argument(self, scope: Scope, name: str, depth: int) -> bool:
        """Whether every call of a function gives a parameter a value that is the same on every process."""
        calls = self.callers(scope)
        names = [a.arg for a in scope.parameters()]
        index = names.index(name) - (1 if scope.self_name() is not None else 0)
        given = [call_argument(call, index, name) for call in calls]
        return bool(calls) and all(g is None or self.is_uniform(g, depth + 1) for g in given)


def _is_written_out(node: ast.expr) -> bool:
    """`["train", "val"]`: what a loop iterates over is in the script."""
    return isinstance(node, (ast.List, ast.Tuple)) and all(isinstance(e, ast.Constant) for e in node.elts)
