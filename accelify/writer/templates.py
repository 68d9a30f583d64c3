"""Code that is put together from text and from parts of the script, as nodes of libcst."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import libcst as cst

from accelify.writer.edits import HOLE, woven
from accelify.writer.errors import EditError
from accelify.writer.rows import rows_of


def expression(pieces: Sequence[Any], part: Callable[[ast.AST], cst.BaseExpression]) -> cst.BaseExpression:
    """The expression that some pieces make.

    Args:
        pieces: text, and nodes of the script.
        part: what is to represent such a node.

    Raises:
        EditError: when the pieces are no expression.
    """
    if len(pieces) == 1 and not isinstance(pieces[0], str):
        return part(pieces[0])
    text, nodes = woven(pieces)
    made: cst.BaseExpression = fill(parsed(text), [part(node) for node in nodes])
    return made


def argument(pieces: Sequence[Any], part: Callable[[ast.AST], cst.BaseExpression] | None = None) -> cst.Arg:
    """The argument that some pieces make: `disable=True`, `*rest`."""
    text, nodes = woven(pieces)
    call = parsed(f"f({text})")
    if not isinstance(call, cst.Call) or len(call.args) != 1:
        raise EditError(f"`{text}` is no argument")
    found: cst.Arg = fill(call.args[0], [part(node) for node in nodes] if part else ())
    return found


def statements_of(
    pieces: Sequence[Any], indent: str, part: Callable[[ast.AST], cst.BaseExpression]
) -> list[Any]:
    """The rows of statements that some pieces make, see `statements`."""
    text, nodes = woven(pieces)
    parts = [part(node) for node in nodes]
    return [fill(row, parts) for row in statements((text,), indent)]


def fill(made: Any, parts: Sequence[cst.BaseExpression]) -> Any:
    """Code with parts in the places of its holes, in parentheses where they would be read otherwise."""
    if not parts:
        return made
    if isinstance(made, cst.Name):
        return _filled(made, parts)
    value: Any
    for name in made.__dataclass_fields__:
        value = getattr(made, name)
        if isinstance(value, cst.CSTNode):
            new = _filled(value, parts)
            if new is not value:
                if isinstance(new, cst.BaseExpression):
                    if not value.lpar:  # type: ignore[attr-defined]
                        new = _bare(new, made, name)
                    new = fitting(new, made, name)
                made = made.with_changes(**{name: new})
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], cst.CSTNode):
            changed = [_filled(one, parts) for one in value]
            if any(a is not b for a, b in zip(changed, value, strict=True)):
                made = made.with_changes(**{name: changed})
    return made


def _bare(node: cst.BaseExpression, owner: cst.CSTNode, field: str) -> cst.BaseExpression:
    """An expression without parentheses that it does not need in a call or a product."""
    inner = 1 if isinstance(node, (cst.Tuple, cst.GeneratorExp)) else 0
    if len(node.lpar) <= inner or isinstance(node, (cst.NamedExpr, cst.Yield)):
        return node
    bare = node.with_changes(lpar=node.lpar[len(node.lpar) - inner :], rpar=node.rpar[:inner])
    needed = isinstance(owner, cst.BinaryOperation) and _binds(bare) < _wanted(owner, field)
    return bare if isinstance(owner, (cst.Arg, cst.BinaryOperation)) and not needed else node


def _filled(node: Any, parts: Sequence[cst.BaseExpression]) -> Any:
    if not isinstance(node, cst.Name):
        return fill(node, parts)
    if not node.value.startswith(HOLE):
        return node
    part = parts[int(node.value[len(HOLE) : -1])]
    if not node.lpar or part.lpar:
        return part
    return part.with_changes(lpar=[*node.lpar, *part.lpar], rpar=[*part.rpar, *node.rpar])


@cache
def parsed(text: str) -> cst.BaseExpression:
    """The expression of some text.

    Raises:
        EditError: when it is none.
    """
    try:
        made = cst.parse_expression(f"({text})")
    except (cst.ParserSyntaxError, cst.CSTValidationError) as error:
        raise EditError(f"`{text}` is no expression") from error
    assert isinstance(made, cst.BaseExpression)
    return made.with_changes(lpar=made.lpar[1:], rpar=made.rpar[:-1])


def statements(lines: Sequence[str], indent: str = "") -> list[Any]:
    """The rows that some lines make: statements without what is above them, and empty lines with comments.

    Args:
        lines: the code; one that holds several lines is the script's, which has the indentation of the place already.
        indent: the indentation at which it goes in.

    Raises:
        EditError: when the lines are no statements.
    """
    continued = indent if any("\n" in line for line in lines) else ""
    return list(_rows("\n".join(lines) + "\n", continued))


@cache
def _rows(text: str, indent: str) -> tuple[Any, ...]:
    try:
        module = cst.parse_module(text)
    except (cst.ParserSyntaxError, cst.CSTValidationError) as error:
        raise EditError(f"`{text.strip()}` is no statement") from error
    rows = (row.node.with_changes(indent=False) if row.is_blank else row.node for row in rows_of(module, ()))
    return tuple(row.visit(_Continued(indent)) if indent else row for row in rows)


class _Continued(cst.CSTTransformer):
    def __init__(self, indent: str) -> None:
        super().__init__()
        self.indent = indent

    def leave_ParenthesizedWhitespace(
        self, original_node: cst.ParenthesizedWhitespace, updated_node: cst.ParenthesizedWhitespace
    ) -> Any:
        blanks = updated_node.last_line.value.removeprefix(self.indent)
        return updated_node.with_changes(last_line=cst.SimpleWhitespace(blanks))


# -- what binds more tightly than what

_ATOM = 16
# By the kind of the operator where there is one.
_LEVELS: dict[type[cst.CSTNode], int] = {
    cst.GeneratorExp: -1, cst.NamedExpr: 0, cst.Yield: 0, cst.Tuple: 0, cst.Lambda: 1, cst.IfExp: 2, cst.Or: 3,
    cst.And: 4, cst.Not: 5, cst.Comparison: 6, cst.BitOr: 7, cst.BitXor: 8, cst.BitAnd: 9, cst.LeftShift: 10,
    cst.RightShift: 10, cst.Add: 11, cst.Subtract: 11, cst.Multiply: 12, cst.MatrixMultiply: 12, cst.Divide: 12,
    cst.FloorDivide: 12, cst.Modulo: 12, cst.Plus: 13, cst.Minus: 13, cst.BitInvert: 13, cst.Power: 14, cst.Await: 15,
}  # fmt: skip
# What is in a field has to be bound as tightly as this, so that it is read as one there; 0 where it may be anything.
_WANTED: dict[type[cst.CSTNode], int] = {
    cst.Subscript: 15, cst.Attribute: 15, cst.Await: 15, cst.Call: 15, cst.Comparison: 7, cst.ComparisonTarget: 7,
    cst.StarredElement: 7, cst.StarredDictElement: 7, cst.CompFor: 3, cst.CompIf: 3, cst.IfExp: 3,
    cst.FormattedStringExpression: 2, cst.Arg: 1, cst.Element: 1, cst.DictElement: 1, cst.Lambda: 1, cst.Param: 1,
    cst.WithItem: 1, cst.ListComp: 1, cst.SetComp: 1, cst.GeneratorExp: 1, cst.DictComp: 1,
}  # fmt: skip


def _level(node: Any) -> int:
    return _LEVELS.get(type(getattr(node, "operator", node)), _ATOM)


def _binds(node: cst.BaseExpression) -> int:
    """How tightly the parts of an expression are bound to each other."""
    return _ATOM if node.lpar else _level(node)


def _wanted(owner: cst.CSTNode, field: str) -> int:
    """How tightly what is in a field of a node has to be bound."""
    match owner:
        case cst.BinaryOperation(operator=cst.Power()):
            return 15 if field == "left" else 13
        case cst.BinaryOperation():
            return _level(owner) + (field != "left")
        case cst.UnaryOperation() | cst.BooleanOperation():
            return _level(owner)
        case cst.IfExp() if field == "orelse":
            return 1
        case cst.CompFor() if field == "target":
            return 0
        case cst.Arg(star="*"):
            return 7
    return _WANTED.get(type(owner), 0)


def fitting(node: cst.BaseExpression, owner: cst.CSTNode, field: str) -> cst.BaseExpression:
    """A node as it has to be written in a field of another one: in parentheses where it would be read otherwise."""
    if isinstance(node, cst.Integer) and isinstance(owner, cst.Attribute) and not node.lpar:
        return in_parens(node)
    if _binds(node) >= _wanted(owner, field):
        return node
    return in_parens(node)


def in_parens(node: cst.BaseExpression) -> cst.BaseExpression:
    """A node with a pair of parentheses more around it."""
    return node.with_changes(lpar=[cst.LeftParen(), *node.lpar], rpar=[*node.rpar, cst.RightParen()])


def is_atom(node: cst.BaseExpression) -> bool:
    """Whether an expression needs no parentheses wherever it is."""
    return _binds(node) == _ATOM


def is_looser(new: cst.BaseExpression, old: cst.BaseExpression) -> bool:
    """Whether the parts of one expression are bound to each other less tightly than those of another."""
    return _binds(new) < _binds(old) or (isinstance(new, cst.Integer) and not isinstance(old, cst.Integer))
