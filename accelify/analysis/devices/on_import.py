"""What a module puts on a GPU while it is imported: `mean = torch.zeros(3).cuda()` outside of all functions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from accelify.analysis.modules.main_blocks import is_main_test
from accelify.analysis.program import Module
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, call_keyword, calls_in, dotted, target_names, walk


def placed_on_import(
    module: Module, devices: frozenset[str] = frozenset()
) -> Iterator[tuple[list[str], ast.Call]]:
    """The names that a module binds, outside of its functions and its main guard, to what it puts on a GPU, each
    with the call that does.

    Args:
        module: a module of the program.
        devices: names that represent a GPU there.
    """
    for stmt in module.scopes.module.of_type(ast.Assign, ast.AnnAssign):
        if stmt.value is None:
            continue
        calls = [n for n in calls_in(stmt.value) if _places(n, devices)]
        calls = [c for c in calls if module.scopes.of(c) is module.scopes.module]
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        names = [name for target in targets for name in target_names(target)]
        around = [a for a in module.tree.ancestors(stmt) if isinstance(a, ast.If)]
        if calls and names and not any(is_main_test(a.test) for a in around):
            yield names, calls[0]


def with_derived(
    module: Module, placed: Iterable[tuple[list[str], ast.Call]]
) -> list[tuple[list[str], ast.Call]]:
    """The same, each with the names that the module binds to what is computed from it: `upper = (1 - mean) / std`."""
    found = [(names[:], call) for names, call in placed]
    by_name = {name: names for names, _ in found for name in names}
    stmts = module.scopes.module.of_type(ast.Assign) if found else []
    for stmt in sorted(stmts, key=lambda s: s.lineno):
        if not isinstance(stmt.value, ast.BinOp) or any(isinstance(n, ast.Call) for n in walk(stmt.value)):
            continue
        read = [n.id for n in walk(stmt.value) if isinstance(n, ast.Name) and n.id in by_name]
        for target in stmt.targets if read else ():
            if isinstance(target, ast.Name) and target.id not in by_name:
                by_name[target.id] = by_name[read[0]]
                by_name[read[0]].append(target.id)
    return found


def needs_it_on_import(script: ScriptModel, needed: frozenset[str]) -> bool:
    """Whether the script puts something on a GPU outside of its functions, where the Accelerator can be made before.

    Args:
        script: the script.
        needed: the names that the Accelerator's arguments read.
    """
    first = next(placed_on_import(script.module), None)
    if first is None:
        return False
    offset, module = script.tree.start(first[1]), script.scopes.module
    known = {
        node.id
        for node in module.of_type(ast.Name)
        if isinstance(node.ctx, ast.Store) and script.tree.start(node) < offset
    }
    return needed <= known


def _places(call: ast.Call, devices: frozenset[str]) -> bool:
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr == "cuda":
        return dotted(func) not in ("torch.cuda", "th.cuda")
    device = call_keyword(call, "device")
    if isinstance(func, ast.Attribute) and func.attr == "to":
        device = call_argument(call, 0, "device")
    if isinstance(device, ast.Call) and (dotted(device.func) or "").endswith("torch.device") and device.args:
        device = device.args[0]
    if isinstance(device, ast.Constant):
        return str(device.value).startswith("cuda")
    return isinstance(device, ast.Name) and device.id in devices
