"""Imports from one module that several edits bring to one place: one line for all of them.

from accelify.runtime import Accelerator       ->  from accelify.runtime import Accelerator, gather_object
from accelify.runtime import gather_object
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from accelify.writer.rows import Row

_LONGEST_LINE = 100


def with_joined_imports(rows: Sequence[Row]) -> list[Row]:
    """Rows in which imports that were put in one below the other, from one module, are in one line."""
    found: list[Row] = []
    for row in rows:
        joined = _joined(found[-1], row) if found else None
        if joined is None:
            found.append(row)
        else:
            found[-1] = joined
    return found


def _joined(first: Row, second: Row) -> Row | None:
    one, other = _names(first), _names(second)
    if one is None or other is None or one[0] != other[0]:
        return None
    names = sorted({*one[1], *other[1]})
    line = f"{one[0]} import {', '.join(names)}"
    if len(line) > _LONGEST_LINE:
        return None
    return first.with_node(cst.parse_statement(line))


def _names(row: Row) -> tuple[str, list[str]] | None:
    """The beginning of an import that was put in, and the plain names that it brings."""
    node = row.node
    if not row.new or not isinstance(node, cst.SimpleStatementLine) or len(node.body) != 1:
        return None
    (small,) = node.body
    if (
        not isinstance(small, cst.ImportFrom)
        or small.module is None
        or isinstance(small.names, cst.ImportStar)
    ):
        return None
    if any(alias.asname is not None for alias in small.names):
        return None
    module = cst.Module([]).code_for_node(small.module)
    names = [alias.name.value for alias in small.names if isinstance(alias.name, cst.Name)]
    return f"from {'.' * len(small.relative)}{module}", names
