"""Moves to a GPU by functions of the project's other modules, which the script only calls: `x = to_variable(x)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node, call_argument, dotted


def helpers_use_accelerator(script: ScriptModel) -> bool:
    """Whether code of other modules that can run asks for a GPU: their own, and that of functions that are called."""
    return any(
        _may_run(script, module, node)
        for module in script.program.modules.values()
        if module not in script.modules
        for node in _uses(module)
    )


def flags_of_helpers(script: ScriptModel) -> list[ast.expr]:
    """What the script hands to flags of other modules' functions that decide on their moves: `cuda(x, args.cuda)`."""
    found = []
    for call in script.calls():
        for callee in script.callees(call):
            module = script.interpreter.module_of(callee)
            if module in script.modules:
                continue
            for name in _deciding_parameters(module, callee):
                names = callee.positional()
                if name not in names:
                    continue
                # The script writes no `self`.
                place = names.index(name) - (callee.self_name() is not None)
                given = call_argument(call, place, name)
                if given is not None and not isinstance(given, ast.Constant):
                    found.append(given)
    return found


def _uses(module: Module) -> Iterator[Node]:
    for call in module.tree.nodes(ast.Call):
        name = dotted(call.func) or (call.func.attr if isinstance(call.func, ast.Attribute) else "")
        if name.rsplit(".", 1)[-1] == "cuda" or name.endswith(("cuda.is_available", "cuda.set_device")):
            yield call
    for constant in module.tree.nodes(ast.Constant):
        if (
            isinstance(constant.value, str)
            and constant.value != "cpu"
            and k.DEVICE_TEXT.match(constant.value)
        ):
            yield constant


def _may_run(script: ScriptModel, module: Module, node: Node) -> bool:
    scope: Scope = module.scopes.of(node)
    if scope.kind != "function":
        return not any(_is_main(ancestor) for ancestor in module.tree.ancestors(node))
    while scope.parent is not None and scope.parent.kind == "function":
        scope = scope.parent
    # Who calls the methods of a model or a data set is not always seen.
    return scope.is_method or bool(script.interpreter.callers.get(scope))


def _is_main(node: Node) -> bool:
    return isinstance(node, ast.If) and "__name__" in {
        n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)
    }


def _deciding_parameters(module: Module, callee: Scope) -> set[str]:
    """The parameters of a function that its moves stand under."""
    parameters = {argument.arg for argument in callee.parameters()}
    found: set[str] = set()
    for call in ast.walk(callee.node):
        if not (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "cuda"
        ):
            continue
        for ancestor in module.tree.ancestors(call):
            if isinstance(ancestor, (ast.If, ast.IfExp)):
                found |= {n.id for n in ast.walk(ancestor.test) if isinstance(n, ast.Name)} & parameters
    return {name for name in found if k.FLAG_NAME.search(name)}
