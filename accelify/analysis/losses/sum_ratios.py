"""Ratios of sums over the batch in a loss: soft Dice, soft Jaccard.

return 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)

No one number of a process's share weighs such a loss right: the gradient goes through what it is divided by.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from accelify.analysis import values as v
from accelify.analysis.data.loaders import is_shardable
from accelify.analysis.models.alternatives import run_by
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, is_constant, walk
from accelify.analysis.values import Thing

# What has no gradient, whatever it is made of.
_CUTTING = frozenset(
    "argmax argmin bool byte ceil detach eq floor ge gt int item le long lt ne numpy one_hot round sign tolist".split()
)
_FARTHEST = 6


class SumRatios:
    """Answers which divisors of a loss are trained themselves.

    Args:
        script: its model.
        loops: those around the backward.
        made: what a scope assigns to a name.
    """

    def __init__(
        self,
        script: ScriptModel,
        loops: Iterable[ast.AST],
        made: Callable[[ast.Name, Scope], list[ast.expr]],
    ) -> None:
        self.script, self.loops, self.made = script, set(loops), made
        self._calls: dict[Scope, dict[ast.Call, Scope]] = {}

    @cached_property
    def batches_of_one(self) -> bool:
        """Whether the loops around the backward take one sample at a time: their losses are averaged anyway."""
        loaders = {one for loop, read in self.script.loader_loops if loop in self.loops for one in read}
        return bool(loaders) and all(_takes_one(loader) for loader in loaders)

    def trains(self, node: ast.expr, scope: Scope, far: int = 0) -> bool:
        """Whether a gradient goes through an expression to what a model gave."""
        for name in _with_gradients(node):
            made = self.made(name, scope) if far < _FARTHEST else []
            if any(self.trains(value, scope, far + 1) for value in made):
                return True
            if not made and self._is_of_outputs(name, scope):
                return True
            handed = self._handed(name, scope) if not made and far < _FARTHEST else ()
            for given, caller in handed:
                if self._is_of_outputs(given, caller) or self.trains(given, caller, far + 1):
                    return True
        return False

    def calls_of(self, scope: Scope) -> dict[ast.Call, Scope]:
        """The calls that run a function, those of criteria among them, with the function that each stands in."""
        if scope not in self._calls:
            callers = self.script.interpreter.callers.get(scope, [])
            calls = {call: module.scopes.of(call) for module, call in callers}
            self._calls[scope] = calls | (self._criteria_run(scope) if scope.is_method else {})
        return self._calls[scope]

    def whole(self, divisor: ast.expr, scope: Scope) -> ast.expr:
        """The division that a divisor belongs to, where it is one expression."""
        parent = self.script.interpreter.module_of(scope).tree.parent(divisor)
        return parent if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div) else divisor

    def _handed(self, name: ast.Name, scope: Scope) -> Iterator[tuple[ast.expr, Scope]]:
        """What calls hand over under a parameter's name, those of criteria among them, with where they stand."""
        if scope.kind != "function" or not scope.takes(name.id):
            return
        for call, caller in self.calls_of(scope).items():
            yield from ((given, caller) for given, taken in handed_to(call, scope) if taken == name.id)

    def _criteria_run(self, forward: Scope) -> dict[ast.Call, Scope]:
        """The calls of criteria that run a forward, which the interpreter does not look into."""
        interpreter = self.script.interpreter
        found = {}
        for module in dict.fromkeys([*self.script.modules, interpreter.module_of(forward)]):
            for call in module.tree.nodes(ast.Call):
                scope = module.scopes.of(call)
                held = interpreter.evaluate(module, scope, call.func)
                criteria = [w for w in held if isinstance(w, Thing) and w.kind == v.CRITERION]
                if any(function.scope is forward for one in criteria for function, _ in run_by(one)):
                    found[call] = scope
        return found

    def _is_of_outputs(self, node: ast.expr, scope: Scope) -> bool:
        interpreter = self.script.interpreter
        queue = list(interpreter.evaluate(interpreter.module_of(scope), scope, node))
        seen: set[v.Value] = set()
        while queue:
            one = queue.pop()
            if isinstance(one, Thing) and one not in seen:
                seen.add(one)
                if one.kind == v.OUTPUT:
                    return True
                queue += one.link("sources")
        return False


def _with_gradients(node: ast.expr) -> Iterator[ast.Name]:
    """The names in an expression, without those of parts that have no gradient."""
    cut = {
        id(inner)
        for part in walk(node)
        if isinstance(part, ast.Compare)
        or (isinstance(part, ast.Attribute) and part.attr in ("data", "shape"))
        or (isinstance(part, ast.Call) and getattr(part.func, "attr", "") in _CUTTING)
        for inner in walk(part)
    }
    return (n for n in walk(node) if isinstance(n, ast.Name) and id(n) not in cut)


def _takes_one(loader: Thing) -> bool:
    """Whether a loader of torch's gives one sample at a time."""
    if not is_shardable(loader) or loader.cls is not None or not isinstance(loader.site, ast.Call):
        return False
    if any(kw.arg in (None, "batch_sampler") for kw in loader.site.keywords):
        return False
    size = call_argument(loader.site, 1, "batch_size")
    return size is None or is_constant(size, 1)


__all__ = ["SumRatios"]
