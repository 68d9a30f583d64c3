"""Progress bars that functions of modules draw which are not converted."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from accelify.analysis import knowledge as k
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.unreached import reached
from accelify.analysis.syntax import call_keyword

Qualname = Callable[[Module, Scope, ast.expr], str | None]


def bars_elsewhere(
    script: ScriptModel, calls: Iterable[ast.Call], qualname: Qualname
) -> Iterator[tuple[ast.Call, Module, int]]:
    """The bars that some calls come to in any case, each once: with the call, the module and the line of the bar.

    Args:
        script: its model.
        calls: calls of the script.
        qualname: the name of a library's function that an expression of a module is.
    """
    seen: set[Scope] = set()
    for call in calls:
        queue = in_order(script.callees(call))
        while queue:
            function = queue.pop(0)
            module = script.interpreter.module_of(function)
            if function in seen or module in script.modules or function.kind != "function":
                continue
            seen.add(function)
            for node in reached(module.tree, function.nodes):
                if not isinstance(node, ast.Call) or _may_be_left_out(module, node):
                    continue
                if _is_bar(node, qualname(module, function, node.func)):
                    yield call, module, node.lineno
                queue += in_order(script.interpreter.calls.get(node, set()))


def _is_bar(call: ast.Call, name: str | None) -> bool:
    told = call_keyword(call, "disable") is not None or any(kw.arg is None for kw in call.keywords)
    return k.is_progress(name) and not told


def _may_be_left_out(module: Module, call: ast.Call) -> bool:
    """Whether a function can go on without a call of its own: under a test, or where something failed."""
    for ancestor in module.tree.ancestors(call):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if isinstance(ancestor, (ast.If, ast.IfExp, ast.ExceptHandler, ast.Lambda)):
            return True
    return False


__all__ = ["bars_elsewhere"]
