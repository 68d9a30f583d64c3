"""Classes of the project that derive from a library's: from an Accelerator, from the wrapper around a model."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from accelify.heap.accelerator import STATES, accelerator_method, begin, is_accelerate
from accelify.heap.loaders import loader_made
from accelify.heap.misuse import WRAPPERS
from accelify.heap.models import may_be_model
from accelify.heap.process_groups import wrapped
from accelify.heap.run import Run
from accelify.heap.values import Class, Function, Instance, Library, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

MODULE = "torch.nn.Module"


def library_base(run: Run, cls: Class) -> tuple[str, str]:
    """The class of a library that a class derives from, and the kind of its objects: of several the first that says a
    kind."""
    names = []
    for one in cls.line_up():
        if isinstance(one, Library):
            word = is_accelerate(one.name)
            if word in STATES:
                run.at_model = run.at_model or one.name.startswith("accelerate.")
                return f"accelify.runtime.{word}", "accelerator"
            name = run.knowledge.canonical(one.name)
            row = run.knowledge.row(name)
            if name == MODULE or MODULE in run.knowledge.bases(name):
                return name, "module"
            if name in WRAPPERS or (row is not None and row.kind):
                return name, (row.kind if row is not None else "") or "object"
            names.append(name)
    unread = next((name for name in names if may_be_model(run, cls, name)), None)
    return (unread, "module") if unread is not None else (names[0] if names else "", "object")


def is_wrapper(ref: Instance) -> bool:
    """Whether an object is a wrapper around a model, of a class of the project's."""
    return ref.cls is not None and ref.type in WRAPPERS


def begun(
    run: Run, ref: Instance, keywords: Mapping[str, Value], node: ast.AST, args: Sequence[Value] | None = None
) -> None:
    """What the library's class does as an object begins; with `args` where it is known what it gets."""
    if ref.kind == "accelerator":
        begin(run, ref.type.rpartition(".")[2], keywords, node)
    elif ref.kind == "loader" and args is not None:
        loader_made(run, ref, args, keywords, node)
    elif is_wrapper(ref) and args is not None and run.checks:
        made = wrapped(run, ref.type, args, keywords, node)
        ref.wrapped = next((one.wrapped for one in made.of(Instance)), ref.wrapped)
        ref.kind, ref.prepared = "module", ref.wrapped is not None


def of_library(
    run: Run,
    receiver: Value,
    name: str,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
    node: ast.AST,
) -> Value | None:
    """A call of a method that such a library's class has, by `super()`; None for any other."""
    for ref in receiver.of(Instance):
        if name == "__init__":
            begun(run, ref, keywords, node, args)
        elif ref.kind == "accelerator":
            return accelerator_method(run, ref, name, args, keywords, node)
    return None


def made_by(
    engine: Interpreter,
    cls: Class,
    name: str,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
    node: ast.AST,
) -> Value | None:
    """An object that a class of the project makes by a method of a library's that it derives from, of which nothing is
    known but its class: `Net.from_pretrained(path)`; None for another method."""
    run, (base, kind) = engine.run, library_base(engine.run, cls)
    row = run.knowledge.row(f"{base}.{name}") if base else None
    if row is None or row.transfer != "new" or row.returns != base:
        return None
    engine.calls.libraries.call(f"{base}.{name}", args, keywords, node)
    ref = run.allocate((node, cls), lambda: Instance(cls, base, kind))
    run.place(ref, run.shared_loops())
    inits = (run.read(one, "__init__") for one in cls.line_up() if isinstance(one, Class))
    init = next((found for one in inits if one is not None for found in one.of(Function)), None)
    if init is not None:
        # What it is handed beside is for the constructor, all else comes from the file.
        names = {one.arg for one in (*init.node.args.args, *init.node.args.kwonlyargs)}
        given = {word: value for word, value in keywords.items() if word in names}
        engine.calls.call_function(init, [Value(refs=(ref,))], given, node)
    return Value(refs=(ref,))
