"""Models that functions run on what is on the host, where nothing moves it: mostly those of other modules.

`extract(model, loader)` of a module of helpers iterates over a loader that is not prepared and runs the model on its
batches. DataParallel moved them to the first GPU; without it nothing does.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Set
from typing import NamedTuple

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.locations import Locations
from accelify.analysis.devices.tensor_makers import DEVICE, HOST, HOST_MAKERS, MAKERS
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_keyword, calls_in, dotted, names_in, target_names
from accelify.analysis.values import Entity, Imported

# Functions of helpers may call others, as far as this.
_DEEPEST = 3
_MOVES = frozenset({"to", "cuda", "to_device"})
# What makes a tensor on the device of the tensor whose method it is.
_STAYING = frozenset(
    "float double half long int view reshape unsqueeze squeeze repeat expand permute requires_grad_".split()
)
_THROUGH = frozenset({"enumerate", "zip", "iter"})
# Methods of a tensor or a loader whose result is no tensor.
_NUMBERS = frozenset("size shape dim numel dtype item tolist numpy dataset batch_size".split())


class HostRun(NamedTuple):
    """A call of the script, the function that it runs elsewhere, and where that runs a model on the host's tensors."""

    call: ast.Call
    callee: Scope
    module: Module
    sites: tuple[ast.Call, ...]


def runs_on_host(
    script: ScriptModel,
    models: Set[Entity],
    prepared: Set[Entity],
    after: Locations,
    runs_after_prepare: Callable[[ast.Call], bool],
) -> Iterator[HostRun]:
    """Calls that pass such a function tensors of the host, or a loader that is not prepared, for some models.

    A function of another module that itself makes a tensor for a model in its arguments is one, too.

    Args:
        script: its model, with the modules that are converted.
        models: the models in question.
        prepared: what prepare places.
        after: where tensors are once it does.
        runs_after_prepare: whether a call runs when the models are prepared.
    """
    makes = _makes_on_host(script)
    known: dict[tuple[Scope, frozenset[str], frozenset[str]], tuple[Scope, list[ast.Call]] | None] = {}
    for call in script.calls():
        for callee in in_order(script.callees(call)):
            given = [(name, argument) for argument, name in handed_to(call, callee)]
            loaders = frozenset(n for n, a in given if _is_unprepared(script, a, prepared))
            tensors = frozenset(
                n for n, a in given if n not in loaders and HOST in after.of(a) and not _is_moved(script, a)
            )
            key = callee, loaders, tensors
            if key not in known:
                asked = bool(loaders or tensors)
                known[key] = _run(script, models, callee, loaders, tensors, _DEEPEST) if asked else None
            found = known[key]
            if found is None and script.interpreter.module_of(callee) not in script.modules:
                stated = {name for name, argument in given if script.models_of(argument) & models}
                if stated and runs_after_prepare(call):
                    found = _runs_what_it_makes(script, callee, stated, makes)
            if found is None:
                continue
            module, sites = script.interpreter.module_of(found[0]), found[1]
            if module in script.modules:
                # What is seen to be on the device by then was moved there by another edit.
                sites = [site for site in sites if not any(after.of(a) == {DEVICE} for a in site.args)]
            if sites:
                yield HostRun(call, callee, module, tuple(sites))
                break


def _makes_on_host(script: ScriptModel) -> Callable[[Module, Scope, ast.expr], bool]:
    """What decides whether an expression makes a tensor on the host: never, where the program sets another default."""
    if any(m.tree.mentions(b"set_default_") for m in script.program.modules.values()):
        return lambda module, scope, node: False

    def makes(module: Module, scope: Scope, node: ast.expr) -> bool:
        """`Variable(torch.zeros(1, 3))`, with methods that move it nowhere."""
        while isinstance(node, ast.Call):
            name = next(
                (
                    w.name
                    for w in script.interpreter.evaluate(module, scope, node.func)
                    if isinstance(w, Imported)
                ),
                "",
            )
            head, _, last = name.rpartition(".")
            if head == "torch" and last in MAKERS | HOST_MAKERS:
                return call_keyword(node, "device") is None
            if name in k.VARIABLE and node.args:
                node = node.args[0]
            elif isinstance(node.func, ast.Attribute) and node.func.attr in _STAYING:
                node = node.func.value
            else:
                return False
        return False

    return makes


def _runs_what_it_makes(
    script: ScriptModel,
    callee: Scope,
    stated: Set[str],
    makes: Callable[[Module, Scope, ast.expr], bool],
) -> tuple[Scope, list[ast.Call]] | None:
    """Where a function runs a model from its arguments, known by some names, on a tensor that it makes on the host."""
    module = script.interpreter.module_of(callee)
    bound: dict[str, list[ast.expr]] = {}
    for node in callee.nodes:
        if isinstance(node, ast.Assign):
            for name in (n for target in node.targets for n in target_names(target)):
                bound.setdefault(name, []).append(node.value)
    calls = callee.calls
    # A model that the function brings to where it needs it, or another one by then.
    other = {*bound} | {
        dotted(c.func.value)
        for c in calls
        if isinstance(c.func, ast.Attribute) and c.func.attr in (*_MOVES, "cpu")
    }
    for call in calls:
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr == "forward":
            func = func.value
        if not isinstance(func, ast.Name) or func.id not in stated or func.id in other:
            continue
        for given in call.args:
            values = bound.get(given.id, []) if isinstance(given, ast.Name) else [given]
            if values and all(makes(module, callee, one) for one in values):
                return callee, [call]
    return None


def _is_unprepared(script: ScriptModel, argument: ast.expr, prepared: Set[Entity]) -> bool:
    loaders = script.entities(argument, v.LOADER)
    return bool(loaders) and not loaders & prepared


def _is_moved(script: ScriptModel, argument: ast.expr) -> bool:
    """Whether a function moves an argument before it passes it on, under a flag: `if cuda: x = x.cuda()`."""
    return isinstance(argument, ast.Name) and any(
        argument.id in {name for target in stmt.targets for name in target_names(target)}
        and _moves(script, stmt.value)
        for stmt in script.scope_of(argument).of_type(ast.Assign)
    )


def _run(
    script: ScriptModel,
    models: Set[Entity],
    scope: Scope,
    loaders: frozenset[str],
    tensors: frozenset[str],
    depth: int,
) -> tuple[Scope, list[ast.Call]] | None:
    """Where a function, or one that it calls, runs a model on arguments known by some names."""
    module = script.interpreter.module_of(scope)
    contained = _contained(script, scope, loaders, tensors)

    def runs(call: ast.Call) -> bool:
        given = [*call.args, *[kw.value for kw in call.keywords]]
        if not any(_is_contained(script, a, contained) for a in given):
            return False
        run = script.interpreter.evaluate(module, scope, call.func)
        return any(isinstance(one, Entity) and one in models for one in run)

    for call in scope.calls:
        if runs(call):
            return scope, [one for one in scope.calls if runs(one)]
        for callee in in_order(script.callees(call)) if depth else ():
            pairs = handed_to(call, callee)
            inner = frozenset(n for a, n in pairs if _is_contained(script, a, contained))
            within = frozenset(n for a, n in pairs if isinstance(a, ast.Name) and a.id in loaders)
            if inner or within:
                found = _run(script, models, callee, within, inner, depth - 1)
                if found is not None:
                    return found
    return None


def _contained(
    script: ScriptModel, scope: Scope, loaders: frozenset[str], tensors: frozenset[str]
) -> set[str]:
    """The names of a function whose tensors are on the host: none that it moves anywhere."""
    contained = set(tensors)
    moved: set[str] = set()
    known = -1
    while known < len(contained) + len(moved):
        known = len(contained) + len(moved)
        for node in scope.of_type(ast.For, ast.AsyncFor, ast.Assign):
            if isinstance(node, (ast.For, ast.AsyncFor)):
                if _goes_through(node.iter, loaders) or _is_contained(script, node.iter, contained):
                    contained.update(target_names(node.target))
            elif isinstance(node, ast.Assign):
                names = {name for target in node.targets for name in target_names(target)}
                if _moves(script, node.value):
                    moved |= names
                elif _is_contained(script, node.value, contained):
                    contained |= names
    return contained - moved


def _goes_through(node: ast.expr, loaders: frozenset[str]) -> bool:
    if isinstance(node, ast.Call):
        name = dotted(node.func) or ""
        return (name in _THROUGH or k.is_progress(name)) and any(_goes_through(a, loaders) for a in node.args)
    return isinstance(node, ast.Name) and node.id in loaders


def _is_contained(script: ScriptModel, node: ast.expr, contained: set[str]) -> bool:
    """Whether an expression passes on a tensor of such a name, as it is or through a function that moves nothing."""
    if isinstance(node, ast.Name):
        return node.id in contained
    if isinstance(node, (ast.Subscript, ast.Starred)):
        return _is_contained(script, node.value, contained)
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(_is_contained(script, e, contained) for e in node.elts)
    if isinstance(node, ast.Attribute):
        return node.attr not in _NUMBERS and _is_contained(script, node.value, contained)
    if not isinstance(node, ast.Call) or contained.isdisjoint(names_in(node)) or _moves(script, node):
        return False
    if isinstance(node.func, ast.Attribute) and _is_contained(script, node.func, contained):
        return True
    return (dotted(node.func) or "").rpartition(".")[2] not in ("len", "range", "type") and any(
        _is_contained(script, a, contained) for a in node.args
    )


def _moves(script: ScriptModel, node: ast.expr) -> bool:
    """Whether an expression moves something to a device, itself or in a function that it calls."""
    calls = calls_in(node)
    inner = [c for call in calls for callee in script.callees(call) for c in calls_in(callee.node)]
    return any(
        (part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")) in _MOVES
        for part in [*calls, *inner]
    )
