"""The Accelerator of an object at hand: `agent.accelerator`, where only the agent keeps one."""

from __future__ import annotations

import ast
from collections import Counter

from accelify.analysis.anchors import NAME, Reach
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.values import Thing


class AtHand:
    """Asks for the objects that keep the Accelerator.

    Args:
        script: the script.
        reach: how the Accelerator comes to where it is needed; None where there is none.
    """

    def __init__(self, script: ScriptModel, reach: Reach | None) -> None:
        self._script = script
        self._kept = _keeping(script, reach)

    def expression(self, node: ast.AST) -> str | None:
        """How the Accelerator of an object is written that is surely made where a node stands."""
        tree = self._script.tree
        made = self._kept.get(self._script.scope_of(node), ())
        around = {node, *tree.ancestors(node)} if made else set()
        for stmt in made:
            block = tree.block_of(stmt)[2]
            if any(later in around for later in block[block.index(stmt) + 1 :]):
                return f"{tree.segment(stmt.targets[0])}.{NAME}"
        return None


def _keeping(script: ScriptModel, reach: Reach | None) -> dict[Scope, list[ast.Assign]]:
    """The statements that name an object which keeps the Accelerator, by scope; the name has no other value."""
    found: dict[Scope, list[ast.Assign]] = {}
    homes = {home for home in (reach.root, *reach.threaded) if home.kind == "class"} if reach else set()
    for stmt in script.tree.nodes(ast.Assign) if homes else ():
        if len(stmt.targets) != 1 or not isinstance(stmt.targets[0], ast.Name):
            continue
        held = script.values(stmt.value) if isinstance(stmt.value, ast.Call) else set()
        if held and all(isinstance(w, Thing) and w.cls is not None and w.cls.scope in homes for w in held):
            found.setdefault(script.scope_of(stmt), []).append(stmt)
    if found:
        bound = Counter(
            (script.scope_of(name).resolve(name.id), name.id)
            for name in script.tree.nodes(ast.Name)
            if not isinstance(name.ctx, ast.Load)
        )
        for scope, made in found.items():
            found[scope] = [s for s in made if bound[scope, s.targets[0].id] == 1]  # type: ignore[attr-defined]
    return found
