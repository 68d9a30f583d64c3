"""Parameters of functions: what a call writes to them."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from accelify.heap.containers import container, put, tuple_of
from accelify.heap.joining import join
from accelify.heap.run import Run
from accelify.heap.values import NONE, UNSET, Class, Function, Ref, Scope, Value, written_arguments

# The name of the arguments of `**x` of which nothing is known.
SPREAD = "**"


def fitting(
    run: Run, called: Sequence[Ref], number: int, keywords: Mapping[str, Value], node: ast.AST
) -> Sequence[Ref]:
    """Those of several that a call may be of: the ones that take its arguments, where any does.

    Args:
        run: the run.
        called: what may be called.
        number: how many arguments are there by their place.
        keywords: the others.
        node: the call.
    """
    if len(called) < 2 or any(isinstance(arg, ast.Starred) for arg in written_arguments(node)):
        return called
    found = []
    for ref in called:
        function, more = ref, 0
        if isinstance(ref, Class):
            line = (run.read(one, "__init__") if isinstance(one, Class) else NONE for one in ref.line_up())
            init = next((one for one in line if one is not None), NONE)
            function, more = next(iter(init.of(Function)), ref), 1
        if not isinstance(function, Function) or _takes(function, number + more, keywords):
            found.append(ref)
    return found or called


def _takes(function: Function, number: int, keywords: Mapping[str, Value]) -> bool:
    if function.decorators:
        return True
    of = function.node.args
    places = [arg.arg for arg in [*of.posonlyargs, *of.args]]
    words = {arg.arg for arg in [*of.args, *of.kwonlyargs]}
    named = keywords.keys() - {SPREAD}
    if (number > len(places) and of.vararg is None) or (of.kwarg is None and not named <= words):
        return False
    lacking = {*places[number:], *(arg.arg for arg in of.kwonlyargs)} - named - function.defaults.keys()
    return named.isdisjoint(places[:number]) and (not lacking or SPREAD in keywords)


def bind_parameters(
    run: Run, function: Function, args: Sequence[Value], keywords: Mapping[str, Value], scope: Scope
) -> None:
    """Write the arguments of a call to the parameters of a function, in the scope of the call."""
    parameters = function.node.args
    names = [arg.arg for arg in [*parameters.posonlyargs, *parameters.args]]
    store = run.store
    for name, value in function.defaults.items():
        store.set(scope, name, value)
    for name, value in zip(names, args, strict=False):
        store.set(scope, name, value.plain())
    if names and args and args[0].refs and names[0] in ("self", "cls"):
        store.set(scope, "#self", args[0])
    more = list(args[len(names) :])
    known = {*names, *(arg.arg for arg in parameters.kwonlyargs)}
    rest: dict[str, Value] = {}
    for name, value in keywords.items():
        if name in known:
            store.set(scope, name, value.plain())
        else:
            rest[name] = value
    if parameters.vararg is not None:
        store.set(scope, parameters.vararg.arg, tuple_of(run, more))
    if parameters.kwarg is not None:
        named = container(run, "dict")
        for name, value in rest.items():
            put(run, named, value, UNSET if name == SPREAD else name)
        store.set(scope, parameters.kwarg.arg, Value(refs=(named,), type="dict"))
    spread = keywords.get(SPREAD)
    for name in known - set(list(names)[: len(args)]) - set(keywords):
        before = scope.fields.get(name)
        if spread is not None:
            store.set(scope, name, spread if before is None else join(before, spread))
        elif before is None:
            store.set(scope, name, Value())
