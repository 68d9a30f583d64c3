"""Counts of rounds, ranks, and sums that go on from round to round: in which units two of them meet."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from accelify.domains.placement import (
    AFTER,
    PEAK,
    ROUND_ROWS,
    SAME,
    SHARD,
    Kind,
    Placement,
    added,
    is_figure,
    moved,
    multiplied,
    own,
)
from accelify.domains.reasons import Reason
from accelify.domains.replacing import replace
from accelify.heap.containers import array_of, elements, parts_of, reduced_value
from accelify.heap.flags import OPPOSITES, truth
from accelify.heap.random_draws import DRAWS
from accelify.heap.run import Run
from accelify.heap.values import (
    BATCH,
    COUNTER,
    LAST,
    LENGTH,
    MAIN_FLAG,
    MORE,
    OF_BATCH,
    ONE_FLAG,
    OTHERS_FLAG,
    OWN_DEVICE,
    PART,
    PASS,
    PASSES,
    PROCESSES,
    RANK,
    SHAPES,
    TENSOR,
    TURN,
    UNDIVIDED,
    UNSET,
    WIDTH,
    WRAPPER,
    Bound,
    Container,
    Instance,
    Library,
    Ref,
    Value,
    constant,
)
from accelify.knowledge import Row

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

# What is added to a divisor lest it is zero.
_NEGLIGIBLE = 1e-4

# How the reason for a count of rows ends.
COUNTS = "counts samples"
_MOST_STEPS = 100

# How a condition is described that parts the ranks.
CHOSEN = "can be true on one rank only"

# The type of how often all batches of all processes make up a number of steps.
EPOCHS = "#epochs"
_WHOLE = frozenset({PASS, PASSES, UNDIVIDED})

# What becomes of a batch, or of a count, that an operator takes.
_OF_RESULTS = {BATCH: TENSOR, **dict.fromkeys((COUNTER, LAST, PART, PASS, PASSES, WIDTH), "builtins.int")}

# What an operator makes of figures of a batch that is no figure of its kind any more.
_RESULTS = {
    ast.Div: "ratio of figures",
    ast.Mult: "product of figures",
    ast.MatMult: "product of rows",
    ast.Add: "sum of a mean and a sum",
    ast.Sub: "difference of a mean and a sum",
}


def is_there(value: Value) -> bool:
    """Whether a value is an object for certain; what an unknown object has or gives may be None."""
    return any(
        not isinstance(ref, Library)
        and not (isinstance(ref, Bound) and isinstance(ref.method, str))
        and not (isinstance(ref, Instance) and ref.kind == "object" and ref.cls is None)
        for ref in value.refs
    )


def identity_test(op: ast.cmpop, left: Value, right: Value) -> ast.cmpop | None:
    """`is` or `is not`, where a comparison asks that; `y != None` asks it of what is compared as a whole."""
    if isinstance(op, ast.Is | ast.IsNot):
        return op
    if (
        right.const is None
        and isinstance(op, ast.Eq | ast.NotEq)
        and not left.type.startswith(("numpy", "pandas"))
    ):
        return ast.Is() if isinstance(op, ast.Eq) else ast.IsNot()
    return None


def is_same_object(run: Run, op: ast.cmpop, left: Value, right: Value) -> Value | None:
    """What `is` and `is not` give, None where it goes with the ranks."""
    place = left.place
    # What was computed from a batch is there, and so is a module of a library: `dist is None`.
    module = any(run.knowledge.has_parts(ref.name) for ref in left.of(Library))
    there = left.const is UNSET and (is_there(left) or module or not place.is_uniform)
    if right.const is None and not left.optional and there:
        return Value(const=isinstance(op, ast.IsNot), type="builtins.bool")
    if place.kind is Kind.ROUND and (place.rows or place.samples is not None):
        # A loader has as many batches for each rank; what a rank chose by its own has no samples.
        return Value(type=MORE if place.rows else "builtins.bool")
    # A share that is there on some ranks alone would be of no known relation to the original.
    uniform = place.is_uniform or place.kind in (Kind.SHARD, Kind.LINEAR)
    return Value(type="builtins.bool") if uniform else None


def is_number(value: Any) -> bool:
    """Whether it is a number and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def result_type(run: Run, op: ast.operator, left: Value, right: Value) -> str:
    """The type of what an operator makes."""
    whole = run.checks and right.type in _WHOLE and array_of(right).is_same
    if isinstance(op, ast.Div | ast.FloorDiv) and whole and left.type not in _WHOLE:
        return EPOCHS
    if EPOCHS in (left.type, right.type):
        return EPOCHS if isinstance(op, ast.Add | ast.Sub) else "builtins.int"
    type_ = left.type if left.type.startswith(("torch", "numpy", "#")) else right.type or left.type
    if type_ == PROCESSES and not isinstance(op, ast.Mult):
        # A remainder of the number of processes may be 0, and a quotient 1.
        type_ = "" if isinstance(op, ast.Div) else "builtins.int"
    return _counting_type(op, left, right) or _OF_RESULTS.get(type_, type_)


def _counting_type(op: ast.operator, left: Value, right: Value) -> str:
    """The type of what an operator makes of a count of rounds; "" where it is no such count."""
    place = array_of(left)
    if isinstance(op, ast.Mult | ast.Div | ast.FloorDiv) and left.type != LENGTH:
        passes = {left.type, right.type if isinstance(op, ast.Mult) else ""} & {PASS, PASSES}
        if passes and place.is_same and array_of(right).is_same:
            return PASSES
    if place.kind is not Kind.SAME or not array_of(right).is_same:
        return ""
    if isinstance(op, ast.Mod):
        return TURN
    if isinstance(op, ast.Div | ast.FloorDiv) and left.type == LENGTH:
        return PASS
    if isinstance(op, ast.FloorDiv) and (place.degree or 0) > 0 and right.const != 1:
        return PART
    beside = isinstance(op, ast.Sub) or (isinstance(op, ast.Add) and not place.phase)
    return LAST if beside and right.const == 1 and place.degree == 1 else ""


def divided_whole(left: Value, right: Value) -> Placement | None:
    """A whole quotient of two counts: of rounds by rounds, but for the rest that falls away."""
    places = array_of(left), array_of(right)
    return multiplied(*places, -1) if all(place.kind is Kind.SAME for place in places) else None


def compared(left: Value, right: Value) -> Placement | None:
    """What a comparison of two counts of each process's rounds is: that of the original's; None for other values."""
    units = [1 if value.type == LAST else array_of(value).degree for value in (left, right)]
    places = [array_of(value) for value in (left, right)]
    if any(place.kind is not Kind.SAME for place in places) or units[0] != units[1] or not units[0]:
        return None
    phases = {place.phase for place in places if place.phase}
    return moved(SAME, phases.pop() if len(phases) == 1 else None) if phases else SAME


def _parts_here(place: Placement, left: Placement, right: Placement) -> bool:
    """Whether a result is no mean or sum over rows or rounds any more, as both operands were."""
    if place.kind is Kind.WIDE:
        return place.degree is None and not (place.rows or None in (left.degree, right.degree))
    return place.mixed and not (left.mixed or right.mixed)


def what_is_made(op: ast.operator, place: Placement, left: Placement, right: Placement) -> str:
    """What an operator makes that is no mean or sum of its batch as its operands were, "" where it is one."""
    adds = isinstance(op, ast.Add | ast.Sub)
    if adds and (place.kind is not Kind.ROUND or left.rows or right.rows):
        return ""
    return _RESULTS.get(type(op), "") if _parts_here(place, left, right) else ""


def holds(engine: Interpreter, test: ast.expr, scope: Ref) -> bool:
    """Whether what stands after an assertion may be reached: one of a share of the samples ends all processes."""
    value = engine.evaluate(test, scope)
    equal = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)
    if isinstance(test, ast.Compare) and equal and not engine.run.checks:
        engine.run.store.begin()
        with engine.run.quiet():
            sides = [engine.evaluate(one, scope) for one in (test.left, test.comparators[0])]
        engine.run.store.undo()
        for count, other in (sides, sides[::-1]):
            place = array_of(count)
            counts = place.kind in (Kind.SAME, Kind.LINEAR) and place.degree == 1 and not place.phase
            if counts and array_of(other).is_same:
                text = f"`{engine.run.segment(test)}` fails on several processes: each counts its share alone"
                engine.run.meet("misuse", test, text, [count], detail="rounds")
                break
    # `assert rank == -1` holds in one process that is alone.
    return truth(value) is not False


def within_pass(run: Run, node: ast.Compare, left: Value, right: Value) -> Value | None:
    """Whether a round comes after all rounds of a pass, as in `if i >= len(data) // size`: none does, of the original's
    or of a process; None for another comparison."""
    op = node.ops[0]
    if isinstance(op, ast.LtE | ast.Gt) and right.type == COUNTER:
        left, right = right, left
    elif not isinstance(op, ast.Lt | ast.GtE):
        return None
    if left.type != COUNTER or right.type != PASS:
        return None
    run.assume(f"a process goes through no more rounds than `{run.segment(node.comparators[0])}`", node)
    return Value(type="builtins.bool")


def summed(op: ast.operator, left: Value, right: Value) -> Placement:
    """The placement of a sum; a constant may be nothing, next to nothing, or one more round of a counter."""
    for one, other in ((left, right), (right, left)):
        if not is_number(other.const) or (isinstance(op, ast.Sub) and other is left):
            continue
        if other.const == 1 and one.type == COUNTER and isinstance(op, ast.Add):
            return replace(one.place, phase=AFTER if one.place.phase else "")
        if abs(other.const) <= _NEGLIGIBLE:
            return array_of(one)
    return added(array_of(left), array_of(right))


def weighed(op: ast.operator, left: Value, right: Value) -> tuple[Value, ...]:
    """The operands from which it comes that a result is of one rank: of a figure of all ranks, times how many samples
    this one's batch has, it is the figure, as batches are of one size."""
    for one, other in ((left, right), (right, left)):
        if isinstance(op, ast.Mult) and one.why is not None and one.place.is_uniform and other.place.even:
            return (one,)
    return (left, right)


def with_token(made: Value, op: ast.operator, left: Value, right: Value) -> Value:
    """A sum remembers the slot that it adds to."""
    if isinstance(op, ast.Add | ast.Sub):
        base, more = (left, right) if left.token is not None else (right, left)
        if (
            base.token is not None
            and more.token != base.token
            and not (isinstance(op, ast.Sub) and base is right)
        ):
            step = array_of(more)
            delta = step if base.delta is None else added(base.delta, step)
            # A running total, with what this round adds.
            place = replace(base.place, phase=AFTER) if base.place.phase else made.place
            return Value(place, made.why, made.refs, made.type, UNSET, base.token, delta)
    return made


# Comparisons that are known where there are several processes.
_TRUE, _FALSE = "#true", "#false"
# Of a rank, which is -1 for a process that is alone.
_ALONE = {(ast.Lt, 0): _FALSE, (ast.GtE, 0): _TRUE, (ast.LtE, -1): _FALSE, (ast.Gt, -1): _TRUE}
# What a launcher leaves in the environment of each process: how many there are, and which one it is.
WORLDS = frozenset({"WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"})
_RANK_WORDS = re.compile(r"(?:(?:LOCAL|NODE|GROUP|SLURM|OMPI_COMM_WORLD|PMI)_)*(?:RANK|PROCID|LOCALID)")


def is_of_launcher(key: Value) -> bool:
    """Whether a variable of the environment says which of its processes this is."""
    return isinstance(key.const, str) and _RANK_WORDS.fullmatch(key.const) is not None


def of_ranks(run: Run, node: ast.Compare, left: Value, right: Value) -> Value | None:
    """What a comparison says of the rank that makes it, or of the number of processes; None for another one."""
    if run.checks:
        _meet_lengths(run, node, left, right)
    flag = rank_flag(node.ops[0], left, right) or _flag_of_several(node.ops[0], left, right)
    if not flag and run.checks and isinstance(node.ops[0], ast.In | ast.NotIn):
        of_environment = any(ref.name == "os.environ" for ref in right.of(Library))
        if of_environment and (left.const in WORLDS or is_of_launcher(left)):
            flag = _TRUE if isinstance(node.ops[0], ast.In) else _FALSE
    if left.type == WRAPPER and (names := names_of(run, right)):
        return constant((WRAPPER in names) == isinstance(node.ops[0], ast.In | ast.Is | ast.Eq))
    if flag in (_TRUE, _FALSE):
        return constant(flag == _TRUE)
    made_by = left.why if left.optional == MAIN_FLAG else None
    return Value(own(), run.reason(node, f"`{run.segment(node)}`", made_by), type=flag) if flag else None


def names_of(run: Run, value: Value) -> set[str]:
    """The last words of the library names that a value is, or that a tuple has."""
    parts = [value, *(elements(run, value) or [])]
    return {ref.name.rpartition(".")[2] for part in parts for ref in part.of(Library)}


def meet_epochs(run: Run, node: ast.AST, args: Sequence[Value]) -> None:
    """A range of as many rounds as all batches of all processes make up a number of steps."""
    if run.checks and run.accelerated and any(value.type == EPOCHS for value in args):
        run.meet("epochs", node, run.segment(node))


def _meet_lengths(run: Run, node: ast.Compare, left: Value, right: Value) -> None:
    """A number of rounds of each process that is compared with how many batches there are for all of them."""
    for count, length in ((left, right), (right, left)):
        place = array_of(count)
        counts = place.kind is Kind.SAME and place.degree == 1 and (place.phase or count.type == COUNTER)
        if (
            counts
            and length.type == UNDIVIDED
            and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.Lt | ast.LtE)
        ):
            text = f"`{run.segment(node)}` compares a count of one process's batches with the number of all of them"
            run.meet("misuse", node, text, detail="rounds")


def _flag_of_several(op: ast.cmpop, left: Value, right: Value) -> str:
    """How a comparison of the number of processes comes out where that is more than 1."""
    if right.type == PROCESSES and left.type != PROCESSES:
        turned = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
        return _flag_of_several(turned.get(type(op), type(op))(), right, left)
    number = _as_number(right, left).const
    if left.type == PROCESSES and number is None and isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
        return _TRUE if isinstance(op, ast.IsNot | ast.NotEq) else _FALSE
    if left.type != PROCESSES or not isinstance(number, int):
        return ""
    if isinstance(op, ast.Gt | ast.NotEq):
        return _TRUE if number <= 1 else ""
    if isinstance(op, ast.GtE):
        return _TRUE if number <= 2 else ""
    if isinstance(op, ast.Lt):
        return _FALSE if number <= 2 else ""
    return _FALSE if isinstance(op, ast.Eq | ast.LtE) and number <= 1 else ""


def _as_number(value: Value, beside: Value) -> Value:
    """A number that is compared with a rank or a number of processes as a text, as the environment has it: `"0"`."""
    if beside.type not in (RANK, PROCESSES) or not isinstance(value.const, str):
        return value
    return constant(int(value.const)) if value.const.lstrip("-").isdecimal() else value


def _of_devices(left: Value, right: Value) -> tuple[Value, Value]:
    """A comparison of this process's device with another as one of the rank with a number; any other as it is."""
    for one, other in ((left, right), (right, left)):
        number = str(other.const if isinstance(other.const, str) else other.text).partition(":")[2]
        if one.text == OWN_DEVICE and number.isdecimal():
            found = Value(type=RANK), constant(int(number))
            return found if one is left else found[::-1]
    return left, right


def rank_flag(op: ast.cmpop, left: Value, right: Value) -> str:
    """What a comparison of a rank with a number says, or of what the main process alone has with None: the main
    process, the others, or nothing."""
    left, right = _of_devices(left, right)
    left, right = _as_number(left, right), _as_number(right, left)
    if isinstance(op, ast.In) and left.type == RANK:
        # `rank in [-1, 0]`: -1 stands for a process that is alone.
        inside = [item for ref in right.of(Container) for item in ref.looked_into().items()]
        numbers = {_as_number(value, left).const for name, value in inside if name.startswith("[")}
        numbers -= {number for number in numbers if isinstance(number, str)}  # "cuda:0", which no rank is
        return MAIN_FLAG if 0 in numbers and numbers <= {-1, 0, None} else ""
    if isinstance(op, ast.NotIn) and left.type == RANK:
        return OPPOSITES.get(rank_flag(ast.In(), left, right), "")
    if left.optional == MAIN_FLAG and right.const is None:
        there = isinstance(op, ast.IsNot | ast.NotEq)
        return MAIN_FLAG if there else OTHERS_FLAG if isinstance(op, ast.Is | ast.Eq) else ""
    rank, other = (left, right) if left.type == RANK else (right, left)
    if (
        rank.type == RANK
        and other.const in (-1, None)
        and not isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
    ):
        # They stand for a process that is alone.
        return _TRUE if isinstance(op, ast.NotEq | ast.IsNot) else _FALSE
    if left.type == RANK and (known := _ALONE.get((type(op), other.const))):
        return known
    if rank.type == RANK and isinstance(op, ast.Eq) and type(other.const) is int and other.const > 0:
        return ONE_FLAG
    if rank.type != RANK or isinstance(other.const, bool) or other.const not in (0, 1, -1):
        return ""
    if other.const == 1:
        return {ast.Lt: MAIN_FLAG, ast.GtE: OTHERS_FLAG}.get(type(op), "") if rank is left else ""
    if isinstance(op, ast.LtE) and other.const == 0 and rank is left:
        return MAIN_FLAG
    if isinstance(op, ast.Eq):
        return MAIN_FLAG if other.const == 0 else ""
    if isinstance(op, ast.NotEq | ast.Gt) and other.const == 0:
        return OTHERS_FLAG
    return ""


def share_of(run: Run, node: ast.AST, base: Value, bounds: Sequence[Value]) -> Value | None:
    """What a script that is written for several processes takes of something by its rank: `rows[rank::size]`."""
    if not run.checks or not base.place.is_same or not any(map(_is_by_rank, bounds)):
        return None
    return Value(
        SHARD, run.reason(node, f"`{run.segment(node)}` is this rank's share", *bounds, base), type=base.type
    )


def _is_by_rank(value: Value) -> bool:
    """Whether a number is computed from the rank, and not chosen by it, nor drawn after a seed with it."""
    steps = value.why.steps() if value.why is not None and array_of(value).kind is Kind.OWN else []
    other = any(CHOSEN in step.text or step.text.endswith(DRAWS) for step in steps)
    return bool(steps) and steps[-1].text == "the rank" and not other


def shape(base: Value) -> Value:
    """The shape of a value."""
    return Value(base.place, base.why, type=SHAPES[base.type != BATCH])


def size(run: Run, node: ast.AST, base: Value, axis: Any) -> Value:
    """One number of a shape, or a slice of it: a count of rows along their axis, or where the axis is not known."""
    if isinstance(axis, ast.Slice):
        return _sizes(run, node, base, axis)
    if is_figure(base.place):
        return Value(type="builtins.int")
    if isinstance(axis, int) and axis != int(base.place.turned):
        # Of what a model makes, such as a hidden state, another axis may be that of the rows.
        wide = axis > 0 and base.place.sure and base.type == SHAPES[0]
        return Value(type=WIDTH if wide else "builtins.int")
    text = f"`{run.segment(node)}` {COUNTS}"
    return run.made(node, reduced_value(base, "count"), base, type_="builtins.int", text=text)


def counts_batches(why: Reason | None) -> bool:
    """Whether all that something goes by is how many rows batches have as a loader gives them, and not what is chosen
    or made of them."""
    waiting, seen = [why], 0
    while waiting and seen < _MOST_STEPS:
        step, seen = waiting.pop(), seen + 1
        if step is None or not step.parents:
            return False
        if not step.text.endswith(COUNTS):
            waiting += step.parents
        elif not all(one.text.startswith(OF_BATCH) for one in step.parents):
            return False
    return not waiting


def _sizes(run: Run, node: ast.AST, base: Value, at: ast.Slice) -> Value:
    """A part of a shape: that without the axis of the rows is the same for any batch."""
    first = 0 if at.lower is None else at.lower.value if isinstance(at.lower, ast.Constant) else None
    if first == 0:
        return Value(base.place, base.why, type=base.type)
    return (
        Value() if isinstance(first, int) and first > int(base.place.turned) else size(run, node, base, None)
    )


def of_shape(row: Row, operands: Sequence[Value]) -> Placement | None:
    """What a function that makes an array gives where its shape counts the samples of a batch: rows of the batch."""
    if row.place != "device" or row.transfer not in ("pure", "draw"):
        return None
    counts = [inner for value in operands for inner in parts_of(value) if not array_of(inner).is_same]
    places = {array_of(inner) for inner in counts}
    if places and all(place.form == PEAK for place in places):
        return Placement(Kind.ROUND, samples=None)  # as wide as the longest of the batch
    if not counts or any(inner.type != "builtins.int" for inner in counts):
        return None
    if places == {Placement(Kind.LINEAR, 1, rows=True)}:
        return SHARD
    return ROUND_ROWS if all(place.kind is Kind.ROUND and place.even for place in places) else None
