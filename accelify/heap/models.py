"""Models: those that hold others as their parts, and those of which nothing is known but that they are models."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from accelify.heap.builtin_calls import container_method
from accelify.heap.containers import container, element, elements, put
from accelify.heap.frozen import OVER, note_frozen
from accelify.heap.run import Run
from accelify.heap.values import UNSET, Bound, Class, Container, Function, Instance, Library, Value, constant

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

# That an object is a model: True where its parameters are trained.
MODEL = "#model"
_SEQUENCE = "torch.nn.Sequential"
_HOLDERS = frozenset({_SEQUENCE, "torch.nn.ModuleList", "torch.nn.ModuleDict"})
_BASE = "torch.nn.Module"
# Torch's models that have no parameters.
_WITHOUT = re.compile(
    r"torch\.nn\.(?!Adaptive\w*Loss|Linear)(?:\w*(?:[Pp]ool|Dropout|Pad)\dd|\w*Dropout|\w*Loss|(?:Log)?Soft\w+|Hard\w+|Tanh\w*"
    r"|(?:Log)?Sigmoid|SiLU|Mish|R?ReLU6?|LeakyReLU|[CSG]?E?LU|Threshold|(?:Unf|F)old|(?:Unf|F)latten|Identity|Upsampl\w+"
    r"|\w+Shuffle|PixelUnshuffle|CosineSimilarity|PairwiseDistance)"
)
# Those that have no buffers.
_WITHOUT_BUFFERS = re.compile(
    _WITHOUT.pattern
    + r"|torch\.nn\.(?:Linear|Bilinear|Conv(?:Transpose)?\dd|Embedding\w*|LayerNorm|RMSNorm|GroupNorm|LSTM|GRU|RNN"
    r"|PReLU|MultiheadAttention|Transformer\w*|Sequential|ModuleList|ModuleDict)"
    r"|torch_geometric\.nn\.(?:norm\.)?(?:Layer|Graph|Pair)Norm"
)
# Those that have none but where the script asks for statistics over all batches.
_WITHOUT_STATISTICS = re.compile(r"torch\.nn\.InstanceNorm\dd|torch_geometric\.nn\.(?:norm\.)?InstanceNorm")
# Where each class is known that models derive from.
_READ = frozenset({*sys.stdlib_module_names, "torch"})
# Methods that models have, and no metric or table.
SIGNS = frozenset({"parameters", "named_parameters", "train", "eval", "requires_grad_"})
# Those of models alone: some optimizers have modes, too.
_OF_PARAMETERS = frozenset({"parameters", "named_parameters", "requires_grad_"})
# What a model calls before and after its forward: the fields for the functions, and the methods that are given them.
PRE_HOOKS, HOOKS = "#pre-hooks", "#hooks"
# When the wrapper around a model has something to send to the others at a call without gradients, where that is not
# always: layers that put batches together do so in training.
SENDS = "#sends"
ALONE = "no process waits at this call, where no gradients are made"
_HOOKS = {"register_forward_pre_hook": PRE_HOOKS, "register_forward_hook": HOOKS}


def asked(run: Run, model: Instance, name: str, args: Sequence[Value]) -> None:
    """A method of a model is called, which may give it a function to call, or say whether it is trained."""
    note_frozen(run, model, name, args)
    if name in _HOOKS and args:
        known = run.read(model, _HOOKS[name])
        refs = [*(known.refs if known is not None else ()), *args[0].refs]
        found = [ref for ref in refs if isinstance(getattr(ref, "method", ref), Function)]
        run.store.set(model, _HOOKS[name], Value(refs=tuple(dict.fromkeys(found))))


def hold_parts(run: Run, model: Instance, args: Sequence[Value], node: ast.AST) -> None:
    """Note what a model is made of that holds others."""
    if model.type not in _HOLDERS:
        return
    inside = next((ref for value in args[:1] for ref in value.of(Container)), None)
    if inside is None:
        inside = container(run, "dict" if model.type.endswith("Dict") else "list", (node, "parts"))
        for number, value in enumerate(args):
            put(run, inside, value, number)
        run.store.set(inside, "#known", constant(len(args)))
    run.store.set(model, OVER, Value(refs=(inside,)))


def parts(run: Run, value: Value) -> Value | None:
    """The container with the parts of a model that holds others, None for anything else."""
    for ref in value.of(Instance):
        if ref.type in _HOLDERS:
            contained = run.read(ref, OVER)
            if contained is not None:
                for inner in contained.of(Container):
                    mark(run, Value(refs=tuple(part for one in _values(inner) for part in one.refs)))
                return contained
    return None


def _values(ref: Container) -> list[Value]:
    return [value for name, value in ref.looked_into().items() if name.startswith("[")]


def is_prepared(run: Run, model: Instance) -> bool:
    """Whether a model is prepared, or one of the parts that it holds."""
    if model.prepared or run.read(model, "#prepared") is not None:
        return True
    contained = parts(run, Value(refs=(model,)))
    inside = [_values(ref) for ref in contained.of(Container)] if contained is not None else []
    return any(is_prepared(run, part) for each in inside for value in each for part in value.of(Instance))


def mark(run: Run, value: Value, *, trained: bool = False) -> None:
    """Note that objects of which nothing is known are models."""
    for ref in value.of(Instance):
        if ref.kind == "object" and ref.cls is None:
            known = run.read(ref, MODEL)
            if known is None or (trained and known.const is False):
                run.store.set(ref, MODEL, constant(trained))


def may_be_model(run: Run, cls: Class, base: str) -> bool:
    """Whether a class has what models have, and nothing is known of its base."""
    methods = (run.read(one, "forward") for one in cls.line_up() if isinstance(one, Class))
    return _is_unread(run, base) and any(value is not None and value.of(Function) for value in methods)


def _is_unread(run: Run, base: str) -> bool:
    """Whether nothing is known of a class of a package that is not torch or Python's."""
    known = base.partition(".")[0] in _READ or run.knowledge.row(base) or run.knowledge.bases(base)
    return bool(base) and not known


def has_parameters(run: Run, model: Instance) -> bool:
    """Whether a model may have parameters: false where it and all of its parts are known to have none, whatever a base
    class has of which nothing is known."""
    return _may_have(run, model, buffers=False)


def has_buffers(run: Run, model: Instance) -> bool:
    """Whether a model may have buffers: false where it and all of its parts are known to have none."""
    return _may_have(run, model, buffers=True)


def _may_have(run: Run, model: Instance, *, buffers: bool, depth: int = 0) -> bool:
    without, deepest = (_WITHOUT_BUFFERS, 4) if buffers else (_WITHOUT, 2)
    line = model.cls.line_up() if model.cls is not None else []
    bases = [run.knowledge.canonical(ref.name) for ref in line if isinstance(ref, Library)]
    known = [name for name in bases or [model.type] if buffers or not _is_unread(run, name)]
    of_library = model.cls is None and model.type == _BASE  # such as `resnet18()`
    plain = not of_library and all(
        name == _BASE or without.fullmatch(name) or (buffers and _keeps_no_statistics(run, name))
        for name in known
    )
    if not plain or depth > deepest:
        return True
    called = {
        call.func.attr
        for ref in line
        if isinstance(ref, Class)
        for call in ast.walk(ref.node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    }
    run.store.look(model)
    for name in list(model.fields):
        value = run.read(model, name) or Value()
        if name.startswith("#state ") and (value.const == "buffer") == buffers:
            return True
        unknown = (
            value.const is UNSET and not value.type and all(isinstance(ref, Bound) for ref in value.refs)
        )
        if unknown and name in called:
            return True
        inside = (
            [one for ref in value.of(Container) for one in _values(ref)] if name == OVER and buffers else []
        )
        for ref in [one for part in [value, *inside] for one in part.of(Instance)]:
            if name[0] == "#" and not inside:
                continue
            if ref.kind == "object" or (
                ref.kind == "module" and _may_have(run, ref, buffers=buffers, depth=depth + 1)
            ):
                return True
        if name == OVER and buffers and not (inside and all(part.of(Instance) for part in inside)):
            return True
    return False


def _keeps_no_statistics(run: Run, name: str) -> bool:
    return _WITHOUT_STATISTICS.fullmatch(name) is not None and not any(
        "track_running_stats" in one.text for one in run.modules
    )


def has_parameters_of(run: Run, expr: ast.expr) -> bool:
    """Whether the script asks for the parameters of what an expression names, or of a part of it: it is a model."""
    name, tree = ast.unparse(expr), run.module.tree
    return any(
        isinstance(one, ast.Attribute)
        and one.attr in _OF_PARAMETERS
        and f"{ast.unparse(one.value)}.".startswith(f"{name}.")
        for one in (ast.walk(tree) if tree is not None else ())
    )


def part_trained(run: Run, expr: ast.expr) -> str:
    """The part of what an expression names whose parameters the script hands to an optimizer; "" where none is."""
    name, tree = ast.unparse(expr), run.module.tree
    calls = [one for one in (ast.walk(tree) if tree is not None else ()) if isinstance(one, ast.Call)]
    made = [one for one in calls if "optim" in ast.unparse(one.func).lower()]
    found = [
        ast.unparse(one.value)
        for one in (part for call in made for part in ast.walk(call))
        if isinstance(one, ast.Attribute) and one.attr in ("parameters", "named_parameters")
    ]
    return next((part for part in found if part.startswith(f"{name}.")), "")


def gone_through(engine: Interpreter, model: Instance, args: Sequence[Value], node: ast.AST) -> Value | None:
    """What a sequence of models gives, each of what the one before gave; None for another model."""
    if model.type != _SEQUENCE or len(args) != 1:
        return None
    memory = engine.calls.memory
    key = memory.passed_on(model, args[0])
    known = memory.of_call(key, node)
    if known is None:
        memory.begin()
        value = _passed_on(engine, model, args[0], node)
        memory.end_call(key, node, value)
        return value
    return cast(Value | None, known.result)


def _passed_on(engine: Interpreter, model: Instance, value: Value, node: ast.AST) -> Value | None:
    contained = parts(engine.run, Value(refs=(model,)))
    if contained is None:
        return None
    for part in elements(engine.run, contained) or [element(engine.run, contained, node)]:
        found = (
            engine.calls.call(part.plain(), [value], {}, node)
            if part.refs
            else engine.calls.libraries.unknown_calls.model(engine.run.segment(node), [value], {}, node)
        )
        value = engine.calls.objects.by_rows(model, found, [value], node)
    return value


def method_of_parts(
    engine: Interpreter,
    model: Instance,
    name: str,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
    node: ast.AST,
) -> Value | None:
    """A call of a method of a model that holds others, as of a list or dictionary; None for another method."""
    contained = parts(engine.run, Value(refs=(model,)))
    if contained is None or not hasattr(dict if model.type.endswith("Dict") else list, name):
        return None
    found = None
    for ref in contained.of(Container):
        found = container_method(engine, contained, ref, name, args, keywords, node)
    return found
