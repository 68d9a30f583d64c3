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
    "keywords": ("keywords",),
    "items": ("items",),
    "names": ("names",),
}
_UNREAD = (ast.pattern, ast.Global, ast.Nonlocal)


def steps_to(parent: ast.AST, child: ast.AST, found: cst.CSTNode) -> list[Step]:
    """The way from the node that represents `parent` to the one that represents `child`, which is right below it.

    Args:
        parent: the outer node; statements in its blocks are not meant.
        child: the inner one.
        found: what represents the outer one in libcst's tree.

    Raises:
        EditError: where there is no node that represents it alone.
    """
    name, index = _field(parent, child)
    special = _SPECIAL.get(type(parent))
    if special is not None:
        steps: list[Step] = special(parent, child, name, index, found)
        return steps
    return _renamed(parent, child, name, index, found)


def _renamed(parent: Any, child: Any, name: str, index: Any, found: Any) -> list[Step]:
    if name not in _FIELDS:
        if isinstance(parent, _UNREAD) or index is not None:
            raise EditError(f"what stands in line {getattr(child, 'lineno', 0)} cannot be edited by itself")
        return [(name, None)]
    field, *inner = _FIELDS[name]
    if isinstance(child, ast.Starred) and index is not None:  # as an argument, with its star
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


def _bool_op(parent: Any, child: Any, name: str, index: Any, found: Any) -> list[Step]:
    """`a and b and c` is `(a and b) and c` in libcst."""
    last = len(parent.values) - 1
    if index == 0:
        return [("left", None)] * last
    return [*[("left", None)] * (last - index), ("right", None)]


def _elements(parent: Any, child: Any, name: str, index: Any, found: Any) -> list[Step]:
    if isinstance(found, cst.Subscript):  # the tuple between brackets that has no parentheses
        return _index(found, index, child)
    if isinstance(child, ast.Starred):
        return [("elements", index)]
    return [("elements", index), ("value", None)]


def _dict(parent: Any, child: Any, name: str, index: Any, found: Any) -> list[Step]:
    return [("elements", index), ("key" if name == "keys" else "value", None)]


def _comprehension(parent: Any, child: Any, name: str, index: Any, found: Any) -> list[Step]:
    if name != "generators":
        return [(name, None)]
    return [("for_in", None), *[("inner_for_in", None)] * index]


def _call(parent: Any, child: Any, name: str, index: Any, found: Any) -> list[Step]:
    if name == "func":
        return [("func", None)]
    place = next(i for i, one in enumerate(arguments_of(parent)) if one is child)
    whole = isinstance(child, (ast.Starred, ast.keyword))
    return [("args", place)] if whole else [("args", place), ("value", None)]


def _subscript(parent: Any, child: Any, name: str, index: Any, found: Any) -> list[Step]:
    if name == "value":
        return [("value", None)]
    if isinstance(child, ast.Tuple) and (len(found.slice) > 1 or isinstance(found.slice[0].comma, cst.Comma)):
        return []
    return _index(found, 0, child)


def _index(found: cst.Subscript, index: int, child: ast.AST) -> list[Step]:
    steps: list[Step] = [("slice", index), ("slice", None)]
    return steps if isinstance(child, ast.Slice) else [*steps, ("value", None)]


def _joined(parent: Any, child: Any, name: str, index: Any, found: Any) -> list[Step]:
    """The expression in braces that comes at the same place among those of the string, or of a format."""
    order = [one for one in parent.values if isinstance(one, ast.FormattedValue)]
    place = next((i for i, one in enumerate(order) if one is child), None)
    ways = list(_braces(found))
    if place is None or len(ways) != len(order):
        raise EditError("a part of an f-string that cannot be edited by itself")
    return ways[place]


def _braces(found: Any) -> list[list[Step]]:
    """The ways to the expressions in braces of a string, of one after the other where several are put together."""
    if isinstance(found, cst.ConcatenatedString):
        return [[(side, None), *way] for side in ("left", "right") for way in _braces(getattr(found, side))]
    name = "format_spec" if isinstance(found, cst.FormattedStringExpression) else "parts"
    parts = getattr(found, name, None) or ()
    return [[(name, i)] for i, part in enumerate(parts) if isinstance(part, cst.FormattedStringExpression)]


def _delete(parent: Any, child: Any, name: str, index: Any, found: Any) -> list[Step]:
    if len(parent.targets) == 1:
        return [("target", None)]
    return [("target", None), ("elements", index), ("value", None)]


def _arguments(parent: Any, child: Any, name: str, index: Any, found: Any) -> list[Step]:
    if name in _FIELDS:
        return _renamed(parent, child, name, index, found)
    if name == "kw_defaults":
        return [("kwonly_params", index), ("default", None)]
    first = len(parent.posonlyargs)
    place = first + len(parent.args) - len(parent.defaults) + index
    field = ("posonly_params", place) if place < first else ("params", place - first)
    return [field, ("default", None)]


_SPECIAL: dict[type[ast.AST], Any] = {
    ast.BoolOp: _bool_op,
    ast.List: _elements,
    ast.Tuple: _elements,
    ast.Set: _elements,
    ast.Dict: _dict,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _comprehension,
    ast.Call: _call,
    ast.Subscript: _subscript,
    ast.JoinedStr: _joined,
    # Its format is the same node in libcst.
    ast.FormattedValue: lambda parent, child, name, *_: [("expression", None)] if name == "value" else [],
    ast.Delete: _delete,
    ast.Await: lambda *_: [("expression", None)],
    ast.YieldFrom: lambda *_: [("value", None), ("item", None)],
    ast.arguments: _arguments,
}
