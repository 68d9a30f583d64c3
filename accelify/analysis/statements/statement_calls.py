"""What an expression statement does: the calls that it is written for, also where several are in one expression.

`os.path.exists(f) or os.makedirs(f)`; `plt.plot(x), plt.savefig(f), plt.close()`; `[os.remove(f) for f in old]`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from accelify.analysis.files.effects import SideEffects
from accelify.analysis.syntax import Tree, walk

_CLOSING = frozenset({"close", "clf", "cla"})
_JOINING = (ast.Tuple, ast.List, ast.BoolOp, ast.IfExp, ast.ListComp, ast.SetComp)


def calls_done(statements: Iterable[ast.stmt]) -> list[ast.Call]:
    """The calls that expression statements consist of, one after the other."""
    return [call for stmt in statements if isinstance(stmt, ast.Expr) for call in _calls(stmt.value)]


def statement_for(tree: Tree, call: ast.Call) -> ast.Expr | None:
    """The statement that a call is written for, None where what the call returns goes on from there."""
    child: ast.AST = call
    for ancestor in tree.ancestors(call):
        if isinstance(ancestor, ast.Expr):
            return ancestor
        if not isinstance(ancestor, _JOINING) or not any(child is part for part in _parts(ancestor)):
            return None
        child = ancestor
    return None


def closed_beside(run: Iterable[ast.stmt], writes: Callable[[ast.Call], bool]) -> list[ast.Call]:
    """What statements close besides what they write, where none can have opened it: `plt.savefig(f), plt.close()`.

    Args:
        run: the statements, neighbours.
        writes: whether a call of theirs writes.
    """
    found: list[ast.Call] = []
    for done in (calls_done([stmt]) for stmt in run):
        rest = [c for c in done if not writes(c)]
        closing = [c for c in rest if isinstance(c.func, ast.Attribute) and c.func.attr in _CLOSING]
        if closing == rest:
            found += closing
    return found


def needed_beside(effects: SideEffects, node: ast.AST) -> str:
    """Why all processes need what else is in an expression of several calls; "" where they do not."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, _JOINING):
        return ""
    if any(isinstance(n, ast.NamedExpr) for n in walk(node)):
        return "what it binds is used by all of them"
    found = effects.of_nodes(node)
    reason = "it changes the model" if found.sets_model else effects.not_alone(found)
    changed = min(found.changes, default="")
    if not reason and changed:
        reason = f"it changes `{changed}`"
    saves = any(effects.script.qualname(call.func) == "torch.save" for call in calls_done([node]))
    return reason or ("it saves beside it" if saves else "")


def _calls(node: ast.expr) -> Iterator[ast.Call]:
    if isinstance(node, ast.Call):
        yield node
    elif isinstance(node, _JOINING):
        for part in _parts(node):
            yield from _calls(part)


def _parts(node: ast.AST) -> list[ast.expr]:
    """The expressions that one is put together of, without the tests in it."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return node.elts
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    return [node.elt] if isinstance(node, (ast.ListComp, ast.SetComp)) else []
