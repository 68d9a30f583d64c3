"""The axes that calls name, and where the rows of a batch lie after them."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from accelify.domains.meeting_rows import ahead, at_axis, mixing, turned_over
from accelify.domains.placement import (
    AHEAD,
    BESIDE,
    ROUND_ROWS,
    Kind,
    Placement,
    function,
    nearer,
    reduced,
    turned,
    unsure,
    unturned,
)
from accelify.domains.replacing import replace
from accelify.heap.containers import array_of, elements, parts_of
from accelify.heap.shapes import from_first
from accelify.heap.values import NONE, UNSET, WIDTH, Value, constant
from accelify.knowledge import Argument, Row

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter
    from accelify.heap.run import Run

Args = Sequence[Value]
Keywords = Mapping[str, Value]
# What may put another axis ahead of that of the rows, take it away, or pack the rows.
_MOVING = frozenset(
    (
        "squeeze unsqueeze expand expand_as broadcast_to tile repeat select rearrange atleast_2d atleast_3d mT mH "
        "unflatten unfold transpose_ t_ swapaxes_ swapdims_ squeeze_ unsqueeze_ pack_padded_sequence "
        "pad_packed_sequence unpad_sequence"
    ).split()
)
# `ignore_index` where none is given.
_NO_CLASS = -100
# Where an axis of one is put in.
_PUT_IN = (0, 1, -1)
# What lays rows beside each other as often as it is asked to.
_COPYING = frozenset({"expand", "expand_as", "repeat", "tile", "repeat_interleave"})
# Along which axis arrays of more than one are put together.
_STACKED = {"vstack": 0, "row_stack": 0, "hstack": 1, "column_stack": 1}
# The axes in one side of a pattern, those put together in brackets.
_AXES = re.compile(r"\([^)]*\)|[^\s()]+")


def arguments_of(one: Argument, args: Args, keywords: Keywords, shift: int) -> list[Value]:
    """The values that a row's argument is given in a call; `shift` is 1 where `args` begins with the receiver."""
    if one.every:
        return [*args[shift:], *keywords.values()]
    if one.receiver:
        return list(args[:1]) if shift else []
    if one.name is not None and one.name in keywords:
        return [keywords[one.name]]
    if one.position is not None and one.position + shift < len(args):
        return [args[one.position + shift]]
    return []


def weighs_rows(engine: Interpreter, row: Row, args: Args, keywords: Keywords) -> str:
    """The arguments that give the rows weights, or leave some out, so that each rank has a mean of its batch, with
    "=, " between them; "" where there is none."""
    found: dict[str, None] = {}
    for one in row.content:
        leaves_out = one.name == "ignore_index"
        for value in arguments_of(one, args, keywords, 0) or ([constant(_NO_CLASS)] if leaves_out else []):
            if value.const is None or (value.const == _NO_CLASS and not _has_no_class(engine)):
                continue
            found[str(one.name)] = None
    return "=, ".join(found)


def _has_no_class(engine: Interpreter) -> bool:
    """Whether the program writes the label of rows that are left out, as where it pads labels."""
    modules = (*engine.run.modules, *engine.modules.run_ones())
    return any(_writes_no_class(one.tree) for one in modules if "-100" in one.text and one.tree is not None)


@lru_cache(maxsize=64)
def _writes_no_class(tree: ast.Module) -> bool:
    """Whether a module has the label elsewhere than as the `ignore_index` of a loss or of a function."""
    nodes = list(ast.walk(tree))
    given = {one.value for one in nodes if isinstance(one, ast.keyword) and one.arg == "ignore_index"}
    for one in [one for one in nodes if isinstance(one, ast.arguments)]:
        named = reversed([*one.posonlyargs, *one.args])
        pairs = [*zip(named, reversed(one.defaults), strict=False)]
        pairs += [(name, value) for name, value in zip(one.kwonlyargs, one.kw_defaults, strict=True) if value]
        given |= {value for name, value in pairs if name.arg == "ignore_index"}
    return any(
        isinstance(one.op, ast.USub)
        and getattr(one.operand, "value", None) == -_NO_CLASS
        and one not in given
        for one in nodes
        if isinstance(one, ast.UnaryOp)
    )


def is_method(row: Row) -> bool:
    """Whether the first of a call's arguments is the receiver of a method."""
    owner = row.name.rpartition(".")[0].rpartition(".")[2]
    return owner == "?" or owner[:1].isupper() or owner in ("ndarray",)


def lays_out(row: Row) -> bool:
    """Whether all but the first argument of a call say how its values lie."""
    return row.transfer == "reshaped" or row.name.rpartition(".")[2] in _COPYING


def axis_of(row: Row, args: Args, keywords: Keywords) -> Value | None:
    """What a call gives for the axis that its row says it takes, None where it gives nothing.

    torch takes NumPy's word for it, too.
    """
    if row.axis is None:
        return None
    shift = int(bool(row.name) and is_method(row))
    found = arguments_of(row.axis, args, keywords, shift)
    return found[0] if found else keywords.get("axis") if row.name.startswith("torch.") else None


def names_rows(row: Row, args: Args, keywords: Keywords) -> bool:
    """Whether the axis that a call names is that of the rows; where it names none, it is taken for another."""
    axis = axis_of(row, args, keywords)
    first = array_of(args[0]) if args else ROUND_ROWS
    if axis is None and row.axis is not None:
        return first.axes == 1  # the last one
    known = axis is not None and isinstance(axis.const, int) and not isinstance(axis.const, bool)
    return known and axis is not None and first.rows and from_first(first, axis.const) == int(first.turned)


def rows_after(run: Run, row: Row, args: Args, keywords: Keywords) -> int | None:
    """Along which axis rows lie after a reduction, None where rows go into it."""
    axis, at = axis_of(row, args, keywords), array_of(args[0]).turned if args else 0
    if axis is None or axis.const is None:
        return None
    known = elements(run, axis)
    numbers = [value.const for value in known] if known is not None else [axis.const]
    first = array_of(args[0]) if args else ROUND_ROWS
    numbers = [from_first(first, one) if isinstance(one, int) else one for one in numbers]
    of_rows = (at,) if first.axes or not at else (at, -1)
    if any(not isinstance(one, int) or isinstance(one, bool) or one in of_rows for one in numbers):
        return None
    keeps = any(name in keywords and keywords[name].const is True for name in ("keepdim", "keepdims"))
    return at if keeps else at - sum(0 <= one < at for one in numbers)


def moved_rows(
    run: Run, row: Row, place: Placement, args: Args, keywords: Keywords, node: ast.AST
) -> Placement:
    """Rows in another shape: they are known to stay along their axis where the call says so."""
    sizes = [inner for value in args[1:] for inner in parts_of(value)] or list(keywords.values())
    first, word = sizes[0] if sizes else NONE, row.name.rpartition(".")[2]
    if row.transfer == "reshaped":
        return _flattened(place, first) if word == "flatten" else _laid_out(run, place, sizes, node)
    axis = axis_of(row, args, keywords) if row.axis is not None else first
    number = axis.const if row.axis is not None and axis is not None else None
    if isinstance(number, int):
        number = from_first(replace(place, axes=place.axes + 1) if word == "unsqueeze" else place, number)
    if word == "unsqueeze" and number in _PUT_IN and place.sure and not (place.turned or place.form):
        return ahead(place) if number == 0 else replace(place, form=BESIDE)
    if word == "unsqueeze" and number == 0:
        return unsure(place)
    if word == "squeeze" and number == 0 and place.turned:
        return nearer(place)
    if word in _COPYING:
        form = _copied(word, sizes) if place.sure and not (place.turned or place.form) else place.form
        return replace(unsure(place), form=form)
    if place.form and word in _MOVING and word != "unsqueeze":
        place = replace(place, form="")
    stays = isinstance(number, int) and number != 0
    return place if stays or word not in _MOVING else unsure(place)


def laid_together(word: str, place: Placement, axis: Value | None) -> Placement:
    """Rows of several arrays that a call by its name puts together along an axis."""
    number = (
        axis.const
        if axis is not None
        else 0
        if word == "stack" or word.startswith("conc") or word == "cat"
        else UNSET
    )
    number = _STACKED.get(word, number) if place.axes != 1 else number
    if not isinstance(number, int):
        return unsure(place)
    at = from_first(place, number)
    if word == "stack":
        return (
            replace(turned(place), form="")
            if place.sure and not (place.turned or at)
            else place
            if at
            else unsure(place)
        )
    return replace(place, sure=min(place.sure, 1), form="") if at == int(place.turned) else place


def _copied(word: str, sizes: Sequence[Value]) -> str:
    """How copies of rows lie: each beside its others, or all rows ahead of all others."""
    if word == "repeat_interleave":
        return BESIDE
    several = word in ("repeat", "tile") and len(sizes) > 1 and sizes[0].const != 1
    return AHEAD if several else ""


def _flattened(place: Placement, first: Value) -> Placement:
    """Rows after all axes from one on are put together."""
    start = first.const if isinstance(first.const, int) else 0
    if start > place.turned:
        return place
    # One that is counted from the end is taken for a later one.
    return (
        turned(unsure(place), start)
        if 0 < start < place.turned
        else place
        if start or not place.turned
        else unturned(unsure(place))
    )


def _laid_out(run: Run, place: Placement, sizes: Sequence[Value], node: ast.AST) -> Placement:
    """Rows in an array of other sizes: they lead where the first is their number, or left to torch. Where it is
    another, as in `x.view(classes, -1)`, the next axes have parts of all rows."""
    first = sizes[0] if sizes else NONE
    plain, second = place.sure and not (place.turned or place.form), sizes[1] if len(sizes) > 1 else NONE
    if plain and first.const == 1 and (second.place.even or second.const == -1):
        return replace(turned(unsure(place)), form=AHEAD)
    if plain and second.const == 1 and (first.place.even or first.const == -1):
        return replace(place, form=BESIDE)
    if first.place.even:
        return unturned(unsure(place) if place.turned else place)
    if first.place.rows:  # the shape of another array
        return at_axis(unsure(place), first.place.turned)
    if first.const == -1 and not place.turned:
        return place  # each row's elements one after the other
    if len(sizes) < 2 or first.const == -1 or not first.place.is_same or not place.rows:
        return unturned(unsure(place))
    known = [one.const for one in sizes if isinstance(one.const, int)]
    if first.const in run.batch_sizes or (
        first.type != WIDTH and not place.turned and min(known, default=0) > 0
    ):
        return unturned(unsure(place))
    if place.turned:
        stays = place.turned < len(sizes) and sizes[place.turned].place.even
        return place if stays else turned(unsure(place))
    if first.type == WIDTH or isinstance(first.const, int):
        return turned(unsure(place))
    if place.kind is Kind.ROUND:
        run.assume(f"`{run.segment(node)}` has the rows of the batch along its first axis", node)
    return unsure(place)


def exchanged(run: Run, row: Row, place: Placement, args: Args, keywords: Keywords) -> Placement:
    """Rows after axes have changed places: those of the call, or of its pattern."""
    word, at = row.name.rpartition(".")[2], place.turned
    place = replace(place, form="") if place.form else place
    if word == "rearrange":
        pattern = args[1].const if len(args) > 1 else UNSET
        return _by_names(place, pattern) if isinstance(pattern, str) else unturned(unsure(place))
    axes = [value.const for value in [*args[1:], *keywords.values()]]
    if len(args) > 1 and (known := elements(run, args[1])) is not None:
        axes = [value.const for value in known]
    numbers = [from_first(place, axis) for axis in axes if isinstance(axis, int)]
    if len(numbers) < len(axes):
        place = unsure(place)
    if word in ("permute", "permute_dims") or len(axes) > 2:
        numbers = [axis % len(axes) for axis in numbers]
        return at_axis(place, numbers.index(at)) if at in numbers else turned_over(unturned(place))
    if len(axes) < 2 or len(numbers) < 2:
        return turned_over(place) if not axes or 0 in axes or UNSET in axes else place
    source, into = numbers
    if word not in ("movedim", "moveaxis"):
        return at_axis(place, {source: into, into: source}.get(at, at))
    if source == at:
        return at_axis(place, into)
    left = at - (0 <= source < at)
    return at_axis(place, left + (0 <= into <= left))


def _by_names(place: Placement, pattern: str) -> Placement:
    """Rows by a pattern of names of axes (`"b c h w -> c (b h w)"`)."""
    given, made = ([one.strip("()").split() for one in _AXES.findall(side)] for side in pattern.split("->"))
    name = given[place.turned][:1] if place.turned < len(given) else []
    for axis, names in enumerate(made):
        if name and name[0] in names:
            place = place if names == given[place.turned] else unsure(place)
            return at_axis(place, axis)
    return unturned(unsure(place))


def named_axes(equation: str, places: Sequence[Placement]) -> Placement | None:
    """What an equation of axes (`"bid,bjd->bij"`) makes of rows: each for itself, their sum where their axis is gone,
    each with each other where they lie along two axes. None where that is not known."""
    given, arrow, made = equation.replace(" ", "").replace("...", ".").partition("->")
    labels = given.split(",")
    if not arrow or len(labels) != len(places):
        return None
    pairs = [(label, place) for label, place in zip(labels, places, strict=True) if place.rows]
    if not all(place.kind is Kind.ROUND and len(label) > place.turned for label, place in pairs):
        return None
    if any("." in label[: place.turned + (place.turned > 0)] for label, place in pairs):
        return None  # how many axes the dots stand for is not known
    of_rows = {label[place.turned] for label, place in pairs}
    if len(of_rows) != 1:
        return (
            mixing(function(places, rowwise=True))
            if all(place.sure for _, place in pairs) and pairs
            else None
        )
    (letter,) = of_rows
    found = unturned(function(places, rowwise=True))
    if letter not in made:
        return reduced(found, "sum")
    return found if made[0] == letter else turned(found, made.index(letter))


def exchanges_rows(run: Run, row: Row, args: Args, keywords: Keywords) -> bool:
    """Whether a call puts the rows of a batch in another order: the axis that it names is theirs."""
    axis, first = axis_of(row, args, keywords), array_of(args[0]) if args else ROUND_ROWS
    known = [axis] if axis is not None and axis.const is not UNSET else elements(run, axis or NONE) or []
    numbers = [from_first(first, one.const) for one in known if type(one.const) is int]
    return first.sure > 1 and int(first.turned) in numbers
