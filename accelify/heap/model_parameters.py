"""Parameters of models: what gives them, and whose an optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator

from accelify.heap.run import Run
from accelify.heap.values import NONE, TENSOR, Bound, Container, Instance, Iterable, Ref, Value

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
