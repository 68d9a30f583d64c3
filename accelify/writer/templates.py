"""Code that is put together from text and from parts of the script, as nodes of libcst."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import libcst as cst

from accelify.writer.errors import EditError

_HOLE = "_accelify_hole_"


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
    holes = [piece for piece in pieces if not isinstance(piece, str)]
    names = iter(range(len(holes)))
    text = "".join(piece if isinstance(piece, str) else hole(next(names)) for piece in pieces)
    made = _parsed(text)
    return fill(made, [part(hole) for hole in holes]) if holes else made


def hole(number: int) -> str:
    """The name that represents a part until it is filled in."""
    return f"{_HOLE}{number}_"


def fill(made: Any, parts: Sequence[cst.BaseExpression]) -> Any:
    """Code with parts in the places of its holes, in parentheses where they would be read otherwise."""
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
    if not node.value.startswith(_HOLE):
        return node
    part = parts[int(node.value[len(_HOLE) : -1])]
    if not node.lpar or part.lpar:
        return part
    return part.with_changes(lpar=[*node.lpar, *part.lpar], rpar=[*part.rpar, *node.rpar])


@cache
def _parsed(text: str) -> cst.BaseExpression:
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
    rows: list[Any] = list(module.header)
    for stmt in module.body:
        rows += stmt.leading_lines
        row = cast(Any, stmt).with_changes(leading_lines=())
        rows.append(row.visit(_Continued(indent)) if indent else row)
    rows += module.footer
    # An empty line gets no indentation.
    return tuple(
        row.with_changes(indent=False) if isinstance(row, cst.EmptyLine) and row.comment is None else row
        for row in rows
    )


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

_BINARY: dict[type[cst.CSTNode], int] = {
    cst.BitOr: 7, cst.BitXor: 8, cst.BitAnd: 9, cst.LeftShift: 10, cst.RightShift: 10, cst.Add: 11, cst.Subtract: 11,
    cst.Power: 14,
}  # fmt: skip
_ATOM = 16


def _binds(node: cst.BaseExpression) -> int:
    """How tightly the parts of an expression are bound to each other."""
    if node.lpar:
        return _ATOM
    match node:
        case cst.GeneratorExp():
            return -1
        case cst.NamedExpr() | cst.Yield() | cst.Tuple():
            return 0
        case cst.Lambda():
            return 1
        case cst.IfExp():
            return 2
        case cst.BooleanOperation():
            return 3 if isinstance(node.operator, cst.Or) else 4
        case cst.UnaryOperation():
            return 5 if isinstance(node.operator, cst.Not) else 13
        case cst.Comparison():
            return 6
        case cst.BinaryOperation():
            return _BINARY.get(type(node.operator), 12)
        case cst.Await():
            return 15
    return _ATOM


def _wanted(owner: cst.CSTNode, field: str) -> int:
    """How tightly what is in a field of a node has to be bound, so that it is read as one there."""
    match owner:
        case cst.Attribute() | cst.Subscript() | cst.Await():
            return 15 if field == "value" else _ATOM
        case cst.Call():
            return 15
        case cst.UnaryOperation(operator=operator):
            return 5 if isinstance(operator, cst.Not) else 13
        case cst.BinaryOperation(operator=operator):
            level = _BINARY.get(type(operator), 12)
            if isinstance(operator, cst.Power):
                return 15 if field == "left" else 13
            return level if field == "left" else level + 1
        case cst.Comparison() | cst.ComparisonTarget():
            return 7
        case cst.BooleanOperation(operator=operator):
            return 3 if isinstance(operator, cst.Or) else 4
        case cst.IfExp():
            return 1 if field == "orelse" else 3
        case cst.CompFor() | cst.CompIf():
            return 3 if field != "target" else 0
        case cst.Arg(star=star):
            return 7 if star == "*" else 1
        case cst.StarredElement() | cst.StarredDictElement():
            return 7
        case cst.Element() | cst.DictElement() | cst.Lambda() | cst.Param() | cst.WithItem():
            return 1
        case cst.ListComp() | cst.SetComp() | cst.GeneratorExp() | cst.DictComp():
            return 1
        case cst.FormattedStringExpression():
            return 2
    return 0


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
