"""Losses that a loop adds up sample by sample, or group by group of a batch's samples: sums over the batch.

each = ((output - target) ** 2).sum(1)
for i in range(len(each)):
    total += each[i]

for start, end in groups:        (of the batch)
    total += each[start:end].min()
"""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.metrics.counts import made_once, size_of
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, walk

# Ways to one number for each sample.
_REDUCING = frozenset("sum mean norm pow abs squeeze view reshape sqrt exp log".split())


def adds_samples(script: ScriptModel, stmt: ast.AugAssign) -> bool:
    """Whether an addition takes in the samples of the batch one by one."""
    if script.tree.parent(stmt) is None:
        return False
    loop = next(iter(script.enclosing_loops(stmt)), None)
    if not isinstance(loop, ast.For):
        return False
    if isinstance(loop.target, ast.Name):
        return _counts_samples(script, loop) and _is_one_of_them(script, stmt.value, loop.target.id)
    root = loop.iter.value if isinstance(loop.iter, ast.Attribute) and loop.iter.attr == "data" else loop.iter
    ends = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
    if len(ends) != 2 or not isinstance(root, ast.Name) or not script.is_a(root, v.BATCH):
        return False
    names = [end.id for end in ends if isinstance(end, ast.Name)]
    return any(_cuts_out(part, names) for part in _made_of(loop, stmt.value))


def _counts_samples(script: ScriptModel, loop: ast.For) -> bool:
    """`for i in range(len(each))`, `for i in range(x.size(0))`, or with a name for that."""
    if not isinstance(loop.iter, ast.Call) or dotted(loop.iter.func) != "range" or len(loop.iter.args) != 1:
        return False
    count: ast.expr | None = loop.iter.args[0]
    if isinstance(count, ast.Name):
        count = made_once(script, count)
    return count is not None and size_of(count) is not None


def _is_one_of_them(script: ScriptModel, value: ast.expr, counter: str) -> bool:
    """`each[i]`, with or without a factor, of a tensor that has one number for each sample."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        return any(_is_one_of_them(script, side, counter) for side in (value.left, value.right))
    if not isinstance(value, ast.Subscript) or not isinstance(value.value, ast.Name):
        return False
    if not isinstance(value.slice, ast.Name) or value.slice.id != counter:
        return False
    made = made_once(script, value.value)
    if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute):
        return made.func.attr in _REDUCING
    # Losses of several outputs are in a list, which numbers are not multiplied with.
    return isinstance(made, ast.BinOp)


def _made_of(loop: ast.For, value: ast.expr) -> list[ast.AST]:
    """The parts of a value, and of what the loop assigns to the names that it reads."""
    parts, names = list(walk(value)), set[str]()
    for part in parts:  # which grows
        if isinstance(part, ast.Name) and part.id not in names:
            names.add(part.id)
            parts += [
                n
                for s in loop.body
                if isinstance(s, ast.Assign)
                and any(isinstance(t, ast.Name) and t.id == part.id for t in s.targets)
                for n in walk(s.value)
            ]
    return parts


def _cuts_out(part: ast.AST, names: list[str]) -> bool:
    """`each[start:end]`."""
    return (
        isinstance(part, ast.Subscript)
        and isinstance(part.slice, ast.Slice)
        and [dotted(end) if end is not None else None for end in (part.slice.lower, part.slice.upper)]
        == names
    )
