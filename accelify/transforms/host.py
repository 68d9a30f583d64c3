"""Tensors that go to NumPy: prepare places batches and models on the device, where NumPy cannot read them.

predictions.append(labels.numpy())      ->  predictions.append(labels.cpu().numpy())
counts += np.bincount(labels)           ->  counts += np.bincount(labels.cpu())
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis import values as v
from accelify.analysis.locations import DEVICE, HOST
from accelify.analysis.syntax import walk
from accelify.analysis.values import Thing
from accelify.edits import Edit
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule

HOST_COPY = Rule(
    "ACC114",
    "host-copy",
    "A tensor that prepare puts on the device is read by NumPy, which cannot reach it there.",
    Severity.ERROR,
    effort=1,
)
# Libraries whose functions read a tensor through NumPy.
_READERS = frozenset("numpy scipy sklearn pandas cv2 PIL skimage matplotlib seaborn imageio".split())


def transform(context: Context) -> Iterator[Change]:
    """Yield `.cpu()` before `.numpy()` of what comes from a prepared loader or model, and in arguments of NumPy."""
    if context.plan.arguments.get("cpu") == "True":
        return
    yield from _conversions(context)
    yield from _arguments(context)


def _conversions(context: Context) -> Iterator[Change]:
    tree = context.tree
    for call in context.script.calls():
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr != "numpy" or tree.in_fstring(call):
            continue
        if context.is_claimed(call) or not _needs_copy(context, func.value):
            continue
        dot = tree.data.rindex(b".", tree.end(func.value), tree.end(func))
        yield context.change(
            HOST_COPY,
            call,
            "NumPy cannot read a tensor that lies on the device",
            [verbs.insert(tree, dot, ".cpu()")],
            core=True,
        )


def _arguments(context: Context) -> Iterator[Change]:
    """Tensors that are handed to a function of NumPy, or of a library on top of it, as they are."""
    tree, (before, after) = context.tree, context.locations
    for call in context.script.calls():
        name = context.script.qualname(call.func) or ""
        if name.split(".")[0] not in _READERS and not name.endswith("ToPILImage"):
            continue
        for argument in [*call.args, *[kw.value for kw in call.keywords]]:
            if context.is_claimed(argument) or tree.in_fstring(argument):
                continue
            if after.of(argument) != {DEVICE} or before.of(argument) != {HOST}:
                continue
            edits: list[Edit] = [verbs.insert(tree, tree.end(argument), ".cpu()", -5)]
            if not isinstance(argument, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
                edits = [
                    verbs.insert(tree, tree.start(argument), "(", 5),
                    verbs.insert(tree, tree.end(argument), ").cpu()", -5),
                ]
            after.settle(argument, HOST)
            yield context.change(
                HOST_COPY, argument, "NumPy cannot read a tensor that lies on the device", edits, core=True
            )


def _needs_copy(context: Context, node: ast.expr) -> bool:
    """Whether a tensor lies on the device once prepare has placed batches and models."""
    place = context.locations[1].of(node)
    if place == {DEVICE}:
        return True
    return place != {HOST} and _is_on_device(context, node) and not _is_copied(context, node)


def _is_on_device(context: Context, node: ast.expr) -> bool:
    """Whether a tensor comes out of a prepared loader or a prepared model."""
    queue = list(context.script.things(node, v.BATCH, v.OUTPUT, v.TENSOR))
    seen: set[Thing] = set(queue)
    while queue:
        thing = queue.pop()
        if thing.kind == v.BATCH and thing.link("loader") and thing.link("loader") <= context.plan.prepared:
            return True
        if thing.kind == v.OUTPUT and thing.link("model") & context.plan.prepared:
            return True
        inner = {t for t in thing.link("sources") if t.kind in (v.BATCH, v.OUTPUT, v.TENSOR)}
        queue += inner - seen
        seen |= inner
    return False


def _is_copied(context: Context, node: ast.expr) -> bool:
    """Whether a tensor, or the name that holds it, was brought back already."""
    if any(isinstance(n, ast.Attribute) and n.attr in ("cpu", "tolist") for n in walk(node)):
        return True
    names = {n.id for n in walk(node) if isinstance(n, ast.Name)}
    scope = context.script.scope_of(node)
    for stmt in context.tree.nodes(ast.Assign):
        stored = {n.id for t in stmt.targets for n in walk(t) if isinstance(n, ast.Name)}
        if stored & names and context.script.scope_of(stmt) is scope:
            for inner in walk(stmt.value):
                if isinstance(inner, ast.Attribute) and inner.attr in ("cpu", "numpy"):
                    return True
                if isinstance(inner, ast.Constant) and inner.value == "cpu":
                    return True
    return False
