"""Imports from one module that several edits bring to one place: one line for all of them.

from accelify.runtime import Accelerator       ->  from accelify.runtime import Accelerator, gather_object
from accelify.runtime import gather_object
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from accelify.writer.rows import Row

_LONGEST_LINE = 100
_IMPORT = re.compile(r"(from [\w.]+) import (\w+(?:, \w+)*)\n")


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
    one, other = _import(first), _import(second)
    if one is None or other is None or one[1] != other[1]:
        return None
    names = sorted({*one[2].split(", "), *other[2].split(", ")})
    line = f"{one[1]} import {', '.join(names)}"
    return first.with_node(cst.parse_statement(line)) if len(line) <= _LONGEST_LINE else None


def _import(row: Row) -> re.Match[str] | None:
    """An import of plain names that was put in: where it is from, and the names."""
    if not row.new or not isinstance(row.node, cst.SimpleStatementLine):
        return None
    return _IMPORT.fullmatch(cst.Module([]).code_for_node(row.node))
