"""Parameters of models: what gives them, and whose an optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator

from accelify.heap.run import Run
from accelify.heap.values import (
    NONE,
    PARAMETER,
    TENSOR,
    Bound,
    Container,
    Instance,
    Iterable,
    Ref,
    Value,
    constant,
)

# Set on a model of whose parameters an optimizer is made, and on an optimizer of others that are in no model.
STEPPED, LOOSE = "#stepped", "#loose"
_PARAMETER = "parameter"
_DEEPEST_GROUP = 6


def is_parameters(ref: Ref) -> bool:
    """Whether it is what `model.parameters()` gives."""
    return isinstance(ref, Instance) and ref.kind == "parameters"


def is_parameter(ref: Ref) -> bool:
    """Whether it is one of the parameters of a model."""
    return isinstance(ref, Bound) and ref.method == _PARAMETER


def parameter_of(value: Value) -> Value:
    """One of the parameters of a model."""
    return Value(refs=(Bound(value, _PARAMETER),), type=TENSOR)


def owners(run: Run, parameters: Value, depth: int = 0) -> Iterator[Instance]:
    """The models whose parameters an optimizer is given: as they are, in lists, in groups, or one after the other."""
    for ref in parameters.refs if depth < _DEEPEST_GROUP else ():
        inner: list[Value | None] = []
        if is_parameters(ref):
            yield from (run.read(ref, "#of") or NONE).of(Instance)
        elif is_parameter(ref) and isinstance(ref, Bound):
            inner = [ref.receiver]
        elif isinstance(ref, Container):
            inner = [value for name, value in ref.looked_into().items() if name.startswith("[")]
        elif isinstance(ref, Instance | Iterable):
            inner = [run.read(ref, "#over") if isinstance(ref, Instance) else ref.item]
        for value in inner:
            yield from owners(run, value, depth + 1) if value is not None else ()


def has_own_parameters(run: Run, ref: Instance) -> bool:
    """Whether an object gives its parameters where it is asked for them: a model or, of a script that is written for
    several processes, what a library calls like one, such as a loss with centers."""
    if ref.kind == "module":
        return True
    of_library = run.checks and ref.kind == "object" and ref.cls is None
    return of_library and run.knowledge.method(ref.type, "__call__") is not None


def optimizer_made(run: Run, optimizer: Instance, parameters: Value) -> None:
    """Note on models, and on an optimizer, whose parameters it steps.

    Args:
        run: the run.
        optimizer: as it is made.
        parameters: what it gets.
    """
    for model in owners(run, parameters):
        run.store.set(model, STEPPED, constant(True))
    run.store.set(optimizer, LOOSE, constant(True) if _has_loose(run, parameters) else None)


def _has_loose(run: Run, parameters: Value, depth: int = 0) -> bool:
    """Whether some parameters are of no model: made by themselves, or those of a library's object beside models'."""
    if parameters.type == PARAMETER:
        return True
    inner = [
        value
        for ref in parameters.of(Container)
        for name, value in ref.looked_into().items()
        if name.startswith("[")
    ]
    inner += [value for ref in parameters.of(Instance) if (value := run.read(ref, "#over")) is not None]
    beside = (model for value in inner for model in owners(run, value))
    return any(model.kind == "object" for model in beside) or (
        depth < _DEEPEST_GROUP and any(_has_loose(run, value, depth + 1) for value in inner)
    )
