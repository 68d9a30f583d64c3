"""Expressions: what each is, from what its parts are."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from accelify.domains.meeting_rows import meeting, meets, mixing
from accelify.domains.placement import ROUND_ROWS, UNRELATED, Kind, function, multiplied, own
from accelify.domains.replacing import replace
from accelify.domains.rounds import is_mean_of_round
from accelify.heap import on_tpu, shapes
from accelify.heap.containers import (
    KEYS,
    array_of,
    container,
    element,
    elements,
    has_one_each,
    is_among,
    is_part_of_all,
    keys_of,
    put,
)
from accelify.heap.counts import (
    compared,
    divided_whole,
    identity_test,
    is_number,
    is_same_object,
    of_ranks,
    result_type,
    share_of,
    size,
    summed,
    weighed,
    what_is_made,
    with_token,
    within_pass,
)
from accelify.heap.device_texts import kind_asked
from accelify.heap.divisions import meet_division
from accelify.heap.fields import name_of, whole_of
from accelify.heap.flags import ASKED, FLAGS, OPPOSITES, asked, together, truth
from accelify.heap.locations import meet_together
from accelify.heap.models import parts
from accelify.heap.moved import was_moved
from accelify.heap.operators import COMPARED, METHODS, NUMBERS, REFLECTED
from accelify.heap.parts_of_rows import of_each_row, part_of
from accelify.heap.paths import joined_path, named_in, pattern, with_text
from accelify.heap.spread_dictionaries import spread_into
from accelify.heap.state import is_part
from accelify.heap.texts import known_text, percent, text_of, texts_of
from accelify.heap.unbound import meet_unset
from accelify.heap.values import (
    BATCH,
    DEVICE,
    NONE,
    PART,
    PART_OF_ROWS,
    SHAPES,
    TENSOR,
    TUPLE,
    TURN,
    UNSET,
    Class,
    Container,
    Function,
    Instance,
    Library,
    Ref,
    Scope,
    Value,
    constant,
    is_zero,
)
from accelify.heap.wrapped_weights import WRAPPED_WEIGHTS, under_key

if TYPE_CHECKING:
    from accelify.heap.choices import Narrowed
    from accelify.heap.interpreter import Interpreter


class Expressions:
    """Evaluates expressions in a scope."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.run = engine.run
        self._handlers: dict[type[ast.expr], Callable[[Any, Ref], Value]] = {
            getattr(ast, name[1:]): getattr(self, name)
            for name in dir(self)
            if name.startswith("_") and isinstance(getattr(ast, name[1:], None), type)
        }

    def evaluate(self, node: ast.expr, scope: Ref) -> Value:
        """What an expression is."""
        if (handler := self._handlers.get(type(node))) is None:
            return Value(own(), self.run.reason(node, "an expression that is not read"))
        value = handler(node, scope)
        if (marks := self.run.moved.marks) and node in marks:
            was_moved(self.run, value, node, marks[node])
        return value

    def all(self, nodes: Sequence[ast.expr], scope: Ref) -> list[Value]:
        """What several expressions are, starred ones as their elements."""
        return self._spread(nodes, scope)[0]

    def _spread(self, nodes: Sequence[ast.expr], scope: Ref) -> tuple[list[Value], bool]:
        """What several expressions are, starred ones as their elements, and whether it is known how many those are."""
        found, counted = list[Value](), True
        for node in nodes:
            if isinstance(node, ast.Starred):
                whole = self.evaluate(node.value, scope)
                inner = parts(self.run, whole) or whole
                known = elements(self.run, inner)
                counted = counted and known is not None
                found += known if known is not None else [element(self.run, inner, node)]
            else:
                found.append(self.evaluate(node, scope))
        return found, counted

    # Leaves

    def _Constant(self, node: ast.Constant, scope: Ref) -> Value:
        return NONE if node.value is None else constant(node.value)

    def _Name(self, node: ast.Name, scope: Ref) -> Value:
        return self.engine.names.read(node.id, scope, node)

    def _Attribute(self, node: ast.Attribute, scope: Ref) -> Value:
        base = self.evaluate(node.value, scope)
        if self.run.checks:
            meet_unset(self.run, base, node.attr, node)
        return self.engine.attributes.read(base, node.attr, node)

    def _Lambda(self, node: ast.Lambda, scope: Ref) -> Value:
        made = Function(node, self.run.module, scope, "<lambda>")
        self.engine.calls.keep_defaults(made, node.args, scope)
        return Value(refs=(made,))

    # Operators

    def _BinOp(self, node: ast.BinOp, scope: Ref) -> Value:
        left, right = self.evaluate(node.left, scope), self.evaluate(node.right, scope)
        if isinstance(node.op, ast.BitAnd | ast.BitOr) and FLAGS & {left.type, right.type}:
            return together(self.run, node, (left, right))  # of truth values they are `and` and `or`
        return self.operate(node, node.op, left, right)

    def operate(self, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
        """The result of a binary operator, or of its assignment form."""
        meet_together(self.run, node, (left, right))
        for value, other, words in ((left, right, METHODS), (right, left, REFLECTED)):
            for ref in value.of(Instance):
                given = self.engine.calls.special(ref, words.get(type(op), ""), [other], node)
                if given is not None:
                    return given
        if isinstance(op, ast.Add) and (left.of(Container) or right.of(Container)):
            return self._concatenated(node, left, right)
        if isinstance(op, ast.Mult) and left.type == "list" and left.of(Container):
            if right.place.is_same:
                return self._concatenated(node, left, left)
            if right.place.even and array_of(left).is_same:  # an element for each row
                return self.run.made(node, ROUND_ROWS, right)
        if isinstance(op, ast.Mod) and (left.type == "builtins.str" or isinstance(left.const, str)):
            filled = [left, *(elements(self.run, right) or [right])]
            return with_text(text_of(self.engine, node, filled), percent(left, filled[1:]))
        if isinstance(op, ast.Div | ast.FloorDiv | ast.Mod):
            meet_division(self.run, node, left, right)
        if isinstance(op, ast.Div | ast.Mult) and is_zero(left) and right.place.is_uniform:
            return left
        left_place, right_place = array_of(left), array_of(right)
        if (
            isinstance(op, ast.Div)
            and right_place.kind is Kind.SAME
            and right_place.degree
            and is_mean_of_round(left_place)
        ):
            # It is divided by how many rounds there are ahead of adding it up.
            self.run.take_mean()
        if isinstance(op, ast.Add | ast.Sub):
            place = summed(op, left, right)
        elif isinstance(op, ast.Mult):
            place = multiplied(left_place, right_place)
        elif isinstance(op, ast.Div):
            place = multiplied(left_place, right_place, -1)
        elif isinstance(op, ast.FloorDiv) and (whole := divided_whole(left, right)) is not None:
            place = whole
        elif isinstance(op, ast.MatMult):
            place = shapes.product(left_place, right_place)
            if left_place.rows and place.rows and not place.axes:
                self.run.assume(f"`{self.run.segment(node)}` multiplies the matrices of each row", node)
        else:
            place = function((left_place, right_place), rowwise=True)
        if place.rows and not isinstance(op, ast.MatMult):
            place = shapes.counted(place, shapes.of_operands(self.run, node, (left_place, right_place)))
        met = meeting(
            (left_place, right_place),
            of_peaks=isinstance(op, ast.Div | ast.Mod | ast.FloorDiv),
            stretched=not isinstance(op, ast.MatMult),
        )
        type_ = result_type(self.run, op, left, right)
        if met:
            made = self.run.cause(node, mixing(place), meets(self.run.segment(node), met), type_)
        elif what := what_is_made(op, place, left_place, right_place):
            of = "each process's batch" if place.kind is Kind.ROUND else "the batches of all processes"
            made = self.run.cause(node, place, f"`{self.run.segment(node)}` is a {what} of {of}", type_)
        else:
            made = self.run.made(node, place, *weighed(op, left, right), type_=type_)
        if isinstance(op, ast.Add) and "builtins.str" in (left.type, right.type):
            as_text = place.kind is Kind.CLOCK or place == UNRELATED
            made = text_of(self.engine, node, [left, right]) if as_text else made
            made = with_text(made, [pattern(left), pattern(right)])
        elif isinstance(op, ast.Div) and "pathlib.Path" in (left.type, right.type):
            made = text_of(self.engine, node, [left, right])
            made = joined_path(replace(made, type="pathlib.Path"), [left, right])
        fold = NUMBERS.get(type(op))
        texts = isinstance(op, ast.Add) and isinstance(left.const, str) and isinstance(right.const, str)
        if fold and place.is_same and (texts or (is_number(left.const) and is_number(right.const))):
            return Value(made.place, made.why, type=made.type, const=fold(left.const, right.const))
        return with_token(made, op, left, right)

    def _concatenated(self, node: ast.AST, left: Value, right: Value) -> Value:
        parts = [*left.of(Container), *right.of(Container)]
        made = container(self.run, parts[0].type, node)
        for value in (left, right):
            put(self.run, made, element(self.run, value, node), filling="samples")
        return Value(refs=(made,), type=parts[0].type)

    def _UnaryOp(self, node: ast.UnaryOp, scope: Ref) -> Value:
        value = self.evaluate(node.operand, scope)
        if isinstance(node.op, ast.Not):
            value = asked(self.run, node, value)
            if value.type in OPPOSITES:
                return replace(value, type=OPPOSITES[value.type], const=UNSET)
            if (known := truth(value) if value.const is UNSET else bool(value.const)) is not None:
                return constant(not known)
            type_ = TURN if value.type == TURN else "builtins.bool"
            return self.run.made(node, function((array_of(value),)), value, type_=type_)
        if isinstance(node.op, ast.USub) and is_number(value.const):
            return constant(-value.const)
        place = function((array_of(value),), rowwise=True, linearly=not isinstance(node.op, ast.Invert))
        return self.run.made(node, place, value, type_=value.type)

    def _BoolOp(self, node: ast.BoolOp, scope: Ref) -> Value:
        values: list[Value] = []
        guards, choices = 0, self.engine.choices
        narrowed: list[Narrowed] = []
        for part in node.values:
            value = self.evaluate(part, scope)
            narrowed += choices.narrow(part, scope, isinstance(node.op, ast.And))
            if (known := truth(value)) is not None:
                if known == isinstance(node.op, ast.Or):
                    # Nothing after it is evaluated.
                    values.append(value)
                    break
                continue
            values.append(value)
            guard = self.engine.guard(value, part, taken=isinstance(node.op, ast.And))
            if guard is not None:
                self.run.guards.append(guard)
                guards += 1
        del self.run.guards[len(self.run.guards) - guards :]
        choices.widen(narrowed)
        if not values:
            return constant(isinstance(node.op, ast.And))
        last = node.values[-1]
        if isinstance(node.op, ast.And) and isinstance(last, ast.Constant) and not last.value:
            return values[-1]  # `debug and 0`
        counts = isinstance(node.op, ast.Or) and len(values) == 2 and is_number(values[1].const)
        if len(values) == 1 or (counts and not values[0].refs and values[0].type != PART):
            return values[0]  # `count or 1` is the count, wherever there is anything
        return together(self.run, node, values)

    def _Compare(self, node: ast.Compare, scope: Ref) -> Value:
        values = [self.evaluate(part, scope) for part in (node.left, *node.comparators)]
        if len(values) == 2:
            left, right = values
            if (flag := of_ranks(self.run, node, left, right)) is not None:
                return flag
            if (within := within_pass(self.run, node, left, right)) is not None:
                return within
            if (kind := kind_asked(self.run, node.ops[0], left, right)) is not None:
                return kind
            if left.const is not UNSET and right.const is not UNSET:
                with suppress(TypeError):
                    return constant(COMPARED[type(node.ops[0])](left.const, right.const))
            if (identity := identity_test(node.ops[0], left, right)) is not None:
                return is_same_object(self.run, identity, left, right) or self._of(node, values, identity)
            if isinstance(node.ops[0], ast.In | ast.NotIn):
                if (among := is_among(self.run, left, right)) is not None:
                    return constant(among == isinstance(node.ops[0], ast.In))
                values = [left, keys_of(right) or element(self.run, right, node)]
        return self._of(node, values, node.ops[0])

    def _of(self, node: ast.AST, values: list[Value], op: ast.cmpop) -> Value:
        if all(value.type in SHAPES for value in values):
            return Value(type="builtins.bool")  # of the rows of one batch: they differ in other axes
        place = compared(*values) if len(values) == 2 else None
        place = place or function((array_of(value) for value in values), rowwise=True)
        types = (value.type for value in values if value.type not in ASKED)
        type_ = next((one for one in types if one.startswith(("torch", "numpy", "#"))), "builtins.bool")
        meet_together(self.run, node, values)
        type_ = TENSOR if type_ == BATCH else type_
        ordered = isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        if words := meeting(map(array_of, values), of_peaks=ordered, of_figures=ordered):
            return self.run.cause(node, mixing(place), meets(self.run.segment(node), words), type_)
        return self.run.made(node, place, *values, type_=type_)

    def _IfExp(self, node: ast.IfExp, scope: Ref) -> Value:
        return self.engine.choose(
            node, lambda: self.evaluate(node.body, scope), lambda: self.evaluate(node.orelse, scope), scope
        )

    # Texts

    def _JoinedStr(self, node: ast.JoinedStr, scope: Ref) -> Value:
        parts = [self.evaluate(part, scope) for part in node.values]
        if (known := known_text(node, parts)) is not None:
            return constant(known)
        return with_text(
            text_of(self.engine, node, [one for one in parts if one.const is UNSET]), map(pattern, parts)
        )

    def shown(self, parts: Sequence[Value], node: ast.AST) -> list[Value]:
        """What the texts of values show."""
        return [inner for part in parts for inner in texts_of(self.engine, part, node)]

    # Containers

    def _Tuple(self, node: ast.Tuple, scope: Ref) -> Value:
        return self._display(node, scope, "tuple")

    def _List(self, node: ast.List, scope: Ref) -> Value:
        return self._display(node, scope, "list")

    def _Set(self, node: ast.Set, scope: Ref) -> Value:
        return self._display(node, scope, "set")

    def _display(self, node: ast.Tuple | ast.List | ast.Set, scope: Ref, type_: str) -> Value:
        values, known = self._spread(node.elts, scope)
        made = container(self.run, type_, node)
        for number, value in enumerate(values):
            put(self.run, made, value, number if known else UNSET)
        self.run.store.set(made, "#known", constant(len(values)) if known else None)
        return Value(refs=(made,), type=type_)

    def _Dict(self, node: ast.Dict, scope: Ref) -> Value:
        parts = [(key, self.evaluate(part, scope)) for key, part in zip(node.keys, node.values, strict=True)]
        made = container(self.run, "dict", node)
        for key, value in parts:
            if key is None:
                spread_into(self.run, made, value, node)
            else:
                named = self.evaluate(key, scope)
                put(self.run, made, value, named.const)
                if self.run.checks and not array_of(named).is_uniform:
                    self.run.store.set(made, KEYS, Value(named.place, named.why))
        return Value(refs=(made,), type="dict")

    def _ListComp(self, node: ast.ListComp, scope: Ref) -> Value:
        return self._comprehension(node, node.elt, scope, "list")

    def _SetComp(self, node: ast.SetComp, scope: Ref) -> Value:
        return self._comprehension(node, node.elt, scope, "set")

    def _GeneratorExp(self, node: ast.GeneratorExp, scope: Ref) -> Value:
        return self._comprehension(node, node.elt, scope, "generator")

    def _DictComp(self, node: ast.DictComp, scope: Ref) -> Value:
        return self._comprehension(node, node.value, scope, "dict", node.key)

    def _comprehension(
        self, node: Any, elt: ast.expr, scope: Ref, type_: str, key: ast.expr | None = None
    ) -> Value:
        inner = Scope(self.run.module, scope)
        made, as_many = container(self.run, type_, node), list[bool]()

        def body(number: int) -> None:
            if number < len(node.generators):
                part = node.generators[number]
                source = self.evaluate(part.iter, inner if number else scope)
                over = self.engine.iteration.over(source, part.iter)
                as_many.append(array_of(source).is_same and over.as_many)

                def once(item: Value) -> None:
                    self.engine.statements.bind(part.target, item, inner)
                    guards = 0
                    for test in part.ifs:
                        guard = self.engine.guard(self.evaluate(test, inner), test)
                        if guard is not None:
                            self.run.guards.append(guard)
                            guards += 1
                    body(number + 1)
                    del self.run.guards[len(self.run.guards) - guards :]

                self.engine.loops.go(part.iter, over, once)
            else:
                name = Value() if key is None else self.evaluate(key, inner)
                value = of_each_row(self.run, self.evaluate(elt, inner))
                value = value if key is None else under_key(value, name)
                put(self.run, made, value, name.const, filling="rounds")

        body(0)
        if type_ == "list" and not any(part.ifs for part in node.generators) and all(as_many):
            self.run.store.set(made, "#known", Value())  # whatever its elements are, as many on all ranks
        return Value(refs=(made,), type=type_)

    def _Subscript(self, node: ast.Subscript, scope: Ref) -> Value:
        base = self.evaluate(node.value, scope)
        if base.refs and all(isinstance(ref, Class) and _is_generic(ref) for ref in base.refs):
            return base  # `Base[Model]` is Base
        return self.index(node, base, node.slice, scope)

    def index(self, node: ast.AST, base: Value, at: ast.expr, scope: Ref) -> Value:
        """An element, or a part of rows."""
        key = self.evaluate(at, scope)
        if self.run.checks and isinstance(at, ast.Slice):
            bounds = self.all([one for one in (at.lower, at.upper, at.step) if one is not None], scope)
            if (share := share_of(self.run, node, base, bounds)) is not None:
                return share
        if base.of(Container):
            if is_part_of_all(base, key, at):
                return base.plain()
            found = element(self.run, base, node, key.const)
            if key.place.kind is Kind.SAME or has_one_each(self.run, base, key):
                return found
            place = function((found.place, key.place))
            why = self.run.reason(node, f"`{self.run.segment(node)}`", key, found, by_data=True)
            return Value(place, why, found.refs, found.type)
        contained = parts(self.run, base)
        if contained is not None:
            return contained if isinstance(at, ast.Slice) else element(self.run, contained, node, key.const)
        if base.type in SHAPES:
            return size(self.run, node, base, at if isinstance(at, ast.Slice) else key.const)
        if base.type == WRAPPED_WEIGHTS and isinstance(at, ast.Slice):
            return Value()  # a part of a name
        # What is taken by the number of a row is one, a slice of all ranks' rows has rows: no part of a structure.
        first = element(self.run, key, node, 0) if isinstance(at, ast.Tuple) else key
        row = first.place.kind is Kind.SAMPLE or (base.place.kind is Kind.WIDE and isinstance(at, ast.Slice))
        chosen = self.run.checks and key.place.kind is Kind.ROUND  # by what the batch has
        if base.type == BATCH and not (base.place.is_same or row or chosen):
            keys = at.elts if isinstance(at, ast.Tuple) else [at]
            place = shapes.counted(base.place, shapes.of_subscript(base.place, keys))
            part = Value(place, base.why, type=BATCH, where=base.where)
            return self.engine.iteration.part(part, key.const)
        if base.type == TUPLE and not base.refs and key.place.is_same:
            return Value(base.place, base.why, type=TENSOR, where=base.where)
        for ref in base.refs:
            if isinstance(ref, Library) and ref.name == "sys.modules":
                given = self.engine.modules.listed(name_of(key))
            else:
                given = self.engine.calls.special(ref, "__getitem__", [key], node)
            if given is not None:
                return given
        if base.where != key.where == DEVICE:  # what lies there takes an index from the host
            meet_together(self.run, node, (base, key))
        if self.run.checks:
            on_tpu.of_index(self.run, base, at, node)
        part = named_in(base, part_of(self.run, node, base, key, at), key.const, whole_of(base))
        return replace(part, refs=base.refs) if is_part(base) else part

    def _Slice(self, node: ast.Slice, scope: Ref) -> Value:
        bounds = self.all([part for part in (node.lower, node.upper, node.step) if part is not None], scope)
        apart = any(one.place.even and one.place.samples is None for one in bounds)
        return Value(type=PART_OF_ROWS if apart else "")

    def _Starred(self, node: ast.Starred | ast.Await | ast.FormattedValue, scope: Ref) -> Value:
        return self.evaluate(node.value, scope)

    _Await = _FormattedValue = _Starred

    def _NamedExpr(self, node: ast.NamedExpr, scope: Ref) -> Value:
        value = self.evaluate(node.value, scope)
        self.engine.statements.bind(node.target, value, scope)
        return value

    def _Yield(self, node: ast.Yield, scope: Ref) -> Value:
        self.engine.calls.give(NONE if node.value is None else self.evaluate(node.value, scope), node)
        return Value()

    def _YieldFrom(self, node: ast.YieldFrom, scope: Ref) -> Value:
        over = self.engine.iteration.over(self.evaluate(node.value, scope), node)
        self.engine.calls.give(over.item, node, over)
        return Value()

    def _Call(self, node: ast.Call, scope: Ref) -> Value:
        return self.engine.calls.call_node(node, scope)


def _is_generic(cls: Class) -> bool:
    """Whether `Trainer[Model]` is the class itself: it has no metaclass, as enumerations do, that says what else."""
    line = cls.line_up()
    keywords = (one for ref in line if isinstance(ref, Class) for one in ref.node.keywords)
    chosen = any(one.arg == "metaclass" and "ABCMeta" not in ast.unparse(one.value) for one in keywords)
    return not chosen and not any(isinstance(ref, Library) and ref.name.startswith("enum.") for ref in line)
