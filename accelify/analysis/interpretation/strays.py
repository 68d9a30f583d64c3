"""Values assumed for a parameter before its callers were known: removed once they are.

So are the parameters of functions that nobody calls where they are passed on next to known values:

    def train_plainly(self, model): self.train(model, False)    (called by nobody)
    trainer.train(Net(), True)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from accelify.analysis import values as v
from accelify.analysis.values import Class, Entity, Imported, Mapping, Sequence, Values

if TYPE_CHECKING:
    from accelify.analysis.interpretation.interpreter import Interpreter


def drop_strays(interpreter: Interpreter) -> None:
    """Forget the `Entity` objects that represent parameters which, as it turned out, get an argument.

    A function may be looked at before the call that passes it a model is understood; its parameter then has no known
    argument, and an object made from it (an optimizer) would refer to that placeholder as well as to the model.
    """
    strays: set[object] = set()
    for owner, name in interpreter.variables:
        stray = interpreter.entities.get((owner.node, ("parameter", name)))
        if isinstance(stray, Entity) and stray.kind not in (v.DEVICE, v.FLAG):
            contained = interpreter.variables[owner, name]
            if contained - {stray}:
                strays.add(stray)
    strays |= _handed_on_by_idle(interpreter)
    if not strays:
        return
    for contained in _sets(interpreter):
        if len(contained - strays) < len(contained):
            contained -= strays


def _handed_on_by_idle(interpreter: Interpreter) -> set[Entity]:
    """Parameters of functions that nobody calls which reach a function only where a known argument does, too."""
    idle: dict[Entity, list[Values]] = {}
    for (owner, name), contained in interpreter.variables.items():
        if owner.kind != "function" or name not in [a.arg for a in owner.parameters()]:
            continue
        for value in contained:
            if (
                isinstance(value, Entity)
                and value.kind not in (v.DEVICE, v.FLAG)
                and _is_of_idle(interpreter, value)
            ):
                idle.setdefault(value, []).append(contained)
    found = {entity for entity, sets in idle.items() if all(contained - idle.keys() for contained in sets)}
    if not found or _looks_up_functions(interpreter):
        return set()
    named: set[object] = set()
    for module in interpreter.program.modules.values():
        named |= {n.id for n in module.tree.nodes(ast.Name)} | {
            n.attr for n in module.tree.nodes(ast.Attribute)
        }
        named |= {n.value for n in module.tree.nodes(ast.Constant) if isinstance(n.value, str)}
    return {entity for entity in found if getattr(entity.site, "name", "") not in named}


def _looks_up_functions(interpreter: Interpreter) -> bool:
    """Whether functions of the program may be called by names that are built at run time."""
    for module in dict.fromkeys(interpreter.program.modules.values()):
        for call in module.tree.nodes(ast.Call):
            called = call.func.id if isinstance(call.func, ast.Name) else ""
            if called in ("eval", "exec", "globals", "locals"):
                return True
            if called == "getattr" and not any(isinstance(a, ast.Constant) for a in call.args[1:2]):
                contained = interpreter.evaluate(module, module.scopes.of(call), call.args[0])
                if not any(isinstance(w, Imported) for w in contained):
                    return True
    return False


def _is_of_idle(interpreter: Interpreter, entity: Entity) -> bool:
    """Whether an `Entity` represents a parameter of a plain function that nobody calls."""
    site = entity.site
    if not isinstance(site, (ast.FunctionDef, ast.AsyncFunctionDef)) or entity.module is None:
        return False
    scope = entity.module.scopes.for_definition(site)
    if site.decorator_list or site.name.startswith("__") or interpreter.callers.get(scope):
        return False
    # A library may call the methods of a class that is derived from a class of the library.
    cls = interpreter.entities.get((scope.owner_class, "class")) if scope.is_method else None
    return not scope.is_method or (isinstance(cls, Class) and not cls.external_bases() - {"builtins.object"})


def _sets(interpreter: Interpreter) -> Iterator[Values]:
    yield from interpreter.variables.values()
    yield from interpreter.returns.values()
    yield from (found for found, _ in interpreter._memo.values())
    for value in interpreter.entities.values():
        if isinstance(value, Entity):
            yield from value.links.values()
            yield from value.attributes.values()
        elif isinstance(value, Sequence):
            yield from value.elements
            yield value.rest
        elif isinstance(value, Mapping):
            yield from value.entries.values()
            yield value.rest
    for cls in interpreter.classes():
        yield from cls.attributes.values()
