"""Where tensors lie: what a prepared loader gives on the device of the process, what is fetched on the host.

Nothing is said of any other tensor: where a location is not known, nothing is claimed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from accelify.domains.replacing import replace
from accelify.heap.values import (
    BATCH,
    DEVICE,
    HOST,
    MADE_HERE,
    OF_BATCH,
    TENSOR,
    UNSET,
    Bound,
    Class,
    Container,
    Function,
    Instance,
    Library,
    Ref,
    Value,
    constant,
)
from accelify.knowledge import Row

if TYPE_CHECKING:
    from accelify.heap.run import Run

_TENSORS = frozenset({TENSOR, BATCH})
# Of the functions that join no figures, those that need their tensors in one place.
_TOGETHER = frozenset(
    "eq ne lt gt le ge equal maximum minimum where gather scatter scatter_ scatter_add scatter_add_ index_select "
    "index_add index_add_ masked_fill masked_fill_ matmul mm bmm".split()
)
_JOINING = frozenset({"plus", "minus", "times", "over", "loss"})
# Of a loader or a data set: where its items lie; of a model, where it was sent by its methods.
AT = "#at"
# What says that code may put tensors on a device.
_OF_DEVICES = re.compile(r"\.to\(|\.cuda\(|device|_to_\w+\(|default_tensor_type")
# What lets tensors be made on the device that nothing else puts there.
_DEFAULTS = re.compile(r"set_default_(device|tensor_type)|with (torch\.|accelerator\.)?device")
# What makes one number of many, which may go with either.
_FIGURES = frozenset("sum mean max min any all count reduce loss".split())
_SETS = "torch.utils.data."


def located(values: Iterable[Value]) -> str:
    """Where the result of an operation lies: where all its tensors do."""
    found = {
        value.where
        for value in values
        if value.where or value.type in _TENSORS or value.refs or not value.place.is_same
    }
    return found.pop() if len(found) == 1 else ""


def _names_device(node: ast.AST) -> bool:
    """Whether a call that makes a tensor says on which device."""
    return not isinstance(node, ast.Call) or any(one.arg in ("device", None) for one in node.keywords)


def location_of(run: Run, row: Row, operands: Sequence[Value], result: Value, node: ast.AST) -> str:
    """Where the result of a library's function lies.

    Args:
        run: the abstract run.
        row: what is known of the function.
        operands: what it is given, its receiver first.
        result: what it gives.
        node: the call.
    """
    word = row.name.rpartition(".")[2]
    if word == "random_split" and operands and _is_on_host(run, operands[0]):
        return HOST
    if word == "__call__" and operands and all(ref.kind == "module" for ref in operands[0].of(Instance)):
        return located(operands[1:])  # a part of a model: it lies where what it gets does
    if result.type != TENSOR:
        return ""
    if word in ("cpu", "cuda"):
        return HOST if word == "cpu" else DEVICE
    if word == "to" and row.place == "device":
        return moved_to(operands)
    if row.place == "device":
        devices = [one for one in operands if one.type == "torch.device"]
        if _names_device(node):
            return devices[0].where if devices else ""
        # A single number may go with either.
        sized = row.transfer in ("pure", "draw") or bool(operands and operands[0].of(Container))
        return MADE_HERE if sized else ""
    where = MADE_HERE if row.place == "host" else located(operands)
    return "" if where == MADE_HERE and row.transfer in _FIGURES else where


def _made_on_device(run: Run) -> bool:
    """Whether the modules that are gone through let tensors be made on a device by default."""
    return any(_sets_default(module.text) for module in run.modules)


@lru_cache(maxsize=64)
def _sets_default(text: str) -> bool:
    return _DEFAULTS.search(text) is not None


def moved_to(operands: Sequence[Value]) -> str:
    """Where `x.to(...)` lies, by its first argument."""
    to = operands[1] if len(operands) > 1 else Value()
    if to.where == DEVICE and to.type not in _TENSORS:
        return DEVICE
    if isinstance(to.const, str):
        return HOST if to.const == "cpu" else DEVICE if to.const.startswith("cuda") else ""
    is_type = any(isinstance(ref, Library) and not ref.name.endswith("device") for ref in to.refs)
    return operands[0].where if is_type else ""


def moved_within(called: Value, args: Sequence[Value]) -> dict[int | str, Value]:
    """The batches on the host that a function of the project may move in place, by their numbers."""
    found = {n: value for n, value in enumerate(args) if value.type == BATCH and value.where == HOST}
    if not found:
        return {}
    functions = [ref.method if isinstance(ref, Bound) else ref for ref in called.refs]
    moves = any(isinstance(one, Function) and _OF_DEVICES.search(text_of(one)) for one in functions)
    return {number: replace(value, where="") for number, value in found.items()} if moves else {}


def meet_together(run: Run, node: ast.AST, values: Sequence[Value], row: Row | None = None) -> None:
    """Record an operation whose tensors lie on the host and on the device; single numbers may.

    Args:
        run: the abstract run.
        node: the operation.
        values: what it joins.
        row: the function that does, None for an operator.
    """
    if row is not None and not (row.transfer in _JOINING or row.name.rpartition(".")[2] in _TOGETHER):
        return
    if not any(value.where for value in values):
        return
    made = [ref.type for value in values[:1] for ref in value.of(Instance)]
    if any(name.rpartition(".")[2] in ("ctc_loss", "CTCLoss") for name in [*made, row.name if row else ""]):
        return  # it takes lengths wherever they lie
    tensors = [value for value in values if value.where and value.type in ("", *_TENSORS)]
    host = [value for value in tensors if value.where == HOST and (value.place.rows or value.type == BATCH)]
    device = [value for value in tensors if value.where == DEVICE]
    if device and not _made_on_device(run):
        host += [value for value in tensors if value.where == MADE_HERE]
    if host and device:
        run.meet("together", node, run.segment(node), [host[0], device[0]])


def at(run: Run, ref: Instance) -> str | None:
    """Where the items of a loader or a data set lie, or a model that was sent there; None where nothing says so."""
    found = run.read(ref, AT)
    return None if found is None else str(found.const)


def _is_on_host(run: Run, value: Value, depth: int = 0) -> bool:
    """Whether tensors, or the items of a data set, are known to lie on the host."""
    if not value.refs:
        return (
            value.where in (HOST, MADE_HERE)
            or value.const is not UNSET
            or value.type.startswith(("builtins.", "numpy."))
        )
    return all(_holds_on_host(run, ref, depth) for ref in value.refs)


def _holds_on_host(run: Run, ref: Ref, depth: int) -> bool:
    if depth > 3:
        return False
    if isinstance(ref, Container):
        parts = [inner for name, inner in ref.looked_into().items() if name.startswith("[")]
        return all(_is_on_host(run, inner, depth + 1) for inner in parts)
    if isinstance(ref, Library):
        return not ref.name.endswith("device")
    if isinstance(ref, Bound) and ref.method == "dataset":
        return all(_holds_on_host(run, one, depth + 1) for one in ref.receiver.refs)
    if not isinstance(ref, Instance):
        return False
    if ref.wrapped is not None:
        return all(_holds_on_host(run, one, depth + 1) for one in ref.wrapped.refs)
    if ref.cls is None:
        return at(run, ref) == HOST or ref.kind in ("object", "sampler")
    if any(_OF_DEVICES.search(text_of(one)) for one in ref.cls.line_up() if isinstance(one, Class)):
        return False
    run.store.look(ref)
    fields = [run.read(ref, name) for name in list(ref.fields) if not name.startswith("#")]
    return not any(one is not None and (one.where == DEVICE or one.type == "torch.device") for one in fields)


def text_of(ref: Class | Function) -> str:
    """The lines of a class or function of the project."""
    return "\n".join(_lines(ref.module.text)[ref.node.lineno - 1 : ref.node.end_lineno])


# `ast.get_source_segment` goes through the whole module for each question.
@lru_cache(maxsize=64)
def _lines(text: str) -> list[str]:
    return text.split("\n")


def note_items(
    run: Run, made: Instance, row: Row, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> None:
    """Note where the items of a loader or a data set lie that a call makes.

    Args:
        run: the abstract run.
        made: the loader or data set.
        row: the function that makes it.
        args: what it is given.
        keywords: what it is given by name.
        node: the call.
    """
    if row.kind not in ("loader", "dataset"):
        return
    known = row.kind == "loader" or row.name.startswith((_SETS, "torchvision."))
    functions = [ref for value in [*args, *keywords.values()] for ref in value.of(Function)]
    clean = not any(_OF_DEVICES.search(text_of(ref)) for ref in functions)
    data = [*args, *keywords.values()] if row.name.startswith(_SETS) and row.kind == "dataset" else []
    if row.kind == "loader":
        collate = keywords.get("collate_fn", Value(const=None))
        clean = clean and (collate.const is None or bool(collate.of(Function)))
        data = [args[0] if args else keywords.get("dataset", Value())]
    host = known and clean and all(_is_on_host(run, value) for value in data)
    why = run.reason(node, f"`{run.segment(node)}` makes that loader")
    run.store.set(made, AT, replace(constant(HOST), why=why) if host else None)


def meet_model(
    run: Run, node: ast.AST, model: Instance, inner: Instance | None, values: Sequence[Value]
) -> None:
    """Record the call of a model on a device with a tensor on the host, or the other way round.

    Args:
        run: the abstract run.
        node: the call.
        model: what is called.
        inner: the model within the prepared one.
        values: what it gets.
    """
    lies = at(run, model)
    if lies is None:
        lies = DEVICE if model.prepared and not run.on_cpu else ""
    wrong = {HOST: DEVICE, DEVICE: HOST}.get(lies, "")
    tensors = [value for value in values if value.type in _TENSORS]
    met = [value for value in tensors[:1] if wrong and value.where == wrong]
    made = [value for value in tensors[:1] if wrong == HOST and value.where == MADE_HERE]
    # Lengths may go to the model from another place than what it works on; what was fetched is no batch.
    apart = any(value.where == lies for value in tensors) or (
        wrong == HOST and not all(v.place.is_same or _is_batch(v) for v in met)
    )
    if apart or not (met or made) or (made and _made_on_device(run)) or _moves_input(inner or model):
        return
    run.meet("together", node, run.segment(node), met or made, detail=wrong if met else MADE_HERE)


def _is_batch(value: Value) -> bool:
    """Whether it is a batch as its loader gives it."""
    return value.type == BATCH and value.why is not None and value.why.text.startswith(OF_BATCH)


def _moves_input(model: Instance) -> bool:
    """Whether a model of the project moves something itself, as far as its classes say."""
    classes = [one for one in model.cls.line_up() if isinstance(one, Class)] if model.cls is not None else []
    return any(re.search(r"\.to\(|\.cuda\(|_to_\w+\(", text_of(one)) for one in classes)
