"""Where a script stores a value: a variable, an attribute, one entry of it; and what resets it.

if args.both:                   (set again in every round, whichever branch is taken)
    x = torch.cat(parts)
else:
    x = parts[0]
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from accelify.analysis.scopes import Scope
from accelify.analysis.statements.growing import always_run
from accelify.analysis.syntax import names_in, target_names, text_of

SAMPLE, TOTAL = 1, 2


class Slot(NamedTuple):
    """A variable (of a scope) or an attribute (of a class), or one entry of it: `['loss']`, `.best`."""

    owner: Scope | ast.ClassDef
    root: str
    entry: str = ""

    @property
    def text(self) -> str:
        """How it is written."""
        return ("self." if isinstance(self.owner, ast.ClassDef) else "") + self.root + self.entry


class SlotValue(NamedTuple):
    """What a slot holds: a sample or a total, and the statements that make it a total."""

    level: int
    origins: frozenset[ast.stmt] = frozenset()


def joined(known: SlotValue | None, contained: SlotValue) -> SlotValue:
    """What a slot of either kind contains."""
    return (
        contained
        if known is None
        else SlotValue(max(known.level, contained.level), known.origins | contained.origins)
    )


def place_in(whole: ast.AST, part: ast.AST) -> int | None:
    """The index of one of several values, as in `loss, step`; None where that is not known, or it is none of them."""
    parts = whole.elts if isinstance(whole, ast.Tuple) else []
    if any(isinstance(one, ast.Starred) for one in parts):
        return None
    return next((i for i, one in enumerate(parts) if one is part), None)


def place_for(target: ast.expr, value: ast.expr | None, place: int | None) -> ast.expr:
    """What takes the value at an index, `b` of `a, b` for the second; the whole target where that is not known."""
    if place is None or not isinstance(target, (ast.Tuple, ast.List)) or place >= len(target.elts):
        return target
    if any(isinstance(one, ast.Starred) for one in target.elts):
        return target
    if value is not None and (not isinstance(value, ast.Tuple) or len(value.elts) != len(target.elts)):
        return target
    return target.elts[place]


def is_anew(node: ast.AST, slot: Slot) -> bool:
    """Whether a statement sets a slot without reading it."""
    if not isinstance(node, ast.Assign):
        return False
    for target in node.targets:
        for name in target_names(target):
            if isinstance(slot.owner, Scope) and name == slot.root and name not in names_in(node.value):
                return True
        if isinstance(target, (ast.Attribute, ast.Subscript)) and isinstance(slot.owner, ast.ClassDef):
            text = text_of(target)
            if text == f"self.{slot.root}" and text not in text_of(node.value):
                return True
    return False


def makes_anew(body: Iterable[ast.stmt], slot: Slot, besides: ast.stmt | None = None) -> bool:
    """Whether some statements make a slot again whenever they run; of `besides` only what each of its branches does."""
    return any(
        _in_each_branch(stmt, slot)
        if isinstance(stmt, ast.If)
        else stmt is not besides and any(is_anew(node, slot) for node in always_run(stmt))
        for stmt in body
    )


def _in_each_branch(branch: ast.If, slot: Slot) -> bool:
    return (
        bool(branch.orelse)
        and slot.root not in names_in(branch.test)
        and makes_anew(branch.body, slot)
        and makes_anew(branch.orelse, slot)
    )


__all__ = ["SAMPLE", "TOTAL", "Slot", "SlotValue", "is_anew", "joined", "makes_anew", "place_for", "place_in"]
