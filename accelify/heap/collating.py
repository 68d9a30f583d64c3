"""How a loader puts rows together to a batch: along which axis, and whether to a length that goes with the batch."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Sequence

from accelify.heap.values import NONE, Bound, Function, Value, constant

Args = Sequence[Value]
Keywords = Mapping[str, Value]
# What a loader asks for the numbers of its samples.
SAMPLERS = ("batch_sampler", "sampler")
# What turns rows in a function that puts batches together.
_TURNING = frozenset("t transpose permute swapaxes swapdims movedim moveaxis rearrange view reshape".split())


def _collate(args: Args, keywords: Keywords) -> Value:
    return keywords.get("collate_fn", args[6] if len(args) > 6 else NONE)


def is_put_together(args: Args, keywords: Keywords) -> bool:
    """Whether each batch has the samples' parts, with one axis more, of the rows."""
    size = keywords.get("batch_size", args[1] if len(args) > 1 else constant(1))
    return _collate(args, keywords).const is None and size.const is not None


def pads_rows(args: Args, keywords: Keywords) -> bool:
    """Whether all parts of a loader's batches, but for lengths, are padded to the longest of the batch."""
    functions = _collate(args, keywords).of(Function)
    if len(functions) != 1:
        return False
    node = functions[0].node
    inner = {one.name for one in ast.walk(node) if isinstance(one, ast.FunctionDef)} - {functions[0].name}
    written = {
        target.id: one.value
        for one in ast.walk(node)
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    body = node.body if isinstance(node, ast.Lambda) else _returned(node)
    if body is None:
        return False
    parts = body.elts if isinstance(body, ast.Tuple | ast.List) else [body]
    padded = [_is_padded(part, written, inner, "max" in _called(node)) for part in parts]
    return any(padded) and None not in padded


# What makes another number of elements of as many rows.
_BY_CONTENT = frozenset(
    "max min sum set unique nonzero where filter groupby defaultdict Counter split chunk extend bincount".split()
)


def splits_by_number(args: Args, keywords: Keywords) -> bool:
    """Whether a batch is a list with as many elements on all ranks: the function that puts it together splits its rows
    by how many they are, and not by what is in them."""
    collate = _collate(args, keywords)
    found = [*collate.of(Function), *[one.method for one in collate.of(Bound)]]
    if len(found) != 1 or not isinstance(found[0], Function):
        return False
    node = found[0].node
    parts = list(ast.walk(node))
    if any(isinstance(one, ast.While | ast.Break | ast.Continue | ast.Yield | ast.Set) for one in parts):
        return False
    several = (one for one in parts if isinstance(one, ast.ListComp | ast.GeneratorExp))
    if (
        any(len(one.generators) > 1 or one.generators[0].ifs for one in several)
        or _called(node) & _BY_CONTENT
    ):
        return False
    asked = {
        id(one) for part in parts if isinstance(part, ast.If | ast.Assert) for one in ast.walk(part.test)
    }
    if any(isinstance(one, ast.Compare) and id(one) not in asked for one in parts):
        return False  # a mask
    over = [one.iter for one in parts if isinstance(one, ast.For | ast.comprehension)]
    of_rows = [one for part in over for one in ast.walk(part) if isinstance(one, ast.Subscript)]
    if any(not isinstance(one.slice, ast.Slice) for one in of_rows):
        return False
    for loop in (one for one in parts if isinstance(one, ast.For)):
        inner = [one for part in loop.body for one in ast.walk(part)]
        # What is added under a condition, or in a loop over a row of another length.
        if any(isinstance(one, ast.If | ast.For | ast.AugAssign) for one in inner):
            return False
    return _is_list(node)


def _is_list(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> bool:
    """Whether a function returns a list that it makes."""
    made = node.body if isinstance(node, ast.Lambda) else _returned(node)
    if isinstance(made, ast.Name):
        bound = [one for one in ast.walk(node) if isinstance(one, ast.Assign)]
        made = next((one.value for one in bound if getattr(one.targets[0], "id", "") == made.id), None)
    is_made = isinstance(made, ast.Call) and getattr(made.func, "id", "") == "list"
    return isinstance(made, ast.List | ast.ListComp) or is_made


def _returned(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr | None:
    """What a function returns at its one return of its own."""
    found = [one.value for one in node.body if isinstance(one, ast.Return)]
    return found[0] if len(found) == 1 else None


# What makes an array of one value.
_FILLED = frozenset("zeros ones full empty".split())


def _is_padded(
    part: ast.expr, written: Mapping[str, ast.expr], inner: set[str], longest: bool
) -> bool | None:
    """Whether a part of a batch is padded to its longest row; False of lengths, None of anything else."""
    waiting, seen, calls = [part], 0, set[str]()
    while waiting and seen < 20:
        one, seen = waiting.pop(), seen + 1
        calls |= _called(one)
        waiting += [written[n.id] for n in ast.walk(one) if isinstance(n, ast.Name) and n.id in written]
    if "pad_sequence" in calls or (longest and ("pad" in calls or calls & inner)):
        return True
    if "max" in calls and calls & _FILLED:
        return True  # an array as wide as the longest row, which the rows are written into
    return False if "len" in calls else None


def _called(node: ast.AST) -> set[str]:
    calls = [inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    return {func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls}


def stacks_rows(args: Args, keywords: Keywords) -> bool:
    """Whether a loader's batches are known to have several rows, along the first axis, by how they are put together."""
    size = keywords.get("batch_size", args[1] if len(args) > 1 else constant(1))
    if size.const in (None, 1) and "batch_sampler" not in keywords:
        return False
    collate = _collate(args, keywords)
    functions = collate.of(Function)
    return collate.const is None or (len(functions) == 1 and _stacks(functions[0].node))


def _stacks(node: ast.AST) -> bool:
    """Whether a function puts rows together along the first axis, and calls nothing that may turn them."""
    stacks = False
    known = {inner.name for inner in ast.walk(node) if isinstance(inner, ast.FunctionDef)} | set(
        vars(builtins)
    )
    for call in [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]:
        named = call.func
        word = named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")
        given = {one.arg: one.value for one in call.keywords}
        axis = given.get("dim", given.get("axis", call.args[1] if len(call.args) > 1 else None))
        flag = given.get("batch_first", call.args[1] if len(call.args) > 1 else None)
        if word in ("stack", "pad_sequence"):
            right = axis is None or getattr(axis, "value", None) == 0
            if not (right if word == "stack" else getattr(flag, "value", None) is True):
                return False
            stacks = True
        elif not (isinstance(named, ast.Attribute) or word in known) or word in _TURNING:
            return False
    return stacks
