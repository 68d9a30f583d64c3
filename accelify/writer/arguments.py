"""Arguments and parameters: added, taken out and named, with the commas and lines that those around them have."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from typing import Any

import libcst as cst

from accelify.writer.errors import EditError
from accelify.writer.templates import in_parens

_NONE = cst.SimpleWhitespace("")
_COMMA = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


@cache
def argument(text: str) -> cst.Arg:
    """An argument as it is written: `disable=True`, `*rest`.

    Raises:
        EditError: when it is none.
    """
    try:
        call = cst.parse_expression(f"f({text})")
    except cst.ParserSyntaxError as error:
        raise EditError(f"`{text}` is no argument") from error
    if not isinstance(call, cst.Call) or len(call.args) != 1:
        raise EditError(f"`{text}` is no argument")
    return call.args[0]


def with_first(call: cst.Call, text: str) -> cst.Call:
    """A call with an argument before all others; on a separate line where each has one."""
    new, rest = argument(text), _grouped(call.args)
    if not rest:
        return call.with_changes(args=[new])
    before = call.whitespace_before_args
    if isinstance(before, cst.ParenthesizedWhitespace) and _comments(before):
        first = before.first_line
        if not first.whitespace.value:
            first = first.with_changes(whitespace=cst.SimpleWhitespace(" "))
        comma = cst.Comma(whitespace_after=before.with_changes(first_line=first))
        return call.with_changes(whitespace_before_args=_NONE, args=[new.with_changes(comma=comma), *rest])
    return call.with_changes(args=[new.with_changes(comma=_as_first(before)), *rest])


def with_last(call: cst.Call, text: str) -> cst.Call:
    """A call with an argument more at the end, after a comment that is with the last one."""
    new, rest = argument(text), _grouped(call.args)
    if not rest:
        return call.with_changes(args=[new])
    last, comma = rest[-1], rest[-1].comma
    if isinstance(comma, cst.Comma):
        after, before = comma.whitespace_after, call.whitespace_before_args
        if isinstance(after, cst.ParenthesizedWhitespace) and _comments(after):
            # A comment on the last one stays in its line.
            rest[-1] = last.with_changes(comma=_COMMA)
            return call.with_changes(args=[*rest, new.with_changes(comma=comma)])
        if isinstance(after, cst.ParenthesizedWhitespace) and isinstance(before, cst.ParenthesizedWhitespace):
            # Each argument has a separate line.
            lead = cst.ParenthesizedWhitespace(indent=before.indent, last_line=before.last_line)
            rest[-1] = last.with_changes(comma=comma.with_changes(whitespace_after=lead))
            return call.with_changes(args=[*rest, new.with_changes(comma=comma)])
        rest[-1] = last.with_changes(comma=_COMMA)
        return call.with_changes(args=[*rest, new.with_changes(whitespace_after_arg=after)])
    rest[-1] = last.with_changes(comma=_COMMA, whitespace_after_arg=_NONE)
    return call.with_changes(args=[*rest, new.with_changes(whitespace_after_arg=last.whitespace_after_arg)])


def with_after(call: cst.Call, index: int, text: str) -> cst.Call:
    """A call with an argument after one of its others."""
    if index == len(call.args) - 1:
        return with_last(call, text)
    args = [*call.args]
    args[index + 1 : index + 1] = [argument(text).with_changes(comma=args[index].comma)]
    args[index] = args[index].with_changes(comma=_COMMA)
    return call.with_changes(args=args)


def without(items: Sequence[Any], gone: set[int]) -> list[Any]:
    """Arguments, elements or parameters without some of them; what is the last one then ends as the last one did."""
    left = [item for index, item in enumerate(items) if index not in gone]
    if left and len(items) - 1 in gone:
        last, old = left[-1], items[-1]
        changes: dict[str, Any] = {"comma": old.comma}
        if isinstance(old, cst.Arg):
            changes["whitespace_after_arg"] = old.whitespace_after_arg
        left[-1] = last.with_changes(**changes)
    return left


def named(arg: cst.Arg, name: str) -> cst.Arg:
    """An argument under a name."""
    equal = cst.AssignEqual(whitespace_before=_NONE, whitespace_after=_NONE)
    return arg.with_changes(keyword=cst.Name(name), equal=arg.equal if arg.keyword is not None else equal)


def with_parameter(
    function: cst.FunctionDef, node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, after: ast.arg | None
) -> cst.FunctionDef:
    """A function with one parameter more: before all others, or after the first of a method."""
    params, new = function.params, cst.Param(cst.Name(name))
    plain = [*node.args.posonlyargs, *node.args.args]
    field = "posonly_params" if node.args.posonlyargs else "params"
    known = [*getattr(params, field)]
    if after is not None:
        place = plain.index(after) + 1
        rest = len(plain) > place or node.args.vararg or node.args.kwonlyargs or node.args.kwarg
        comma = known[place - 1].comma
        between = comma if isinstance(comma, cst.Comma) else _COMMA
        lined = rest and _is_lined(between.whitespace_after)
        known[place - 1] = known[place - 1].with_changes(comma=between if lined else _COMMA)
        if rest or isinstance(comma, cst.Comma):
            new = new.with_changes(comma=between)
        known.insert(place, new)
        return function.with_changes(params=params.with_changes(**{field: known}))
    stars = node.args.vararg is not None or bool(node.args.kwonlyargs) or node.args.kwarg is not None
    if not plain:
        new = new.with_changes(comma=_COMMA) if stars else new
        return function.with_changes(params=params.with_changes(params=[new]))
    new = new.with_changes(comma=_as_first(function.whitespace_before_params))
    return function.with_changes(params=params.with_changes(**{field: [new, *known]}))


def with_option(
    function: cst.FunctionDef, node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, default: str
) -> cst.FunctionDef:
    """A function with one parameter more that calls may leave out: the last of those that have a name."""
    params = function.params
    field = "kwonly_params" if node.args.vararg is not None or node.args.kwonlyargs else "params"
    known = [*getattr(params, field)]
    equal = cst.AssignEqual(whitespace_before=_NONE, whitespace_after=_NONE)
    new = cst.Param(cst.Name(name), default=cst.parse_expression(default), equal=equal)
    if known:
        last, between = known[-1], _as_first(function.whitespace_before_params)
        new = new.with_changes(comma=last.comma, whitespace_after_param=last.whitespace_after_param)
        if isinstance(last.comma, cst.Comma) and node.args.kwarg is not None:
            between = last.comma
        known[-1] = last.with_changes(comma=between, whitespace_after_param=_NONE)
    return function.with_changes(params=params.with_changes(**{field: [*known, new]}))


def _grouped(args: Sequence[cst.Arg]) -> list[cst.Arg]:
    """Arguments before or after which another one can come: a generator gets parentheses that are not the call's."""
    found = [*args]
    if len(found) == 1 and isinstance(found[0].value, cst.GeneratorExp) and not found[0].value.lpar:
        found[0] = found[0].with_changes(value=in_parens(found[0].value))
    return found


def _as_first(before: cst.BaseParenthesizableWhitespace) -> cst.Comma:
    """The comma before an argument placed as the first one is: on a separate line where that has one."""
    return cst.Comma(whitespace_after=before) if _is_lined(before) else _COMMA


def _is_lined(space: cst.BaseParenthesizableWhitespace) -> bool:
    return isinstance(space, cst.ParenthesizedWhitespace) and not _comments(space)


def _comments(space: cst.ParenthesizedWhitespace) -> bool:
    return space.first_line.comment is not None or any(line.comment is not None for line in space.empty_lines)
