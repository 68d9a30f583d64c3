"""DataParallel in modules that are not converted: `define_net()` of nets.py gives the script a wrapped model.

And `data_parallel(net, x, gpus)` there, which runs the model on the same GPUs in every process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accelify.analysis import knowledge as k
from accelify.analysis.files.effect_sites import asked_for, defaults_of, is_stored
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, hides_arguments, is_constant
from accelify.analysis.values import Class, Entity, Imported

_WORDS = (b"DataParallel", b"data_parallel")


@dataclass(frozen=True, eq=False)
class WrappedElsewhere:
    """A call that wraps models, the function or class around it, and the call of the script that leads there.

    Of a model that is only run so (`data_parallel(net, x)`), `runs` is true.
    """

    wrap: ast.Call
    module: Module
    where: str
    call: ast.Call
    models: frozenset[Entity]
    runs: bool


def wrapped_elsewhere(script: ScriptModel) -> Iterator[WrappedElsewhere]:
    """The DataParallels of other modules that the script reaches, in the order of the script's calls."""
    found = [one for module in _others(script) for one in _of_module(script, module)]
    yield from sorted(found, key=lambda one: (script.tree.start(one.call), one.where, one.wrap.lineno))


def _others(script: ScriptModel) -> list[Module]:
    modules = dict.fromkeys(script.program.modules.values())
    return [m for m in modules if m not in script.modules and any(m.tree.mentions(word) for word in _WORDS)]


def _of_module(script: ScriptModel, module: Module) -> Iterator[WrappedElsewhere]:
    for call in module.tree.nodes(ast.Call):
        scope = module.scopes.of(call)
        kind = _kind(script, module, scope, call) if scope.kind == "function" else None
        if kind is None:
            continue
        if _is_of_wrapped(script, module, scope, call):
            continue
        reached = _first_call(script, scope, asked_for(module, scope, call))
        if reached is not None:
            owner = scope.owner_class
            given = script.interpreter.evaluate(module, scope, call)
            models = frozenset(one for one in given if isinstance(one, Entity))
            where = owner.name if owner is not None else scope.name.rpartition(".")[2]
            yield WrappedElsewhere(call, module, where, reached, models, kind == "run")


def _kind(script: ScriptModel, module: Module, scope: Scope, call: ast.Call) -> str | None:
    """Whether a call makes a wrapper or runs a model on several GPUs: "wrap", "run", or None."""
    if not isinstance(call.func, (ast.Name, ast.Attribute)) or not (call.args or call.keywords):
        return None
    for value in script.interpreter.evaluate(module, scope, call.func):
        if isinstance(value, Imported) and value.name in k.SPLIT_RUNS:
            return "run"
        if isinstance(value, Imported) and value.name in k.PARALLEL_WRAPPERS:
            return "wrap"
        if isinstance(value, Class) and value.only_splits(k.PARALLEL_WRAPPERS):
            return "wrap"
    return None


def _is_of_wrapped(script: ScriptModel, module: Module, scope: Scope, call: ast.Call) -> bool:
    """Whether only a model that is in a DataParallel already is wrapped: `if isinstance(net, nn.DataParallel): ...`."""
    inner: ast.AST = call
    for around in module.tree.ancestors(call):
        test = around.test if isinstance(around, ast.If) and inner in around.body else None
        if isinstance(test, ast.Call) and dotted(test.func) == "isinstance" and len(test.args) == 2:
            kinds = script.interpreter.evaluate(module, scope, test.args[1])
            if any(isinstance(one, Imported) and one.name in k.PARALLEL_WRAPPERS for one in kinds):
                return True
        inner = around
    return False


def _first_call(script: ScriptModel, scope: Scope, asked: str) -> ast.Call | None:
    """The call of the script that a function of another module runs by, itself or through others.

    Calls that do not give what the function asks for first, under the name `asked`, are none; and neither are those of
    the functions between, where these ask for something first.
    """
    queue, seen = [(scope, asked)], {(scope, asked)}
    found: list[ast.Call] = []
    while queue:
        current, wanted = queue.pop(0)
        for module, call in script.interpreter.callers.get(current, []):
            outer = module.scopes.of(call)
            if wanted and _is_without(call, current, wanted):
                continue
            if module in script.modules:
                if outer not in script.dormant:
                    found.append(call)
                continue
            step = outer, asked_for(module, outer, call) or _handed_on(call, current, wanted, outer)
            if outer.kind == "function" and step not in seen:
                seen.add(step)
                queue.append(step)
    first: ast.Call | None = script.tree.first(found)
    return first


def _handed_on(call: ast.Call, scope: Scope, asked: str, outer: Scope) -> str:
    """The parameter of the function around a call that is passed on as the argument that is looked for; or ""."""
    given = next((argument for argument, name in handed_to(call, scope) if name == asked), None)
    named = given.id if isinstance(given, ast.Name) and asked else ""
    return named if outer.takes(named) and not is_stored(outer, named) else ""


def _is_without(call: ast.Call, scope: Scope, asked: str) -> bool:
    """Whether a call leaves a parameter at nothing, in so many words or by its default."""
    if hides_arguments(call):
        return False
    given = defaults_of(scope) | {name: argument for argument, name in handed_to(call, scope)}
    return is_constant(given.get(asked), None, False, 0)


__all__ = ["WrappedElsewhere", "wrapped_elsewhere"]
