"""Lists, tuples, sets and dictionaries: what goes in, what comes out, and what all of it is together."""

from __future__ import annotations

import ast
from collections.abc import Iterable as Many
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

from accelify.domains.placement import (
    SAME,
    SAMPLE,
    SHARD,
    UNRELATED,
    WIDE_ROWS,
    Kind,
    Placement,
    function,
    linear,
    own,
    reduced,
    same,
    unsure,
    wide,
)
from accelify.domains.replacing import replace
from accelify.domains.rounds import is_mean_of_round
from accelify.heap.fields import OF, write_field
from accelify.heap.joining import join
from accelify.heap.model_parameters import is_parameters, parameter_of
from accelify.heap.paths import known_of
from accelify.heap.pieces import MADE
from accelify.heap.run import Run
from accelify.heap.values import OF_SAMPLE, RANK, UNSET, Container, Instance, Iterable, Value, constant

# The slot of what decides which keys a dictionary has, where that is not the same on all ranks.
KEYS = "#keys"
# The slot that says that ranks alone write to it, each to its own element.
_EACH = "#each"
# How many containers lie in each other at most; one may hold itself.
_DEEPEST = 6
# How far a value is from what the original shows, for the choice among the parts of a text.
_DISTANCE = (
    Kind.OWN,
    Kind.MAIN,
    Kind.EXTREME,
    Kind.PARTS,
    Kind.SHARD,
    Kind.LINEAR,
    Kind.CLOCK,
    Kind.ROUND,
    Kind.WIDE,
    Kind.SAMPLE,
)


# What lies in containers, each by how many it lies in.
_Inside = dict[tuple[Container, int], list[Placement]]


def container(run: Run, type_: str, site: object = None) -> Container:
    """An empty list, tuple, set, dictionary or bag, made at a place of the script or in passing."""
    loops = run.shared_loops()
    if any(loop.samples.kind is Kind.WIDE for loop in run.loops):
        loops = (*loops, OF_SAMPLE)
    if site is None:
        return run.passing(type_, loops)
    made = run.allocate((site, type_), lambda: Container(type_, run.store, passing=False))
    run.place(made, loops)
    return made


def tuple_of(run: Run, values: Sequence[Value], site: object = None, type_: str = "tuple") -> Value:
    """A tuple of some values, or a list, made at a place of the script or in passing."""
    made = container(run, type_, site)
    for number, value in enumerate(values):
        put(run, made, value, number)
    run.store.set(made, "#known", constant(len(values)))
    return Value(refs=(made,), type=type_)


def with_rest(run: Run, known: list[Value], targets: Sequence[ast.expr]) -> list[Value]:
    """The values of targets of which one takes the rest: `model, *loaders = prepared`; as they are where none does."""
    star = next((number for number, one in enumerate(targets) if isinstance(one, ast.Starred)), None)
    if star is None or len(known) < len(targets) - 1:
        return known
    last = len(known) - (len(targets) - star - 1)
    return [*known[:star], tuple_of(run, known[star:last], type_="list"), *known[last:]]


def put(run: Run, into: Container, value: Value, key: Any = UNSET, *, filling: str = "") -> None:
    """Write an element: under a key that is known, or as one of all others.

    `filling` is "rounds" where a call adds one element, "samples" where it adds those of something.
    """
    if into.type == "dict" and (key is UNSET or into.slot(f"[{key!r}]") is None):
        run.depends()
        parting = next((one for one in run.guards if one.parts_ranks), None)
        if parting is not None:
            run.store.set(into, KEYS, Value(parting.place, parting.why))
    of = into.slot(OF)
    if of is not None:
        write_field(run, of, constant(key) if isinstance(key, str) else Value(), value)
    if key is not UNSET and isinstance(key, str | int | bool | float | None):
        slot = f"[{key!r}]"
        run.store.set(into, slot, value if value.token == (into, slot) else value.plain())
        return
    value = value.plain()
    run.depends()
    guard = next((one for one in run.guards if one.parts_ranks), None)
    if run.store.pieces:
        # Where ranks part it matters whether something is there already.
        run.store.note(into, "[]", softly=guard is None)
    if run.checks and guard is not None and guard.kind == "divergent" and value.place.is_same:
        # Only some ranks have it.
        value = Value(own(), guard.why, value.refs, value.type, text=value.text)
    before = None if run.is_absent((into, "[]")) else into.fields.get("[]")
    run.store.set(into, "[]", join(before, value, guard) if before is not None else value)
    if filling:
        run.store.set(into, "#known", None)
        if filling == "rounds" and is_mean_of_round(array_of(value)) and _lasts(run, into):
            run.take_mean()
        around = run.shared_loops()
        if any(loop not in into.loops for loop in around) or (around and _is_of_before(run, into)):
            by_samples = array_of(value).kind is Kind.SAMPLE or any(
                loop.samples.kind is Kind.WIDE for loop in run.loops
            )
            run.store.set(into, "#fill", constant("samples" if by_samples else filling))


def keyed(run: Run, known: Sequence[Value], type_: str) -> list[tuple[Any, Value]]:
    """Elements with their numbers, or the values of a dictionary that is made of pairs with their keys."""
    pairs = [elements(run, one) or [] for one in known] if type_ == "dict" else []
    if pairs and all(len(pair) == 2 for pair in pairs):
        return [(pair[0].const, pair[1]) for pair in pairs]
    return list(enumerate(known))


def end_of(run: Run, ref: Container) -> Any:
    """The number of an element that all ranks append once to a list whose elements are known; UNSET of another one."""
    size = ref.slot("#known") if ref.type == "list" else None
    if size is None or not isinstance(size.const, int) or run.loops:
        return UNSET
    run.depends()
    if any(guard.parts_ranks for guard in run.guards):
        return UNSET
    run.store.set(ref, "#known", constant(size.const + 1))
    return size.const


def extend(run: Run, into: Container, value: Value, node: ast.AST) -> None:
    """Write the elements of something, those of a known length at their places in a list whose length is known."""
    known = elements(run, value) or ()
    ends = [end_of(run, into) for _ in known]
    if not ends or UNSET in ends:
        put(run, into, element(run, value, node), filling="samples")
        return
    for end, one in zip(ends, known, strict=True):
        put(run, into, one, end)


def is_without(ref: Container, key: Value) -> bool:
    """Whether a dictionary, of which all keys are known, has none of this name."""
    return (
        ref.type == "dict"
        and isinstance(key.const, str)
        and f"[{key.const!r}]" not in ref.looked_into()
        and ref.slot("[]") is None
    )


def _lasts(run: Run, ref: Container) -> bool:
    """Whether the round of the innermost loop has not made the container."""
    if run.store.pieces:
        run.store.note(ref, MADE)
    return not run.store.touched_in_round(ref, MADE)


def _is_of_before(run: Run, ref: Container) -> bool:
    """Whether a round goes on with a container that a round before it made."""
    if ref.passing:
        return False
    if run.store.pieces:
        run.store.note(ref, MADE)
    return not run.store.is_of_shared_round(ref, MADE)


def keys_of(of: Value) -> Value | None:
    """What decides which keys dictionaries have, where that is not the same on all ranks: no value that stands in
    them; None for what is no dictionary."""
    refs = of.of(Container)
    if not refs or any(ref.type != "dict" for ref in refs):
        return None
    return next((found for ref in refs if (found := ref.slot(KEYS)) is not None), Value(of.place, of.why))


def keys_in(ref: Container) -> list[Any] | None:
    """The keys of a dictionary in their order, None where they are not all known, or not the same on all ranks."""
    names = [name for name in ref.looked_into() if name[0] == "["]
    unknown = ref.slot(KEYS) is not None or ref.slot(OF) is not None or fill_of(ref)
    if ref.type != "dict" or "[]" in names or unknown:
        return None
    with suppress(ValueError):  # such as `inf`
        return [ast.literal_eval(name[1:-1]) for name in names]
    return None


def is_among(run: Run, value: Value, of: Value) -> bool | None:
    """Whether a constant is an element of a container, or a key of a dictionary; None where that is not known."""
    among = elements(run, of)
    if of.of(Container) and all(is_without(ref, value) for ref in of.of(Container)):
        among = []
    if value.const is UNSET or among is None or any(one.const is UNSET for one in among):
        return None
    return any(one.const == value.const for one in among)


def open_up(run: Run, value: Value) -> None:
    """Dictionaries may get other elements, the same on all ranks: which keys they have is no longer known, nor what
    constants stand under them."""
    for ref in value.of(Container):
        if ref.type == "dict":
            for name in list(ref.looked_into()):
                known = run.read(ref, name)
                if name[0] == "[" and known is not None and known.const is not UNSET:
                    run.store.set(ref, name, replace(known.plain(), const=UNSET))
            if ref.slot("[]") is None:
                run.store.set(ref, "[]", Value())


def overwrite(run: Run, into: Container, value: Value, key: Value) -> None:
    """A write under a key that is not known: it may be any that is there."""
    if has_one_each(run, Value(refs=(into,)), key, written=True):
        return
    if not array_of(key).is_same:
        run.store.set(into, KEYS, Value(array_of(key), key.why))
    for name in [name for name in into.looked_into() if name not in ("[]", "#fill", "#known", KEYS)]:
        if name[0] == "[" and fnmatchcase(name.strip("[']"), known_of(key)):
            run.store.set(into, name, join(run.read(into, name), value.plain()))


def has_one_each(run: Run, value: Value, key: Value, *, written: bool = False) -> bool:
    """Whether a list has an element for each rank, which all of them had made alike and each changes alike, such as a
    counter; with `written`, one is changed now."""
    refs = value.of(Container) if run.checks and key.type == RANK else []
    for ref in refs:
        names = [name for name in ref.looked_into() if name[0] == "["]
        stood = run.read(ref, "[]") if names == ["[]"] else None
        if stood is None or (stood.const is UNSET and run.read(ref, _EACH) is None):
            return False
        if written:
            run.store.set(ref, _EACH, constant(True))
    return bool(refs)


def slots_of(run: Run, ref: Container, key: Any = UNSET) -> list[tuple[Container, str]]:
    """The places where the element under a key may stand; that of all other keys is among them."""
    if key is not UNSET:
        exact = run.read(ref, f"[{key!r}]") is not None or run.read(ref, "[]") is None
        return [(ref, f"[{key!r}]" if exact else "[]")]
    return [(ref, name) for name in {"[]": None, **ref.looked_into()} if name.startswith("[")]


def fill_of(ref: Container) -> str:
    """What filled it in a shared loop that it outlives: rounds, samples, or nothing."""
    value = ref.slot("#fill")
    return value.const if value is not None and isinstance(value.const, str) else ""


def empty(run: Run, ref: Container) -> None:
    """Take all elements out."""
    for name in [name for name in ref.looked_into(wholly=True) if name.startswith(("[", "#"))]:
        run.store.set(ref, name, None)


def refill(run: Run, base: Value, value: Value, node: ast.AST) -> bool:
    """Let a list have the elements of another and no others: `nets[:] = made`. Returns whether it is a known one."""
    if len(base.refs) != 1 or not base.of(Container) or not value.of(Container):
        return False
    known = elements(run, value)
    parts = [*enumerate(known)] if known is not None else [(UNSET, element(run, value, node))]
    for ref in base.of(Container):
        empty(run, ref)
        for number, part in parts:
            put(run, ref, part.plain(), number)
    return True


def elements(run: Run, value: Value) -> list[Value] | None:
    """The elements of a container of known length, None where that is not known."""
    found: list[Value] | None = None
    for ref in value.of(Container):
        size = ref.slot("#known")
        if size is None or not isinstance(size.const, int) or found is not None:
            return None
        read = [run.read(ref, f"[{number}]") for number in range(size.const)]
        found = [one for one in read if one is not None]
        if len(found) != size.const:
            return None
    return found


def count_of(run: Run, value: Value, node: ast.AST) -> Value | None:
    """How many elements a container has, where that is known, or that the main process has others than the rest."""
    if (known := elements(run, value)) is not None:
        return constant(len(known))
    sizes = [size for ref in value.of(Container) if (size := ref.slot("#known")) is not None]
    return next((run.made(node, one.place, one) for one in sizes if not one.place.is_same), None)


def element(run: Run, value: Value, node: ast.AST, key: Any = UNSET) -> Value:
    """What an element of a value may be."""
    found: Value | None = None
    for ref in value.refs:
        if isinstance(ref, Iterable):
            found = join(found, ref.item) if found is not None else ref.item
        elif is_parameters(ref):
            found = parameter_of(value)
        if not isinstance(ref, Container):
            continue
        if key is not UNSET:
            exact = run.read(ref, f"[{key!r}]")
            if exact is None and isinstance(key, int) and key < 0:
                size = ref.slot("#known")
                if size is not None and isinstance(size.const, int):
                    exact = run.read(ref, f"[{size.const + key}]")
            if exact is not None:
                found = join(found, exact) if found is not None else exact
                continue
            other = run.read(ref, "[]")
            if other is not None and other.token is not None and ref.type == "dict":
                # What a key begins with.
                other = replace(other, token=(ref, f"[{key!r}]"))
            if other is not None:
                found = join(found, other) if found is not None else other
            continue
        for name in list(ref.looked_into()):
            if name.startswith("["):
                inner = run.read(ref, name)
                if inner is not None:
                    found = inner.plain() if found is None else join(found, inner.plain())
    if found is not None:
        return found
    if value.refs and value.place.is_same:
        return Value()
    if value.place.kind is Kind.WIDE and value.place.rows and value.type != "#batch":
        return value.placed(SAMPLE)
    place = function((value.place,), rowwise=True)
    return value.placed(place if value.type == "#batch" else unsure(place))


def parts_of(value: Value) -> list[Value]:
    """The elements of a container, or the value itself where it is none."""
    containers = value.of(Container)
    inside = [ref.looked_into().items() for ref in containers]
    return (
        [part for items in inside for name, part in items if name.startswith("[")] if containers else [value]
    )


def array_of(value: Value, depth: int = 0, inside: _Inside | None = None) -> Placement:
    """What a value is as a whole: for a container that of all its elements together, `depth` containers down.

    `inside` has what lies in the containers that were looked into: one may be reached on many ways.
    """
    place = value.place
    for ref in value.refs:
        if isinstance(ref, Container) and depth < _DEEPEST:
            inside = {} if inside is None else inside
            parts = inside.get((ref, depth))
            if parts is None:
                parts = inside[ref, depth] = _inside(ref, depth, inside)
            for more in parts:
                # Side by side means and sums of one batch stay what they are.
                linearly = place.kind is Kind.ROUND and (more.kind is Kind.ROUND or more.is_same)
                linearly = linearly or (more == place and more.kind in (Kind.SAME, Kind.LINEAR))
                both = (place, more)
                place = more if place.is_same else function(both, rowwise=True, linearly=linearly)
    return place


def _inside(ref: Container, depth: int, inside: _Inside) -> list[Placement]:
    """What the elements of a container are as parts of it, each once however many are alike."""
    found = [inner for name, inner in ref.looked_into().items() if name.startswith("[")]
    places = dict.fromkeys(array_of(inner, depth + 1, inside) for inner in found)
    fill = fill_of(ref) if places else ""
    return list(dict.fromkeys(_together(place, ref, fill) for place in places))


def _together(place: Placement, ref: Container, fill: str) -> Placement:
    if place.kind is Kind.SAMPLE and OF_SAMPLE in ref.loops:
        return place
    if not fill:
        return (WIDE_ROWS if place.degree == 0 else wide(None, True)) if place.kind is Kind.SAMPLE else place
    if place.kind is Kind.ROUND:
        return SHARD if place.degree == 0 else own("put together first")
    if place.kind is Kind.SAMPLE:
        return SAME if place.degree == 0 else UNRELATED
    if place.kind is Kind.WIDE:
        return SAME if (fill == "samples" or place.rows) and place.degree == 0 else UNRELATED
    if place.is_same or place.kind is Kind.OWN:
        return place
    return UNRELATED if place.is_uniform else own("put together first")


def reduced_value(value: Value, operation: str, over_rows: bool = True) -> Placement:
    """A reduction over a value; over a container filled in a shared loop by what each round put in."""
    for ref in value.of(Container):
        fill = fill_of(ref)
        inner = ref.slot("[]")
        if not fill or inner is None:
            continue
        place = array_of(inner)
        # `torch.cat` of the rounds' rows, or its shape.
        of_rows = place.rows and value.type.startswith(("torch", "numpy", "#shape"))
        if operation == "count" and fill == "rounds" and not of_rows:
            return same(1)
        if fill == "rounds" and operation in ("sum", "mean"):
            return over_rounds(place, operation)
    if value.of(Container) and operation == "count":
        return _count(value) if array_of(value).kind in (Kind.SHARD, Kind.OWN) else SAME
    return reduced(array_of(value), operation, over_rows)


def _count(value: Value) -> Placement:
    return linear(1) if array_of(value).kind is Kind.SHARD else array_of(value)


def over_rounds(place: Placement, operation: str) -> Placement:
    """The sum or the mean over the rounds of a shared loop of what each of them gives."""
    more = int(operation == "sum")
    if place.phase:
        return UNRELATED if place.is_uniform else own("put together first")
    if place.kind in (Kind.SAME, Kind.LINEAR) and place.degree is not None:
        return (
            replace(place, degree=place.degree + more)
            if place.kind is Kind.LINEAR
            else same(place.degree + more)
        )
    if place.kind is Kind.ROUND:
        return linear(None if place.degree is None else place.degree + more)
    if place.kind is Kind.WIDE:
        if place.rows:
            return SAME if place.degree == 0 else UNRELATED
        return same(None if place.degree is None else more - place.degree)
    return place


def shown_fields(ref: Instance) -> list[Value]:
    """What the text of an object of the project shows that has no method for it: the fields of a data class."""
    node = ref.cls.node if ref.cls is not None else None
    words = [] if node is None else [ast.unparse(part) for part in [*node.decorator_list, *node.bases]]
    if not any("dataclass" in word or "NamedTuple" in word for word in words):
        return []
    return [value for name, value in ref.fields.items() if not name.startswith("#")]


def worst(values: Many[Value]) -> Value:
    """The value that is furthest from the original's."""
    found = list(values)
    return min(found, key=lambda value: _rank(array_of(value)))


def _rank(place: Placement) -> int:
    if place.kind is Kind.SAME:
        return 100 if place.degree == 0 else 7
    return _DISTANCE.index(place.kind)


def is_part_of_all(base: Value, key: Value, at: ast.expr) -> bool:
    """Whether a subscript takes several elements, or some that all ranks choose from an array that they have alike."""
    first = at.elts[0] if isinstance(at, ast.Tuple) and at.elts else at
    if isinstance(first, ast.Slice):
        return True
    array = base.type.startswith(("torch", "numpy")) and key.const is UNSET
    return array and array_of(key).is_same and array_of(base).is_same


def takes_all(keys: Sequence[ast.expr]) -> bool:
    """Whether the keys from some axis on take all of that axis."""
    first = keys[0] if keys else None
    return (
        first is None
        or (isinstance(first, ast.Constant) and first.value is ...)
        or (isinstance(first, ast.Slice) and first.lower is None and first.upper is None)
    )


def is_index(at: ast.expr) -> bool:
    """Whether a subscript takes one element, by its number."""
    return isinstance(at, ast.Constant | ast.UnaryOp) or (
        isinstance(at, ast.Tuple) and isinstance(at.elts[0], ast.Constant)
    )
