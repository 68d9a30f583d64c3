"""What two ways through the script leave in one variable."""

from __future__ import annotations

from collections.abc import Sequence

from accelify.domains.placement import (
    AFTER,
    COUNTED,
    FIGURE,
    MAIN,
    ROUND,
    UNRELATED,
    Kind,
    Placement,
    is_figure,
    joined,
    moved,
    own,
)
from accelify.domains.reasons import Reason
from accelify.domains.replacing import replace
from accelify.domains.rounds import BEGUN
from accelify.heap.paths import joined_text
from accelify.heap.range_bounds import goes_otherwise
from accelify.heap.values import (
    MAIN_FLAG,
    ONCE,
    OTHER_ROUNDS,
    OTHERS_FLAG,
    PARAMETER,
    RANK,
    TENSOR,
    UNSET,
    Function,
    Guard,
    Instance,
    Library,
    Ref,
    Value,
    is_zero,
)

# What is true on the ranks that stand under a guard, and false on the others.
_FLAGS = {"main": MAIN_FLAG, "others": OTHERS_FLAG}
_OPPOSITE = {"main": "others", "others": "main"}


def _alternatives(left: Sequence[Ref], right: Sequence[Ref]) -> list[Ref]:
    """What two ways give. One of several that `prepare(*objects)` gives, of which it is not known how many there are,
    is that of the object in whose place it is put."""
    for before, after in ((left, right), (right, left)):
        made = [one for one in after if isinstance(one, Instance) and one.wrapped is not None]
        if len({one.kind for one in made}) > 1:
            own = [one for one in made if one.wrapped is not None and {*one.wrapped.refs} & {*before}]
            if len(own) == len(before) > 0:
                return [*own]
    return [*left, *right]


def _distinct(refs: Sequence[Ref]) -> tuple[Ref, ...]:
    """Each of some references once; a name of a library is the same wherever it is asked for."""
    found: dict[object, Ref] = {}
    for ref in refs:
        found.setdefault(ref.name if isinstance(ref, Library) else ref, ref)
    return tuple(found.values())


def join(
    left: Value | None, right: Value | None, guard: Guard | None = None, *, in_order: bool = False
) -> Value | None:
    """What a slot holds after two ways to it; `guard` is what the ranks stood under that went different ones, with
    `in_order` those that went the first."""
    counted = guard.why if guard is not None and guard.kind == "counted" and not guard.place.is_same else None
    if guard is not None and (not guard.parts_ranks or _is_by_size(guard)):
        guard = None
    if left is None or right is None:
        known = left or right
        if known is None or guard is None or known.refs:
            return known
        return _parted(known, guard)
    if left is right or (left == right and not _is_chosen(left, guard)):
        return left
    if guard is not None and guard.kind in _FLAGS and goes_otherwise(left, right):
        return Value(own(), guard.why, _distinct((*left.refs, *right.refs)), OTHER_ROUNDS)
    if in_order and guard is not None and guard.kind in _FLAGS:
        if isinstance(left.const, bool) and isinstance(right.const, bool) and left.const != right.const:
            return Value(own(), guard.why, type=_FLAGS[guard.kind if left.const else _OPPOSITE[guard.kind]])
        of_main, of_others = (left, right) if guard.kind == "main" else (right, left)
        numbers = _is_number(of_main.const) and _is_number(of_others.const)
        if numbers and of_main.const == 0 != of_others.const:
            return Value(own(), guard.why, type=RANK)  # `0 if is_main_process else 1`
        if of_main.refs and of_others.refs and all(map(_does_nothing, of_others.refs)):
            return Value(refs=of_main.refs, type=ONCE)
        if guard.kind == "others" and left.of(Library) and right.of(Library):
            left, right = right, left  # that of the main process first
    refs = left.refs if left.refs == right.refs else _distinct(_alternatives(left.refs, right.refs))
    same_constant = (
        left.const is not UNSET and left.const == right.const and type(left.const) is type(right.const)
    )
    place, why = _place(left, right, None if same_constant else guard)
    if counted is not None and (chosen := _by_count(left, right, place)) is not None:
        place, why = chosen, counted
    token, delta = None, None
    if left.token is not None and left.token == right.token and guard is None:
        token = left.token
        deltas = [value.delta for value in (left, right) if value.delta is not None]
        begun = [delta for delta in deltas if delta.needs == BEGUN]
        if len(deltas) == 2 and begun:
            deltas = [replace(delta, needs="") if delta.needs == BEGUN else delta for delta in deltas]
        elif begun:
            token, deltas = None, []
        delta = joined(*deltas) if len(deltas) == 2 else deltas[0] if deltas else None
    elif guard is None:
        for one, other in ((left, right), (right, left)):
            if is_zero(one) and other.delta is not None and other.delta.is_same:
                token, delta = other.token, other.delta  # a count that begins anew
    optional = _optional(left, right, guard)
    if optional == MAIN_FLAG and why is None:
        why = guard.why if guard is not None else left.why or right.why
    return Value(
        place,
        why,
        refs,
        _type(left, right),
        left.const if same_constant else UNSET,
        token,
        delta,
        optional,
        left.text if same_constant or left.text == right.text != "" else joined_text(left, right),
        left.where if left.where == right.where else "",
    )


def _is_number(const: object) -> bool:
    return isinstance(const, int) and not isinstance(const, bool)


def _does_nothing(ref: Ref) -> bool:
    return isinstance(ref, Function) and ref.does_nothing


def _type(left: Value, right: Value) -> str:
    if left.type == right.type or right.const is None:
        return left.type
    if {left.type, right.type} == {TENSOR, PARAMETER}:
        return PARAMETER  # among those of a model there is one that is made by itself
    # A rank, and the number of the one process that there is where it has none.
    numbers = RANK in (left.type, right.type) and isinstance(
        left.const if right.type == RANK else right.const, int
    )
    return right.type if left.const is None else RANK if numbers else ""


def _by_count(left: Value, right: Value, place: Placement) -> Placement | None:
    """What a count of the rounds of each process chooses between two numbers or two figures of the round."""
    if left.token is not None or right.token is not None:
        return None
    numbers = [value.const for value in (left, right) if isinstance(value.const, int | float)]
    if len(numbers) == 2 and numbers[0] != numbers[1] and not any(isinstance(one, bool) for one in numbers):
        return moved(UNRELATED, AFTER)
    if place.kind is Kind.ROUND and left.place.kind is right.place.kind:
        return replace(place, needs=COUNTED)
    return None


def _optional(left: Value, right: Value, guard: Guard | None) -> bool | str:
    """Whether one of two values is None on some ways, and whether those are the ways of all but the main process."""
    if (left.const is None) == (right.const is None):
        return left.optional if left.optional == right.optional else True
    of_main = guard is not None and guard.kind in ("main", "others")
    made = right if left.const is None else left
    return MAIN_FLAG if of_main or made.optional == MAIN_FLAG else True


def _is_chosen(value: Value, guard: Guard | None) -> bool:
    """Whether what ranks have that went different ways is another one, though all that is known of it is alike."""
    apart = guard is not None and guard.kind == "divergent" and guard.place.kind is Kind.OWN
    return apart and not value.refs and value.const is UNSET


def _is_by_size(guard: Guard) -> bool:
    """Whether how many rows a batch has decides which way is taken, and nothing else: batches are of one size."""
    return guard.kind == "divergent" and guard.place.even and guard.place.degree == 0


def _is_any_runs(place: Placement) -> bool:
    """Whether the main process's is as good as that of any run: a time, or what a command gives."""
    return place.kind is Kind.CLOCK or place == own("broadcast")


def is_by_round(guard: Guard) -> bool:
    """Whether it is this rank's round, and nothing else, that decides which way is taken."""
    return guard.kind == "divergent" and guard.place.kind is Kind.ROUND and not guard.place.needs


def added_by_round(found: Value, left: Value, right: Value) -> Value:
    """A total to which a round adds by a condition of its own: so it does in the original."""
    deltas = [value.delta for value in (left, right) if value.delta is not None]
    if left.token is None or left.token != right.token or not deltas or not all(map(_is_of_round, deltas)):
        return found
    delta = joined(*deltas) if len(deltas) == 2 else deltas[0]
    return replace(
        found, token=left.token, delta=replace(ROUND, samples=None) if delta.kind is Kind.SAME else delta
    )


def _is_of_round(place: Placement) -> bool:
    return place.degree == 0 and place.kind in (Kind.SAME, Kind.ROUND)


def _parted(value: Value, guard: Guard) -> Value:
    """A value that ranks have which went one way, and others do not."""
    if guard.kind == "divergent":
        place, why = _place(value, value, guard)
        return value.placed(place, why)
    return value.placed(MAIN, guard.why) if value.place.is_same else value


def _is_sent(value: Value) -> bool:
    """Whether it is what the main process has sent to all ranks."""
    return value.place.is_same and value.why is not None and value.why.text.startswith("broadcast")


def _place(left: Value, right: Value, guard: Guard | None) -> tuple[Placement, Reason | None]:
    objects = [ref for ref in (*left.refs, *right.refs) if not isinstance(ref, Library)]
    if guard is not None and not objects:
        if guard.kind == "divergent":
            if guard.place.kind is Kind.ROUND and all(_is_of_round(value.place) for value in (left, right)):
                # A choice by this rank's round, between values of this round, is one of the original's rounds too.
                mixed = [value for value in (left, right) if value.place.mixed]
                why = next((value.why for value in (*mixed, left, right) if value.why), guard.why)
                rows = left.place.rows and right.place.rows
                samples = 0 if rows and left.place.samples == right.place.samples == 0 else None
                counted = guard.place.needs == COUNTED and not mixed
                needs, why = (
                    (COUNTED, replace(next(iter(guard.why.parents), guard.why), cause=True))
                    if counted
                    else ("", why)
                )
                form = FIGURE if any(is_figure(value.place) for value in (left, right)) else ""
                made = replace(ROUND, rows=rows, samples=samples, mixed=bool(mixed), needs=needs, form=form)
                return made, why
            if _is_any_runs(guard.place) and all(
                value.place.is_same or _is_any_runs(value.place) for value in (left, right)
            ):
                return guard.place, guard.why
            for one, other in ((left, right), (right, left)):
                of_share = other.place == guard.place or other.place.kind is Kind.LINEAR
                if is_zero(one) and of_share and guard.place.needs:
                    return guard.place, other.why  # the mean of a share that may have nothing in it
            return own("decided by all ranks together"), guard.why
        if guard.kind == "main" and left.place.kind is Kind.CLOCK and right.place.is_same:
            return MAIN, guard.why
        for one, other in ((left, right), (right, left)):
            if _is_sent(one) and (other.place.kind is Kind.MAIN or _is_sent(other)):
                return one.place, one.why  # the others take what the main process has
        parted, other = (left, right) if not left.place.is_same else (right, left)
        counts = parted.place.kind is Kind.SAME and parted.place.degree and parted.token is None
        if counts and _is_number(other.const) and other.const:
            return MAIN, guard.why  # a share of a number on one side, and a number of all on the other
        return (MAIN, guard.why) if parted.place.is_same else (parted.place, parted.why)
    if left.place == right.place:
        return left.place, left.why or right.why
    for one, other in ((left, right), (right, left)):
        # Nothing is there yet on one of the ways, or a total that begins with zero.
        if one.const is None or (is_zero(one) and other.place.kind in (Kind.SAME, Kind.LINEAR, Kind.ROUND)):
            return other.place, other.why
    place = joined(left.place, right.place)
    if place == left.place:
        return place, left.why
    # What is the same on all ranks is no reason for what is not.
    one, other = (left, right) if right.place.is_uniform else (right, left)
    return place, right.why if place == right.place else (one.why or other.why)


def is_prepared_of(written: Value | None, before: Value | None) -> bool:
    """Whether what is written on one way is what was there before, prepared: where it stays as it was there is none, or
    one process."""
    if before is None or written is None or not written.refs:
        return False
    wrapped = [ref.wrapped for ref in written.of(Instance) if ref.prepared and ref.wrapped is not None]
    inner = {ref for value in wrapped for ref in value.refs}
    return len(wrapped) == len(written.refs) and bool(inner) and inner <= {*before.refs}
