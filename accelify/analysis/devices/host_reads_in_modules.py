"""Tensors that functions of modules which are not converted read on the host, where prepare no longer leaves them.

`prepare_data(batch)` of a module of helpers sorts a batch and asks for its `.numpy()`, `evaluate(model, loader)` does
so with all batches of a loader: the script shows nothing of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from typing import NamedTuple

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.locations import Locations
from accelify.analysis.devices.tensor_makers import DEVICE, HOST
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to, in_order, spread_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, dotted, is_constant, target_names, walk
from accelify.analysis.values import Imported

# What brings a tensor to the host, or makes no tensor of it.
_FETCHING = frozenset("cpu numpy tolist item size shape dim numel".split())
# Types that make a tensor of numbers, and take a tensor only where it is on the host.
HOST_TYPES = frozenset(
    f"torch.{kind}Tensor" for kind in "Float Double Half Long Int Short Char Byte Bool".split()
)
_TYPED = re.compile(rb"\b(Float|Double|Half|Long|Int|Short|Char|Byte|Bool)Tensor\b")
# Functions of helpers may call others, as far as this.
_DEEPEST = 2


class HostRead(NamedTuple):
    """A call of the script, the function that it runs elsewhere, and what is read on the host there.

    `certain` where that can be nothing but a tensor: its `.numpy()` is asked for.
    """

    call: ast.Call
    callee: Scope
    module: Module
    tensor: ast.expr
    certain: bool


def reads_on_host(script: ScriptModel, before: Locations, after: Locations) -> Iterator[HostRead]:
    """Calls that pass such a function what was on the host and is placed by prepare now.

    Args:
        script: its model, with the modules that are converted.
        before: where tensors are in the script as it is.
        after: where they are once prepare places its batches.
    """
    others = {m for m in script.program.modules.values() if m not in script.modules and _has_word(m)}
    for call in script.calls() if others else ():
        for callee in in_order(script.callees(call)):
            module = script.interpreter.module_of(callee)
            if module not in others or module.path is None:
                continue
            pairs = [*handed_to(call, callee), *spread_to(call, callee)]
            given = {n for a, n in pairs if DEVICE in after.of(a) and before.of(a) == {HOST}}
            loaders = {n for a, n in pairs if script.entities(a, v.LOADER) & after.prepared}
            if not (given or loaders):
                continue
            lists = any(n in given and not is_collated_by_torch(script, a) for a, n in pairs)
            given |= {n for a, n in pairs if script.models_of(a) & after.prepared}
            for scope, tensor, certain in _reads(script, callee, given, given, loaders, _DEEPEST):
                inner = script.interpreter.module_of(scope)
                if (
                    lists
                    and not certain
                    and _makes_host_type(script, inner, scope, inner.tree.parent(tensor))
                ):
                    continue  # of a list, as such a type does as well
                if inner not in script.modules and inner.path is not None:
                    yield HostRead(call, callee, inner, tensor, certain)


def is_collated_by_torch(script: ScriptModel, node: ast.expr) -> bool:
    """Whether something is of batches that torch puts together itself: tensors, and no lists of numbers."""
    loaders = {loader for batch in script.entities(node, v.BATCH) for loader in batch.link("loader")}
    return bool(loaders) and not any(map(_has_own_collation, loaders))


def _has_own_collation(loader: v.Entity) -> bool:
    call = loader.site
    if not isinstance(call, ast.Call):
        return True
    return call_argument(call, 6, "collate_fn") is not None or any(kw.arg is None for kw in call.keywords)


def _has_word(module: Module) -> bool:
    return module.tree.mentions(b"numpy") or module.tree.mentions(_TYPED)


def _reads(
    script: ScriptModel, scope: Scope, given: Set[str], parts: Set[str], loaders: Set[str], depth: int
) -> Iterator[tuple[Scope, ast.expr, bool]]:
    """What a function, or one that it calls, reads on the host of tensors that it gets under some names.

    Args:
        script: its model.
        scope: the function.
        given: names of tensors, and of models.
        parts: the same with names of what a loader yields, which can be a list, too: reported only where nothing
            but a tensor can be read so.
        loaders: names of prepared loaders.
        depth: how many calls it is followed through.
    """
    module = script.interpreter.module_of(scope)
    assigned = scope.of_type(ast.Assign)
    loops = scope.of_type(ast.For)
    contained, seen = set(given), set(parts)
    for names in (contained, seen):
        known = -1
        while len(names) > known:
            known = len(names)
            for stmt in assigned:
                if _is_contained(stmt.value, names):
                    names.update(name for target in stmt.targets for name in target_names(target))
                elif names is seen and isinstance(stmt.value, ast.Call):
                    for target in stmt.targets:
                        names.update(_gone_through(target, stmt.value, loaders | names))
            for loop in loops if names is seen else ():
                names.update(_gone_through(loop.target, loop.iter, loaders | names))
    fetched = [
        (name, module.tree.end(stmt))
        for stmt in assigned
        if _is_fetched(stmt.value)
        for target in stmt.targets
        for name in target_names(target)
    ]
    for call in scope.calls:
        start = module.tree.start(call)
        there = {name for name, end in fetched if end <= start}
        here, all_here = contained - there, seen - there
        read = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "numpy" else None
        if read is not None and _is_contained(read, all_here):
            yield scope, read, True
        if _is_of_numpy(script, module, scope, call) or _makes_host_type(script, module, scope, call):
            yield from ((scope, argument, False) for argument in call.args if _is_contained(argument, here))
        for callee in in_order(script.callees(call)) if depth else ():
            pairs = handed_to(call, callee)
            inner = {name for argument, name in pairs if _is_contained(argument, all_here)}
            within = {name for a, name in pairs if isinstance(a, ast.Name) and a.id in loaders}
            if inner or within:
                sure = {name for argument, name in pairs if _is_contained(argument, here)}
                yield from _reads(script, callee, sure, inner, within, depth - 1)


def _gone_through(target: ast.expr, iterated: ast.expr, names: Set[str]) -> Iterator[str]:
    """What `for target in iterated` binds to parts of what is under such names: no number of `enumerate`."""
    if isinstance(iterated, ast.Name) and iterated.id in names:
        yield from target_names(target)
    if not isinstance(iterated, ast.Call):
        return
    name = dotted(iterated.func) or ""
    parts = target.elts if isinstance(target, ast.Tuple) else []
    if name == "enumerate" and len(parts) == 2 and iterated.args:
        yield from _gone_through(parts[1], iterated.args[0], names)
    elif name == "zip" and len(parts) == len(iterated.args):
        for part, argument in zip(parts, iterated.args, strict=True):
            yield from _gone_through(part, argument, names)
    elif (name in ("iter", "next") or k.is_progress(name)) and iterated.args:
        yield from _gone_through(target, iterated.args[0], names)


def _is_contained(node: ast.expr, contained: Set[str]) -> bool:
    """Whether an expression is a tensor of such a name, a part of it or what torch makes of it."""
    if isinstance(node, ast.Name):
        return node.id in contained
    if isinstance(node, (ast.Subscript, ast.Starred)):
        return _is_contained(node.value, contained)
    if isinstance(node, ast.Attribute):
        return node.attr in ("data", "T") and _is_contained(node.value, contained)
    if isinstance(node, ast.BinOp):
        return _is_contained(node.left, contained) or _is_contained(node.right, contained)
    if isinstance(node, ast.Compare):
        return any(_is_contained(side, contained) for side in (node.left, *node.comparators))
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(_is_contained(e, contained) for e in node.elts)
    if not isinstance(node, ast.Call) or any(is_constant(a, "cpu") for a in node.args):
        return False
    name = dotted(node.func) or ""
    if name.startswith(("torch.", "torchvision.", "F.")) or name.rpartition(".")[2] == "make_grid":
        return any(_is_contained(a, contained) for a in node.args)
    if isinstance(node.func, ast.Name) and node.func.id in contained:
        return any(_is_contained(a, contained) for a in node.args)  # a model of the caller's
    method = node.func
    return (
        isinstance(method, ast.Attribute)
        and method.attr not in _FETCHING
        and _is_contained(method.value, contained)
    )


def _is_of_numpy(script: ScriptModel, module: Module, scope: Scope, call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    found = script.interpreter.evaluate(module, scope, call.func)
    return any(isinstance(w, Imported) and w.name.startswith("numpy.") for w in found)


def _makes_host_type(script: ScriptModel, module: Module, scope: Scope, node: ast.AST | None) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
        return False
    found = script.interpreter.evaluate(module, scope, node.func)
    return any(isinstance(w, Imported) and w.name in HOST_TYPES for w in found)


def _is_fetched(node: ast.expr) -> bool:
    """Whether an expression brings a tensor to the host, or asks for numbers and text of it."""
    for part in walk(node):
        if isinstance(part, ast.Attribute) and part.attr in _FETCHING:
            return True
        if isinstance(part, ast.Call) and any(is_constant(a, "cpu") for a in part.args):
            return True
    return False


def can_be_fixed(read: HostRead) -> bool:
    """Whether the module can use a copy on the host instead: a module that trains is converted by itself."""
    return read.certain and not read.module.tree.mentions(b".backward(")
