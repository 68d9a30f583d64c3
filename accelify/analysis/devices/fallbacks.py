"""A device that the caller or an option names, and the CPU in its place where the machine has nothing better."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis.devices.options import holds_options
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import is_constant


def named_before(script: ScriptModel, stmt: ast.stmt) -> ast.Name | None:
    """The name that `if not torch.cuda.is_available(): device = "cpu"` sets to the CPU, in place of a chosen device.

    It is set from an option, `device = args.device`, or is a parameter: the Accelerator makes the whole choice.
    """
    inner = fallback(script, stmt)
    name = inner.targets[0] if inner is not None else None
    if not isinstance(name, ast.Name):
        return None
    scope = script.scope_of(stmt)
    owner = scope.resolve(name.id)
    others = [
        other
        for other in script.tree.assigns(name.id)
        if other is not inner and script.scope_of(other).resolve(name.id) is owner
    ]
    stated = [
        o for o in others if _is_option(script, o.value) and script.tree.parent(o) is script.tree.parent(stmt)
    ]
    parameter = owner is scope and scope.takes(name.id)
    parameter = parameter and script.tree.parent(stmt) is scope.node
    if len(stated) < len(others) or len(others) > 1 or parameter == bool(stated):
        return None
    return name if parameter or script.tree.is_before(stated[0], stmt) else None


def fallback(script: ScriptModel, stmt: ast.stmt) -> ast.Assign | None:
    """The assignment of the CPU to something in a statement that does this alone where the machine has no GPU."""
    if (
        not isinstance(stmt, ast.If)
        or stmt.orelse
        or len(stmt.body) != 1
        or script.tree.is_elif(stmt)
        or not _lacks(script, stmt.test)
    ):
        return None
    inner = stmt.body[0]
    if not isinstance(inner, ast.Assign) or len(inner.targets) != 1:
        return None
    value = inner.value
    if isinstance(value, ast.Call) and script.qualname(value.func) == "torch.device" and value.args:
        value = value.args[0]
    return inner if is_constant(value, "cpu") else None


def _lacks(script: ScriptModel, test: ast.expr) -> bool:
    """Whether a test is true where the machine has no GPU, whatever the options are."""
    call = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
    return isinstance(call, ast.Call) and script.qualname(call.func) in k.AVAILABILITY_CALLS


def _is_option(script: ScriptModel, value: ast.expr) -> bool:
    base = value.value if isinstance(value, (ast.Attribute, ast.Subscript)) else None
    return isinstance(base, ast.Name) and holds_options(script, base)
