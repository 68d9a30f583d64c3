"""Imports from one module that several edits bring to one place: one line for all of them.

from accelify.runtime import Accelerator       ->  from accelify.runtime import Accelerator, gather_object
from accelify.runtime import gather_object
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import libcst as cst

from accelify.writer.rows import Row

_LONGEST_LINE = 100
_IMPORT = re.compile(r"(from [\w.]+) import (\w+(?:, \w+)*)\n")


def with_joined_imports(rows: Iterable[Row]) -> list[Row]:
    """Rows in which imports that were put in one below the other, from one module, are in one line."""
    found: list[Row] = []
    above = None
    for row in rows:
        new = row.new and isinstance(row.node, cst.SimpleStatementLine)
        here = _IMPORT.fullmatch(cst.Module([]).code_for_node(row.node)) if new else None
        if here and above and here[1] == above[1]:
            names = sorted({*above[2].split(", "), *here[2].split(", ")})
            line = f"{here[1]} import {', '.join(names)}"
            if len(line) <= _LONGEST_LINE:
                found[-1] = found[-1].with_node(cst.parse_statement(line))
                above = _IMPORT.fullmatch(f"{line}\n")
                continue
        found.append(row)
        above = here
    return found
