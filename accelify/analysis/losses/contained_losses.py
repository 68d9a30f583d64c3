"""Losses that are in a container before they are added up, and those that the parts of a model give.

loss = sum(losses)                     losses.append(criterion(x, y)) before it, or a function that gives them
loss = sum(found.values())             loss = found["box"] + found["class"]
for part in self.parts:                (a ModuleList)
    total = total + part(x, y)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from accelify.analysis import values as v
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.returned_parts import parts_of
from accelify.analysis.syntax import dotted, is_constant, target_names
from accelify.analysis.values import Entity, Function, Value

SlotValue = tuple[ast.expr, Module, Scope]
Run = Callable[[ast.Call, Module, Scope], list[tuple[Function, list[ast.expr]]]]

_DEEPEST = 6
_SAME = frozenset({"list", "tuple", "sorted", "reversed", "set"})
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp)


class ContainedLosses:
    """Answers which expressions a container's elements are made of.

    Args:
        script: its model.
        run: the functions of the program that a call can run, each with what it can return.
    """

    def __init__(self, script: ScriptModel, run: Run) -> None:
        self.script, self.run = script, run

    def of(self, node: ast.expr, module: Module, scope: Scope, far: int = 0) -> list[SlotValue]:
        """The elements of a list, or the values of a dictionary; none where they are not all seen."""
        if far > _DEEPEST:
            return []
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return [(one, module, scope) for one in node.elts if not isinstance(one, ast.Starred)]
        if isinstance(node, ast.Dict):
            return [(one, module, scope) for one in node.values]
        if isinstance(node, _COMPREHENSIONS):
            return [(node.elt, module, scope)]
        if isinstance(node, ast.DictComp):
            return [(node.value, module, scope)]
        if isinstance(node, ast.Name):
            return self._of_name(node, None, module, scope, far + 1)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "values" and not node.args:
                return self.of(node.func.value, module, scope, far + 1)
            if dotted(node.func) in _SAME and len(node.args) == 1:
                return self.of(node.args[0], module, scope, far + 1)
            return [
                contained
                for function, results in self.run(node, module, scope)
                for result in results
                for contained in self.of(result, function.module, function.scope, far + 1)
            ]
        return []

    def stacked(self, node: ast.expr, module: Module, scope: Scope) -> tuple[list[ast.expr], bool]:
        """What is put into one tensor, as `torch.stack([a, b])`, and whether it comes from a dictionary.

        Of a list that a loop fills nothing: its entries can be those of one sample each.
        """
        stacks = isinstance(node, ast.Call) and (dotted(node.func) or "").startswith(
            ("torch.stack", "torch.cat")
        )
        given = node.args[0] if stacks and isinstance(node, ast.Call) and node.args else None
        if isinstance(given, ast.Call) and dotted(given.func) in ("list", "tuple") and len(given.args) == 1:
            given = given.args[0]
        named = (
            isinstance(given, ast.Call)
            and isinstance(given.func, ast.Attribute)
            and given.func.attr == "values"
        )
        if named:
            given = given.func.value  # type: ignore[union-attr]
        if isinstance(given, ast.Name) and (owner := scope.resolve(given.id)) is not None:
            made = [one for stmt in owner.node.body for one in module.tree.assigned_in(stmt, given.id)]
            given = made[0].value if len(made) == 1 and isinstance(made[0], ast.Assign) else None
        if isinstance(given, _COMPREHENSIONS) and isinstance(given.elt, ast.Call):
            return ([given.elt] if self.parts_called(given.elt, module, scope) else []), named
        return list(given.values if isinstance(given, ast.Dict) else getattr(given, "elts", [])), named

    def under(self, node: ast.Subscript, module: Module, scope: Scope) -> list[SlotValue]:
        """What a dictionary holds under a constant: `found["box"]`; none where that is not seen."""
        if not isinstance(node.slice, ast.Constant) or not isinstance(node.slice.value, str):
            return []
        return self._under(node.value, node.slice.value, module, scope, 0)

    def _under(self, base: ast.expr, key: str, module: Module, scope: Scope, far: int) -> list[SlotValue]:
        if far > _DEEPEST:
            return []
        if isinstance(base, ast.Dict):
            pairs = zip(base.keys, base.values, strict=True)
            return [
                (one, module, scope) for known, one in pairs if known is not None and is_constant(known, key)
            ]
        if isinstance(base, ast.Name):
            return self._of_name(base, key, module, scope, far + 1)
        if isinstance(base, ast.Call):
            return [
                contained
                for function, results in self.run(base, module, scope)
                for result in results
                for contained in self._under(result, key, function.module, function.scope, far + 1)
            ]
        return []

    def _of_name(
        self, name: ast.Name, key: str | None, module: Module, scope: Scope, far: int
    ) -> list[SlotValue]:
        """What a function puts into a container under a name, or under a key of it: at once, or bit by bit."""
        owner = scope.resolve(name.id)
        if owner is None or owner.takes(name.id):
            return []
        found: list[SlotValue] = []
        for stmt in owner.nodes:
            if isinstance(stmt, ast.Assign):
                for target in stmt.targets:
                    found += self._assigned(target, stmt.value, name.id, key, module, owner, far)
            elif isinstance(stmt, ast.AugAssign) and key is None and dotted(stmt.target) == name.id:
                found += self.of(stmt.value, module, owner, far)
            elif isinstance(stmt, ast.Call) and key is None and isinstance(stmt.func, ast.Attribute):
                if dotted(stmt.func.value) == name.id and stmt.args:
                    if stmt.func.attr == "append":
                        found.append((stmt.args[0], module, owner))
                    elif stmt.func.attr in ("extend", "update"):
                        found += self.of(stmt.args[0], module, owner, far)
        return found

    def _assigned(
        self,
        target: ast.expr,
        value: ast.expr,
        name: str,
        key: str | None,
        module: Module,
        owner: Scope,
        far: int,
    ) -> list[SlotValue]:
        """What an assignment puts into the container, be it the whole of it or an entry."""
        if isinstance(target, ast.Subscript):
            if dotted(target.value) != name or (key is not None and not is_constant(target.slice, key)):
                return []
            return [(value, module, owner)]
        if isinstance(target, ast.Name) and target.id == name:
            whole = [(value, module, owner)]
        elif isinstance(target, (ast.Tuple, ast.List)):
            at = next((i for i, t in enumerate(target.elts) if dotted(t) == name), None)
            whole = list(self._unpacked(value, at, module, owner)) if at is not None else []
        else:
            return []
        if key is not None:
            return [one for part, home, around in whole for one in self._under(part, key, home, around, far)]
        return [one for part, home, around in whole for one in self.of(part, home, around, far)]

    def _unpacked(self, value: ast.expr, at: int, module: Module, scope: Scope) -> Iterator[SlotValue]:
        """What is at a place of a tuple that is unpacked."""
        if isinstance(value, ast.Tuple) and at < len(value.elts):
            yield value.elts[at], module, scope
        elif isinstance(value, ast.Call):
            for function, results in self.run(value, module, scope):
                for result in results:
                    for part in parts_of(result, function.module.tree, function.scope)[at : at + 1]:
                        if part is not None:
                            yield part, function.module, function.scope

    def gone_through(self, name: ast.Name, module: Module) -> ast.expr | None:
        """The container that the comprehension or loop around a name iterates over under it: the nearest one."""
        inner: ast.AST = name
        for node in module.tree.ancestors(name):
            if isinstance(node, (*_COMPREHENSIONS, ast.DictComp)):
                for generator in node.generators:
                    if name.id in target_names(generator.target) and inner is not generator:
                        return _stepped(generator.target, generator.iter, name.id)
            elif (
                isinstance(node, ast.For) and inner is not node.iter and name.id in target_names(node.target)
            ):
                return _stepped(node.target, node.iter, name.id)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                return None
            inner = node
        return None

    def is_of_comprehension(self, name: ast.Name, module: Module) -> bool:
        """Whether it is a comprehension that binds a name, which hides what the function assigns to it."""
        return any(
            isinstance(node, (*_COMPREHENSIONS, ast.DictComp))
            and any(name.id in target_names(generator.target) for generator in node.generators)
            for node in module.tree.ancestors(name)
        )

    def parts_called(self, call: ast.Call, module: Module, scope: Scope) -> set[Value]:
        """The parts of a ModuleList or the like that a call can run: `part(x)`, `self.parts[i](x)`, `part[0](x)`."""
        func, container = call.func, None
        while isinstance(func, ast.Subscript):
            func = container = func.value
        if isinstance(func, ast.Name) and (through := self.gone_through(func, module)) is not None:
            container = through
        if container is None:
            return set()
        queue = list(self.script.interpreter.evaluate(module, scope, container))
        found: set[Value] = set()
        for one in queue:  # which grows
            if isinstance(one, Entity) and one.kind == v.MODEL and one.cls is None:
                parts = one.link("parts") - found
                found |= parts
                queue += parts
        return {one for one in found if isinstance(one, Entity) and one.cls is not None}


def _stepped(target: ast.expr, iterated: ast.expr, name: str) -> ast.expr | None:
    """What a loop's name iterates over: `losses` in `for i, (w, loss) in enumerate(zip(weights, losses))`."""
    if isinstance(target, ast.Name):
        return iterated
    if not isinstance(target, (ast.Tuple, ast.List)) or not isinstance(iterated, ast.Call):
        return None
    at = next((i for i, part in enumerate(target.elts) if name in target_names(part)), None)
    called = dotted(iterated.func)
    if at is None:
        return None
    if called == "enumerate" and at == 1 and iterated.args:
        return _stepped(target.elts[1], iterated.args[0], name)
    if called == "zip" and at < len(iterated.args):
        return _stepped(target.elts[at], iterated.args[at], name)
    items = isinstance(iterated.func, ast.Attribute) and iterated.func.attr == "items" and not iterated.args
    return iterated.func.value if items and at == 1 and isinstance(iterated.func, ast.Attribute) else None
