"""Values that are assigned to a name and never read: leftovers of an earlier version of a script."""

from __future__ import annotations

import ast

from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted

# What can read any name there is.
_BY_NAME = frozenset({"locals", "globals", "vars", "eval", "exec"})
_FARTHEST = 4


def is_unread(script: ScriptModel, value: ast.expr, far: int = 0) -> bool:
    """Whether all that becomes of an expression is a variable or attribute that nobody reads.

    Args:
        script: its model.
        value: the expression, or a part of the one that is assigned.
        far: how many assignments have been followed.
    """
    tree = script.tree
    stmt = tree.statement(value)
    if far > _FARTHEST or not isinstance(stmt, (ast.Assign, ast.AnnAssign)) or stmt.value is None:
        return False
    if not tree.is_within(value, {stmt.value}) or _is_handed_on(script, value, stmt):
        return False
    if tree.mentions(b"__dict__"):
        return False
    if any(dotted(call.func) in _BY_NAME for call in script.calls()):
        return False
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
    return all(_target_is_unread(script, stmt, target, value, far) for target in targets)


def _is_handed_on(script: ScriptModel, value: ast.expr, stmt: ast.stmt) -> bool:
    """Whether a call, or a choice, looks at an expression on its way to what it is assigned to."""
    looking = (ast.Call, ast.IfExp, ast.Subscript, ast.NamedExpr, ast.Lambda, ast.comprehension, ast.BoolOp)
    for node in script.tree.ancestors(value):
        if node is stmt:
            return False
        if isinstance(node, looking) and dotted(getattr(node, "func", None)) not in ("int", "float"):
            return True
    return False


def _target_is_unread(
    script: ScriptModel, stmt: ast.stmt, target: ast.expr, value: ast.expr, far: int
) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        whole = getattr(stmt, "value", None)
        if not isinstance(whole, (ast.Tuple, ast.List)) or len(whole.elts) != len(target.elts):
            return False
        pairs = zip(target.elts, whole.elts, strict=True)
        own = [one for one, part in pairs if script.tree.is_within(value, {part})]
        return all(_target_is_unread(script, stmt, one, value, far) for one in own)
    if isinstance(target, ast.Name):
        scope = script.scope_of(target).resolve(target.id)
        if scope is None or (scope.kind != "function" and _is_mentioned(script, target.id, attribute=False)):
            return False
        return all(is_unread(script, read, far + 1) for read in script.reads(target.id, scope))
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        own_name = script.scope_of(target).self_name()
        retained = own_name is not None and target.value.id == own_name
        return retained and not _is_mentioned(script, target.attr, attribute=True)
    return False


def _is_mentioned(script: ScriptModel, name: str, *, attribute: bool) -> bool:
    """Whether an attribute is read anywhere in the program, or a module's name from another module."""
    for module in script.interpreter.program.modules.values():
        if not module.tree.mentions(name.encode()):
            continue
        if not attribute and module not in script.modules:
            return True
        nodes = module.tree.nodes(ast.Attribute)
        if any(n.attr == name and isinstance(n.ctx, ast.Load) for n in nodes):
            return True
        if any(n.value == name for n in module.tree.nodes(ast.Constant) if isinstance(n.value, str)):
            return True
        if any(a.name == name for n in module.tree.nodes(ast.ImportFrom) for a in n.names):
            return True
    return False
