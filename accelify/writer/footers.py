"""Empty lines and comments after a block, as lines of the block that they are in.

libcst gives an inner block every line up to the last one that is indented as far as it is, though that has nothing but
blanks in it. What is put in after the inner block, or stays when it goes, would then be on the wrong side of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst

_PARTS = ("body", "handlers", "orelse", "finalbody")


def with_footers_outside(module: cst.Module) -> cst.Module:
    """A module in which no block ends in lines that are further out, or in empty ones."""
    body, after = _statements(module.body, "", module.default_indent)
    if not after and body is module.body:
        return module
    return module.with_changes(body=body, footer=[*after, *module.footer])


def _statements(body: Sequence[Any], indent: str, unit: str) -> tuple[Sequence[Any], list[cst.EmptyLine]]:
    """The statements of a block, and the lines that come after the last of them."""
    found: list[Any] = []
    after: list[cst.EmptyLine] = []
    for old in body:
        stmt = old.with_changes(leading_lines=[*after, *old.leading_lines]) if after else old
        stmt, after = _compound(stmt, indent, unit, True)
        found.append(stmt)
    return (body if all(map(_is, found, body)) else found), after


def _is(one: object, other: object) -> bool:
    return one is other


def _compound(node: Any, indent: str, unit: str, ends: bool) -> tuple[Any, list[cst.EmptyLine]]:
    """A statement or a branch, and the lines after it; none of these unless it `ends` its statement."""
    after: list[cst.EmptyLine] = []
    if isinstance(node, (cst.SimpleStatementLine, cst.Match)):
        return node, after
    parts = [name for name in _PARTS if getattr(node, name, None)]
    changes: dict[str, Any] = {}
    new: Any
    for name in parts:
        old = getattr(node, name)
        last = ends and name == parts[-1]
        if isinstance(old, cst.IndentedBlock):
            new, after = _block(old, indent, unit, last)
        elif isinstance(old, cst.SimpleStatementSuite):
            new = old
        elif name == "handlers":
            pairs = [_compound(one, indent, unit, last and one is old[-1]) for one in old]
            new, after = [one for one, _ in pairs], pairs[-1][1]
            new = old if all(map(_is, new, old)) else new
        else:
            new, after = _compound(old, indent, unit, last)
        if new is not old:
            changes[name] = new
    return (node.with_changes(**changes) if changes else node), after


def _block(
    block: cst.IndentedBlock, indent: str, unit: str, ends: bool
) -> tuple[cst.IndentedBlock, list[cst.EmptyLine]]:
    inner = indent + (unit if block.indent is None else block.indent)
    body, after = _statements(block.body, inner, unit)
    footer = [*after, *block.footer]
    stays = 0 if ends else len(footer)
    for place, line in enumerate(footer):
        if line.comment is not None and (line.indent or len(line.whitespace.value) >= len(inner)):
            stays = max(stays, place + 1)
    if body is block.body and not after and stays == len(footer):
        return block, []
    outside = [_further_out(line, inner[len(indent) :]) for line in footer[stays:]]
    return block.with_changes(body=body, footer=footer[:stays]), outside


def _further_out(line: cst.EmptyLine, step: str) -> cst.EmptyLine:
    if not line.indent:
        return line
    return line.with_changes(whitespace=cst.SimpleWhitespace(step + line.whitespace.value))
