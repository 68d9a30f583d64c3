"""`os.environ["CUDA_VISIBLE_DEVICES"] = ...`: GPUs that a script chooses before the first use of a device.

Written out, under an `if`, or by a function that is called for it: `set_gpu(args.gpu)`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Set

from accelify.analysis import values as v
from accelify.analysis.modules.main_blocks import is_main_test
from accelify.analysis.program import Module, absolute_name
from accelify.analysis.scopes import Scope, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, is_constant

# Libraries that choose the GPUs that are seen by being imported.
_CHOOSING = frozenset({"setGPU"})
_USING = frozenset({"cuda", "to", "set_device"})  # what starts CUDA: which GPUs it sees is settled then
_ASKING = _USING | {"device", "is_available", "device_count"}


def hides_devices(script: ScriptModel, stmt: ast.stmt) -> bool:
    """Whether a statement does nothing but choose the GPUs that are seen, so that it can be before all devices."""
    if isinstance(stmt, ast.Assign):
        return _is_choice(stmt) and not _follows(script, stmt, _ASKING if hides_all(stmt) else _USING)
    if isinstance(stmt, ast.Expr):
        callee = hiding(script, stmt.value) if isinstance(stmt.value, ast.Call) else None
        return callee is not None and not _makes_something(script, callee)
    if isinstance(stmt, ast.If):
        inside = [*stmt.body, *stmt.orelse]
        return any(hides_devices(script, s) for s in inside) and all(
            isinstance(s, ast.Pass) or _sets_variable(s) or hides_devices(script, s) for s in inside
        )
    return False


def hiding(script: ScriptModel, call: ast.Call) -> Scope | None:
    """The function that a call runs and that chooses the GPUs that are seen, if one does."""
    for callee in in_order(script.callees(call)):
        if not callee.is_method and script.interpreter.module_of(callee).tree.mentions("VISIBLE_DEVICES"):
            if any(isinstance(n, ast.Assign) and _is_choice(n) and not hides_all(n) for n in callee.nodes):
                return callee
    return None


def hidden_on_import(script: ScriptModel) -> Iterator[tuple[ast.stmt, str]]:
    """The imports that set which GPUs are visible, each with the module that does; of converted modules, the statement
    itself is looked at."""
    stated: set[str] = set()
    seen: set[Module] = set()
    for module in script.modules:
        for stmt in module.tree.nodes(ast.Import, ast.ImportFrom):
            for name in _modules_named(stmt, module):
                found = name if name in _CHOOSING else _choosing(script, module.imports.get(name), seen)
                if found is not None and found not in stated:
                    stated.add(found)
                    yield stmt, found


def _modules_named(stmt: ast.Import | ast.ImportFrom, module: Module) -> list[str]:
    """The modules that an import may name: `a` and `a.b` of `from a import b`."""
    if isinstance(stmt, ast.Import):
        return [alias.name for alias in stmt.names]
    base = absolute_name(stmt, module.package)
    return [] if base is None else [base, *(f"{base}.{alias.name}" for alias in stmt.names)]


def _choosing(script: ScriptModel, module: Module | None, seen: set[Module]) -> str | None:
    """The file of the first module that an import leads to, not `seen` yet, that chooses the GPUs on being imported."""
    queue = [module] if module is not None else []
    while queue:
        one = queue.pop(0)
        if one in seen or one in script.modules:
            continue
        seen.add(one)
        mentions = one.tree.mentions
        if mentions("VISIBLE_DEVICES") and any(map(_is_chosen_at_once(one), one.scopes.module.nodes)):
            return one.path.name if one.path is not None else one.name
        if any(map(mentions, _CHOOSING)):
            named = {a.name for n in one.tree.nodes(ast.Import) for a in n.names}
            if found := named & _CHOOSING:
                return str(min(found))
        queue += one.imports.values()
    return None


def _is_chosen_at_once(module: Module) -> Callable[[ast.AST], bool]:
    def is_chosen(node: ast.AST) -> bool:
        if not isinstance(node, ast.Assign) or not _is_choice(node) or hides_all(node):
            return False
        around = [a for a in module.tree.ancestors(node) if isinstance(a, ast.If)]
        return not any(is_main_test(a.test) for a in around)

    return is_chosen


def hides_all(stmt: ast.Assign) -> bool:
    """Whether it names no GPU: for a run on the CPU, or for a program that is started after it."""
    return is_constant(stmt.value, "", "-1")


def _follows(script: ScriptModel, stmt: ast.stmt, calls: Set[str]) -> bool:
    """Whether the script has called any of these methods by then: only programs started later see the choice."""
    scope, start = script.scope_of(stmt), script.tree.start(stmt)
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr in calls and script.tree.start(call) < start
        for call in script.calls()
        if script.scope_of(call) is scope
    )


def _makes_something(script: ScriptModel, callee: Scope) -> bool:
    """Whether a function of the converted modules also does what needs the Accelerator."""
    if script.interpreter.module_of(callee) not in script.modules:
        return False
    kinds = (v.MODEL, v.OPTIMIZER, v.LOADER, v.DEVICE, v.BATCH)
    return callee in script.training_scopes or any(
        isinstance(n, ast.Call) and script.is_a(n, *kinds) for n in callee.nodes
    )


def _sets_variable(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Assign) and any(_of_environment(t) for t in stmt.targets)


def _is_choice(stmt: ast.Assign) -> bool:
    return any(
        isinstance(t, ast.Subscript)
        and _of_environment(t)
        and isinstance(t.slice, ast.Constant)
        and "VISIBLE_DEVICES" in str(t.slice.value)
        for t in stmt.targets
    )


def _of_environment(target: ast.expr) -> bool:
    return isinstance(target, ast.Subscript) and (dotted(target.value) or "").endswith("environ")
