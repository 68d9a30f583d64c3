"""Attributes that a script asks of a prepared model, or sets on it: of the wrapper, or of the model in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from accelify.heap.engines import ALTERED
from accelify.heap.frozen import is_frozen
from accelify.heap.locations import text_of
from accelify.heap.run import Run
from accelify.heap.values import Class, Instance, Ref, Value, constant

# What a script has written to the wrapper itself.
SET = "#set "
# What DeepSpeed's engine around a model has, which every process calls; the mark of one that a script makes itself.
_OF_ENGINES = frozenset(
    "eval_batch load_checkpoint save_16bit_model save_checkpoint save_fp16_model train_batch".split()
)
ENGINE = "#engine"
# What one has that waits for the others where another wrapper leaves it to the script.
_STEPS = frozenset({"backward", "step"})
# The mark of a model that DataParallel copies to all devices of one process.
SPLIT = "#split"
_SPLITTING = frozenset({"torch.nn.DataParallel", "torch.nn.parallel.DataParallel"})
# What a condition asks that goes by the wrapper around a model, and not by what is in it: `hasattr(net.module, "f")`.
_ON_WRAPPERS = re.compile(r"\b(?:hasattr(?!\([\w.]*\.module,)|isinstance|distributed_type)\b|> 1\b")
# What one asks that leaves, for what comes after it.
_ON_KINDS = re.compile(r"\b(?:hasattr|isinstance)\b")
_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)
# What a wrapper around a model has, whatever the model.
OF_MODULES = frozenset(
    """
    T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda device device_ids double
    dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu
    join load_state_dict modules mtia named_buffers named_children named_modules named_parameters no_sync parameters
    register_backward_hook register_buffer register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_module register_parameter require_backward_grad_sync requires_grad_
    set_extra_state share_memory state_dict to to_empty train training type xpu zero_grad
    """.split()
)


def of_attribute(run: Run, ref: Instance, name: str, node: ast.AST) -> None:
    """An attribute of a prepared model."""
    if ref.kind != "module" or not ref.prepared or run.in_place:
        return
    if ref.wrapped is not None and any(is_frozen(run, one) for one in ref.wrapped.of(Instance)):
        return
    if run.read(ref, f"{SET}{name}") is not None or of_engine(run, ref, name):
        return
    converted = not run.checks
    if name == "no_sync":
        run.meet("accumulate", node, f"model.{name}")
    elif (
        (run.accelerated or run.at_model or converted) and name not in OF_MODULES and is_asked_for(run, node)
    ):
        return
    elif name == "module" and (run.accelerated or converted):
        if _has_default(node) or _is_split(run, ref):
            return
        text = (
            "`.module` of a prepared model is there on several processes only; use accelerator.unwrap_model"
        )
        run.meet("misuse", node, text, _prepared(ref), detail="wrapper")
    elif run.at_model and name != "module" and name not in OF_MODULES and not name.startswith("__"):
        way = "accelerator.unwrap_model(model)" if run.accelerated else "model.module"
        text = f"`.{name}` is asked of a model that DistributedDataParallel wraps, which has none; use {way}.{name}"
        if run.loops and _is_given(run, node):
            text = f"{text}, or where it makes what is trained with, let the model's forward call it"
        run.meet("misuse", node, text, _prepared(ref), detail="wrapper")


def split(run: Run, name: str, args: Sequence[Value]) -> None:
    """Note a model that a call puts into a DataParallel.

    Args:
        run: the run.
        name: what is called.
        args: by position.
    """
    for ref in args[0].of(Instance) if args and name in _SPLITTING else ():
        run.store.set(ref, SPLIT, constant(True))


def _is_split(run: Run, model: Instance) -> bool:
    """Whether a prepared model is in a DataParallel, which has a `.module` on one process as well."""
    inner = model.wrapped.of(Instance) if model.wrapped is not None else []
    return bool(inner) and all(run.read(one, SPLIT) is not None for one in inner)


def without_wrapped(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
    """What may be called, without the models that others of it wrap: under a condition each is prepared, or else called
    as it is, since it is not trained."""
    if len(refs) < 2:
        return refs
    wrapped = {one for ref in refs if isinstance(ref, Instance) and ref.wrapped for one in ref.wrapped.refs}
    return tuple(ref for ref in refs if ref not in wrapped)


def of_engine(run: Run, model: Instance, name: str) -> bool:
    """Whether it is the wrapper of DeepSpeed that has an attribute: no class of the prepared model has it."""
    if run.read(model, ENGINE) is not None:
        return name in _OF_ENGINES | _STEPS
    if name not in _OF_ENGINES or not (run.accelerated and model.prepared and model.kind == "module"):
        return False
    line = model.cls.line_up() if model.cls is not None else []
    classes = [one for one in line if isinstance(one, Class)]
    return all(run.read(one, name) is None for one in classes)


def engine_called(
    run: Run, receiver: Value, name: str, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> Value | None:
    """A call of a method of DeepSpeed's engine that every process makes; None for another one."""
    if not any(of_engine(run, ref, name) for ref in receiver.of(Instance)):
        return None
    if name == "backward":
        run.meet("backward", node, name, [*args, *keywords.values()][:1], detail="plain")
    elif name == "step":
        run.meet("step", node, "optimizer.step", detail="prepared")
    else:
        run.meet("collective", node, f"model.{name}")
    return Value()


def of_attribute_set(run: Run, model: Ref, name: str, node: ast.AST) -> None:
    """An attribute that is set on the wrapper around a model, and asked of the model by its methods."""
    if (
        not isinstance(model, Instance)
        or model.kind != "module"
        or not run.at_model
        or run.in_place == ALTERED
    ):
        return
    classes = [one for one in model.cls.line_up() if isinstance(one, Class)] if model.cls is not None else []
    if name not in OF_MODULES and any(re.search(rf"\bself\.{name}\b", text_of(one)) for one in classes):
        way = "accelerator.unwrap_model(model)" if run.accelerated else "model.module"
        text = f"`.{name}` is set on the wrapper around a model, which never sees it; use {way}.{name}"
        run.meet("misuse", node, text, detail="wrapper")


def _prepared(model: Instance) -> list[Value]:
    """Where a model is prepared, which is one cause of all that is asked of its wrapper."""
    return (
        [Value(why=model.wrapped.why)] if model.wrapped is not None and model.wrapped.why is not None else []
    )


def is_asked_for(run: Run, node: ast.AST) -> bool:
    """Whether a condition around goes by whether the model is in a wrapper, and in which one, or one before by which
    others leave: `if not isinstance(model, Net): return`."""
    return any(
        isinstance(one, ast.If | ast.IfExp)
        and _ON_WRAPPERS.search(ast.unparse(one.test)) is not None
        and any(part is node for after in (one, *later) for part in ast.walk(after))
        for one, later in _conditions(run.module.tree)
    )


def _conditions(tree: ast.Module | None) -> Iterator[tuple[ast.AST, Sequence[ast.stmt]]]:
    """All that is in a module, each with the statements after it that only those come to who have not left by it."""
    for one in ast.walk(tree) if tree is not None else ():
        for name in ("body", "orelse"):
            found = getattr(one, name, None)
            block: list[ast.stmt] = found if isinstance(found, list) else []
            for number, stmt in enumerate(block):
                if not isinstance(stmt, ast.If) or not isinstance(stmt.body[-1], _LEAVING):
                    continue
                if _ON_KINDS.search(ast.unparse(stmt.test)):
                    yield stmt, block[number + 1 :]
        yield one, ()


def _is_given(run: Run, node: ast.AST) -> bool:
    """Whether an attribute is called with something, and what it gives is used."""
    tree = run.module.tree or ast.Module([], [])
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and one.func is node]
    left = {one.value for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    return any((one.args or one.keywords) and one not in left for one in calls)


def _has_default(node: ast.AST) -> bool:
    """Whether it is `getattr` of an attribute with what stands in for it."""
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr" and len(node.args) > 2
