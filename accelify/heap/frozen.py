"""Models none of whose parameters is trained: what is prepared of them gets no wrapper."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelify.heap.model_parameters import STEPPED
from accelify.heap.run import Run
from accelify.heap.values import NONE, Container, Instance, Value, constant

# Whether all parameters of a model were frozen last, and what gives it others beside methods for adapters.
_FROZEN = "#frozen"
_GROWING = frozenset({"add_module", "register_module", "register_parameter", "set_attn_processor"})
# What an object holds or goes over.
OVER = "#over"


def note_frozen(run: Run, model: Instance, name: str, args: Sequence[Value]) -> None:
    """A method of a model is called, which may say whether it is trained.

    Args:
        run: the run.
        model: the model.
        name: of the method.
        args: what it gets.
    """
    if name == "requires_grad_":
        run.store.set(model, _FROZEN, constant(bool(args) and args[0].const is False))
    elif "adapter" in name or name in _GROWING:
        run.store.set(model, _FROZEN, None)


def note_loop(run: Run, loop: ast.For | ast.AsyncFor, models: Value) -> None:
    """A loop over the parameters of models freezes them: `for one in model.parameters(): one.requires_grad = False`.

    Args:
        run: the run.
        loop: the loop.
        models: what the parameters are asked of.
    """
    # One that is left early, or goes on to the next, leaves some as they were.
    all_rounds = not any(isinstance(one, ast.Break | ast.Continue | ast.Return) for one in ast.walk(loop))
    for stmt in loop.body:
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
            continue
        target = stmt.targets[0]
        if not isinstance(target, ast.Attribute) or target.attr != "requires_grad":
            continue
        if getattr(target.value, "id", "") != getattr(loop.target, "id", None):
            continue
        frozen = all_rounds and isinstance(stmt.value, ast.Constant) and stmt.value.value is False
        for ref in models.of(Instance):
            note_frozen(run, ref, "requires_grad_", [constant(not frozen)])


def asked_for_parameters(loop: ast.For | ast.AsyncFor) -> ast.expr | None:
    """What a loop goes over the parameters of, where that is a name or an attribute; None for another loop."""
    call = loop.iter
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and not call.args):
        return None
    of = call.func.value if call.func.attr == "parameters" else None
    return of if isinstance(of, ast.Name | ast.Attribute) else None


def may_grow(run: Run, values: Sequence[Value]) -> None:
    """Models are given to a function of which nothing is known: it may put parameters into them that are trained."""
    for ref in [ref for value in values for ref in value.of(Instance)]:
        if ref.kind == "module" and run.read(ref, _FROZEN) is not None:
            run.store.set(ref, _FROZEN, None)


def is_frozen(run: Run, model: Instance) -> bool:
    """Whether all parameters of a model were frozen, and none of them goes to an optimizer."""
    if (run.read(model, _FROZEN) or NONE).const is not True or run.read(model, STEPPED) is not None:
        return False
    run.store.look(model)
    values = [run.read(model, name) or NONE for name in model.fields if name[0] != "#" or name == OVER]
    inside = [one for value in values for ref in value.of(Container) for one in ref.looked_into().values()]
    parts = [one for value in [*values, *inside] for one in value.of(Instance)]
    return not any(
        (run.read(one, _FROZEN) or NONE).const is False or run.read(one, STEPPED) is not None for one in parts
    )
