"""What the texts of values show."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from string import Formatter
from typing import TYPE_CHECKING

from accelify.domains.placement import CLOCK, FIGURE, Kind, own
from accelify.domains.replacing import replace
from accelify.heap.containers import array_of, shown_fields, worst
from accelify.heap.paths import pattern, with_text
from accelify.heap.values import OWN_DEVICE, UNSET, Instance, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

# What `%` puts a value in place of.
_FIELD = re.compile(r"%(?:\(\w+\))?[-#0 +]*[\d*]*(?:\.[\d*]+)?[a-zA-Z]")
# What stands in the place of a value in a text: which one, and attributes of it.
_PLACE = re.compile(r"(\w*)((?:\.\w+)*)")


def text_of(engine: Interpreter, node: ast.AST, parts: Sequence[Value]) -> Value:
    """A text that shows values: what the furthest of them from the original's is."""
    run, parts = engine.run, engine.expressions.shown(parts, node)
    if not parts:
        return Value(type="builtins.str")
    furthest = worst(parts)
    place = array_of(furthest)
    if place == CLOCK:
        # Beside a time stands a figure: it is what counts where the text is shown.
        furthest = worst([one for one in parts if array_of(one) != CLOCK] or parts)
        beside = array_of(furthest)
        if beside.kind is Kind.SAME and not beside.phase:
            place = replace(CLOCK, degree=beside.degree)
        else:
            furthest, place = worst(parts), replace(CLOCK, form=FIGURE if beside != CLOCK else "")
    apart = [one for one in parts if not array_of(one).is_uniform]
    if place.kind is Kind.OWN and apart[1:]:
        # What would help one part is no remedy for the others.
        place = own() if any(array_of(one) != place for one in apart) else place
    elif place.is_same or furthest.why is not None:
        why = furthest.why
        others = [(array_of(one), one.why) for one in apart if one.why is not why]
        if why is not None and others:
            why = replace(why, beside=tuple(others))
        return Value(place, why, type="builtins.str")
    else:
        apart = [furthest]
    return Value(place, run.reason(node, f"`{run.segment(node)}`", *apart), type="builtins.str")


def filled(
    engine: Interpreter, text: Value, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> list[Value] | None:
    """What `"{top.average} of {}".format(count, top=meter)` shows, None where the text is not known."""
    if not isinstance(text.const, str):
        return None
    places = [place for _, place, _, _ in _fields(text.const) if place is not None]
    values: dict[str, Value] = {**{str(number): value for number, value in enumerate(args)}, **keywords}
    found: list[Value] = []
    next_one = count()
    for place in places:
        match = _PLACE.fullmatch(place)
        value = values.get(match[1] or str(next(next_one))) if match is not None else None
        if match is None or value is None:
            return None
        for name in match[2].split(".")[1:]:
            value = engine.attributes.read(value, name, node)
        found.append(value)
    return found or None


def formatted(
    engine: Interpreter, text: Value, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> Value:
    """What `text.format(...)` makes."""
    parts = filled(engine, text, args, keywords, node)
    if parts is None:
        return text_of(engine, node, [text, *args, *keywords.values()])
    shown = iter(parts)
    written: list[str] = []
    for before, place, form, turned in _fields(text.const):
        written.append(before)
        if place is not None:
            one = next(shown)
            written.append("*" if form or turned else pattern(one))
    return with_text(text_of(engine, node, parts), written)


def _fields(text: str) -> list[tuple[str, str | None, str | None, str | None]]:
    """The parts of a text for `format`, none of one that is none."""
    with suppress(ValueError):
        return list(Formatter().parse(text))
    return []


def percent(text: Value, parts: Sequence[Value]) -> Iterator[str]:
    """The parts of what `text % parts` makes, as far as they are known."""
    found = pattern(text)
    fields = list(_FIELD.finditer(found))
    known = iter(parts if len(parts) == len(fields) else ())
    at = 0
    for one in fields:
        yield found[at : one.start()]
        part = next(known, Value())
        yield pattern(part) if one[0] in ("%s", "%d") or part.const is UNSET else "*"
        at = one.end()
    yield found[at:]


def texts_of(engine: Interpreter, value: Value, node: ast.AST) -> list[Value]:
    """What the text of a value shows: of an object what its own method gives, of this process's device its rank."""
    if value.text == OWN_DEVICE:
        return [Value(own(), engine.run.reason(node, "the rank"))]
    found = [value]
    for ref in value.of(Instance):
        for method in ("__format__", "__str__", "__repr__"):
            function_ = engine.attributes.method(ref, method)
            if function_ is not None:
                args = [Value(refs=(ref,)), *([Value()] if method == "__format__" else [])]
                found.append(engine.calls.call_function(function_, args, {}, node))
                break
        else:
            engine.run.store.look(ref)
            found += shown_fields(ref)
    return found


def known_text(node: ast.JoinedStr, parts: Sequence[Value]) -> str | None:
    """What a formatted text is whose parts are all known, and written as they are; None for another one."""
    written = all(
        isinstance(part, ast.Constant)
        or (isinstance(part, ast.FormattedValue) and part.format_spec is None and part.conversion == -1)
        for part in node.values
    )
    known = written and all(isinstance(part.const, str | int) for part in parts)
    return "".join(str(part.const) for part in parts) if known else None
