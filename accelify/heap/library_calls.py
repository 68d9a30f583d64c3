"""Calls of library functions: what their rows in the knowledge say; by default a function of all arguments."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from accelify.domains.placement import (
    CLOCK,
    ROUND_ROWS,
    SHARD,
    Kind,
    Placement,
    function,
    own,
    reduced,
    turned_over,
    unturned,
    wide,
)
from accelify.domains.reasons import Reason
from accelify.heap.containers import (
    array_of,
    container,
    elements,
    fill_of,
    put,
    reduced_value,
    worst,
)
from accelify.heap.paths import joined_path
from accelify.heap.state import is_part, part_written, registered
from accelify.heap.unknown_calls import UnknownCalls
from accelify.heap.values import (
    NONE,
    OTHERS_FLAG,
    TENSOR,
    UNSET,
    Bound,
    Container,
    Function,
    Guard,
    Instance,
    Library,
    Value,
    constant,
    is_zero,
)
from accelify.knowledge import Argument, Row

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

Args = Sequence[Value]
Keywords = Mapping[str, Value]
# Arrays of nothing, to which something may be added.
_ZEROS = frozenset(
    {"torch.zeros", "torch.zeros_like", "torch.Tensor.new_zeros", "numpy.zeros", "numpy.zeros_like"}
)
# Weights by the names that they have in a wrapper.
WRAPPED_WEIGHTS = "#wrapped weights"
# Calls that keep the loggers of the processes quiet that make them.
_SILENCING = frozenset({"logging.disable", "setLevel", "disable_progress_bar", "set_verbosity_error"})
# `ignore_index` where it leaves nothing out.
_NO_CLASS = -100
_REDUCTIONS = frozenset({"sum", "mean", "max", "min", "any", "all", "count"})


_REDUCING = frozenset({"reduction", "size_average", "reduce"})


# What may call a function that it is given.
# What gives rows in another order: the places of rows, and no rows.
_ORDERS = ("randperm", "permutation")
_ALIKE = (
    "what is drawn at random before the Accelerator is made, and before a seed is set, is the same on every rank, as "
    "where `accelify launch` starts all of them on one machine"
)
_CALLING = frozenset({"none", "new", "pure", "own", "unknown"})
_LINEAR = frozenset({"linear", "reshaped", "turned"})
_OPERATORS: dict[str, ast.operator] = {
    "plus": ast.Add(),
    "minus": ast.Sub(),
    "times": ast.Mult(),
    "over": ast.Div(),
}


def _by_flags(keywords: Keywords) -> str:
    """How a loss is reduced by torch's older flags."""
    reduce, average = keywords.get("reduce"), keywords.get("size_average")
    if reduce is not None and reduce.const is False:
        return "none"
    return "sum" if average is not None and average.const is False else "mean"


class LibraryCalls:
    """Makes calls of what is not in the project."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.run = engine.run
        # What calls made of their arguments in place: by call, by the argument's number, -1 for the receiver.
        self.mutated: dict[ast.AST, dict[int, Value]] = {}
        self.unknown_calls = UnknownCalls(engine)
        self._transfers: dict[str, Callable[[Row, Args, Keywords, ast.AST], Value]] = {
            "same": lambda row, args, keywords, node: Value(type=row.returns),
            "pure": self._function,
            "joins": lambda row, args, keywords, node: joined_path(
                self._function(row, args, keywords, node), args
            ),
            "rows": self._function,
            "linear": self._function,
            "reshaped": self._function,
            "turned": self._turned,
            "reduce": self._function,
            "identity": self._identity,
            "loss": self._loss,
            "cat": self._put_together,
            "size": self._size,
            "draw": self._draw,
            "clock": self._clock,
            "own": self._own,
            "mix": self._mix,
            "iterates": self._iterates,
            "new": self._new,
            "none": lambda row, args, keywords, node: NONE,
            "read": self._function,
            **dict.fromkeys(_REDUCTIONS, self._reduction),
            **dict.fromkeys(_OPERATORS, self._operation),
        }

    def call(self, name: str, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        """A call of a function or class of a library by its dotted name."""
        self._silenced(name)
        knowledge = self.run.knowledge
        row = knowledge.row(knowledge.canonical(name))
        if row is None or row.transfer == "unknown":
            return self.unknown_calls.function(Value(refs=(Library(name),)), args, keywords, node)
        return self._by_row(row, name, args, keywords, node)

    def method(self, receiver: Value, name: str, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        """A call of a method of something that is not of the project."""
        self._silenced(name)
        instance = next(iter(receiver.of(Instance)), None)
        if name == "backward" and (instance is None or instance.kind == "object"):
            self.run.meet("backward", node, "backward", [receiver], detail="plain")
            return NONE
        if instance is not None and instance.kind in ("optimizer", "scheduler", "scaler") and name == "step":
            kind = "schedule" if instance.kind == "scheduler" else "step"
            length = self.run.read(instance, "#length")
            detail = "prepared" if instance.prepared else "own rounds" if length is not None else "plain"
            known = instance.wrapped.of(Instance) if instance.wrapped is not None else []
            if kind == "schedule" and any(self.run.read(one, "#length") is not None for one in known):
                detail = "fast"
            inner = (
                instance.wrapped.of(Instance) if instance.wrapped is not None and self.run.at_model else []
            )
            if detail in ("plain", "prepared") and any(
                map(self._is_bare, inner or ([instance] if detail == "plain" else []))
            ):
                detail = "bare"
            for closure in [value for value in [*args, *keywords.values()] if value.of(Function)]:
                self.engine.calls.call(closure, [], {}, node)
            self.run.meet(kind, node, f"{instance.kind}.step", args, detail=detail)
            return NONE
        if (
            name in ("register_buffer", "register_parameter")
            and instance is not None
            and instance.kind == "module"
            and len(args) > 1
        ):
            registered(self.run, instance, args[0], args[1])
        if name == "parameters" and instance is not None and instance.kind == "module":
            return self._parameters(receiver, node)
        if (
            name == "state_dict"
            and instance is not None
            and instance.kind == "module"
            and instance.prepared
            and self.run.at_model
        ):
            return Value(type=WRAPPED_WEIGHTS)
        type_ = self._type_of(receiver, instance)
        if type_ == "builtins.str":
            # A text made of others shows what they show.
            return self.engine.expressions.text(node, [receiver, *args, *keywords.values()])
        row = self.run.knowledge.method(type_ or None, name)
        # What arrays have in common says nothing of an object that takes in what it gets.
        common = (
            row is not None
            and row.name.startswith("?.")
            and instance is not None
            and instance.kind == "object"
        )
        mutating = row is not None and any(one.receiver for one in (*row.mutates, *row.overwrites))
        takes = (
            common and mutating and not all(array_of(value).is_same for value in [*args, *keywords.values()])
        )
        if row is None or row.transfer == "unknown" or takes:
            return self.unknown_calls.method(receiver, instance, name, args, keywords, node)
        return self._by_row(row, name, [receiver, *args], keywords, node, receiver=True)

    def _is_bare(self, optimizer: Instance) -> bool:
        """Whether it steps parameters of models none of which is prepared."""
        stepped = self.run.read(optimizer, "#of")
        models = stepped.of(Instance) if stepped is not None else []
        return any(not model.prepared and self.run.read(model, "#prepared") is None for model in models)

    def _parameters(self, receiver: Value, node: ast.AST) -> Value:
        made = self.run.allocate((node, "parameters"), lambda: Instance(None, "", "parameters"))
        self.run.store.set(made, "#of", receiver)
        return Value(refs=(made,))

    def _silenced(self, name: str) -> None:
        if name in _SILENCING:
            self.run.depends()
        if name in _SILENCING and any(guard.kind == "others" for guard in self.run.guards):
            self.run.logs_once = True

    def _type_of(self, receiver: Value, instance: Instance | None) -> str:
        if instance is not None:
            return instance.type
        if receiver.type == "#batch" or not receiver.type:
            return TENSOR if not receiver.place.is_same or receiver.type else ""
        return receiver.type

    def object_called(self, ref: Instance, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        """A call of an object of a library's class: a module, a loss, a metric, a transform."""
        row = self.run.knowledge.method(ref.type or None, "__call__")
        if row is not None and row.transfer != "unknown":
            return self._by_row(
                row, ref.type.rpartition(".")[2], [Value(refs=(ref,)), *args], keywords, node, receiver=True
            )
        if ref.kind == "loss":
            remembered = self.run.read(ref, "reduction")
            word = (
                remembered.const if remembered is not None and isinstance(remembered.const, str) else "mean"
            )
            return self._lost(word, args, keywords, node)
        if ref.kind == "module":
            places = [array_of(value) for value in [*args, *keywords.values()]]
            return self.run.made(node, function(places, rowwise=True), *args, type_=TENSOR)
        return self.unknown_calls.method(Value(refs=(ref,)), ref, "__call__", args, keywords, node)

    # Rows

    def _by_row(
        self, row: Row, name: str, args: Args, keywords: Keywords, node: ast.AST, receiver: bool = False
    ) -> Value:
        shift = int(receiver)
        if row.transfer in _CALLING and row.kind in ("", "object"):
            self.unknown_calls.callbacks(args[shift:], keywords, node)
        if row.effect and self._happens(row, args, keywords, shift):
            shown = [value for one in row.content for value in self._argument(one, args, keywords, shift)]
            paths = self._paths(row, args, keywords, shift)
            if row.path and not paths and not shown:
                return self._transfers[row.transfer](row, args, keywords, node)  # no file is named
            guards = []
            given = [ref for value in [*args, *keywords.values()] for ref in value.of(Instance)]
            if any(self.run.read(ref, "#once") is not None for ref in given):
                guards.append(Guard("main", self.run.reason(node, "a file that the main process has")))
            made_bar = row.effect == "bar.show" and row.transfer in ("iterates", "new")
            if made_bar and _is_for_others(keywords.get("disable")):
                guards.append(Guard("main", self.run.reason(node, "the bars of the other processes are off")))
            if row.effect == "log.write" and self.run.logs_once:
                guards.append(
                    Guard("main", self.run.reason(node, "the loggers of the other processes are silent"))
                )
            self.run.meet(
                row.effect,
                node,
                name,
                shown,
                paths[0] if paths else None,
                guards=guards,
                detail="made"
                if made_bar
                else self._mode(args, keywords, shift)
                if row.kind == "file"
                else "",
            )
        result = self._transfers[row.transfer](row, args, keywords, node)
        if row.kind == "file":
            result = joined_path(result, self._paths(row, args, keywords, shift)[:1])
            for value in self._paths(row, args, keywords, shift):
                for ref in result.of(Instance) if value.place.kind is Kind.MAIN else []:
                    self.run.store.set(ref, "#once", constant(True))
        if row.effect == "random.seed":
            result = self._seeded(result, args, node, receiver)
        if row.mutates:
            self._mutate(row, result, args, keywords, node, shift)
        if row.overwrites:
            result = self._overwrite(row, result, args, keywords, node, shift)
        if row.returns and not result.type and result.const is UNSET:
            result = Value(result.place, result.why, result.refs, row.returns, token=None)
        return result

    def _mode(self, args: Args, keywords: Keywords, shift: int) -> str:
        """The mode in which a file is opened."""
        mode = keywords.get("mode", args[1] if len(args) > 1 else NONE)
        return mode.const if isinstance(mode.const, str) else ""

    def _paths(self, row: Row, args: Args, keywords: Keywords, shift: int) -> list[Value]:
        return [value for one in row.path for value in self._argument(one, args, keywords, shift)]

    def _happens(self, row: Row, args: Args, keywords: Keywords, shift: int) -> bool:
        """Whether an effect happens that an argument asks for."""
        asked = [value for one in row.when for value in self._argument(one, args, keywords, shift)]
        return not row.when or any(value.const is UNSET or value.const for value in asked)

    def _argument(self, one: Argument, args: Args, keywords: Keywords, shift: int) -> list[Value]:
        if one.every:
            return [*args[shift:], *keywords.values()]
        if one.receiver:
            return list(args[:1]) if shift else []
        if one.name is not None and one.name in keywords:
            return [keywords[one.name]]
        if one.position is not None and one.position + shift < len(args):
            return [args[one.position + shift]]
        return []

    def _mutate(
        self, row: Row, result: Value, args: Args, keywords: Keywords, node: ast.AST, shift: int
    ) -> None:
        places = [array_of(value) for value in [*args, *keywords.values()]]
        place = function(places, rowwise=True)
        why = (
            None
            if place.is_same
            else self.run.reason(node, f"`{self.run.segment(node)}`", *args, *keywords.values())
        )
        for one in row.mutates:
            number = -1 if one.receiver else one.position
            for value in self._argument(one, args, keywords, shift) if row.name.endswith("_") else ():
                part_written(self.run, value, Value(place, why), node)
            if place.is_same:
                for value in self._argument(one, args, keywords, shift):
                    if number is not None and is_zero(value):
                        self.mutated.setdefault(node, {})[number] = replace(value, const=UNSET)
                continue
            for value in self._argument(one, args, keywords, shift):
                for ref in value.of(Container):
                    put(self.run, ref, Value(place, why), filling="rounds")
                plain = all(isinstance(ref, Bound) for ref in value.refs) and not is_part(value)
                if plain and number is not None and value.place.is_same:
                    self.mutated.setdefault(node, {})[number] = Value(place, why, type=value.type)

    def _overwrite(
        self, row: Row, result: Value, args: Args, keywords: Keywords, node: ast.AST, shift: int
    ) -> Value:
        """Arguments that are written whole: nothing of what they were goes into what they become."""
        written = [value for one in row.overwrites for value in self._argument(one, args, keywords, shift)]
        given = [value for value in [*args, *keywords.values()] if value not in written]
        place = function((array_of(value) for value in given), rowwise=True)
        made = self.run.made(
            node, result.place if row.transfer == "draw" else place, *given, type_=row.returns
        )
        for one in row.overwrites:
            number = -1 if one.receiver else one.position
            for value in self._argument(one, args, keywords, shift):
                part_written(self.run, value, made, node)
                if number is not None and not is_part(value):
                    self.mutated.setdefault(node, {})[number] = replace(made, type=value.type or made.type)
        return made if row.returns else result

    def _function(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        operands = [*args, *keywords.values()]
        if row.transfer == "reshaped" and operands and not operands[0].place.is_same:
            operands = operands[:1]  # the shape says how the values lie, not which they are
        places = [array_of(value) for value in operands]
        linearly = row.transfer in _LINEAR
        rowwise = (
            linearly
            or row.transfer == "rows"
            or (row.transfer == "reduce" and not self._over_rows(row, args, keywords))
        )
        place = _of_shape(row, operands) or function(places, rowwise=rowwise, linearly=linearly)
        if row.transfer == "reshaped":
            place = unturned(place)
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

    def _turned(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        """Axes exchanged: rows go along where the first axis does."""
        made = self._function(row, args, keywords, node)
        axes = [value.const for value in [*args[1:], *keywords.values()]]
        if len(args) > 1 and (known := elements(self.run, args[1])) is not None:
            axes = [value.const for value in known]
        word = row.name.rpartition(".")[2]
        if word in ("permute", "permute_dims") or len(axes) > 2:
            stays = bool(axes) and axes[0] == int(made.place.turned)
            return replace(made, place=unturned(made.place) if stays else turned_over(unturned(made.place)))
        if not axes or 0 in axes or UNSET in axes:
            return replace(made, place=turned_over(made.place))
        return made

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

    def _axis(self, row: Row, args: Args, keywords: Keywords) -> Value | None:
        if row.axis is None:
            return None
        shift = int(bool(row.name) and self._is_method(row))
        found = self._argument(row.axis, args, keywords, shift)
        return found[0] if found else None

    def _is_method(self, row: Row) -> bool:
        owner = row.name.rpartition(".")[0].rpartition(".")[2]
        return owner == "?" or owner[:1].isupper() or owner in ("ndarray",)

    def _over_rows(self, row: Row, args: Args, keywords: Keywords) -> bool:
        axis = self._axis(row, args, keywords)
        if axis is None or axis.const is None:
            return True
        known = elements(self.run, axis)
        numbers = [value.const for value in known] if known is not None else [axis.const]
        of_rows = (1, -1) if args and array_of(args[0]).turned else (0,)
        return any(
            not isinstance(number, int) or isinstance(number, bool) or number in of_rows for number in numbers
        )

    def _reduction(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        if not args:
            return Value(type=row.returns)
        over_rows = self._over_rows(row, args, keywords)
        if row.transfer in ("max", "min") and len(args) > 1 and row.axis is None:
            return self._function(row, args, keywords, node)
        place = reduced_value(args[0], row.transfer, over_rows)
        operands = [value for value in [*args, *keywords.values()] if value is not args[0]]
        rest = function((array_of(value) for value in operands), rowwise=True)
        if not rest.is_same:
            place = function((place, rest))
        made = self.run.made(node, place, *args, type_=row.returns or args[0].type)
        if (
            row.transfer in ("max", "min")
            and row.name.startswith("torch.")
            and self._axis(row, args, keywords) is not None
        ):
            return self._pair(made)
        return made

    def _pair(self, value: Value) -> Value:
        """The largest values along an axis, and where they are."""
        both = container(self.run, "tuple")
        for number in range(2):
            put(self.run, both, value, number)
        self.run.store.set(both, "#known", constant(2))
        return Value(refs=(both,), type="tuple")

    def _loss(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        made = next((ref for value in args[:1] for ref in value.of(Instance) if ref.kind == "loss"), None)
        given = self.run.read(made, "reduction") if made is not None else keywords.get("reduction")
        word = given.const if given is not None and isinstance(given.const, str) else _by_flags(keywords)
        word = "mean" if word == "batchmean" else word
        if word == "mean" and self._weighs(row, args, keywords):
            word = "weighted"
        return self._lost(word, args, {k: v for k, v in keywords.items() if k not in _REDUCING}, node)

    def _weighs(self, row: Row, args: Args, keywords: Keywords) -> bool:
        """Whether an argument gives the rows weights, or leaves some out: the mean is one over those of this rank."""
        given = [value for one in row.content for value in self._argument(one, args, keywords, 0)]
        return any(value.const is not None and value.const != _NO_CLASS for value in given)

    def _lost(self, word: str, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        operands = [*args, *keywords.values()]
        place = function((array_of(value) for value in operands), rowwise=True)
        if word != "none":
            place = reduced(place, word)
        return self.run.made(node, place, *operands, type_=TENSOR)

    def _put_together(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        operands = [*args, *keywords.values()]
        place = function((array_of(value) for value in operands), rowwise=True)
        made = self.run.made(node, place, *operands, type_=row.returns)
        if args and is_zero(args[0]):
            return replace(made, const=0)
        refs = (
            tuple(args[0].of(Container))
            if args and any(fill_of(ref) for ref in args[0].of(Container))
            else ()
        )
        return Value(made.place, made.why, refs, made.type)

    def _size(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        if not args:
            return Value()
        base = args[0]
        axis = args[1].const if len(args) > 1 else keywords["dim"].const if "dim" in keywords else None
        if axis is None and row.name.endswith("size"):
            return Value(base.place, base.why, type="#shape")
        if axis is not None and axis is not UNSET and axis != 0:
            return Value(type="builtins.int")
        place = reduced_value(base, "count")
        return self.run.made(
            node, place, base, type_="builtins.int", text=f"`{self.run.segment(node)}` counts samples"
        )

    def _draw(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        places = [array_of(value) for value in [*args, *keywords.values()]]
        place = _of_shape(row, [*args, *keywords.values()]) or function(places, rowwise=True)
        text = f"`{self.run.segment(node)}` draws random numbers"
        differing = self._generated(keywords)
        if differing is not None and place.is_same and not self.run.in_shared_loop():
            return Value(own("drawn with one seed"), self.run.reason(node, text, differing), type=row.returns)
        if place.is_same and not self.run.begun_alike:
            self.run.assume(_ALIKE, node)
        if self.run.in_shared_loop() and place.kind in (Kind.SAME, Kind.ROUND):
            rows = not row.name.endswith(_ORDERS) and (place.rows or _draws_rows(row, args, keywords))
            place = Placement(Kind.ROUND, rows=rows, samples=0 if rows else None)
        return self.run.made(node, place, *args, *keywords.values(), type_=row.returns, text=text)

    def _seeded(self, result: Value, args: Args, node: ast.AST, receiver: bool) -> Value:
        """A seed: where it differs between ranks, so does what is drawn afterwards."""
        differing = [value for value in args[int(receiver) :] if not array_of(value).is_uniform]
        if not differing:
            self.run.begun_alike = True
            return result
        self.run.seeded_apart = True
        why = self.run.reason(
            node, f"`{self.run.segment(node)}` seeds each process with another number", *differing
        )
        if not receiver:
            self.run.seeded = why
            return result
        for ref in args[0].of(Instance):
            self.run.store.set(ref, "#seeded", Value(own("one seed"), why))
        return result.placed(own("one seed"), why)

    def _generated(self, keywords: Keywords) -> Reason | None:
        """Why a draw is another one on each rank, None where all ranks draw the same."""
        generator = keywords.get("generator")
        if generator is None or generator.const is None:
            return self.run.seeded
        found = [self.run.read(ref, "#seeded") for ref in generator.of(Instance)]
        return next((value.why for value in found if value is not None), None)

    def _clock(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        return Value(CLOCK, self.run.reason(node, "the time"), type=row.returns)

    def _own(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        return Value(
            own("broadcast"),
            self.run.reason(node, f"`{self.run.segment(node)}` differs between ranks"),
            type=row.returns,
        )

    def _mix(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        operands = [*args, *keywords.values()]
        shift = int(self._is_method(row))
        others = [value for one in row.content for value in self._argument(one, args, keywords, shift)]
        if others and not any(array_of(value).rows for value in others):
            return self._function(replace(row, transfer="rows"), args, keywords, node)
        place = function(array_of(value) for value in operands)
        text = f"`{self.run.segment(node)}` mixes rows of the batch"
        if place.kind is Kind.ROUND:
            # Statistics of a batch, and rows in another order, are no comparison of rows.
            place = replace(ROUND_ROWS, samples=None, mixed=True) if row.content else ROUND_ROWS
        elif place.kind is Kind.WIDE:
            place = wide(None, rows=True)
        return self.run.made(node, place, *operands, type_=row.returns, text=text)

    def _iterates(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        made = self.run.allocate(
            (node, row.name), lambda: Instance(None, row.returns or row.name, row.kind or "bar")
        )
        over = args[0] if args else keywords.get("iterable")
        if over is not None:
            self.run.store.set(made, "#over", over)
        return Value(refs=(made,))

    def _new(self, row: Row, args: Args, keywords: Keywords, node: ast.AST) -> Value:
        type_ = row.returns or (row.name if "*" not in row.name else "")
        type_name = type_ or self.run.segment(getattr(node, "func", node))
        made = self.run.allocate((node, type_name), lambda: Instance(None, type_name, row.kind or "object"))
        self.run.place(made, self.run.shared_loops())
        first = args[0] if args else keywords.get("dataset", keywords.get("params", NONE))
        if row.kind == "loss":
            word = keywords.get("reduction", constant(_by_flags(keywords)))
            weighs = word.const == "mean" and self._weighs(row, args, keywords)
            self.run.store.set(made, "reduction", constant("weighted") if weighs else word)
        if row.kind == "optimizer":
            stepped = [
                value for ref in first.of(Instance) if (value := self.run.read(ref, "#of")) is not None
            ]
            self.run.store.set(made, "#of", stepped[0] if stepped else None)
        if row.kind == "loader" and self.run.seeded_apart and (first.refs or first.place.kind is Kind.OWN):
            self.run.store.set(made, "#data", first)
        if row.kind == "loader":
            self.run.store.set(made, "#drops", keywords.get("drop_last", constant(False)))
        if row.kind == "scheduler":
            counted = [
                v
                for v in [*args, *keywords.values()]
                if array_of(v).kind is Kind.SAME and not array_of(v).is_same
            ]
            if counted:
                # A length in rounds of each process, as its steps are.
                self.run.store.set(made, "#length", counted[0])
        bag = [value for value in [*args, *keywords.values()] if not array_of(value).is_same]
        if bag and row.kind not in ("module", "loss", "optimizer", "scheduler", "loader"):
            furthest = worst(bag)
            why = self.run.reason(node, f"`{self.run.segment(node)}`", furthest)
            return Value(array_of(furthest), why, (made,), type_)
        return Value(refs=(made,), type=type_)


def _is_for_others(disable: Value | None) -> bool:
    """Whether `disable` keeps the bars of all processes but the main one off, or every bar."""
    return disable is not None and (disable.type == OTHERS_FLAG or disable.const is True)


def _of_shape(row: Row, operands: Args) -> Placement | None:
    """What a function that makes an array gives where its shape counts the samples of a batch: rows of the batch."""
    if row.place != "device" or row.transfer not in ("pure", "draw"):
        return None
    counts = [inner for value in operands for inner in _parts(value) if not array_of(inner).is_same]
    if not counts or any(inner.type != "builtins.int" for inner in counts):
        return None
    places = {array_of(inner) for inner in counts}
    if places == {Placement(Kind.LINEAR, 1, rows=True)}:
        return SHARD
    return ROUND_ROWS if all(place.kind is Kind.ROUND and place.even for place in places) else None


def _draws_rows(row: Row, args: Args, keywords: Keywords) -> bool:
    """Whether a draw is taken for one row of each sample: it gives an array of more than one number."""
    if row.name.startswith("torch."):
        sizes = [inner for value in args for inner in _parts(value)]
        return any(value.const is UNSET or value.const not in (0, 1) for value in sizes)
    plain = row.name.rpartition(".")[2] in ("rand", "randn") and bool(args)
    return plain or "size" in keywords or any(value.of(Container) for value in args)


def _parts(value: Value) -> list[Value]:
    containers = value.of(Container)
    return (
        [inner for ref in containers for name, inner in ref.looked_into().items() if name.startswith("[")]
        if containers
        else [value]
    )
