"""Questions for the class of an object, which a wrapper around a model and a move to the device answer differently."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from accelify.heap.containers import elements
from accelify.heap.counts import names_of
from accelify.heap.misuse import splits
from accelify.heap.run import Run
from accelify.heap.values import DEVICE, WRAPPER, Class, Container, Instance, Library, Value, constant

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

Args = Sequence[Value]
Keywords = Mapping[str, Value]
_TUPLE = "tuple"
_OF_CPU = re.compile(r"torch\.[A-Z]\w+Tensor")


def is_instance(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    """What `isinstance` answers."""
    of_class(engine.run, args, node)
    if len(args) == 2 and engine.run.checks:
        names = names_of(engine.run, args[1])
        modules = [ref for ref in args[0].of(Instance) if ref.kind == "module"]
        if WRAPPER in names and len(modules) == len(args[0].refs) == 1:
            return constant(modules[0].prepared)
        several = [ref for ref in args[0].of(Container) if ref.type == "tuple"]
        if _TUPLE in names and len(several) == len(args[0].refs) > 0:
            return constant(True)  # what `prepare(*objects)` gives
    asked = args[1].refs if len(args) == 2 and not engine.run.checks else ()
    if asked and all(splits(engine.run, ref) for ref in asked):
        # A conversion takes them out, all but those of the project's own classes.
        owned = [ref.cls for ref in args[0].of(Instance) if ref.cls is not None]
        if not any(splits(engine.run, cls) for cls in owned):
            return constant(False)
    return Value(type="builtins.bool")


def type_of(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    """What `type` answers."""
    if len(args) != 1:
        return None
    of_class(engine.run, args, node)
    wrapped = engine.run.checks and args[0].refs and all(ref.prepared for ref in args[0].of(Instance))
    if wrapped and all(getattr(ref, "kind", "") == "module" for ref in args[0].refs):
        return Value(type=WRAPPER)
    return engine.attributes.read(args[0], "__class__", node)


def of_class(run: Run, args: Sequence[Value], node: ast.AST) -> None:
    """A question for a class in a converted script, by `isinstance` or `type`: of a model that several processes wrap,
    or for one of the CPU's types of what lies on the device."""
    if run.checks or not args:
        return
    kinds = [ref for value in args[1:] for one in [value, *(elements(run, value) or [])] for ref in one.refs]
    names = [ref.name for ref in kinds if isinstance(ref, Library)]
    of_gpu = any(name.startswith("torch.cuda.") for name in names)
    if args[0].where == DEVICE and any(map(_OF_CPU.fullmatch, names)) and not of_gpu:
        text = f"`{run.segment(node)}` asks what lies on the device for a type of the CPU"
        run.meet("misuse", node, text, detail="one device")
    models = [
        ref for ref in args[0].refs if isinstance(ref, Instance) and ref.kind == "module" and ref.prepared
    ]
    inner = [one for ref in models if ref.wrapped is not None for one in ref.wrapped.of(Instance)]
    owned = {
        cls for one in inner if one.cls is not None for cls in one.cls.line_up() if isinstance(cls, Class)
    }
    loaders = [ref for ref in args[0].of(Instance) if ref.kind == "loader" and ref.prepared]
    if loaders and len(loaders) == len(args[0].refs) and len(args) == 1:
        text = f"`{run.segment(node)}` asks for the class of a prepared loader, which is another one; use isinstance"
        run.meet("misuse", node, text, detail="wrapper")
    if models and len(models) == len(args[0].refs) and (owned & set(kinds) or len(args) == 1):
        text = (
            f"`{run.segment(node)}` asks for the class of a model in a wrapper; use accelerator.unwrap_model"
        )
        run.meet("misuse", node, text, detail="wrapper")
