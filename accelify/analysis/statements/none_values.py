"""Values that are None in all calls: a parameter for which no call passes a value, or an attribute that stores one."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.branches import decided
from accelify.analysis.syntax import call_argument, dotted, hides_arguments, is_constant, names_in, walk

# How often a parameter is passed on, or stored, before it is not followed any more.
_FARTHEST = 4


def asks_for_none(node: ast.AST | None) -> bool:
    """`x is None`, `None is not x`, `x == None`."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return False
    return isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)) and any(
        is_constant(side, None) for side in (node.left, *node.comparators)
    )


def is_none(script: ScriptModel, node: ast.expr, scope: Scope, far: int = 0) -> bool:
    """Whether an expression is surely None, as far as the calls in the program tell."""
    if is_constant(node, None):
        return True
    if far > _FARTHEST:
        return False
    if isinstance(node, ast.Name):
        owner = scope.resolve(node.id)
        if owner is None or not isinstance(owner.node, ast.FunctionDef):
            return False
        return _is_left_none(script, node.id, owner, far)
    if isinstance(node, ast.IfExp):
        taken = decided(node.test, _constants(script, scope, node.test, far))
        return taken is not None and is_none(script, node.body if taken else node.orelse, scope, far + 1)
    name, receiver = dotted(node), scope.self_name()
    if not isinstance(node, ast.Attribute) or receiver is None or name != f"{receiver}.{node.attr}":
        return False
    module, cls = script.interpreter.module_of(scope), scope.owner_class
    # Anything else that sets an attribute of this name could set this one.
    trees = dict.fromkeys([module.tree, *(one.tree for one in script.modules)])
    every = [n for tree in trees for n in tree.nodes(ast.Attribute) if n.attr == node.attr]
    stores = [n for n in every if isinstance(n.ctx, ast.Store)]
    if any(module.tree.parent(store) is None for store in stores):
        return False  # criterion.weight = weights, in the script itself
    values = []
    for store in stores:
        stmt, home = module.tree.parent(store), module.scopes.of(store)
        if not isinstance(stmt, ast.Assign) or home.owner_class is not cls:
            return False
        values.append((stmt.value, home))
    return bool(values) and all(is_none(script, value, home, far + 1) for value, home in values)


def _is_left_none(script: ScriptModel, name: str, function: Scope, far: int) -> bool:
    """Whether a variable of a function holds None whatever calls: `if weight is not None: w = torch.tensor(weight)`."""
    tree = script.interpreter.module_of(function).tree
    taken = function.takes(name)
    if taken and _given(script, function, name, far) != {None}:
        return False
    made = False
    for store in function.nodes:
        if not isinstance(store, ast.Name) or store.id != name or isinstance(store.ctx, ast.Load):
            continue
        if _is_ruled_out(script, tree.ancestors(store), function, far):
            continue
        stmt = tree.parent(store)
        if not isinstance(stmt, ast.Assign) or not is_none(script, stmt.value, function, far + 1):
            return False
        made = True
    return made or taken


def is_ruled_out(script: ScriptModel, node: ast.AST, function: Scope) -> bool:
    """Whether a node is in a branch of a function that no call takes: after `if dim is None:`, for example."""
    around = script.interpreter.module_of(function).tree.ancestors(node)
    return function.kind == "function" and _is_ruled_out(script, around, function, 0)


def _is_ruled_out(script: ScriptModel, around: Iterable[ast.AST], function: Scope, far: int) -> bool:
    """Whether something is in a branch that no call of its function takes."""
    inner: ast.AST | None = None
    for ancestor in around:
        if ancestor is function.node:
            break
        if isinstance(ancestor, ast.If) and inner is not None:
            taken = decided(ancestor.test, _constants(script, function, ancestor.test, far))
            if taken is not None and inner in (ancestor.orelse if taken else ancestor.body):
                return True
        inner = ancestor
    return False


def _constants(script: ScriptModel, function: Scope, test: ast.expr, far: int) -> dict[str, object]:
    """The parameters in a test that are one constant in all calls, but for those that are bound again before it."""
    tree = script.interpreter.module_of(function).tree
    inside = set(walk(tree.statement(test)))
    stored = {n.id for n in function.of_type(ast.Name) if not isinstance(n.ctx, ast.Load) and n not in inside}
    names = names_in(test) - stored
    given = {a.arg: _given(script, function, a.arg, far) for a in function.parameters() if a.arg in names}
    # For a test whether it is None, any of several numbers will do.
    asked = asks_for_none(test)
    return {
        name: min(values, key=str)
        for name, values in given.items()
        if values and (len(values) == 1 or (asked and None not in values))
    }


def _given(script: ScriptModel, function: Scope, name: str, far: int) -> set[object] | None:
    """The constants that the calls of a function pass for a parameter; None where one passes something else."""
    calls = script.interpreter.callers.get(function, [])
    if not calls or far > _FARTHEST or not isinstance(function.node, ast.FunctionDef):
        return None
    positional, defaults = function.positional(), {a.arg: d for a, d in function.defaults()}
    index = positional.index(name) - (function.self_name() is not None) if name in positional else -1
    found: set[object] = set()
    for module, call in calls:
        hidden = hides_arguments(call)
        given = call_argument(call, index, name) or defaults.get(name)
        if hidden or given is None:
            return None
        if isinstance(given, ast.Constant):
            found.add(given.value)
        elif is_none(script, given, module.scopes.of(call), far + 1):
            found.add(None)
        else:
            return None
    return found


def are_none(script: ScriptModel, node: ast.expr) -> bool:
    """Whether a list holds None alone: `[None] * n`, `[None for _ in losses]`, or one that only None goes into."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return are_none(script, node.left) or are_none(script, node.right)
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(is_constant(e, None) for e in node.elts)
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return is_constant(node.elt, None)
    if not isinstance(node, ast.Name):
        return False
    scope = script.scope_of(node).resolve(node.id)
    made = [s for s in script.tree.assigns(node.id) if script.scope_of(s).resolve(node.id) is scope]
    read = (n for n in script.tree.nodes(ast.Name) if n.id == node.id and n is not node)
    others = [n for n in read if isinstance(n.ctx, ast.Load) and script.scope_of(n).resolve(n.id) is scope]
    return (
        bool(made)
        and all(are_none(script, s.value) for s in made)
        and all(_is_given_none_more(script, n) for n in others)
    )


def _is_given_none_more(script: ScriptModel, node: ast.Name) -> bool:
    """`gradients.append(None)`."""
    method = script.tree.parent(node)
    call = script.tree.parent(method) if isinstance(method, ast.Attribute) else None
    return (
        isinstance(method, ast.Attribute)
        and method.attr == "append"
        and isinstance(call, ast.Call)
        and call.func is method
        and all(is_constant(a, None) for a in call.args)
    )


__all__ = ["are_none", "is_none", "is_ruled_out"]
