"""Arguments and parameters: added, taken out and named, with the commas and lines that those around them have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst

from accelify.writer.edits import AddParameter
from accelify.writer.templates import argument, in_parens, parsed

_NONE = cst.SimpleWhitespace("")
_COMMA = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
_EQUAL = cst.AssignEqual(whitespace_before=_NONE, whitespace_after=_NONE)


def with_argument(call: cst.Call, place: int | None, text: str) -> cst.Call:
    """A call with one argument more: at some place among the others, or at the end."""
    new, args = argument((text,)), [*call.args]
    before = call.whitespace_before_args
    if len(args) == 1 and isinstance(args[0].value, cst.GeneratorExp) and not args[0].value.lpar:
        # A generator gets parentheses that are not the call's.
        args[0] = args[0].with_changes(value=in_parens(args[0].value))
    if place is None or place == len(args):
        return call.with_changes(args=_with_last(args, new, before))
    comma = args[place - 1].comma if place else _as_first(before)
    if not place and isinstance(before, cst.ParenthesizedWhitespace) and _comments(before):
        first = before.first_line
        if not first.whitespace.value:
            first = first.with_changes(whitespace=cst.SimpleWhitespace(" "))
        comma = cst.Comma(whitespace_after=before.with_changes(first_line=first))
        call = call.with_changes(whitespace_before_args=_NONE)
    elif place:
        args[place - 1] = args[place - 1].with_changes(comma=_COMMA)
    return call.with_changes(args=[*args[:place], new.with_changes(comma=comma), *args[place:]])


def _with_last(args: list[cst.Arg], new: cst.Arg, before: Any) -> list[cst.Arg]:
    """Arguments with one more at the end, after a comment that is with the last one."""
    if not args:
        return [new]
    last, between = args[-1], _COMMA
    if isinstance(last.comma, cst.Comma):
        after = last.comma.whitespace_after
        if not isinstance(after, cst.ParenthesizedWhitespace) or not (_comments(after) or _is_broken(before)):
            new = new.with_changes(whitespace_after_arg=after)
        else:
            new = new.with_changes(comma=last.comma)
            if not _comments(after):
                # Each argument has a separate line.
                lead = cst.ParenthesizedWhitespace(indent=before.indent, last_line=before.last_line)
                between = last.comma.with_changes(whitespace_after=lead)
        return [*args[:-1], last.with_changes(comma=between), new]
    new = new.with_changes(whitespace_after_arg=last.whitespace_after_arg)
    return [*args[:-1], last.with_changes(comma=between, whitespace_after_arg=_NONE), new]


def without(items: Sequence[Any], gone: set[int]) -> list[Any]:
    """Arguments, elements or parameters without some of them; what is the last one then ends as the last one did."""
    left = [item for index, item in enumerate(items) if index not in gone]
    if left and len(items) - 1 in gone:
        ends = ("comma", "whitespace_after_arg") if isinstance(items[-1], cst.Arg) else ("comma",)
        left[-1] = left[-1].with_changes(**{name: getattr(items[-1], name) for name in ends})
    return left


def with_parameter(function: cst.FunctionDef, edit: AddParameter) -> cst.FunctionDef:
    """A function with one parameter more: the first, or after another one, or with a default the last by name."""
    params, args, after, default = function.params, edit.function.args, edit.after, edit.default
    typed = cst.Annotation(parsed(edit.annotation)) if edit.annotation else None
    new = cst.Param(cst.Name(edit.name), annotation=typed)
    lead = _as_first(function.whitespace_before_params)
    plain = [*args.posonlyargs, *args.args]
    field = "posonly_params" if args.posonlyargs else "params"
    if default:
        field = "kwonly_params" if args.vararg is not None or args.kwonlyargs else "params"
        new = new.with_changes(default=parsed(default), equal=_EQUAL)
    known = [*getattr(params, field)]
    place = len(known) if default else plain.index(after) + 1 if after is not None else 0
    rest = plain[place:] or args.vararg or args.kwonlyargs or args.kwarg
    if place:
        last = known[place - 1]
        new = new.with_changes(comma=last.comma)
        if default:
            new = new.with_changes(whitespace_after_param=last.whitespace_after_param)
            lead = last.comma if args.kwarg is not None else lead
            known[place - 1] = last.with_changes(comma=lead, whitespace_after_param=_NONE)
        else:
            lined = rest and _is_broken(last.comma.whitespace_after)
            known[place - 1] = last.with_changes(comma=last.comma if lined else _COMMA)
    elif rest and not default:
        new = new.with_changes(comma=lead if plain else _COMMA)
    known.insert(place, new)
    return function.with_changes(params=params.with_changes(**{field: known}))


def _as_first(before: cst.BaseParenthesizableWhitespace) -> cst.Comma:
    """The comma before an argument placed as the first one is: on a separate line where that has one."""
    return cst.Comma(whitespace_after=before) if _is_broken(before) and not _comments(before) else _COMMA


def _is_broken(space: Any) -> bool:
    return isinstance(space, cst.ParenthesizedWhitespace)


def _comments(space: Any) -> bool:
    return space.first_line.comment is not None or any(line.comment is not None for line in space.empty_lines)
