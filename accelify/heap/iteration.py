"""What a loop goes over."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from accelify.domains.meeting_rows import mixing
from accelify.domains.placement import (
    AFTER,
    BEFORE,
    NUMBERED,
    ROUND_ROWS,
    SAME,
    SAMPLE,
    SHARD,
    UNRELATED,
    WIDE_ROWS,
    Kind,
    Placement,
    own,
    reduced,
    same,
    unsure,
)
from accelify.domains.reasons import Reason
from accelify.domains.replacing import replace
from accelify.heap.collating import SAMPLERS
from accelify.heap.containers import array_of, element, elements, fill_of, keys_in, tuple_of
from accelify.heap.dividing import by_rank, drawn_at, goes_through, shared_out
from accelify.heap.joining import join
from accelify.heap.locations import AT, at
from accelify.heap.model_parameters import is_parameters, parameter_of
from accelify.heap.random_draws import SEEDED
from accelify.heap.run import why_of
from accelify.heap.samples import axes_of_parts
from accelify.heap.shapes import with_axes
from accelify.heap.state import is_part
from accelify.heap.values import (
    BATCH,
    COUNTER,
    DEVICE,
    HOST,
    OF_BATCH,
    OF_SOME,
    OTHER_ROUNDS,
    TUPLE,
    Class,
    Container,
    Function,
    Instance,
    Iterable,
    Ref,
    Value,
    constant,
)

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

# What is of some of the batches, and of others on each rank.
_OF_SHARES = frozenset({Kind.ROUND, Kind.LINEAR, Kind.EXTREME, Kind.PARTS, Kind.SHARD, Kind.OWN})
_GONE_THROUGH_BY_NONE = frozenset({"module", "optimizer", "scheduler"})
# Of how many known elements each is one by itself.
_MOST_PAIRS = 6


class Iteration:
    """Finds what the elements of a value are, and whether the rounds over it are shared out."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.run = engine.run
        # For methods that give items by no index: what they draw.
        self._drawn: dict[ast.AST, list[bool]] = {}
        # What each gave first: afterwards its draws go with the rounds of a loop.
        self._first: dict[ast.AST, Value] = {}
        # The reasons for batches that are lists with as many elements on all ranks.
        self._lists: dict[int, Reason] = {}
        # Of batches how many axes their parts have, by the number of the reason for them.
        self._axes: dict[int, tuple[Reason, dict[object, int], dict[object, Reason]]] = {}
        # Objects whose elements are being asked for: `loader = tqdm(loader)` in a loop is around itself.
        self._within: list[Instance] = []

    def over(self, value: Value, node: ast.AST) -> Iterable:
        """A value as what a loop goes over."""
        loaders = [ref for ref in value.of(Instance) if ref.kind == "loader"]
        # Of all that `prepare(*objects)` gives a loop goes over no model.
        over = [
            ref for ref in value.refs if not loaders or getattr(ref, "kind", "") not in _GONE_THROUGH_BY_NONE
        ]
        parts = [part for ref in over if (part := self._over_ref(ref, value, node)) is not None]
        if parts:
            return parts[0] if len(parts) == 1 else self._one_of(parts, value, node)
        if is_part(value):
            return Iterable(Value(refs=value.refs, type=value.type), shared=False)
        place = value.place
        if (
            place.rows
            and place.kind in (Kind.WIDE, Kind.SHARD, Kind.ROUND)
            and value.type not in (BATCH, TUPLE)
        ):
            return self._by_samples(place, value, node)
        # What was drawn with other seeds are as many numbers.
        alike = place.kind is Kind.SAME or place.needs == SEEDED
        rounds = SAME if alike or value.type in (BATCH, TUPLE) else place
        found = Iterable(element(self.run, value, node), shared=False, rounds=rounds)
        if value.type == BATCH and not place.is_uniform and id(value.why) not in self._lists:
            text = f"`{self.run.segment(node)}` may have more elements on one rank than on another"
            found.uneven = self.run.reason(node, text, value)
        return found

    def each(self, value: Value, node: ast.AST) -> Value:
        """What a list of something holds: of an object of the script, what going through it gives."""
        goes = self.run.checks and any(ref.cls is not None for ref in value.of(Instance))
        return self.over(value, node).item if goes else element(self.run, value, node)

    def _over_ref(self, ref: Ref, value: Value, node: ast.AST) -> Iterable | None:
        """One of the objects that a value may be; None for what no loop goes over."""
        if isinstance(ref, Iterable):
            return ref
        if isinstance(ref, Instance):
            if ref in self._within:
                return None
            self._within.append(ref)
            try:
                return self._over_instance(ref, value, node)
            finally:
                self._within.pop()
        if isinstance(ref, Container):
            one = replace(value, refs=(ref,)) if len(value.refs) > 1 else value
            if one is value or any(name[0] == "[" for name in ref.looked_into()):
                return self._over_container(ref, one, node)
            return None
        return Iterable(Value(), shared=False) if isinstance(ref, Class) else None

    def _one_of(self, parts: Sequence[Iterable], value: Value, node: ast.AST) -> Iterable:
        """Several of which the script takes one: rounds that are shared out where those of any are."""
        alike = [part for part in parts if part.shared] or [part for part in parts if part.whole] or parts
        items = [part.item for part in alike]
        found = Iterable(reduce(lambda left, right: join(left, right) or left, items), alike[0].shared)
        found.rounds = next((part.rounds for part in alike if not part.rounds.is_same), SAME)
        found.samples = next((part.samples for part in alike if not part.samples.is_same), SAME)
        for part in parts:
            found.like(part)
        if value.type == OTHER_ROUNDS:
            found.rounds, found.uneven = value.place, value.why
        if len(alike) < len(parts) and found.whole is None and found.uneven is None:
            name = self.run.segment(node)
            text = f"on one way `{name}` is no prepared loader, and every process goes through all of it"
            found.whole = self.run.reason(node, text)
        return found

    def _by_samples(self, place: Placement, value: Value, node: ast.AST) -> Iterable:
        """Rows, one by one."""
        why = value.why or self.run.reason(node, f"the rows of `{self.run.segment(node)}`")
        of_pairs = place.kind is Kind.ROUND and place.sure and self.run.by_rows()
        one = mixing(unsure(place)) if of_pairs else unsure(place)
        item = Value(SAMPLE if place.kind is Kind.WIDE else one, why, type=value.type)
        return Iterable(item, shared=False, rounds=reduced(place, "count"), samples=place)

    def _over_container(self, ref: Container, value: Value, node: ast.AST) -> Iterable:
        fill = fill_of(ref)
        item = element(self.run, value, node)
        if fill == "samples" and array_of(value).is_same:
            return Iterable(item.placed(SAME), shared=False)  # every rank goes through those of all
        if fill:
            return Iterable(item, shared=True, rounds=same(1) if fill == "rounds" else array_of(value))
        known = elements(self.run, value)
        if ref.type == "dict":
            return Iterable(
                Value(type="builtins.str"), False, elements=tuple(map(constant, keys_in(ref) or ()))
            )
        rounds = value.place if value.place.kind is Kind.MAIN else SAME
        return Iterable(
            item, shared=False, rounds=rounds, elements=tuple(known or ()) if rounds is SAME else ()
        )

    def _over_instance(self, ref: Instance, value: Value, node: ast.AST) -> Iterable:
        if ref.kind == "loader" or (ref.prepared and ref.kind == "object" and ref.cls is None):
            if not ref.prepared or self.run.at_model:
                self.ask(ref, "__iter__", SAMPLERS, node)  # of a prepared one rank 0 alone goes through it
            if not ref.prepared:
                self.ask(ref, "__getitem__", ("dataset",), node, Value(type="builtins.int"))
            found = self.over_loader(ref, node)
            found.loaders = (ref,)
            self._meet_together(ref, node)
            return found
        for method in ("__iter__", "__getitem__"):
            function = self.engine.attributes.method(ref, method)
            if function is not None:
                args = [Value(refs=(ref,)), *([Value()] if method == "__getitem__" else [])]
                given = self.engine.calls.call_function(function, args, {}, node)
                if method == "__getitem__":
                    return Iterable(given, shared=False)
                if given.refs and ref not in given.refs:
                    return self.over(given, node)
                step = self.engine.attributes.method(ref, "__next__")
                if step is not None:
                    return Iterable(self.engine.calls.call_function(step, args, {}, node), shared=False)
        if is_parameters(ref):
            return Iterable(parameter_of(value), shared=False)
        wrapped = self.run.read(ref, "#over")
        if wrapped is not None:
            return self.over(wrapped, node)
        return Iterable(Value(value.place, value.why), shared=False)

    def over_loader(self, ref: Instance, node: ast.AST) -> Iterable:
        """A loader: what one batch is to a rank."""
        host = HOST if at(self.run, ref) == HOST and not self.run.on_cpu else ""
        if not ref.prepared and (apart := self._divided_by_hand(ref)) is not None:
            made = self.run.read(ref, AT)
            differs = why_of(apart)
            above = replace(made.why, parents=(differs,)) if made and made.why and differs else differs
            why = self.run.reason(node, f"{OF_BATCH} `{self.run.segment(node)}`", above)
            return Iterable(Value(ROUND_ROWS, why, type=BATCH, where=host), shared=True, rounds=same(1))
        if not ref.prepared:
            found = Iterable(Value(type=BATCH, where=host), shared=False)
            alone = self.run.checks and not self.run.accelerated
            whole = "which is not divided between them" if alone else "which is not prepared"
            text = f"every process goes through all of `{self.run.segment(node)}`, {whole}"
            found.whole = self.run.reason(node, text)
            return found
        where = "" if self.run.on_cpu else DEVICE
        self._meet_shares(ref, node)
        data = self._differing(ref)
        if data is not None:
            why = self.run.reason(
                node, f"the ranks share out `{self.run.segment(node)}`, whose data differ between them", data
            )
            return Iterable(
                Value(data.place, why, type=BATCH, where=where),
                shared=not self.run.split,
                rounds=same(int(not self.run.split)),
            )
        wrapped = ref.wrapped.refs if ref.wrapped is not None else ()
        padded = any(self.run.read(one, "#padded") is not None for one in wrapped)
        if self.run.split:
            why = self.run.reason(node, f"this rank's share of each batch of `{self.run.segment(node)}`")
            found = Iterable(Value(replace(SHARD, padded=padded), why, type=BATCH, where=where), shared=False)
            found.even = any(self._drops(one) for one in wrapped)
            return found
        why = self.run.reason(node, f"{OF_BATCH} `{self.run.segment(node)}`")
        if (copies := next((one for one in map(self._copies, wrapped) if one is not None), None)) is not None:
            found = Iterable(Value(type=BATCH, where=where), shared=True, rounds=same(1))
            found.whole = copies
            return found
        first = any(self.run.read(one, "#rows first") is not None for one in wrapped)
        if any(self.run.read(one, "#lists") is not None for one in wrapped):
            self._lists[id(why)] = why
        batch = Value(replace(ROUND_ROWS, sure=2 * first, padded=padded), why, type=BATCH, where=where)
        batch = self.part(batch, None) if self._note_axes(wrapped, why) else batch
        found = Iterable(batch, shared=True, rounds=same(1))
        shuffles = [value for one in wrapped if (value := self.run.read(one, "#shuffles")) is not None]
        found.apart = any(value.const is True for value in shuffles)
        found.even = first
        if any(self._drops(one) for one in wrapped):
            taken = "drop_last=True takes up to N-1 whole batches more"
            text = f"{taken} from the end of `{self.run.segment(node)}`, and all where there are fewer than N"
            found.fewer = self.run.reason(node, text)
        return found

    def _note_axes(self, loaders: Sequence[Ref], why: Reason) -> bool:
        """Note how many axes the parts of a batch have, where the data set says it."""
        samples = self.run.read(loaders[0], "#samples") if len(loaders) == 1 else None
        data = samples.of(Instance) if samples is not None else []
        given = self.engine.attributes.method(data[0], "__getitem__") if len(data) == 1 else None
        if given is not None and (axes := axes_of_parts(given)):
            self._axes[id(why)] = why, axes, {}
        return id(why) in self._axes

    def part(self, batch: Value, key: object) -> Value:
        """A part of a batch by its number or key, None for all of it, with how many axes it has."""
        noted = self._axes.get(id(batch.why)) if batch.type == BATCH else None
        if noted is None:
            return batch
        why, axes, parts = noted
        # A part of it is no batch whose parts are known.
        part = replace(batch, why=parts.setdefault(key, replace(why))) if key is not None else batch
        return with_axes(part, axes.get(key, -1) + 1)

    def ask(self, ref: Instance, method: str, names: Sequence[str], node: ast.AST, *args: Value) -> None:
        """Go through the method of a loader's sampler or data set that Python calls for one of the loader's own.

        Args:
            ref: the loader.
            method: `__iter__`, `__len__` or `__getitem__`.
            names: the loader's arguments of which the first that it has is asked.
            node: where the loader is gone through, or its length asked.
            args: what the method gets.
        """
        for loader in ref.wrapped.refs if ref.wrapped is not None else (ref,):
            asked = next((one for name in names if (one := self.run.read(loader, f"#{name}"))), None)
            for one in asked.of(Instance) if asked is not None else ():
                self.engine.calls.special(one, method, list(args), node)

    def _divided_by_hand(self, ref: Instance) -> Value | None:
        """What of a loader is another on each rank, of a script that is written for several."""
        if not self.run.checks:
            return None
        for name in (*SAMPLERS, "dataset"):
            part = self.run.read(ref, f"#{name}")
            if part is not None and not array_of(part).is_uniform:
                return part
            for one in part.of(Instance) if part is not None else ():
                if (given := shared_out(one)) is not None:
                    return given
                go = self.engine.attributes.method(one, "__iter__")
                if go is not None and (found := by_rank(self.run, one) or self._drawn_apart(one, go)):
                    return found
                if go is None and (found := by_rank(self.run, one, rows=True)) is not None:
                    return found
                if go is None and (get := self._of_no_index(one)) is not None:
                    if get.node not in self._first:
                        item = self._item(one, get)
                        self._first[get.node] = Value(array_of(item), why_of(item))
                    if self._first[get.node].place.needs == SEEDED:
                        return self._first[get.node]
        return None

    def _drawn_apart(self, ref: Instance, go: Function) -> Value | None:
        """What an object's items are made of that each process draws for itself; None where it goes through all of its
        data, and changes them at random."""
        with self.run.quiet():
            made = self.engine.calls.call_function(go, [Value(refs=(ref,))], {}, go.node)
        of_rows = self.engine.calls.libraries.transfers.random.of_rows
        items: list[Value] = [one.item for one in made.of(Iterable)]
        for item in items:
            drawn = drawn_at(item, why_of(item))
            if drawn is not None and not (drawn in of_rows and goes_through(go, *drawn)):
                return item
        return None

    def _drops(self, ref: Ref) -> bool:
        drops = self.run.read(ref, "#drops")
        return drops is not None and drops.const is True

    def _copies(self, loader: Ref) -> Reason | None:
        """Why the items of a loader's data are the same on every process: a generator that each has a copy of draws
        them, and no index. What the streams draw while a batch is read is another one on each."""
        data = self.run.read(loader, "#dataset")
        random = self.engine.calls.libraries.transfers.random
        for one in data.of(Instance) if data is not None else []:
            if (get := self._of_no_index(one)) is None:
                continue
            if get.node not in self._drawn:
                before = len(random.drawn)
                self._item(one, get)
                self._drawn[get.node] = random.drawn[before:]
            if self._drawn[get.node] and all(self._drawn[get.node]):
                text = f"`{get.name}` draws its items by no index, from a generator that each process has a copy of"
                return self.run.reason(get.node, text)
        return None

    def _of_no_index(self, data: Instance) -> Function | None:
        """What gives the items of a data set, where it asks for none by its number; None for another one."""
        get = self.engine.attributes.method(data, "__getitem__")
        names = [arg.arg for arg in get.node.args.args[1:2]] if get is not None else []
        by_number = get is None or not names or any(n.id in names for n in _names(get.node))
        return None if by_number else get

    def _item(self, data: Instance, get: Function) -> Value:
        """What a data set gives for a number."""
        args = [Value(refs=(data,)), Value(type="builtins.int")]
        with self.run.quiet():
            return self.engine.calls.call_function(get, args, {}, get.node)

    def _differing(self, ref: Instance) -> Value | None:
        """A prepared loader's data where they are others on each rank."""
        data = (
            self.run.read(ref.wrapped.refs[0], "#data")
            if ref.wrapped is not None and ref.wrapped.refs
            else None
        )
        if data is None or array_of(data).kind is Kind.OWN:
            return data and Value(array_of(data), why_of(data))
        for one in data.of(Instance):
            get = self.engine.attributes.method(one, "__getitem__")
            if get is not None:
                item = self._item(one, get)
                if array_of(item).kind is Kind.OWN and not self._is_changed_at_random(item):
                    return item.placed(array_of(item))
        return None

    def waits(self, over: Iterable) -> bool:
        """Whether some ranks alone go on with a loader, and wait for the others: not by a sampler or a share."""
        divided = any(not one.prepared for one in over.loaders)
        alone = self.run.checks and (divided or not self.run.accelerated)
        return over.shared and not alone and any(one.kind in ("main", "others") for one in self.run.guards)

    def _meet_together(self, ref: Instance, node: ast.AST) -> None:
        """Note that all ranks agree on their random numbers as they begin to go through a prepared loader that
        shuffles: on some of them alone it waits for the others."""
        self.run.depends()
        if self.run.at_model and ref.prepared and any(one.kind in OF_SOME for one in self.run.guards):
            for loader in ref.wrapped.refs if ref.wrapped is not None else ():
                shuffles = self.run.read(loader, "#shuffles")
                if shuffles is not None and shuffles.const is True:
                    self.run.meet("collective", node, f"iter({self.run.segment(node)})")

    def _meet_shares(self, ref: Instance, node: ast.AST) -> None:
        """Note that a prepared loader's data or the weights of its sampler are of each process's batches."""
        for loader in ref.wrapped.of(Instance) if ref.wrapped is not None else ():
            for name in ("dataset", *SAMPLERS):
                part = self.run.read(loader, f"#{name}")
                if part is not None and array_of(part).kind in _OF_SHARES:
                    self.run.meet("state.write", node, self.run.segment(node), [part], detail="shared out")
                    return

    def _is_changed_at_random(self, item: Value) -> bool:
        """Whether it is as it is read that a row is changed at random, of a script that is written for several."""
        why = why_of(item) if self.run.checks else None
        of_rows = self.engine.calls.libraries.transfers.random.of_rows
        return why is not None and any((step.path, step.line) in of_rows for step in why.steps())

    def enumerated(self, value: Value, first: Value, node: ast.AST) -> Iterable:
        """`enumerate`: the counter of a loop whose rounds are shared out counts those of one rank."""
        inner = self.over(value, node)
        counter = Value(type="builtins.int")
        if inner.shared:
            counter = self._counter(first, self.run.reason(node, "counts the rounds of each process"))
        if inner.samples.kind is Kind.WIDE:
            counter = Value(NUMBERED, inner.item.why, type="builtins.int")
        few = isinstance(first.const, int) and len(inner.elements) <= _MOST_PAIRS
        known = enumerate(inner.elements, first.const) if few else ()
        each = tuple(tuple_of(self.run, [constant(number), one]) for number, one in known)
        item = tuple_of(self.run, [counter, inner.item])
        found = Iterable(item, inner.shared, inner.rounds, each, inner.samples)
        found.loaders = inner.loaders
        return found.like(inner)

    def _counter(self, first: Value, why: Reason) -> Value:
        """A number of rounds, before the one that is gone through now where it begins with 0."""
        if first.const not in (0, 1):
            return Value(UNRELATED, why, type="builtins.int")
        if first.const == 0:
            return Value(replace(same(1), phase=BEFORE), why, type=COUNTER)
        return Value(replace(same(1), phase=AFTER), why, type="builtins.int")

    def zipped(self, values: Sequence[Value], node: ast.AST) -> Iterable:
        """`zip`: shared out where one of them is."""
        parts = [self.over(value, node) for value in values]
        shared = next((part for part in parts if part.shared), None)
        samples = next((part for part in parts if not part.samples.is_same), None)
        rounds = shared.rounds if shared else samples.rounds if samples else SAME
        rows = samples.samples if samples else SAME
        items = [
            part.item.placed(SAMPLE) if rows.kind is Kind.WIDE and part.item.place == WIDE_ROWS else part.item
            for part in parts
        ]
        few = all(len(part.elements) <= _MOST_PAIRS for part in parts)
        known = zip(*(part.elements for part in parts), strict=False) if few else ()
        each = tuple(tuple_of(self.run, one) for one in known)
        found = Iterable(tuple_of(self.run, items), shared is not None, rounds, each, rows)
        if all(part.loaders for part in parts):
            found.loaders = sum((part.loaders for part in parts), ())
        for part in parts:
            if part.whole or part.uneven or part.fewer or part.limited:
                return found.like(part)
        return found

    def counted(self, args: Sequence[Value], node: ast.AST) -> Iterable:
        """`range`: as many rounds as its bound says."""
        bounds = [array_of(value) for value in args]
        bound = next((place for place in bounds if not place.is_same), SAME)
        value = next((value for value in args if not array_of(value).is_same), Value())
        if bound.kind is Kind.SAME and bound.degree == 1:
            why = self.run.reason(node, "counts the rounds of each process", value)
            first = args[0] if len(args) > 1 else constant(0)
            return Iterable(self._counter(first, why), shared=True, rounds=bound)
        if bound.kind in (Kind.WIDE, Kind.ROUND) or (bound.kind is Kind.LINEAR and bound.degree == 1):
            # A count of samples: the loop goes over rows by their number.
            kind = Kind.SHARD if bound.kind is Kind.LINEAR else bound.kind
            if kind is Kind.ROUND and self.run.by_rows() and any(one.even for one in bounds):
                bound = replace(bound, mixed=True)  # each row is gone through beside all others
            item = Value(NUMBERED if kind is Kind.WIDE else bound, value.why, type="builtins.int")
            return Iterable(item, shared=False, rounds=bound, samples=Placement(kind, rows=True))
        if (places := _places_of(args, node)) is not None:
            return Iterable(Value(type="builtins.int"), shared=False, elements=tuple(map(constant, places)))
        item = Value(bound if bound.kind is Kind.SAME else SAME, value.why, type="builtins.int")
        # A number that the main process has is another one elsewhere, where it may go through some rounds as well.
        return Iterable(item, shared=False, rounds=own() if bound.kind is Kind.MAIN else bound)


def _places_of(args: Sequence[Value], node: ast.AST) -> range | None:
    """The places of the elements of something known, `range(len(metrics))`; None where it is no length that bounds a
    loop, or there are many."""
    lengths = [one for one in getattr(node, "args", ()) if isinstance(one, ast.Call)]
    numbers = [value.const for value in args if isinstance(value.const, int)]
    by_length = any(getattr(one.func, "id", "") == "len" for one in lengths)
    if not by_length or len(numbers) != len(args) or 0 in numbers[2:]:
        return None
    places = range(*numbers)
    return places if len(places) <= _MOST_PAIRS else None


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Name))
