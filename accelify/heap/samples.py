"""How many axes the parts of a sample have, by what a data set's `__getitem__` returns."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.heap.values import Function

# What gives a number, and no array.
_NUMBERS = frozenset({"int", "float", "bool", "len", "round", "item"})
# What makes an array of what it gets, or of its shape.
_ARRAYS = frozenset(
    (
        "tensor as_tensor from_numpy array asarray Tensor FloatTensor LongTensor IntTensor DoubleTensor float32 "
        "float64 int64 int32"
    ).split()
)
_SHAPED = frozenset({"zeros", "ones", "rand", "randn"})
# Methods that leave an array as many axes as it has.
_AS_MANY = frozenset("float long int double half bool to type astype clone contiguous clamp copy".split())
_DEEPEST = 8
# What names are bound to, by line, None for what is not known.
Bound = dict[str, dict[int, ast.expr | None]]


def axes_of_parts(method: Function) -> dict[object, int]:
    """How many axes each part of what a method returns has, by its number or its key, None for all of it; those of
    which it is known alone."""
    node = method.node
    if isinstance(node, ast.Lambda):
        return {}
    bound: Bound = {}
    for stmt in [one for one in ast.walk(node) if isinstance(one, ast.Assign)]:
        for target in stmt.targets:
            for name in [one for one in ast.walk(target) if isinstance(one, ast.Name)]:
                known = name is target and stmt in node.body
                bound.setdefault(name.id, {})[stmt.lineno] = stmt.value if known else None
    found: list[dict[object, int]] = []
    for one in ast.walk(node):
        if isinstance(one, ast.Return) and one.value is not None:
            parts = [(key, _axes(part, bound)) for key, part in _parts(one.value)]
            found.append({key: axes for key, axes in parts if axes is not None})
    return {
        key: axes
        for key, axes in (found[0] if found else {}).items()
        if all(other.get(key) == axes for other in found)
    }


def _parts(given: ast.expr) -> Iterator[tuple[object, ast.expr]]:
    if isinstance(given, ast.Dict):
        for key, value in zip(given.keys, given.values, strict=True):
            if isinstance(key, ast.Constant):
                yield key.value, value
    elif isinstance(given, ast.Tuple | ast.List):
        yield from enumerate(given.elts)
    else:
        yield None, given


def _axes(node: ast.expr, bound: Bound, depth: int = 0) -> int | None:
    """How many axes an expression has, None where that is not known."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.Constant):
        return 0 if isinstance(node.value, int | float) else None
    if isinstance(node, ast.Name):
        before = {line: value for line, value in bound.get(node.id, {}).items() if line < node.lineno}
        value = before[max(before)] if before else None
        return None if value is None else _axes(value, bound, depth + 1)
    if isinstance(node, ast.List | ast.Tuple):
        inside = {_axes(one, bound, depth + 1) for one in node.elts} - {None}
        if len(node.elts) == 1 and not inside and isinstance(node.elts[0], ast.Subscript | ast.Name):
            return 1  # a column of one number for each sample
        inner = inside.pop() if len(inside) == 1 else None
        return None if inner is None else inner + 1
    if isinstance(node, ast.IfExp):
        both = {_axes(one, bound, depth + 1) for one in (node.body, node.orelse)}
        return both.pop() if len(both) == 1 else None
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
        return _axes(node.left, bound, depth + 1)
    return _of_call(node, bound, depth) if isinstance(node, ast.Call) else None


def _of_call(node: ast.Call, bound: Bound, depth: int) -> int | None:
    func, first = node.func, node.args[0] if node.args else None
    word = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    if isinstance(func, ast.Attribute) and word in (*_AS_MANY, "unsqueeze", "view", "reshape"):
        sizes = [one for one in node.args if not isinstance(one, ast.Starred)]
        if word in ("view", "reshape"):
            shape = isinstance(first, ast.Tuple | ast.List) or len(sizes) < len(node.args)
            return None if shape or not sizes else len(sizes)
        inner = _axes(func.value, bound, depth + 1)
        return None if inner is None else inner + (word == "unsqueeze")
    if word in _NUMBERS:
        return 0
    if word in _SHAPED:
        return len(node.args) if all(isinstance(one, ast.Constant) for one in node.args) else None
    if word not in _ARRAYS or first is None:
        return None
    inner = _axes(first, bound, depth + 1)
    # A number is the size of what `torch.FloatTensor` makes.
    return None if inner == 0 and word.endswith("Tensor") else inner
