"""Names and attributes that some processes alone have: which the others end with where they use them."""

from __future__ import annotations

import ast
import builtins

from accelify.domains.placement import own
from accelify.heap.run import Run
from accelify.heap.values import (
    MAIN_FLAG,
    ONE_FLAG,
    ONLY,
    OTHERS_FLAG,
    Class,
    Instance,
    Ref,
    Value,
    constant,
)

_FLAGS = {"main": MAIN_FLAG, "others": OTHERS_FLAG, "one": ONE_FLAG}


def meet_unbound(run: Run, owner: Ref, name: str, node: ast.AST) -> None:
    """A name is used that some processes have alone: named once for each time that it is bound."""
    _meet(run, owner, name, node, f"`{name}` is bound on some processes only", "a NameError")


def meet_unset(run: Run, base: Value, name: str, node: ast.AST) -> None:
    """An attribute is used that some processes alone have set, of an object of which all is known."""
    for ref in (
        base.of(Instance) if len(base.refs) == 1 and isinstance(getattr(node, "ctx", None), ast.Load) else ()
    ):
        if f"{ONLY}{name}" in ref.fields and _is_known(run, ref, name):
            _meet(
                run,
                ref,
                name,
                node,
                f"`{run.segment(node)}` is set on some processes only",
                "an AttributeError",
            )


def _meet(run: Run, owner: Ref, name: str, node: ast.AST, text: str, error: str) -> None:
    run.depends()
    only = run.read(owner, f"{ONLY}{name}")
    if only is None or hasattr(builtins, name) or any(guard.parts_ranks for guard in run.guards):
        return
    run.store.set(owner, f"{ONLY}{name}", None)
    run.meet("misuse", node, f"{text}, and the others end here with {error}", [only], detail="same")


def _is_known(run: Run, ref: Instance, name: str) -> bool:
    """Whether nothing but the object itself can have an attribute."""
    line = ref.cls.line_up() if ref.cls is not None else []
    return bool(line) and all(
        isinstance(one, Class) and run.read(one, name) is None and run.read(one, "__getattr__") is None
        for one in line
    )


def has_attribute(run: Run, base: Value, name: Value) -> Value | None:
    """What `hasattr` says of a wrapper's model, or of what some processes alone have set; None of anything else."""
    objects = base.of(Instance)
    if name.const == "module" and base.refs and all(ref.prepared for ref in objects):
        return constant(True)
    for ref in objects:
        only = run.read(ref, f"{ONLY}{name.const}")
        if only is not None:
            return Value(own(), only.why, type=_FLAGS[only.type])
    return None
