"""What the texts of values show."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from accelify.heap.containers import shown_fields
from accelify.heap.values import Instance, Value

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter


def texts_of(engine: Interpreter, value: Value, node: ast.AST) -> list[Value]:
    """What the text of a value shows: of an object what its own method gives."""
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
