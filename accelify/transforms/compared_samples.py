"""Expressions that set the samples of a batch against each other."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from accelify.analysis import values as v
from accelify.analysis.devices.filled_matrices import counts_samples, fills_by_pairs
from accelify.analysis.losses.ranked_samples import ranks_losses
from accelify.analysis.losses.sum_calls import sums_samples
from accelify.analysis.scopes import Scope
from accelify.analysis.statements.assignments import assigned_once
from accelify.analysis.syntax import call_keyword, dotted, is_constant, text_of, walk
from accelify.analysis.values import Thing
from accelify.transforms.base import Context

_PRODUCTS = frozenset({"matmul", "mm"})
_KEEPING = frozenset({"contiguous", "detach", "clone"})
# What rows are compared with that are no samples of the batch.
_NO_SAMPLES = re.compile(
    r"weight|kernel|matrix|center|centre|proto|embed\w*$|codebook|bank|queue|memory|table|(^|_)lut($|_)|basis|^[wW]\d?$|mask|"
    r"anchors$|anchor_?(box|grid|point|scale)"  # of a detector; the anchor of a pair is a sample
)
# What lies within one sample.
_PLACES = re.compile(r"box|point|pts|grid|coord|^xyz|anchor|gt_|loc|kpt")
# `x.view(1, n, d)`: in few scripts.
_FIRST_OF_ONE = re.compile(rb"\.(view|reshape)\(\s*1\s*,")


def compares_by_size(context: Context, scope: Scope, call: ast.Call) -> bool:
    """Whether a call compares as many rows as the batch has samples, by pairs: those of no layer of a model."""
    if fills_by_pairs(scope, call):
        return True
    if len(call.args) < 2 or not context.script.callees(call):
        return False
    if not context.script.interpreter.module_of(scope).tree.mentions(_FIRST_OF_ONE):
        return False
    sizes = _pairs_of_views(scope, call.args)
    return any(counts_samples(scope, size) for size in sizes)


def compares_samples(context: Context, scope: Scope, node: ast.BinOp | ast.Call) -> bool:
    """Whether an expression sets the samples of a batch against each other, or against a figure of them all."""
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Sub):
            sides = (node.left, node.right)
            return (
                _spread_against(*sides)
                or _spread_by_views(scope, sides)
                or _spread_by_names(scope, *sides)
                or _rows_against_columns(scope, *sides)
                or _rows_against_columns(scope, *reversed(sides))
                or any(_is_mean_of_batch(context, side) for side in sides)
            )
        if isinstance(node.op, ast.Div):
            return _divides_by_batch(context, scope, node)
        return isinstance(node.op, ast.MatMult) and _rows_with_rows(node.left, node.right)
    if len(node.args) > 1 and context.script.callees(node):
        tree = context.script.interpreter.module_of(scope).tree
        if tree.mentions(_FIRST_OF_ONE) and _spread_by_views(scope, node.args):
            return True
    if ranks_losses(context.script, scope, node):
        return True
    func = node.func
    last = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    if last == "log" and len(node.args) == 1:
        return _is_sum_of_batch(context, node.args[0])
    if not isinstance(func, ast.Attribute):
        return False
    if func.attr in ("pdist", "cdist"):
        pair = node.args[:2] if func.attr == "cdist" else node.args[:1] * 2
        if len(pair) < 2 or not isinstance(pair[0], ast.Name) or not isinstance(pair[1], ast.Name):
            return False
        return pair[0].id == pair[1].id or _is_kernel(context, scope, pair[0].id, pair[1].id)
    if func.attr in ("addmm", "addmm_"):
        # Of a tensor with itself: with another one, it is a layer.
        factors = [arg for arg in node.args if not isinstance(arg, (ast.Constant, ast.UnaryOp))][-2:]
        bases = [_base(factor) for factor in factors]
        return (
            len(bases) == 2
            and {turned for _, turned in bases} == {True, False}
            and (
                bases[0][0] is not None and bases[0][0] == bases[1][0] and not _NO_SAMPLES.search(bases[0][0])
            )
        )
    if func.attr not in _PRODUCTS:
        return False
    pair = node.args[:2] if len(node.args) >= 2 else [func.value, *node.args]
    return len(pair) == 2 and _rows_with_rows(pair[0], pair[1])


def _is_kernel(context: Context, scope: Scope, one: str, other: str) -> bool:
    """Whether a function of `x` and `y` is somewhere called with the same tensor twice, as `k(a, a)` of an MMD loss."""
    names = scope.positional()[1 if scope.self_name() else 0 :]
    if one not in names or other not in names:
        return False
    places = (names.index(one), names.index(other))
    for _, call in context.script.interpreter.callers.get(scope, []):
        given = [call.args[place] for place in places if place < len(call.args)]
        if len(given) == 2 and isinstance(given[0], ast.Name) and ast.dump(given[0]) == ast.dump(given[1]):
            return True
    return False


def _is_mean_of_batch(context: Context, node: ast.expr) -> bool:
    """`scores.mean(0)` of what a model gives for the batch: what a sample is compared with."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "mean":
        return False
    owner, given = node.func.value, node.args
    if context.script.qualname(node.func) == "torch.mean" and given:
        owner, given = given[0], given[1:]
    dim = given[0] if given else call_keyword(node, "dim")
    return dim is not None and is_constant(dim, 0) and context.script.is_a(owner, v.OUTPUT)


def _divides_by_batch(context: Context, scope: Scope, node: ast.BinOp) -> bool:
    """`q ** 2 / q.sum(0)` of what a model gives for the batch: every sample's share depends on the others."""
    total = node.right
    if (
        not isinstance(total, ast.Call)
        or not isinstance(total.func, ast.Attribute)
        or total.func.attr != "sum"
    ):
        return False
    whole = total.func.value
    given = total.args
    if dotted(whole) in ("torch", "th") and given:
        whole, given = given[0], given[1:]
    if not isinstance(whole, ast.Name) or not sums_samples(given, total.keywords):
        return False
    if all(n.id != whole.id for n in walk(node.left) if isinstance(n, ast.Name)):
        return False
    own = scope.owner_class is not None and scope.name.endswith(".forward")
    if own and scope.takes(whole.id):
        return not _NO_SAMPLES.search(whole.id)
    interpreter = context.script.interpreter
    held = interpreter.evaluate(interpreter.module_of(scope), scope, whole)
    return any(isinstance(one, Thing) and one.kind == v.OUTPUT for one in held)


def _is_sum_of_batch(context: Context, node: ast.expr, far: int = 0) -> bool:
    """`torch.sum(torch.exp(scores))`, by itself or in a name."""
    if isinstance(node, ast.Name) and not far and context.script.is_a(node, v.OUTPUT, v.TENSOR):
        scope = context.script.scope_of(node)
        made = [s.value for s in context.tree.assigns(node.id) if context.script.scope_of(s) is scope]
        return len(made) == 1 and _is_sum_of_batch(context, made[0], 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return any(_is_sum_of_batch(context, side, far) for side in (node.left, node.right))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "sum":
        return False
    whole = 1 if context.script.qualname(node.func) == "torch.sum" else 0
    return len(node.args) == whole and not node.keywords and context.script.is_a(node, v.OUTPUT, v.TENSOR)


def _rows_with_rows(one: ast.expr, other: ast.expr) -> bool:
    """`a @ b.t()`: every row of the one with every row of the other, of two tensors of the batch or of the same."""
    (first, turned), (second, turned_too) = _base(one), _base(other)
    if first is None or second is None or turned == turned_too:
        return False
    return first == second or not (_NO_SAMPLES.search(first) or _NO_SAMPLES.search(second))


def _base(node: ast.expr) -> tuple[str | None, bool]:
    """The name at the root of an operand, and whether its two dimensions are swapped."""
    turned = False
    while True:
        if isinstance(node, ast.Attribute) and node.attr == "T":
            turned, node = not turned, node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if _swaps(node):
                turned = not turned
            elif node.func.attr not in _KEEPING:
                return None, False
            node = node.func.value
        else:
            return (node.id, turned) if isinstance(node, ast.Name) else (None, False)


def _swaps(call: ast.Call) -> bool:
    """`t()`, `transpose(0, 1)`, `permute(1, 0)`: not the dimensions within one sample."""
    assert isinstance(call.func, ast.Attribute)
    given = sorted(a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, int))
    return call.func.attr == "t" or (call.func.attr in ("transpose", "permute") and given == [0, 1])


def _spread_against(one: ast.expr, other: ast.expr) -> bool:
    """`a.unsqueeze(0) - b.unsqueeze(1)`: every sample minus every sample."""
    dimensions = {_spread(one), _spread(other)}
    return dimensions == {0, 1}


def _rows_against_columns(scope: Scope, one: ast.expr, other: ast.expr) -> bool:
    """`a.view(n, d, 1) - b.t()`: every row of the one minus every row of the other."""
    rows = assigned_once(scope, one)
    row = _deepened(rows) if rows is not None else None
    columns = assigned_once(scope, other) if row is not None else None
    if row is None or columns is None:
        return False
    if isinstance(columns, ast.Call) and dotted(columns.func) in ("torch.t", "torch.transpose"):
        name, turned = _base(columns.args[0]) if columns.args else (None, False)
        turned = turned != _swaps(columns)
    else:
        name, turned = _base(columns)
    return turned and name is not None and not (_NO_SAMPLES.search(name) or _NO_SAMPLES.search(row))


def _deepened(node: ast.expr) -> str | None:
    """The name of a matrix that gets a third dimension: `a.view(n, d, 1)`, `a.unsqueeze(2)`, `a[:, :, None]`."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
        whole = len(parts) == 3 and all(isinstance(part, ast.Slice) for part in parts[:2])
        return node.value.id if whole and is_constant(parts[2], None) else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    last = node.args[-1] if node.args else None
    shaped = node.func.attr in ("view", "reshape") and len(node.args) == 3 and is_constant(last, 1)
    deeper = node.func.attr == "unsqueeze" and is_constant(last, 2)
    return node.func.value.id if (shaped or deeper) and isinstance(node.func.value, ast.Name) else None


def _spread_by_views(scope: Scope, sides: Sequence[ast.expr]) -> bool:
    """Every sample against every sample: `a.view(n, 1, d)` and `b.view(1, n, d)`, or names of these."""
    return bool(_pairs_of_views(scope, sides))


def _pairs_of_views(scope: Scope, sides: Sequence[ast.expr]) -> set[str]:
    """How many rows are compared so, as source."""
    viewed = [_viewed(made) for side in sides if (made := assigned_once(scope, side)) is not None]
    rows = {size for place, size in filter(None, viewed) if place == 1}
    return {size for place, size in filter(None, viewed) if place == 0 and size in rows}


def _viewed(node: ast.expr) -> tuple[int, str] | None:
    """Where `x.view(n, 1, d)` has its new dimension, and how many samples it has in the other of the first two."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) < 3:
        return None
    name = dotted(node.func.value)
    if node.func.attr not in ("view", "reshape") or name is None or _NO_SAMPLES.search(name):
        return None
    new = [place for place, size in enumerate(node.args) if is_constant(size, 1)]
    if new not in ([0], [1]):
        return None
    size = node.args[1 - new[0]]
    return (new[0], text_of(size)) if isinstance(size, (ast.Name, ast.Call, ast.Subscript)) else None


def _spread_by_names(scope: Scope, one: ast.expr, other: ast.expr) -> bool:
    """`a - b` of `a = x.unsqueeze(0).expand(n, m, d)` and `b = y.unsqueeze(1).expand(n, m, d)`, or of these calls."""
    made = [assigned_once(scope, side) for side in (one, other)]
    whole = [_unexpanded(side) for side in made if side is not None]
    if len(whole) < 2 or {_spread(side) for side in whole} != {0, 1}:
        return False
    names = [n.id for side in whole for n in [_spread_name(side)] if n is not None]
    if len(names) < 2 or any(_NO_SAMPLES.search(name) for name in names):
        return False
    # Of two tensors: a kernel that is handed both, and no grid or boxes of one sample.
    handed = {a.arg for a in scope.parameters()}
    return names[0] == names[1] or (handed >= set(names) and not any(_PLACES.search(name) for name in names))


def _unexpanded(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in ("expand", "expand_as", "repeat", *_KEEPING):
            break
        node = node.func.value
    return node


def _spread_name(node: ast.expr) -> ast.Name | None:
    """The name under `x.unsqueeze(0)` or `x[None]`."""
    inner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    inner = node.value if isinstance(node, ast.Subscript) else inner
    return inner if isinstance(inner, ast.Name) else None


def _spread(node: ast.expr) -> int | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unsqueeze":
        given = node.args[0] if node.args else None
        if isinstance(node.func.value, ast.Name) and isinstance(given, ast.Constant):
            return next((n for n in (0, 1) if given.value == n), None)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        new = [i for i, part in enumerate(parts) if isinstance(part, ast.Constant) and part.value is None]
        return new[0] if len(new) == 1 and new[0] in (0, 1) and len(parts) <= 3 else None
    return None
