"""Attributes by a name that only the run knows: `getattr`, `setattr`, `vars(x)` and `x.__dict__`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from accelify.heap.joining import join
from accelify.heap.paths import known_of, named, named_in, with_text
from accelify.heap.run import Run
from accelify.heap.values import Class, Container, Instance, Library, ModuleRef, Ref, Value
from accelify.knowledge import Row

# What attributes may be that were written by a name that is not known; the object that a dictionary shows.
OTHERS = "#others"
OF = "#of"


def name_of(name: Value) -> str | None:
    """The name that a value is known to be, None where it may be one of several."""
    text = known_of(name)
    # No name of a field begins so but those of the engine and of items: what has such a name is one of the others.
    return None if "*" in text or text[:1] in ("", "#", "[") else text


def _owners(value: Value) -> Iterator[Ref]:
    for ref in value.of(Instance) + value.of(Class) + value.of(ModuleRef):
        inner = ref.wrapped.of(Instance) if isinstance(ref, Instance) and ref.wrapped is not None else []
        yield inner[0] if inner else ref


def has_fields(value: Value) -> bool:
    """Whether something is known of the attributes of an object."""
    return any(
        (isinstance(ref, Instance) and ref.cls is not None) or any(name[0] != "#" for name in ref.fields)
        for ref in _owners(value)
    )


def shows_fields(value: Value) -> bool:
    """Whether the attributes of an object are to be had as a dictionary: some are known, or it may have any."""
    return has_fields(value) or any(map(is_unknown, value.refs))


def is_unknown(ref: Ref) -> bool:
    """Whether it is an object of which nothing is known: it may be a table."""
    return isinstance(ref, Instance) and ref.kind == "object" and ref.cls is None and not ref.prepared


def has_others(ref: Container) -> bool:
    """Whether a dictionary may have keys that are not known: it shows the attributes of an object that is not."""
    of = ref.slot(OF)
    return ref.slot("[]") is not None or (of is not None and any(map(is_unknown, of.refs)))


def whole_of(value: Value) -> str:
    """A name for an object of which nothing is known, such as a configuration: that of what made it."""
    ref = value.refs[0] if len(value.refs) == 1 else None
    return (
        ref.name if isinstance(ref, Library) else getattr(ref, "type", "") if ref and is_unknown(ref) else ""
    )


def answered(row: Row, args: Sequence[Value], value: Value) -> Value:
    """What a call gives, with a name where it is not known and yet the same each time: what a file or the command line
    has, all of it or under a key."""
    if row.transfer in ("same", "read"):
        return named(value, ".".join([row.name, *map(known_of, args)]))
    if row.name in ("?.get", "builtins.dict.get") and len(args) > 1:
        return named_in(args[0], value, args[1].const, whole_of(args[0]))
    return value


def fields(run: Run, value: Value, name: Value) -> list[Value]:
    """What an attribute may be whose name is only partly known."""
    found = []
    for ref in _owners(value):
        run.store.look(ref)
        for field in [*_matching(ref, name), OTHERS]:
            one = run.read(ref, field)
            if one is not None and not (isinstance(ref, ModuleRef) and _is_module(run, one)):
                found.append(one.plain())
    return found


def _is_module(run: Run, value: Value) -> bool:
    """Whether a name of a module stands for another module: nobody asks for that by a name of the options."""
    return bool(value.refs) and all(
        isinstance(ref, ModuleRef) or (isinstance(ref, Library) and run.knowledge.row(ref.name) is None)
        for ref in value.refs
    )


def _matching(ref: Ref, name: Value) -> list[str]:
    return [field for field in ref.fields if field[0] != "#" and fnmatchcase(field, known_of(name))]


def write_field(run: Run, value: Value, name: Value, written: Value, node: ast.AST | None = None) -> None:
    """Write the attribute of an object that a name may mean: `node` is the call that does, where there is one."""
    written = written.plain()
    known = name_of(name)
    for ref in _owners(value):
        if known is not None:
            run.store.set(ref, known, written)
            continue
        run.store.look(ref)
        of_class = _of_class(ref, name)
        there = [] if node is not None and _is_new(run, node) else [*of_class, *_matching(ref, name)]
        for field in dict.fromkeys([*there, OTHERS]):
            default = of_class.get(field)
            found = join(run.read(ref, field) or default, written)
            if found is not None and default is not None and isinstance(default.const, str):
                # As the name of a class or a file it is still what it is at first.
                found = with_text(found, default.const)
            run.store.set(ref, field, found)


def merged(run: Run, value: Value) -> None:
    """A method of a library's object takes something in, such as a file of settings: what its attributes are is no
    longer known.

    Args:
        run: the run.
        value: the object.
    """
    objects = tuple(
        ref for ref in value.refs if is_unknown(ref) and any(name[0] != "#" for name in ref.fields)
    )
    if objects:
        write_field(run, Value(refs=objects), Value(), Value())


def _of_class(ref: Ref, name: Value) -> dict[str, Value]:
    """What an object has from its class under the names that a name may mean, but for methods."""
    line = ref.cls.line_up() if isinstance(ref, Instance) and ref.cls is not None else []
    found = {field: one.fields[field] for one in reversed(line) for field in _matching(one, name)}
    return {field: value for field, value in found.items() if not any(one.fixed for one in value.refs)}


def _is_new(run: Run, call: ast.AST) -> bool:
    """Whether a `setattr(x, name, value)` stands where there is no such attribute: `if name not in vars(x)`."""
    named = ast.dump(call.args[1]) if isinstance(call, ast.Call) and len(call.args) == 3 else ""
    return any(
        isinstance(one, ast.If)
        and isinstance(one.test, ast.Compare)
        and isinstance(one.test.ops[0], ast.NotIn)
        and ast.dump(one.test.left) == named
        and any(call in ast.walk(part) for part in one.body)
        for one in (ast.walk(run.module.tree) if run.module.tree is not None else ())
    )


def as_dictionary(run: Run, value: Value) -> Value:
    """The attributes of an object as a dictionary, writes to which are writes to the object."""
    made = run.passing("dict", run.shared_loops())
    for ref in _owners(value):
        run.store.look(ref)
        for field in [*_matching(ref, Value()), OTHERS]:
            one = run.read(ref, field)
            if one is not None:
                run.store.set(made, "[]" if field == OTHERS else f"[{field!r}]", one.plain())
    run.store.set(made, OF, Value(refs=value.refs))
    return Value(refs=(made,), type="dict")
