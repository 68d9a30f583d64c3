"""Branches that do nothing but take models to a GPU: what they ask is whether to use one, in whatever form.

if args.cuda.startswith("True"):        model = model.cuda() if args.where == "card" else model
    model.cuda()
    criterion.cuda()
"""

from __future__ import annotations

import ast
import re

from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, walk


def is_move_to_gpu(node: ast.AST) -> bool:
    """Whether a node is `x.cuda()` or `x.to("cuda")`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    where = node.args[0] if node.func.attr == "to" and node.args else None
    return node.func.attr == "cuda" or (
        isinstance(where, ast.Constant) and str(where.value).startswith("cuda")
    )


def only_moves(script: ScriptModel, branch: ast.If | ast.IfExp, call: ast.Call) -> bool:
    """Whether the side of a branch with a model's move does nothing else, and the other side none of it.

    Args:
        script: its model.
        branch: the branch.
        call: the move.
    """
    if not isinstance(call.func, ast.Attribute) or not script.models_of(call.func.value):
        return False
    if isinstance(branch, ast.IfExp):
        return any(side is call for side in (branch.body, branch.orelse))
    side = branch.body if any(call is n for stmt in branch.body for n in walk(stmt)) else branch.orelse
    return all(map(_is_of_moves, side))


def _is_of_moves(stmt: ast.stmt) -> bool:
    if isinstance(stmt, ast.Assign):
        settings = (dotted(target) or "" for target in stmt.targets)
        return any(map(is_move_to_gpu, walk(stmt.value))) or any(".backends." in text for text in settings)
    if isinstance(stmt, ast.Expr):
        shown = isinstance(stmt.value, ast.Call) and dotted(stmt.value.func) == "print"
        return shown or any(map(is_move_to_gpu, walk(stmt.value)))
    return isinstance(stmt, ast.Pass)


def as_callers_say(
    script: ScriptModel, wish: tuple[str, frozenset[str]], scope: Scope
) -> tuple[str, frozenset[str]] | None:
    """A setting that reads parameters of a function, by what its callers hand to them; None where these differ.

    Args:
        script: its model.
        wish: the setting's text and the names that it reads.
        scope: the function.
    """
    text, names = wish
    found: dict[str, set[str | None]] = {}
    for call in script.callers(scope):
        given = {name: dotted(value) for value, name in handed_to(call, scope)}
        for name in names:
            found.setdefault(name, set()).add(given.get(name))
    reported = {name: texts.pop() for name, texts in found.items() if len(texts) == 1}
    if script.called_from_elsewhere(scope) or len(reported) < len(names):
        return None
    for name, handed in reported.items():
        if handed is None:
            return None
        text = re.sub(rf"(?<![\w.]){re.escape(name)}\b", handed, text)
    return text, frozenset(str(handed).partition(".")[0] for handed in reported.values())
