"""Objects of modules that are not converted which store models, and save and load their weights by themselves.

class Keeper:
    def register(self, **models):          self.held.update(models)
    def save(self, path):                  torch.save({name: m.state_dict() for name, m in self.held.items()}, path)
    def load(self, path):                  for name, m in self.held.items(): m.load_state_dict(torch.load(path)[name])
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass

from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, target_names, walk
from accelify.analysis.values import Entity

_GIVING = "state_dict"
_TAKING = "load_state_dict"
_KEEPING = frozenset({"update", "append", "extend", "add"})


@dataclass(frozen=True, eq=False)
class Keeping:
    """A call that passes such an object a model.

    Attributes:
        call: the script's call: `keeper.register(net=net)`.
        model: what it passes.
        callee: the method that takes it.
        module: where the class is.
        saving: where the class asks the models for their weights, None where it saves none.
        loading: where it gives them some out of a file, None where it loads none.
        loads: the methods that lead there.
    """

    call: ast.Call
    model: ast.expr
    callee: Scope
    module: Module
    saving: ast.Call | None
    loading: ast.Call | None
    loads: frozenset[Scope]


def keeping_objects(script: ScriptModel, models: Set[Entity]) -> Iterator[Keeping]:
    """The calls of a script that pass a model to an object which stores it, and saves or loads its weights."""
    others = {
        m
        for m in script.program.modules.values()
        if m not in script.modules and m.tree.mentions(b"state_dict")
    }
    for call in script.calls() if others and models else ():
        for callee in in_order(script.callees(call)):
            module = script.interpreter.module_of(callee)
            if module not in others or not callee.is_method or callee.parent is None:
                continue
            for argument, name in handed_to(call, callee):
                bare = isinstance(argument, ast.Attribute) and argument.attr == "module"
                contained = set() if bare else script.models_of(argument)
                retained = _stored_under(callee, name) if contained and contained <= models else set()
                if retained:
                    yield from _of_class(script, call, argument, callee, module, retained)


def _of_class(
    script: ScriptModel, call: ast.Call, model: ast.expr, callee: Scope, module: Module, retained: set[str]
) -> Iterator[Keeping]:
    assert callee.parent is not None
    methods = list(callee.parent.children.values())
    if any(map(_minds, walk(callee.parent.node))):
        return
    saving = next((n for method in methods for n in _asked(method, retained, _GIVING)), None)
    sites = {method: site for method in methods for site in _asked(method, retained, _TAKING)}
    loads, before = set(sites), 0
    while len(loads) > before:
        before = len(loads)
        calls = script.interpreter.calls
        loads |= {m for m in methods if any(calls.get(n, set()) & loads for n in m.calls)}
    saving = saving if module.tree.mentions(b"torch.save") else None
    loading = next(iter(sites.values()), None) if module.tree.mentions(b"torch.load") else None
    if saving is not None or loading is not None:
        yield Keeping(call, model, callee, module, saving, loading, frozenset(loads))


def _stored_under(callee: Scope, name: str) -> set[str]:
    """The attributes in which a method stores an argument, alone or with others by `**models`."""
    own, rest = callee.self_name(), getattr(getattr(callee.node, "args", None), "kwarg", None)
    given = name if callee.takes(name) or rest is None else rest.arg
    found: set[str] = set()
    for node in callee.nodes:
        if isinstance(node, ast.Assign) and _is_of(node.value, given):
            found |= {path for t in node.targets if (path := _attribute(t, own))}
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPING
        ):
            if any(_is_of(a, given) for a in node.args) and (path := _attribute(node.func.value, own)):
                found.add(path)
    return found


def _is_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _attribute(node: ast.expr, own: str | None) -> str | None:
    """`held` of `self.held`, and of an entry of it."""
    node = node.value if isinstance(node, ast.Subscript) else node
    path = dotted(node) or ""
    return path.removeprefix(f"{own}.") if own is not None and path.startswith(f"{own}.") else None


def _asked(method: Scope, retained: set[str], how: str) -> Iterator[ast.Call]:
    """The calls `m.state_dict()` of a method, of a stored model or of one of those over which a loop iterates."""
    own = method.self_name()
    names: set[str] = set()
    for node in walk(method.node):
        if isinstance(node, (ast.For, ast.comprehension)):
            table = node.iter
            if isinstance(table, ast.Call) and isinstance(table.func, ast.Attribute):
                table = table.func.value
            if _attribute(table, own) in retained:
                names |= set(target_names(node.target))
    for node in walk(method.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == how:
            base = node.func.value
            if (isinstance(base, ast.Name) and base.id in names) or _attribute(base, own) in retained:
                yield node


def _minds(node: ast.AST) -> bool:
    """Whether a node speaks of the prefix."""
    return (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in ("module", "module.")
    )


__all__ = ["Keeping", "keeping_objects"]
