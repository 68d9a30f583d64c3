"""Tests whether something is None: the same on every process, unless the data decides what is there.

`extra = net(x) if args.extra else None` is None everywhere or nowhere, whatever numbers it holds, and so is
`next(batches, None)`, as all processes have as many batches; a batch that its `collate_fn` gives up, a match in a text
and what a test of one process's figures has set are not.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable

from accelify.analysis import values as v
from accelify.analysis.metrics.figures import draws
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, dotted, hides_arguments, is_constant, target_names
from accelify.analysis.values import Entity

_NEVER = (
    ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set,
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda,
)  # fmt: skip
_OF_TENSORS = frozenset(
    "detach cpu cuda to item float double half long mean sum max min view reshape clone numpy tolist squeeze unsqueeze "
    "sigmoid softmax permute transpose argmax contiguous".split()
)
_LOADER = "torch.utils.data.DataLoader"
_FAR = 5


def asks_for_none(node: ast.AST | None) -> bool:
    """`x is None`, `None is not x`, `x == None`."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return False
    return isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)) and any(
        is_constant(side, None) for side in (node.left, *node.comparators)
    )


def asks_for_key(node: ast.AST | None, container: ast.expr) -> bool:
    """`"loss" not in totals`: which entries there are, and nothing of what they hold."""
    return (
        isinstance(node, ast.Compare)
        and node.left is not container
        and isinstance(node.left, ast.Constant)
        and all(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops)
    )


class NoneTests:
    """Whether a value is None on all processes or on none, as far as its bindings tell.

    Args:
        script: its model.
        loops: those whose batches differ between processes.
        decisions: the tests of one process's figures, as far as they are known.
        bindings: the statements that can have bound a name where it is read; None represents a parameter.
    """

    def __init__(
        self,
        script: ScriptModel,
        loops: Collection[ast.AST],
        decisions: Collection[ast.AST],
        bindings: Callable[[ast.Name], Iterable[ast.stmt | None]],
    ) -> None:
        self.script, self.tree = script, script.tree
        self.loops, self.decisions, self.bindings = loops, decisions, bindings

    def is_alike(self, node: ast.expr, far: int = _FAR) -> bool:
        """Whether an expression is None on every process where it is on one."""
        if isinstance(node, _NEVER):
            return True
        if far == 0:
            return False
        if isinstance(node, ast.IfExp):
            both = self.is_alike(node.body, far - 1) and self.is_alike(node.orelse, far - 1)
            return both and self.script.is_uniform(node.test)
        if isinstance(node, ast.Call):
            return self._call(node, far)
        if isinstance(node, ast.Subscript):
            return isinstance(node.slice, ast.Constant) and self.is_alike(node.value, far)
        if isinstance(node, ast.Name):
            made = list(self.bindings(node))
            return bool(made) and all(self._binding(stmt, node.id, node, far) for stmt in made)
        if isinstance(node, ast.Attribute):
            stored = list(self.tree.assigns(dotted(node) or ""))
            return bool(stored) and all(self._binding(stmt, dotted(node) or "", node, far) for stmt in stored)
        return False

    def _call(self, call: ast.Call, far: int) -> bool:
        script, func = self.script, call.func
        receiver = func.value if isinstance(func, ast.Attribute) else func
        if script.models_of(func) or script.models_of(receiver) or script.is_a(func, v.CRITERION):
            return True
        if (script.qualname(func) or "").startswith("torch."):
            return True
        if draws(call):
            return self._is_of_samples(self._drawn_from(call)) and all(_is_fixed(a) for a in call.args[1:])
        callees = script.callees(call)
        if callees:
            return all(self._gives(callee, far) for callee in callees)
        if not isinstance(func, ast.Attribute) or script.qualname(func) is not None:
            return False
        return func.attr in _OF_TENSORS or script.is_a(receiver, v.TENSOR, v.OUTPUT)

    def _gives(self, callee: Scope, far: int) -> bool:
        """Whether a function gives None on all processes or on none."""
        if isinstance(callee.node, ast.ClassDef) or callee.name.rsplit(".", 1)[-1] == "__init__":
            return True
        if self.script.interpreter.module_of(callee) not in self.script.modules:
            return False
        returns = callee.of_type(ast.Return)
        return all(
            not self._is_decided(stmt) and (stmt.value is None or self.is_alike(stmt.value, far - 1))
            for stmt in returns
        )

    def _binding(self, stmt: ast.stmt | None, name: str, read: ast.expr, far: int) -> bool:
        if stmt is None:
            return self._given(name, read, far)
        if self._is_decided(stmt):
            return False
        if isinstance(stmt, ast.AugAssign):
            return True
        if isinstance(stmt, (ast.For, ast.AsyncFor)):
            return self._is_of_samples(self.script.iterated(stmt.iter))
        if not isinstance(stmt, (ast.Assign, ast.AnnAssign)) or stmt.value is None:
            return False
        for target in stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]:
            if dotted(target) == name:
                return self.is_alike(stmt.value, far - 1)
            if isinstance(target, (ast.Tuple, ast.List)) and name in target_names(target):
                value = stmt.value
                if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                    pairs = zip(target.elts, value.elts, strict=True)
                    return all(self.is_alike(e, far - 1) for t, e in pairs if dotted(t) == name)
                return self.is_alike(value, far - 1)
        return False

    def _drawn_from(self, call: ast.Call) -> set[Entity]:
        """The loaders of which `next(iterator)` draws a batch."""
        loaders = {t for b in self.script.entities(call, v.BATCH) for t in b.link("loader")}
        return loaders or {t for argument in call.args[:1] for t in self.script.iterated(argument)}

    @staticmethod
    def _is_of_samples(loaders: set[Entity]) -> bool:
        """Whether DataLoader itself puts together the batches, which raises where a sample has a None."""
        return bool(loaders) and all(
            loader.qualname == _LOADER
            and isinstance(loader.site, ast.Call)
            and call_argument(loader.site, 6, "collate_fn") is None
            and all(kw.arg is not None for kw in loader.site.keywords)
            and not any(isinstance(a, ast.Starred) for a in loader.site.args)
            for loader in loaders
        )

    def _given(self, name: str, read: ast.expr, far: int) -> bool:
        """Whether all callers pass for a parameter what is None on all processes or on none."""
        scope = self.script.scope_of(read).resolve(name)
        if scope is None or scope.kind != "function":
            return False
        names = scope.positional()[1 if scope.self_name() is not None else 0 :]
        calls = self.script.callers(scope)
        for call in calls:
            if hides_arguments(call):
                return False
            given = call_argument(call, names.index(name) if name in names else len(call.args), name)
            if self._is_decided(self.tree.statement(call)) or (
                given is not None and not self.is_alike(given, far - 1)
            ):
                return False
        return bool(calls)

    def _is_decided(self, stmt: ast.stmt) -> bool:
        """Whether a test of one process's figures lets a statement run."""
        return any(ancestor in self.decisions for ancestor in self.tree.ancestors(stmt))


def _is_fixed(default: ast.expr) -> bool:
    """Whether the value of `next` after the last batch is written out: `None`, `(None, None)`."""
    parts = default.elts if isinstance(default, (ast.Tuple, ast.List)) else [default]
    return all(isinstance(part, ast.Constant) for part in parts)


__all__ = ["NoneTests", "asks_for_key", "asks_for_none"]
