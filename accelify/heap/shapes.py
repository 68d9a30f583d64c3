"""How many axes an array of rows has after an operation, where that is known."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from accelify.domains.meeting_rows import turned_over
from accelify.domains.placement import SAME, Kind, Placement, function, is_figure, reduced, unturned
from accelify.domains.replacing import replace
from accelify.heap.containers import array_of, parts_of, tuple_of
from accelify.heap.values import SHAPES, TENSOR, Instance, Value, written_arguments
from accelify.knowledge import Row

if TYPE_CHECKING:
    from accelify.heap.run import Run

Args = Sequence[Value]
Keywords = Mapping[str, Value]
# What leaves an array as many axes as it had, by names without underscores: `F.leaky_relu`, `nn.LeakyReLU`.
_AS_MANY = frozenset(
    (
        "abs absolute add batchnorm1d bfloat16 bool cat celu clamp clampmax clampmin clip clone concat concatenate "
        "contiguous cos cpu cuda cummax cummin cumprod cumsum detach div divide double dropout dropout1d elu erf exp "
        "expm1 flip float gelu groupnorm gumbelsoftmax half hardsigmoid hardtanh identity int layernorm leakyrelu "
        "linear log log10 log1p log2 logcumsumexp logsigmoid logsoftmax long maskedfill minus mish mul multiply neg "
        "normalize permute pow prelu relu relu6 roll rsqrt selu sigmoid sign silu sin softmax softplus softsign sort "
        "sqrt square sub swapaxes swapdims tan tanh times to transpose triu tril type typeas where"
    ).split()
)
# What gives an array of a number of axes.
_OF = {
    **dict.fromkeys(
        "adaptiveavgpool2d adaptivemaxpool2d avgpool2d batchnorm2d conv2d convtranspose2d instancenorm2d maxpool2d "
        "upsamplingbilinear2d pixelshuffle".split(),
        4,
    ),
    **dict.fromkeys("bmm baddbmm".split(), 3),
    **dict.fromkeys("mm addmm t cdist".split(), 2),
    **dict.fromkeys("ravel mv pairwisedistance".split(), 1),
}
# What pools, and over how many axes.
_POOL = re.compile(r"(avg|max|lp)pool(\d)d")
# What the operator `@` does, for arrays of how many axes where that is fixed.
PRODUCTS = {"matmul": 0, "__matmul__": 0, "mm": 2, "dot": 1, "vdot": 1, "inner": 1, "mv": 0}
# Losses that compare number by number.
_STRETCHING = ("mse", "l1", "huber")
# What works on each row by itself only where rows are no single numbers.
_ALONG_LAST = frozenset("sort argsort topk kthvalue cumsum cumprod cummax cummin logcumsumexp".split())
# The states that a recurrent layer gives beside its output, by the note of its row.
_STATES = {"with a state along the second axis": 1, "with two states along the second axis": 2}
# The field of a layer that says how many axes what it gives has.
AXES = "#axes"
_SIZED = frozenset({"view", "reshape", "expand", "repeat"})
_REDUCTIONS = frozenset("sum mean max min any all count reduce".split())


def counted(place: Placement, axes: int | None) -> Placement:
    """The same with so many axes, None where that is not known; of rows of a round alone."""
    known = axes if axes and place.kind is Kind.ROUND and place.rows else 0
    return place if place.axes == known else replace(place, axes=known)


def with_axes(value: Value, axes: int) -> Value:
    """The same value with so many axes."""
    place = counted(value.place, axes)
    return value if place is value.place else replace(value, place=place)


def from_first(place: Placement, axis: int) -> int:
    """An axis as it is counted from the first one, where it is known how many there are."""
    return axis + place.axes if axis < 0 <= axis + place.axes else axis


def note_axis(run: Run, row: Row, axis: Value | None, args: Args, node: ast.AST) -> None:
    """Note that an axis that is counted from the end is taken for another one than that of the rows."""
    first = array_of(args[0]) if args and row.axis is not None else SAME
    number = axis.const if axis is not None else -1
    if first.kind is Kind.ROUND and first.rows and not first.axes and isinstance(number, int):
        if number < -1 or (number == -1 and row.name.rpartition(".")[2] in _ALONG_LAST):
            run.assume(f"`{run.segment(node)}` works along another axis than that of the rows", node)


def of_call(row: Row, name: str, axis: Value | None, args: Args, keywords: Keywords, node: ast.AST) -> int:
    """How many axes a call gives, 0 where that is not known.

    Args:
        row: of what is called.
        name: of the function or method, or of a layer's class.
        axis: what the call says of its axis.
        args: what it is called with.
        keywords: by name.
        node: the call.
    """
    word = name.replace("_", "").lower()
    if word in _OF:
        return _OF[word]
    if word == "flatten":
        return _flattened(args, keywords)
    before = array_of(args[0]).axes if args else 0
    if word in _SIZED:
        starred = any(isinstance(one, ast.Starred) for one in written_arguments(node))
        sizes = [inner for value in args[1:] for inner in parts_of(value)]
        return 0 if starred or keywords or any(one.type in SHAPES for one in args[1:]) else len(sizes)
    if not before:
        return 0
    number = axis.const if axis is not None and isinstance(axis.const, int) else None
    if word == "unsqueeze" or (word == "stack" and row.transfer == "cat"):
        return before + 1
    if word in ("vstack", "hstack") and before > 1:
        return before
    if row.transfer in _REDUCTIONS or word in ("argmax", "argmin", "cosinesimilarity", "logsumexp"):
        keeps = any(word in keywords for word in ("keepdim", "keepdims")) or len(args) > 2 + (
            row.axis is None
        )
        return 0 if number is None or keeps else before - 1
    if word in ("crossentropy", "nllloss"):
        return before - 1
    return before if word in _AS_MANY or row.transfer in ("plus", "times", "over", "minus", "loss") else 0


def of_layer(run: Run, layer: Instance, row: Row, place: Placement, args: Args, node: ast.AST) -> Placement:
    """What a layer of a library gives, with how many axes that has."""
    known = run.read(layer, AXES)
    if known is not None and isinstance(known.const, int):
        return counted(place, known.const)
    name = layer.type.rpartition(".")[2]
    return place if name == "Flatten" else counted(place, of_call(row, name, None, args, {}, node))


def _flattened(args: Args, keywords: Keywords) -> int:
    given = [value.const for value in [*args[1:], *keywords.values()]]
    if not given:
        return 1
    first = given[0]
    return first + 1 if len(given) == 1 and isinstance(first, int) and first >= 0 else 0


def pooled(run: Run, name: str, args: Args, made: Value, node: ast.AST) -> Value:
    """What a layer or function gives: of a pool over as many axes as an array has, a figure of all of its rows.

    `AdaptiveAvgPool2d(1)` after `x.view(-1, width)` takes the rows for the height of one picture.
    """
    word = _POOL.search(name.lower().replace("_", ""))
    given = array_of(args[0]) if word and args else SAME
    if word is None or given.kind is not Kind.ROUND or not (given.rows and given.axes):
        return made
    if given.turned < given.axes - int(word[2]):
        return made
    place = reduced(given, "mean" if word[1] == "avg" else "max")
    return run.made(node, place, args[0], type_=TENSOR, text=f"`{run.segment(node)}` pools over the rows")


def of_operands(run: Run, node: ast.AST, places: Sequence[Placement]) -> int:
    """How many axes an operation has that goes element by element over arrays, 0 where that is not known.

    Arrays that have the rows of a batch along their first axes have as many axes as each other; that a row of numbers
    does not meet a column of them is noted where it is not known.
    """
    axes = [place.axes for place in places if place.rows and place.kind is Kind.ROUND]
    if {0, 1} <= {*axes}:
        run.assume(
            f"`{run.segment(node)}` goes over arrays of one axis: with a column it would be of pairs", node
        )
    return max(axes, default=0)


def stretches(run: Run, name: str, places: Sequence[Placement], node: ast.AST) -> bool:
    """Whether a loss by its name compares number by number, and so puts arrays of unlike shapes into one."""
    if not any(one in name.lower() for one in _STRETCHING):
        return False
    of_operands(run, node, places)  # notes what is not known of the shapes
    return True


def product(left: Placement, right: Placement) -> Placement:
    """What a product of matrices is: that of each row's, or a sum over the rows, or each row beside all others."""
    if not (right.rows and Kind.ROUND in (left.kind, right.kind)):
        place = function((left, right), rowwise=not right.rows or not right.turned)
        if place.kind is Kind.ROUND and place.rows and (is_figure(left) or is_figure(right)):
            place = replace(place, mixed=True)
        return counted(place, left.axes if left.axes > 1 else 0)
    if left.axes == 2 and left.turned == 1 and right.axes < 3 and not right.turned:
        right = counted(right, right.axes or 2)  # its first axis is as long as there are rows
    if not (left.axes and right.axes):
        batched = not (left.turned or right.turned)
        beside = not left.rows and right.turned == right.axes - 1
        place = function((left, right), rowwise=batched or beside)
        return replace(place, mixed=True) if left.rows and not batched and place.kind is Kind.ROUND else place
    gone = left.turned == left.axes - 1, right.turned == max(right.axes - 2, 0)
    rowwise = function((left, right), rowwise=True)
    if left.rows and all(gone):
        return reduced(unturned(rowwise), "sum")
    if left.rows and (any(gone) or min(left.axes, right.axes) < 3):
        return replace(function((left, right)), mixed=True)
    axes = max(left.axes, right.axes) - (left.axes == 1) - (right.axes == 1)
    return counted(rowwise, axes)


def of_subscript(base: Placement, parts: Sequence[ast.expr]) -> int:
    """How many axes a part of an array has: a number takes one away, `None` puts one in."""
    left = base.axes
    for one in parts if left else ():
        known = isinstance(one, ast.Constant | ast.UnaryOp)
        if not known and not isinstance(one, ast.Slice):
            return 0
        if known and not (isinstance(one, ast.Constant) and one.value is ...):
            left += 1 if isinstance(one, ast.Constant) and one.value is None else -1
    return max(left, 0)


def with_states(run: Run, row: Row, made: Value, node: ast.AST) -> Value:
    """What a recurrent layer gives: its output, and states that have the rows along their second axis."""
    count = _STATES.get(row.note, 0)
    if not count or made.place.kind is not Kind.ROUND or not made.place.rows or made.refs:
        return made
    output = replace(made, type=TENSOR, place=unturned(made.place))
    state = replace(made, type=TENSOR, place=turned_over(unturned(made.place)))
    states = state if count == 1 else tuple_of(run, [state] * count, (node, "states"))
    return tuple_of(run, [made if made.place.turned else output, states], node)
