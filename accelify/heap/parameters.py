"""Parameters of functions: what a call writes to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accelify.heap.containers import container, put, tuple_of
from accelify.heap.joining import join
from accelify.heap.run import Run
from accelify.heap.values import UNSET, Function, Scope, Value

# The name of the arguments of `**x` of which nothing is known.
SPREAD = "**"


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
