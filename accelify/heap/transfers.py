"""What a call of a library gives, by its row's transfer: from the placements of its arguments."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from accelify.domains.meeting_rows import meeting, meets, mixing
from accelify.domains.placement import (
    CLOCK,
    PEAK,
    ROUND_ROWS,
    SAME,
    UNRELATED,
    Kind,
    Placement,
    function,
    own,
    reduced,
    turned,
    wide,
)
from accelify.domains.replacing import replace
from accelify.heap import shapes
from accelify.heap.axes import (
    arguments_of,
    axis_of,
    exchanged,
    exchanges_rows,
    is_method,
    laid_together,
    lays_out,
    moved_rows,
    named_axes,
    names_rows,
    rows_after,
    weighs_rows,
)
from accelify.heap.containers import (
    array_of,
    fill_of,
    parts_of,
    reduced_value,
    tuple_of,
    worst,
)
from accelify.heap.counts import of_shape, shape, size
from accelify.heap.fields import answered
from accelify.heap.flags import OPPOSITES
from accelify.heap.loaders import loader_made
from accelify.heap.locations import location_of, meet_together, note_items
from accelify.heap.model_parameters import is_parameters, optimizer_made
from accelify.heap.models import hold_parts
from accelify.heap.paths import has_other_name, joined_path
from accelify.heap.random_draws import RandomDraws
from accelify.heap.schedules import schedule_made
from accelify.heap.texts import text_of
from accelify.heap.values import (
    LENGTH,
    NONE,
    PASS,
    POSITIONS,
    TENSOR,
    UNDIVIDED,
    WHOLE,
    WIDTH,
    Container,
    Instance,
    Value,
    constant,
    is_zero,
)
from accelify.heap.weighed_rows import WEIGHS, weight_of_rows
from accelify.knowledge import Row

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

Args = Sequence[Value]
Keywords = Mapping[str, Value]
# How a reason ends that is the clock.
TIME = "the time"
# Arrays of nothing, to which something may be added.
_ZEROS = frozenset(
    {"torch.zeros", "torch.zeros_like", "torch.Tensor.new_zeros", "numpy.zeros", "numpy.zeros_like"}
)
# The note of a layer whose axis is the one that it works along.
_ALONG = "works along the axis"
# The note of what works with the statistics of a batch.
_STATISTICS = "batch statistics"
# How a reason ends by which a process is known, by the note of its row.
NAMES_PROCESS = "says which process it is"
# What gives as many of the largest as it is asked for.
_CHOOSING = frozenset({"topk", "kthvalue"})
# What takes a part of an axis, and what gives as many rows as there are of something.
_TAKING, _FINDING = (
    frozenset({"select", "narrow", "unfold"}),
    frozenset({"unique", "unique_consecutive", "nonzero"}),
)
# What makes an array of figures, each of which stays what it is.
_FROM_FIGURES = frozenset({"tensor", "array", "asarray", "FloatTensor"})
_REDUCTIONS = frozenset({"sum", "mean", "max", "min", "any", "all", "count"})
_REDUCING = frozenset({"reduction", "size_average", "reduce"})
_LINEAR = frozenset({"linear", "reshaped", "turned"})
# What gives nearly the same, where it rounds to so many digits.
_TO_DIGITS = frozenset({"round", "around"})
# What chooses by which is larger.
_BY_VALUE = frozenset("where clamp clip minimum maximum gt lt ge le greater less masked_fill".split())
# What mixes the elements along an axis, and is not linear in them.
_BY_SIZE = frozenset("sort argsort partition argpartition cumprod cumulative_prod nancumprod".split())
_ELEMENTWISE = frozenset({"abs", "square", "pow", "sqrt", "exp", "log"})
_OPERATORS = {"plus": ast.Add(), "minus": ast.Sub(), "times": ast.Mult(), "over": ast.Div()}


def _word(row: Row) -> str:
    return row.name.rpartition(".")[2]


def _by_flags(keywords: Keywords) -> str:
    """How a loss is reduced by torch's older flags."""
    reduce, average = keywords.get("reduce"), keywords.get("size_average")
    if reduce is not None and reduce.const is False:
        return "none"
    return "sum" if average is not None and average.const is False else "mean"


class Transfers:
    """Finds what a call gives, by the transfer of its row."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.run = engine.run
        self.random = RandomDraws(engine.run)
        self._by_word: dict[str, Callable[[Row, Args, Keywords, ast.AST], Value]] = {
            "same": lambda row, args, keywords, node: Value(type=row.returns),
            "pure": self._function,
            "joins": self._joined,
            "rows": self._function,
            "linear": self._function,
            "reshaped": self._function,
            "turned": self._turned,
            "reduce": self._function,
            "identity": self._identity,
            "loss": self._loss,
            "cat": self._put_together,
            "size": self._size,
            "draw": lambda row, args, keywords, node: self.random.draw(
                row, args, keywords, node, of_shape(row, [*args, *keywords.values()])
            ),
            "clock": self._clock,
            "own": self._own,
            "mix": self._mix,
            "iterates": self._iterates,
            "new": self._new,
            "none": lambda row, args, keywords, node: NONE,
            # What is read is the same under a name by the clock, too: that the name differs is named where it is made.
            # A flag of one rank says who reports it.
            "read": lambda row, args, keywords, node: self._function(
                row,
                [Value() if has_other_name(one) or one.type in OPPOSITES else one for one in args],
                {word: one for word, one in keywords.items() if one.type not in OPPOSITES},
                node,
            ),
            **dict.fromkeys(_REDUCTIONS, self._reduction),
            **dict.fromkeys(_OPERATORS, self._operation),
        }

    def of(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        """What a call gives."""
        operands = [*args, *keywords.values()]
        if any(value.where for value in operands):
            meet_together(self.run, node, operands, row)
        result = self._by_word[row.transfer](row, args, keywords, node)
        result = answered(row, args, result)
        if result.place.rows or (args and array_of(args[0]).rows):
            axis = axis_of(row, args, keywords)
            shapes.note_axis(self.run, row, axis, args, node)
            result = shapes.pooled(self.run, _word(row), args, result, node)
            number = shapes.of_call(row, _word(row), axis, args, keywords, node)
            result = shapes.with_axes(result, number)
        where = location_of(self.run, row, operands, result, node)
        return result if where == result.where else replace(result, where=where)

    def _function(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        operands = [*args, *keywords.values()]
        if lays_out(row) and operands and not operands[0].place.is_same:
            operands = operands[:1]  # the shape says how the values lie, not which they are
        places = [array_of(value) for value in operands]
        if _word(row) == "where" and len(operands) == 1 and places[0].rows:
            return self.run.made(node, function(places), *operands, type_=POSITIONS)
        linearly = row.transfer in _LINEAR or (_word(row) in _TO_DIGITS and len(operands) > 1)
        rowwise = (
            linearly
            or row.transfer == "rows"
            or (row.transfer == "reduce" and rows_after(self.run, row, args, keywords) is not None)
        )
        place = of_shape(row, operands) or function(places, rowwise=rowwise, linearly=linearly)
        of_rows = place.kind is Kind.ROUND and any(one.rows for one in places)
        if row.transfer == "reduce" and not rowwise and of_rows and row.name.startswith("torch."):
            return self._mixing(node, place, row.returns, "is of all rows together")
        by_value = _word(row) in _BY_VALUE
        if row.transfer == "rows" and (words := meeting(places, of_peaks=by_value, of_figures=by_value)):
            return self._mixing(node, place, row.returns, words)
        along = row.transfer == "rows" or _word(row) in _TAKING
        if along and place.kind is Kind.ROUND and names_rows(row, args, keywords):
            if place.sure:
                return self._mixing(node, place, row.returns, "works along the axis of the rows")
            place = replace(place, samples=None)
        if of_rows and _word(row) in _CHOOSING and any(array_of(one).even for one in operands[1:]):
            return self._mixing(node, place, row.returns, "chooses among the rows of each process's batch")
        if place.padded and row.transfer == "rows" and _word(row) not in _ELEMENTWISE:
            place = replace(place, padded=False)  # such as a model's: what it makes of a length is not known
        sizes = [one for value in [*args[1:], *keywords.values()] for one in parts_of(value)]
        if row.transfer == "reshaped" and place.kind is Kind.WIDE and place.rows and len(operands) == 1:
            known = [one.const for one in sizes if isinstance(one.const, int) and one.const > 0]
            if known and len(known) == len(sizes) and "flatten" not in row.name:
                text = f"`{self.run.segment(node)}` has room for one batch, and gets those of all processes"
                return self.run.cause(node, UNRELATED, text, row.returns)
        if row.transfer == "reshaped" and place.sure > 1 and not place.turned:
            if sizes and sizes[0].type == WIDTH:
                return self._mixing(node, place, row.returns, "puts the rows along an axis of another length")
        if row.transfer == "reshaped" or place.sure or place.form:
            if place.sure and row.name.endswith("squeeze") and len(args) + len(keywords) == 1:
                # A process whose share is one row would lose the axis of the rows.
                self.run.assume(f"`{self.run.segment(node)}` gets more than one row on every process", node)
            place = moved_rows(self.run, row, place, args, keywords, node)
        made = self.run.made(node, place, *operands, type_=row.returns)
        if linearly and operands and operands[0].of(Container):
            # An array of what rounds put into a list: its sum and mean are still those of the list.
            return Value(made.place, made.why, tuple(operands[0].of(Container)), made.type)
        if linearly and operands:
            return Value(
                made.place,
                operands[0].why or made.why,
                (),
                made.type,
                token=operands[0].token,
                delta=operands[0].delta,
            )
        return replace(made, const=0) if row.name in _ZEROS else made

    def _mixing(self, node: ast.AST, place: Placement, type_: str, words: str) -> Value:
        """Rows that depend on each other: the cause of all that comes of it."""
        return self.run.cause(node, mixing(place), meets(self.run.segment(node), words), type_)

    def _padded(self, node: ast.AST, place: Placement, type_: str) -> Value:
        text = f"`{self.run.segment(node)}` is a mean over rows that are padded to the longest of each process's batch"
        return self.run.cause(node, mixing(place), text, type_)

    def along_batches(self, ref: Instance, given: Value, made: Value, node: ast.AST) -> Value:
        """What a layer gives that takes one axis for the batch's, where its input has the rows along another one, or
        that works along one which is that of the rows."""
        axis, along = self.run.read(ref, "#batch axis"), self.run.read(ref, "#along")
        place = array_of(given)
        if along is not None and place.kind is Kind.ROUND and place.rows and place.sure:
            if along.const == int(place.turned):
                return self._mixing(node, made.place, made.type, "works along the axis of the rows")
        if axis is None or place.kind is not Kind.ROUND or not place.rows:
            return made
        if not place.sure:
            self.run.assume(f"{ref.type} gets batches along the axis that it takes for theirs", node)
        elif int(place.turned) != axis.const:
            words = "goes along the axis of the rows" + " (batch_first=False)" * bool(axis.const)
            return self._mixing(node, made.place, made.type, words)
        return made

    def _turned(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        """Axes exchanged: rows go along where the first axis does."""
        made = self._function(row, args, keywords, node)
        return replace(made, place=exchanged(self.run, row, made.place, args, keywords))

    def _operation(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        if len(args) < 2:
            return self._function(row, args, keywords, node)
        made = self.engine.expressions.operate(node, _OPERATORS[row.transfer], args[0], args[1])
        return replace(made, type=row.returns or made.type, refs=())

    def _identity(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        if not args:
            return NONE
        first = args[0]
        return (
            first
            if first.refs or not row.returns
            else Value(first.place, first.why, first.refs, first.type or row.returns)
        )

    def _reduction(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        if not args:
            return Value(type=row.returns)
        after = rows_after(self.run, row, args, keywords)
        if row.transfer in ("max", "min") and len(args) > 1 and not isinstance(args[1].const, int):
            return self._function(replace(row, transfer="rows"), args, keywords, node)  # of two arrays
        place = reduced_value(args[0], row.transfer, after is None)
        place = turned(place, after) if after else place
        if place.form == PEAK and axis_of(row, args, keywords) is None:
            place = replace(place, mixed=True)
        if row.transfer == "mean" and place.kind in (Kind.ROUND, Kind.LINEAR) and array_of(args[0]).padded:
            if axis_of(row, args, keywords) is None:
                return self._padded(node, place, row.returns)
        operands = [value for value in [*args, *keywords.values()] if value is not args[0]]
        rest = function((array_of(value) for value in operands), rowwise=True)
        if not rest.is_same:
            place = function((place, rest))
        made = self.run.made(node, place, *args, type_=row.returns or args[0].type)
        if (
            row.transfer in ("max", "min")
            and row.name.startswith("torch.")
            and _word(row) in ("max", "min")
            and axis_of(row, args, keywords) is not None
        ):
            return tuple_of(self.run, [made, made])  # the largest values along an axis, and where they are
        return made

    def _loss(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        made = next((ref for value in args[:1] for ref in value.of(Instance) if ref.kind == "loss"), None)
        given = self.run.read(made, "reduction") if made is not None else keywords.get("reduction")
        word = given.const if given is not None and isinstance(given.const, str) else _by_flags(keywords)
        word = "mean" if word == "batchmean" else word
        noted = self.run.read(made, "#weighs") if made is not None else None
        weights = self.run.read(made, "#weights") if made is not None else None
        name = made.type if made is not None else row.name
        weighs = str(noted.const) if noted else ""
        if noted is None and word == "mean":
            weighs = weighs_rows(self.engine, row, args, keywords)
        word = "weighted" if weighs else word
        rest = {k: v for k, v in keywords.items() if k not in _REDUCING}
        return self.lost(word, [*args, weights] if weights else args, rest, node, weighs, name)

    def lost(
        self, word: str, args: Args, keywords: Keywords, node: ast.AST, weighs: str = "", name: str = ""
    ) -> Value:
        """What a loss by its name gives that is reduced by `word`; `weighs` is the argument that weighs its rows."""
        operands = [*args, *keywords.values()]
        places = [array_of(value) for value in operands]
        place = function(places, rowwise=True)
        stretched = shapes.stretches(self.run, name, places, node)
        if words := meeting(places, of_peaks=False, stretched=stretched):
            return self._mixing(node, reduced(place, "mean"), TENSOR, words)
        if word == "mean" and place.padded and "ctc" not in name.lower():
            return self._padded(node, reduced(place, word), TENSOR)
        whole = place
        if word != "none":
            place = reduced(place, word)
        if word == "weighted" and (place.mixed or place.kind is Kind.OWN is not whole.kind):
            text = f"`{self.run.segment(node)}` is a mean by `{weighs}=`, by the rows of each process alone"
            weight = weight_of_rows(node, name, weighs)
            return self.run.cause(node, place, f"{text}, {WEIGHS} `{weight}`" if weight else text, TENSOR)
        return self.run.made(node, place, *operands, type_=TENSOR)

    def _put_together(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        operands = [*args, *keywords.values()]
        places = [array_of(value) for value in operands]
        of_round = all(place.is_same or place.kind is Kind.ROUND for place in places)
        place = function(places, rowwise=True, linearly=of_round)
        axis = axis_of(row, args, keywords)
        filled = [ref for value in args[:1] for ref in value.of(Container) if fill_of(ref)]
        figures = {one.place for one in parts_of(args[0])} if args and not filled else set()
        if _word(row) in _FROM_FIGURES and len(figures) == 1:
            place = next((one for one in figures if one.kind in (Kind.SAME, Kind.LINEAR)), place)
        place = laid_together(_word(row), place, axis)
        made = self.run.made(node, place, *operands, type_=row.returns)
        if args and is_zero(args[0]):
            return replace(made, const=0)
        refs = tuple(args[0].of(Container)) if filled else ()
        return Value(made.place, made.why, refs, made.type)

    def _size(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        if not args:
            return Value()
        base = args[0]
        axis = args[1].const if len(args) > 1 else keywords["dim"].const if "dim" in keywords else None
        if axis is None and row.name.endswith(("size", "shape")):
            return shape(base)
        return size(self.run, node, replace(base, type=shape(base).type), axis)

    def _joined(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        made = self._function(row, args, keywords, node)
        if made.place == UNRELATED:  # a text, which says no more and no less than its parts
            text = text_of(self.engine, node, args)
            made = replace(made, place=text.place, why=text.why)
        return joined_path(made, args)

    def _clock(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        return Value(CLOCK, self.run.reason(node, TIME), type=row.returns)

    def _own(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        text = NAMES_PROCESS if row.note == NAMES_PROCESS else "differs between ranks"
        why = self.run.reason(node, f"`{self.run.segment(node)}` {text}")
        return Value(own("broadcast"), why, type=row.returns)

    def _mix(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        operands = [*args, *keywords.values()]
        if (axes := shapes.PRODUCTS.get(_word(row))) is not None and len(args) > 1:
            factors = [shapes.with_axes(one, axes or one.place.axes) for one in args[:2]]
            return replace(self.engine.expressions.operate(node, ast.MatMult(), *factors), refs=())
        shift = int(is_method(row))
        others = [value for one in row.content for value in arguments_of(one, args, keywords, shift)]
        along = axis_of(row, args, keywords)
        elsewhere = any(array_of(value).turned for value in operands)
        equation = args[0].const if _word(row) == "einsum" and args else None
        if isinstance(equation, str):
            named = named_axes(equation, [array_of(value) for value in args[1:]])
            if named is not None and named.mixed:
                return self._mixing(node, named, row.returns, "puts each row of the batch beside all others")
            if named is not None:
                return self.run.made(node, named, *args[1:], type_=row.returns)
        if exchanges_rows(self.run, row, args, keywords):
            place = function(array_of(value) for value in operands)
            return self._mixing(node, place, row.returns, "puts the rows of the batch in another order")
        number = along.const if along is not None and isinstance(along.const, int) else 0
        within = not elsewhere and shapes.from_first(array_of(args[0]) if args else SAME, number) != 0
        if row.axis is not None and not any(array_of(value).rows for value in operands):
            how = "rows" if _word(row) in _BY_SIZE else "linear"  # of figures, as a sum over the batch
            return self._function(replace(row, transfer=how), args, keywords, node)
        if within or (others and not any(array_of(value).rows for value in others)):
            return self._function(replace(row, transfer="rows"), args, keywords, node)
        place = function(array_of(value) for value in operands)
        text = f"`{self.run.segment(node)}` mixes rows of the batch"
        if place.kind is Kind.ROUND:
            # Statistics of a batch are no comparison of rows, which stay where they are.
            of = next((one for one in map(array_of, operands) if one.rows), ROUND_ROWS)
            mixed, norm = bool(row.content) or place.mixed or _word(row) in _FINDING, row.note == _STATISTICS
            samples = 0 if norm and not mixed else None
            place = replace(ROUND_ROWS, samples=samples, mixed=mixed)
            place = replace(place, sure=of.sure, turned=of.turned) if norm else place
        elif place.kind is Kind.WIDE:
            place = wide(None, rows=True)
        return self.run.made(node, place, *operands, type_=row.returns, text=text)

    def _iterates(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        made = self.run.allocate(
            (node, row.name), lambda: Instance(None, row.returns or row.name, row.kind or "bar")
        )
        over = args[0] if args else keywords.get("iterable")
        if len(args) > 1 and any(is_parameters(ref) for value in args for ref in value.refs):
            over = tuple_of(self.run, args)  # one after the other
        whole = (LENGTH, PASS, UNDIVIDED, WIDTH, "builtins.int")
        if over is not None and not over.refs and (isinstance(over.const, int) or over.type in whole):
            over = Value(refs=(self.engine.iteration.counted(args, node),))  # as many rounds as a number says
        if over is not None:
            self.run.store.set(made, "#over", over)
        return Value(refs=(made,))

    def _new(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        type_ = row.returns or (row.name if "*" not in row.name else "")
        type_name = type_ or self.run.segment(getattr(node, "func", node))
        made = self.run.allocate((node, type_name), lambda: Instance(None, type_name, row.kind or "object"))
        self.run.place(made, self.run.shared_loops())
        hold_parts(self.run, made, args, node)
        note_items(self.run, made, row, args, keywords, node)
        first = args[0] if args else keywords.get("dataset", keywords.get("params", NONE))
        if row.kind == "loss":
            word = keywords.get("reduction", constant(_by_flags(keywords)))
            weighs = word.const == "mean" and weighs_rows(self.engine, row, args, keywords)
            self.run.store.set(made, "reduction", constant("weighted") if weighs else word)
            self.run.store.set(made, "#weighs", constant(weighs) if weighs else None)
            apart = [value for value in [*args, *keywords.values()] if not array_of(value).is_same]
            self.run.store.set(made, "#weights", worst(apart).plain() if apart else None)
        if type_name == "torch.nn.Flatten" and not (args or keywords):
            self.run.store.set(made, shapes.AXES, constant(2))
        if row.kind == "module" and row.note == _ALONG:
            self.run.store.set(made, "#along", axis_of(row, args, keywords))
        elif row.kind == "module" and row.axis is not None:
            given = axis_of(row, args, keywords)
            inner = [self.run.read(ref, "#batch axis") for ref in (given or NONE).of(Instance)]
            flag = False if given is None else given.const
            second = inner[0] if inner else constant(int(not flag)) if isinstance(flag, bool) else None
            self.run.store.set(made, "#batch axis", second)
        if row.kind == "optimizer":
            stepped = [
                value for ref in first.of(Instance) if (value := self.run.read(ref, "#of")) is not None
            ]
            self.run.store.set(made, "#of", stepped[0] if stepped else None)
            if self.run.checks:
                optimizer_made(self.run, made, first)
        if row.kind == "loader":
            loader_made(self.run, made, args, keywords, node)
            self.run.store.set(made, WHOLE, constant(True) if row.note == WHOLE[1:] else None)
        if row.kind == "scheduler":
            schedule_made(self.engine, made, args, keywords, node)
        if row.kind == "generator":
            self.random.made(row, made, args, keywords, node)
            return Value(refs=(made,), type=type_)
        # A text with the time in it is what something is called, a flag of one rank says who fetches the data: no part
        # of what it is.
        bag = [
            value
            for value in [*args, *keywords.values()]
            if not array_of(value).is_same
            and not (value.place.kind is Kind.CLOCK and value.type == "builtins.str")
            and not (row.kind == "dataset" and value.type in OPPOSITES)
        ]
        if bag and row.kind not in ("module", "loss", "optimizer", "scheduler", "loader"):
            furthest = worst(bag)
            why = self.run.reason(node, f"`{self.run.segment(node)}`", furthest)
            return Value(array_of(furthest), why, (made,), type_)
        return Value(refs=(made,), type=type_)
