"""Helpers that reduce over the processes by themselves. Modules of them evaluate nothing, for all their `no_grad`.

with torch.no_grad():
    dist.all_reduce(value)
    value /= dist.get_world_size()
"""

from __future__ import annotations

import ast

from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope

_COLLECTIVES = frozenset(
    "all_reduce reduce all_gather all_gather_into_tensor all_gather_single all_gather_object gather broadcast "
    "reduce_scatter".split()
)


def only_reduces(module: Module) -> bool:
    """Whether all that a module does without gradients is to put tensors of several processes together.

    Such helpers ask by themselves whether there is a process group, and work as they are.
    """
    mentions = module.tree.mentions
    if not mentions("distributed") or mentions(".backward(") or mentions(".eval()"):
        return False
    return all(
        _reduces(module.scopes.of(node))
        for node in module.tree.nodes(ast.Attribute, ast.Name)
        if "no_grad" in (getattr(node, "attr", ""), getattr(node, "id", ""))
    )


def _reduces(scope: Scope) -> bool:
    """Whether a function calls a collective, and runs none of its arguments."""
    if scope.kind != "function":
        return False
    called = [n.func for n in scope.calls]
    given = {a.arg for a in scope.parameters()}
    names = {getattr(f, "attr", getattr(f, "id", "")) for f in called}
    return bool(names & _COLLECTIVES) and not any(isinstance(f, ast.Name) and f.id in given for f in called)
