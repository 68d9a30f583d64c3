"""Arrays and tables of which a statement writes a part: what is written to, and what it is after that."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from accelify.domains.meeting_rows import mixing
from accelify.domains.placement import Kind, Placement, function, is_figure, own
from accelify.heap.operators import is_under_text
from accelify.heap.values import Container, Ref, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter
    from accelify.heap.run import Run

_TABLES = frozenset({"pandas.DataFrame", "polars.DataFrame"})
_PLACES = frozenset({"loc", "iloc", "at", "iat"})


def written_to(engine: Interpreter, holder: ast.expr, scope: Ref) -> tuple[Value, ast.expr]:
    """What the write of an element changes, with its expression: of a column of a table, the table.

    Args:
        engine: the engine.
        holder: what the element is of.
        scope: where it stands.
    """
    if isinstance(holder, ast.Attribute) and holder.attr in _PLACES:
        holder = holder.value
    if isinstance(holder, ast.Attribute | ast.Subscript):
        table = engine.evaluate(holder.value, scope)
        if table.type in _TABLES:
            return table, holder.value
    return engine.evaluate(holder, scope), holder


def is_of_container(engine: Interpreter, node: ast.expr, value: Value, scope: Ref) -> bool:
    """Whether what a call has changed in place is an element of a list or a dictionary.

    Args:
        engine: the interpreter.
        node: the expression that is passed.
        value: what it is now.
        scope: where it stands.
    """
    if value.type == "dict" and is_under_text(node):
        return True
    base = node.value if isinstance(node, ast.Subscript) else None
    return isinstance(base, ast.Name | ast.Attribute) and bool(engine.evaluate(base, scope).of(Container))


def with_part(run: Run, base: Value, part: Placement, again: bool) -> Placement:
    """What an array or a table is once a part of it is written; `again`: with more than stood there."""
    place = function((base.place, part), rowwise=True)
    if base.place.rows and is_figure(part):
        place = mixing(place)
    if again and base.type in _TABLES and run.shared_loops() and place.kind is Kind.ROUND:
        return own("put together first")  # it adds up over the rounds
    return place


def passed_back(engine: Interpreter, given: ast.expr | None, value: Value) -> None:
    """Note that what a function of the project is called with is changed in place: a parameter of the one around.

    Args:
        engine: that goes through the script.
        given: an expression in the function.
        value: what it holds from then on.
    """
    function, call = engine.run.calls[-1] if engine.run.calls else (None, None)
    arguments = getattr(function, "args", None)
    if isinstance(given, ast.Name) and call is not None and isinstance(arguments, ast.arguments):
        if given.id in {one.arg for one in (*arguments.args, *arguments.kwonlyargs)}:
            engine.calls.libraries.mutated.setdefault(call, {})[given.id] = value
