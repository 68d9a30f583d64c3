"""What is done to the parts of a model one by one: `for layer in net.modules(): layer.prune(0.5)`.

Whose method that is cannot be known, as the parts are of any class. Its result is dropped, so it was called for its
side effects on them.
"""

from __future__ import annotations

import ast
import re

from accelify.analysis.statements.local_objects import root_name
from accelify.analysis.syntax import Tree, target_names, walk

_PARTS = frozenset("modules named_modules children named_children parameters named_parameters".split())
# What shows or saves, by its name.
_SHOWING = re.compile(
    r"^(print|show|summar|describe|display|plot|draw|log|info|debug|write|save|dump|export|check)"
)
_HOOKS = re.compile(r"^register_\w*hook$")


def changes_part(tree: Tree, call: ast.Call) -> bool:
    """Whether a call whose result is dropped is of, or about, a part of a model that a loop iterates over.

    Args:
        tree: of the module around it.
        call: of a function that is not seen.
    """
    if not isinstance(tree.parent(call), ast.Expr):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if _SHOWING.search(name) or _HOOKS.search(name):
        return False
    about: list[ast.expr] = [call.func] if isinstance(call.func, ast.Attribute) else []
    about += [*call.args, *[kw.value for kw in call.keywords]]
    names = {root_name(one) for one in about if isinstance(one, (ast.Name, ast.Attribute))}
    return any(
        isinstance(loop, ast.For)
        and names & set(target_names(loop.target))
        and _goes_through_parts(loop.iter)
        for loop in tree.ancestors(call)
    )


def _goes_through_parts(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr in _PARTS for n in walk(node))
