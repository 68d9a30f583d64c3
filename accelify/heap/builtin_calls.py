"""Python's own functions that make, read or go over containers, and the methods of containers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from accelify.domains.placement import function
from accelify.domains.replacing import replace
from accelify.heap.collating import SAMPLERS
from accelify.heap.containers import (
    array_of,
    container,
    count_of,
    element,
    elements,
    end_of,
    extend,
    fill_of,
    is_without,
    keyed,
    keys_in,
    open_up,
    over_rounds,
    overwrite,
    put,
    reduced_value,
    tuple_of,
)
from accelify.heap.copied_objects import copied, of_copy
from accelify.heap.counts import COUNTS, EPOCHS, is_number, meet_epochs, share_of
from accelify.heap.dividing import divides
from accelify.heap.drawn_batches import drawn
from accelify.heap.fields import OF, as_dictionary, fields, has_fields, name_of, shows_fields, write_field
from accelify.heap.gradients import gradients
from accelify.heap.moved import are_passed
from accelify.heap.parameters import SPREAD
from accelify.heap.partials import partial_of
from accelify.heap.paths import a_length, joined_path, pattern
from accelify.heap.questions import is_instance, type_of
from accelify.heap.random_draws import is_as_long
from accelify.heap.range_bounds import with_bounds
from accelify.heap.texts import text_of
from accelify.heap.values import (
    LENGTH,
    NONE,
    PART,
    PASS,
    PASSES,
    PROCESSES,
    RANK,
    TUPLE,
    UNDIVIDED,
    UNSET,
    Bound,
    Container,
    Instance,
    Iterable,
    Library,
    ModuleRef,
    Value,
    constant,
    is_zero,
)

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

# The method of a data class's field that gives each object another default.
FACTORY = "default_factory"
Args = Sequence[Value]
Keywords = Mapping[str, Value]


def _range(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    share = share_of(engine.run, node, Value(), args)
    meet_epochs(engine.run, node, args)
    return share or Value(refs=(with_bounds(engine.iteration.counted(args, node), args),))


def _enumerate(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    first = args[1] if len(args) > 1 else keywords.get("start", constant(0))
    return Value(refs=(engine.iteration.enumerated(args[0], first, node),)) if args else None


def _zip(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    return Value(refs=(engine.iteration.zipped(args, node),))


def _map(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    if len(args) < 2:
        return None
    parts = [engine.iteration.over(value, node) for value in args[1:]]
    result = engine.calls.call(args[0], [part.item for part in parts], {}, node)
    return Value(refs=(Iterable(result, any(part.shared for part in parts), parts[0].rounds),))


def _filter(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    return args[1] if len(args) > 1 else None


def _next(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    if not args:
        return None
    over = engine.iteration.over(args[0], node)
    if over.shared and not engine.run.in_shared_loop():
        engine.run.meet("draw", node, "next", [over.item])
    if engine.iteration.waits(over):
        engine.run.meet("collective", node, engine.run.segment(node))
    return drawn(engine.run, over, node)


def _len(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    if not args:
        return None
    value = args[0]
    for ref in value.of(Instance):
        if ref.kind == "loader":
            engine.iteration.ask(ref, "__len__", (*SAMPLERS, "dataset"), node)
            if engine.run.checks and not ref.prepared and len(value.refs) == 1:
                return Value(type="builtins.int" if divides(engine.run, ref) else UNDIVIDED)
        if ref.prepared and ref.kind in ("loader", "object") and ref.cls is None and not engine.run.split:
            why = engine.run.reason(node, "counts the batches of each process")
            with engine.run.quiet():  # nothing is gone through
                return Value(engine.iteration.over_loader(ref, node).rounds, why, type="builtins.int")
        given = engine.calls.special(ref, "__len__", [], node)
        if given is not None:
            # Whatever it asks for that: as many as it has items by their numbers.
            counts = given.place.is_same and not given.refs and given.type in ("", "builtins.int")
            by_number = counts and engine.attributes.method(ref, "__getitem__") is not None
            return replace(given, type=LENGTH) if by_number and given.const is UNSET else given
        over = engine.run.read(ref, "#over")
        if over is not None:
            return _len(engine, [over], {}, node)
    if (known := count_of(engine.run, value, node)) is not None:
        return known
    if value.refs and all(
        isinstance(ref, Container) and ref.slot("#known") is not None for ref in value.refs
    ):
        return Value(type=LENGTH)
    for ref in value.refs:
        if isinstance(ref, Iterable):
            return engine.run.made(node, ref.rounds, ref.item, type_="builtins.int")
    if (value.type == TUPLE and not value.refs) or is_as_long(value):
        return Value(type="builtins.int")
    place = reduced_value(value, "count")
    text = f"`{engine.run.segment(node)}` {COUNTS}"
    type_ = LENGTH if place.is_same else "builtins.int"
    return engine.run.made(node, place, value, type_=type_, text=text)


def _reduction(operation: str) -> Callable[[Interpreter, Args, Keywords, ast.AST], Value | None]:
    def call(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
        if not args:
            return None
        if len(args) == 1:
            value = args[0]
            if operation in ("all", "any") and element(engine.run, value, node).const is (operation == "all"):
                return constant(operation == "all")
            value = next((ref.item for ref in reversed(value.refs) if isinstance(ref, Iterable)), value)
            shared = any(isinstance(ref, Iterable) and ref.shared for ref in args[0].refs)
            of_rounds = shared and operation in ("sum", "mean")
            place = over_rounds(array_of(value), operation) if of_rounds else reduced_value(value, operation)
        else:
            # `max(1, count)` is the count, wherever there is anything.
            counts = [value for value in args if not (is_number(value.const) and value.const <= 1)]
            if operation == "max" and len(counts) == 1 and counts[0].type != PART:
                return counts[0].plain()
            place = function((array_of(value) for value in args), rowwise=True)
        type_ = args[0].type if len(args) > 1 and args[0].type != PART else ""
        return engine.run.made(node, place, *args, type_=type_)

    return call


def _sequence(type_: str) -> Callable[[Interpreter, Args, Keywords, ast.AST], Value | None]:
    def call(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
        made = container(engine.run, type_, node)
        for value in args[:1]:
            known = elements(engine.run, value)
            if known is None and len(value.refs) == 1 and isinstance(value.refs[0], Iterable):
                known = list(value.refs[0].elements) or None  # `list(table.keys())`
            fill = next((fill_of(ref) for ref in value.of(Container)), "")
            for ref in value.refs:
                loaded = isinstance(ref, Instance) and ref.kind == "loader" and ref.prepared
                if (isinstance(ref, Iterable) and ref.shared) or (loaded and not engine.run.split):
                    fill = "rounds"
            if known is not None:
                for number, one in keyed(engine.run, known, type_):
                    put(engine.run, made, one, number)
                engine.run.store.set(made, "#known", constant(len(known)))
            elif type_ == "dict":
                for ref in value.of(Container):
                    for name, inner in list(ref.looked_into(wholly=True).items()):
                        engine.run.store.set(made, name, inner)
                if not value.of(Container):
                    _put_pairs(engine, made, value, node)
            else:
                put(engine.run, made, engine.iteration.each(value, node))
                if fill:
                    engine.run.store.set(made, "#fill", constant(fill))
        for name, value in keywords.items():
            put(engine.run, made, value, name)
        return Value(refs=(made,), type=type_)

    return call


def _put_pairs(engine: Interpreter, into: Container, value: Value, node: ast.AST) -> None:
    """Put into a dictionary what it is made of: pairs of a key and an element, or a column of a table by its rows."""
    pair = element(engine.run, value, node)
    known = elements(engine.run, pair)
    if known is None or len(known) == 2:
        put(engine.run, into, known[1] if known is not None else pair)


def _from_keys(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    """`dict.fromkeys(names, 0)`: the same under each."""
    return _with_default(engine, args[1] if len(args) > 1 else NONE, node)


def _same_elements(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    if not args:
        return None
    are_passed(engine.run, args, node)
    value = args[0]
    key = keywords.get("key")
    if key is not None:
        engine.calls.call(key, [element(engine.run, value, node)], {}, node)
    return value.plain()


def _deep_copy(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    if args:
        of_copy(engine.run, args[0], node)
    return _same_elements(engine, args, keywords, node)


def _first_rounds(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    """`islice`: of what is shared out between ranks each goes through so many rounds."""
    if not args:
        return None
    over, stop = engine.iteration.over(args[0], node), args[2 if len(args) > 2 else -1]
    if over.shared and len(args) > 1 and stop.const is not None and not array_of(stop).degree:
        over = Iterable(over.item, True, over.rounds, (), over.samples).like(over)
        over.limited = engine.run.reason(
            node, f"`{engine.run.segment(node)}` counts the rounds of each process"
        )
    return Value(refs=(over,))


def _getattr(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    if len(args) < 2:
        return None
    default = args[2] if len(args) > 2 else None
    name = name_of(args[1])
    if name is None:
        for ref in args[0].of(ModuleRef):  # one of them all: which one is not known
            engine.modules.ready(ref)
        parts = fields(engine.run, args[0], args[1])
        found = engine.together([*parts, *([default] if default is not None else [])]) if parts else None
        return found.plain() if found is not None else default if has_fields(args[0]) else None
    there = engine.attributes.has(args[0], name) if default is not None else True
    if default is not None and there is False:
        return default
    found = engine.attributes.read(args[0], name, node)
    return found if default is None or there else engine.together([found.plain(), default.plain()])


def _setattr(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    if len(args) == 3:
        name = name_of(args[1])
        if name is not None:
            engine.attributes.write(args[0], name, args[2], node)
        else:
            write_field(engine.run, args[0], args[1], args[2], node)
    return NONE


def _vars(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    return as_dictionary(engine.run, args[0]) if args and shows_fields(args[0]) else None


def _as_before(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    if not args:
        return constant(0)
    if args[0].type in (RANK, PROCESSES):
        return replace(args[0], text="")
    made = engine.run.made(node, array_of(args[0]), args[0], type_="builtins.float")
    type_ = args[0].type if args[0].type in (LENGTH, PASS, PASSES, UNDIVIDED, EPOCHS) else "builtins.float"
    return Value(made.place, args[0].why or made.why, type=type_, const=UNSET, text=made.text)


def _text(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    return joined_path(text_of(engine, node, args), args[:1])


def _flag(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    return Value(type="builtins.bool")


def _cast(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    return args[1] if len(args) > 1 else None


def _default_dict(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    if not args:
        return _sequence("dict")(engine, [], {}, node)
    names = {ref.name for ref in args[0].of(Library)}
    if names and names <= {"builtins.int", "builtins.float"}:
        return _with_default(engine, constant(0), node)
    return _with_default(engine, engine.calls.call(args[0], [], {}, node), node)


def _with_default(engine: Interpreter, default: Value, node: ast.AST) -> Value | None:
    made = _sequence("dict")(engine, [], {}, node)
    for ref in made.of(Container) if made is not None else []:
        put(engine.run, ref, default)
    return made


def _field(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    """A field of a data class: its default, or what each object makes for itself."""
    made = keywords.get("default_factory")
    return keywords.get("default") if made is None else Value(refs=(Bound(made, FACTORY),))


def _namespace(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    """A namespace: its fields are the arguments."""
    made = engine.run.allocate(
        (node, "namespace"), lambda: Instance(None, "types.SimpleNamespace", "namespace")
    )
    for name, value in keywords.items():
        engine.run.store.set(made, name, value)
    return Value(refs=(made,)) if not args else None


def _grids(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    """`meshgrid`: each of the axes repeated along the others; None where rows come along another one than the first."""
    known = keywords.get("indexing", constant("ij")).const == "ij"
    unlike = any(one.of(Container) for one in args) or any(array_of(one).rows for one in args[1:])
    return tuple_of(engine.run, args, node) if known and not unlike else None


def _import_module(engine: Interpreter, args: Args, keywords: Keywords, node: ast.AST) -> Value | None:
    """A module by its name; one that only the run knows is not read."""
    given = [*args, *(keywords[word] for word in ("name", "package") if word in keywords)]
    names = list(map(pattern, given[:2])) or ["*"]
    name = "".join(reversed(names)) if names[0].startswith(".") else names[0]
    if "*" in name:
        text = f"`{engine.run.segment(node)}` imports by a name that only the run knows"
        engine.run.unread[text] = engine.run.reason(node, text)
        return None
    return engine.modules.imported(name, name)


BUILTINS: dict[str, Callable[[Interpreter, Args, Keywords, ast.AST], Value | None]] = {
    "builtins.range": _range,
    "typing.cast": _cast,
    "torch.autograd.grad": gradients,
    "torch.meshgrid": _grids,
    "types.SimpleNamespace": _namespace,
    "argparse.Namespace": _namespace,
    "builtins.enumerate": _enumerate,
    "builtins.zip": _zip,
    "builtins.map": _map,
    "builtins.filter": _filter,
    "builtins.next": _next,
    "builtins.len": lambda *called: None if (made := _len(*called)) is None else a_length(made),
    "builtins.sum": _reduction("sum"),
    "builtins.min": _reduction("min"),
    "builtins.max": _reduction("max"),
    "builtins.any": _reduction("any"),
    "builtins.all": _reduction("all"),
    "statistics.mean": _reduction("mean"),
    "builtins.list": _sequence("list"),
    "builtins.tuple": _sequence("tuple"),
    "builtins.set": _sequence("set"),
    "builtins.dict": _sequence("dict"),
    "builtins.dict.fromkeys": _from_keys,
    "builtins.frozenset": _sequence("set"),
    "collections.deque": _sequence("list"),
    "collections.OrderedDict": _sequence("dict"),
    "collections.defaultdict": _default_dict,
    "collections.Counter": lambda engine, args, keywords, node: _with_default(engine, constant(0), node),
    "builtins.sorted": _same_elements,
    "builtins.reversed": _same_elements,
    "builtins.iter": _same_elements,
    "itertools.islice": _first_rounds,
    "copy.copy": _same_elements,
    "copy.deepcopy": _deep_copy,
    "builtins.isinstance": is_instance,
    "builtins.hasattr": _flag,
    "builtins.callable": _flag,
    "builtins.issubclass": _flag,
    "builtins.getattr": _getattr,
    "builtins.setattr": _setattr,
    "builtins.vars": _vars,
    "builtins.type": type_of,
    **dict.fromkeys(("builtins.float", "builtins.int", "builtins.round", "builtins.abs"), _as_before),
    **dict.fromkeys(("math.ceil", "math.floor"), _as_before),
    "builtins.str": _text,
    "builtins.repr": _text,
    "builtins.format": _text,
    "functools.partial": partial_of,
    "importlib.import_module": _import_module,
    "dataclasses.field": _field,
}

_ADDING = frozenset({"append", "add", "appendleft", "insert", "put"})
_EXTENDING = frozenset({"extend", "update", "extendleft"})
_TAKING = frozenset({"pop", "popleft", "popitem", "get", "setdefault"})
_QUIET = frozenset({"remove", "discard", "sort", "reverse", "move_to_end", "clear"})
# Methods to which it does not matter what is in the container.
FILLING = _ADDING | _EXTENDING | _QUIET


def container_method(
    engine: Interpreter,
    receiver: Value,
    ref: Container,
    name: str,
    args: Args,
    keywords: Keywords,
    node: ast.AST,
) -> Value | None:
    """A call of a method of a list, tuple, set or dictionary; None for one that it does not have."""
    run = engine.run
    if name in _ADDING and args:
        put(run, ref, args[-1], end_of(run, ref) if name == "append" else UNSET, filling="rounds")
        return NONE
    if name in _EXTENDING:
        for value in args[:1]:
            if ref.type == "dict":
                _update(engine, ref, value, node)
            else:
                extend(run, ref, value, node)
        for key, value in keywords.items():
            put(run, ref, value, UNSET if key == SPREAD else key)
        return NONE
    if name in _TAKING:
        default = args[1] if len(args) > 1 else None
        if name in ("get", "pop") and args and is_without(ref, args[0]):
            slot = ref, f"[{args[0].const!r}]"
            begins = default is not None and is_zero(default) and not run.store.touched_in_round(*slot)
            return replace(default, token=slot) if default is not None and begins else default or NONE
        found = element(run, receiver, node, args[0].const if args and ref.type == "dict" else UNSET)
        if name == "setdefault" and default is not None:
            for inner in default.of(Container):
                # It lasts as long as the dictionary.
                run.depends()
                run.place(inner, ref.loops)
            put(run, ref, default, args[0].const)
        if default is None or (found.token is not None and is_zero(default)):
            return found  # a total begins with nothing
        return engine.together([found, default])
    if name in _QUIET:
        if name == "clear":
            engine.calls.emptied(Value(refs=(ref,)))
        return NONE
    if name in ("keys", "count", "index"):
        over = Iterable(
            Value(type="builtins.str"), shared=False, elements=tuple(map(constant, keys_in(ref) or ()))
        )
        return Value(refs=(over,)) if name == "keys" else Value()
    if name in ("values", "items"):
        keys = keys_in(ref) or [] if len(receiver.refs) == 1 else []
        known = [(constant(key), element(run, receiver, node, key)) for key in keys]
        of_all = (Value(type="builtins.str"), element(run, receiver, node))
        if run.checks and not known and len(of_all[1].refs) > 1 and not fill_of(ref):
            # Objects that were made in several places: each has its turn, and what it holds is its alone.
            known = [(of_all[0], Value(refs=(one,))) for one in of_all[1].of(Instance) if one.cls is not None]
            known = known if len(known) == len(of_all[1].refs) else []
        items = [tuple_of(run, one) if name == "items" else one[1] for one in (of_all, *known)]
        return Value(refs=(Iterable(items[0], bool(fill_of(ref)), elements=tuple(items[1:])),))
    if name == "copy":
        return copied(run, ref, receiver)
    if name in ("mean", "sum", "max", "min"):
        place = reduced_value(receiver, name)
        return run.made(node, place, receiver)
    return None


def _update(engine: Interpreter, ref: Container, value: Value, node: ast.AST) -> None:
    of = ref.slot(OF)
    for other in value.of(Container):
        for name, inner in list(other.looked_into().items()):
            if of is not None and name.startswith("["):
                write_field(engine.run, of, Value() if name == "[]" else constant(name[2:-2]), inner)
            elif name.startswith("["):
                engine.run.store.set(ref, name, inner)
    if not value.of(Container):
        inner = element(engine.run, value, node)
        if of is None and inner.place.is_same:
            open_up(engine.run, Value(refs=(ref,)))
        else:
            overwrite(engine.run, ref, inner, inner)
            put(engine.run, ref, inner)
