"""Loaders that functions of modules which are not converted iterate over: these see only the loader they get."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.metrics.stored_state import class_of, own_attribute
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted
from accelify.analysis.values import Entity

# What a function may run a model with.
_RUNNING = (v.MODEL, v.OPTIMIZER, v.CRITERION, v.INSTANCE)
_WRAPPING = frozenset({"enumerate", "zip", "iter", "list", "reversed"})


class ReadElsewhere:
    """Finds out how loaders are used that are passed to functions of other modules.

    Args:
        script: the script; its modules are those that are converted.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self._known: dict[tuple[Scope, str], bool] = {}

    def gone_through(self, call: ast.Call) -> list[ast.expr]:
        """The arguments of a call which functions of other modules go through, batch by batch."""
        found: list[ast.expr] = []
        for callee in self.script.callees(call):
            if self.script.interpreter.module_of(callee) in self.script.modules:
                continue
            pairs = handed_to(call, callee)
            found += [a for a, name in pairs if a not in found and self._loops_over(callee, name)]
        return found

    def counted(self, loaders: set[Entity]) -> list[ast.stmt]:
        """The statements that count over some loaders in such functions, without a model: class weights, means."""
        script, found = self.script, []
        for call in script.calls():
            given = self.gone_through(call)
            if not any(script.entities(a, v.LOADER) & loaders for a in given):
                continue
            others = [a for a in [*call.args, *[kw.value for kw in call.keywords]] if a not in given]
            method = isinstance(call.func, ast.Attribute) and script.is_a(call.func.value, *_RUNNING)
            if not method and not any(script.is_a(a, *_RUNNING) for a in others):
                found.append(script.tree.statement(call))
        return found

    def _loops_over(self, scope: Scope, name: str) -> bool:
        """Whether a function iterates over what a parameter holds, itself or through what it calls."""
        found = self._known.get((scope, name))
        if found is None:
            self._known[scope, name] = False
            found = self._known[scope, name] = self._looks_for_loops(scope, name)
        return found

    def _looks_for_loops(self, scope: Scope, name: str) -> bool:
        if _hands_on(scope):
            return False
        names = {name}
        for node in scope.of_type(ast.Assign):
            if _wrapped(node.value, names):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        names.add(target.id)
                    elif own_attribute(scope, target) is not None and self._method_loops(scope, target):
                        return True
        loops = scope.of_type(ast.For, ast.AsyncFor, ast.comprehension)
        drawn = (c.args[0] for c in scope.calls if dotted(c.func) == "next" and c.args)
        gone_through = (*(loop.iter for loop in loops), *drawn)
        return any(_wrapped(data, names) for data in gone_through) or any(
            _wrapped(given, names) and self._loops_over(callee, parameter)
            for call in scope.calls
            for callee in self.script.interpreter.calls.get(call, ())
            for given, parameter in handed_to(call, callee)
        )

    def _method_loops(self, scope: Scope, target: ast.expr) -> bool:
        """Whether a method of the class iterates over what an attribute refers to."""
        owner, name = class_of(scope), own_attribute(scope, target)
        for method in owner.children.values() if owner is not None else ():
            loops = method.of_type(ast.For, ast.AsyncFor, ast.comprehension)
            for node in () if not loops or _hands_on(method) else loops:
                if any(
                    isinstance(n, ast.Attribute) and own_attribute(method, n) == name
                    for n in _parts(node.iter)
                ):
                    return True
        return False


def _hands_on(scope: Scope) -> bool:
    """Whether a function passes what it iterates over to its callers."""
    return bool(scope.of_type(ast.Yield, ast.YieldFrom))


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """What is gone through: `x` of `enumerate(tqdm(x))`, and not of `range(len(x))`."""
    if isinstance(node, ast.Call):
        name = dotted(node.func) or ""
        if name in _WRAPPING or k.is_progress(name):
            for argument in node.args:
                yield from _parts(argument)
    else:
        yield node


def _wrapped(node: ast.expr, names: set[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in _parts(node))


__all__ = ["ReadElsewhere"]
