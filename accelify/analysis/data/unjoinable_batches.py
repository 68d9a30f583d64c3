"""Batches that cannot be concatenated by their first dimension: it is time, or each is padded to another length."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accelify.analysis.data.loaders import collating
from accelify.analysis.data.sample_widths import width_of_samples
from accelify.analysis.metrics.counts import made_once, shape_of
from accelify.analysis.program import Module, Program
from accelify.analysis.scopes import in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.option_defaults import option_name
from accelify.analysis.syntax import (
    call_argument,
    call_keyword,
    calls_in,
    dotted,
    is_constant,
    names_in,
    target_names,
    text_of,
    walk,
)
from accelify.analysis.values import Entity

_PADDING = frozenset({"pad_sequence", "pad_packed_sequence", "pad", "pad_tensor", "pad_sequences"})
_PADDING_CLASSES = re.compile(r"collat|pad", re.I)
_STACKING_CLASSES = re.compile(r"default", re.I)
# Their data set is not looked into: a test set of images as they come needs this, and one of crops does not.
SINGLE = "its batches are single samples, which may have shapes, and give figures, of their own"
PADDED = "its batches are padded, each to its own length"
LEFT_OUT = "its collate function leaves samples out, so that the batches of a round differ in size"


def not_by_samples(script: ScriptModel, loop: ast.For | ast.AsyncFor, loaders: set[Entity]) -> str | None:
    """Why what the processes see in a loop has no common shape to be gathered in; None: nothing speaks against it.

    Args:
        script: its model.
        loop: over the batches.
        loaders: that it reads.
    """
    reasons = [_unlike(script, loader) for loader in sorted(loaders, key=Entity.place)]
    found = next((why for why in reasons if why is not None), None)
    if found is not None:
        return found
    cut = _cut_in_time(loop)
    return f"`{cut}` leaves out steps in time, which is the first dimension of its batches" if cut else None


def _unlike(script: ScriptModel, loader: Entity) -> str | None:
    """Why the batches of a loader have no common shape; None where nothing speaks against it."""
    if any(_leaves_out(body) for body in collating(script, loader)):
        return LEFT_OUT
    padding = _padding_of(script, loader)
    if padding is not None:
        if not (isinstance(padding, ast.Call) and _puts_time_first(padding)):
            return PADDED
        return "its batches have the time first, and are padded to their own length"
    if _gives_lists(script, loader):
        return "its batches hold lists, with an entry for each sample"
    return SINGLE if _is_single(script, loader) else None


def _puts_time_first(padding: ast.Call) -> bool:
    last = (dotted(padding.func) or "").rsplit(".", 1)[-1]
    return last == "pad_sequence" and not is_constant(call_keyword(padding, "batch_first"), True)


def _is_single(script: ScriptModel, loader: Entity) -> bool:
    """Whether a loader gives one sample at a time: what the samples are is then free."""
    if not isinstance(loader.site, ast.Call) or loader.module is None:
        return False
    given = call_argument(loader.site, 1, "batch_size")
    name = _last_word(given)
    return is_constant(given, 1) or (name != "" and _is_one(script.program, name))


def _last_word(node: ast.AST | None) -> str:
    """The name by which something is had of wherever it is: `conf.batch_size`, `conf["batch_size"]`."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def _is_one(program: Program, name: str) -> bool:
    """Whether all that a program binds to a name, as a variable, attribute or option or under a key, is 1."""
    modules = [one for one in program.modules.values() if one.tree.mentions(name.encode())]
    bound = [value for module in modules for value in _bound(module, name) if _last_word(value) != name]
    return bool(bound) and all(is_constant(value, 1) for value in bound)


def _bound(module: Module, name: str) -> Iterator[ast.expr]:
    for stmt in (*module.tree.nodes(ast.Assign), *module.tree.nodes(ast.AnnAssign)):
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        if stmt.value is not None and any(_last_word(target) == name for target in targets):
            yield stmt.value
    for table in module.tree.nodes(ast.Dict):
        yield from (v for k, v in zip(table.keys, table.values, strict=True) if is_constant(k, name))
    for function in module.tree.nodes(ast.arguments):
        named = [*function.posonlyargs, *function.args]
        pairs = [*zip(reversed(named), reversed(function.defaults), strict=False)]
        pairs += list(zip(function.kwonlyargs, function.kw_defaults, strict=True))
        yield from (value for one, value in pairs if one.arg == name and value is not None)
    for call in module.tree.nodes(ast.Call):
        yield from (one.value for one in call.keywords if one.arg == name)
        default = call_keyword(call, "default")
        if getattr(call.func, "attr", "") == "add_argument" and option_name(call) == name and default:
            yield default


def _padding_of(script: ScriptModel, loader: Entity) -> ast.AST | None:
    """What pads in a loader's collate function, or makes an object that does."""
    given = _collate_of(loader)
    if given is None or loader.module is None:
        return None
    here = loader.module in script.modules
    made = made_once(script, given) if isinstance(given, ast.Name) and here else given
    if isinstance(made, ast.Call) and not script.callees(made):
        last = (dotted(made.func) or "").rsplit(".", 1)[-1]
        if _PADDING_CLASSES.search(last) and not _STACKING_CLASSES.search(last):
            return made
    for body in _with_helpers(script, collating(script, loader)):
        for node in walk(body):
            if isinstance(node, ast.Call) and _pads(node):
                return node
            width = _width_of_padding(node, body)
            if width is not None:
                return width
        taken = width_of_samples(body)
        if taken is not None:
            return taken
    return None


def _with_helpers(script: ScriptModel, bodies: list[ast.AST]) -> list[ast.AST]:
    """Functions, and those of the program that they call, down to the second."""
    found, level = list(bodies), list(bodies)
    for _ in range(2):
        calls = [n for body in level for n in calls_in(body)]
        callees = {callee for call in calls for callee in script.callees(call)}
        level = [scope.node for scope in in_order(callees) if scope.node not in found]
        found += level
    return found


def _collate_of(loader: Entity) -> ast.expr | None:
    """The collate function that a loader is made with, as it is written there."""
    return call_argument(loader.site, 6, "collate_fn") if isinstance(loader.site, ast.Call) else None


def results_of(body: ast.AST) -> tuple[list[ast.expr], dict[str, ast.expr]]:
    """What a function returns, and what the names in it are set to, the last of each."""
    made: dict[str, ast.expr] = {}
    for stmt in walk(body):
        for target in stmt.targets if isinstance(stmt, ast.Assign) else ():
            made.update(dict.fromkeys(target_names(target), stmt.value))
    results = [body.body] if isinstance(body, ast.Lambda) else []
    results += [n.value for n in walk(body) if isinstance(n, ast.Return) and n.value is not None]
    return results, made


def _gives_lists(script: ScriptModel, loader: Entity) -> bool:
    """Whether a collate function leaves something of the samples in a list: an entry for each, of any length."""
    for body in collating(script, loader):
        first = (
            body.args.args[-1].arg
            if isinstance(body, (ast.FunctionDef, ast.Lambda)) and body.args.args
            else ""
        )
        results, made = results_of(body)
        for result in results:
            parts = result.elts if isinstance(result, (ast.Tuple, ast.List)) else [result]
            parts = [v for v in result.values if v is not None] if isinstance(result, ast.Dict) else parts
            for part in parts:
                value = made.get(part.id, part) if isinstance(part, ast.Name) else part
                whole = isinstance(value, ast.Name) and value.id == first
                if whole or isinstance(value, ast.ListComp) or _is_zip(value):
                    return not _calls_itself(body)
    return False


def _leaves_out(body: ast.AST) -> bool:
    """Whether a collate function chooses among its samples: `filter(None, batch)`, `[x for x in batch if x]`."""
    args = body.args.args if isinstance(body, (ast.FunctionDef, ast.Lambda)) else []
    samples = args[-1].arg if args else ""
    chosen_of = [n.args[1] for n in calls_in(body) if dotted(n.func) == "filter" and len(n.args) == 2]
    chosen_of += [n.iter for n in walk(body) if isinstance(n, ast.comprehension) and n.ifs]
    return any(isinstance(whole, ast.Name) and whole.id == samples for whole in chosen_of)


def _is_zip(value: ast.expr) -> bool:
    """`zip(*batch)`, `tuple(zip(*batch))`, `list(...)`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and len(value.args) == 1:
        if value.func.id == "zip":
            return True
        if value.func.id not in ("tuple", "list"):
            return False
        value = value.args[0]
    return False


def _calls_itself(body: ast.AST) -> bool:
    name = getattr(body, "name", None)
    return any(isinstance(n, ast.Call) and dotted(n.func) == name for n in walk(body)) if name else False


def _pads(call: ast.Call) -> bool:
    """`pad_sequence(x)`, `tokenizer(texts, padding=True)`."""
    last = (dotted(call.func) or "").rsplit(".", 1)[-1]
    fixed = is_constant(call_keyword(call, "padding"), "max_length")
    if is_constant(call_keyword(call, "padding"), True, "longest"):
        return True
    return last in _PADDING and not fixed


def _width_of_padding(node: ast.AST, body: ast.AST) -> ast.Call | None:
    """The call that makes `n` of the batch, where rows are filled up to it: `row + [0] * (n - len(row))`.

    A constant, a parameter or a variable of the module is the same width for every batch.
    """
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    sides = (node.left, node.right)
    if not any(isinstance(side, ast.List) and len(side.elts) == 1 for side in sides):
        return None
    for missing in sides:
        if not isinstance(missing, ast.BinOp) or not isinstance(missing.op, ast.Sub):
            continue
        taken = missing.right
        if not isinstance(taken, ast.Call) or dotted(taken.func) != "len":
            continue
        if isinstance(missing.left, ast.Name):
            return _made_by_a_call(body, missing.left.id)
    return None


def _made_by_a_call(body: ast.AST, name: str) -> ast.Call | None:
    """A call of what a variable of a function is made of, where that reads another variable of the function."""
    own = {n.id for n in walk(body) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    own |= {n.arg for n in walk(body) if isinstance(n, ast.arg)}
    for stmt in walk(body):
        if isinstance(stmt, ast.Assign) and any(name in target_names(t) for t in stmt.targets):
            if names_in(stmt.value) & own - {"self"}:
                return next(iter(calls_in(stmt.value)), None)
    return None


def _cut_in_time(loop: ast.For | ast.AsyncFor) -> str | None:
    """`target[1:]` or `target[:-1]` of a batch: no one leaves out its first or last sample."""
    batch = set(target_names(loop.target))
    # A list of tensors, of which the last may be left out.
    lists: set[str] = set()
    for _ in range(2):
        for stmt in (n for s in loop.body for n in walk(s)):
            if isinstance(stmt, ast.Assign) and names_in(stmt.value) & batch and not shape_of(stmt.value):
                bound = {n for t in stmt.targets for n in target_names(t)}
                batch |= bound
                if isinstance(stmt.value, (ast.ListComp, ast.List, ast.Tuple)):
                    lists |= bound if isinstance(stmt.targets[0], ast.Name) else set()
    for node in (n for s in loop.body for n in walk(s)):
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            continue
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        if node.value.id in batch - lists and isinstance(first, ast.Slice) and first.step is None:
            skipped = is_constant(first.lower, 1) and first.upper is None
            last = first.lower is None and first.upper is not None and text_of(first.upper) == "-1"
            if skipped or last:
                return text_of(node)
    return None
