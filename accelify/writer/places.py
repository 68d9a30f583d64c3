"""From a node of Python's `ast` to the node of libcst's tree that was read from the same text.

Both trees are built by one grammar, so a node is found by its way down from the statement around it: `func` of a
call here is `func` there, the third of its arguments is the third there. No place in the text is asked for, which
`ast` does not know inside of f-strings before Python 3.12 and libcst has to compute for a whole file at a time.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, TypeAlias

import libcst as cst

from accelify.writer.errors import EditError

Step: TypeAlias = tuple[str, int | None]
"""A field of a node, and which of several where it is a list."""

# Fields that are called otherwise in libcst; of a list the first is that of the list, the rest lead on from an element.
_FIELDS: dict[str, tuple[str, ...]] = {
    "operand": ("expression",),
    "annotation": ("annotation", "annotation"),
    "cause": ("cause", "item"),
    "returns": ("returns", "annotation"),
    "context_expr": ("item",),
    "optional_vars": ("asname", "name"),
    "args": ("params",),
    "posonlyargs": ("posonly_params",),
    "kwonlyargs": ("kwonly_params",),
    "vararg": ("star_arg",),
    "kwarg": ("star_kwarg",),
    "comparators": ("comparisons", "comparator"),
    "ifs": ("ifs", "test"),
    "targets": ("targets", "target"),
    "decorator_list": ("decorators", "decorator"),
    "bases": ("bases", "value"),
}


def steps_to(parent: ast.AST, child: ast.AST, found: Any) -> list[Step]:
    """The way from the node that represents `parent` to the one that represents `child`, which is right below it.

    Args:
        parent: the outer node; statements in its blocks are not meant.
        child: the inner one.
        found: what represents the outer one in libcst's tree.

    Raises:
        EditError: where there is no node that represents it alone.
    """
    name, index = _field(parent, child)
    # Arguments and elements are meant with their stars and names.
    value: list[Step] = [] if isinstance(child, (ast.Starred, ast.keyword)) else [("value", None)]
    match parent:
        case ast.BoolOp(values=values):  # `a and b and c` is `(a and b) and c`
            way: list[Step] = [("left", None)] * (len(values) - 1 - (index or 0))
            return [*way, ("right", None)] if index else way
        case ast.Tuple() if isinstance(found, cst.Subscript):  # between brackets, without parentheses
            return _index(child, index or 0)
        case ast.List() | ast.Tuple() | ast.Set():
            return [("elements", index), *value]
        case ast.Dict():
            return [("elements", index), ("key" if name == "keys" else "value", None)]
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp() if name == "generators":
            return [("for_in", None), *[("inner_for_in", None)] * (index or 0)]
        case ast.Call() if name != "func":
            return [("args", next(i for i, one in enumerate(arguments_of(parent)) if one is child)), *value]
        case ast.Subscript(slice=ast.Tuple()) if name == "slice" and (
            len(found.slice) > 1 or isinstance(found.slice[0].comma, cst.Comma)
        ):
            return []
        case ast.Subscript() if name == "slice":
            return _index(child, 0)
        case ast.JoinedStr(values=values):
            order = [one for one in values if isinstance(one, ast.FormattedValue)]
            ways = list(_braces(found))
            if child not in order or len(ways) != len(order):
                raise EditError("a part of an f-string that cannot be edited by itself")
            return ways[order.index(child)]
        case ast.FormattedValue():  # its format is the same node
            return [("expression", None)] if name == "value" else []
        case ast.Delete(targets=targets):
            return [("target", None), *([("elements", index), *value] if len(targets) > 1 else [])]
        case ast.Await():
            return [("expression", None)]
        case ast.YieldFrom():
            return [("value", None), ("item", None)]
        case ast.arguments() if name == "kw_defaults":
            return [("kwonly_params", index), ("default", None)]
        case ast.arguments() if name == "defaults":
            place = len(parent.posonlyargs) + len(parent.args) - len(parent.defaults) + (index or 0)
            late = place - len(parent.posonlyargs)
            return [("params", late) if late >= 0 else ("posonly_params", place), ("default", None)]
        case ast.pattern() | ast.Global() | ast.Nonlocal():
            raise EditError(f"what stands in line {getattr(child, 'lineno', 0)} cannot be edited by itself")
    field, *inner = _FIELDS.get(name, (name,))
    if isinstance(child, ast.Starred) and index is not None:
        inner = []
    return [(field, index), *[(step, None) for step in inner]]


def follow(node: cst.CSTNode, steps: Sequence[Step]) -> Any:
    """The node at the end of some steps.

    Raises:
        EditError: where there is none: the two parsers read this otherwise.
    """
    found: Any = node
    for name, index in steps:
        found = getattr(found, name, None)
        if index is not None and found is not None:
            found = found[index] if index < len(found) else None
        if not isinstance(found, cst.CSTNode):
            raise EditError("libcst reads this expression otherwise than Python does")
    return found


def arguments_of(call: ast.Call) -> list[ast.expr | ast.keyword]:
    """The arguments of a call in the order in which they are written."""
    if not call.args or not call.keywords:
        return [*call.args, *call.keywords]
    return sorted([*call.args, *call.keywords], key=lambda a: (a.lineno, a.col_offset))


def _field(parent: ast.AST, child: ast.AST) -> tuple[str, int | None]:
    for name, value in ast.iter_fields(parent):
        if value is child:
            return name, None
        if isinstance(value, list):
            for index, one in enumerate(value):
                if one is child:
                    return name, index
    raise EditError("a node that is no part of the one around it")


def _index(child: ast.AST, index: int) -> list[Step]:
    steps: list[Step] = [("slice", index), ("slice", None)]
    return steps if isinstance(child, ast.Slice) else [*steps, ("value", None)]


def _braces(found: Any) -> list[list[Step]]:
    """The ways to the expressions in braces of a string, of one after the other where several are put together."""
    if isinstance(found, cst.ConcatenatedString):
        return [[(side, None), *way] for side in ("left", "right") for way in _braces(getattr(found, side))]
    name = "format_spec" if isinstance(found, cst.FormattedStringExpression) else "parts"
    parts = getattr(found, name, None) or ()
    return [[(name, i)] for i, part in enumerate(parts) if isinstance(part, cst.FormattedStringExpression)]
