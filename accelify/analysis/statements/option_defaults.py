"""What a test of an option is when nobody gives the option: `if args.seed > 0:` of one whose default is -1.

A variable that the script sets once (`seed = None`) is as good as an option: who wants another value writes it there.
"""

from __future__ import annotations

import ast
import contextlib
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from accelify.analysis.program import Module
from accelify.analysis.syntax import call_keyword, walk

_COMPARING: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def option_defaults(modules: Iterable[Module]) -> dict[str, object]:
    """The defaults of the options that modules add to a parser, of those whose default is written down once."""
    found: dict[str, object] = {}
    unsure: set[str] = set()
    for module in modules:
        for call in module.tree.nodes(ast.Call) if module.tree.mentions(b"add_argument") else ():
            if getattr(call.func, "attr", "") != "add_argument":
                continue
            name = option_name(call)
            if name is None:
                continue
            try:
                value = _default(call)
            except ValueError:
                unsure.add(name)
                continue
            if name in found and found[name] != value:
                unsure.add(name)
            found[name] = value
    return {name: value for name, value in found.items() if name not in unsure}


def constants_in(module: Module, test: ast.expr) -> dict[str, object]:
    """The variables that a test reads and that are bound a single time, to a value that is written down there."""
    found: dict[str, object] = {}
    for read in (n for n in walk(test) if isinstance(n, ast.Name)):
        owner = module.scopes.of(read).resolve(read.id)
        if owner is None or any(argument.arg == read.id for argument in owner.parameters()):
            continue
        made = [n for n in module.tree.writes(read.id) if module.scopes.of(n).resolve(n.id) is owner]
        stmt = module.tree.parent(made[0]) if len(made) == 1 else None
        if isinstance(stmt, (ast.Assign, ast.AnnAssign)) and stmt.value is not None:
            with contextlib.suppress(ValueError):
                found[read.id] = ast.literal_eval(stmt.value)
    return found


def is_false_by_default(
    test: ast.expr, defaults: Mapping[str, object], constants: Mapping[str, object] | None = None
) -> bool:
    """Whether a test fails where all options have their defaults. False where that is not known.

    Args:
        test: of options, of variables, or of both.
        defaults: of the options.
        constants: the values of variables that are known.
    """
    try:
        return not _value(test, defaults, constants or {})
    except (LookupError, TypeError, ValueError):
        return False


def option_name(call: ast.Call) -> str | None:
    """`save_to` of `add_argument("-s", "--save-to")`, None where it is no option."""
    stated = call_keyword(call, "dest")
    if isinstance(stated, ast.Constant) and isinstance(stated.value, str):
        return stated.value
    flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    flags = [flag for flag in flags if flag.startswith("-")]
    long = [flag for flag in flags if flag.startswith("--")] or flags
    return long[0].lstrip("-").replace("-", "_") if long else None


def _default(call: ast.Call) -> object:
    given, action = call_keyword(call, "default"), call_keyword(call, "action")
    if given is not None:
        return ast.literal_eval(given)
    if action is not None and ast.literal_eval(action) in ("store_true", "store_false"):
        return bool(ast.literal_eval(action) == "store_false")
    return None


def _value(node: ast.expr, defaults: Mapping[str, object], constants: Mapping[str, object]) -> Any:
    """The value of an expression by the options' defaults; raises what says that it is not known."""
    if isinstance(node, ast.Name):
        return constants[node.id]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        return defaults[node.attr]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _value(node.operand, defaults, constants)
    if isinstance(node, ast.BoolOp):
        values = (_value(value, defaults, constants) for value in node.values)
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        compare = _COMPARING[type(node.ops[0])]
        left, right = node.left, node.comparators[0]
        return compare(_value(left, defaults, constants), _value(right, defaults, constants))
    return ast.literal_eval(node)
