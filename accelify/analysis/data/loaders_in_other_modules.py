"""Loaders that functions of modules which are not converted iterate over: these see only the loader they get."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.metrics.stored_state import class_of, own_attribute
from accelify.analysis.planning.sites import Item
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

    def only_elsewhere(self, item: Item) -> set[ast.Call]:
        """The calls that pass a name's loader to such functions, where nothing of the script itself reads it."""
        reads = self._reads(item)
        calls: set[ast.Call] = set()
        seen: set[tuple[Scope, str]] = set()
        while reads:
            read = reads.pop()
            around = self.script.tree.parent(read)
            call = self.script.tree.parent(around) if isinstance(around, ast.keyword) else around
            if not isinstance(call, ast.Call) or call.func is read:
                return set()
            callees = self.script.callees(call)
            own = [s for s in callees if self.script.interpreter.module_of(s) in self.script.modules]
            if not callees and (dotted(call.func) != "len"):
                return set()
            if any(read is a for a in self.gone_through(call)):
                calls.add(call)
            for callee in own:
                for argument, name in handed_to(call, callee):
                    if argument is read and (callee, name) not in seen:
                        seen.add((callee, name))
                        reads += self.script.reads(name, callee)
        return calls

    def _reads(self, item: Item) -> list[ast.expr]:
        holder, script = item.holder, self.script
        if holder.cls is None:
            return list(script.reads(holder.name, holder.scope)) if holder.scope is not None else []
        return [
            n
            for n in script.tree.nodes(ast.Attribute)
            if n.attr == holder.name and isinstance(n.ctx, ast.Load) and item.entities & script.entities(n)
        ]

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


def whole_loaders(items: list[Item], elsewhere: ReadElsewhere) -> set[Item]:
    """The names of loaders that only such functions read, where the training reads others of a making.

    Every process then iterates over all of that data, and gets the figures of the original.
    """
    found: set[Item] = set()
    loaders = [item for item in items if item.kind == v.LOADER and item.container is None]
    for item in loaders:
        others = [o for o in loaders if o is not item and o not in found]
        if not all(any(entity in other.entities for other in others) for entity in item.entities):
            continue
        if elsewhere.only_elsewhere(item):
            found.add(item)
    return found
