"""Classes whose constructor only stores its arguments: data classes, named tuples and namespaces.

@dataclass
class State:
    model: nn.Module
    optimizer: Optimizer

state = State(model, optimizer)      # state.model, state.optimizer
"""

from __future__ import annotations

import ast

from accelify.analysis.syntax import dotted, text_of
from accelify.analysis.values import Class, Entity

_MARKS = frozenset(
    "dataclass dataclasses.dataclass attr.s attr.attrs attr.define attrs.define define".split()
)
_BASES = frozenset({"typing.NamedTuple", "pydantic.BaseModel"})
# Classes that store their keywords as attributes.
NAMESPACES = frozenset({"types.SimpleNamespace", "argparse.Namespace", "easydict.EasyDict", "munch.Munch"})
NAMED_TUPLE = "collections.namedtuple"
# What one makes.
NAMED = f"{NAMED_TUPLE}()"


def fields_of(cls: Class) -> list[str]:
    """The fields that a class without `__init__` takes, in their order; none where it is no record."""
    if not (cls.external_bases() & _BASES or any(map(_is_marked, cls.ancestry()))):
        return []
    found: list[str] = []
    for one in reversed(cls.ancestry()):
        for stmt in getattr(one.scope.node, "body", []):
            if isinstance(stmt, ast.AnnAssign) and isinstance(stmt.target, ast.Name):
                if "ClassVar" not in text_of(stmt.annotation) and stmt.target.id not in found:
                    found.append(stmt.target.id)
    return found


def is_record(entity: Entity) -> bool:
    """Whether an object stores its arguments, by a generated constructor."""
    if entity.cls is None:
        return entity.qualname in NAMESPACES or entity.qualname == NAMED
    return entity.cls.method("__init__") is None and bool(fields_of(entity.cls))


def _is_marked(cls: Class) -> bool:
    return any(
        (dotted(one.func if isinstance(one, ast.Call) else one) or "") in _MARKS
        for one in getattr(cls.scope.node, "decorator_list", [])
    )


def names_given(call: ast.Call) -> list[str]:
    """The fields in `namedtuple("Parts", "model optimizer")`, or in a list of texts; none where they are not seen."""
    written = call.args[1] if len(call.args) > 1 else None
    if isinstance(written, ast.Constant) and isinstance(written.value, str):
        return written.value.replace(",", " ").split()
    if isinstance(written, (ast.List, ast.Tuple)):
        return [e.value for e in written.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
    return []
