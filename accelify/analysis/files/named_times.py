"""Times that have a name: of `now = datetime.now()` text is made later, `"{:%H%M}".format(now)`."""

from __future__ import annotations

import ast

from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import calls_in, dotted, target_names

_SHOWN = frozenset({"time", "now", "today", "utcnow", "localtime", "gmtime"})
# What is made of a time and is one, too, and dates that are no clock's but of the same kind.
_KEEPING = frozenset({"int", "round", "replace", "date", "timestamp", "astimezone"})
_DATES = frozenset({"datetime", "strptime", "fromtimestamp", "fromisoformat"})


def named_times(scope: Scope) -> set[str]:
    """The variables of a function, class or module that hold what a clock showed, or a date in its place."""
    made: dict[str, list[ast.expr]] = {}
    others: set[str] = set()
    for node in scope.of_type(ast.Assign):
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            made.setdefault(node.targets[0].id, []).append(node.value)
        else:
            others.update(name for target in node.targets for name in target_names(target))
    if not any(any(map(_is_shown, values)) for values in made.values()):
        return set()
    for node in scope.of_type(ast.AugAssign, ast.For):
        others.update(target_names(node.target))
    found: set[str] = set()
    for name, values in made.items():
        if name not in others and any(_is_time(value, found) for value in values):
            if all(_is_time(value, {*found, name}) or _last_name(value) in _DATES for value in values):
                found.add(name)
    return found


def _is_shown(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and any(_last_name(call) in _SHOWN for call in calls_in(value))


def _is_time(value: ast.expr, names: set[str]) -> bool:
    if isinstance(value, ast.Name):
        return value.id in names
    if not isinstance(value, ast.Call):
        return False
    last = _last_name(value)
    contained = [*value.args, *([value.func.value] if isinstance(value.func, ast.Attribute) else [])]
    return last in _SHOWN or (last in _KEEPING and any(_is_time(a, names) for a in contained))


def _last_name(value: ast.expr) -> str:
    if not isinstance(value, ast.Call):
        return ""
    return str(dotted(value.func) or getattr(value.func, "attr", "")).rsplit(".", 1)[-1]
