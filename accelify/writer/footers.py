"""Empty lines and comments after a block, as lines of the block that they are in.

libcst gives an inner block every line up to the last one that is indented as far as it is, though that has nothing but
blanks in it. What is put in after the inner block, or stays when it goes, would then be on the wrong side of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst

_PARTS = ("body", "handlers", "orelse", "finalbody")
_WITHOUT_BLOCKS = (cst.SimpleStatementLine, cst.SimpleStatementSuite, cst.Match)


def with_footers_outside(module: cst.Module) -> cst.Module:
    """A module in which no block ends in lines that are further out, or in empty ones."""
    new, after = _trimmed(module, "", module.default_indent, True)
    found: cst.Module = new.with_changes(footer=[*after, *module.footer]) if after else new
    return found


def _trimmed(node: Any, indent: str, unit: str, ends: bool) -> tuple[Any, list[cst.EmptyLine]]:
    """A statement, a branch or a block, and the lines after it; none of these unless it `ends` its statement."""
    after: list[cst.EmptyLine] = []
    if isinstance(node, _WITHOUT_BLOCKS):
        return node, after
    block = isinstance(node, (cst.Module, cst.IndentedBlock))
    step = (unit if node.indent is None else node.indent) if isinstance(node, cst.IndentedBlock) else ""
    changes: dict[str, Any] = {}
    parts = [name for name in _PARTS if getattr(node, name, None)]
    for name in parts:
        old = getattr(node, name)
        nodes = old if isinstance(old, Sequence) else [old]
        made = []
        for one in nodes:
            above, last = after, block or (ends and name == parts[-1] and one is nodes[-1])
            new, after = _trimmed(one, indent + step, unit, last)
            made.append(new.with_changes(leading_lines=[*above, *new.leading_lines]) if above else new)
        if any(one is not other for one, other in zip(made, nodes, strict=True)):
            changes[name] = made if nodes is old else made[0]
    node = node.with_changes(**changes) if changes else node
    if not isinstance(node, cst.IndentedBlock):
        return node, after
    footer = [*after, *node.footer]
    stays = 0 if ends else len(footer)
    for place, line in enumerate(footer, 1):
        if line.comment is not None and (line.indent or len(line.whitespace.value) >= len(indent + step)):
            stays = max(stays, place)
    if after or stays < len(footer):
        node = node.with_changes(footer=footer[:stays])
    return node, [_further_out(line, step) for line in footer[stays:]]


def _further_out(line: cst.EmptyLine, step: str) -> cst.EmptyLine:
    return (
        line.with_changes(whitespace=cst.SimpleWhitespace(step + line.whitespace.value))
        if line.indent
        else line
    )
